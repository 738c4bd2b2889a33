/* Collectives over peer memory: opens groups of ranks, and launches sums and copies. */
#include "device/cuda/collective.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/cuda/collective_internal.h"
#include "device/cuda/cuda_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VECTOR_BYTES = 16 };

/* ---- open and close ---- */

static int check_group(struct erg_collective *c, const struct erg_collective_options *options,
                       struct erg_error *err)
{
    c->rank = -1;
    if (c->count == 0)
        return 0;
    for (int r = 0; r < c->count; r++) {
        if (c->ranks[r] < 0 || c->ranks[r] >= c->world || (r > 0 && c->ranks[r] <= c->ranks[r - 1]))
            return erg_fail(err, ERG_FAILED,
                            "the ranks of a group must ascend and lie in a world of %d, got %d",
                            c->world, c->ranks[r]);
        if (c->ranks[r] == c->world_rank)
            c->rank = r;
    }
    if (c->rank < 0)
        return erg_fail(err, ERG_FAILED, "rank %d is not in its own group", c->world_rank);
    if (options->method == ERG_COLLECTIVE_LIBRARY)
        return 0;
    if (c->count != 2 && c->count != 4 && c->count != 8)
        return erg_fail(err, ERG_FAILED,
                        "collectives over peer memory are for 2, 4 or 8 ranks, got a group of %d",
                        c->count);
    return 0;
}

static int make_state(struct erg_collective *c, struct erg_error *err)
{
    void *state = NULL, *status = NULL;
    if (erg_cuda_alloc(&state, sizeof *c->state, err))
        return -1;
    c->state = state;
    if (erg_cuda_fill(state, 0, sizeof *c->state, NULL, err) ||
        erg_cuda_alloc_host(&status, sizeof *c->status, err))
        return -1;
    c->status = status;
    *c->status = (struct erg_collective_status){0};
    return 0;
}

static int open_peers(struct erg_collective *c, struct erg_error *err)
{
    struct erg_error why = {0};
    int failed = c->count ? erg_collective_load(c->count, &why) ||
                                erg_message_library_open(&c->messages, &why)
                          : 0;
    if (erg_collective_agree(c, failed, &why, err) ||
        erg_collective_buffer_init(&c->signals, c, ERG_SIGNAL_BYTES, err) ||
        erg_cuda_fill(c->signals.memory, 0, ERG_SIGNAL_BYTES, NULL, err) ||
        erg_cuda_stream_sync(NULL, err))
        return -1;
    /* No rank may signal before all are cleared. */
    return erg_rendezvous_barrier(c->rendezvous, ERG_COLLECTIVE_WORLD_S, err);
}

/* World call: whether ranks of this or another group of the call are on several machines. */
static int find_spread(const struct erg_collective *c, bool *spread, struct erg_error *err)
{
    typedef char machine_name[ERG_LAUNCH_MACHINE_BYTES];
    machine_name mine = {0}, *machines = erg_xcalloc((size_t)c->world, sizeof *machines);
    int *groups = erg_xcalloc((size_t)c->world, sizeof *groups), own = 0;
    erg_launch_machine(mine);
    int result = erg_rendezvous_all_gather(c->rendezvous, mine, sizeof mine, machines,
                                           ERG_COLLECTIVE_WORLD_S, err);
    for (int r = 0; r < c->count; r++)
        own |= strncmp(machines[c->ranks[r]], mine, sizeof mine) != 0;
    if (result == 0)
        result = erg_rendezvous_all_gather(c->rendezvous, &own, sizeof own, groups,
                                           ERG_COLLECTIVE_WORLD_S, err);
    *spread = false;
    for (int r = 0; r < c->world; r++)
        *spread |= groups[r];
    free(machines);
    free(groups);
    return result;
}

