/*
 * Groups of GPUs for the backend. The ranks of a group of 2, 4 or 8 GPUs of one machine access each
 * other's memory and exchange by our own kernels (collective.h), with an SM budget. Other groups
 * exchange by NCCL, which chooses its SMs.
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

/* The rendezvous outlives them. */
struct erg_cuda_groups *erg_cuda_groups_new(struct erg_rendezvous *rendezvous);
/* After erg_cuda_groups_disconnect(). NULL is fine. */
void erg_cuda_groups_free(struct erg_cuda_groups *groups);

/* Like the backend's functions of these names. All groups are freed together. */
void erg_cuda_group_new(struct erg_cuda_groups *groups, struct erg_cuda_group **group,
                        const int *ranks, size_t count);
void erg_cuda_group_window(struct erg_cuda_group *group, const void *first, size_t stride);
int erg_cuda_groups_connect(struct erg_cuda_groups *groups, void *memory, size_t bytes,
                            uint64_t layout, struct erg_error *err);
void erg_cuda_groups_disconnect(struct erg_cuda_groups *groups);
int erg_cuda_group_exchange(struct erg_cuda_groups *groups, struct erg_cuda_group *group,
                            const struct erg_exchange *exchange, struct CUstream_st *stream,
                            struct erg_error *err);

/* Waits for a stream. Fails soon after a rank dies, and ends work that waits for that rank. */
int erg_cuda_groups_wait(struct erg_cuda_groups *groups, struct CUstream_st *stream,
                         struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
