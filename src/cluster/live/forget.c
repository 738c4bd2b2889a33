/* Drops data of a controller, so that neither its memory nor its files grow without limit. */
#include "cluster/live/controller_internal.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OVER_MOST = 200,       /* ended jobs that the resource manager no longer lists */
    HISTORY_ROWS = 100000, /* per table of the journal */
};
static const double each_s = 600, over_most_s = 86400;

/* Returns true if the job has ended, as far as a missing entry of the resource manager can tell. */
static bool is_over(const struct erg_managed_job *record)
{
    return record->phase == ERG_PHASE_ENDED || record->phase == ERG_PHASE_CANCELLED ||
           record->phase == ERG_PHASE_GONE ||
           (record->phase == ERG_PHASE_FAILED && record->given_up);
}

struct over_since {
    double since_s;
    size_t i;
};

static int compare_since(const void *a, const void *b)
{
    const struct over_since *x = a, *y = b;
    return (x->since_s < y->since_s) - (x->since_s > y->since_s);
}

/* Marks the records to drop: those that ended more than a day ago, and all but the last OVER_MOST
 * of the other ended ones. Returns their number. */
static size_t mark(const struct erg_controller *controller, bool *drop)
{
    const struct erg_live_snapshot *snapshot = &controller->snapshot;
    bool *shown = erg_xcalloc(controller->count + 1, sizeof *shown);
    struct over_since *over = erg_xcalloc(controller->count + 1, sizeof *over);
    size_t count = 0, dropped = 0;
    for (size_t k = 0; k < snapshot->jobs_count; k++)
        if (snapshot->jobs[k].token[0])
            shown[erg_controller_find(controller, snapshot->jobs[k].token)] = true;
    for (size_t i = 0; i < controller->count; i++)
        if (!shown[i] && is_over(&controller->records[i]))
            over[count++] = (struct over_since){controller->records[i].since_s, i};
    qsort(over, count, sizeof *over, compare_since);
    for (size_t k = 0; k < count; k++)
        if (k >= OVER_MOST || controller->now_s - over[k].since_s > over_most_s) {
            drop[over[k].i] = true;
            dropped++;
        }
    free(over);
    free(shown);
    return dropped;
}

/* The policy's tables are indexed by job numbers: a job that returns gets its old number. */
static void drop_records(struct erg_controller *controller)
{
    bool *drop = erg_xcalloc(controller->count + 1, sizeof *drop);
    if (mark(controller, drop) > 0) {
        size_t kept = 0;
        for (size_t i = 0; i < controller->count; i++) {
            if (drop[i]) {
                erg_managed_job_release(&controller->records[i]);
                erg_live_track_release(&controller->tracks[i]);
                continue;
            }
            controller->records[kept] = controller->records[i];
            controller->tracks[kept++] = controller->tracks[i];
        }
        controller->count = kept;
        erg_controller_index(controller);
    }
    free(drop);
}

static bool is_known(const void *controller, const char *token)
{
    return erg_controller_find(controller, token) <
           ((const struct erg_controller *)controller)->count;
}

int erg_controller_forget(struct erg_controller *controller, struct erg_error *err)
{
    if (controller->now_s < controller->forgot_s + each_s)
        return 0;
    controller->forgot_s = controller->now_s;
    drop_records(controller);
    erg_controller_forget_speeds(controller);
    if (!controller->journal)
        return 0;
    return erg_journal_forget(
        controller->journal,
        &(struct erg_journal_needs){.since_unix_s = erg_unix_s() - over_most_s,
                                    .rows = HISTORY_ROWS,
                                    .is_known = is_known,
                                    .context = controller},
        err);
}
