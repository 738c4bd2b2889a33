/* Opens NCCL. */
#include "device/cuda/nccl_library.h"

#include "device/cuda/cuda_internal.h"

int erg_nccl_library_open(struct erg_nccl_library *library, struct erg_error *err)
{
    static const struct erg_cuda_entry entries[] = {
        {"ncclGetErrorString", offsetof(struct erg_nccl_library, error_string)},
        {"ncclGetUniqueId", offsetof(struct erg_nccl_library, unique_id)},
        {"ncclCommInitRankConfig", offsetof(struct erg_nccl_library, init)},
        {"ncclCommDestroy", offsetof(struct erg_nccl_library, destroy)},
        {"ncclCommAbort", offsetof(struct erg_nccl_library, abort)},
        {"ncclGroupStart", offsetof(struct erg_nccl_library, group_start)},
        {"ncclGroupEnd", offsetof(struct erg_nccl_library, group_end)},
        {"ncclAllReduce", offsetof(struct erg_nccl_library, all_reduce)},
        {"ncclAllGather", offsetof(struct erg_nccl_library, all_gather)},
        {"ncclReduceScatter", offsetof(struct erg_nccl_library, reduce_scatter)},
        {"ncclSend", offsetof(struct erg_nccl_library, send)},
        {"ncclRecv", offsetof(struct erg_nccl_library, receive)},
    };
    return erg_cuda_library_open("libnccl.so.2", library, entries, sizeof entries / sizeof *entries,
                                 err);
}

int erg_nccl_check(const struct erg_nccl_library *library, ncclResult_t result, const char *what,
                   struct erg_error *err)
{
    if (result == ncclSuccess)
        return 0;
    return erg_fail(err, ERG_FAILED, "%s by NCCL: %s", what, library->error_string(result));
}
