/* Loads and writes the weights of a model, tensor by tensor. */
#include "train/files/model_file.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "train/files/safetensors.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- loading ---- */

/* The tensor of a name; GPT-2's may lack the prefix "transformer.". */
static const struct erg_safetensor *find(const struct erg_safetensors *set, const char *name)
{
    static const char prefix[] = "transformer.";
    const struct erg_safetensor *tensor = erg_safetensors_find(set, name);
    if (!tensor && strncmp(name, prefix, strlen(prefix)) == 0)
        tensor = erg_safetensors_find(set, name + strlen(prefix));
    return tensor;
}

static int check_shape(const struct erg_safetensor *tensor, const struct erg_weight_span *span,
                       struct erg_error *err)
{
    bool same = tensor->dimensions == span->dimensions;
    for (size_t i = 0; i < span->dimensions && same; i++)
        same = tensor->shape[i] == span->shape[i];
    if (same)
        return 0;
    struct erg_text shape = {0};
    for (size_t i = 0; i < tensor->dimensions; i++)
        erg_text_printf(&shape, "%s%llu", i ? ", " : "", (unsigned long long)tensor->shape[i]);
    if (span->dimensions == 1)
        erg_fail(err, ERG_FAILED, "%s: tensor '%s' has the shape [%s], expected [%zu]",
                 tensor->file, tensor->name, shape.data ? shape.data : "", span->shape[0]);
    else
        erg_fail(err, ERG_FAILED, "%s: tensor '%s' has the shape [%s], expected [%zu, %zu]",
                 tensor->file, tensor->name, shape.data ? shape.data : "", span->shape[0],
                 span->shape[1]);
    erg_text_release(&shape);
    return -1;
}

static int load_span(float *state, const struct erg_weight_span *span,
                     const struct erg_safetensor *tensor, struct erg_error *err)
{
    /* Runs of the checkpoint are rows of the span, or columns if it is transposed. */
    size_t runs = span->transposed ? span->columns : span->rows;
    size_t length = span->transposed ? span->rows : span->columns;
    float *run = erg_xcalloc(length ? length : 1, sizeof *run);
    int result = 0;
    for (size_t i = 0; i < runs && result == 0; i++) {
        size_t first = span->transposed ? erg_weight_span_there(span, 0, i)
                                        : erg_weight_span_there(span, i, 0);
        result = erg_safetensor_read(tensor, first, length, run, err);
        for (size_t k = 0; k < length && result == 0; k++)
            state[span->transposed ? erg_weight_span_here(span, k, i)
                                   : erg_weight_span_here(span, i, k)] = run[k];
    }
    free(run);
    return result;
}

/* Buffers that models store in addition to their weights, and that can be recomputed. */
static bool is_buffer(const char *name)
{
    static const char *const patterns[] = {"*.rotary_emb.inv_freq", "*h.*.attn.bias",
                                           "*h.*.attn.masked_bias"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

static int check_tied_head(const struct erg_safetensor *head, const struct erg_safetensors *set,
                           struct erg_error *err)
{
    const struct erg_safetensor *embedding = find(set, "model.embed_tokens.weight");
    if (!embedding)
        embedding = find(set, "transformer.wte.weight");
    if (embedding && embedding->bytes == head->bytes && embedding->type == head->type &&
        memcmp(embedding->data, head->data, head->bytes) == 0)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "%s: tensor '%s' differs from the embedding, but config.json ties them "
                    "(tie_word_embeddings); expected equal ones, or a config that does not tie "
                    "them",
                    head->file, head->name);
}

/* Checks that every tensor of the folder belongs to the model. */
static int check_known(const struct erg_safetensors *set, const struct erg_weight_spans *spans,
                       const struct erg_model *model, struct erg_error *err)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct erg_safetensor *tensor = &set->items[i];
        bool known = is_buffer(tensor->name);
        for (size_t k = 0; k < spans->count && !known; k++)
            known = find(set, spans->items[k].name) == tensor;
        if (!known && model->tied && strcmp(tensor->name, "lm_head.weight") == 0) {
            if (check_tied_head(tensor, set, err) != 0)
                return -1;
            known = true;
        }
        if (!known)
            return erg_fail(err, ERG_FAILED,
                            "%s: tensor '%s' is not one of %s; expected those that its config.json "
                            "means",
                            tensor->file, tensor->name, model->name);
    }
    return 0;
}

