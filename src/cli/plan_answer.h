/*
 * What `ergon plan` answers: one layout, one beside the best, or the best of all, at the highest
 * clock or over clocks, on GPUs of one kind or several.
 */
#ifndef ERG_CLI_PLAN_ANSWER_H
#define ERG_CLI_PLAN_ANSWER_H

#include "job/job.h"
#include "layout/document/layouts.h"

/* The command line; what was not given is NAN, NULL, ERG_NOT_GIVEN or below 0. */
struct plan_values {
    long batch, sequence, top;
    const char *gpus, *cluster, *engine, *layout, *why, *output;
    int recompute, export, objective, planner;
    double slack, memory_bytes, host_bytes, deadline_s, energy_j, power_w;
    bool per_stage;
};

/* Choices of the option --export beyond enum erg_export_format. */
enum { PLAN_EXPORT_PROFILE = 2, PLAN_EXPORT_JOB };

/* Everything of one call. */
struct plan_call {
    const struct plan_values *values;
    struct erg_job *job;
    struct erg_cluster *cluster;                       /* not NULL where another one was given */
    struct erg_gpu *gpus[ERG_LAYOUT_MOST_KINDS];       /* of that one's nodes */
    struct erg_engine *engines[ERG_LAYOUT_MOST_KINDS]; /* likewise, and the first of --engine */
    struct erg_layout_search *searches; /* by how many GPUs of which kinds: all that differs */
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

/* The nodes of the call. */
static inline const struct erg_cluster *erg_plan_cluster(const struct plan_call *at)
{
    return at->cluster ? at->cluster : &at->job->cluster;
}

/* Fills the searches, and the kinds of GPUs in them: plan_kinds.c. */
int erg_plan_prepare_searches(struct plan_call *at, const struct erg_cluster *cluster,
                              struct erg_error *err);

/* Each prints its answer: the best layouts, or the one that was asked for; it beside the best; and
 * frontiers. */
int erg_plan_answer(struct plan_call *at, bool json, struct erg_error *err);
int erg_plan_explain(struct plan_call *at, struct erg_error *err);
int erg_plan_print_profile(const struct plan_call *at, struct erg_error *err);

/* The published planner's grids (plan_arena.c). */
int erg_plan_arena(const struct plan_call *at, bool json, struct erg_error *err);

/* Behind a refusal (plan_remedy.c): a layout is none of the search, and with which degrees, or with
 * how much memory, it would be; or nothing fits, and with how much memory or how many GPUs, or with
 * which batch, something would. On one kind of GPUs. */
int erg_plan_say_change(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                        const struct erg_layout *layout, struct erg_error *err);
int erg_plan_say_needed(struct erg_layout_remedy *remedy, const struct erg_layout_search *search,
                        struct erg_error *err);

#endif
