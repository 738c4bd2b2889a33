/* What ergon memory is asked about: a layout, the GPUs that its stages lie on, what they have. */
#ifndef ERG_CLI_MEMORY_ASKED_H
#define ERG_CLI_MEMORY_ASKED_H

#include "cli/cli.h"
#include "job/job.h"

#include "base/memory.h"
#include "layout/memory/change.h"
#include "layout/search/search.h"

/* The options. */
struct memory_values {
    long gpus, batch, sequence;
    const char *layout, *report, *engine, *solve;
    int recompute, accounting, copies;
    double offload;
    bool per_stage;
};

struct memory_asked {
    const struct memory_values *values;
    double solve_bytes; /* of --solve-offload; NAN: what each GPU has, or the option is not there */
    struct erg_job *job;
    struct erg_engine *engine;     /* of --engine, NULL: not given */
    struct erg_layout_kind *kinds; /* [kind_count] of the job, NULL until they are asked for */
    struct erg_arena arena;
    struct erg_layout layout;
    const size_t *stage_kind;      /* [pipeline]: of the job's kinds of GPUs */
    struct erg_memory_room *rooms; /* [pipeline] */
    bool own_layers; /* they are the job's, so that its key layers could give others */
};

/* To be released, whatever becomes of it. */
int erg_memory_ask(struct memory_asked *asked, const char *path, const struct memory_values *values,
                   struct erg_error *err);
void erg_memory_asked_release(struct memory_asked *asked);

/* Fills the kinds of GPUs with their engines, which are those of the job but for --engine, that of
 * the cluster's own nodes. */
int erg_memory_ask_kinds(struct memory_asked *asked, struct erg_error *err);

/* Where the stages of the layout lie and how many layers each has, as ergon plan has it: so that an
 * iteration is the shortest. `data`: the degree that it must have; 0: any. (memory_place.c) */
int erg_memory_place_stages(struct memory_asked *asked, long batch, long data,
                            struct erg_error *err);
/* The layers of chunks that cannot be equal, on nodes of one kind, likewise. */
int erg_memory_split_layers(struct memory_asked *asked, struct erg_error *err);

#endif
