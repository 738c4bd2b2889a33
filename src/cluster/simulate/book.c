/* Records a policy's decisions in the accounts, meters and records of the changed jobs. */
#include "cluster/simulate/simulation_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void erg_simulator_record(struct simulator *sim, enum erg_record_kind kind, int job, int node)
{
    if (!sim->simulation->keep_events)
        return;
    const struct erg_cluster_job *now =
        job >= 0 && kind != ERG_RECORD_RELEASE ? &sim->scheduler->jobs[job] : NULL;
    ERG_PUSH(&sim->records, items,
             (struct erg_cluster_record){
                 .at_s = sim->scheduler->now_s,
                 .kind = kind,
                 .job = job,
                 .node = node,
                 .shape = now ? now->shape : -1,
                 .point = now && now->shape >= 0 ? now->point : -1,
                 .first_slice = sim->slices.count,
                 .slices = now ? now->placement.count : 0,
             });
    for (int i = 0; now && i < now->placement.count; i++)
        ERG_PUSH(&sim->slices, items, now->placement.slices[i]);
}

void erg_simulator_refresh(struct simulator *sim, int id)
{
    const struct erg_accounting *accounting = sim->scheduler->accounting;
    const struct erg_work *work = &sim->scheduler->works[id];
    double share_until_s = INFINITY;
    erg_cluster_meter_update(&sim->meter, id);
    if (sim->scheduler->jobs[id].state == ERG_JOB_RUNNING)
        accounting->share(work, sim->scheduler->now_s, &share_until_s);
    erg_event_heap_set(&sim->heap, id, fmin(accounting->end(work), share_until_s));
}

void erg_simulator_pace(struct simulator *sim, int id)
{
    erg_scheduler_pace(sim->scheduler, id);
    erg_simulator_refresh(sim, id);
}

static void record_change(struct simulator *sim, const struct change *before)
{
    const struct erg_cluster_job *job = &sim->scheduler->jobs[before->job];
    if (job->state == ERG_JOB_REJECTED)
        erg_simulator_record(sim, ERG_RECORD_REJECT, job->id, -1);
    else if (erg_change_is_real(job, before))
        erg_simulator_record(sim,
                             job->state == ERG_JOB_WAITING      ? ERG_RECORD_SUSPEND
                             : before->state == ERG_JOB_RUNNING ? ERG_RECORD_CHANGE
                                                                : ERG_RECORD_START,
                             job->id, -1);
}

/* Sets the owner of a placement's GPUs in the records to a job; -1: free. */
static void hold(const struct simulator *sim, int *holders, const struct erg_placement *placement,
                 int job)
{
    for (int i = 0; i < placement->count; i++) {
        const struct erg_slice *slice = &placement->slices[i];
        int *of_node = holders + sim->scheduler->occupancy->first_owner[slice->node];
        for (uint64_t rest = slice->gpus; rest; rest &= rest - 1)
            of_node[__builtin_ctzll(rest)] = job;
    }
}

/* Returns true if another job has a GPU of this one's in the records. */
static bool is_held(const struct simulator *sim, const int *holders,
                    const struct erg_cluster_job *job)
{
    for (int i = 0; i < job->placement.count; i++) {
        const struct erg_slice *slice = &job->placement.slices[i];
        const int *of_node = holders + sim->scheduler->occupancy->first_owner[slice->node];
        for (uint64_t rest = slice->gpus; rest; rest &= rest - 1) {
            int holder = of_node[__builtin_ctzll(rest)];
            if (holder >= 0 && holder != job->id)
                return true;
        }
    }
    return false;
}

/*
 * Readers of the records never see a GPU with two jobs: each job follows those whose GPUs it gets.
 * If jobs exchange GPUs, a separate record of one of them releases its GPUs first.
 */
static void record_changes(struct simulator *sim)
{
    const struct erg_change_log *changes = sim->scheduler->changes;
    size_t left = changes->count, gpus = (size_t)sim->scheduler->fleet->gpus;
    enum progress {
        HOLDS,
        RELEASED,
        RECORDED
    } *progress = erg_xcalloc(changes->count, sizeof *progress);
    int *holders = erg_xmalloc(gpus * sizeof *holders);
    memset(holders, -1, gpus * sizeof *holders);
    for (size_t i = 0; i < changes->count; i++)
        hold(sim, holders, &changes->items[i].placement, changes->items[i].job);
    while (left > 0) {
        const struct change *exchanged = NULL;
        bool recorded = false;
        for (size_t i = 0; i < changes->count; i++) {
            const struct change *change = &changes->items[i];
            if (progress[i] == RECORDED)
                continue;
            if (is_held(sim, holders, &sim->scheduler->jobs[change->job])) {
                exchanged = exchanged || progress[i] == RELEASED ? exchanged : change;
                continue;
            }
            record_change(sim, change);
            if (progress[i] == HOLDS)
                hold(sim, holders, &change->placement, -1);
            progress[i] = RECORDED;
            recorded = true;
            left--;
        }
        if (recorded)
            continue;
        assert(exchanged);
        erg_simulator_record(sim, ERG_RECORD_RELEASE, exchanged->job, -1);
        hold(sim, holders, &exchanged->placement, -1);
        progress[exchanged - changes->items] = RELEASED;
    }
    free(progress);
    free(holders);
}

int erg_simulator_book(struct simulator *sim, struct erg_error *err)
{
    const struct erg_change_log *changes = sim->scheduler->changes;
    int result = 0;
    erg_simulator_wake_nodes(sim);
    for (size_t i = 0; i < changes->count && result == 0; i++) {
        enum erg_booking booking;
        int job = changes->items[i].job;
        result = erg_scheduler_book(sim->scheduler, &changes->items[i], &booking, err);
        if (booking == ERG_BOOKED_REJECTION) {
            erg_simulator_note_rejected(sim, job);
            erg_cluster_meter_update(&sim->meter, job);
        } else if (booking != ERG_BOOKED_NOTHING) {
            erg_simulator_refresh(sim, job);
        }
    }
    if (result == 0 && changes->count > 0 && sim->simulation->keep_events)
        record_changes(sim);
    erg_scheduler_settle(sim->scheduler);
    return result;
}
