/* Models read from Hugging Face configs. */
#include "model/model_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bounds that catch typing errors, far beyond any model that could be trained. */
enum {
    MAX_LAYERS = 10000,
    MAX_WIDTH = 10000000,
    MAX_HEAD_DIM = 8192,
    MAX_VOCAB = 100000000,
};

/*
 * The defaults of a family of configs; keys override them. A multimodal model has the family of its
 * text_config, which is named by `type`.
 */
struct model_family {
    const char *architecture, *also[3]; /* the value of `architectures` */
    const char *types[6];               /* the value of `model_type` */
    int (*read)(struct erg_model *model, const struct model_family *family,
                const struct erg_json_place *place, struct erg_error *err);
    bool qkv_bias, qk_norm;
    bool window_asked_for; /* `sliding_window` means nothing without use_sliding_window: true */
    long head_dim;         /* 0: hidden / heads */
};

/* The activation must be one whose cost is known; `known` is a prefix of its name. */
static int check_activation(const struct erg_json_place *place, const char *key, const char *known,
                            struct erg_error *err)
{
    const char *activation = known;
    if (!erg_json_has(place, key))
        return 0;
    if (erg_json_string(place, key, &activation, err) != 0)
        return -1;
    if (!strncmp(activation, known, strlen(known)))
        return 0;
    return erg_json_fail(place, key, err, "expected \"%s\", got \"%s\"", known, activation);
}

static int read_yarn(struct erg_rope *rope, const struct erg_json_place *place,
                     struct erg_error *err)
{
    double attention = NAN;
    rope->fast = 32;
    rope->slow = rope->mscale[0] = 1;
    rope->whole_range = true;
    if (optional_double(place, "beta_fast", 0, INFINITY, &rope->fast, err) ||
        optional_double(place, "beta_slow", 0, INFINITY, &rope->slow, err) ||
        optional_double(place, "attention_factor", 0, INFINITY, &attention, err) ||
        optional_bool(place, "truncate", &rope->whole_range, err))
        return -1;
    if (!isnan(attention)) {
        if (rope->factor > 1)
            rope->mscale[0] = (attention - 1) / (0.1 * log(rope->factor));
        return 0;
    }
    /* Both, or neither, as in the published code. */
    return erg_json_has(place, "mscale") && erg_json_has(place, "mscale_all_dim")
               ? erg_json_double(place, "mscale", 0, INFINITY, &rope->mscale[0], err) ||
                     erg_json_double(place, "mscale_all_dim", 0, INFINITY, &rope->mscale[1], err)
               : 0;
}

/* `positions`: of the model, which are those before scaling if the config gives no others. */
static int read_scaling(struct erg_rope *rope, const struct erg_json_place *place, long positions,
                        struct erg_error *err)
{
    static const struct {
        const char *type;
        enum erg_rope_scaling scaling;
    } types[] = {
        {"default", ERG_ROPE_PLAIN}, {"mrope", ERG_ROPE_PLAIN}, /* three positions, of text alike */
        {"linear", ERG_ROPE_LINEAR}, {"llama3", ERG_ROPE_LLAMA3}, {"yarn", ERG_ROPE_YARN},
    };
    const char *type = "default";
    const char *key = erg_json_has(place, "rope_type") ? "rope_type" : "type";
    double query_scale = 0;
    if (erg_json_has(place, key) && erg_json_string(place, key, &type, err))
        return -1;
    rope->scaling = ERG_ROPE_OTHER;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, type))
            rope->scaling = types[i].scaling;
    if (optional_double(place, "llama_4_scaling_beta", -INFINITY, INFINITY, &query_scale, err))
        return -1;
    rope->queries_scaled = query_scale != 0;
    if (rope->scaling == ERG_ROPE_PLAIN || rope->scaling == ERG_ROPE_OTHER)
        return 0;
    rope->positions = rope->scaling == ERG_ROPE_LLAMA3 ? 8192 : positions;
    rope->low = 1;
    rope->high = 4;
    if (erg_json_double(place, "factor", 1, INFINITY, &rope->factor, err) ||
        optional_long(place, "original_max_position_embeddings", LONG_MAX, &rope->positions, err) ||
        optional_double(place, "low_freq_factor", 0, INFINITY, &rope->low, err) ||
        optional_double(place, "high_freq_factor", 0, INFINITY, &rope->high, err))
        return -1;
    return rope->scaling == ERG_ROPE_YARN ? read_yarn(rope, place, err) : 0;
}

