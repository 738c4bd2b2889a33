/* Writes the content of Calculon's files as ergon's files. */
#include "layout/exchange/calculon.h"

#include "io/file.h"
#include "io/json.h"
#include "io/yaml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CALCULON_WORDS = 51200 };

/* ---- the GPU ---- */

/* The distance of two positive numbers. */
static double distance(double a, double b)
{
    return fabs(log(a / b));
}

static double gpu_distance(const struct erg_gpu *gpu, const struct erg_calculon_system *system)
{
    return distance(erg_gpu_peak_flops(gpu), system->peak_flops) +
           distance(gpu->memory_bandwidth, system->memory.bandwidth) +
           distance(gpu->memory_bytes, system->memory.bytes) +
           distance(gpu->link_bandwidth, system->networks[0].bandwidth);
}

int erg_calculon_base_gpu(struct erg_gpu **gpu, const struct erg_calculon_system *system,
                          struct erg_error *err)
{
    struct erg_arena arena = {0};
    int status = 0;
    *gpu = NULL;
    for (const char *const *name = erg_data_names("gpus", &arena); *name && status == 0; name++) {
        struct erg_gpu *other;
        status = erg_gpu_load(&other, *name, err);
        if (status != 0)
            break;
        if (!*gpu || gpu_distance(other, system) < gpu_distance(*gpu, system)) {
            erg_gpu_free(*gpu);
            *gpu = other;
        } else {
            erg_gpu_free(other);
        }
    }
    erg_arena_release(&arena);
    if (status == 0 && !*gpu)
        status = erg_fail(err, ERG_FAILED,
                          "looking for a GPU like the system's: the catalogue of GPUs is empty");
    if (status != 0) {
        erg_gpu_free(*gpu);
        *gpu = NULL;
    }
    return status;
}

struct origins {
    const char *system, *base; /* the comments of a GPU's numbers */
};

/* The source of a number in the GPU's file. */
static const char *origin(const void *context, size_t member)
{
    static const size_t of_system[] = {
        offsetof(struct erg_gpu, flops_per_sm_clock),  offsetof(struct erg_gpu, memory_bandwidth),
        offsetof(struct erg_gpu, memory_bytes),        offsetof(struct erg_gpu, link_bandwidth),
        offsetof(struct erg_gpu, gemm_efficiency),     offsetof(struct erg_gpu, memory_efficiency),
        offsetof(struct erg_gpu, comm_link_factor),    offsetof(struct erg_gpu, comm_latency_s),
        offsetof(struct erg_gpu, library_link_factor),
    };
    const struct origins *origins = context;
    for (size_t i = 0; i < sizeof of_system / sizeof *of_system; i++)
        if (of_system[i] == member)
            return origins->system;
    return origins->base;
}

static int write_gpu(const struct erg_calculon_import *import, const struct erg_gpu *base,
                     const char *path, struct erg_error *err)
{
    const struct erg_calculon_system *system = import->system;
    const struct erg_calculon_network *links = &system->networks[0];
    struct erg_text name = {0}, confidence = {0}, heading = {0}, of_base = {0};
    struct erg_gpu gpu = *base;
    gpu.flops_per_sm_clock =
        base->flops_per_sm_clock * system->peak_flops / erg_gpu_peak_flops(base);
    gpu.stated_flops = system->peak_flops;
    gpu.memory_bandwidth = system->memory.bandwidth;
    gpu.memory_bytes = system->memory.bytes;
    gpu.memory_efficiency = system->memory.efficiency.shares[0];
    gpu.gemm_efficiency = system->products.shares[0];
    gpu.link_bandwidth = links->bandwidth;
    gpu.comm_link_factor = gpu.library_link_factor = links->efficiency;
    gpu.comm_latency_s = links->latency_s;
    erg_text_add(&name, import->system_name);
    erg_text_printf(&confidence,
                    "imported from a system of Calculon; values that it lacks are those of %s",
                    base->name);
    erg_text_printf(&heading, "Written by ergon import from Calculon's system %s.",
                    import->system_name);
    erg_text_printf(&of_base, "as in %s", base->name);
    gpu.name = name.data;
    gpu.confidence = confidence.data;
    struct origins origins = {"of the system", of_base.data};
    int status = erg_gpu_write(&gpu, path, heading.data, origin, &origins, err);
    erg_text_release(&name);
    erg_text_release(&confidence);
    erg_text_release(&heading);
    erg_text_release(&of_base);
    return status;
}

/* ---- the other files ---- */

