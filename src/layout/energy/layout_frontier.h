/*
 * The clock axis of layouts: from one layout to its frontier of time and energy, and from the
 * frontiers of several layouts to the layout that is best for a bound or a goal.
 *
 * Every pass of one microbatch through one chunk (an instruction, iteration/iteration.h) may run at
 * its own clock; the options of an instruction are those of layout_energy.h at the clocks that a
 * search considers for the GPU. The layout's schedule is solved exactly for all deadlines, with the
 * exposed part of messages as latency between stages. The waits for copies, the sums of gradients
 * and the optimizer follow, at the lowest clock at which memory-bound kernels are no slower. So the
 * frontier shows layouts that save energy at no cost in time (an uneven split leaves stages
 * waiting).
 *
 * A pipeline with very many instructions is solved for fewer microbatches (at least four times the
 * stages), and every plan is stretched by repeating its middle. Its time and energy are those of
 * the whole plan. Another plan with the same time might need less energy: up to 0.5 % less in our
 * runs if most microbatches were solved, and some per cent near the fastest if a quarter was.
 *
 * Times follow the schedule's dependencies, not a sum. If the closed form of time.h is longer at
 * the highest clock, by up to some per cent for interleaved schedules, every plan waits for the
 * difference: engines are fitted to measured iterations by the closed form.
 */
#ifndef ERG_LAYOUT_ENERGY_FRONTIER_H
#define ERG_LAYOUT_ENERGY_FRONTIER_H

#include "frontier/goal.h"
#include "iteration/iteration.h"
#include "layout/energy/layout_energy.h"

/*
 * Such pipelines take at most some ten seconds with nine clocks, and far less for deadlines that
 * are not near the fastest time.
 */
enum { ERG_LAYOUT_MOST_INSTRUCTIONS = 36000 };

struct erg_layout_frontier_request {
    const struct erg_layout_energy_request *energy; /* of each place */
    const struct erg_layout *layout;                /* checked: erg_layout_check() */
    /*
     * The places of stages, in the order of the pipeline. Each kind of GPUs has its own table of
     * clocks. place_count 0: all on the GPUs of `energy`. closed_s: the time of an iteration with
     * everything at the highest clock.
     */
    const struct erg_time_place *places;
    size_t place_count; /* at most ERG_LAYOUT_MOST_KINDS */
    double closed_s;
    double uneven_s;      /* for one kind: the time of the schedule beyond the closed form */
    size_t points;        /* from the fastest to the least energy, 0 or at least 2 */
    size_t slower_points; /* slower than the least energy: more energy, less power */
    /*
     * The approximate number of clocks; 0: all that a search considers. Nine clocks cost at most
     * some tenths of a per cent of energy and take a third of the time of 27.
     */
    size_t clocks;
    /* Longer pipelines are solved as shorter ones; 0: ERG_LAYOUT_MOST_INSTRUCTIONS. */
    size_t most_instructions;
    /*
     * Further points that just meet these deadlines for the whole iteration (stretched ones may be
     * early by up to some tenths of a per cent); deadlines too short for the layout are skipped.
     */
    const double *deadlines_s;
    size_t deadline_count;
    const double *times_s; /* the same, but only approximate: to show a frontier */
    size_t time_count;
};

/* The sizes of a layout's pipeline. */
static inline long erg_layout_instructions(const struct erg_layout *layout)
{
    return 2 * layout->pipeline * layout->virtual_stages * layout->microbatches;
}

struct erg_layout_frontier {
    /* Every plan; time and energy of the whole iteration over all GPUs; recipe: the index in
     * iteration.plans, each of which has an option for every instruction. Time up. */
    struct erg_frontier points;
    struct erg_frontier frontier; /* the Pareto points of these */
    /* The pipeline alone, one GPU of each stage. A stretched one has no `planned` curve. */
    struct erg_iteration iteration;
    struct erg_frontier *tables; /* the options; recipe: the clock in MHz */
    size_t table_count;
    struct erg_layout_tail tail; /* the cost after the pipeline, and the drift */
    double tail_clock_mhz;
    double drift_s;  /* in the tail: the time of the closed form beyond the schedule */
    double replicas; /* of the pipeline */
};

/*
 * Takes milliseconds; seconds from some thousand instructions on. Fails only when interrupted.
 * Release it.
 */
int erg_layout_frontier_init(struct erg_layout_frontier *frontier,
                             const struct erg_layout_frontier_request *request,
                             struct erg_error *err);
void erg_layout_frontier_release(struct erg_layout_frontier *frontier);

/* Adds the points of another frontier of the same layout, and releases that one. */
void erg_layout_frontier_take(struct erg_layout_frontier *frontier,
                              struct erg_layout_frontier *from);

/*
 * A close lower bound of the energy of the layout's plans within a time: the optimum of the
 * continuous problem. It is unknown for a stretched pipeline, whose energy is interpolated between
 * its points. INFINITY: no plan is that fast.
 */
double erg_layout_frontier_optimum(const struct erg_layout_frontier *frontier, double time_s);

/* The clocks that a plan requests: means over the time of its instructions, lowest and highest. */
struct erg_layout_clocks {
    double mean_mhz[2]; /* forward, backward */
    int lowest_mhz, highest_mhz;
};
void erg_layout_plan_clocks(struct erg_layout_clocks *clocks,
                            const struct erg_layout_frontier *frontier, size_t plan);

/* ---- choice of a layout and a point ---- */

/* One layout among others that train the same batch, on any number of GPUs. */
struct erg_layout_option {
    const struct erg_layout *layout;
    const struct erg_layout_frontier *frontier;
    double peak_bytes; /* of the GPU with the highest peak */
};

struct erg_layout_pick {
    size_t option, point; /* index into the options, and into the points of its frontier */
    double time_s, energy_j, power_w;
    long gpus;
};

/* The quantity that the goal minimises. */
double erg_layout_pick_value(const struct erg_layout_pick *pick, enum erg_objective goal);

/*
 * Ties go to the fewest GPUs, then to the first option. ERG_INFEASIBLE if no point is within the
 * bounds; the message names the binding bound and the smallest change that makes a point feasible.
 */
int erg_layout_pick(struct erg_layout_pick *pick, const struct erg_layout_option *options,
                    size_t count, const struct erg_goal *query, struct erg_error *err);

/*
 * The error of erg_layout_pick() if none of the `all` layouts that fit (1: a single requested
 * layout; 0: unknown number) has such a point; `options` are the nearest.
 */
int erg_layout_fail_pick(const struct erg_layout_option *options, size_t count,
                         const struct erg_goal *query, unsigned long long all,
                         struct erg_error *err);

/* Points that differ by less, as a share of time or energy, count as equal. */
#define ERG_LAYOUT_TIE 1e-3

/*
 * The Pareto points of all options, time up; recipe: option << 32 | point. Layouts are planned at
 * slightly different deadlines, so points that another point beats within a tolerance of a
 * thousandth of time or energy are also dropped, except the fastest and the one with the least
 * energy.
 */
void erg_layout_union(struct erg_frontier *out, const struct erg_layout_option *options,
                      size_t count);

#endif