static int read_rotated_share(double *share, const struct erg_json_place *place,
                              struct erg_error *err)
{
    const char *key = "partial_rotary_factor";
    if (optional_double(place, key, 0, 1, share, err))
        return -1;
    return *share > 0 ? 0 : erg_json_fail(place, key, err, "expected a number above 0, got 0");
}

/* Rotary frequencies. Newer configs have all of them in one object, `rope_parameters`. */
static int read_rope(struct erg_model *model, const struct erg_json_place *place,
                     struct erg_error *err)
{
    struct erg_json_place scaling;
    const char *inner = "rope_parameters";
    model->rope_theta = 10000;
    model->rope.rotated_share = 1;
    if (optional_double(place, "rope_theta", 1, INFINITY, &model->rope_theta, err) ||
        read_rotated_share(&model->rope.rotated_share, place, err))
        return -1;
    if (!erg_json_has(place, inner))
        inner = "rope_scaling";
    if (!erg_json_has(place, inner))
        return 0;
    if (erg_json_enter(&scaling, place, inner, err))
        return -1;
    if (optional_double(&scaling, "rope_theta", 1, INFINITY, &model->rope_theta, err) ||
        read_rotated_share(&model->rope.rotated_share, &scaling, err))
        return -1;
    return read_scaling(&model->rope, &scaling, model->max_positions, err);
}

/* Heads share the hidden size where the config does not say how wide they are. */
static int fill_head_dim(struct erg_model *model, const struct erg_json_place *place,
                         const char *heads_key, const char *size, struct erg_error *err)
{
    if (model->head_dim)
        return 0;
    if (model->hidden % model->heads != 0)
        return erg_json_fail(place, heads_key, err,
                             "expected a divisor of the %s %ld (or a key 'head_dim'), got %ld",
                             size, model->hidden, model->heads);
    model->head_dim = model->hidden / model->heads;
    return 0;
}

/*
 * Llama, Mistral, Qwen, Phi-3: RMSNorm, rotary positions, SwiGLU, grouped keys and values. Phi has
 * the products of queries, keys and values in one matrix, and those of SwiGLU, which is how all are
 * counted. Where only a part of a head's channels is rotated the kernel still reads and writes all.
 */
static int read_llama(struct erg_model *model, const struct model_family *family,
                      const struct erg_json_place *place, struct erg_error *err)
{
    model->gated = true;
    model->head_dim = family->head_dim;
    if (erg_json_long(place, "hidden_size", 1, MAX_WIDTH, &model->hidden, err) ||
        erg_json_long(place, "intermediate_size", 1, MAX_WIDTH, &model->ffn, err) ||
        erg_json_long(place, "num_hidden_layers", 1, MAX_LAYERS, &model->layers, err) ||
        erg_json_long(place, "num_attention_heads", 1, LONG_MAX, &model->heads, err) ||
        erg_json_long(place, "vocab_size", 1, MAX_VOCAB, &model->vocab, err) ||
        erg_json_double(place, "rms_norm_eps", 0, 1, &model->norm_eps, err))
        return -1;
    model->kv_heads = model->heads;
    bool attention_bias = false, windowed = !family->window_asked_for;
    if (optional_long(place, "num_key_value_heads", model->heads, &model->kv_heads, err) ||
        optional_long(place, "head_dim", MAX_HEAD_DIM, &model->head_dim, err) ||
        optional_long(place, "max_position_embeddings", LONG_MAX, &model->max_positions, err) ||
        optional_bool(place, "tie_word_embeddings", &model->tied, err) ||
        optional_long(place, "sliding_window", LONG_MAX, &model->window, err) ||
        optional_bool(place, "use_sliding_window", &windowed, err) ||
        optional_bool(place, "attention_bias", &attention_bias, err) ||
        optional_bool(place, "mlp_bias", &model->mlp_bias, err) ||
        check_activation(place, "hidden_act", "silu", err) || read_rope(model, place, err))
        return -1;
    if (!windowed)
        model->window = 0;
    model->qkv_bias = model->qkv_bias || attention_bias;
    model->projection_bias = attention_bias;
    if (model->heads % model->kv_heads != 0)
        return erg_json_fail(place, "num_key_value_heads", err,
                             "expected a divisor of the %ld attention heads, got %ld", model->heads,
                             model->kv_heads);
    return fill_head_dim(model, place, "num_attention_heads", "hidden size", err);
}

