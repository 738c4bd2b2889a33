/*
 * One GPU as a backend (device/backend.h): kernels of device/cuda in bf16, products by cuBLASLt,
 * attention by cuDNN.
 */
#ifndef ERG_CUDA_BACKEND_H
#define ERG_CUDA_BACKEND_H

#include "device/backend.h"

/* On a GPU as CUDA counts them. ERG_NO_DEVICE where there is none, or a library is missing. */
int erg_cuda_backend_open(struct erg_backend **backend, int gpu, struct erg_error *err);

#endif
