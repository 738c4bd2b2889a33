/* GEMM: runs the matrix products of linear layers by cuBLASLt. */
#include "base/memory.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/gemm_internal.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY_NAME_(major) "libcublasLt.so." #major
#define LIBRARY_NAME(major) LIBRARY_NAME_(major)

static const struct erg_cuda_entry entries[] = {
    {"cublasLtCreate", offsetof(struct erg_cublaslt, create)},
    {"cublasLtDestroy", offsetof(struct erg_cublaslt, destroy)},
    {"cublasLtGetVersion", offsetof(struct erg_cublaslt, version)},
    {"cublasLtGetStatusString", offsetof(struct erg_cublaslt, status_string)},
    {"cublasLtMatmul", offsetof(struct erg_cublaslt, matmul)},
    {"cublasLtMatmulAlgoGetHeuristic", offsetof(struct erg_cublaslt, algorithms)},
    {"cublasLtMatmulAlgoInit", offsetof(struct erg_cublaslt, algorithm_init)},
    {"cublasLtMatmulAlgoCheck", offsetof(struct erg_cublaslt, algorithm_check)},
    {"cublasLtMatmulAlgoConfigSetAttribute", offsetof(struct erg_cublaslt, algorithm_set)},
    {"cublasLtMatmulAlgoConfigGetAttribute", offsetof(struct erg_cublaslt, algorithm_attribute)},
    {"cublasLtMatmulDescCreate", offsetof(struct erg_cublaslt, desc_create)},
    {"cublasLtMatmulDescDestroy", offsetof(struct erg_cublaslt, desc_destroy)},
    {"cublasLtMatmulDescSetAttribute", offsetof(struct erg_cublaslt, desc_set)},
    {"cublasLtMatrixLayoutCreate", offsetof(struct erg_cublaslt, layout_create)},
    {"cublasLtMatrixLayoutDestroy", offsetof(struct erg_cublaslt, layout_destroy)},
    {"cublasLtMatmulPreferenceCreate", offsetof(struct erg_cublaslt, preference_create)},
    {"cublasLtMatmulPreferenceDestroy", offsetof(struct erg_cublaslt, preference_destroy)},
    {"cublasLtMatmulPreferenceSetAttribute", offsetof(struct erg_cublaslt, preference_set)},
};

const char *erg_gemm_kind_name(enum erg_gemm_kind kind)
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
                    erg_gemm_kind_name(shape->kind), shape->tokens, shape->inputs, shape->outputs,
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

static void free_product(const struct erg_cublaslt *library, struct erg_gemm_product *product)
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
    free(gemm->choices.items);
    gemm->library.destroy(gemm->handle);
    free(gemm);
}