static int read_mixtral(struct erg_model *model, const struct model_family *family,
                        const struct erg_json_place *place, struct erg_error *err)
{
    return read_llama(model, family, place, err) ? -1 : erg_model_read_mixtral(model, place, err);
}

static int read_qwen_moe(struct erg_model *model, const struct model_family *family,
                         const struct erg_json_place *place, struct erg_error *err)
{
    return read_llama(model, family, place, err) ? -1 : erg_model_read_qwen_moe(model, place, err);
}

static int read_deepseek(struct erg_model *model, const struct model_family *family,
                         const struct erg_json_place *place, struct erg_error *err)
{
    return read_llama(model, family, place, err) ? -1 : erg_model_read_deepseek(model, place, err);
}

/* "gelu" is the exact form; other names that begin so are GPT-2's, by tanh. */
static int read_gelu(struct erg_model *model, const struct erg_json_place *place,
                     struct erg_error *err)
{
    static const char key[] = "activation_function";
    if (check_activation(place, key, "gelu", err))
        return -1;
    const char *name = json_string_value(json_object_get(place->object, key));
    model->gelu_exact = name && strcmp(name, "gelu") == 0;
    return 0;
}

/* Keys that change numbers, but neither time nor memory. */
static int read_scores(struct erg_model *model, const struct erg_json_place *place,
                       struct erg_error *err)
{
    bool scaled = true, by_layer = false;
    if (optional_bool(place, "scale_attn_weights", &scaled, err) ||
        optional_bool(place, "scale_attn_by_inverse_layer_idx", &by_layer, err))
        return -1;
    model->own_scores = !scaled || by_layer;
    return 0;
}

/*
 * GPT-2 and GPT-3: LayerNorm, learned positions, GELU, biases, one key and value per head. Others
 * of that kind have heads of another width; `head_dim` gives it, as in the configs of other
 * families.
 */
static int read_gpt2(struct erg_model *model, const struct model_family *family,
                     const struct erg_json_place *place, struct erg_error *err)
{
    (void)family;
    model->layer_norm = model->learned_positions = true;
    model->qkv_bias = model->projection_bias = model->mlp_bias = true;
    model->tied = true;
    model->norm_eps = 1e-5;
    if (erg_json_long(place, "n_embd", 1, MAX_WIDTH, &model->hidden, err) ||
        erg_json_long(place, "n_layer", 1, MAX_LAYERS, &model->layers, err) ||
        erg_json_long(place, "n_head", 1, LONG_MAX, &model->heads, err) ||
        erg_json_long(place, "vocab_size", 1, MAX_VOCAB, &model->vocab, err) ||
        erg_json_long(place, "n_positions", 1, INT_MAX, &model->max_positions, err))
        return -1;
    model->kv_heads = model->heads;
    model->ffn = 4 * model->hidden;
    if (optional_long(place, "n_inner", MAX_WIDTH, &model->ffn, err) ||
        optional_long(place, "head_dim", MAX_HEAD_DIM, &model->head_dim, err) ||
        optional_bool(place, "tie_word_embeddings", &model->tied, err) ||
        optional_double(place, "layer_norm_epsilon", 0, 1, &model->norm_eps, err) ||
        read_gelu(model, place, err) || read_scores(model, place, err))
        return -1;
    return fill_head_dim(model, place, "n_head", "embedding size", err);
}

