/* Engines as data. */
#include "hardware/engine.h"
#include "hardware/catalogue.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * One line per number: key in the file, member, factor from the file's unit to the member's,
 * smallest and largest value in the file's unit. The lists make schema, units and limits.
 */
#define REQUIRED(X)                                                                                \
    X(peak_tflops, peak_flops, 1e12, 0.1, 1e5)                                                     \
    X(gemm_efficiency, gemm_efficiency, 1, 0.01, 2)                                                \
    X(attention_efficiency, attention_efficiency, 1, 0.01, 2)                                      \
    X(memory_efficiency, memory_efficiency, 1, 0.01, 2)                                            \
    X(link_efficiency, link_efficiency, 1, 0.01, 2)                                                \
    X(network_efficiency, network_efficiency, 1, 0.01, 2)                                          \
    X(tensor_forward, tensor_forward, 1, 0, 10)                                                    \
    X(tensor_backward, tensor_backward, 1, 0, 10)                                                  \
    X(context_exposed, context_exposed, 1, 0, 10)                                                  \
    X(pipeline_exposed, pipeline_exposed, 1, 0, 10)                                                \
    X(gradient_bytes, gradient_bytes, 1, 0, 100)                                                   \
    X(optimizer_bytes, optimizer_bytes, 1, 0, 1000)

/* 0 where the file has none. */
#define OPTIONAL(X)                                                                                \
    X(score_forward_bytes, score_forward_bytes, 1, 0, 100)                                         \
    X(score_backward_bytes, score_backward_bytes, 1, 0, 100)                                       \
    X(softmax_heads, softmax_heads, 1, 0, 1024)                                                    \
    X(unfused_score_bytes, unfused_score_bytes, 1, 0, 200)                                         \
    X(loss_bytes, loss_bytes, 1, 0, 1000)                                                          \
    X(layer_overhead_us, layer_overhead_s, 1e-6, 0, 1e6)                                           \
    X(host_layer_us, host_layer_s, 1e-6, 0, 1e6)                                                   \
    X(host_wait_us, host_wait_s, 1e-6, 0, 1e6)                                                     \
    X(host_head_us, host_head_s, 1e-6, 0, 1e6)                                                     \
    X(host_blend, host_blend, 1, 0, 1)                                                             \
    X(collective_latency_us, collective_latency_s, 1e-6, 0, 1e6)                                   \
    X(optimizer_sharded_bytes, optimizer_sharded_bytes, 1, 0, 1000)                                \
    X(fsdp_bytes, fsdp_bytes, 1, 10, 24)                                                           \
    X(host_link_gb_s, host_link_bandwidth, 1e9, 0, 1e5)                                            \
    X(offload_interference, offload_interference, 1, 0, 10)

/* Where the file has none it is the last member here, or 1 for `name`. */
#define RELATIVE(X)                                                                                \
    X(whole_head_efficiency, whole_head_efficiency, 1, 0.01, 2, name)                              \
    X(unfused_host_factor, unfused_host_factor, 1, 1, 10, name)                                    \
    X(expert_gemm_efficiency, expert_gemm_efficiency, 1, 0.01, 2, gemm_efficiency)                 \
    X(expert_exposed, expert_exposed, 1, 0, 10, name)                                              \
    X(attention_backward_efficiency, attention_backward_efficiency, 1, 0.01, 2,                    \
      attention_efficiency)                                                                        \
    X(activation_factor, activation_factor, 1, 0.1, 10, name)                                      \
    X(tensor_forward_context, tensor_forward_context, 1, 0, 10, tensor_forward)                    \
    X(tensor_backward_context, tensor_backward_context, 1, 0, 10, tensor_backward)                 \
    X(context_exposed_grouped, context_exposed_grouped, 1, 0, 10, context_exposed)                 \
    X(pipeline_ends_exposed, pipeline_ends_exposed, 1, 0, 10, pipeline_exposed)

#define OFFSET(member) offsetof(struct erg_engine, member)
#define FIELD(key, member, ...)                                                                    \
    CYAML_FIELD_FLOAT(#key, CYAML_FLAG_DEFAULT, struct erg_engine, member),
#define OPTION(key, member, ...)                                                                   \
    CYAML_FIELD_FLOAT(#key, CYAML_FLAG_OPTIONAL, struct erg_engine, member),
#define QUANTITY(key, member, factor, min, max) {#key, OFFSET(member), factor, min, max},
#define RELATIVE_QUANTITY(key, member, factor, min, max, followed)                                 \
    QUANTITY(key, member, factor, min, max)

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct erg_engine, name, 1, 200),
    CYAML_FIELD_BOOL("fused_kernels", CYAML_FLAG_DEFAULT, struct erg_engine, fused_kernels),
    CYAML_FIELD_BOOL("sequence_parallel", CYAML_FLAG_DEFAULT, struct erg_engine, sequence_parallel),
    CYAML_FIELD_BOOL("grouped_gemm", CYAML_FLAG_OPTIONAL, struct erg_engine, grouped_gemm),
    CYAML_FIELD_BOOL("static_memory", CYAML_FLAG_OPTIONAL, struct erg_engine, static_memory),
    REQUIRED(FIELD) OPTIONAL(OPTION) RELATIVE(OPTION) CYAML_FIELD_END,
};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_engine, fields),
};

const struct erg_quantity erg_engine_numbers[] = {
    REQUIRED(QUANTITY) OPTIONAL(QUANTITY) RELATIVE(RELATIVE_QUANTITY){NULL, 0, 0, 0, 0},
};

#define FOLLOW(key, member, factor, min, max, followed) {#key, OFFSET(member), OFFSET(followed)},

/* Which number stands in for one that the file leaves out. */
static const struct {
    const char *key;
    size_t offset, followed;
} relatives[] = {RELATIVE(FOLLOW)};
enum { RELATIVES = sizeof relatives / sizeof *relatives };

