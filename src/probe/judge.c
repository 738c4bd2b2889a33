/* Predictions of the emulated GPU beside what a job measured on real ones. */
#include "probe/probe.h"

#include "base/log.h"
#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "io/csv.h"
#include "partition/partition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct errors {
    double *items;
    size_t count, capacity;
};

struct group {
    struct erg_probe_judgement judgement;
    struct errors time, energy, burst;
};

struct judging {
    const struct erg_csv *csv;
    const struct erg_gpu *gpu;
    const struct erg_stack *stack;
    struct erg_workload workload;
    struct {
        struct group *items;
        size_t count, capacity;
    } groups;
};

/* ---- the work of a row ---- */

struct work {
    struct erg_step step; /* of a partition */
    const struct erg_step *steps;
    size_t count;
    bool partition;
};

static void name_layer(char *name, size_t capacity, const char *what, int direction)
{
    snprintf(name, capacity, "%s %s", what, direction ? "backward" : "forward");
}

/* Whole layers and what is outside them, as ergon optimize names them. */
static const struct erg_steps *find_steps(const struct erg_workload *w, const char *name)
{
    for (int f = 0; f < ERG_FIXED_COUNT; f++)
        if (!strcmp(name, erg_fixed_name((enum erg_fixed)f)))
            return &w->fixed[f];
    for (int d = 0; d < 2; d++) {
        const struct {
            const char *what;
            const struct erg_steps *steps;
        } layers[] = {
            {"sequential layer", &w->sequential[d]},
            {"nanobatched layer", &w->nanobatch[d]},
            {"single nanobatched layer", &w->nanobatch_single[d]},
            {"ends", &w->ends[d]},
        };
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            char layer[64];
            name_layer(layer, sizeof layer, layers[i].what, d);
            if (!strcmp(name, layer))
                return layers[i].steps;
        }
    }
    return NULL;
}

static bool find_work(const struct erg_workload *w, const char *name, long slot, long sms,
                      struct work *work)
{
    *work = (struct work){0};
    for (size_t i = 0; i < w->forward_count + w->backward_count; i++) {
        const struct erg_partition *partition = &w->partitions[i];
        if (strcmp(name, partition->key) || slot < 0 || (size_t)slot > partition->task.op_count)
            continue;
        work->step = (struct erg_step){
            .task = partition->task,
            .launch = {.slot = (size_t)slot, .sms = (int)sms},
        };
        work->steps = &work->step;
        work->count = 1;
        work->partition = true;
        return true;
    }
    const struct erg_steps *steps = find_steps(w, name);
    if (!steps)
        return false;
    work->steps = steps->steps;
    work->count = steps->count;
    return true;
}

/* ---- rows ---- */

static struct group *group_of(struct judging *at, const char *work, bool partition)
{
    for (size_t i = 0; i < at->groups.count; i++)
        if (!strcmp(at->groups.items[i].judgement.work, work))
            return &at->groups.items[i];
    struct group group = {.judgement = {.partition = partition}};
    snprintf(group.judgement.work, sizeof group.judgement.work, "%s", work);
    ERG_PUSH(&at->groups, items, group);
    return &at->groups.items[at->groups.count - 1];
}

