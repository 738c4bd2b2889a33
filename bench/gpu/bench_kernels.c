/*
 * Rates of the GPU's kernels at the shapes of Llama 3.2 3B on two GPUs, 16384 tokens (norm per
 * head, which Llama has not: of Qwen 3 1.7B on two GPUs, 32768 tokens): memory-bound ones as a
 * share of the bandwidth of a copy, products beside the best that cuBLASLt has, alone and leaving
 * 16 SMs free. Everything after the GPU has got hot.
 *
 * Two copies stand beside a memory-bound kernel: one of half a gigabyte, whose rate is the
 * memory's, and one that moves as many bytes as the kernel (at most as many as the first), as
 * starting and running dry takes microseconds of any kernel: much of one of 40 us. Runs in a row,
 * of kernels and of copies, work on different memory, so that the second-level cache holds nothing
 * of what they read.
 */
#include "base/memory.h"
#include "base/random.h"
#include "device/cuda/cuda.h"
#include "device/cuda/gemm.h"
#include "device/cuda/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS = 16384,
    SEQUENCE = 4096,
    HIDDEN = 3072,
    QUERY_HEADS = 12,
    KV_HEADS = 4,
    HEAD_DIM = 128,
    FFN = 4096,
    COLUMNS = 128256 / 2,
    WEIGHTS = HIDDEN * 2 * FFN, /* of one update */
    SETS = 3,                   /* of buffers, used in turn */
    BATCH = 12,                 /* runs of one timing */
    TIMINGS = 15,
    FREE_SMS = 16,
};

static struct erg_error error;
static struct CUevent_st *start, *end;

static void must(int status)
{
    if (status) {
        printf("%s\n", error.message);
        exit(1);
    }
}

/* What the kernels work on; only sizes matter, so tensors share buffers. */
static struct buffers {
    erg_bf16 *x, *y, *z, *out, *qkv; /* one of each in every set, like ids and their order */
    erg_bf16 *logits, *weight;
    float *inv_rms, *d_weight, *d_norm, *table, *stats, *log_sum, *loss, *d_table, *scale;
    struct erg_ops_update *update;
    double *squares;
    int32_t *ids, *order;
    size_t distinct_ids;
    void *scratch, *workspace;
} sets[SETS], on;

static void *room(size_t bytes)
{
    void *memory;
    must(erg_cuda_alloc(&memory, bytes, &error));
    must(erg_cuda_fill(memory, 0, bytes, NULL, &error));
    return memory;
}

/* Normal numbers, repeated: a GPU draws less power for zeros. */
static erg_bf16 *numbers(size_t count)
{
    enum { TILE = 1 << 20 };
    static erg_bf16 tile[TILE];
    struct erg_rng rng;
    erg_rng_seed(&rng, count);
    for (size_t i = 0; i < TILE; i++)
        tile[i] = erg_bf16_round((float)erg_rng_normal(&rng));
    erg_bf16 *memory = room(count * sizeof *memory);
    for (size_t at = 0; at < count; at += TILE)
        must(erg_cuda_copy(memory + at, tile,
                           (count - at < TILE ? count - at : TILE) * sizeof *memory, NULL, &error));
    return memory;
}

static void fill_tokens(uint64_t seed)
{
    int32_t *ids = erg_xcalloc(TOKENS, sizeof *ids), *order = erg_xcalloc(TOKENS, sizeof *order);
    struct erg_rng rng;
    erg_rng_seed(&rng, seed);
    for (size_t i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)erg_rng_below(&rng, COLUMNS);
    erg_ops_embedding_order(TOKENS, ids, order);
    on.ids = room(TOKENS * sizeof *on.ids);
    on.order = room(TOKENS * sizeof *on.order);
    on.distinct_ids = 0;
    for (size_t i = 0; i < TOKENS; i++)
        on.distinct_ids += i == 0 || ids[order[i]] != ids[order[i - 1]];
    must(erg_cuda_copy(on.ids, ids, TOKENS * sizeof *ids, NULL, &error));
    must(erg_cuda_copy(on.order, order, TOKENS * sizeof *order, NULL, &error));
    free(ids), free(order);
}

