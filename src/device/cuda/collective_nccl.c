/* Collectives by NCCL, which is opened on demand: one communicator per SM budget. */
#include "device/cuda/collective_internal.h"

#include "base/memory.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/nccl_library.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ncclUniqueId) * ERG_NCCL_ORDERS == sizeof(struct erg_nccl_name),
               "a name is NCCL's unique ids");

struct erg_nccl {
    int rank, ranks;
    ncclComm_t by_sms[ERG_COLLECTIVE_MOST_SMS + 1][ERG_NCCL_ORDERS];
    struct erg_nccl_library library;
};

int erg_nccl_open(struct erg_nccl **nccl, int rank, int ranks, struct erg_error *err)
{
    struct erg_nccl *n = erg_xcalloc(1, sizeof *n);
    n->rank = rank;
    n->ranks = ranks;
    if (erg_nccl_library_open(&n->library, err)) {
        free(n);
        return -1;
    }
    *nccl = n;
    return 0;
}

static void end_all(struct erg_nccl *nccl, ncclResult_t (*end)(ncclComm_t))
{
    for (int sms = 0; sms <= ERG_COLLECTIVE_MOST_SMS; sms++)
        for (int order = 0; order < ERG_NCCL_ORDERS; order++) {
            if (nccl->by_sms[sms][order])
                end(nccl->by_sms[sms][order]);
            nccl->by_sms[sms][order] = NULL;
        }
}

void erg_nccl_close(struct erg_nccl *nccl)
{
    if (!nccl)
        return;
    end_all(nccl, nccl->library.destroy);
    free(nccl);
}

void erg_nccl_abort(struct erg_nccl *nccl)
{
    end_all(nccl, nccl->library.abort);
}

int erg_nccl_name_new(struct erg_nccl *nccl, struct erg_nccl_name *name, struct erg_error *err)
{
    for (int order = 0; order < ERG_NCCL_ORDERS; order++) {
        ncclUniqueId id;
        if (erg_nccl_check(&nccl->library, nccl->library.unique_id(&id), "naming a communicator",
                           err))
            return -1;
        memcpy(name->bytes[order], &id, sizeof id);
    }
    return 0;
}

bool erg_nccl_prepared(const struct erg_nccl *nccl, int sms)
{
    return nccl->by_sms[sms][ERG_NCCL_ASCENDING] != NULL;
}

int erg_nccl_prepare(struct erg_nccl *nccl, int sms, const struct erg_nccl_name *name,
                     struct erg_error *err)
{
    for (int order = 0; order < ERG_NCCL_ORDERS; order++) {
        ncclUniqueId id;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        int rank = order == ERG_NCCL_DESCENDING ? nccl->ranks - 1 - nccl->rank : nccl->rank;
        if (sms > 0) /* otherwise the library decides */
            config.minCTAs = config.maxCTAs = sms;
        memcpy(&id, name->bytes[order], sizeof id);
        if (erg_nccl_check(
                &nccl->library,
                nccl->library.init(&nccl->by_sms[sms][order], nccl->ranks, id, rank, &config),
                "making a communicator", err))
            return -1;
    }
    return 0;
}

/* The address of this rank's shard of the first piece. */
static char *own_shard(const struct erg_nccl *nccl, const struct erg_collective_shards *part,
                       size_t element_bytes)
{
    int place = part->descending ? nccl->ranks - 1 - nccl->rank : nccl->rank;
    return (char *)part->buffer->memory +
           (part->offset + (size_t)place * part->count) * element_bytes;
}

/* Copies between the rows of `local` and the shard's place in the buffer, for all pieces. */
static int copy_local(const struct erg_nccl *nccl, const struct erg_collective_shards *part,
                      size_t element_bytes, bool to_buffer, cudaStream_t stream,
                      struct erg_error *err)
{
    size_t row = part->local.row;
    if (!part->local.memory)
        return 0;
    struct cudaPitchedPtr local = {part->local.memory, part->local.stride * element_bytes,
                                   row * element_bytes, part->local_rows};
    struct cudaPitchedPtr buffer = {own_shard(nccl, part, element_bytes), row * element_bytes,
                                    row * element_bytes, part->stride / row};
    struct cudaMemcpy3DParms copy = {
        .srcPtr = to_buffer ? local : buffer,
        .dstPtr = to_buffer ? buffer : local,
        .extent = {row * element_bytes, part->count / row, part->pieces},
        .kind = cudaMemcpyDeviceToDevice,
    };
    return erg_cuda_check(cudaMemcpy3DAsync(&copy, stream), err, "copying a shard of %zu elements",
                          part->count * part->pieces);
}

static ncclResult_t one_piece(const struct erg_nccl *nccl, enum erg_collective_operation operation,
                              bool bf16, const struct erg_collective_shards *part, size_t piece,
                              ptrdiff_t shift, ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = bf16 ? 2 : 4, at = piece * part->stride * bytes;
    ncclDataType_t type = bf16 ? ncclBfloat16 : ncclFloat32;
    char *all = (char *)part->buffer->memory + part->offset * bytes + at;
    char *own = own_shard(nccl, part, bytes) + at;
    if (operation == ERG_ALL_REDUCE)
        return nccl->library.all_reduce(all, all + shift * (ptrdiff_t)bytes, part->count, type,
                                        ncclSum, comm, stream);
    if (operation == ERG_ALL_GATHER)
        return nccl->library.all_gather(own, all, part->count, type, comm, stream);
    return nccl->library.reduce_scatter(all, own, part->count, type, ncclSum, comm, stream);
}

/* Runs the parts with one order of ranks, fused. */
static int one_order(const struct erg_nccl *nccl, enum erg_collective_operation operation,
                     bool bf16, const struct erg_collective_shards *parts, size_t part_count,
                     ptrdiff_t shift, int order, ncclComm_t comm, cudaStream_t stream,
                     struct erg_error *err)
{
    ncclResult_t result = nccl->library.group_start();
    for (size_t i = 0; i < part_count; i++)
        for (size_t piece = 0; piece < parts[i].pieces && result == ncclSuccess; piece++)
            if (parts[i].descending == (order == ERG_NCCL_DESCENDING))
                result = one_piece(nccl, operation, bf16, &parts[i], piece, shift, comm, stream);
    ncclResult_t ended = nccl->library.group_end();
    return erg_nccl_check(&nccl->library, result == ncclSuccess ? ended : result, "a collective",
                          err);
}

int erg_nccl_call(struct erg_nccl *nccl, enum erg_collective_operation operation,
                  enum erg_collective_type type, const struct erg_collective_shards *parts,
                  size_t part_count, ptrdiff_t shift, int sms, struct CUstream_st *stream,
                  struct erg_error *err)
{
    if (!erg_nccl_prepared(nccl, sms))
        return erg_fail(err, ERG_FAILED,
                        "a collective by NCCL on %d SMs, for which no communicator was prepared",
                        sms);
    bool bf16 = type == ERG_COLLECTIVE_BF16;
    size_t bytes = bf16 ? 2 : 4;
    for (size_t i = 0; i < part_count && operation == ERG_ALL_GATHER; i++)
        if (copy_local(nccl, &parts[i], bytes, true, stream, err))
            return -1;
    for (int order = 0; order < ERG_NCCL_ORDERS; order++)
        if (one_order(nccl, operation, bf16, parts, part_count, shift, order,
                      nccl->by_sms[sms][order], stream, err))
            return -1;
    for (size_t i = 0; i < part_count && operation == ERG_REDUCE_SCATTER; i++)
        if (copy_local(nccl, &parts[i], bytes, false, stream, err))
            return -1;
    return 0;
}
