/*
 * The order of records of one decision. Who reads them one by one must never see a GPU with two
 * jobs. So jobs are recorded in topological order (Kahn, "Topological sorting of large networks",
 * 1962), each after those whose GPUs it gets. Where jobs exchange GPUs, one of them first gives its
 * own back, by a record of its own.
 */
#include "cluster/simulate/simulate_internal.h"

#include "base/memory.h"

#include <stdlib.h>

struct ordering {
    const struct erg_occupancy *occupancy;
    const struct erg_change_log *changes;
    int *had;       /* by GPU: the change whose job had it before; -1: none */
    int *waits;     /* by change: how many of the job's GPUs others still have in the records */
    bool *released; /* by change: its job's GPUs were given back in advance */
    struct record_step *steps;
    size_t count, passed; /* steps; those after which GPUs were passed on */
};

static int index_of(const struct ordering *at, const struct erg_slice *slice, uint64_t rest)
{
    return at->occupancy->first_owner[slice->node] + __builtin_ctzll(rest);
}

static void note_had(struct ordering *at, size_t change)
{
    const struct erg_placement *before = &at->changes->items[change].placement;
    for (int i = 0; i < before->count; i++)
        for (uint64_t rest = before->slices[i].gpus; rest; rest &= rest - 1)
            at->had[index_of(at, &before->slices[i], rest)] = (int)change;
}

/* How many GPUs of a job were another one's. */
static int count_waits(const struct ordering *at, size_t change, const struct erg_placement *now)
{
    int count = 0;
    for (int i = 0; i < now->count; i++)
        for (uint64_t rest = now->slices[i].gpus; rest; rest &= rest - 1) {
            int had = at->had[index_of(at, &now->slices[i], rest)];
            count += had >= 0 && (size_t)had != change;
        }
    return count;
}

static void add_step(struct ordering *at, size_t change, bool releases)
{
    at->steps[at->count++] = (struct record_step){change, releases};
}

/* Whoever gets the GPUs that a change's job had need not wait for them any more. */
static void pass_on(struct ordering *at, size_t change)
{
    const struct erg_placement *before = &at->changes->items[change].placement;
    for (int i = 0; i < before->count; i++)
        for (uint64_t rest = before->slices[i].gpus; rest; rest &= rest - 1) {
            int owner = at->occupancy->owners[index_of(at, &before->slices[i], rest)];
            int next = owner < 0 ? -1 : at->changes->entry_of[owner];
            if (next >= 0 && (size_t)next != change && --at->waits[next] == 0)
                add_step(at, (size_t)next, false);
        }
}

/* Passes on what was recorded; what is left then are exchanges, of which one is begun. */
static void sort_steps(struct ordering *at)
{
    size_t exchanged = 0;
    for (;;) {
        for (; at->passed < at->count; at->passed++) {
            const struct record_step *step = &at->steps[at->passed];
            if (step->releases || !at->released[step->change])
                pass_on(at, step->change);
        }
        while (exchanged < at->changes->count &&
               (at->waits[exchanged] == 0 || at->released[exchanged]))
            exchanged++;
        if (exchanged == at->changes->count)
            return;
        at->released[exchanged] = true;
        add_step(at, exchanged, true);
    }
}

struct record_step *simulator_record_order(const struct simulator *sim, size_t *count)
{
    const struct erg_scheduler *scheduler = sim->scheduler;
    size_t changes = scheduler->changes->count, gpus = (size_t)scheduler->fleet->gpus;
    struct ordering at = {.occupancy = scheduler->occupancy,
                          .changes = scheduler->changes,
                          .had = erg_xmalloc(gpus * sizeof *at.had),
                          .waits = erg_xcalloc(changes, sizeof *at.waits),
                          .released = erg_xcalloc(changes, sizeof *at.released),
                          .steps = erg_xcalloc(2 * changes, sizeof *at.steps)};
    for (size_t i = 0; i < gpus; i++)
        at.had[i] = -1;
    for (size_t i = 0; i < changes; i++)
        note_had(&at, i);
    for (size_t i = 0; i < changes; i++) {
        at.waits[i] = count_waits(&at, i, &scheduler->jobs[at.changes->items[i].job].placement);
        if (at.waits[i] == 0)
            add_step(&at, i, false);
    }
    sort_steps(&at);
    free(at.had);
    free(at.waits);
    free(at.released);
    *count = at.count;
    return at.steps;
}
