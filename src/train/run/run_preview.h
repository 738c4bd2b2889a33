/*
 * Run preview: the work of a job on each rank, the memory on each device, and the predicted time of
 * a step, before anything starts. One process computes it for any number of ranks.
 */
#ifndef ERG_TRAIN_RUN_RUN_PREVIEW_H
#define ERG_TRAIN_RUN_RUN_PREVIEW_H

#include "train/engine/rank_memory.h"
#include "train/run/run_plan.h"
#include "train/run/run_ways.h"

#include <jansson.h>

struct erg_run_preview {
    const struct erg_job *job;
    const char *device, *type;
    uint64_t steps, tokens; /* of the whole run */
    long ranks;             /* ranks [i r, (i + 1) r) have stage i, r = ranks / pipeline */
    /* [pipeline]: of one rank; all ranks of a stage need the same. */
    struct erg_rank_memory *stages;
    size_t most;       /* the stage that needs the most */
    size_t free_bytes; /* of this machine's device */
    /*
     * A step at the highest clock of the cluster's GPUs, all ranks together, predicted by the job's
     * engine; NaN: no prediction.
     */
    double step_s, step_j;
    double gradients_s, optimizer_s; /* of step_s */
    char unexpected[256];            /* the reason for no prediction */
    /* Set by the caller: the plan of the run, NULL: none, and its prediction. */
    const struct erg_plan *plan;
    struct erg_run_expected planned;
    /*
     * Also set by the caller, for a run that searches for the best way to train: its layout and the
     * reason, NULL: it does not search; the ways of the plan that it would try, and why they are
     * only sequential, NULL: they need not be.
     */
    const char *layout, *sequential;
    struct erg_run_way ways[ERG_TRIALS_WAYS];
    size_t way_count;
};

/*
 * Checks the job and its files as a run does. `init` as in struct erg_trainer_options; `steps`: the
 * last step. Release it, even after a failure.
 */
int erg_run_preview_init(struct erg_run_preview *preview, const struct erg_job *job,
                         struct erg_backend *backend, const char *init, const char *type,
                         uint64_t steps, struct erg_error *err);
void erg_run_preview_release(struct erg_run_preview *preview);

/* A new document with the schema "ergon.training_preview". */
json_t *erg_run_preview_document(const struct erg_run_preview *preview);

#endif