static const struct erg_ops_qkv qkv = {TOKENS, SEQUENCE, QUERY_HEADS, KV_HEADS, HEAD_DIM};
static const struct erg_ops_qkv normed = {2 * TOKENS, SEQUENCE, 8, 4, HEAD_DIM}; /* Qwen's */

static void make_buffers(void)
{
    const size_t wide = (size_t)TOKENS * 2 * FFN;
    float table[HEAD_DIM];
    on.logits = numbers((size_t)TOKENS * COLUMNS);
    on.weight = numbers(WEIGHTS);
    on.inv_rms = room(TOKENS * sizeof(float));
    on.d_weight = room(WEIGHTS * sizeof(float));
    on.d_norm = room(HIDDEN * sizeof(float));
    on.table = room((size_t)SEQUENCE * HEAD_DIM * sizeof *table);
    erg_ops_rope_table(1, NULL, HEAD_DIM, 500000, NULL, table);
    for (size_t i = 0; i < SEQUENCE; i++)
        must(erg_cuda_copy(on.table + i * HEAD_DIM, table, sizeof table, NULL, &error));
    on.stats = room((size_t)TOKENS * 3 * sizeof(float));
    on.log_sum = room(TOKENS * sizeof(float));
    on.loss = room(sizeof(float));
    on.d_table = room((size_t)COLUMNS * HIDDEN * sizeof(float));
    const float scale = 1;
    on.scale = room(sizeof scale);
    must(erg_cuda_copy(on.scale, &scale, sizeof scale, NULL, &error));
    /* An update that changes nothing: what it works on are tensors of other kernels. */
    const struct erg_ops_update update = {
        .beta1 = 1, .beta2 = 1, .eps = 1, .correction1 = 1, .correction2 = 1, .factor = 1};
    on.update = room(sizeof update);
    must(erg_cuda_copy(on.update, &update, sizeof update, NULL, &error));
    on.squares = room(sizeof *on.squares);
    const size_t scratches[] = {
        erg_cuda_layer_norm_backward_scratch(TOKENS, HIDDEN),
        erg_cuda_rope_backward_scratch(&normed),
        erg_cuda_bias_gradient_scratch(TOKENS, HIDDEN),
        erg_cuda_gelu_backward_scratch(TOKENS, FFN),
        erg_cuda_squares_scratch((size_t)TOKENS * FFN),
    };
    size_t most = 0;
    for (size_t i = 0; i < sizeof scratches / sizeof *scratches; i++)
        most = scratches[i] > most ? scratches[i] : most;
    on.scratch = room(most);
    on.workspace = room(ERG_GEMM_WORKSPACE_BYTES);
    for (int i = 0; i < SETS; i++) {
        on.x = numbers(wide);
        on.y = numbers(wide);
        on.z = numbers(wide);
        on.out = numbers((size_t)TOKENS * HIDDEN);
        on.qkv = numbers(TOKENS * erg_ops_qkv_row(&qkv));
        fill_tokens((uint64_t)i);
        sets[i] = on;
    }
}

static const size_t most_copied = (size_t)TOKENS * 2 * FFN * sizeof(erg_bf16);
static size_t copied; /* bytes */

static int run_copy(struct erg_error *err)
{
    return erg_cuda_copy(on.y, on.x, copied, NULL, err);
}

static int run_add(struct erg_error *err)
{
    return erg_cuda_add_bias(TOKENS, HIDDEN, on.x, on.y, NULL, on.z, NULL, err);
}

static int run_add_bias(struct erg_error *err)
{
    return erg_cuda_add_bias(TOKENS, HIDDEN, on.x, on.y, on.weight, on.z, NULL, err);
}

static int run_bias_gradient(struct erg_error *err)
{
    return erg_cuda_bias_gradient(TOKENS, HIDDEN, on.x, on.d_norm, on.scratch, NULL, err);
}

static int run_norm(struct erg_error *err)
{
    return erg_cuda_norm_forward(TOKENS, HIDDEN, 1e-5F, on.x, NULL, NULL, on.weight, NULL, on.y,
                                 on.inv_rms, NULL, err);
}

