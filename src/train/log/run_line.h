/*
 * One line of a run's log: the numbers of a step and its window, as JSON, as scalars for
 * TensorBoard and as text for people.
 */
#ifndef ERG_TRAIN_LOG_RUN_LINE_H
#define ERG_TRAIN_LOG_RUN_LINE_H

#include "train/log/run_log.h"

/* The sums over ranks, and derived values. NaN: unknown. */
struct erg_run_line {
    const struct erg_run_log_entry *entry;
    size_t ranks;
    bool on_gpus; /* every rank */
    double time_unix_s;
    double step_s, shortest_s, longest_s; /* of the steps in the window */
    uint64_t window_steps, tokens;        /* of the window */
    uint64_t undisturbed_steps;           /* steps without other work than training */
    double undisturbed_s;                 /* their mean; NaN: none */
    double tokens_per_s, tokens_per_s_gpu;
    double mfu, hfu; /* shares of the peak of all GPUs; hfu includes recomputation */
    double memory_bytes, memory_outside_bytes; /* of the rank with the most */
    double energy_j,
        uncertainty_j; /* of the window, all ranks together; their errors are correlated */
    double j_per_token, j_per_token_uncertainty;
    double power_w;                      /* mean of the ranks with a value */
    double exposed_s[ERG_EXPOSED_KINDS]; /* of a step, means of the ranks */
    double bubble_s;
};

/* For a step with a line in the log; uses the log's window. */
void erg_run_line_make(struct erg_run_line *line, const struct erg_run_log *log,
                       const struct erg_run_log_entry *entry, double time_unix_s);

json_t *erg_run_line_json(const struct erg_run_line *line, const struct erg_run_about *about);

/* `scalars` has room for ERG_RUN_SCALARS; returns their number. */
enum { ERG_RUN_SCALARS = 16 };
size_t erg_run_line_scalars(const struct erg_run_line *line, struct erg_event_scalar *scalars);

/* Skips unknown values. `steps`: the last step of the run. */
void erg_run_line_text(struct erg_text *out, const struct erg_run_line *line, uint64_t steps);

#endif
