/* Exchanges between the GPUs of ranks, by NCCL. */
#define _DEFAULT_SOURCE /* setenv */

#include "device/cuda/cuda_group.h"

#include "base/clock.h"
#include "base/memory.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/nccl_library.h"

#include <stdlib.h>
#include <string.h>

struct erg_cuda_group {
    ncclComm_t comm;
    int place;
    struct erg_cuda_group *next; /* of all */
};

struct erg_cuda_groups {
    struct erg_rendezvous *rendezvous;
    struct erg_cuda_group *first;
    struct erg_nccl_library nccl;
};

int erg_cuda_groups_open(struct erg_cuda_groups **out, struct erg_rendezvous *rendezvous,
                         struct erg_error *err)
{
    struct erg_cuda_groups *groups = erg_xcalloc(1, sizeof *groups);
    /* Connections are made with their communicator: a first call that waits for its peer to make
     * them would let stages wait for each other. */
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    groups->rendezvous = rendezvous;
    if (erg_nccl_library_open(&groups->nccl, err)) {
        free(groups);
        return -1;
    }
    *out = groups;
    return 0;
}

void erg_cuda_groups_close(struct erg_cuda_groups *groups)
{
    if (!groups)
        return;
    while (groups->first) {
        struct erg_cuda_group *group = groups->first;
        groups->first = group->next;
        if (group->comm)
            groups->nccl.abort(group->comm);
        free(group);
    }
    free(groups);
}

/* The rank that names a group is its first one. */
static int exchange_names(struct erg_cuda_groups *groups, bool names, ncclUniqueId *all,
                          struct erg_error *err)
{
    ncclUniqueId own = {{0}};
    int result = names ? erg_nccl_check(&groups->nccl, groups->nccl.unique_id(&own),
                                        "naming a communicator", err)
                       : 0;
    if (erg_rendezvous_agree(groups->rendezvous, result, err) != 0)
        return -1;
    return erg_rendezvous_all_gather(groups->rendezvous, &own, sizeof own, all,
                                     ERG_RENDEZVOUS_PATIENCE_S, err);
}

/* Messages between two ranks connect when the first one is sent: both send one now. */
static int connect_pair(struct erg_cuda_groups *groups, const struct erg_cuda_group *group,
                        struct erg_error *err)
{
    enum { BYTES = 256 };
    char *memory = NULL;
    struct CUstream_st *stream = NULL;
    int result = erg_cuda_alloc((void **)&memory, 2 * BYTES, err) ||
                         erg_cuda_stream_new(&stream, false, err) ||
                         erg_cuda_fill(memory, 0, 2 * BYTES, stream, err)
                     ? -1
                     : 0;
    if (result == 0) {
        ncclResult_t status = groups->nccl.group_start();
        if (status == ncclSuccess)
            status = groups->nccl.send(memory, BYTES, ncclChar, !group->place, group->comm, stream);
        if (status == ncclSuccess)
            status = groups->nccl.receive(memory + BYTES, BYTES, ncclChar, !group->place,
                                          group->comm, stream);
        ncclResult_t ended = groups->nccl.group_end();
        result = erg_nccl_check(&groups->nccl, status == ncclSuccess ? ended : status,
                                "connecting two ranks", err);
    }
    if (result == 0)
        result = erg_cuda_groups_wait(groups, stream, err);
    if (stream)
        erg_cuda_stream_free(stream);
    erg_cuda_free(memory);
    return result;
}

