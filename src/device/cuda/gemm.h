/*
 * GEMM: the three matrix products of a linear layer by cuBLASLt, in bf16 with sums in float, as
 * erg_ops_linear_forward(), …_input_gradient() and …_weight_gradient() define them (ops/ops.h).
 *
 * A product can leave SMs free for a collective that starts later: `sms` bounds the SMs that it
 * uses. For fewer SMs, cuBLASLt itself chooses kernels with large clusters of blocks, which do not
 * fit next to a collective and stall. So the algorithm always comes from the answers for all SMs
 * and runs with the bound (its result stays the same, bit for bit). For a bounded product, answers
 * with clusters of more than two blocks are skipped if there are others. Measured on one H200,
 * 16384 x 3072 x 4096: with a concurrent copy on 16 SMs it takes 1.3 times as long as alone,
 * instead of 1.4 to 1.75.
 *
 * cuBLASLt is opened at run time. One erg_gemm belongs to one thread and one GPU, and caches the
 * algorithm of each shape; enqueued products do not depend on it any more.
 */
#ifndef ERG_CUDA_GEMM_H
#define ERG_CUDA_GEMM_H

#include "device/cuda/cuda.h"
#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct erg_gemm;

enum erg_gemm_kind {
    ERG_GEMM_FORWARD,         /* a = x, b = weight: c = y */
    ERG_GEMM_INPUT_GRADIENT,  /* a = d_y, b = weight: c = d_x */
    ERG_GEMM_WEIGHT_GRADIENT, /* a = x, b = d_y: c = d_weight, float */
};

/* Rows without gaps: x [tokens, inputs], weight [outputs, inputs], y [tokens, outputs]. */
struct erg_gemm_shape {
    enum erg_gemm_kind kind;
    size_t tokens, inputs, outputs;
};

/* The scratch memory of a product; work on two streams needs two. */
enum { ERG_GEMM_WORKSPACE_BYTES = 64 << 20 };

/*
 * Opens cuBLASLt on the calling thread's GPU. ERG_NO_DEVICE without a cuBLASLt of CUDA's version.
 */
int erg_gemm_open(struct erg_gemm **gemm, struct erg_error *err);
void erg_gemm_close(struct erg_gemm *gemm);

/*
 * Enqueues a product. `bias` [outputs], for forward products only, is added before y is rounded;
 * NULL: none. `adds`: a weight gradient is added to c. `sms`: the most SMs to use; 0: all. The
 * pointers are multiples of 16 bytes, inputs and outputs of 8; any number of tokens.
 */
int erg_gemm_run(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                 const void *b, const void *bias, void *c, bool adds, int sms, void *workspace,
                 struct CUstream_st *stream, struct erg_error *err);

/* The results of tuning, milliseconds. */
struct erg_gemm_timing {
    size_t answers; /* algorithms that were timed */
    size_t best;    /* the chosen one; 0: cuBLASLt's first */
    double first_ms, best_ms;
};

/*
 * Times cuBLASLt's first answers for this shape on a hot GPU and keeps the fastest for all later
 * runs of the shape with the same boundedness (sms > 0) and bias as this call. Blocks for about a
 * second. The caller keeps any concurrent work running. c is overwritten, or added to many times.
 */
int erg_gemm_tune(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                  const void *b, const void *bias, void *c, int sms, void *workspace,
                  struct CUstream_st *stream, struct erg_gemm_timing *timing,
                  struct erg_error *err);

/*
 * Finds, once for each shape, the algorithm for its unbounded runs. It comes from a file in
 * `folder` (erg_cuda_plan_folder(); NULL: no files), so that all runs of a machine compute the same
 * bits. Otherwise it is the fastest of some hundred algorithms of cuBLASLt in the steady state of
 * this GPU, usually at its power limit; this search takes some seconds and temporarily as much GPU
 * memory as the product's matrices. Small products keep cuBLASLt's choice. A product with a bias
 * uses the algorithm of the one without.
 */
int erg_gemm_choose(struct erg_gemm *gemm, const struct erg_cuda *cuda, const char *folder,
                    const struct erg_gemm_shape *shape, struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
