/*
 * One GPU as a backend (device/backend.h): kernels of device/cuda in bf16, products by cuBLASLt,
 * attention by cuDNN, exchanges by NCCL.
 */
#ifndef ERG_CUDA_BACKEND_H
#define ERG_CUDA_BACKEND_H

#include "device/backend.h"

/*
 * A backend on a GPU by CUDA's number, with the ranks of a rendezvous (NULL: none). Deterministic:
 * attention's gradients are summed in one order, which needs a workspace of the size of all scores.
 * ERG_NO_DEVICE if there is no GPU or a library is missing.
 */
int erg_cuda_backend_open(struct erg_backend **backend, int gpu, bool deterministic,
                          struct erg_rendezvous *rendezvous, struct erg_error *err);

#endif