static int run_add_norm(struct erg_error *err)
{
    return erg_cuda_norm_forward(TOKENS, HIDDEN, 1e-5F, on.x, on.y, NULL, on.weight, on.z, on.out,
                                 on.inv_rms, NULL, err);
}

static int run_norm_backward(struct erg_error *err)
{
    return erg_cuda_norm_backward(TOKENS, HIDDEN, on.x, on.weight, on.inv_rms, on.y, on.z, on.out,
                                  on.d_norm, on.scratch, NULL, err);
}

static int run_layer_norm(struct erg_error *err)
{
    return erg_cuda_layer_norm_forward(TOKENS, HIDDEN, 1e-5F, on.x, on.y, on.weight, on.weight,
                                       on.weight, on.z, on.out, on.stats, NULL, err);
}

static int run_layer_norm_backward(struct erg_error *err)
{
    return erg_cuda_layer_norm_backward(TOKENS, HIDDEN, on.x, on.weight, on.stats, on.y, on.z,
                                        on.out, on.d_norm, on.d_norm, on.scratch, NULL, err);
}

static int run_rope(struct erg_error *err)
{
    return erg_cuda_rope_forward(&qkv, 0, NULL, NULL, on.table, on.qkv, on.qkv,
                                 erg_ops_qkv_row(&qkv), NULL, err);
}

static int run_rope_backward(struct erg_error *err)
{
    return erg_cuda_rope_backward(&qkv, 0, NULL, NULL, on.table, NULL, on.qkv, on.qkv, NULL, NULL,
                                  NULL, NULL, err);
}

static int run_rope_norm(struct erg_error *err)
{
    return erg_cuda_rope_forward(&normed, 1e-6F, on.weight, on.weight, on.table, on.x, on.y,
                                 erg_ops_qkv_row(&normed), NULL, err);
}

static int run_rope_norm_backward(struct erg_error *err)
{
    return erg_cuda_rope_backward(&normed, 1e-6F, on.weight, on.weight, on.table, on.x, on.y, on.y,
                                  on.d_norm, on.d_norm, on.scratch, NULL, err);
}

static int run_swiglu(struct erg_error *err)
{
    return erg_cuda_swiglu_forward(TOKENS, FFN, on.x, on.y, NULL, err);
}

static int run_swiglu_backward(struct erg_error *err)
{
    return erg_cuda_swiglu_backward(TOKENS, FFN, on.x, on.y, on.z, NULL, err);
}

static int run_gelu(struct erg_error *err)
{
    return erg_cuda_gelu_forward(TOKENS, FFN, true, on.x, on.z, NULL, err);
}

static int run_gelu_backward(struct erg_error *err)
{
    return erg_cuda_gelu_backward(TOKENS, FFN, true, on.x, on.y, on.z, on.d_table, on.scratch, NULL,
                                  err);
}

static int run_gelu_erf_backward(struct erg_error *err)
{
    return erg_cuda_gelu_backward(TOKENS, FFN, false, on.x, on.y, on.z, on.d_table, on.scratch,
                                  NULL, err);
}

static int run_positions(struct erg_error *err)
{
    return erg_cuda_position_forward(TOKENS, SEQUENCE, HIDDEN, NULL, on.weight, on.z, NULL, err);
}

static int run_positions_backward(struct erg_error *err)
{
    return erg_cuda_position_backward(TOKENS, SEQUENCE, HIDDEN, NULL, on.x, on.d_table, NULL, err);
}

/* Pairs of bf16 as floats. */
static int run_adamw(struct erg_error *err)
{
    return erg_cuda_adamw(WEIGHTS, true, on.update, (const float *)on.x, (float *)on.y,
                          (float *)on.z, on.d_weight, on.out, NULL, err);
}

static int run_squares(struct erg_error *err)
{
    return erg_cuda_squares((size_t)TOKENS * FFN, (const float *)on.x, on.squares, on.scratch, NULL,
                            err);
}

static int run_rounding(struct erg_error *err)
{
    return erg_cuda_to_element((size_t)TOKENS * FFN, (const float *)on.x, on.z, NULL, err);
}

