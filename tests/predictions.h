/*
 * What the emulated GPU predicts of a job, against what the job measured on real GPUs at their own
 * clocks: the measurements.csv that ergon optimize --device cuda leaves. Errors are relative.
 */
#ifndef ERGON_TESTS_PREDICTIONS_H
#define ERGON_TESTS_PREDICTIONS_H

#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "io/csv.h"
#include "job/job.h"
#include "partition/partition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct prediction {
    char work[64];
    bool partition, burst;           /* else a whole window */
    double time_error, energy_error; /* no energy of bursts */
};

struct predictions { /* the caller frees items */
    struct prediction *items;
    size_t count, capacity;
};

/* Whole layers and the work outside them, as ergon optimize names them. */
static inline const struct erg_steps *steps_of_work(const struct erg_workload *w, const char *name)
{
    for (int f = 0; f < ERG_FIXED_COUNT; f++)
        if (!strcmp(name, erg_fixed_name((enum erg_fixed)f)))
            return &w->fixed[f];
    for (int d = 0; d < 2; d++) {
        const char *const names[] = {"sequential layer", "nanobatched layer",
                                     "single nanobatched layer", "ends"};
        const struct erg_steps *const steps[] = {&w->sequential[d], &w->nanobatch[d],
                                                 &w->nanobatch_single[d], &w->ends[d]};
        for (size_t i = 0; i < 4; i++) {
            char full[64];
            snprintf(full, sizeof full, "%s %s", names[i], d ? "backward" : "forward");
            if (!strcmp(name, full))
                return steps[i];
        }
    }
    return NULL;
}

static inline int predict_row(struct prediction *p, const struct erg_csv *csv, size_t row,
                              const size_t *column, const struct erg_workload *w,
                              const struct erg_gpu *gpu, const struct erg_stack *stack,
                              struct erg_error *err)
{
    long slot, sms;
    double time_s, energy_j = NAN;
    struct erg_emulated_result result;
    struct erg_step step;
    const char *name = erg_csv_text(csv, row, column[0]);
    const struct erg_steps *whole = steps_of_work(w, name);
    *p = (struct prediction){.burst = strcmp(erg_csv_text(csv, row, column[3]), "full") != 0};
    snprintf(p->work, sizeof p->work, "%s", name);
    if (erg_csv_long(csv, row, column[1], &slot, err) ||
        erg_csv_long(csv, row, column[2], &sms, err) ||
        erg_csv_double(csv, row, column[4], &time_s, err) ||
        (!p->burst && erg_csv_double(csv, row, column[5], &energy_j, err)))
        return -1;
    for (size_t i = 0; i < w->forward_count + w->backward_count && !p->partition; i++) {
        const struct erg_partition *one = &w->partitions[i];
        if (strcmp(name, one->key) || slot < 0 || (size_t)slot > one->task.op_count)
            continue;
        step =
            (struct erg_step){.task = one->task, .launch = {.slot = (size_t)slot, .sms = (int)sms}};
        p->partition = true;
    }
    if (!p->partition && !whole)
        return erg_csv_fail(csv, row, err, "the job has no work called \"%s\" with a slot %ld",
                            name, slot);
    if (erg_emulated_run(gpu, stack, p->partition ? &step : whole->steps,
                         p->partition ? 1 : whole->count, gpu->clock_max_mhz, &result, err))
        return -1;
    p->time_error = result.time_s / time_s - 1;
    p->energy_error = result.energy_j / energy_j - 1;
    return 0;
}

/* ERG_FAILED for work that is not the job's. */
static inline int predict_job(struct predictions *all, const struct erg_job *job, const char *path,
                              const struct erg_gpu *gpu, struct erg_error *err)
{
    static const char *const names[] = {"work", "slot", "sms", "kind", "time_s", "energy_j"};
    struct erg_workload_request request = erg_workload_of_job(job, gpu);
    struct erg_workload workload;
    struct erg_csv *csv;
    size_t column[6];
    *all = (struct predictions){0};
    if (erg_csv_load(&csv, path, err))
        return -1;
    int status = erg_workload_build(&workload, &request, err);
    if (!status) {
        for (size_t i = 0; i < 6 && !status; i++)
            status = erg_csv_require(csv, names[i], &column[i], err);
        for (size_t row = 0; row < erg_csv_rows(csv) && !status; row++) {
            struct prediction one;
            status = predict_row(&one, csv, row, column, &workload, gpu, job->stack, err);
            ERG_PUSH(all, items, one);
        }
        erg_workload_release(&workload);
    }
    erg_csv_free(csv);
    return status;
}

/* How far off predictions are: absolute values, but for the mean. */
struct prediction_errors {
    size_t count;
    double median, worst, mean;
};
enum prediction_kind { PREDICT_TIME, PREDICT_ENERGY, PREDICT_BURST };

static inline int by_absolute_value(const void *a, const void *b)
{
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

/* Of one kind of work; NULL: of all partitions. */
static inline struct prediction_errors errors_of(const struct predictions *all, const char *work,
                                                 enum prediction_kind kind)
{
    struct prediction_errors sum = {0};
    double *errors = erg_xcalloc(all->count + 1, sizeof *errors);
    for (size_t i = 0; i < all->count; i++) {
        const struct prediction *p = &all->items[i];
        if ((work ? strcmp(work, p->work) != 0 : !p->partition) ||
            p->burst != (kind == PREDICT_BURST))
            continue;
        errors[sum.count++] = kind == PREDICT_ENERGY ? p->energy_error : p->time_error;
        sum.mean += errors[sum.count - 1];
    }
    if (sum.count) {
        qsort(errors, sum.count, sizeof *errors, by_absolute_value);
        sum.mean /= (double)sum.count;
        sum.median = fabs(errors[sum.count / 2]);
        sum.worst = fabs(errors[sum.count - 1]);
    }
    free(errors);
    return sum;
}

#endif
