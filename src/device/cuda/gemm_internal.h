/* Declarations shared by the files of gemm: cuBLASLt's functions, and a cached product. */
#ifndef ERG_CUDA_GEMM_INTERNAL_H
#define ERG_CUDA_GEMM_INTERNAL_H

#include "device/cuda/gemm.h"

#include <cublasLt.h>
#include <stdint.h>

enum {
    ERG_GEMM_ANSWERS = 16,
    /*
     * The alignment in bytes that a choice requires; all weights and activations of a stage have
     * it.
     */
    ERG_GEMM_CHOICE_ALIGNMENT = 256,
};

struct erg_cublaslt {
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetVersion) *version;
    __typeof__(cublasLtGetStatusString) *status_string;
    __typeof__(cublasLtMatmul) *matmul;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *algorithms;
    __typeof__(cublasLtMatmulAlgoInit) *algorithm_init;
    __typeof__(cublasLtMatmulAlgoCheck) *algorithm_check;
    __typeof__(cublasLtMatmulAlgoConfigGetAttribute) *algorithm_attribute;
    __typeof__(cublasLtMatmulAlgoConfigSetAttribute) *algorithm_set;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
};

/* A shape with all its descriptors for cuBLASLt. */
struct erg_gemm_product {
    struct erg_gemm_shape shape;
    bool bounded;       /* limited to fewer than all SMs */
    bool biased;        /* y is a sum with a bias */
    uint32_t alignment; /* common alignment of all three matrices, bytes, up to 256 */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t answers[ERG_GEMM_ANSWERS];
    size_t count, best;
};

/* The result of erg_gemm_choose() for a shape. */
struct erg_gemm_choice {
    struct erg_gemm_shape shape;
    cublasLtMatmulAlgo_t algorithm;
};

struct erg_gemm {
    struct erg_cublaslt library;
    cublasLtHandle_t handle;
    struct {
        struct erg_gemm_product **items;
        size_t count, capacity;
    } products;
    struct {
        struct erg_gemm_choice *items;
        size_t count, capacity;
    } choices;
    int64_t timed_ns; /* when the last timing ended */
};

/* The operands of a product. */
struct erg_gemm_operands {
    const void *a, *b, *bias;
    void *c;
    bool writes; /* writes c instead of adding a weight gradient to it */
};

const char *erg_gemm_kind_name(enum erg_gemm_kind kind);

/* The cached product, or a new one from cuBLASLt. */
int erg_gemm_find(struct erg_gemm *gemm, struct erg_gemm_product **found,
                  const struct erg_gemm_shape *shape, const struct erg_gemm_operands *operands,
                  bool bounded, struct erg_error *err);

/* NULL: nothing was chosen. */
const struct erg_gemm_choice *erg_gemm_chosen(const struct erg_gemm *gemm,
                                              const struct erg_gemm_shape *shape);

/*
 * Stores a choice, the first of its shape: all products of that shape use it, including cached
 * ones.
 */
void erg_gemm_adopt(struct erg_gemm *gemm, const struct erg_gemm_choice *choice);

int erg_gemm_enqueue(const struct erg_gemm *gemm, const struct erg_gemm_product *product,
                     const cublasLtMatmulAlgo_t *algorithm, const struct erg_gemm_operands *o,
                     int sms, void *workspace, struct CUstream_st *stream, struct erg_error *err);

/* One product with its arguments, for timing between two events. */
struct erg_gemm_trial {
    struct erg_gemm *gemm;
    struct erg_gemm_product *product;
    struct erg_gemm_operands operands;
    void *workspace;
    int sms;
    struct CUstream_st *stream;
    struct CUevent_st *start, *end;
};

int erg_gemm_trial_begin(struct erg_gemm_trial *trial, struct erg_error *err);
void erg_gemm_trial_end(struct erg_gemm_trial *trial);

/* Milliseconds of one product by an algorithm, after `lead` untimed ones; blocks. */
int erg_gemm_trial_time(const struct erg_gemm_trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                        int lead, int repeats, double *ms, struct erg_error *err);

/*
 * Runs the first answer until the GPU is hot, unless a timing has just ended; gives its
 * milliseconds.
 */
int erg_gemm_trial_heat(const struct erg_gemm_trial *trial, double *once, struct erg_error *err);

#endif