static int run_embedding(struct erg_error *err)
{
    return erg_cuda_embedding_forward(TOKENS, HIDDEN, 0, COLUMNS, on.ids, on.logits, on.x, NULL,
                                      err);
}

static int run_embedding_backward(struct erg_error *err)
{
    return erg_cuda_embedding_backward(TOKENS, HIDDEN, 0, COLUMNS, on.ids, on.order, on.x,
                                       on.d_table, NULL, err);
}

static int run_loss_stats(struct erg_error *err)
{
    return erg_cuda_loss_stats(TOKENS, COLUMNS, COLUMNS, 0, on.ids, on.logits, on.stats, NULL, err);
}

static int run_loss_combine(struct erg_error *err)
{
    return erg_cuda_loss_combine(TOKENS, 1, on.ids, on.stats, on.scale, on.log_sum, on.loss, NULL,
                                 err);
}

static int run_loss_backward(struct erg_error *err)
{
    return erg_cuda_loss_backward(TOKENS, COLUMNS, COLUMNS, 0, on.ids, on.log_sum, on.scale,
                                  on.logits, NULL, err);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Milliseconds of one run: the median of some timings of several runs each. */
static double time_runs(int (*run)(struct erg_error *err))
{
    double ms[TIMINGS];
    for (int i = -2; i < TIMINGS; i++) { /* the first two warm up */
        must(erg_cuda_event_record(start, NULL, &error));
        for (int k = 0; k < BATCH; k++) {
            on = sets[k % SETS];
            must(run(&error));
        }
        must(erg_cuda_event_record(end, NULL, &error));
        must(erg_cuda_event_sync(end, &error));
        if (i >= 0)
            must(erg_cuda_event_ms(&ms[i], start, end, &error));
    }
    qsort(ms, TIMINGS, sizeof *ms, by_value);
    return ms[TIMINGS / 2] / BATCH;
}

static void bench_memory(void)
{
    const double th = (double)TOKENS * HIDDEN, tf = (double)TOKENS * FFN;
    const double tr = (double)TOKENS * (QUERY_HEADS + KV_HEADS) * HEAD_DIM;
    const double tn = (double)(normed.tokens * (normed.query_heads + normed.kv_heads) * HEAD_DIM);
    const double tv = (double)TOKENS * COLUMNS;
    const double ts = (double)SEQUENCE * HIDDEN;
    const double ids = (double)on.distinct_ids * HIDDEN;
    /* Bytes that must pass; an embedding's gradient is read and written in float, once an id. */
    const struct {
        const char *name;
        double bytes;
        int (*run)(struct erg_error *err);
    } kernels[] = {
        {"residual add", 6 * th, run_add},
        {"residual add + bias", 6 * th, run_add_bias},
        {"bias gradient", 2 * th, run_bias_gradient},
        {"RMSNorm", 4 * th, run_norm},
        {"residual add + RMSNorm", 8 * th, run_add_norm},
        {"RMSNorm backward + add", 8 * th, run_norm_backward},
        {"biased add + LayerNorm", 8 * th, run_layer_norm},
        {"LayerNorm backward + add", 8 * th, run_layer_norm_backward},
        {"RoPE", 4 * tr, run_rope},
        {"RoPE backward", 4 * tr, run_rope_backward},
        {"norm per head + RoPE", 4 * tn, run_rope_norm},
        {"norm per head + RoPE backward", 6 * tn, run_rope_norm_backward},
        {"SwiGLU", 6 * tf, run_swiglu},
        {"SwiGLU backward", 10 * tf, run_swiglu_backward},
        {"GELU", 4 * tf, run_gelu},
        {"GELU backward", 6 * tf, run_gelu_backward},
        {"GELU backward, erf", 6 * tf, run_gelu_erf_backward},
        {"embedding", 4 * th, run_embedding},
        {"embedding backward", 2 * th + 8 * ids, run_embedding_backward},
        {"positions", 4 * th + 2 * ts, run_positions},
        {"positions backward", 2 * th + 8 * ts, run_positions_backward},
        {"loss, statistics", 2 * tv, run_loss_stats},
        {"loss, combined", 12.0 * TOKENS, run_loss_combine},
        {"loss backward", 4 * tv, run_loss_backward},
        {"AdamW", 30.0 * WEIGHTS, run_adamw},
        {"sum of squares", 4 * tf, run_squares},
        {"rounding to bf16", 6 * tf, run_rounding},
    };
    copied = most_copied;
    const double copy = 2 * (double)copied / time_runs(run_copy) * 1e-6;
    printf("copy of %zu MB: %.0f GB/s read and written\n\n", copied / 1000000, copy);
    printf("%-32s %9s %9s %14s %18s\n", "kernel", "ms", "GB/s", "share of copy", "of one as large");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        double ms = time_runs(kernels[i].run), rate = kernels[i].bytes / ms * 1e-6;
        copied = kernels[i].bytes / 2 < (double)most_copied ? (size_t)(kernels[i].bytes / 2)
                                                            : most_copied;
        double same = 2 * (double)copied / time_runs(run_copy) * 1e-6;
        printf("%-32s %9.4f %9.0f %13.1f%% %17.1f%%\n", kernels[i].name, ms, rate,
               100 * rate / copy, 100 * rate / same);
    }
}

