/*
 * Report: a plan document (docs/formats/plan.md) as something people look at: a page, a table and
 * a trace; documents of memory and of layouts as pages. Nothing is computed here that the document
 * does not say.
 *
 * Every function refuses a document of another schema or schema version with one sentence; parts
 * that are missing from a right one are left out of the picture.
 */
#ifndef ERG_REPORT_H
#define ERG_REPORT_H

#include "base/text.h"
#include "ergon/error.h"

#include <jansson.h>

/* One HTML file that needs nothing else: no network, no fonts, no scripts. Written in one step. */
int erg_report_write(const char *path, const json_t *plan, struct erg_error *err);

/* The same of a memory document (layout/document/memory_document.h): memory over time of every
 * stage. */
int erg_report_memory_write(const char *path, const json_t *memory, struct erg_error *err);

/* The same of a layouts document (layout/document/layouts.h): all that fit, the fastest, their
 * time.
 */
int erg_report_layouts_write(const char *path, const json_t *layouts, struct erg_error *err);

/* The same of a cluster document (cluster/simulate/comparison.h): policies side by side, the
 * cluster over time. */
int erg_report_cluster_write(const char *path, const json_t *cluster, struct erg_error *err);

/* The same of a sweep (cluster/sweep/sweep.h): policies with confidence intervals, against the
 * load. */
int erg_report_sweep_write(const char *path, const json_t *sweep, struct erg_error *err);

/* The same of a run of training (train/log/run_log.h): loss, speed, power and energy of a token
 * over steps, tokens and time. */
int erg_report_training_write(const char *path, const json_t *training, struct erg_error *err);

/*
 * The page of a live cluster with its status (cluster/live) inside, for a server: it polls
 * "status.json" in the same folder. `status` is JSON; NULL: none yet.
 */
void erg_report_live(struct erg_text *out, const char *status);

/* The comparison of the methods and the selected point, lines of text in UTF-8. */
int erg_report_table(struct erg_text *out, const json_t *plan, struct erg_error *err);

/*
 * Chrome trace of the timelines before and after (a process each, a thread per stage, spans with
 * clock, power, energy and mode, a power counter per stage, per GPU), and one process with two
 * threads per partition timeline. Times are planned seconds, as in the document.
 */
int erg_report_trace(const char *path, const json_t *plan, struct erg_error *err);

#endif
