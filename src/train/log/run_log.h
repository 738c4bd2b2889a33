/*
 * The log of a run, which its first rank writes: a line for people; RUN/metrics.jsonl with a JSON
 * object for each such line; RUN/sessions.jsonl (run_session.h); an event file for TensorBoard; and
 * the document of RUN/report.html.
 */
#ifndef ERG_TRAIN_LOG_RUN_LOG_H
#define ERG_TRAIN_LOG_RUN_LOG_H

#include "base/text.h"
#include "train/engine/rank_memory.h"
#include "train/engine/trainer.h"
#include "train/log/event_file.h"
#include "train/log/rank_meter.h"
#include "train/log/run_history.h"

#include <jansson.h>
#include <stdio.h>

/* The plan's prediction for all GPUs; NaN: not known. */
struct erg_run_expected {
    const char *plan;          /* the file; NULL: no plan */
    const char *method, *rule; /* of the point, and how it was chosen */
    size_t point, points;      /* from 1; of the frontier */
    double time_s, energy_j;   /* of a step without sums of gradients and optimizer */
    double step_s, step_j;     /* with them */
};

/* The run and its GPUs. All that it points to outlives the log. */
struct erg_run_about {
    const struct erg_job *job;
    const char *folder; /* of the run; NULL: nothing is kept */
    const char *device; /* the GPU's name, or "host" */
    const char *type;   /* of weights in use: "bfloat16" */
    size_t ranks;
    const size_t *memory_items; /* [ERG_RANK_ITEMS] of the rank with most; NULL: not known */
    struct erg_run_expected expected;
    uint64_t step, tokens; /* that the run goes on behind */
    uint64_t steps;        /* its last one */
    bool fresh;            /* it must not be there */
    bool changed;          /* a run that goes on may be of another seed or batch than before */
};

struct erg_run_log {
    struct erg_run_about about;
    int lock;    /* file of run.json, -1: there is none */
    int metrics; /* file of metrics.jsonl, -1: none is written */
    char *path;
    struct erg_text unwritten; /* of it, while the disk is full */
    bool warned;
    struct erg_event_file events;
    struct erg_run_history history;
    double memory_bytes, memory_outside_bytes; /* of the rank with most, in the last line */
    double j_per_token, j_per_token_uncertainty;
    uint64_t last_tokens;                  /* of the step that a line was written of last */
    double spent_s, shortest_s, longest_s; /* of the steps in the window */
    double paused_s;                       /* before these steps */
    double undisturbed_s;                  /* of those that nothing but training took time of */
    uint64_t in_window, undisturbed;
};

/*
 * The folder's run.json identifies the run: the job's model, seed and batch. A run that continues
 * after a step continues its own log without lines of later steps, and opens a new event file;
 * after step 0 it begins a new log where the folder belongs to the same run, if not `fresh`. A
 * folder with the run.json of another run is refused, and so is one without run.json that has a
 * log, a page or a checkpoint, so that no data of another run is lost. Close the log after a
 * failure, too.
 */
int erg_run_log_open(struct erg_run_log *log, const struct erg_run_about *about,
                     struct erg_error *err);

/* Before a run opens its log: fails where opening it behind no step would refuse the folder, and
 * touches nothing. `anew`, `changed`: as `fresh` and `changed` of the options. */
int erg_run_log_check(const char *folder, const struct erg_job *job, bool anew, bool changed,
                      struct erg_error *err);

/* Whether a step gets a line: every `log_every`th, the first three and the last one. The answer is
 * the same on every rank, each of which then takes its numbers. */
bool erg_run_log_due(const struct erg_training *training, uint64_t step, bool last);

struct erg_run_log_entry {
    const struct erg_train_step *step;
    double step_s;  /* that it took */
    double pause_s; /* that the run slept before it, to follow a plan of its scheduler */
    bool disturbed; /* something else took time of it: a start, a trace, a checkpoint, … */
    const struct erg_rank_numbers
        *ranks;                    /* [about.ranks] of the window; NULL: the step is not due */
    const double *validation_loss; /* NULL: none was made at this step */
    const json_t *trials;          /* what trials of ways to train have found since the line before;
                                    * NULL: nothing */
};

/*
 * Notes a step. Data that cannot be written, for example on a full disk, is kept and written with a
 * later line, after one warning. A step with a line gets its own loss, norm and rate, and means
 * over the window since the line before; energy is the sum over all ranks, known if every rank's
 * energy is. `line` gets the text for people, without a line break, and stays empty for other
 * steps.
 */
void erg_run_log_step(struct erg_run_log *log, const struct erg_run_log_entry *entry,
                      struct erg_text *line);

/* A new document with the schema "ergon.training": the run, its GPUs, and its course so far. */
json_t *erg_run_log_document(const struct erg_run_log *log);

int erg_run_log_close(struct erg_run_log *log, struct erg_error *err);

#endif