/*
 * Checks that the folder has all of the model's tensors with their shapes, including those of other
 * ranks.
 */
static int check_all(const struct erg_safetensors *set, const struct erg_model *model,
                     const char *folder, struct erg_error *err)
{
    struct erg_layer_range layers = {0, model->layers};
    struct erg_weights_request request = erg_weights_whole(model, &layers);
    struct erg_weights weights;
    struct erg_weight_spans spans;
    erg_weights_init(&weights, &request);
    erg_weight_spans_init(&spans, &weights, &request);
    int result = check_known(set, &spans, model, err);
    for (size_t i = 0; i < spans.count && result == 0; i++) {
        const struct erg_safetensor *tensor = find(set, spans.items[i].name);
        result = tensor ? check_shape(tensor, &spans.items[i], err)
                        : erg_fail(err, ERG_FAILED, "%s: tensor '%s' is missing", folder,
                                   spans.items[i].name);
    }
    erg_weight_spans_release(&spans);
    erg_weights_release(&weights);
    return result;
}

int erg_model_file_load(float *state, const struct erg_weights *weights,
                        const struct erg_weight_spans *spans, const struct erg_model *model,
                        const char *folder, struct erg_error *err)
{
    struct erg_safetensors set;
    if (erg_safetensors_open(&set, folder, err) != 0)
        return -1;
    memset(state, 0, weights->state * sizeof *state);
    int result = check_all(&set, model, folder, err);
    for (size_t i = 0; i < spans->count && result == 0; i++) {
        const struct erg_weight_span *span = &spans->items[i];
        result = load_span(state, span, find(&set, span->name), err);
    }
    erg_safetensors_release(&set);
    return result;
}

int erg_model_file_check(const struct erg_model *model, const char *folder, struct erg_error *err)
{
    struct erg_safetensors set;
    if (erg_safetensors_open(&set, folder, err) != 0)
        return -1;
    int result = check_all(&set, model, folder, err);
    erg_safetensors_release(&set);
    return result;
}

/* ---- the config ---- */

static int check_same(const char *path, const struct erg_model *found, const struct erg_job *job,
                      const struct erg_model_terms *terms, struct erg_error *err)
{
    struct erg_model_difference difference;
    if (!erg_model_differs(&difference, found, job->model, job->layout.sequence))
        return 0;
    if (difference.of_weights || !terms->changed)
        return erg_fail(err, ERG_FAILED,
                        "%s: key '%s': expected %s, as in the job's model%s, got %s", path,
                        difference.key, difference.wanted,
                        difference.of_weights ? "" : " (or --allow-change)", difference.found);
    if (terms->tells)
        erg_log(ERG_LOG_WARNING, "%s: key '%s' is %s; the weights are trained with the job's %s",
                path, difference.key, difference.found, difference.wanted);
    return 0;
}

int erg_model_file_check_config(const char *folder, const struct erg_job *job,
                                const struct erg_model_terms *terms, struct erg_error *err)
{
    char *path = erg_file_path(folder, "config.json");
    struct erg_model *found = NULL;
    int result = 0;
    if (access(path, F_OK) == 0) {
        result = erg_model_load(&found, path, err);
        if (result == 0 && terms->checkpoint)
            found->tied = job->model->tied;
        if (result == 0)
            result = check_same(path, found, job, terms, err);
        erg_model_free(found);
    } else if (terms->tells) {
        erg_log(ERG_LOG_WARNING,
                "'%s' has no config.json: its weights are assumed to belong to the job's model",
                folder);
    }
    free(path);
    return result;
}

/* ---- writing ---- */

