/* What ergon memory is asked about: a layout, the GPUs that its stages lie on, what they have. */
#ifndef ERG_CLI_MEMORY_QUERY_H
#define ERG_CLI_MEMORY_QUERY_H

#include "cli/cli.h"
#include "job/job.h"

#include "base/memory.h"
#include "layout/memory/smallest_change.h"
#include "layout/search/layout_search.h"

/* The options. */
struct memory_values {
    long gpus, batch, sequence;
    const char *layout, *report, *engine, *solve;
    int recompute, accounting, copies;
    double offload;
    bool per_stage;
};

struct memory_query {
    const struct memory_values *values;
    double solve_bytes; /* of --solve-offload; NAN: what each GPU has, or the option is not there */
    struct erg_job *job;
    struct erg_engine *engine;     /* of --engine, NULL: not given */
    struct erg_layout_kind *kinds; /* [kind_count] of the job, NULL until they are asked for */
    struct erg_arena arena;
    struct erg_layout layout;
    struct erg_memory_request request; /* of that layout */
    const size_t *stage_kind;          /* [pipeline]: of the job's kinds of GPUs */
    struct erg_memory_room *rooms;     /* [pipeline] */
    bool own_layers; /* they are the job's, so that its key layers could give others */
};

/* To be released, whatever becomes of it. */
int erg_memory_query_init(struct memory_query *query, const char *path,
                          const struct memory_values *values, struct erg_error *err);
void erg_memory_query_release(struct memory_query *query);

/* Fills the kinds of GPUs with their engines, which are those of the job but for --engine, that of
 * the cluster's own nodes. */
int erg_memory_query_kinds(struct memory_query *query, struct erg_error *err);

#endif
