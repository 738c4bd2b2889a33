/*
 * One GPU as a backend (device/backend.h): kernels of device/cuda in bf16, products by cuBLASLt,
 * attention by cuDNN, exchanges by NCCL.
 */
#ifndef ERG_CUDA_BACKEND_H
#define ERG_CUDA_BACKEND_H

#include "device/backend.h"

/* On a GPU as CUDA counts them; with the ranks of a rendezvous, unless that is NULL. ERG_NO_DEVICE
 * where there is no GPU, or a library is missing. */
int erg_cuda_backend_open(struct erg_backend **backend, int gpu, struct erg_rendezvous *rendezvous,
                          struct erg_error *err);

#endif
