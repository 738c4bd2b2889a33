/* Exchanges between the GPUs of ranks, over peers' memory or by NCCL. */
#define _DEFAULT_SOURCE /* setenv */

#include "device/cuda/cuda_group.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/cuda/collective.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/nccl_library.h"

#include <stdlib.h>
#include <string.h>

/* SMs of an exchange without a budget: enough to saturate NVLink. */
enum { EXCHANGE_SMS = 16 };

/*
 * The range of a group's exchanges in a rank's memory, and the distance of its two message buffers.
 */
struct exchange_window {
    uint64_t begin, stride; /* bytes */
};

/*
 * There is one for each call that makes groups, even if this rank is in none, because connecting
 * them is a world call.
 */
struct erg_cuda_group {
    int *ranks; /* [count], ascending */
    int count, place;
    const char *first; /* start of its window; NULL: offsets count from the start of the memory */
    size_t stride;
    bool alike; /* the ranks' memory or windows have the same layout */
    struct erg_collective *peers;
    struct erg_collective_buffer memory, view; /* the mapped memory; the part from the windows on */
    struct exchange_window window, peer_window; /* for groups of two ranks */
    uint64_t sent, received;                    /* messages */
    ncclComm_t comm;
    struct erg_cuda_group *next;
};

struct erg_cuda_groups {
    struct erg_rendezvous *rendezvous;
    struct erg_cuda_group *first, **last; /* in order of creation */
    char *memory;
    size_t bytes;
    struct erg_nccl_library nccl;
    bool has_nccl;
};

struct erg_cuda_groups *erg_cuda_groups_new(struct erg_rendezvous *rendezvous)
{
    struct erg_cuda_groups *groups = erg_xcalloc(1, sizeof *groups);
    groups->rendezvous = rendezvous;
    groups->last = &groups->first;
    return groups;
}

void erg_cuda_groups_free(struct erg_cuda_groups *groups)
{
    if (!groups)
        return;
    while (groups->first) {
        struct erg_cuda_group *group = groups->first;
        groups->first = group->next;
        free(group->ranks);
        free(group);
    }
    free(groups);
}

void erg_cuda_group_new(struct erg_cuda_groups *groups, struct erg_cuda_group **out,
                        const int *ranks, size_t count)
{
    struct erg_cuda_group *group = erg_xcalloc(1, sizeof *group);
    group->ranks = erg_xcalloc(count + 1, sizeof *group->ranks);
    group->count = (int)count;
    for (int i = 0; i < group->count; i++) {
        group->ranks[i] = ranks[i];
        if (ranks[i] == erg_rendezvous_rank(groups->rendezvous))
            group->place = i;
    }
    *groups->last = group;
    groups->last = &group->next;
    *out = count ? group : NULL;
}

void erg_cuda_group_window(struct erg_cuda_group *group, const void *first, size_t stride)
{
    group->first = first;
    group->stride = stride;
}

/* ---- over peers' memory ---- */

/* The data that each rank sends about its memory. */
struct memory_place {
    char machine[ERG_LAUNCH_MACHINE_BYTES];
    uint64_t layout;
};

/* The data that each rank sends about one of its groups. */
struct group_place {
    int reaches; /* whether it can use peers' memory */
    struct exchange_window window;
};

static bool reaches_all(struct erg_cuda_group *group, const struct memory_place *places)
{
    const struct memory_place *first = &places[group->ranks[0]];
    group->alike = group->first != NULL;
    if (group->count == 0)
        return true;
    bool one_machine = true, one_layout = true;
    for (int i = 0; i < group->count; i++) {
        const struct memory_place *place = &places[group->ranks[i]];
        one_machine &= strncmp(place->machine, first->machine, sizeof first->machine) == 0;
        one_layout &= place->layout == first->layout;
    }
    group->alike |= one_layout;
    /* Two ranks with different layouts send each other messages. */
    return one_machine && (group->count == 2 || group->count == 4 || group->count == 8) &&
           (group->alike || group->count == 2);
}

static void close_peers(struct erg_cuda_group *group)
{
    if (!group->peers)
        return;
    struct erg_error ignored;
    if (group->memory.memory)
        (void)erg_collective_buffer_release(&group->memory, group->peers, &ignored);
    erg_collective_close(group->peers);
    group->peers = NULL;
}

/* World call. */
static int open_peers(struct erg_cuda_groups *groups, struct erg_cuda_group *group,
                      const struct group_place *places, struct erg_error *err)
{
    const double never_s = 1e9; /* the host ends work that waits for a rank that has died */
    const struct erg_launch_environment env = {
        .rank = erg_rendezvous_rank(groups->rendezvous),
        .world = erg_rendezvous_world(groups->rendezvous),
    };
    const struct erg_collective_options options = {.env = &env,
                                                   .rendezvous = groups->rendezvous,
                                                   .ranks = group->ranks,
                                                   .rank_count = group->count,
                                                   .method = ERG_COLLECTIVE_PEER,
                                                   .timeout_s = never_s};
    if (erg_collective_open(&group->peers, &options, err) != 0) {
        group->peers = NULL;
        return -1;
    }
    if (erg_collective_buffer_adopt(&group->memory, group->peers, groups->memory, groups->bytes,
                                    err) != 0) {
        close_peers(group);
        return -1;
    }
    group->view = group->memory;
    for (int i = 0; i < group->count; i++)
        group->view.peers[i] =
            (char *)group->memory.peers[i] + places[group->ranks[i]].window.begin;
    if (group->count) {
        group->window = places[group->ranks[group->place]].window;
        group->view.memory = groups->memory + group->window.begin;
        group->view.bytes -= group->window.begin;
    }
    if (group->count == 2)
        group->peer_window = places[group->ranks[!group->place]].window;
    return 0;
}

