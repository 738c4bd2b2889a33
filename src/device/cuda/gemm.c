/* GEMM: runs the matrix products of linear layers by cuBLASLt, and times its algorithms. */
#include "device/cuda/gemm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/statistics.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_internal.h"

#include <cublasLt.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_ANSWERS = 16, ROUNDS = 5 };
/* Of running before timing, unless another product was timed less than hot_ms before; of one
 * timing. */
static const double warm_ms = 300, hot_ms = 100, timing_ms = 4;

#define LIBRARY_NAME_(major) "libcublasLt.so." #major
#define LIBRARY_NAME(major) LIBRARY_NAME_(major)

struct cublaslt {
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetStatusString) *status_string;
    __typeof__(cublasLtMatmul) *matmul;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *algorithms;
    __typeof__(cublasLtMatmulAlgoConfigGetAttribute) *algorithm_attribute;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
};

static const struct erg_cuda_entry entries[] = {
    {"cublasLtCreate", offsetof(struct cublaslt, create)},
    {"cublasLtDestroy", offsetof(struct cublaslt, destroy)},
    {"cublasLtGetStatusString", offsetof(struct cublaslt, status_string)},
    {"cublasLtMatmul", offsetof(struct cublaslt, matmul)},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(struct cublaslt, algorithms)},
    {"cublasLtMatmulAlgoConfigGetAttribute", offsetof(struct cublaslt, algorithm_attribute)},
    {"cublasLtMatmulDescCreate", offsetof(struct cublaslt, desc_create)},
    {"cublasLtMatmulDescDestroy", offsetof(struct cublaslt, desc_destroy)},
    {"cublasLtMatmulDescSetAttribute", offsetof(struct cublaslt, desc_set)},
    {"cublasLtMatrixLayoutCreate", offsetof(struct cublaslt, layout_create)},
    {"cublasLtMatrixLayoutDestroy", offsetof(struct cublaslt, layout_destroy)},
    {"cublasLtMatmulPreferenceCreate", offsetof(struct cublaslt, preference_create)},
    {"cublasLtMatmulPreferenceDestroy", offsetof(struct cublaslt, preference_destroy)},
    {"cublasLtMatmulPreferenceSetAttribute", offsetof(struct cublaslt, preference_set)},
};

/* A shape with everything that cuBLASLt wants to know of it. */
struct product {
    struct erg_gemm_shape shape;
    bool bounded;       /* to fewer SMs than all */
    bool biased;        /* y is a sum with a bias */
    uint32_t alignment; /* of all three matrices, bytes, up to 256 */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t answers[MAX_ANSWERS];
    size_t count, best;
};

struct erg_gemm {
    struct cublaslt library;
    cublasLtHandle_t handle;
    struct {
        struct product **items;
        size_t count, capacity;
    } products;
    int64_t timed_ns; /* when the last timing ended */
};

static const char *kind_name(enum erg_gemm_kind kind)
{
    static const char *const names[] = {
        [ERG_GEMM_FORWARD] = "forward",
        [ERG_GEMM_INPUT_GRADIENT] = "input gradient",
        [ERG_GEMM_WEIGHT_GRADIENT] = "weight gradient",
    };
    return names[kind];
}

static int check(const struct erg_gemm *gemm, cublasStatus_t status,
                 const struct erg_gemm_shape *shape, struct erg_error *err)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "the %s of a linear with %zu tokens, %zu inputs, %zu outputs: %s",
                    kind_name(shape->kind), shape->tokens, shape->inputs, shape->outputs,
                    gemm->library.status_string(status));
}

int erg_gemm_open(struct erg_gemm **gemm, struct erg_error *err)
{
    struct erg_gemm *opened = erg_xcalloc(1, sizeof *opened);
    if (erg_cuda_library_open(LIBRARY_NAME(CUBLAS_VER_MAJOR), &opened->library, entries,
                              sizeof entries / sizeof *entries, err)) {
        free(opened);
        return -1;
    }
    cublasStatus_t status = opened->library.create(&opened->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        erg_fail(err, ERG_NO_DEVICE, "starting cuBLASLt: %s",
                 opened->library.status_string(status));
        free(opened);
        return -1;
    }
    *gemm = opened;
    return 0;
}

