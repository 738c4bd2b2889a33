/*
 * Groups of GPUs for the backend: exchanges by NCCL, one communicator a group.
 */
#ifndef ERG_CUDA_GROUP_H
#define ERG_CUDA_GROUP_H

#include "device/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* All groups of a rank. */
struct erg_cuda_groups;
struct erg_cuda_group; /* the erg_group of the backend */

/* Opens NCCL. The rendezvous outlives it. */
int erg_cuda_groups_open(struct erg_cuda_groups **groups, struct erg_rendezvous *rendezvous,
                         struct erg_error *err);
/* Groups that are left end at once. NULL is fine. */
void erg_cuda_groups_close(struct erg_cuda_groups *groups);

/* World call, as group_new() of the backend. */
int erg_cuda_group_new(struct erg_cuda_groups *groups, struct erg_cuda_group **group,
                       const int *ranks, size_t count, struct erg_error *err);
void erg_cuda_group_free(struct erg_cuda_groups *groups, struct erg_cuda_group *group);

int erg_cuda_group_exchange(struct erg_cuda_groups *groups, struct erg_cuda_group *group,
                            const struct erg_exchange *exchange, struct CUstream_st *stream,
                            struct erg_error *err);

/* Waits for a stream; fails within moments when a rank dies, and ends what waits for it. */
int erg_cuda_groups_wait(struct erg_cuda_groups *groups, struct CUstream_st *stream,
                         struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
