/*
 * The clock axis of layouts: from one layout to its frontier of time and energy, and from the
 * frontiers of several layouts to the layout that is best for a bound or a goal.
 *
 * Every pass of one microbatch through one chunk (an instruction, iteration/iteration.h) may run at
 * its own clock; the options of an instruction are those of layout_energy.h at the clocks that a
 * search considers for the GPU. The layout's schedule is solved exactly for all deadlines, with the
 * exposed part of messages as latency between stages. Then come the waits for copies, the sums of
 * gradients and the optimizer, at the lowest clock at which memory-bound kernels are no slower.
 * Layouts that save energy at no cost in time (an uneven split leaves stages waiting) show it here.
 *
 * A pipeline with very many instructions is solved for fewer microbatches (at least four times the
 * stages), and every plan is stretched by repeating its middle. Its time and energy are those of
 * the whole plan. Another plan of the same time might need less energy: up to 0.5 % less in our
 * runs where most microbatches were solved, and some per cent towards the fastest where a quarter
 * was.
 *
 * Times follow the schedule's dependencies, not a sum. Where the closed form of time.h takes longer
 * at the highest clock, as it does by up to some per cent for interleaved schedules, the difference
 * is added to every plan as waiting: engines are fitted to measured iterations by the closed form.
 */
#ifndef ERG_LAYOUT_ENERGY_FRONTIER_H
#define ERG_LAYOUT_ENERGY_FRONTIER_H

#include "frontier/goal.h"
#include "iteration/iteration.h"
#include "layout/energy/layout_energy.h"

/* Such pipelines take some ten seconds at most with nine clocks, deadlines that are not near the
 * fastest time far less. */
enum { ERG_LAYOUT_MOST_INSTRUCTIONS = 36000 };

struct erg_layout_frontier_request {
    const struct erg_layout_energy_request *energy; /* of each place */
    const struct erg_layout *layout;                /* checked: erg_layout_check() */
    /* Where stages lie, in the order of the pipeline, and how long an iteration takes with
     * everything at the highest clock. Several kinds of GPUs change their clocks each by its own
     * table. 0: all on GPUs of `energy`. */
    const struct erg_time_place *places;
    size_t place_count; /* at most ERG_LAYOUT_MOST_KINDS */
    double closed_s;
    double uneven_s;      /* of all on one kind: the time of the schedule beyond the closed form */
    size_t points;        /* from the fastest to the least energy, 0 or at least 2 */
    size_t slower_points; /* beyond it: more energy, less power */
    /* The approximate number of clocks; 0: all that a search considers. Nine clocks lose at most
     * some tenths of a per cent of energy and take a third of the time of 27. */
    size_t clocks;
    /* Longer pipelines are solved as shorter ones; 0: ERG_LAYOUT_MOST_INSTRUCTIONS. */
    size_t most_instructions;
    /* Further points that just meet these, of the whole iteration (a stretched one may be up to
     * some tenths of a per cent early); those that are too short for the layout are passed over. */
    const double *deadlines_s;
    size_t deadline_count;
    const double *times_s; /* likewise, but near is enough: to show a frontier */
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
    struct erg_frontier frontier; /* of these, those that nothing beats */
    /* The pipeline alone, one GPU of each stage. A stretched one has no `planned` curve. */
    struct erg_iteration iteration;
    struct erg_frontier *tables; /* the meaning of the options; recipe: the clock in MHz */
    size_t table_count;
    struct erg_layout_tail tail; /* what follows the pipeline, and the drift */
    double tail_clock_mhz;
    double drift_s;  /* of the tail: the time of the closed form beyond the schedule */
    double replicas; /* of the pipeline */
};

/* Some milliseconds; from some thousand instructions on seconds. Fails only when interrupted. To be
 * released. */
int erg_layout_frontier_init(struct erg_layout_frontier *frontier,
                             const struct erg_layout_frontier_request *request,
                             struct erg_error *err);
void erg_layout_frontier_release(struct erg_layout_frontier *frontier);

/* Takes the points of another frontier of the same layout; that is released. */
void erg_layout_frontier_take(struct erg_layout_frontier *frontier,
                              struct erg_layout_frontier *from);

/*
 * A lower bound of the energy of the layout's plans within a time, which plans come close to: the
 * optimum of the continuous problem. That is not known for a stretched pipeline, whose energy is
 * interpolated between its points. INFINITY: no plan is that fast.
 */
double erg_layout_frontier_optimum(const struct erg_layout_frontier *frontier, double time_s);

/* The clocks that a plan requests of its instructions: means over their time, and the ends. */
struct erg_layout_clocks {
    double mean_mhz[2]; /* forward, backward */
    int lowest_mhz, highest_mhz;
};
void erg_layout_plan_clocks(struct erg_layout_clocks *clocks,
                            const struct erg_layout_frontier *frontier, size_t plan);

/* ---- which layout, and which of its points ---- */

/* One layout among others that train the same batch, on any number of GPUs. */
struct erg_layout_option {
    const struct erg_layout *layout;
    const struct erg_layout_frontier *frontier;
    double peak_bytes; /* of the GPU that needs most */
};

struct erg_layout_pick {
    size_t option, point; /* index into the options, and into the points of its frontier */
    double time_s, energy_j, power_w;
    long gpus;
};

/* The quantity that the goal minimises. */
double erg_layout_pick_value(const struct erg_layout_pick *pick, enum erg_objective goal);

/*
 * Ties go to the fewest GPUs, then to the first option. ERG_INFEASIBLE when no point is within the
 * bounds; the message names the bound that binds and the smallest change that makes a point
 * feasible.
 */
int erg_layout_pick(struct erg_layout_pick *pick, const struct erg_layout_option *options,
                    size_t count, const struct erg_goal *query, struct erg_error *err);

/* Its error where none of `all` layouts that fit (1: which was asked for alone; 0: how many is not
 * known) has such a point; these are the nearest. */
int erg_layout_fail_pick(const struct erg_layout_option *options, size_t count,
                         const struct erg_goal *query, unsigned long long all,
                         struct erg_error *err);

/* Points that differ by less, as a share of time or energy, are as good as the same. */
#define ERG_LAYOUT_TIE 1e-3

/*
 * The Pareto points of all options, time up; recipe: option << 32 | point. Every layout was planned
 * at slightly different deadlines, so points that another point beats within a tolerance of a
 * thousandth of time or energy are left out, too, except the fastest and the one with the least
 * energy.
 */
void erg_layout_union(struct erg_frontier *out, const struct erg_layout_option *options,
                      size_t count);

#endif
