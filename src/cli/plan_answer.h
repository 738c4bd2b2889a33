/*
 * What `ergon plan` answers for GPUs of one kind: one layout, one beside the best, or the best of
 * all, at the highest clock or over clocks.
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
struct planning {
    const struct plan_values *values;
    struct erg_job *job;
    struct erg_cluster *cluster; /* not NULL where another one was given */
    struct erg_gpu *gpu;         /* likewise */
    struct erg_engine *engine;   /* likewise */
    struct erg_time_machine machine;
    struct erg_layout_search *searches; /* by GPUs, which are all that differs */
    size_t search_count;
    const struct erg_layout_source *source; /* on nodes of several kinds */
    struct erg_layout_energy_request energy;
    struct erg_goal query;
    struct erg_layout_found found;
    struct erg_layout_choice choice;
    struct erg_layout_count *counts; /* [search_count]; NULL for one number of GPUs */
    struct erg_layout_remedy remedy; /* where nothing fits */
    struct {
        struct erg_layout_point *items;
        size_t count, capacity;
    } points;
};

/* Whether the answer is one over clocks. */
bool erg_plan_over_clocks(const struct planning *at);

/* The choice over clocks, and with several numbers of GPUs what each gives. */
int erg_plan_choose(struct planning *at, struct erg_error *err);

/* What is asked of layouts over clocks. */
struct erg_layout_choice_request erg_plan_choice_request(const struct planning *at);

int erg_plan_print_json(const struct erg_layout_answer *answer);

/* The document of a refusal, where that is one: nothing fits or is within bounds. */
void erg_plan_print_refusal(const struct erg_layout_answer *answer,
                            const struct erg_layout_remedy *remedy, const struct erg_error *err);

/* A layout of an answer as what --export names, but a profile. */
void erg_plan_print_export(const struct planning *at, const struct erg_layout_answer *answer,
                           const struct erg_layout_candidate *candidate);

/* Writes layouts.json, layouts.html, job.yaml and plan.json of an answer over clocks; and says
 * so, unless `folder` is NULL. */
int erg_plan_write_files(const struct planning *at, const struct erg_layout_answer *answer,
                         struct erg_error *err);
void erg_plan_print_files(const char *folder);

/* Each prints its answer: the best layouts, or the one that was asked for; it beside the best; and
 * frontiers. */
int erg_plan_answer(struct planning *at, bool json, struct erg_error *err);
int erg_plan_explain(struct planning *at, struct erg_error *err);
int erg_plan_print_profile(const struct planning *at, struct erg_error *err);

/* The published planner's grids (plan_arena.c). */
int erg_plan_arena(const struct planning *at, bool json, struct erg_error *err);

/*
 * So many layouts are searched for where `top` are shown: a search refines the splits of those that
 * it keeps, so with fewer the first ones might depend on how many are shown.
 */
static inline size_t erg_plan_searched(size_t top)
{
    const size_t least = 64;
    return top > least ? top : least;
}

#endif
