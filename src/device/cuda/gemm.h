/*
 * GEMM: the three matrix products of a linear layer by cuBLASLt, in bf16 with sums in float, as
 * erg_ops_linear_forward(), …_input_gradient() and …_weight_gradient() define them (ops/ops.h).
 *
 * A product can leave SMs free for a collective that starts later: `sms` bounds the SMs it takes.
 * cuBLASLt's own choice for fewer SMs are kernels with large clusters of blocks, which do not fit
 * next to a collective and stall. So the algorithm always comes from the answers for all SMs, and
 * runs with the bound (its result stays the same, bit for bit); for a bounded product answers with
 * clusters of more than two blocks are skipped where there are others. Measured on one H200, 16384
 * x 3072 x 4096: with a concurrent copy on 16 SMs 1.3 times the time alone, instead of 1.4 to 1.75.
 *
 * cuBLASLt is opened at run time. One erg_gemm belongs to one thread and one GPU, and remembers the
 * algorithm of each shape; the products it enqueues do not depend on it any more.
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

/* For the calling thread's GPU. ERG_NO_DEVICE without a cuBLASLt of CUDA's version. */
int erg_gemm_open(struct erg_gemm **gemm, struct erg_error *err);
void erg_gemm_close(struct erg_gemm *gemm);

/*
 * Enqueues a product. `bias` [outputs], of a forward product alone, is added before y is rounded;
 * NULL: none. `adds`: a weight gradient is added to c. `sms`: the most SMs it takes, 0 for all. The
 * pointers are multiples of 16 bytes, inputs and outputs of 8; any number of tokens.
 */
int erg_gemm_run(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                 const void *b, const void *bias, void *c, bool adds, int sms, void *workspace,
                 struct CUstream_st *stream, struct erg_error *err);

/* The results of tuning, milliseconds. */
struct erg_gemm_timing {
    size_t answers; /* algorithms that were timed */
    size_t best;    /* the one chosen, 0 = cuBLASLt's first */
    double first_ms, best_ms;
};

/*
 * Times cuBLASLt's first answers for this shape on a hot GPU and keeps the fastest for all later
 * runs of the shape that are bounded (sms > 0) and have a bias as in this call; takes about a
 * second and blocks. The caller keeps any concurrent work running. c is overwritten, or added to
 * many times.
 */
int erg_gemm_tune(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                  const void *b, const void *bias, void *c, int sms, void *workspace,
                  struct CUstream_st *stream, struct erg_gemm_timing *timing,
                  struct erg_error *err);

/*
 * Finds, once for each shape, the algorithm that it runs with from now on where it is not bounded:
 * that of the file in `folder` (erg_cuda_plan_folder(); NULL: none is kept), so that all runs of a
 * machine compute the same bits, else the fastest in the steady state of this GPU, which is mostly
 * that of its power limit, of some hundred that cuBLASLt has. Takes some seconds then, and as much
 * GPU memory as the product's matrices, and leaves nothing; small products stay as they are. One
 * with a bias runs as the same without.
 */
int erg_gemm_choose(struct erg_gemm *gemm, const struct erg_cuda *cuda, const char *folder,
                    const struct erg_gemm_shape *shape, struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