static void free_product(const struct cublaslt *library, struct product *product)
{
    if (product->desc)
        library->desc_destroy(product->desc);
    const cublasLtMatrixLayout_t layouts[] = {product->a, product->b, product->c};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            library->layout_destroy(layouts[i]);
    free(product);
}

void erg_gemm_close(struct erg_gemm *gemm)
{
    if (!gemm)
        return;
    for (size_t i = 0; i < gemm->products.count; i++)
        free_product(&gemm->library, gemm->products.items[i]);
    free(gemm->products.items);
    gemm->library.destroy(gemm->handle);
    free(gemm);
}

/* A bias has an element for each row of what cuBLASLt computes: the outputs of y'. */
static cublasStatus_t describe_bias(const struct cublaslt *library, cublasLtMatmulDesc_t desc,
                                    const void *bias)
{
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int32_t type = CUDA_R_16BF;
    cublasStatus_t status =
        library->desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!status)
        status = library->desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    return status ? status
                  : library->desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

/*
 * cuBLASLt's matrices are column-major, so that ours are the transposes of what it sees, and it
 * computes the transpose of c:
 *     y' = weight x'        (outputs x tokens): weight stored as its transpose
 *     d_x' = weight' d_y'   (inputs x tokens)
 *     d_weight' = x' d_y    (inputs x outputs): d_y stored as its transpose
 * In its words the left factor is `a` and the right one `b`.
 */
static cublasStatus_t describe(const struct cublaslt *library, struct product *product,
                               const void *bias)
{
    const struct erg_gemm_shape *s = &product->shape;
    const cublasOperation_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
    const bool forward = s->kind == ERG_GEMM_FORWARD;
    const bool weight_gradient = s->kind == ERG_GEMM_WEIGHT_GRADIENT;
    const size_t a_columns = weight_gradient ? s->tokens : s->outputs;
    const size_t b_rows = forward ? s->inputs : s->outputs;
    const size_t c_rows = forward ? s->outputs : s->inputs;
    const size_t c_columns = weight_gradient ? s->outputs : s->tokens;
    cublasStatus_t status = library->desc_create(&product->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!status)
        status = library->desc_set(product->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                   forward ? &transposed : &plain, sizeof plain);
    if (!status)
        status = library->desc_set(product->desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                   weight_gradient ? &transposed : &plain, sizeof plain);
    if (!status && bias)
        status = describe_bias(library, product->desc, bias);
    if (!status)
        status = library->layout_create(&product->a, CUDA_R_16BF, s->inputs, a_columns,
                                        (int64_t)s->inputs);
    if (!status)
        status =
            library->layout_create(&product->b, CUDA_R_16BF, b_rows, s->tokens, (int64_t)b_rows);
    if (!status)
        status = library->layout_create(&product->c, weight_gradient ? CUDA_R_32F : CUDA_R_16BF,
                                        c_rows, c_columns, (int64_t)c_rows);
    return status;
}

static cublasStatus_t ask(const struct erg_gemm *gemm, struct product *product)
{
    const struct cublaslt *library = &gemm->library;
    const size_t workspace = ERG_GEMM_WORKSPACE_BYTES;
    cublasLtMatmulPreference_t preference;
    int count = 0;
    cublasStatus_t status = library->preference_create(&preference);
    if (status)
        return status;
    status = library->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                     &workspace, sizeof workspace);
    const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments && !status; i++)
        status = library->preference_set(preference, alignments[i], &product->alignment,
                                         sizeof product->alignment);
    if (!status)
        status =
            library->algorithms(gemm->handle, product->desc, product->a, product->b, product->c,
                                product->c, preference, MAX_ANSWERS, product->answers, &count);
    library->preference_destroy(preference);
    product->count = (size_t)count;
    return !status && count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

