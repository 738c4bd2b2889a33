/*
 * Iteration (scale 3): from the options of every instruction to the time-energy frontier of one
 * pipeline iteration, and back to one option per instruction.
 *
 * An instruction is the forward or backward of one microbatch on one virtual stage. A pipeline of
 * S stages with V chunks each has S*V virtual stages; virtual stage x = chunk*S + stage runs on
 * stage x mod S. Every (virtual stage, direction) has one table of options: time, total energy of
 * one GPU of the stage, recipe. A table is an erg_frontier whose points need not be filtered;
 * mixing execution models is just more points, a fixed instruction a single one.
 *
 * While a stage waits, its GPU draws the blocking power P. So an option costs c = e - P*t beyond
 * waiting, and the iteration's energy, over one GPU per stage, is sum(c) + P*S*T. Options are
 * filtered on (t, c), never on (t, e): racing to wait may be cheaper than it looks.
 *
 * The planned frontier is the exact optimum over every deadline when each instruction may move
 * continuously along the lower convex hull of its options: a piecewise-linear C(T), computed by
 * one parametric minimum-cost flow on integers. The realised plans give each instruction one
 * measured option; their time is the longest path with the true times, and never exceeds the
 * deadline they were made for. C(T) + P*S*T falls only while -dC/dT > P*S; slower plans waste
 * energy for a pipeline that may stop when it likes, so the frontier leaves them out, but a
 * pipeline that has to wait for a straggler pays P*S until then anyway and can use them.
 *
 * Method: parametric dual of the time-cost tradeoff on the pipeline's DAG (Kareus, planner;
 * Phillips and Dessouky 1977) by successive shortest paths with event times as potentials.
 */
#ifndef ERG_ITERATION_ITERATION_H
#define ERG_ITERATION_ITERATION_H

#include "ergon/error.h"
#include "ergon/frontier.h"
#include "ergon/passes.h"
#include "frontier/goal.h"
#include "iteration/pass_order.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_pipeline {
    size_t stages;
    size_t microbatches;
    size_t chunks; /* virtual stages per stage: of one the schedule is 1F1B, of more interleaved */
    /* [stages]: added to the dependencies, in either direction, between each stage and the next,
     * and between the last and the first one's next chunk; NULL: none. */
    const double *hop_latency_s;
    double blocking_power_w; /* of one GPU that waits */
};

/* Checks the numbers above against each other; the message names the broken rule. */
int erg_pipeline_check(const struct erg_pipeline *pipeline, struct erg_error *err);

/* "forward", "backward"; ends with NULL. */
extern const char *const erg_direction_names[];

struct erg_instruction {
    uint32_t stage, chunk, microbatch;
    enum erg_direction direction;
};

/* The table that belongs to an instruction: tables[2 * (chunk*S + stage) + direction]. */
static inline size_t erg_table_index(const struct erg_pipeline *pipeline,
                                     const struct erg_instruction *instruction)
{
    return 2 * (instruction->chunk * pipeline->stages + instruction->stage) +
           (size_t)instruction->direction;
}

/*
 * The schedule: all instructions, stage after stage, each stage's in execution order. Stage k owns
 * the indices [k * per_stage, (k + 1) * per_stage).
 */
#define ERG_NONE UINT32_MAX
struct erg_schedule {
    struct erg_pipeline pipeline; /* with latencies of its own */
    size_t count, per_stage;
    struct erg_instruction *instructions;
    /* At most two of each per instruction: [0] neighbour on its stage, [1] the same microbatch on
     * the neighbouring virtual stage (or its turn from forward to backward); or ERG_NONE. */
    uint32_t (*before)[2];
    uint32_t (*after)[2];
    uint32_t *order;       /* a topological order of the indices */
    double *hop_latency_s; /* private: what the pipeline's points to */
};

/* The stage from which the hop goes that is between two instructions, in either order; ERG_NONE:
 * they are on one stage. */
static inline uint32_t erg_schedule_hop(const struct erg_schedule *schedule, uint32_t a, uint32_t b)
{
    const struct erg_instruction *one = &schedule->instructions[a];
    const struct erg_instruction *other = &schedule->instructions[b];
    if (one->stage == other->stage)
        return ERG_NONE;
    bool upward =
        one->chunk == other->chunk ? one->stage < other->stage : one->chunk < other->chunk;
    return upward ? one->stage : other->stage;
}

/* Latency of the dependency between two instructions, in either order. */
static inline double erg_schedule_latency_s(const struct erg_schedule *schedule, uint32_t a,
                                            uint32_t b)
{
    const double *hops_s = schedule->pipeline.hop_latency_s;
    uint32_t hop = hops_s ? erg_schedule_hop(schedule, a, b) : ERG_NONE;
    return hop == ERG_NONE ? 0 : hops_s[hop];
}

/* Fails with ERG_USAGE for an impossible pipeline. */
int erg_schedule_init(struct erg_schedule *schedule, const struct erg_pipeline *pipeline,
                      struct erg_error *err);
void erg_schedule_release(struct erg_schedule *schedule);

/* The instructions of one stage alone, in their order: twice erg_pass_order_count() of them. */
void erg_schedule_stage(struct erg_instruction *instructions, size_t stage,
                        const struct erg_pass_order *order);

/* One end of a linear piece of the planned frontier: C(T) without P*S*T. */
struct erg_breakpoint {
    double time_s, cost_j;
};