static int write_config(const struct erg_calculon_import *import, const char *path,
                        struct erg_error *err)
{
    const struct erg_calculon_model *model = import->model;
    json_t *config = erg_json_pack(
        "{s:s, s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "_name_or_path",
        import->model_name, "architectures", "GPT2LMHeadModel", "model_type", "gpt2",
        "activation_function", "gelu", "n_embd", (json_int_t)model->hidden, "n_inner",
        (json_int_t)model->feedforward, "n_layer", (json_int_t)model->blocks, "n_head",
        (json_int_t)model->heads, "head_dim", (json_int_t)model->head_dim, "n_positions",
        (json_int_t)model->sequence, "vocab_size", (json_int_t)CALCULON_WORDS,
        "tie_word_embeddings", 1);
    int status = config ? erg_json_write(path, config, err)
                        : erg_fail(err, ERG_FAILED, "the model's name '%.100s' is not UTF-8",
                                   import->model_name);
    json_decref(config);
    return status;
}

static void add_number(struct erg_text *out, const char *key, double value, const char *comment)
{
    char field[96];
    snprintf(field, sizeof field, "%s: %.6g", key, value);
    erg_text_printf(out, "%-33s # %s\n", field, comment);
}

/* ---- efficiencies of the model's operations ---- */

/* The number of GPUs of a node over which a layer can be split. */
static long node_split(const struct erg_calculon_import *import)
{
    const struct erg_calculon_model *model = import->model;
    long split = import->system->networks[0].size;
    while (split > 1 && (import->system->networks[0].size % split || model->heads % split ||
                         model->feedforward % split))
        split--;
    return split;
}

/*
 * The share of the peak that a layer's products reach for one sequence: FLOPs and 16-bit bytes of
 * each product, at the efficiency of its size.
 */
static double product_efficiency(const struct erg_calculon_import *import)
{
    const struct erg_calculon_model *model = import->model;
    const struct erg_calculon_system *system = import->system;
    const double split = (double)node_split(import), tokens = (double)model->sequence,
                 hidden = (double)model->hidden,
                 heads = (double)(model->heads * model->head_dim) / split,
                 feedforward = (double)model->feedforward / split;
    const double shapes[][2] = {
        {hidden, 3 * heads}, {heads, hidden}, {hidden, feedforward}, {feedforward, hidden}};
    double least_s = 0, sum_s = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        double in = shapes[i][0], out = shapes[i][1], flops = 2 * tokens * in * out,
               bytes = 2 * (tokens * in + in * out + tokens * out),
               flops_s = flops / system->peak_flops / erg_calculon_share(&system->products, flops),
               bytes_s = bytes / system->memory.bandwidth /
                         erg_calculon_share(&system->memory.efficiency, bytes);
        least_s += flops / system->peak_flops;
        sum_s += system->roofline ? fmax(flops_s, bytes_s) : flops_s + bytes_s;
    }
    return fmax(least_s / sum_s, 0.01);
}

/*
 * The efficiency of the products of queries with keys and of scores with values, with all heads of
 * a GPU in one product.
 */
static double score_efficiency(const struct erg_calculon_import *import)
{
    const struct erg_calculon_model *model = import->model;
    double tokens = (double)model->sequence, heads = (double)model->heads;
    double flops = 2 * tokens * tokens * (double)model->head_dim * heads;
    return erg_calculon_share(&import->system->products, flops / (double)node_split(import));
}

/* The efficiency of a kernel that reads and writes hidden states. */
static double memory_efficiency(const struct erg_calculon_import *import)
{
    double hidden = (double)import->model->hidden * (double)import->model->sequence;
    return erg_calculon_share(&import->system->memory.efficiency, 2 * 2 * hidden);
}

static void add_engine(struct erg_text *out, const struct erg_calculon_import *import)
{
    static const char of_system[] = "of the system", assumed[] = "assumed: nothing hides it",
                      published[] = "as in megatron-kwai-h800";
    const struct erg_calculon_system *system = import->system;
    const struct erg_calculon_network *nodes = &system->networks[system->network_count - 1];
    erg_text_printf(out,
                    "# Written by ergon import from Calculon's system %s. How much of a "
                    "transfer is\n"
                    "# hidden belongs to its executions, not to its systems: nothing is hidden "
                    "here. Layers have no\n"
                    "# overhead, so times are lower bounds. ergon fit finds both from measured "
                    "iterations.\n"
                    "name: ",
                    import->system_name);
    erg_yaml_add_string(out, import->system_name);
    erg_text_add(out, "\n\n");
    add_number(out, "peak_tflops", system->peak_flops / 1e12, of_system);
    add_number(out, "gemm_efficiency", product_efficiency(import),
               "of the model's products, split over a node");
    add_number(out, "attention_efficiency", score_efficiency(import), "of products of their size");
    add_number(out, "memory_efficiency", memory_efficiency(import), "of hidden states");
    add_number(out, "score_forward_bytes", 11, "written, softmax, dropout and its mask, read");
    add_number(out, "score_backward_bytes", 13, "counted in the same way");
    erg_text_add(out, "fused_kernels: false              # Calculon's layers are kernels each\n\n");
    add_number(out, "link_efficiency", system->networks[0].efficiency, of_system);
    add_number(out, "network_efficiency", nodes->efficiency, of_system);
    add_number(out, "collective_latency_us", system->networks[0].latency_s * 1e6, of_system);
    erg_text_add(out, "sequence_parallel: true           # assumed\n");
    add_number(out, "tensor_forward", 1, assumed);
    add_number(out, "tensor_backward", 1, assumed);
    add_number(out, "context_exposed", 1, assumed);
    add_number(out, "pipeline_exposed", 1, assumed);
    add_number(out, "gradient_bytes", 4, "gradients and weights in 16 bit");
    erg_text_add(out, "\n");
    add_number(out, "optimizer_bytes", 24, published);
    add_number(out, "optimizer_sharded_bytes", 28, published);
    if (system->host.bytes > 0)
        add_number(out, "host_link_gb_s",
                   system->host.bandwidth * system->host.efficiency.shares[0] / 1e9,
                   "of the system's mem2, with its efficiency");
}

