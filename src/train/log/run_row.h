/*
 * Run rows: the measurements of a run of ergon's own training as a row for fits of engines
 * (layout/time/fit.h). A run's folder gives one row, for the layout with the most undisturbed
 * steps: those without a trace, a validation or a checkpoint.
 */
#ifndef ERG_TRAIN_LOG_RUN_ROW_H
#define ERG_TRAIN_LOG_RUN_ROW_H

#include "layout/time/fit.h"
#include "train/log/run_session.h"

/* A row needs at least this number of undisturbed steps. */
enum { ERG_RUN_ROW_LEAST_STEPS = 5 };

/*
 * Adds the row of RUN, from its sessions.jsonl and metrics.jsonl. Skips invalid lines and lines of
 * another layout, with a warning of their number. The time is the median over the windows of the
 * log, weighted by their undisturbed steps.
 *
 * `cluster` (may be NULL) is set to the run's cluster, with strings in the rows' arena.
 */
int erg_run_row_add(struct erg_fit_rows *rows, const char *folder, struct erg_cluster *cluster,
                    struct erg_error *err);

/* The same for a run that may still be training: an unfinished last line is left out. */
int erg_run_row_add_training(struct erg_fit_rows *rows, const char *folder, struct erg_error *err);

/* The same from texts; `name` is the folder's name in messages. */
int erg_run_row_parse(struct erg_fit_rows *rows, const char *name, const char *sessions,
                      const char *metrics, struct erg_cluster *cluster, struct erg_error *err);

#endif
