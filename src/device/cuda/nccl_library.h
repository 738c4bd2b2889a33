/*
 * NCCL, opened at run time: the functions that collectives and groups of ranks call. Private to
 * device/cuda.
 */
#ifndef ERG_CUDA_NCCL_LIBRARY_H
#define ERG_CUDA_NCCL_LIBRARY_H

#include "ergon/error.h"

#include <nccl.h>

struct erg_nccl_library {
    const char *(*error_string)(ncclResult_t);
    ncclResult_t (*unique_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*destroy)(ncclComm_t);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t);
    ncclResult_t (*all_gather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                               cudaStream_t);
    ncclResult_t (*reduce_scatter)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                   ncclComm_t, cudaStream_t);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
};

/* ERG_NO_DEVICE if it is missing. */
int erg_nccl_library_open(struct erg_nccl_library *library, struct erg_error *err);

/* 0 on success; otherwise fails with "<what> by NCCL: <its message>". */
int erg_nccl_check(const struct erg_nccl_library *library, ncclResult_t result, const char *what,
                   struct erg_error *err);

#endif