static void add_job(struct erg_text *out, const struct erg_calculon_import *import)
{
    const struct erg_calculon_system *system = import->system;
    const struct erg_calculon_network *node = &system->networks[0];
    erg_text_printf(out,
                    "# Written by ergon import from Calculon's model %s and system %s.\n"
                    "#\n"
                    "#   ergon layout job.yaml\n"
                    "model: config.json\n"
                    "cluster:\n"
                    "  nodes: %ld\n"
                    "  gpus_per_node: %ld\n"
                    "  gpu: gpu.yaml\n",
                    import->model_name, import->system_name, import->gpus / node->size, node->size);
    if (system->network_count > 1)
        erg_text_printf(out,
                        "  inter_node_bandwidth_gb_s: %.6g  # of a node, all its GPUs together\n"
                        "  inter_node_latency_us: %.6g\n",
                        system->networks[1].bandwidth / 1e9 * (double)node->size,
                        system->networks[1].latency_s * 1e6);
    if (system->host.bytes > 0 && isfinite(system->host.bytes))
        erg_text_printf(out, "  host_memory_gib: %.6g\n",
                        system->host.bytes / 0x1p30 * (double)node->size);
    erg_text_printf(out,
                    "engine: engine.yaml\n"
                    "microbatch_size: 1\n"
                    "microbatches: %ld  # sequences of an iteration\n"
                    "sequence: %ld\n",
                    import->batch, import->model->sequence);
}

static int write_text(const char *folder, const char *name,
                      void (*add)(struct erg_text *out, const struct erg_calculon_import *import),
                      const struct erg_calculon_import *import, struct erg_error *err)
{
    struct erg_text text = {0};
    char *path = erg_file_path(folder, name);
    add(&text, import);
    int status = erg_file_write(path, text.data, text.count, err);
    erg_text_release(&text);
    free(path);
    return status;
}

/* Adds the name of a file for names and comments: on one line and of limited length. */
static void add_short_name(struct erg_text *out, const char *name)
{
    erg_text_add_printable(out, name);
    if (out->count <= 100)
        return;
    size_t end = 100;
    while (((unsigned char)out->data[end] & 0xc0) == 0x80) /* inside a character */
        end--;
    out->data[end] = '\0';
    out->count = end;
}

static int write_files(const struct erg_calculon_import *import, const struct erg_gpu *base,
                       const char *folder, struct erg_error *err)
{
    char *config = erg_file_path(folder, "config.json"), *gpu = erg_file_path(folder, "gpu.yaml");
    int status = write_config(import, config, err) || write_gpu(import, base, gpu, err) ||
                         write_text(folder, "engine.yaml", add_engine, import, err) ||
                         write_text(folder, "job.yaml", add_job, import, err)
                     ? -1
                     : 0;
    free(config);
    free(gpu);
    return status;
}

int erg_calculon_write(const struct erg_calculon_import *import, const struct erg_gpu *base,
                       const char *folder, struct erg_error *err)
{
    const struct erg_calculon_system *system = import->system;
    long node = system->networks[0].size;
    if (import->gpus < 1 || import->gpus % node != 0)
        return erg_fail(err, ERG_FAILED,
                        "%ld GPUs do not make whole nodes: the system's first network connects "
                        "%ld, expected a multiple of that",
                        import->gpus, node);
    if (import->gpus > node && system->network_count < 2)
        return erg_fail(err, ERG_FAILED,
                        "%ld GPUs are several nodes of %ld, but the system has no second network "
                        "to connect them",
                        import->gpus, node);
    if (erg_dir_make(folder, err) != 0)
        return -1;
    struct erg_text model_name = {0}, system_name = {0};
    add_short_name(&model_name, import->model_name);
    add_short_name(&system_name, import->system_name);
    struct erg_calculon_import named = *import;
    named.model_name = model_name.data;
    named.system_name = system_name.data;
    int status = write_files(&named, base, folder, err);
    erg_text_release(&model_name);
    erg_text_release(&system_name);
    return status;
}
