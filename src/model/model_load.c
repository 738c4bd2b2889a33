#include "model/model.h"

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

/* What a family of configs means; the keys' own values override where both exist. */
struct family {
    const char *architecture;
    int (*read)(struct erg_model *model, const struct family *family,
                const struct erg_json_place *place, struct erg_error *err);
    bool qkv_bias, qk_norm;
    bool window_asked_for; /* `sliding_window` means nothing without use_sliding_window: true */
    long head_dim;         /* 0: hidden / heads */
};

static int optional_bool(const struct erg_json_place *place, const char *key, bool *value,
                         struct erg_error *err)
{
    return erg_json_has(place, key) ? erg_json_bool(place, key, value, err) : 0;
}

static int optional_long(const struct erg_json_place *place, const char *key, long max, long *value,
                         struct erg_error *err)
{
    return erg_json_has(place, key) ? erg_json_long(place, key, 1, max, value, err) : 0;
}

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

/* Rotary frequencies. Newer configs have all of them in one object, `rope_parameters`. */
static int read_rope(struct erg_model *model, const struct erg_json_place *place,
                     struct erg_error *err)
{
    struct erg_json_place scaling;
    const char *type = "default", *inner = "rope_parameters";
    model->rope_theta = 10000;
    if (erg_json_has(place, "rope_theta") &&
        erg_json_double(place, "rope_theta", 1, INFINITY, &model->rope_theta, err))
        return -1;
    if (!erg_json_has(place, inner))
        inner = "rope_scaling";
    if (!erg_json_has(place, inner))
        return 0;
    if (erg_json_enter(&scaling, place, inner, err))
        return -1;
    if (erg_json_has(&scaling, "rope_theta") &&
        erg_json_double(&scaling, "rope_theta", 1, INFINITY, &model->rope_theta, err))
        return -1;
    const char *key = erg_json_has(&scaling, "rope_type") ? "rope_type" : "type";
    if (erg_json_has(&scaling, key) && erg_json_string(&scaling, key, &type, err))
        return -1;
    if (!strcmp(type, "llama3"))
        return erg_json_double(&scaling, "factor", 1, INFINITY, &model->rope_factor, err);
    model->rope_other = strcmp(type, "default") != 0;
    return 0;
}

/* Llama, Mistral, Qwen: RMSNorm, rotary positions, SwiGLU, grouped keys and values. */
static int read_llama(struct erg_model *model, const struct family *family,
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
    if (model->head_dim)
        return 0;
    if (model->hidden % model->heads != 0)
        return erg_json_fail(place, "num_attention_heads", err,
                             "expected a divisor of the hidden size %ld (or a key 'head_dim'), got "
                             "%ld",
                             model->hidden, model->heads);
    model->head_dim = model->hidden / model->heads;
    return 0;
}

/*
 * GPT-2 and GPT-3: LayerNorm, learned positions, GELU, biases, one key and value per head. Others
 * of that kind have heads of another width; `head_dim` says so, as in the configs of other
 * families.
 */
static int read_gpt2(struct erg_model *model, const struct family *family,
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
        check_activation(place, "activation_function", "gelu", err))
        return -1;
    if (erg_json_has(place, "layer_norm_epsilon") &&
        erg_json_double(place, "layer_norm_epsilon", 0, 1, &model->norm_eps, err))
        return -1;
    if (model->head_dim)
        return 0;
    if (model->hidden % model->heads != 0)
        return erg_json_fail(place, "n_head", err,
                             "expected a divisor of the embedding size %ld (or a key 'head_dim'), "
                             "got %ld",
                             model->hidden, model->heads);
    model->head_dim = model->hidden / model->heads;
    return 0;
}

static const struct family families[] = {
    {.architecture = "LlamaForCausalLM", .read = read_llama},
    {.architecture = "MistralForCausalLM", .read = read_llama},
    {.architecture = "Qwen2ForCausalLM",
     .read = read_llama,
     .qkv_bias = true,
     .window_asked_for = true},
    {.architecture = "Qwen3ForCausalLM",
     .read = read_llama,
     .qk_norm = true,
     .window_asked_for = true,
     .head_dim = 128},
    {.architecture = "GPT2LMHeadModel", .read = read_gpt2, .qkv_bias = true},
};
enum { FAMILY_COUNT = sizeof families / sizeof *families };

/* NULL after a failure. */
static const struct family *find_family(const struct erg_json_place *place, struct erg_error *err)
{
    const json_t *list;
    if (erg_json_array(place, "architectures", &list, err) != 0)
        return NULL;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name) {
        erg_json_fail(place, "architectures", err,
                      "expected a list with the architecture's name, such as "
                      "[\"LlamaForCausalLM\"]");
        return NULL;
    }
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (!strcmp(families[i].architecture, name))
            return &families[i];
    }
    struct erg_text known = {0};
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        erg_text_printf(&known, "%s%s", i ? ", " : "", families[i].architecture);
    erg_json_fail(place, "architectures", err,
                  "the architecture '%.100s' is not known; known are %s", name, known.data);
    erg_text_release(&known);
    return NULL;
}

static int read_config(struct erg_model *model, const struct erg_json_place *place,
                       struct erg_error *err)
{
    const char *name = place->name;
    const struct family *family = find_family(place, err);
    if (!family)
        return -1;
    if (erg_json_has(place, "_name_or_path") &&
        erg_json_string(place, "_name_or_path", &name, err) != 0)
        return -1;
    model->name = erg_xstrdup(*name ? name : place->name);
    model->architecture = erg_xstrdup(family->architecture);
    model->qkv_bias = family->qkv_bias;
    model->qk_norm = family->qk_norm;
    return family->read(model, family, place, err);
}

int erg_model_parse(struct erg_model **out, const char *name, const char *text, size_t length,
                    struct erg_error *err)
{
    json_t *root;
    struct erg_json_place place;
    if (erg_json_open(&place, &root, name, text, length, err) != 0)
        return -1;
    struct erg_model *model = erg_xcalloc(1, sizeof *model);
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
    for (size_t i = 0; names[i]; i++)
        erg_text_printf(&known, "%s%s", i ? ", " : "", names[i]);
    if (meant)
        erg_fail(err, ERG_FAILED,
                 "loading the model '%s': no such file or catalogue entry; did "
                 "you mean '%s'?",
                 name, meant);
    else
        erg_fail(err, ERG_FAILED,
                 "loading the model '%s': expected a config.json, a folder that holds one, or one "
                 "of the catalogue: %s",
                 name, known.data ? known.data : "(which is empty)");
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
    free(path);
    return result;
}
