/*
 * The log of a run: a line a step for people, and RUN/metrics.jsonl with a JSON object a line.
 */
#ifndef ERG_TRAIN_ENGINE_RUN_LOG_H
#define ERG_TRAIN_ENGINE_RUN_LOG_H

#include "base/text.h"
#include "train/engine/trainer.h"

#include <stdio.h>

struct erg_run_log {
    const struct erg_job *job;
    FILE *metrics; /* NULL: none is written */
    char *path;
    size_t memory_bytes;
    uint64_t last_tokens;                  /* of the step that a line was written of last */
    double spent_s, shortest_s, longest_s; /* of the steps in the window */
    uint64_t in_window;
};

/*
 * `folder`: of the run, NULL where nothing is kept. Its run.json says which run it is of: the job's
 * model, seed and batch. A run that goes on behind `step` takes up its own log, of which lines of
 * later steps are cut off; with step 0 it begins anew where the folder is of the same run, unless
 * `fresh`. Else a folder that has a log is refused, so that no other run's is lost. `tokens`: of
 * the steps before.
 */
int erg_run_log_open(struct erg_run_log *log, const struct erg_job *job, const char *folder,
                     uint64_t step, uint64_t tokens, bool fresh, size_t memory_bytes,
                     struct erg_error *err);

/*
 * Notes a step that took `step_s`. Of every `log_every`th step, of the first three and the last one
 * the log gets a line of means over the window since the line before, and `line` what people read;
 * else that stays empty.
 */
int erg_run_log_step(struct erg_run_log *log, const struct erg_train_step *step, double step_s,
                     bool last, struct erg_text *line, struct erg_error *err);

int erg_run_log_close(struct erg_run_log *log, struct erg_error *err);

#endif