static bool has_small_clusters(const struct cublaslt *library,
                               const cublasLtMatmulHeuristicResult_t *answer)
{
    uint16_t cluster = CUBLASLT_CLUSTER_SHAPE_AUTO;
    size_t written;
    library->algorithm_attribute(&answer->algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster,
                                 sizeof cluster, &written);
    return cluster == CUBLASLT_CLUSTER_SHAPE_AUTO || cluster == CUBLASLT_CLUSTER_SHAPE_1x1x1 ||
           cluster == CUBLASLT_CLUSTER_SHAPE_2x1x1 || cluster == CUBLASLT_CLUSTER_SHAPE_1x2x1;
}

/* Keeps the answers that fit beside a collective, in their order; all if none does. */
static void drop_large_clusters(const struct cublaslt *library, struct product *product)
{
    size_t kept = 0;
    cublasLtMatmulHeuristicResult_t small[MAX_ANSWERS];
    for (size_t i = 0; i < product->count; i++)
        if (has_small_clusters(library, &product->answers[i]))
            small[kept++] = product->answers[i];
    for (size_t i = 0; i < kept; i++)
        product->answers[i] = small[i];
    if (kept)
        product->count = kept;
}

/* What a product reads and writes. */
struct operands {
    const void *a, *b, *bias;
    void *c;
};

