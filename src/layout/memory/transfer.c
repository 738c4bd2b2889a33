/* Moves a group's kept tensors to host memory and back: the allocations and their times. */
#include "base/memory.h"
#include "layout/memory/stage_run.h"

#include <stdlib.h>

void erg_memory_copies_release(struct erg_memory_copies *copies)
{
    free(copies->items);
    free(copies->passes.items);
    *copies = (struct erg_memory_copies){0};
}

static struct erg_memory_kept *kept_of(struct erg_memory_group *group, long layer,
                                       const struct erg_memory_piece *piece)
{
    return &group->kept[(layer + piece->layer) * ERG_MEMORY_ROLES + piece->tensor];
}

/* Begins a copy with the next layer that runs; returns its index in the list. */
static size_t open_copy(struct erg_memory_stage_run *run, bool in,
                        const struct erg_memory_group *group, long layer)
{
    if (!run->copies)
        return SIZE_MAX;
    ERG_PUSH(run->copies, items,
             (struct erg_memory_copy){.in = in,
                                      .chunk = group->chunk,
                                      .microbatch = group->microbatch,
                                      .layer = run->s.request->layer_copies ? layer : -1,
                                      .bytes = run->choices[group->chunk].moved,
                                      .begin = erg_memory_copies_end(run->copies)});
    return run->copies->count - 1;
}

static void close_copy(struct erg_memory_stage_run *run, size_t *open)
{
    if (*open != SIZE_MAX)
        run->copies->items[*open].end = erg_memory_copies_end(run->copies);
    *open = SIZE_MAX;
}

/*
 * Copies all of a group out, or its layer `layer`. The remaining part of a tensor needs its own
 * memory, since the whole tensor is freed.
 */
void erg_memory_begin_copy_out(struct erg_memory_stage_run *run, long k, long layer)
{
    struct erg_memory_group *group = &run->groups[k];
    if (!group->moves)
        return;
    const struct erg_memory_choice *choice = &run->choices[group->chunk];
    run->copying_out = k;
    run->copying_layer = layer;
    run->open_out = open_copy(run, false, group, layer);
    if (run->s.request->accounting == ERG_MEMORY_ARENA)
        return;
    for (size_t i = 0; i < choice->count; i++) {
        const struct erg_memory_piece *piece = &choice->pieces[i];
        struct erg_memory_kept *kept = kept_of(group, layer, piece);
        bool touched = false;
        for (size_t other = 0; other < choice->count; other++)
            touched |= choice->pieces[other].moved > 0 &&
                       kept_of(group, layer, &choice->pieces[other]) == kept;
        if (touched && piece->moved < piece->bytes)
            kept->rest[piece->view] = erg_memory_take(&run->s.memory, ERG_MEMORY_ACTIVATIONS,
                                                      piece->bytes - piece->moved, 0);
    }
}

void erg_memory_end_copy_out(struct erg_memory_stage_run *run)
{
    if (run->copying_out < 0)
        return;
    close_copy(run, &run->open_out);
    struct erg_memory_group *group = &run->groups[run->copying_out];
    const struct erg_memory_choice *choice = &run->choices[group->chunk];
    for (size_t i = 0; i < choice->count; i++) {
        const struct erg_memory_piece *piece = &choice->pieces[i];
        if (!piece->moved)
            continue;
        struct erg_memory_kept *kept = kept_of(group, run->copying_layer, piece);
        erg_memory_give(&run->s.memory, &kept->block);
        if (run->s.request->accounting == ERG_MEMORY_ARENA)
            kept->rest[0] = erg_memory_take(&run->s.memory, ERG_MEMORY_ACTIVATIONS,
                                            piece->bytes - piece->moved, 0);
    }
    run->copying_out = -1;
}

/* Copies into one of two buffers. */
void erg_memory_begin_copy_in(struct erg_memory_stage_run *run, long k, long layer)
{
    close_copy(run, &run->open_in);
    const struct erg_memory_group *group = k < run->steps ? erg_memory_group_back(run, k) : NULL;
    if (!group || !group->moves)
        return;
    const struct erg_memory_choice *choice = &run->choices[group->chunk];
    run->open_in = open_copy(run, true, group, layer);
    long slot = run->received++ % 2;
    if (run->receive[slot].bytes >= choice->moved)
        return;
    erg_memory_give(&run->s.memory, &run->receive[slot].block);
    run->receive[slot].bytes = choice->moved;
    run->receive[slot].block =
        erg_memory_take(&run->s.memory, ERG_MEMORY_OFFLOAD, choice->moved, 0);
}

void erg_memory_join_split(struct erg_memory_stage_run *run, struct erg_memory_group *group,
                           long layer)
{
    const struct erg_memory_choice *choice = &run->choices[group->chunk];
    long first = run->s.request->layer_copies ? layer : 0;
    if (!group->moves || !choice->split || first + choice->split->layer != layer ||
        run->s.request->accounting == ERG_MEMORY_ARENA)
        return;
    struct erg_memory_kept *kept = kept_of(group, first, choice->split);
    uint32_t whole = erg_memory_take(&run->s.memory, ERG_MEMORY_OFFLOAD, choice->split->bytes, 0);
    erg_memory_give(&run->s.memory, &kept->rest[choice->split->view]);
    kept->rest[choice->split->view] = whole;
}

void erg_memory_begin_copy_in_below(struct erg_memory_stage_run *run, long k, long layer)
{
    if (layer > 0)
        erg_memory_begin_copy_in(run, k, layer - 1);
    else if (k + 1 < run->steps)
        erg_memory_begin_copy_in(run, k + 1, erg_memory_group_back(run, k + 1)->layers - 1);
    else
        close_copy(run, &run->open_in);
}
