/*
 * Memory of a layout as a JSON document: what `ergon memory --json` prints and the page draws.
 * Sizes are bytes on one GPU of a stage.
 */
#ifndef ERG_LAYOUT_DOCUMENT_MEMORY_H
#define ERG_LAYOUT_DOCUMENT_MEMORY_H

#include "job/job.h"
#include "layout/copies/traffic.h"
#include "layout/memory/change.h"

#include <jansson.h>

/* What was asked and found; pointers that may be NULL say so. */
struct erg_memory_answer {
    const struct erg_job *job;
    struct erg_memory_request request;
    const struct erg_memory_result *result;
    double budget_bytes;
    double solve_bytes;   /* into which the ratio was solved to fit; NAN: it was not */
    bool fits, host_fits; /* into the GPUs, and the nodes' host memory */
    double host_bytes; /* of a node for what is offloaded, if all its GPUs are of the worst stage */
    const struct erg_memory_solution *solution; /* NULL: nothing was solved */
    bool per_stage;                             /* the layout is the solution's, stage by stage */
    const struct erg_memory_change *change;     /* NULL: it fits */
    const struct erg_memory_traffic *traffic;   /* NULL: no engine was named */
    double shared_s; /* what the iteration takes longer since copies and messages share something */
};

/* Schema "ergon.memory", version 1; owned by the caller. */
json_t *erg_memory_document(const struct erg_memory_answer *answer);

#endif