static int judge_row(struct judging *at, size_t row, const size_t *column, struct erg_error *err)
{
    const struct erg_csv *csv = at->csv;
    const char *name = erg_csv_text(csv, row, column[0]);
    bool full = !strcmp(erg_csv_text(csv, row, column[3]), "full");
    long slot, sms;
    double time_s, energy_j = NAN;
    struct work work;
    struct erg_emulated_result result;
    if (erg_csv_long(csv, row, column[1], &slot, err) ||
        erg_csv_long(csv, row, column[2], &sms, err) ||
        erg_csv_double(csv, row, column[4], &time_s, err) ||
        (full && erg_csv_double(csv, row, column[5], &energy_j, err)))
        return -1;
    if (!find_work(&at->workload, name, slot, sms, &work))
        return erg_csv_fail(csv, row, err, "the job has no work called \"%s\" with a slot %ld",
                            name, slot);
    if (erg_emulated_run(at->gpu, at->stack, work.steps, work.count, at->gpu->clock_max_mhz,
                         &result, err))
        return -1;
    double time_error = result.time_s / time_s - 1, energy_error = result.energy_j / energy_j - 1;
    for (int together = 0; together <= work.partition; together++) {
        struct group *group = together ? &at->groups.items[0] : group_of(at, name, work.partition);
        if (full) {
            ERG_PUSH(&group->time, items, time_error);
            ERG_PUSH(&group->energy, items, energy_error);
        } else {
            ERG_PUSH(&group->burst, items, time_error);
        }
    }
    if (full)
        erg_log(ERG_LOG_DEBUG, "%s slot %ld sms %ld: %.3f ms %+.1f %%, %.3f J %+.1f %%", name, slot,
                sms, time_s * 1e3, 100 * time_error, energy_j, 100 * energy_error);
    return 0;
}

static int judge_rows(struct judging *at, struct erg_error *err)
{
    static const char *const names[] = {"work", "slot", "sms", "kind", "time_s", "energy_j"};
    enum { NAMES = sizeof names / sizeof *names };
    size_t column[NAMES];
    for (size_t i = 0; i < NAMES; i++)
        if (erg_csv_require(at->csv, names[i], &column[i], err))
            return -1;
    group_of(at, "all partitions", true);
    for (size_t row = 0; row < erg_csv_rows(at->csv); row++)
        if (judge_row(at, row, column, err))
            return -1;
    return 0;
}

/* ---- the sum ---- */

static int by_size(const void *a, const void *b)
{
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

static struct erg_probe_errors sum_up(const struct errors *errors)
{
    struct erg_probe_errors sum = {.count = errors->count};
    if (!errors->count)
        return sum;
    qsort(errors->items, errors->count, sizeof *errors->items, by_size);
    for (size_t i = 0; i < errors->count; i++)
        sum.mean += errors->items[i] / (double)errors->count;
    sum.median = fabs(errors->items[errors->count / 2]);
    sum.worst = fabs(errors->items[errors->count - 1]);
    return sum;
}

static void conclude(struct judging *at, struct erg_probe_judgements *judgements)
{
    for (size_t i = 0; i < at->groups.count; i++) {
        struct group *group = &at->groups.items[i];
        group->judgement.time = sum_up(&group->time);
        group->judgement.energy = sum_up(&group->energy);
        group->judgement.burst = sum_up(&group->burst);
        ERG_PUSH(judgements, items, group->judgement);
    }
}

static void release(struct judging *at)
{
    for (size_t i = 0; i < at->groups.count; i++) {
        free(at->groups.items[i].time.items);
        free(at->groups.items[i].energy.items);
        free(at->groups.items[i].burst.items);
    }
    free(at->groups.items);
}

int erg_probe_judge(struct erg_probe_judgements *judgements, const struct erg_job *job,
                    const char *measurements_path, const struct erg_gpu *gpu, struct erg_error *err)
{
    struct erg_workload_request request = erg_workload_of_job(job, gpu);
    struct judging at = {.gpu = gpu, .stack = job->stack};
    struct erg_csv *csv;
    *judgements = (struct erg_probe_judgements){0};
    if (erg_csv_load(&csv, measurements_path, err))
        return -1;
    at.csv = csv;
    int status = erg_workload_build(&at.workload, &request, err);
    if (!status) {
        status = judge_rows(&at, err);
        erg_workload_release(&at.workload);
    }
    if (!status)
        conclude(&at, judgements);
    release(&at);
    erg_csv_free(csv);
    return status;
}

void erg_probe_judgements_release(struct erg_probe_judgements *judgements)
{
    free(judgements->items);
    *judgements = (struct erg_probe_judgements){0};
}