/* Peers map each other's memory, which machines cannot. */
static int open_instead(struct erg_collective *c, struct erg_error *err)
{
    struct erg_error why = {0};
    c->method = ERG_COLLECTIVE_LIBRARY;
    c->stands_in = true;
    if (c->world_rank == 0)
        erg_log(ERG_LOG_WARNING,
                "ranks of a group of %d are on several machines: NCCL replaces the "
                "collectives over peer memory",
                c->count);
    int failed = erg_nccl_open(&c->nccl, c->rank, c->count, &why);
    return erg_collective_agree(c, failed, &why, err) || erg_collective_prepare(c, 0, err) ? -1 : 0;
}

int erg_collective_open(struct erg_collective **collective,
                        const struct erg_collective_options *options, struct erg_error *err)
{
    struct erg_collective *c = erg_xcalloc(1, sizeof *c);
    size_t bytes = (size_t)options->rank_count * sizeof *c->ranks;
    *c = (struct erg_collective){.rendezvous = options->rendezvous,
                                 .method = options->method,
                                 .world = options->env->world,
                                 .world_rank = options->env->rank,
                                 .ranks =
                                     erg_xcalloc((size_t)options->rank_count + 1, sizeof *c->ranks),
                                 .count = options->rank_count,
                                 .timeout_ns = (uint64_t)(options->timeout_s * 1e9)};
    if (bytes)
        memcpy(c->ranks, options->ranks, bytes);
    struct erg_error why = {0};
    int failed = check_group(c, options, &why) || make_state(c, &why) ? -1 : 0;
    if (!failed && c->method == ERG_COLLECTIVE_LIBRARY)
        failed = erg_nccl_open(&c->nccl, c->rank, c->count, &why);
    int result = erg_collective_agree(c, failed, &why, err);
    if (result == 0 && c->method != ERG_COLLECTIVE_LIBRARY) {
        bool spread = false;
        result = find_spread(c, &spread, err);
        if (result == 0)
            result = spread ? open_instead(c, err) : open_peers(c, err);
    }
    if (result) {
        erg_collective_close(c);
        return erg_fail_context(err, "connecting the GPUs of %d ranks", options->rank_count);
    }
    *collective = c;
    return 0;
}

void erg_collective_close(struct erg_collective *c)
{
    if (!c)
        return;
    erg_nccl_close(c->nccl);
    if (c->signals.memory)
        erg_collective_buffer_release(&c->signals, c, NULL);
    erg_cuda_free(c->state);
    erg_cuda_free_host(c->status);
    free(c->ranks);
    free(c);
}

static int check_budget(const struct erg_collective *c, int sms, struct erg_error *err)
{
    int least = c->method == ERG_COLLECTIVE_LIBRARY ? 0 : 1;
    if (sms < least || sms > ERG_COLLECTIVE_MOST_SMS)
        return erg_fail(err, ERG_FAILED, "a collective on %d SMs, expected %d to %d", sms, least,
                        ERG_COLLECTIVE_MOST_SMS);
    return 0;
}

int erg_collective_prepare(struct erg_collective *c, int sms, struct erg_error *err)
{
    if (check_budget(c, sms, err))
        return -1;
    if (c->method != ERG_COLLECTIVE_LIBRARY || erg_nccl_prepared(c->nccl, sms))
        return 0;
    struct erg_nccl_name *names = erg_xcalloc((size_t)c->world + 1, sizeof *names);
    struct erg_nccl_name *mine = &names[c->world];
    int result = c->rank == 0 ? erg_nccl_name_new(c->nccl, mine, err) : 0;
    if (result == 0)
        result = erg_rendezvous_all_gather(c->rendezvous, mine, sizeof *mine, names,
                                           ERG_COLLECTIVE_WORLD_S, err);
    if (result == 0)
        result = erg_nccl_prepare(c->nccl, sms, &names[c->ranks[0]], err);
    free(names);
    return result;
}

/* ---- calls ---- */

