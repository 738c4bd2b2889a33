#include "device/cuda/collective_internal.h"

#include "base/memory.h"
#include "device/cuda/cuda_internal.h"

/*
 * NCCL is opened when it is asked for: a program without it runs everywhere. Its header only says
 * how to call it; where that is missing at build time, so is the method.
 */
#if __has_include(<nccl.h>)

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ncclUniqueId) == sizeof(struct erg_nccl_name), "a name is NCCL's unique id");

struct erg_nccl {
    int rank, ranks;
    ncclComm_t by_sms[ERG_COLLECTIVE_MOST_SMS + 1];
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
};

static int check(const struct erg_nccl *nccl, ncclResult_t result, const char *what,
                 struct erg_error *err)
{
    if (result == ncclSuccess)
        return 0;
    return erg_fail(err, ERG_FAILED, "%s by NCCL: %s", what, nccl->error_string(result));
}

int erg_nccl_open(struct erg_nccl **nccl, int rank, int ranks, struct erg_error *err)
{
    static const struct erg_cuda_entry entries[] = {
        {"ncclGetErrorString", offsetof(struct erg_nccl, error_string)},
        {"ncclGetUniqueId", offsetof(struct erg_nccl, unique_id)},
        {"ncclCommInitRankConfig", offsetof(struct erg_nccl, init)},
        {"ncclCommDestroy", offsetof(struct erg_nccl, destroy)},
        {"ncclCommAbort", offsetof(struct erg_nccl, abort)},
        {"ncclGroupStart", offsetof(struct erg_nccl, group_start)},
        {"ncclGroupEnd", offsetof(struct erg_nccl, group_end)},
        {"ncclAllReduce", offsetof(struct erg_nccl, all_reduce)},
        {"ncclAllGather", offsetof(struct erg_nccl, all_gather)},
        {"ncclReduceScatter", offsetof(struct erg_nccl, reduce_scatter)},
    };
    struct erg_nccl *n = erg_xcalloc(1, sizeof *n);
    n->rank = rank;
    n->ranks = ranks;
    if (erg_cuda_library_open("libnccl.so.2", n, entries, sizeof entries / sizeof *entries, err)) {
        free(n);
        return -1;
    }
    *nccl = n;
    return 0;
}

static void end_all(struct erg_nccl *nccl, ncclResult_t (*end)(ncclComm_t))
{
    for (int sms = 0; sms <= ERG_COLLECTIVE_MOST_SMS; sms++) {
        if (nccl->by_sms[sms])
            end(nccl->by_sms[sms]);
        nccl->by_sms[sms] = NULL;
    }
}

void erg_nccl_close(struct erg_nccl *nccl)
{
    if (!nccl)
        return;
    end_all(nccl, nccl->destroy);
    free(nccl);
}

void erg_nccl_abort(struct erg_nccl *nccl)
{
    end_all(nccl, nccl->abort);
}

int erg_nccl_name_new(struct erg_nccl *nccl, struct erg_nccl_name *name, struct erg_error *err)
{
    ncclUniqueId id;
    if (check(nccl, nccl->unique_id(&id), "naming a communicator", err))
        return -1;
    memcpy(name, &id, sizeof id);
    return 0;
}

bool erg_nccl_prepared(const struct erg_nccl *nccl, int sms)
{
    return nccl->by_sms[sms] != NULL;
}

int erg_nccl_prepare(struct erg_nccl *nccl, int sms, const struct erg_nccl_name *name,
                     struct erg_error *err)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (sms > 0) /* else as the library likes */
        config.minCTAs = config.maxCTAs = sms;
    memcpy(&id, name, sizeof id);
    return check(nccl, nccl->init(&nccl->by_sms[sms], nccl->ranks, id, nccl->rank, &config),
                 "making a communicator", err);
}

static ncclResult_t one_part(const struct erg_nccl *nccl, enum erg_collective_operation operation,
                             ncclDataType_t type, size_t element_bytes,
                             const struct erg_collective_part *part, ncclComm_t comm,
                             cudaStream_t stream)
{
    char *all = (char *)part->buffer->memory + part->offset * element_bytes;
    char *own = all + (size_t)nccl->rank * part->count * element_bytes;
    if (operation == ERG_ALL_REDUCE)
        return nccl->all_reduce(all, all, part->count, type, ncclSum, comm, stream);
    if (operation == ERG_ALL_GATHER)
        return nccl->all_gather(own, all, part->count, type, comm, stream);
    return nccl->reduce_scatter(all, own, part->count, type, ncclSum, comm, stream);
}

int erg_nccl_call(struct erg_nccl *nccl, enum erg_collective_operation operation,
                  enum erg_collective_type type, const struct erg_collective_part *parts,
                  size_t part_count, int sms, struct CUstream_st *stream, struct erg_error *err)
{
    ncclComm_t comm = nccl->by_sms[sms];
    if (!comm)
        return erg_fail(err, ERG_FAILED,
                        "a collective by NCCL on %d SMs, for which no communicator was prepared",
                        sms);
    bool bf16 = type == ERG_COLLECTIVE_BF16;
    ncclResult_t result = nccl->group_start();
    for (size_t i = 0; i < part_count && result == ncclSuccess; i++)
        result = one_part(nccl, operation, bf16 ? ncclBfloat16 : ncclFloat32, bf16 ? 2 : 4,
                          &parts[i], comm, stream);
    ncclResult_t ended = nccl->group_end();
    return check(nccl, result == ncclSuccess ? ended : result, "a collective", err);
}

#else

int erg_nccl_open(struct erg_nccl **nccl, int rank, int ranks, struct erg_error *err)
{
    (void)nccl, (void)rank, (void)ranks;
    return erg_fail(err, ERG_NO_DEVICE, "ergon was built without the header of NCCL");
}

void erg_nccl_close(struct erg_nccl *nccl)
{
    (void)nccl;
}

void erg_nccl_abort(struct erg_nccl *nccl)
{
    (void)nccl;
}

int erg_nccl_name_new(struct erg_nccl *nccl, struct erg_nccl_name *name, struct erg_error *err)
{
    (void)name;
    return erg_nccl_open(&nccl, 0, 0, err);
}

bool erg_nccl_prepared(const struct erg_nccl *nccl, int sms)
{
    (void)nccl, (void)sms;
    return false;
}

int erg_nccl_prepare(struct erg_nccl *nccl, int sms, const struct erg_nccl_name *name,
                     struct erg_error *err)
{
    (void)sms, (void)name;
    return erg_nccl_open(&nccl, 0, 0, err);
}

int erg_nccl_call(struct erg_nccl *nccl, enum erg_collective_operation operation,
                  enum erg_collective_type type, const struct erg_collective_part *parts,
                  size_t part_count, int sms, struct CUstream_st *stream, struct erg_error *err)
{
    (void)operation, (void)type, (void)parts, (void)part_count, (void)sms, (void)stream;
    return erg_nccl_open(&nccl, 0, 0, err);
}

#endif