int erg_cuda_group_new(struct erg_cuda_groups *groups, struct erg_cuda_group **out,
                       const int *ranks, size_t count, struct erg_error *err)
{
    int rank = erg_rendezvous_rank(groups->rendezvous);
    ncclUniqueId *names =
        erg_xcalloc((size_t)erg_rendezvous_world(groups->rendezvous), sizeof *names);
    int result = exchange_names(groups, count && ranks[0] == rank, names, err);
    *out = NULL;
    if (result == 0 && count) {
        struct erg_cuda_group *group = erg_xcalloc(1, sizeof *group);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        while (ranks[group->place] != rank)
            group->place++;
        result = erg_nccl_check(
            &groups->nccl,
            groups->nccl.init(&group->comm, (int)count, names[ranks[0]], group->place, &config),
            "making a communicator", err);
        group->next = groups->first;
        groups->first = *out = group;
        if (result == 0 && count == 2)
            result = connect_pair(groups, group, err);
    }
    free(names);
    if (result != 0) /* others may be waiting for this rank inside NCCL */
        erg_rendezvous_abort(groups->rendezvous, err->message);
    return erg_rendezvous_agree(groups->rendezvous, result, err);
}

void erg_cuda_group_free(struct erg_cuda_groups *groups, struct erg_cuda_group *group)
{
    struct erg_cuda_group **at = &groups->first;
    while (*at != group)
        at = &(*at)->next;
    *at = group->next;
    /* After a failure others may be waited for that do not come any more. */
    bool failed = erg_rendezvous_check(groups->rendezvous, NULL) != 0;
    if (group->comm)
        (failed ? groups->nccl.abort : groups->nccl.destroy)(group->comm);
    free(group);
}

int erg_cuda_group_exchange(struct erg_cuda_groups *groups, struct erg_cuda_group *group,
                            const struct erg_exchange *e, struct CUstream_st *stream,
                            struct erg_error *err)
{
    ncclDataType_t type = e->floats ? ncclFloat32 : ncclBfloat16;
    switch (e->kind) {
    case ERG_EXCHANGE_ALL_REDUCE:
        return erg_nccl_check(
            &groups->nccl,
            groups->nccl.all_reduce(e->from, e->to, e->count, type, ncclSum, group->comm, stream),
            "a sum over ranks", err);
    case ERG_EXCHANGE_REDUCE_SCATTER:
        return erg_nccl_check(&groups->nccl,
                              groups->nccl.reduce_scatter(e->from, e->to, e->count, type, ncclSum,
                                                          group->comm, stream),
                              "a sum over ranks", err);
    case ERG_EXCHANGE_ALL_GATHER:
        return erg_nccl_check(
            &groups->nccl,
            groups->nccl.all_gather(e->from, e->to, e->count, type, group->comm, stream),
            "gathering from ranks", err);
    case ERG_EXCHANGE_SEND:
        return erg_nccl_check(
            &groups->nccl,
            groups->nccl.send(e->from, e->count, type, !group->place, group->comm, stream),
            "sending to a rank", err);
    default:
        return erg_nccl_check(
            &groups->nccl,
            groups->nccl.receive(e->to, e->count, type, !group->place, group->comm, stream),
            "receiving from a rank", err);
    }
}

static void abort_all(struct erg_cuda_groups *groups)
{
    for (struct erg_cuda_group *group = groups->first; group; group = group->next) {
        if (group->comm)
            groups->nccl.abort(group->comm);
        group->comm = NULL;
    }
}

int erg_cuda_groups_wait(struct erg_cuda_groups *groups, struct CUstream_st *stream,
                         struct erg_error *err)
{
    enum { CHECK_NS = 50000000, PAUSE_NS = 20000 };
    int64_t next_ns = erg_now_ns() + CHECK_NS;
    cudaError_t status;
    while ((status = cudaStreamQuery(stream)) == cudaErrorNotReady) {
        erg_sleep_ns(PAUSE_NS);
        if (erg_now_ns() < next_ns)
            continue;
        if (erg_rendezvous_check(groups->rendezvous, err) != 0) {
            abort_all(groups); /* kernels that wait for the missing rank end */
            return -1;
        }
        next_ns = erg_now_ns() + CHECK_NS;
    }
    return erg_cuda_check(status, err, "waiting for the GPU");
}
