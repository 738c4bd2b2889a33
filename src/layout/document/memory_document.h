/*
 * Memory of a layout as a JSON document, which `ergon memory --json` prints and the page draws.
 * Sizes are bytes on one GPU of a stage.
 */
#ifndef ERG_LAYOUT_DOCUMENT_MEMORY_H
#define ERG_LAYOUT_DOCUMENT_MEMORY_H

#include "job/job.h"
#include "layout/copies/traffic.h"
#include "layout/memory/smallest_change.h"

#include <jansson.h>

/* The request and its results; pointers may be NULL only where noted. */
struct erg_memory_answer {
    const struct erg_job *job;
    struct erg_memory_request request;
    /* [pipeline]: index of the stage's kind among the job's kinds of GPUs. */
    const size_t *stage_kind;
    const struct erg_memory_room *rooms; /* [pipeline] */
    const struct erg_memory_result *result;
    long binding, host_binding; /* stages with the least free GPU and host memory */
    bool solve;                 /* the ratio was solved for */
    bool fits, host_fits;       /* fits into the GPUs, and into the nodes' host memory */
    const struct erg_memory_solution *solution; /* NULL: no solution was requested */
    bool per_stage;                             /* the layout is the solution's, stage by stage */
    const struct erg_memory_change *change;     /* NULL: it fits */
    const struct erg_memory_traffic *traffic;   /* NULL: no engine was named */
    double shared_s; /* the additional time of the iteration because copies and messages share a
                      * link */
};

/*
 * Finds the binding stages, and whether all fit; GPUs may exceed their memory by the solution's
 * excess.
 */
void erg_memory_answer_judge(struct erg_memory_answer *answer);

/* The needed bytes by the closed form, rounded up. */
json_t *erg_memory_needed(double bytes);

/* The GPU of a stage, and whether stages are on several kinds. */
const struct erg_gpu *erg_memory_answer_gpu(const struct erg_memory_answer *answer, long stage);
bool erg_memory_answer_is_mixed(const struct erg_memory_answer *answer);

/* Host memory of a node for offloading, if all its GPUs belong to this stage. */
double erg_memory_answer_host_bytes(const struct erg_memory_answer *answer, long stage);

/* GPUs of the stages by their kinds, for example "32 H800-SXM-80GB, 64 A100-SXM4-80GB". */
void erg_memory_answer_gpus(struct erg_text *out, const struct erg_memory_answer *answer);

/* Schema "ergon.memory", version 1; owned by the caller. */
json_t *erg_memory_document(const struct erg_memory_answer *answer);

/* For a model that trains only adapters (model/lora.h): a member `lora` of a document, and a line
 * for people. For other models, nothing. */
void erg_lora_add_document(json_t *document, const struct erg_model *model);
void erg_lora_add_line(struct erg_text *out, const struct erg_model *model);

#endif