struct source {
    const float *state;
    const struct erg_weight_spans *spans;
    const struct erg_safetensor_spec *specs;
};

/* Assembles all parts of one tensor. */
static int fill(void *context, size_t index, float *values, struct erg_error *err)
{
    (void)err;
    const struct source *source = context;
    for (size_t i = 0; i < source->spans->count; i++) {
        const struct erg_weight_span *span = &source->spans->items[i];
        if (strcmp(span->name, source->specs[index].name) != 0)
            continue;
        for (size_t row = 0; row < span->rows; row++)
            for (size_t column = 0; column < span->columns; column++)
                values[erg_weight_span_there(span, row, column)] =
                    source->state[erg_weight_span_here(span, row, column)];
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct erg_safetensor_spec *)a)->name,
                  ((const struct erg_safetensor_spec *)b)->name);
}

/* The tensors of the spans, in order of their names; free them. */
static struct erg_safetensor_spec *list_tensors(const struct erg_weight_spans *spans, bool bf16,
                                                size_t *count)
{
    struct erg_safetensor_spec *specs = erg_xcalloc(spans->count + 1, sizeof *specs);
    *count = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const struct erg_weight_span *span = &spans->items[i];
        bool known = false;
        for (size_t k = 0; k < *count && !known; k++)
            known = strcmp(specs[k].name, span->name) == 0;
        if (!known)
            specs[(*count)++] =
                (struct erg_safetensor_spec){span->name,
                                             bf16 ? ERG_SAFETENSOR_BF16 : ERG_SAFETENSOR_F32,
                                             span->dimensions,
                                             {span->shape[0], span->shape[1]}};
    }
    qsort(specs, *count, sizeof *specs, by_name);
    return specs;
}

static uint64_t bytes_of(const struct erg_safetensor_spec *spec)
{
    uint64_t bytes = spec->type == ERG_SAFETENSOR_BF16 ? 2 : 4;
    for (size_t i = 0; i < spec->dimensions; i++)
        bytes *= spec->shape[i];
    return bytes;
}

/* The number of tensors that go into the next file of the given size: at least one. */
static size_t count_fitting(const struct erg_safetensor_spec *specs, size_t count, uint64_t most)
{
    uint64_t bytes = 0;
    size_t fitting = 0;
    while (fitting < count && (fitting == 0 || bytes_of(&specs[fitting]) <= most - bytes)) {
        bytes += bytes_of(&specs[fitting++]);
        if (bytes > most)
            break;
    }
    return fitting;
}

static int write_file(const char *folder, const char *name, struct source *source,
                      const struct erg_safetensor_spec *specs, size_t count, struct erg_error *err)
{
    char *path = erg_file_path(folder, name);
    source->specs = specs;
    int result = erg_safetensors_write(path, specs, count, fill, source, err);
    free(path);
    return result;
}

/* Writes several files and then their index. */
static int write_files(const char *folder, struct source *source,
                       const struct erg_safetensor_spec *specs, size_t count, size_t files,
                       uint64_t most, struct erg_error *err)
{
    json_t *map = json_object();
    uint64_t bytes = 0;
    int result = 0;
    for (size_t file = 1, first = 0; first < count && result == 0; file++) {
        size_t fitting = count_fitting(specs + first, count - first, most);
        struct erg_text name = {0};
        erg_text_printf(&name, "model-%05zu-of-%05zu.safetensors", file, files);
        result = write_file(folder, name.data, source, specs + first, fitting, err);
        for (size_t i = first; i < first + fitting; i++) {
            bytes += bytes_of(&specs[i]);
            json_object_set_new(map, specs[i].name, erg_json_new_string(name.data));
        }
        erg_text_release(&name);
        first += fitting;
    }
    char *path = erg_file_path(folder, "model.safetensors.index.json");
    json_t *document = erg_json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)bytes,
                                     "weight_map", map);
    if (result == 0)
        result = erg_json_write(path, document, err);
    json_decref(document);
    json_decref(map);
    free(path);
    return result;
}