static struct erg_collective_shards shards_of(const struct erg_cuda_group *group, const void *all,
                                              size_t count, size_t element, const void *own)
{
    struct erg_collective_shards shards = {
        .buffer = &group->view,
        .offset = (size_t)((const char *)all - (const char *)group->view.memory) / element,
        .count = count,
    };
    if ((const char *)all + (size_t)group->place * count * element != own) {
        shards.local = (struct erg_collective_rows){(void *)(uintptr_t)own, count, count};
        shards.local_rows = 1;
    }
    return shards;
}

/* Messages alternate between the two buffers of the sender's window. */
static int send_message(struct erg_cuda_group *group, const void *from, struct CUstream_st *stream,
                        struct erg_error *err)
{
    const char *expected = (char *)group->view.memory + group->sent % 2 * group->window.stride;
    if (from != expected)
        return erg_fail(err, ERG_FAILED,
                        "message %llu is at %p, expected %p, since two buffers alternate",
                        (unsigned long long)group->sent, from, (const void *)expected);
    group->sent++;
    return erg_collective_send(group->peers, stream, err);
}

static int receive_message(struct erg_cuda_group *group, void *to, size_t bytes,
                           struct CUstream_st *stream, struct erg_error *err)
{
    const char *from = (const char *)group->view.peers[!group->place] +
                       group->received % 2 * group->peer_window.stride;
    group->received++;
    return erg_collective_receive(group->peers, from, to, bytes, stream, err);
}

static int exchange_by_peers(struct erg_cuda_group *group, const struct erg_exchange *e,
                             struct CUstream_st *stream, struct erg_error *err)
{
    const enum erg_collective_type type = e->floats ? ERG_COLLECTIVE_FLOAT : ERG_COLLECTIVE_BF16;
    const size_t element = e->floats ? 4 : 2;
    const int sms = e->sms ? e->sms : EXCHANGE_SMS;
    const char *from = e->from, *to = e->to, *first = group->view.memory;
    struct erg_collective_shards shards;
    struct erg_collective_part part;
    if (!group->alike && e->kind != ERG_EXCHANGE_SEND && e->kind != ERG_EXCHANGE_RECEIVE)
        return erg_fail(err, ERG_FAILED,
                        "an exchange of ranks with different memory layouts; expected a message");
    switch (e->kind) {
    case ERG_EXCHANGE_ALL_REDUCE:
        part = (struct erg_collective_part){&group->view, (size_t)(from - first) / element,
                                            e->count, (to - from) / (ptrdiff_t)element};
        return erg_collective_all_reduce(group->peers, type, &part, sms, stream, err);
    case ERG_EXCHANGE_REDUCE_SCATTER:
        shards = shards_of(group, from, e->count, element, to);
        return erg_collective_reduce_scatter(group->peers, type, &shards, 1, sms, stream, err);
    case ERG_EXCHANGE_ALL_GATHER:
        shards = shards_of(group, to, e->count, element, from);
        return erg_collective_all_gather(group->peers, type, &shards, 1, sms, stream, err);
    case ERG_EXCHANGE_SEND:
        return send_message(group, e->from, stream, err);
    default:
        return receive_message(group, e->to, e->count * element, stream, err);
    }
}

/* ---- by NCCL ---- */

static int open_library(struct erg_cuda_groups *groups, struct erg_error *err)
{
    /*
     * Connections are made with their communicator: if the first call made them, stages could wait
     * for each other.
     */
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    if (!groups->has_nccl && erg_nccl_library_open(&groups->nccl, err) != 0)
        return -1;
    groups->has_nccl = true;
    return 0;
}

/* World call. The first rank of a group names it. */
static int exchange_names(struct erg_cuda_groups *groups, const struct erg_cuda_group *group,
                          ncclUniqueId *all, struct erg_error *err)
{
    ncclUniqueId own = {{0}};
    int result = open_library(groups, err);
    if (result == 0 && group->count && group->place == 0)
        result = erg_nccl_check(&groups->nccl, groups->nccl.unique_id(&own),
                                "naming a communicator", err);
    if (erg_rendezvous_agree(groups->rendezvous, result, err) != 0)
        return -1;
    return erg_rendezvous_all_gather(groups->rendezvous, &own, sizeof own, all,
                                     ERG_RENDEZVOUS_PATIENCE_S, err);
}

