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

/* The plan's prediction for all GPUs; NaN: unknown. */
struct erg_run_expected {
    const char *plan;          /* the file; NULL: no plan */
    const char *method, *rule; /* method of the point, and the rule of its choice */
    size_t point, points;      /* number from 1; points of the frontier */
    double time_s, energy_j;   /* of a step without sums of gradients and optimizer */
    double step_s, step_j;     /* with them */
};

/* The run and its GPUs. All pointers outlive the log. */
struct erg_run_about {
    const struct erg_job *job;
    const char *folder; /* of the run; NULL: no log is written */
    const char *device; /* the GPU's name, or "host" */
    const char *type;   /* of weights in use: "bfloat16" */
    size_t ranks;
    const size_t *memory_items; /* [ERG_RANK_ITEMS] of the rank with the most; NULL: unknown */
    struct erg_run_expected expected;
    uint64_t step, tokens; /* after which the run continues */
    uint64_t steps;        /* the last step */
    bool fresh;            /* the run must not exist */
    bool changed;          /* a continued run may have another seed or batch than before */
};

struct erg_run_log {
    struct erg_run_about about;
    int lock;    /* file of run.json; -1: none */
    int metrics; /* file of metrics.jsonl; -1: none */
    char *path;
    struct erg_text unwritten; /* pending lines while the disk is full */
    bool warned;
    struct erg_event_file events;
    struct erg_run_history history;
    double memory_bytes, memory_outside_bytes; /* of the rank with the most, in the last line */
    double j_per_token, j_per_token_uncertainty;
    uint64_t last_tokens;                  /* of the latest step with a line */
    double spent_s, shortest_s, longest_s; /* of the steps in the window */
    double paused_s;                       /* before these steps */
    double undisturbed_s;                  /* of the undisturbed steps */
    uint64_t in_window, undisturbed;
};

/*
 * The folder's run.json identifies the run: the job's model, seed and batch. A run that continues
 * after a step continues its own log without lines of later steps, and opens a new event file.
 * After step 0 it begins a new log if the folder belongs to the same run, unless `fresh`. It
 * refuses a folder with the run.json of another run, and one without run.json that has a log, a
 * page or a checkpoint, so that no data of another run is lost. Close the log even after a failure.
 */
int erg_run_log_open(struct erg_run_log *log, const struct erg_run_about *about,
                     struct erg_error *err);

/*
 * Call it before a run opens its log: fails if opening it after step 0 would refuse the folder,
 * without any change. `anew`, `changed`: like `fresh` and `changed` of the options.
 */
int erg_run_log_check(const char *folder, const struct erg_job *job, bool anew, bool changed,
                      struct erg_error *err);

/*
 * Whether a step gets a line: every `log_every`-th, the first three and the last. The answer is the
 * same on every rank; each then takes its numbers.
 */
bool erg_run_log_due(const struct erg_training *training, uint64_t step, bool last);

struct erg_run_log_entry {
    const struct erg_train_step *step;
    double step_s;  /* duration of the step */
    double pause_s; /* pause before the step, to follow a plan of the scheduler */
    bool disturbed; /* other work took time: a start, a trace, a checkpoint, … */
    /* [about.ranks] of the window; NULL: the step gets no line. */
    const struct erg_rank_numbers *ranks;
    const double *validation_loss; /* NULL: none at this step */
    const json_t *trials;          /* results of trials since the previous line; NULL: none */
};

/*
 * Adds a step. Data that cannot be written, for example on a full disk, is kept and written with a
 * later line, after one warning. A step with a line gets its own loss, norm and rate, and means
 * over the window since the previous line; energy is the sum over all ranks, known if every rank's
 * energy is known. `line` gets the text for people, without a line break, and stays empty for other
 * steps.
 */
void erg_run_log_step(struct erg_run_log *log, const struct erg_run_log_entry *entry,
                      struct erg_text *line);

/* A new document with the schema "ergon.training": the run, its GPUs, and its course so far. */
json_t *erg_run_log_document(const struct erg_run_log *log);

int erg_run_log_close(struct erg_run_log *log, struct erg_error *err);

#endif