static const struct model_family families[] = {
    {.architecture = "LlamaForCausalLM", .types = {"llama"}, .read = read_llama},
    {.architecture = "MistralForCausalLM",
     .also = {"MinistralForCausalLM", "Ministral3ForCausalLM"},
     .types = {"mistral", "ministral", "ministral3"},
     .read = read_llama},
    {.architecture = "Qwen2ForCausalLM",
     .also = {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"},
     .types = {"qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"},
     .read = read_llama,
     .qkv_bias = true,
     .window_asked_for = true},
    {.architecture = "Qwen3ForCausalLM",
     .types = {"qwen3", "qwen3_vl_text"},
     .read = read_llama,
     .qk_norm = true,
     .window_asked_for = true,
     .head_dim = 128},
    {.architecture = "MixtralForCausalLM", .types = {"mixtral"}, .read = read_mixtral},
    {.architecture = "Qwen3MoeForCausalLM",
     .types = {"qwen3_moe", "qwen3_vl_moe_text"},
     .read = read_qwen_moe,
     .qk_norm = true,
     .window_asked_for = true},
    {.architecture = "DeepseekV2ForCausalLM", .types = {"deepseek_v2"}, .read = read_deepseek},
    {.architecture = "DeepseekV3ForCausalLM", .types = {"deepseek_v3"}, .read = read_deepseek},
    {.architecture = "Phi3ForCausalLM", .types = {"phi3"}, .read = read_llama},
    {.architecture = "GPT2LMHeadModel", .types = {"gpt2"}, .read = read_gpt2, .qkv_bias = true},
};
enum { FAMILY_COUNT = sizeof families / sizeof *families };

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count && names[i]; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

#define IS_AMONG(name, names) is_among(name, names, sizeof(names) / sizeof *(names))

static const struct model_family *family_of_architecture(const char *name)
{
    for (const struct model_family *family = families; name && family < families + FAMILY_COUNT;
         family++)
        if (!strcmp(family->architecture, name) || IS_AMONG(name, family->also))
            return family;
    return NULL;
}

static const struct model_family *family_of_type(const char *type)
{
    for (const struct model_family *family = families; type && family < families + FAMILY_COUNT;
         family++)
        if (IS_AMONG(type, family->types))
            return family;
    return NULL;
}

/*
 * NULL after a failure. A whole model is identified by its architectures, or by its model_type
 * where it has none; a text_config (`inside`) by its model_type, since its architectures may be
 * those of the enclosing model.
 */
static const struct model_family *find_family(const struct erg_json_place *place, bool inside,
                                              struct erg_error *err)
{
    const char *type = NULL, *name = NULL;
    const json_t *list = json_object_get(place->object, "architectures");
    const bool listed = list && !json_is_null(list);
    if (erg_json_has(place, "model_type") && erg_json_string(place, "model_type", &type, err) != 0)
        return NULL;
    name = json_string_value(json_array_get(list, 0));
    if (listed && !name) {
        erg_json_fail(place, "architectures", err,
                      "expected a list with the architecture's name, such as "
                      "[\"LlamaForCausalLM\"]");
        return NULL;
    }
    const struct model_family *family = family_of_architecture(name);
    if (!family && (inside || !listed))
        family = family_of_type(type);
    if (family)
        return family;
    struct erg_text known = {0};
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        erg_text_printf(&known, "%s%s", i ? ", " : "",
                        listed ? families[i].architecture : families[i].types[0]);
    if (!listed && !type)
        erg_json_fail(place, "architectures", err,
                      "the key is missing, expected a list with the architecture's name, such as "
                      "[\"LlamaForCausalLM\"], or a key 'model_type', such as \"llama\"");
    else
        erg_json_fail(place, listed ? "architectures" : "model_type", err,
                      "unknown %s '%.100s'; expected one of %s",
                      listed ? "architecture" : "type of model", listed ? name : type, known.data);
    erg_text_release(&known);
    return NULL;
}

static int read_config(struct erg_model *model, const struct erg_json_place *place,
                       struct erg_error *err)
{
    const char *name = place->name;
    struct erg_json_place text = *place;
    const bool inside = erg_json_has(place, "text_config");
    if (inside && erg_json_enter(&text, place, "text_config", err) != 0)
        return -1;
    const struct model_family *family = find_family(&text, inside, err);
    if (!family)
        return -1;
    if (inside)
        erg_log(ERG_LOG_INFO, "%s: only the model of its key text_config is counted", place->name);
    if (erg_json_has(place, "_name_or_path") &&
        erg_json_string(place, "_name_or_path", &name, err) != 0)
        return -1;
    struct erg_text printable = {0};
    erg_text_add_printable(&printable, *name ? name : place->name);
    model->name = printable.data;
    model->architecture = erg_xstrdup(family->architecture);
    model->qkv_bias = family->qkv_bias;
    model->qk_norm = family->qk_norm;
    if (optional_bool(place, "tie_word_embeddings", &model->tied, err) != 0 ||
        optional_double(&text, "initializer_range", 0, 1e3, &model->initializer_range, err) != 0)
        return -1;
    return family->read(model, family, &text, err);
}

int erg_model_parse(struct erg_model **out, const char *name, const char *text, size_t length,
                    struct erg_error *err)
{
    json_t *root;
    struct erg_json_place place;
    if (erg_json_open(&place, &root, name, text, length, err) != 0)
        return -1;
    struct erg_model *model = erg_xcalloc(1, sizeof *model);
    model->config = erg_xmemdup(text, length);
    model->config_length = length;
    int result = read_config(model, &place, err);
    json_decref(root);
    if (result == 0)
        *out = model;
    else
        erg_model_free(model);
    return result;
}

void erg_model_free(struct erg_model *model)
{
    if (!model)
        return;
    free(model->name);
    free(model->path);
    free(model->config);
    free(model->architecture);
    free(model);
}

/* The config file behind a path, of a folder the one in it. */
static char *config_of(const char *path)
{
    struct stat info;
    struct erg_text config = {0};
    erg_text_add(&config, path);
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        erg_text_add(&config, "/config.json");
    return config.data;
}

/*
 * The config file behind a path, a folder or a catalogue name; NULL when there is none. A folder
 * may bear a catalogue name and hold something else: what came out for that model, say.
 */
static char *locate(const char *name)
{
    bool bare = !strchr(name, '/');
    char *found = config_of(name);
    if (access(found, F_OK) == 0 || (!bare && access(name, F_OK) == 0))
        return found;
    free(found);
    char *entry = bare ? erg_data_find("models", name) : NULL;
    found = entry ? config_of(entry) : NULL;
    free(entry);
    return found;
}

static int not_found(const char *name, struct erg_error *err)
{
    struct erg_arena arena = {0};
    struct erg_text known = {0};
    const char *const *names = erg_data_names("models", &arena);
    const char *meant = erg_closest(name, names);
    erg_text_add_names(&known, names);
    if (meant)
        erg_fail(err, ERG_FAILED,
                 "loading the model '%s': no such file or catalogue entry; did "
                 "you mean '%s'?",
                 name, meant);
    else
        erg_fail(err, ERG_FAILED,
                 "loading the model '%s': expected a config.json, a folder that holds one, or one "
                 "of the catalogue: %s",
                 name, *known.data ? known.data : "(which is empty)");
    erg_text_release(&known);
    erg_arena_release(&arena);
    return -1;
}

int erg_model_load(struct erg_model **model, const char *name, struct erg_error *err)
{
    char *path = locate(name);
    if (!path)
        return not_found(name, err);
    char *text;
    size_t length;
    int result = erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err);
    if (result == 0) {
        result = erg_model_parse(model, path, text, length, err);
        free(text);
    }
    if (result == 0)
        (*model)->path = path;
    else
        free(path);
    return result;
}