static int check_room(const struct erg_collective_shards *part, size_t element_bytes, size_t shards,
                      struct erg_error *err)
{
    size_t room = part->buffer->bytes / element_bytes, skipped = (part->pieces - 1) * part->stride;
    if (part->offset <= room && skipped <= room - part->offset &&
        part->count <= (room - part->offset - skipped) / shards)
        return 0;
    return erg_fail(
        err, ERG_FAILED,
        "a collective of %zu times %zu elements from element %zu on, in %zu pieces, does "
        "not fit into a buffer of %zu elements",
        shards, part->count, part->offset, part->pieces, room);
}

static int check_pieces(const struct erg_collective_shards *part, size_t width,
                        struct erg_error *err)
{
    const struct erg_collective_rows *local = &part->local;
    if (part->pieces == 1 && !local->memory)
        return 0;
    bool vectors = part->offset % width == 0 && part->count % width == 0 &&
                   part->stride % width == 0 && part->count / width < UINT32_MAX;
    bool rows =
        !local->memory || (local->row && local->row % width == 0 && local->stride % width == 0 &&
                           part->count % local->row == 0 && part->stride % local->row == 0 &&
                           (uintptr_t)local->memory % VECTOR_BYTES == 0);
    if (vectors && rows)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "a collective of pieces of %zu elements, %zu apart, in rows of %zu: expected "
                    "multiples of 16 bytes, and of rows",
                    part->count, part->stride, local->row);
}

static void fill_work(struct erg_collective_work *work, const struct erg_collective *c,
                      enum erg_collective_operation what, const struct erg_collective_shards *part,
                      ptrdiff_t shift, size_t element_bytes)
{
    size_t width = VECTOR_BYTES / element_bytes;
    int place = part->descending ? c->count - 1 - c->rank : c->rank;
    size_t begin = part->offset + (size_t)place * part->count;
    work->share = what == ERG_ALL_REDUCE
                      ? erg_collective_own(part->offset, part->count, c->rank, c->count, width)
                      : erg_collective_split(begin, begin + part->count, width);
    work->shift = shift * (ptrdiff_t)element_bytes;
    if (what == ERG_ALL_REDUCE)
        work->next = erg_collective_own(part->offset, part->count, (c->rank + 1) % c->count,
                                        c->count, width);
    for (int r = 0; r < c->count; r++)
        work->base[r] = part->buffer->peers[r];
    work->pieces = part->pieces;
    work->stride = part->stride * element_bytes;
    work->local = (struct erg_collective_local){
        .memory = part->local.memory,
        .row_vectors = part->local.memory ? (unsigned)(part->local.row / width) : 1,
        .row_bytes = part->local.stride * element_bytes,
        .piece_bytes = part->local_rows * part->local.stride * element_bytes,
    };
}

static struct erg_collective_call call_of(const struct erg_collective *c)
{
    struct erg_collective_call kernel = {
        .rank = c->rank, .state = c->state, .status = c->status, .timeout_ns = c->timeout_ns};
    for (int r = 0; r < c->count; r++)
        kernel.signals[r] = c->signals.peers[r];
    return kernel;
}

static int call(struct erg_collective *c, enum erg_collective_operation what,
                enum erg_collective_type type, const struct erg_collective_shards *parts,
                size_t part_count, ptrdiff_t shift, int sms, struct CUstream_st *stream,
                struct erg_error *err)
{
    size_t element_bytes = type == ERG_COLLECTIVE_BF16 ? 2 : 4;
    struct erg_collective_shards checked[ERG_COLLECTIVE_MOST_PARTS];
    if (check_budget(c, sms, err))
        return -1;
    if (part_count < 1 || part_count > ERG_COLLECTIVE_MOST_PARTS)
        return erg_fail(err, ERG_FAILED, "a collective of %zu parts, expected 1 to %d", part_count,
                        ERG_COLLECTIVE_MOST_PARTS);
    for (size_t i = 0; i < part_count; i++) {
        checked[i] = parts[i];
        if (!checked[i].pieces)
            checked[i].pieces = 1;
        if (check_room(&checked[i], element_bytes, what == ERG_ALL_REDUCE ? 1 : (size_t)c->count,
                       err) ||
            check_pieces(&checked[i], VECTOR_BYTES / element_bytes, err))
            return -1;
    }
    if (c->method == ERG_COLLECTIVE_LIBRARY)
        return erg_nccl_call(c->nccl, what, type, checked, part_count, shift,
                             c->stands_in && !erg_nccl_prepared(c->nccl, sms) ? 0 : sms, stream,
                             err);
    struct erg_collective_call kernel = call_of(c);
    kernel.parts = (int)part_count;
    for (size_t i = 0; i < part_count; i++)
        fill_work(&kernel.work[i], c, what, &checked[i], shift, element_bytes);
    return erg_collective_launch(what, type, c->count, &kernel, sms, stream, err);
}