static int write_weights(const char *folder, struct source *source, bool bf16, uint64_t most,
                         struct erg_error *err)
{
    size_t count, files = 0;
    struct erg_safetensor_spec *specs = list_tensors(source->spans, bf16, &count);
    for (size_t first = 0; first < count; files++)
        first += count_fitting(specs + first, count - first, most);
    int result = files > 1 ? write_files(folder, source, specs, count, files, most, err)
                           : write_file(folder, "model.safetensors", source, specs, count, err);
    free(specs);
    return result;
}

/* Writes the model's own config with the type of the weights and the job's tie of the head. */
static int write_config(const char *folder, const struct erg_model *model, bool bf16,
                        struct erg_error *err)
{
    json_t *document;
    const char *name = model->path ? model->path : model->name;
    if (erg_json_parse(&document, name, model->config, model->config_length, err) != 0)
        return -1;
    json_object_set_new(document, "torch_dtype",
                        erg_json_new_string(bf16 ? "bfloat16" : "float32"));
    json_object_del(document, "dtype");
    struct erg_model *own;
    if (erg_model_parse(&own, name, model->config, model->config_length, err) != 0) {
        json_decref(document);
        return -1;
    }
    if (own->tied != model->tied)
        json_object_set_new(document, "tie_word_embeddings", json_boolean(model->tied));
    erg_model_free(own);
    char *path = erg_file_path(folder, "config.json");
    int result = erg_json_write(path, document, err);
    free(path);
    json_decref(document);
    return result;
}

int erg_model_file_copy_others(const char *config, const char *folder, struct erg_error *err)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    const char *slash = strrchr(config, '/');
    int beside = slash ? (int)(slash + 1 - config) : 0, result = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && result == 0; i++) {
        struct erg_text from = {0}, to = {0};
        char *text;
        size_t length;
        erg_text_printf(&from, "%.*s%s", beside, config, names[i]);
        erg_text_printf(&to, "%s/%s", folder, names[i]);
        if (access(from.data, F_OK) == 0) {
            result = erg_file_read(from.data, 0, &text, &length, err);
            if (result == 0) {
                result = erg_file_write(to.data, text, length, err);
                free(text);
            }
        }
        erg_text_release(&from);
        erg_text_release(&to);
    }
    return result;
}

/* Checks that the folder, or its nearest existing parent, is writable. */
static int check_writable(const char *folder, struct erg_error *err)
{
    const size_t length = strlen(folder);
    char *path = erg_xmalloc(length + 2);
    struct stat info;
    memcpy(path, folder, length + 1);
    while (stat(path, &info) != 0 && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        if (slash == path)
            slash[1] = '\0';
        else if (slash)
            *slash = '\0';
        else
            *path = '.', path[1] = '\0'; /* which exists */
    }
    int result = 0;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        result = erg_fail(err, ERG_FAILED, "writing into '%s': '%s' is a file, expected a folder",
                          folder, path);
    else if (access(path, W_OK | X_OK) != 0)
        result = erg_fail(err, ERG_FAILED, "writing into '%s': %s", folder, strerror(errno));
    free(path);
    return result;
}

int erg_model_file_check_folder(const char *folder, struct erg_error *err)
{
    static const char *const files[] = {"model.safetensors", "model.safetensors.index.json",
                                        "config.json", NULL};
    return check_writable(folder, err) ||
                   erg_dir_refuse_files(folder, files,
                                        "and it is not replaced; expected a folder without a model",
                                        err)
               ? -1
               : 0;
}

int erg_model_file_write(const char *folder, const float *state,
                         const struct erg_weight_spans *spans, const struct erg_model *model,
                         bool bf16, uint64_t most, struct erg_error *err)
{
    int result = erg_model_file_check_folder(folder, err) || erg_dir_make(folder, err) ? -1 : 0;
    struct source source = {state, spans, NULL};
    return result || write_weights(folder, &source, bf16, most, err) ||
                   (model->path && erg_model_file_copy_others(model->path, folder, err)) ||
                   write_config(folder, model, bf16, err)
               ? -1
               : 0;
}