static double *number_at(struct erg_engine *engine, size_t offset)
{
    return (double *)(void *)((char *)engine + offset);
}

static void follow(struct erg_engine *engine)
{
    for (size_t i = 0; i < RELATIVES; i++)
        if (engine->followers & 1u << i)
            *number_at(engine, relatives[i].offset) =
                relatives[i].followed == OFFSET(name) ? 1
                                                      : *number_at(engine, relatives[i].followed);
}

static int finish(void *value, const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_engine *engine = value;
    erg_name_make_printable(&engine->name);
    if (erg_quantities_finish(engine, erg_engine_numbers, yaml, "", err) != 0)
        return -1;
    engine->offload_least_bytes = 1 << 20;
    for (size_t i = 0; i < RELATIVES; i++)
        engine->followers |= erg_yaml_has(yaml, relatives[i].key) ? 0 : 1u << i;
    follow(engine);
    return 0;
}

static const struct erg_catalogue catalogue = {"engines", "training engine", &schema, finish};

int erg_engine_load(struct erg_engine **engine, const char *name, struct erg_error *err)
{
    void *value;
    if (erg_catalogue_load(&value, &catalogue, name, err) != 0)
        return -1;
    *engine = value;
    return 0;
}

void erg_engine_free(struct erg_engine *engine)
{
    erg_yaml_free(&schema, engine);
}

/* ---- the GPU that it is of ---- */

static bool suits(const struct erg_engine *engine, const struct erg_gpu *gpu)
{
    static const double most = 1.2;
    double ratio = erg_gpu_peak_flops(gpu) / engine->peak_flops;
    return ratio < most && ratio > 1 / most;
}

/* The catalogue's engines for a GPU, as a list. An entry that cannot be read is none of them. */
static void add_suitable(struct erg_text *out, const struct erg_gpu *gpu)
{
    struct erg_arena arena = {0};
    for (const char *const *name = erg_data_names("engines", &arena); *name; name++) {
        struct erg_engine *engine;
        struct erg_error ignored;
        if (erg_engine_load(&engine, *name, &ignored) != 0)
            continue;
        if (suits(engine, gpu))
            erg_text_printf(out, "%s%s", out->count ? ", " : "", *name);
        erg_engine_free(engine);
    }
    erg_arena_release(&arena);
}

int erg_engine_check_gpu(const struct erg_engine *engine, const struct erg_gpu *gpu,
                         struct erg_error *err)
{
    struct erg_text names = {0};
    if (suits(engine, gpu))
        return 0;
    add_suitable(&names, gpu);
    erg_fail(err, ERG_FAILED,
             "the engine '%.80s' is of a GPU with a peak of %.0f TFLOP/s, but %.80s has %.0f; "
             "expected another one with --engine NAME or the nodes' key engine, %s%.400s",
             engine->name, engine->peak_flops / 1e12, gpu->name, erg_gpu_peak_flops(gpu) / 1e12,
             names.count ? "of the catalogue for example: "
                         : "which must be a file of your own, since the catalogue has none",
             names.count ? names.data : "");
    erg_text_release(&names);
    return -1;
}

/* ---- numbers by their keys ---- */

double erg_engine_get(const struct erg_engine *engine, const struct erg_quantity *number)
{
    return *(const double *)(const void *)((const char *)engine + number->offset);
}

void erg_engine_set(struct erg_engine *engine, const struct erg_quantity *number, double value)
{
    *number_at(engine, number->offset) = value;
    for (size_t i = 0; i < RELATIVES; i++)
        if (relatives[i].offset == number->offset)
            engine->followers &= ~(1u << i);
    follow(engine);
}

/* ---- writing ---- */

static const struct erg_quantity *find_number(const char *key)
{
    for (const struct erg_quantity *number = erg_engine_numbers; number->key; number++)
        if (!strcmp(number->key, key))
            return number;
    return NULL;
}

/* The index of the key that the line sets, or -1. */
static int line_key(const char *line, const char *const *keys)
{
    for (int i = 0; keys[i]; i++) {
        size_t length = strlen(keys[i]);
        if (!strncmp(line, keys[i], length) && line[length] == ':')
            return i;
    }
    return -1;
}

static void add_number(struct erg_text *out, const struct erg_engine *engine, const char *key,
                       const char *comment)
{
    const struct erg_quantity *number = find_number(key);
    char field[96];
    snprintf(field, sizeof field, "%s: %.5g", key, erg_engine_get(engine, number) / number->factor);
    erg_text_printf(out, "%-33s # %s\n", field, comment);
}

int erg_engine_write(const struct erg_engine *engine, const char *source, const char *path,
                     const char *heading, const char *const *keys, const char *const *comments,
                     struct erg_error *err)
{
    char *found = erg_catalogue_path("engines", source), *text;
    int status = erg_file_read(found ? found : source, ERG_FILE_SMALL_BYTES, &text, NULL, err);
    free(found);
    if (status)
        return -1;
    struct erg_text out = {0};
    bool above = true, written[64] = {false};
    erg_catalogue_add_heading(&out, heading);
    for (char *line = text, *next; *line; line = next) {
        size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        above = above && *line == '#';
        int key = line_key(line, keys);
        if (key >= 0) {
            add_number(&out, engine, keys[key], comments[key]);
            written[key] = true;
        } else if (!above) {
            erg_text_add_bytes(&out, line, length);
            erg_text_add(&out, "\n");
        }
    }
    for (int i = 0; keys[i]; i++)
        if (!written[i])
            add_number(&out, engine, keys[i], comments[i]);
    free(text);
    status = erg_file_write(path, out.data, out.count, err);
    erg_text_release(&out);
    return status;
}
