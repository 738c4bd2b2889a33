/*
 * The costs of the passes of layouts at every clock that a search considers: one table for all
 * layouts of the same degrees, microbatch and sequence on one kind of GPUs, for any number of
 * stages; and a layout with the tables of its stages' GPUs.
 */
#ifndef ERG_LAYOUT_ENERGY_CLOCK_TABLE_H
#define ERG_LAYOUT_ENERGY_CLOCK_TABLE_H

#include "layout/energy/layout_frontier.h"

struct erg_clock_table {
    const struct erg_layout_energy_request *request;
    struct erg_time_parts parts;
    /* The highest clock first, then from the clock that the cap leaves down to the lowest: requests
     * above that clock have no effect. */
    struct erg_clock_row {
        int clock_mhz;
        struct erg_layout_costs costs;
    } * rows;
    size_t count;
    /* The cost after the pipeline, at the lowest clock at which memory-bound kernels take no longer
     * than at the highest. */
    struct erg_clock_row tail;
};

/*
 * `clocks`: the approximate number of clocks, evenly spaced; 0: all that a search considers.
 * `request` must outlive it. Takes some microseconds and one more a clock. To be released.
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

/* As many of the request's `clocks`; its points and times do not count. To be released, and not
 * moved. */
void erg_clocked_layout_init(struct erg_clocked_layout *clocked,
                             const struct erg_layout_frontier_request *request);

/* On one kind of GPUs, whose table is another's. `uneven_s`: ERG_TIME_UNEVEN. */
void erg_clocked_layout_on(struct erg_clocked_layout *clocked, const struct erg_clock_table *table,
                           const struct erg_layout *layout, double uneven_s);
void erg_clocked_layout_release(struct erg_clocked_layout *clocked);

/* The table of a stage's GPUs: its index. */
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

/* Schedule, stages, microbatches, the power of waiting (the mean over the stages), and between the
 * stages the latencies of messages, for which there is room in `hop_latency_s` [pipeline]. */
struct erg_pipeline erg_clocked_layout_pipeline(const struct erg_clocked_layout *clocked,
                                                double *hop_latency_s);

/*
 * The options of every instruction, the highest clock first; recipe: the clock in MHz. The solver
 * uses one power of waiting for all stages, the mean. While a stage works it does not wait, so the
 * difference of its own GPUs' waiting power to the mean is subtracted there; over the iteration
 * both come out right. As many as erg_clocked_layout_table_count(), to be released by
 * erg_clocked_layout_free_tables().
 */
struct erg_frontier *erg_clocked_layout_tables(const struct erg_clocked_layout *clocked);
void erg_clocked_layout_free_tables(struct erg_frontier *tables, size_t count);

static inline size_t erg_clocked_layout_table_count(const struct erg_layout *layout)
{
    return (size_t)(2 * layout->pipeline * layout->virtual_stages);
}

/* Seconds of a pipeline with every instruction at its first option, or at its last one: some ten
 * nanoseconds an instruction. */
int erg_pipeline_time(double *time_s, const struct erg_pipeline *pipeline,
                      const struct erg_frontier *tables, bool last, struct erg_error *err);

/*
 * The cost after the pipeline, over all GPUs, at the clocks of the tables' tails:
 * erg_layout_tail(), the bytes of messages between stages, whose time is part of the pipeline, and
 * the drift, which it returns: the time by which the closed form exceeds the schedule counts as
 * waiting. `pipeline_s`: the time of the schedule at the highest clocks; INFINITY: no drift.
 */
double erg_clocked_layout_tail(struct erg_layout_tail *tail,
                               const struct erg_clocked_layout *clocked, double pipeline_s);

#endif
