/*
 * Submitting live jobs: a job is checked, its folder made, and Slurm told to keep it, held, until
 * the controller places it.
 */
#ifndef ERG_API_SUBMIT_JOB_H
#define ERG_API_SUBMIT_JOB_H

#include "cluster/live/job_folder.h"
#include "cluster/live/live_file.h"

/* The input, with one of `job`, `like` and `resume`. base/given.h has the values for "not given".
 */
struct erg_submit_input {
    const char *job;    /* a job's file, for ergon train */
    const char *like;   /* MODEL:BATCH:ITERATIONS of a program that trains */
    const char *resume; /* the folder of a job that has left Slurm */
    /* The program and its arguments, or further options of ergon train. */
    const char *const *arguments;
    size_t argument_count;
    long gpus, gpus_most;
    const char *type; /* of GPU */
    double deadline_unix_s, weight;
    double measure_s; /* at most, with `job`: on one GPU of each type before; 0: not measured */
    bool per_node;
    const char *program; /* path of this one */
};

struct erg_submitted {
    unsigned long id; /* of Slurm */
    char token[ERG_TOKEN_LENGTH + 1];
    char *folder;
    char *types; /* GPU types on which the job's speeds are known, "a, b" */
};

/* Released also after a failure. */
int erg_submit(struct erg_submitted *submitted, const struct erg_live_file *live,
               const struct erg_submit_input *input, struct erg_error *err);
void erg_submitted_release(struct erg_submitted *submitted);

/* "HH:MM:SS" from now on, or a time as 2026-01-31T12:00 here, in seconds since 1970. */
int erg_submit_read_deadline(double *unix_s, const char *text, struct erg_error *err);

#endif