struct erg_iteration_plan {
    double time_s, energy_j; /* realised */
    /* The tightest deadline T that it meets, of all that plans were made for, and C(T) + P*S*T. */
    double planned_time_s, planned_energy_j;
    uint32_t *option; /* per instruction: index into its table's points as the caller gave them */
};

struct erg_iteration_request {
    struct erg_pipeline pipeline;
    const struct erg_frontier *tables; /* 2 * stages * chunks of them */
    double tick_s; /* of planned times, which are rounded up; 0: a power of ten, as fine as fits */
    size_t points; /* deadlines spread over the useful range, 0 or at least 2 */
    size_t slower_points;      /* further deadlines beyond it, for stragglers */
    const double *deadlines_s; /* further deadlines; plans for these are searched harder */
    size_t deadline_count;
    bool tries;    /* these deadlines are tries: searched no harder than the others */
    uint64_t seed; /* of the search among realised plans; equal seeds give equal plans */
};

struct erg_iteration {
    struct erg_schedule schedule;
    struct erg_breakpoint *planned;   /* time up, cost down, convex */
    size_t planned_count;             /* pieces + 1 */
    struct erg_iteration_plan *plans; /* time up; of equal times the cheapest */
    size_t plan_count;
    struct erg_frontier frontier; /* Pareto filter of the plans; recipe = index into plans */
};

/*
 * Solves and rounds. The plans hold `points` from the shortest possible time up to the time of
 * least planned energy, or beyond it where options are so few that slower plans may need less, and
 * what else was asked for; where nothing is, one for the shortest time. With deadlines alone only
 * that part of the frontier is solved which they need, and `planned`: half of the range takes a
 * hundredth of the time of all. A deadline below the shortest time fails with ERG_INFEASIBLE.
 */
int erg_iteration_solve(struct erg_iteration *iteration,
                        const struct erg_iteration_request *request, struct erg_error *err);
void erg_iteration_release(struct erg_iteration *iteration);

/* Adds plans that were made otherwise for the same pipeline and tables; takes over their options.
 */
void erg_iteration_add_plans(struct erg_iteration *iteration,
                             const struct erg_iteration_plan *plans, size_t count);

/* Takes the plans of another solution of the same problem; that is released. */
void erg_iteration_take_plans(struct erg_iteration *iteration, struct erg_iteration *from);

/*
 * The planned frontier alone, from the slowest time on: `each` gets its breakpoints and what C rose
 * by for each second since the one before, until it returns false. Half of the range takes a
 * hundredth of the time of all. Fails only when interrupted.
 */
int erg_iteration_sweep(const struct erg_pipeline *pipeline, const struct erg_frontier *tables,
                        bool (*each)(void *context, struct erg_breakpoint at, double slope_w),
                        void *context, struct erg_error *err);

/* Planned C(T) + P*S*T at a time inside the planned range; held at its ends beyond. */
double erg_iteration_planned_energy(const struct erg_iteration *iteration, double time_s);

/*
 * Time and energy of any assignment of options (for example all at the highest clock). When
 * start_s is not NULL it receives the earliest start of every instruction.
 */
void erg_iteration_evaluate(const struct erg_schedule *schedule, const struct erg_frontier *tables,
                            const uint32_t *option, double *start_s, double *time_s,
                            double *energy_j);

/*
 * Stage profiles: CSV with the columns stage,instruction,frequency,time,energy (others are
 * ignored): virtual stage from 0, "forward" or "backward", clock in MHz, s, J of one GPU. Where
 * instructions are those of a chunk, as "forward/1", stages are the pipeline's own, and virtual
 * stage x is chunk x / stages of stage x mod stages. Every stage and instruction needs a row for
 * the same clocks. In the tables the recipe is the clock,
 * and options keep the order of the file. Rows that differ in a column rank, dp_rank, pp_rank or
 * tp_rank, as Zeus writes them, are one option: the slowest time and the mean energy of these GPUs.
 * Messages name file, line and column.
 */
struct erg_profile {
    size_t virtual_stages;
    size_t chunks;               /* of each stage, that instructions name; 1: they name none */
    struct erg_frontier *tables; /* two per virtual stage, as a request wants them */
};
int erg_profile_load(struct erg_profile *profile, const char *path, struct erg_error *err);
int erg_profile_parse(struct erg_profile *profile, const char *name, const char *text,
                      size_t length, struct erg_error *err);
void erg_profile_release(struct erg_profile *profile);

/* Per instruction the option with the largest recipe: all at the highest clock of a profile.
 * `option` has one entry per instruction of the schedule. */
void erg_profile_highest_clock(const struct erg_schedule *schedule,
                               const struct erg_frontier *tables, uint32_t *option);

/*
 * Picks by a goal (frontier/goal.h); the index of a plan, of those of the frontier, for a straggler
 * of all. ERG_INFEASIBLE names the bound that cannot be met.
 */
int erg_iteration_pick(const struct erg_iteration *iteration, const struct erg_goal *goal,
                       size_t *plan, struct erg_error *err);

/*
 * The fastest realised plan within an energy budget: solves again with deadlines close to where
 * the planned frontier meets the budget and adds what it finds to `iteration`.
 */
int erg_iteration_refine_budget(struct erg_iteration *iteration,
                                const struct erg_iteration_request *request, double budget_j,
                                struct erg_error *err);

#endif
