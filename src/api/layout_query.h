/*
 * A query of a job's layouts: one layout, or the best of all, at the highest clock or over clocks,
 * on GPUs of one kind or several; and the answer.
 */
#ifndef ERG_API_LAYOUT_QUERY_H
#define ERG_API_LAYOUT_QUERY_H

#include "base/given.h"
#include "base/memory.h"
#include "base/text.h"
#include "job/job.h"
#include "layout/document/layouts.h"
#include "plan/plan.h"

/* base/given.h has the values for "not given". */
struct erg_layout_input {
    const char *path, *text; /* the job's; text NULL: read the file */
    size_t length;
    bool dashes; /* messages name inputs as options of the command line */
    long batch, sequence, top;
    const char *gpus, *cluster, *engine;
    const char *layout; /* only this one */
    int recompute, objective;
    double slack, memory_bytes, host_bytes, deadline_s, energy_j, power_w;
    bool per_stage;
    bool fsdp;  /* layouts that shard weights, too */
    bool draws; /* all that a page shows: every layout that fits, and the frontier over all */
    bool plain; /* of that one layout no clocks */
    /* The engine is taken for GPUs that it was not fitted to, with their peak: enough to compare.
     */
    bool any_gpu;
};

/* An input's question and its answer. */
struct erg_layout_query {
    const struct erg_layout_input *input;
    struct erg_job *job;
    struct erg_cluster *cluster;                       /* not NULL where another one was given */
    struct erg_gpu *gpus[ERG_LAYOUT_MOST_KINDS];       /* of that one's nodes */
    struct erg_engine *engines[ERG_LAYOUT_MOST_KINDS]; /* likewise, and the first of the input */
    struct erg_layout_search *searches; /* by the number of GPUs of each kind: the only
                                         * difference */
    size_t search_count;
    struct erg_layout_energy_request energy; /* of the first kind */
    struct erg_goal query;
    struct erg_layout_results found;
    struct erg_layout_choice choice;
    struct erg_layout_count *counts; /* [search_count]; NULL for one number of GPUs */
    struct erg_layout_remedy remedy; /* where nothing fits */
    struct {
        struct erg_layout_point *items;
        size_t count, capacity;
    } points;
};

struct erg_layouts_options;

/* Takes a program's options; job and texts are the program's. */
int erg_layout_input_take(struct erg_layout_input *input, const struct erg_layouts_options *options,
                          struct erg_error *err);

/* The nodes of the question. */
static inline const struct erg_cluster *erg_layout_query_cluster(const struct erg_layout_query *at)
{
    return at->cluster ? at->cluster : &at->job->cluster;
}

/* Reads job and cluster; then fills the searches and the goal. The caller releases it in any case;
 * the input must outlive it. */
int erg_layout_query_open(struct erg_layout_query *at, const struct erg_layout_input *input,
                          struct erg_error *err);
int erg_layout_query_prepare(struct erg_layout_query *at, struct erg_error *err);
void erg_layout_query_release(struct erg_layout_query *at);

/* Fills the searches, and the kinds of GPUs in them: layout_kinds.c. */
int erg_layout_list_searches(struct erg_layout_query *at, const struct erg_cluster *cluster,
                             struct erg_error *err);

bool erg_layout_query_is_mixed(const struct erg_layout_query *at);

/* The requested layout, or the best of all. ERG_INFEASIBLE where nothing fits, with the change that
 * would help. */
int erg_layout_query_find(struct erg_layout_query *at, struct erg_error *err);
struct erg_layout_answer erg_layout_query_answer(const struct erg_layout_query *at);
const struct erg_layout_candidate *erg_layout_query_best(const struct erg_layout_query *at);

/* The choice over clocks that is made; for profiles. */
struct erg_layout_choice_request erg_layout_query_choice(const struct erg_layout_query *at);

/* Makes the layout in `text` the only result; `option` is its name in messages. On one kind, a
 * layout that does not fit is refused with the smallest change that helps. */
int erg_layout_query_one(struct erg_layout_query *at, const char *option, const char *text,
                         struct erg_layout *layout, struct erg_error *err);

/* The fastest layouts at the highest clock. */
int erg_layout_query_fastest(struct erg_layout_query *at, struct erg_error *err);

/* The best of an answer over clocks as a plan: the clock of each instruction. */
int erg_layout_query_plan(struct erg_plan **plan, const struct erg_layout_query *at,
                          struct erg_error *err);
/* The job with a layout of the answer. */
void erg_layout_query_job(struct erg_text *out, const struct erg_layout_query *at,
                          const struct erg_layout_candidate *candidate);
/* Writes layouts.json, layouts.html, job.yaml and plan.json of an answer over clocks that draws. */
int erg_layout_query_write(const struct erg_layout_query *at, const char *folder,
                           struct erg_error *err);

/* Behind a refusal (layout_remedy.c): a layout is none of the search, and with which degrees, or
 * with how much memory, it would be; or nothing fits, and with how much memory or how many GPUs, or
 * with which batch, something would. On one kind of GPUs. */
int erg_layout_say_change(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                          const struct erg_layout *layout, struct erg_error *err);
int erg_layout_say_needed(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                          struct erg_error *err);

#endif