/* NCCL connects two ranks when the first message is sent, so both send one now. */
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

/* World call. */
static int open_communicator(struct erg_cuda_groups *groups, struct erg_cuda_group *group,
                             struct erg_error *err)
{
    ncclUniqueId *names =
        erg_xcalloc((size_t)erg_rendezvous_world(groups->rendezvous), sizeof *names);
    int result = exchange_names(groups, group, names, err);
    if (result == 0 && group->count) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        result = erg_nccl_check(&groups->nccl,
                                groups->nccl.init(&group->comm, group->count,
                                                  names[group->ranks[0]], group->place, &config),
                                "making a communicator", err);
        if (result == 0 && group->count == 2)
            result = connect_pair(groups, group, err);
    }
    free(names);
    if (result != 0) /* others may be waiting for this rank inside NCCL */
        erg_rendezvous_abort(groups->rendezvous, err->message);
    return erg_rendezvous_agree(groups->rendezvous, result, err);
}

static int exchange_by_nccl(struct erg_cuda_groups *groups, const struct erg_cuda_group *group,
                            const struct erg_exchange *e, struct CUstream_st *stream,
                            struct erg_error *err)
{
    const ncclDataType_t type = e->floats ? ncclFloat32 : ncclBfloat16;
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

/* ---- both ---- */

/*
 * World call. If peers' memory cannot be accessed, as between GPUs without a link, NCCL has other
 * ways.
 */
static int connect_group(struct erg_cuda_groups *groups, struct erg_cuda_group *group,
                         const struct memory_place *memories, struct erg_error *err)
{
    const int world = erg_rendezvous_world(groups->rendezvous);
    const struct group_place own = {
        .reaches = reaches_all(group, memories),
        .window = {group->first ? (uint64_t)(group->first - groups->memory) : 0, group->stride},
    };
    struct group_place *places = erg_xcalloc((size_t)world, sizeof *places);
    int result = erg_rendezvous_all_gather(groups->rendezvous, &own, sizeof own, places,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    bool reach = result == 0;
    for (int i = 0; i < world && reach; i++)
        reach = places[i].reaches;
    if (reach && (result = open_peers(groups, group, places, err)) != 0 &&
        erg_rendezvous_check(groups->rendezvous, NULL) == 0) {
        erg_log(ERG_LOG_INFO, "NCCL connects ranks that cannot access each other's memory (%s)",
                err->message);
        reach = false;
        result = 0;
    }
    free(places);
    return result == 0 && !reach ? open_communicator(groups, group, err) : result;
}

int erg_cuda_groups_connect(struct erg_cuda_groups *groups, void *memory, size_t bytes,
                            uint64_t layout, struct erg_error *err)
{
    const int world = erg_rendezvous_world(groups->rendezvous);
    struct memory_place own = {.layout = layout};
    struct memory_place *places = erg_xcalloc((size_t)world, sizeof *places);
    groups->memory = memory;
    groups->bytes = bytes;
    erg_launch_machine(own.machine);
    int result = erg_rendezvous_all_gather(groups->rendezvous, &own, sizeof own, places,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    for (struct erg_cuda_group *group = groups->first; group && result == 0; group = group->next)
        result = connect_group(groups, group, places, err);
    free(places);
    return result;
}

/* Ends kernels that wait for a missing rank. */
static void abort_all(struct erg_cuda_groups *groups)
{
    struct erg_error ignored;
    for (struct erg_cuda_group *group = groups->first; group; group = group->next) {
        if (group->comm)
            groups->nccl.abort(group->comm);
        group->comm = NULL;
        if (group->peers)
            (void)erg_collective_check(group->peers, &ignored);
    }
}

void erg_cuda_groups_disconnect(struct erg_cuda_groups *groups)
{
    const bool failed = erg_rendezvous_check(groups->rendezvous, NULL) != 0;
    if (failed) {
        abort_all(groups);
        (void)cudaDeviceSynchronize();
    }
    for (struct erg_cuda_group *group = groups->first; group; group = group->next) {
        if (group->comm)
            groups->nccl.destroy(group->comm);
        group->comm = NULL;
        close_peers(group);
    }
}

int erg_cuda_group_exchange(struct erg_cuda_groups *groups, struct erg_cuda_group *group,
                            const struct erg_exchange *exchange, struct CUstream_st *stream,
                            struct erg_error *err)
{
    return group->peers ? exchange_by_peers(group, exchange, stream, err)
                        : exchange_by_nccl(groups, group, exchange, stream, err);
}

static int check_all(struct erg_cuda_groups *groups, struct erg_error *err)
{
    if (erg_rendezvous_check(groups->rendezvous, err) != 0)
        return -1;
    for (struct erg_cuda_group *group = groups->first; group; group = group->next)
        if (group->peers && erg_collective_check(group->peers, err) != 0)
            return -1;
    return 0;
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
        if (check_all(groups, err) != 0) {
            abort_all(groups);
            return -1;
        }
        next_ns = erg_now_ns() + CHECK_NS;
    }
    return erg_cuda_check(status, err, "waiting for the GPU");
}
