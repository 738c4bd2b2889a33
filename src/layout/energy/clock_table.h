/*
 * The costs of the passes of layouts at every clock that a search considers: one table for all
 * layouts with the same degrees, microbatch and sequence on one kind of GPUs, for any number of
 * stages; and a layout with the tables of its stages' GPUs.
 */
#ifndef ERG_LAYOUT_ENERGY_CLOCK_TABLE_H
#define ERG_LAYOUT_ENERGY_CLOCK_TABLE_H

#include "layout/energy/layout_frontier.h"

struct erg_clock_table {
    const struct erg_layout_energy_request *request;
    struct erg_time_parts parts;
    /*
     * The highest clock first, then the clocks from the one that the cap allows down to the lowest:
     * requests above it have no effect.
     */
    struct erg_clock_row {
        int clock_mhz;
        struct erg_layout_costs costs;
    } * rows;
    size_t count;
    /*
     * The cost after the pipeline, at the lowest clock at which memory-bound kernels are no slower
     * than at the highest.
     */
    struct erg_clock_row tail;
};

/*
 * `clocks`: the approximate number of clocks, evenly spaced; 0: all that a search considers.
 * `request` must outlive it. Takes some microseconds, and one more per clock. Release it.
 */
void erg_clock_table_init(struct erg_clock_table *table,
                          const struct erg_layout_energy_request *request,
                          const struct erg_layout *layout, size_t clocks);
void erg_clock_table_release(struct erg_clock_table *table);

/* ---- a layout with the tables of its GPUs ---- */

struct erg_clocked_layout {
    const struct erg_layout *layout;
    const struct erg_clock_table *tables;                /* [count] */
    struct erg_time_place places[ERG_LAYOUT_MOST_KINDS]; /* [count], in the pipeline's order */
    size_t count;
    double closed_s; /* of an iteration with everything at the highest clocks (layout_energy.h) */
    struct erg_clock_table own[ERG_LAYOUT_MOST_KINDS];
    size_t own_count;
};

/*
 * Uses the request's number of `clocks`, but not its points and times. Do not move it; release it.
 */
void erg_clocked_layout_init(struct erg_clocked_layout *clocked,
                             const struct erg_layout_frontier_request *request);

/* The same on one kind of GPUs, with a table of the caller. `uneven_s`: ERG_TIME_UNEVEN. */
void erg_clocked_layout_on(struct erg_clocked_layout *clocked, const struct erg_clock_table *table,
                           const struct erg_layout *layout, double uneven_s);
void erg_clocked_layout_release(struct erg_clocked_layout *clocked);

/* The index of the table of a stage's GPUs. */
static inline size_t erg_clocked_layout_place(const struct erg_clocked_layout *clocked, long stage)
{
    size_t place = 0;
    while (stage >= clocked->places[place].end)
        place++;
    return place;
}

/* The cost of one instruction of a chunk, at the clock of a row. */
struct erg_pass_cost erg_clocked_layout_cost(const struct erg_clocked_layout *clocked, long stage,
                                             long chunk, bool backward, size_t row);

/* The power of a waiting GPU, W, the mean over the stages. */
double erg_clocked_layout_waiting_w(const struct erg_clocked_layout *clocked);

/*
 * The pipeline: schedule, stages, microbatches, waiting power (the mean over the stages), and the
 * latencies of messages between stages, which are stored in `hop_latency_s` [pipeline].
 */
struct erg_pipeline erg_clocked_layout_pipeline(const struct erg_clocked_layout *clocked,
                                                double *hop_latency_s);

/*
 * The options of every instruction, the highest clock first; recipe: the clock in MHz. The solver
 * uses one waiting power for all stages, the mean. While a stage works it does not wait, so the
 * difference between its own GPUs' waiting power and the mean is subtracted there; over the
 * iteration the energy is correct. Returns erg_clocked_layout_table_count() tables; release them
 * with erg_clocked_layout_free_tables().
 */
struct erg_frontier *erg_clocked_layout_tables(const struct erg_clocked_layout *clocked);
void erg_clocked_layout_free_tables(struct erg_frontier *tables, size_t count);

static inline size_t erg_clocked_layout_table_count(const struct erg_layout *layout)
{
    return (size_t)(2 * layout->pipeline * layout->virtual_stages);
}

/*
 * Seconds of a pipeline with every instruction at its first or its last option. Takes some ten
 * nanoseconds per instruction.
 */
int erg_pipeline_time(double *time_s, const struct erg_pipeline *pipeline,
                      const struct erg_frontier *tables, bool last, struct erg_error *err);

/*
 * The cost after the pipeline, over all GPUs, at the clocks of the tables' tails:
 * erg_layout_tail(), the bytes of messages between stages, whose time is part of the pipeline, and
 * the drift: the time by which the closed form exceeds the schedule, which counts as waiting.
 * Returns the drift. `pipeline_s`: the time of the schedule at the highest clocks; INFINITY: no
 * drift.
 */
double erg_clocked_layout_tail(struct erg_layout_tail *tail,
                               const struct erg_clocked_layout *clocked, double pipeline_s);

#endif