static void bench_products(int sms)
{
    static const char *const kinds[] = {"forward", "input gradient", "weight gradient"};
    const struct {
        const char *name;
        size_t inputs, outputs;
    } linears[] = {
        {"qkv", HIDDEN, (QUERY_HEADS + 2 * KV_HEADS) * HEAD_DIM},
        {"proj", QUERY_HEADS * HEAD_DIM, HIDDEN},
        {"fc1", HIDDEN, 2 * FFN},
        {"fc2", FFN, HIDDEN},
    };
    struct erg_gemm *gemm;
    must(erg_gemm_open(&gemm, &error));
    printf("\n%-24s %28s %28s\n", "", "all SMs", "16 SMs left free");
    printf("%-24s %8s %8s %10s %8s %8s %10s %8s\n", "product", "ms", "TFLOP/s", "1st answer", "ms",
           "TFLOP/s", "1st answer", "time");
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++)
        for (int kind = 0; kind < 3; kind++) {
            const struct erg_gemm_shape shape = {(enum erg_gemm_kind)kind, TOKENS,
                                                 linears[i].inputs, linears[i].outputs};
            bool weight_gradient = kind == ERG_GEMM_WEIGHT_GRADIENT;
            const void *b = weight_gradient ? on.y : on.weight;
            void *c = weight_gradient ? (void *)on.d_weight : on.z;
            double flops = 2.0 * TOKENS * (double)shape.inputs * (double)shape.outputs;
            struct erg_gemm_timing timings[2];
            printf("%-5s %-18s", linears[i].name, kinds[kind]);
            for (int bounded = 0; bounded < 2; bounded++) {
                struct erg_gemm_timing *t = &timings[bounded];
                must(erg_gemm_tune(gemm, &shape, on.x, b, NULL, c, bounded ? sms - FREE_SMS : 0,
                                   on.workspace, NULL, t, &error));
                printf(" %8.4f %8.0f %9.1f%%", t->best_ms, flops / t->best_ms * 1e-9,
                       100 * t->best_ms / t->first_ms);
            }
            printf(" x %.3f\n", timings[1].best_ms / timings[0].best_ms);
        }
    erg_gemm_close(gemm);
}

int main(void)
{
    struct erg_cuda cuda;
    int count = 0;
    if (erg_cuda_count(&count, &error) || count == 0) {
        printf("skipped: no GPU here (%s)\n", error.message);
        return 77;
    }
    must(erg_cuda_init(&cuda, 0, &error));
    must(erg_cuda_event_new(&start, true, &error));
    must(erg_cuda_event_new(&end, true, &error));
    printf("%s, %d SMs; %d tokens, %zu of the norm per head\n", cuda.name, cuda.sms, TOKENS,
           normed.tokens);
    make_buffers();
    bench_memory();
    bench_products(cuda.sms);
    return 0;
}