/* A bias has an element for each row of cuBLASLt's result: the outputs of y'. */
static cublasStatus_t describe_bias(const struct erg_cublaslt *library, cublasLtMatmulDesc_t desc,
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
 * cuBLASLt's matrices are column-major, so ours are the transposes of cuBLASLt's, and it computes
 * the transpose of c:
 *     y' = weight x'        (outputs x tokens): weight stored as its transpose
 *     d_x' = weight' d_y'   (inputs x tokens)
 *     d_weight' = x' d_y    (inputs x outputs): d_y stored as its transpose
 * cuBLASLt calls the left factor `a` and the right one `b`.
 */
static cublasStatus_t describe(const struct erg_cublaslt *library, struct erg_gemm_product *product,
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

static cublasStatus_t ask(const struct erg_gemm *gemm, struct erg_gemm_product *product)
{
    const struct erg_cublaslt *library = &gemm->library;
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
                                product->c, preference, ERG_GEMM_ANSWERS, product->answers, &count);
    library->preference_destroy(preference);
    product->count = (size_t)count;
    return !status && count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

static bool has_small_clusters(const struct erg_cublaslt *library,
                               const cublasLtMatmulHeuristicResult_t *answer)
{
    uint16_t cluster = CUBLASLT_CLUSTER_SHAPE_AUTO;
    size_t written;
    library->algorithm_attribute(&answer->algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster,
                                 sizeof cluster, &written);
    return cluster == CUBLASLT_CLUSTER_SHAPE_AUTO || cluster == CUBLASLT_CLUSTER_SHAPE_1x1x1 ||
           cluster == CUBLASLT_CLUSTER_SHAPE_2x1x1 || cluster == CUBLASLT_CLUSTER_SHAPE_1x2x1;
}

/* Keeps the answers that fit next to a collective, in their order; all if none does. */
static void drop_large_clusters(const struct erg_cublaslt *library,
                                struct erg_gemm_product *product)
{
    size_t kept = 0;
    cublasLtMatmulHeuristicResult_t small[ERG_GEMM_ANSWERS];
    for (size_t i = 0; i < product->count; i++)
        if (has_small_clusters(library, &product->answers[i]))
            small[kept++] = product->answers[i];
    for (size_t i = 0; i < kept; i++)
        product->answers[i] = small[i];
    if (kept)
        product->count = kept;
}

/* The largest power of two up to 256 that divides the addresses of all three matrices. */
static uint32_t alignment_of(const struct erg_gemm_operands *o)
{
    uintptr_t bits = (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c | 256;
    return (uint32_t)(bits & (~bits + 1));
}

static bool same_shape(const struct erg_gemm_shape *a, const struct erg_gemm_shape *b)
{
    return a->kind == b->kind && a->tokens == b->tokens && a->inputs == b->inputs &&
           a->outputs == b->outputs;
}

const struct erg_gemm_choice *erg_gemm_chosen(const struct erg_gemm *gemm,
                                              const struct erg_gemm_shape *shape)
{
    for (size_t i = 0; i < gemm->choices.count; i++)
        if (same_shape(&gemm->choices.items[i].shape, shape))
            return &gemm->choices.items[i];
    return NULL;
}

/*
 * Makes the choice for a product's shape the best answer, if it can compute the product: as an
 * additional answer, or replacing the last one if the list is full.
 */
static void take_choice(const struct erg_gemm *gemm, struct erg_gemm_product *product,
                        const struct erg_gemm_choice *choice)
{
    cublasLtMatmulHeuristicResult_t result;
    if (product->bounded || product->alignment < ERG_GEMM_CHOICE_ALIGNMENT ||
        gemm->library.algorithm_check(gemm->handle, product->desc, product->a, product->b,
                                      product->c, product->c, &choice->algorithm, &result) ||
        result.workspaceSize > ERG_GEMM_WORKSPACE_BYTES)
        return;
    if (product->count < ERG_GEMM_ANSWERS)
        product->count++;
    product->best = product->count - 1;
    product->answers[product->best].algo = choice->algorithm;
}

void erg_gemm_adopt(struct erg_gemm *gemm, const struct erg_gemm_choice *choice)
{
    ERG_PUSH(&gemm->choices, items, *choice);
    for (size_t i = 0; i < gemm->products.count; i++)
        if (same_shape(&gemm->products.items[i]->shape, &choice->shape))
            take_choice(gemm, gemm->products.items[i], choice);
}

int erg_gemm_find(struct erg_gemm *gemm, struct erg_gemm_product **found,
                  const struct erg_gemm_shape *shape, const struct erg_gemm_operands *operands,
                  bool bounded, struct erg_error *err)
{
    const bool biased = operands->bias != NULL;
    uint32_t alignment = alignment_of(operands);
    for (size_t i = 0; i < gemm->products.count; i++) {
        struct erg_gemm_product *known = gemm->products.items[i];
        if (same_shape(&known->shape, shape) && known->bounded == bounded &&
            known->biased == biased && known->alignment == alignment) {
            *found = known;
            return 0;
        }
    }
    struct erg_gemm_product *product = erg_xcalloc(1, sizeof *product);
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
    const struct erg_gemm_choice *choice = erg_gemm_chosen(gemm, shape);
    if (choice)
        take_choice(gemm, product, choice);
    ERG_PUSH(&gemm->products, items, product);
    *found = product;
    return 0;
}

int erg_gemm_enqueue(const struct erg_gemm *gemm, const struct erg_gemm_product *product,
                     const cublasLtMatmulAlgo_t *algorithm, const struct erg_gemm_operands *o,
                     int sms, void *workspace, struct CUstream_st *stream, struct erg_error *err)
{
    const struct erg_cublaslt *library = &gemm->library;
    const bool weight_gradient = product->shape.kind == ERG_GEMM_WEIGHT_GRADIENT;
    const float one = 1, keep = weight_gradient && !o->writes ? 1 : 0;
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
                                 product->b, &keep, o->c, product->c, o->c, product->c, algorithm,
                                 workspace, ERG_GEMM_WORKSPACE_BYTES, stream);
    return check(gemm, status, &product->shape, err);
}

int erg_gemm_run(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                 const void *b, const void *bias, void *c, bool adds, int sms, void *workspace,
                 struct CUstream_st *stream, struct erg_error *err)
{
    const struct erg_gemm_operands operands = {a, b, bias, c, !adds};
    struct erg_gemm_product *product;
    if (erg_gemm_find(gemm, &product, shape, &operands, sms > 0, err))
        return -1;
    return erg_gemm_enqueue(gemm, product, &product->answers[product->best].algo, &operands, sms,
                            workspace, stream, err);
}
