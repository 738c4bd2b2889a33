/*
 * Run history: the course of a run for its page, in at most a few thousand rows. A longer log keeps
 * every second, fourth, ... line; lines with a validation loss have priority.
 */
#ifndef ERG_TRAIN_LOG_RUN_HISTORY_H
#define ERG_TRAIN_LOG_RUN_HISTORY_H

#include <jansson.h>
#include <stddef.h>

/* The columns of the page, by their keys in the document. */
enum erg_run_column {
    ERG_RUN_STEP,
    ERG_RUN_TOKENS,
    ERG_RUN_TIME, /* "time_s": of steps so far, without the time between them */
    ERG_RUN_LOSS,
    ERG_RUN_VALIDATION_LOSS,
    ERG_RUN_GRADIENT_NORM,
    ERG_RUN_LEARNING_RATE,
    ERG_RUN_STEP_MS,
    ERG_RUN_TOKENS_PER_S,
    ERG_RUN_MFU,
    ERG_RUN_POWER,
    ERG_RUN_J_PER_TOKEN,
    ERG_RUN_J_PER_TOKEN_UNCERTAINTY,
    ERG_RUN_COLUMNS,
};

struct erg_run_row {
    double values[ERG_RUN_COLUMNS]; /* NaN: unknown */
};

/* All-zero is a valid empty history. */
struct erg_run_history {
    struct erg_run_row *items;
    size_t count, capacity;
    size_t stride, seen; /* every stride-th line of those seen is kept */
    struct erg_run_row last;
    double energy_j; /* of all lines; NaN: unknown for one of them */
    json_t *trials;  /* the latest in a line; NULL: none */
};

/* Adds a line of metrics.jsonl. */
void erg_run_history_add(struct erg_run_history *history, const json_t *line);

/* A new object with an array for each column, including the last line. */
json_t *erg_run_history_columns(const struct erg_run_history *history);

void erg_run_history_release(struct erg_run_history *history);

#endif
