/*
 * Memory that all ranks of a group can access: allocated or provided by each, mapped by all others.
 */
#include "base/memory.h"
#include "device/cuda/collective_internal.h"
#include "device/cuda/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The data that each rank sends about its memory. */
struct offer {
    int good; /* whether the memory could be exported */
    char machine[ERG_LAUNCH_MACHINE_BYTES];
    cudaIpcMemHandle_t handle;
    char why[256];
};

static int make_memory(struct erg_collective_buffer *buffer, const struct erg_collective *c,
                       struct offer *mine, struct erg_error *err)
{
    /* The driver places small allocations in shared ones; a mapped allocation must be separate. */
    const size_t granule = 2 << 20;
    size_t bytes = (buffer->bytes + granule - 1) / granule * granule;
    if (!buffer->adopted && erg_cuda_alloc(&buffer->memory, bytes ? bytes : granule, err))
        return -1;
    if (c->method == ERG_COLLECTIVE_LIBRARY || c->count == 0)
        return 0;
    return erg_cuda_check(cudaIpcGetMemHandle(&mine->handle, buffer->memory), err,
                          "making GPU memory known to other processes");
}

static int map_peers(struct erg_collective_buffer *buffer, const struct erg_collective *c,
                     const struct offer *offers, struct erg_error *err)
{
    if (c->count)
        buffer->peers[c->rank] = buffer->memory;
    for (int r = 0; r < c->count; r++) {
        const struct offer *offer = &offers[c->ranks[r]];
        if (r == c->rank)
            continue;
        if (strncmp(offer->machine, offers[c->world_rank].machine, sizeof offer->machine) != 0)
            return erg_fail(err, ERG_FAILED,
                            "rank %d and rank %d are on different machines, where only the library "
                            "(NCCL) connects them",
                            c->world_rank, c->ranks[r]);
        if (erg_cuda_check(cudaIpcOpenMemHandle(&buffer->peers[r], offer->handle,
                                                cudaIpcMemLazyEnablePeerAccess),
                           err, "mapping GPU memory of rank %d at rank %d", c->ranks[r],
                           c->world_rank))
            return -1;
    }
    return 0;
}

static int agree(const struct erg_collective *c, int failed, const struct erg_error *why,
                 struct offer *mine, struct offer *offers, struct erg_error *err)
{
    mine->good = !failed;
    snprintf(mine->why, sizeof mine->why, "%s", failed ? why->message : "");
    if (erg_rendezvous_all_gather(c->rendezvous, mine, sizeof *mine, offers, ERG_COLLECTIVE_WORLD_S,
                                  err))
        return -1;
    for (int r = 0; r < c->world; r++)
        if (!offers[r].good)
            return erg_fail(err, ERG_FAILED, "rank %d: %.*s", r, (int)sizeof offers[r].why,
                            offers[r].why);
    return 0;
}

int erg_collective_agree(const struct erg_collective *c, int failed, const struct erg_error *why,
                         struct erg_error *err)
{
    struct offer *offers = erg_xcalloc((size_t)c->world + 1, sizeof *offers);
    int result = agree(c, failed, why, &offers[c->world], offers, err);
    free(offers);
    return result;
}

static void unmap_peers(struct erg_collective_buffer *buffer)
{
    for (int r = 0; r < ERG_COLLECTIVE_MOST_RANKS; r++) {
        if (buffer->peers[r] && buffer->peers[r] != buffer->memory)
            cudaIpcCloseMemHandle(buffer->peers[r]);
        buffer->peers[r] = NULL;
    }
}

/* World call: `buffer` has its size and, if the caller provides it, its memory. */
static int open_buffer(struct erg_collective_buffer *buffer, struct erg_collective *collective,
                       struct erg_error *err)
{
    const struct erg_collective *c = collective;
    struct offer *offers = erg_xcalloc((size_t)c->world + 1, sizeof *offers);
    struct offer *mine = &offers[c->world];
    struct erg_error why = {0};
    erg_launch_machine(mine->machine);
    int failed = make_memory(buffer, c, mine, &why);
    int result = agree(c, failed, &why, mine, offers, err);
    if (result == 0 && c->method != ERG_COLLECTIVE_LIBRARY) {
        failed = map_peers(buffer, c, offers, &why);
        result = agree(c, failed, &why, mine, offers, err);
    }
    free(offers);
    if (result) {
        const size_t bytes = buffer->bytes;
        erg_collective_buffer_release(buffer, collective, NULL);
        return erg_fail_context(err, "making a buffer of %zu bytes for collectives", bytes);
    }
    return 0;
}

int erg_collective_buffer_init(struct erg_collective_buffer *buffer,
                               struct erg_collective *collective, size_t bytes,
                               struct erg_error *err)
{
    *buffer = (struct erg_collective_buffer){.bytes = bytes};
    return open_buffer(buffer, collective, err);
}

int erg_collective_buffer_adopt(struct erg_collective_buffer *buffer,
                                struct erg_collective *collective, void *memory, size_t bytes,
                                struct erg_error *err)
{
    *buffer = (struct erg_collective_buffer){.memory = memory, .bytes = bytes, .adopted = true};
    return open_buffer(buffer, collective, err);
}

int erg_collective_buffer_release(struct erg_collective_buffer *buffer,
                                  struct erg_collective *collective, struct erg_error *err)
{
    unmap_peers(buffer);
    /* Memory that another process has mapped must not be freed. */
    int result = erg_rendezvous_barrier(collective->rendezvous, ERG_COLLECTIVE_WORLD_S, err);
    if (!buffer->adopted)
        erg_cuda_free(buffer->memory);
    *buffer = (struct erg_collective_buffer){0};
    return result;
}