/* The largest power of two up to 256 that divides the addresses of all three matrices. */
static uint32_t alignment_of(const struct operands *o)
{
    uintptr_t bits = (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c | 256;
    return (uint32_t)(bits & (~bits + 1));
}

/* The product as it is remembered, or asked for now. */
static int find(struct erg_gemm *gemm, struct product **found, const struct erg_gemm_shape *shape,
                const struct operands *operands, bool bounded, struct erg_error *err)
{
    const bool biased = operands->bias != NULL;
    uint32_t alignment = alignment_of(operands);
    for (size_t i = 0; i < gemm->products.count; i++) {
        struct product *known = gemm->products.items[i];
        const struct erg_gemm_shape *s = &known->shape;
        if (s->kind == shape->kind && s->tokens == shape->tokens && s->inputs == shape->inputs &&
            s->outputs == shape->outputs && known->bounded == bounded && known->biased == biased &&
            known->alignment == alignment) {
            *found = known;
            return 0;
        }
    }
    struct product *product = erg_xcalloc(1, sizeof *product);
    product->shape = *shape;
    product->bounded = bounded;
    product->biased = biased;
    product->alignment = alignment;
    cublasStatus_t status = describe(&gemm->library, product, operands->bias);
    if (!status)
        status = ask(gemm, product);
    if (check(gemm, status, shape, err)) {
        free_product(&gemm->library, product);
        return -1;
    }
    if (bounded)
        drop_large_clusters(&gemm->library, product);
    ERG_PUSH(&gemm->products, items, product);
    *found = product;
    return 0;
}

static int run(const struct erg_gemm *gemm, const struct product *product, size_t answer,
               const struct operands *o, int sms, void *workspace, struct CUstream_st *stream,
               struct erg_error *err)
{
    const struct cublaslt *library = &gemm->library;
    const bool weight_gradient = product->shape.kind == ERG_GEMM_WEIGHT_GRADIENT;
    const float one = 1, keep = weight_gradient ? 1 : 0;
    const void *left = weight_gradient ? o->a : o->b;
    const void *right = weight_gradient ? o->b : o->a;
    const int32_t target = sms;
    cublasStatus_t status = library->desc_set(product->desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                                              &target, sizeof target);
    if (!status && product->biased)
        status = library->desc_set(product->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias,
                                   sizeof o->bias);
    if (!status)
        status = library->matmul(gemm->handle, product->desc, &one, left, product->a, right,
                                 product->b, &keep, o->c, product->c, o->c, product->c,
                                 &product->answers[answer].algo, workspace,
                                 ERG_GEMM_WORKSPACE_BYTES, stream);
    return check(gemm, status, &product->shape, err);
}

int erg_gemm_run(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                 const void *b, const void *bias, void *c, int sms, void *workspace,
                 struct CUstream_st *stream, struct erg_error *err)
{
    const struct operands operands = {a, b, bias, c};
    struct product *product;
    if (find(gemm, &product, shape, &operands, sms > 0, err))
        return -1;
    return run(gemm, product, product->best, &operands, sms, workspace, stream, err);
}

/* One product with its arguments, to be timed between two events. */
struct trial {
    struct erg_gemm *gemm;
    struct product *product;
    struct operands operands;
    void *workspace;
    int sms, repeats;
    struct CUstream_st *stream;
    struct CUevent_st *start, *end;
};

/* Milliseconds of one product by an answer; blocks. */
static int time_answer(const struct trial *trial, size_t answer, double *ms, struct erg_error *err)
{
    if (erg_cuda_event_record(trial->start, trial->stream, err))
        return -1;
    for (int i = 0; i < trial->repeats; i++)
        if (run(trial->gemm, trial->product, answer, &trial->operands, trial->sms, trial->workspace,
                trial->stream, err))
            return -1;
    if (erg_cuda_event_record(trial->end, trial->stream, err) ||
        erg_cuda_event_sync(trial->end, err) ||
        erg_cuda_event_ms(ms, trial->start, trial->end, err))
        return -1;
    *ms /= trial->repeats;
    return 0;
}

/* Rounds go over all answers, so that a slow drift of the clock meets all alike. */
static int time_answers(struct trial *trial, double *medians, struct erg_error *err)
{
    double times[MAX_ANSWERS][ROUNDS], once;
    trial->repeats = 1;
    if (time_answer(trial, 0, &once, err) || time_answer(trial, 0, &once, err))
        return -1;
    trial->repeats = once < timing_ms ? (int)(timing_ms / once) + 1 : 1;
    const bool hot = (double)(erg_now_ns() - trial->gemm->timed_ns) < hot_ms * 1e6;
    for (double spent = 0; !hot && spent < warm_ms; spent += once * trial->repeats)
        if (time_answer(trial, 0, &once, err))
            return -1;
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < trial->product->count; i++)
            if (time_answer(trial, i, &times[i][round], err))
                return -1;
    for (size_t i = 0; i < trial->product->count; i++)
        medians[i] = erg_median(times[i], ROUNDS);
    trial->gemm->timed_ns = erg_now_ns();
    return 0;
}

int erg_gemm_tune(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                  const void *b, const void *bias, void *c, int sms, void *workspace,
                  struct CUstream_st *stream, struct erg_gemm_timing *timing, struct erg_error *err)
{
    struct trial trial = {.gemm = gemm,
                          .operands = {a, b, bias, c},
                          .workspace = workspace,
                          .sms = sms,
                          .stream = stream};
    double medians[MAX_ANSWERS];
    if (find(gemm, &trial.product, shape, &trial.operands, sms > 0, err))
        return -1;
    int status = erg_cuda_event_new(&trial.start, true, err);
    if (!status)
        status = erg_cuda_event_new(&trial.end, true, err);
    if (!status)
        status = time_answers(&trial, medians, err);
    erg_cuda_event_free(trial.start);
    erg_cuda_event_free(trial.end);
    if (status)
        return -1;
    size_t best = 0;
    for (size_t i = 1; i < trial.product->count; i++)
        if (medians[i] < medians[best])
            best = i;
    trial.product->best = best;
    *timing = (struct erg_gemm_timing){.answers = trial.product->count,
                                       .best = best,
                                       .first_ms = medians[0],
                                       .best_ms = medians[best]};
    return 0;
}
