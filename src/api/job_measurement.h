/*
 * Measuring before a live job is submitted: short runs of ergon train on one GPU of each type, side
 * by side, each in a Slurm job with a time limit. The measured time and power of one GPU correct
 * the planner's profile of the type.
 *
 * A run is ended as soon as enough steps were measured, and writes no checkpoint. Its files stay in
 * the job's folder: measured.TYPE.yaml, and measured.TYPE with its log and metrics.
 */
#ifndef ERG_API_JOB_MEASUREMENT_H
#define ERG_API_JOB_MEASUREMENT_H

#include "base/text.h"
#include "cluster/live/live_file.h"
#include "job/job.h"

struct erg_job_measurement {
    const struct erg_live_file *live;
    const char *folder; /* of the job, with its job.yaml */
    const struct erg_job *job;
    const struct erg_text *planned; /* the planner's rows alone: without those of a plan */
    const char *program;            /* path of ergon */
    const char *const *options;     /* of ergon train, without those about plans */
    size_t option_count;
    bool plans;     /* the planner chooses the layout for one GPU */
    double limit_s; /* for each type, waiting for its GPU included */
};

/*
 * Corrects the rows of a profile (layout/exchange/profile_rows.h) for the types in it: the times
 * and powers of a type change by measured over planned ones of one GPU, which runs without a plan.
 * A job that does not fit into one GPU is measured, and planned, with half of its layers, a
 * quarter, or less, and random weights. A type that could not be measured keeps its rows, and one
 * warning names the reason. Fails when interrupted. No Slurm job of it is left, also after a
 * failure: one that Slurm got without an answer is found by its comment, and cancelled; if Slurm
 * does not answer then, either, a warning names the comment.
 */
int erg_job_measure(struct erg_text *rows, const struct erg_job_measurement *measuring,
                    struct erg_error *err);

#endif