int erg_collective_all_reduce(struct erg_collective *collective, enum erg_collective_type type,
                              const struct erg_collective_part *part, int sms,
                              struct CUstream_st *stream, struct erg_error *err)
{
    struct erg_collective_shards whole = {
        .buffer = part->buffer, .offset = part->offset, .count = part->count};
    const size_t width = VECTOR_BYTES / (type == ERG_COLLECTIVE_BF16 ? 2u : 4u);
    const size_t distance = (size_t)(part->shift < 0 ? -part->shift : part->shift);
    if (distance % width || (distance && distance < part->count))
        return erg_fail(err, ERG_FAILED,
                        "a sum of %zu elements is %zu from its parts, expected a multiple of 16 "
                        "bytes beyond them",
                        part->count, distance);
    return call(collective, ERG_ALL_REDUCE, type, &whole, 1, part->shift, sms, stream, err);
}

int erg_collective_all_gather(struct erg_collective *collective, enum erg_collective_type type,
                              const struct erg_collective_shards *parts, size_t part_count, int sms,
                              struct CUstream_st *stream, struct erg_error *err)
{
    return call(collective, ERG_ALL_GATHER, type, parts, part_count, 0, sms, stream, err);
}

int erg_collective_reduce_scatter(struct erg_collective *collective, enum erg_collective_type type,
                                  const struct erg_collective_shards *parts, size_t part_count,
                                  int sms, struct CUstream_st *stream, struct erg_error *err)
{
    return call(collective, ERG_REDUCE_SCATTER, type, parts, part_count, 0, sms, stream, err);
}

/* ---- watching ---- */

int erg_collective_check(struct erg_collective *c, struct erg_error *err)
{
    volatile struct erg_collective_status *status = c->status;
    if (erg_rendezvous_check(c->rendezvous, err)) {
        status->abort = 1;
        erg_collective_end_messages(c);
        if (c->nccl)
            erg_nccl_abort(c->nccl);
        return -1;
    }
    if (!status->failed)
        return 0;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return erg_fail(err, ERG_FAILED,
                    "rank %d waited %g s on its GPU for rank %d, which did not reach collective "
                    "call %u",
                    c->world_rank, (double)c->timeout_ns * 1e-9, c->ranks[status->peer],
                    status->call);
}

int erg_collective_wait(struct erg_collective *c, struct CUstream_st *stream, struct erg_error *err)
{
    const struct timespec pause = {.tv_nsec = 50000};
    int64_t deadline_ns = INT64_MAX;
    int result = 0;
    cudaError_t status;
    while ((status = cudaStreamQuery(stream)) == cudaErrorNotReady && erg_now_ns() < deadline_ns) {
        if (result == 0 && erg_collective_check(c, err)) {
            /*
             * Kernels that wait for the missing rank now end soon; this waits for them, so that
             * their memory can be released.
             */
            ((volatile struct erg_collective_status *)c->status)->abort = 1;
            deadline_ns = erg_now_ns() + 1000000000;
            result = -1;
        }
        nanosleep(&pause, NULL);
    }
    if (result)
        return result;
    return erg_cuda_check(status, err, "waiting for the GPU") || erg_collective_check(c, err) ? -1
                                                                                              : 0;
}
