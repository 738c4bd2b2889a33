/* A query of a job's memory: a layout, the GPUs of its stages and their memory; and the answer. */
#ifndef ERG_API_MEMORY_QUERY_H
#define ERG_API_MEMORY_QUERY_H

#include "base/given.h"
#include "base/memory.h"
#include "job/job.h"
#include "layout/copies/traffic.h"
#include "layout/document/memory_document.h"
#include "layout/memory/smallest_change.h"
#include "layout/search/layout_search.h"

/* base/given.h has the values for "not given". */
struct erg_memory_input {
    const char *path, *text; /* the job's; text NULL: read the file */
    size_t length;
    bool dashes; /* messages name inputs as options of the command line */
    long gpus, batch, sequence;
    const char *layout, *engine;
    const char *solve; /* bytes, or "gpu": the ratio of offloading is to be found */
    int recompute, accounting, copies;
    double offload;
    bool per_stage;
};

struct erg_memory_options;

/* Takes a program's options; job and texts are the program's. */
int erg_memory_input_take(struct erg_memory_input *input, const struct erg_memory_options *options,
                          struct erg_error *err);

struct erg_memory_query {
    const struct erg_memory_input *input;
    double solve_bytes; /* of `solve`; NAN: the memory of each GPU, or option not given */
    struct erg_job *job;
    struct erg_engine *engine;     /* of the input, NULL: not given */
    struct erg_layout_kind *kinds; /* [kind_count] of the job, NULL until they are asked for */
    struct erg_arena arena;
    struct erg_layout layout;
    struct erg_memory_request request; /* of that layout */
    const size_t *stage_kind;          /* [pipeline]: of the job's kinds of GPUs */
    struct erg_memory_room *rooms;     /* [pipeline] */
    bool own_layers; /* they are the job's, so that its key layers could give others */
};

/* An input's question, and its answer, which points into it. */
struct erg_memory_asked {
    struct erg_memory_query query;
    struct erg_memory_answer answer;
    /* Private: the memory that the answer points to. */
    struct erg_memory_traffic traffic;
    struct erg_memory_solution solution;
    struct erg_memory_result result;
    struct erg_memory_change change;
};

/* Fails for an invalid query; a layout that does not fit is an answer. The caller releases it in
 * any case. The input must outlive it. */
int erg_memory_ask(struct erg_memory_asked *asked, const struct erg_memory_input *input,
                   struct erg_error *err);
void erg_memory_asked_release(struct erg_memory_asked *asked);

/* ERG_INFEASIBLE where GPUs or hosts are too small, with the change that would help; 0: it fits.
 * `dashes`: it is named as options of the command line. */
int erg_memory_say_unfit(const struct erg_memory_answer *answer, bool dashes,
                         struct erg_error *err);

#endif
