/*
 * What the passes of layouts cost at every clock that a search considers: the ladder that all
 * layouts of the same degrees, microbatch and sequence climb, whatever their stages are.
 */
#ifndef ERG_LAYOUT_ENERGY_LADDER_H
#define ERG_LAYOUT_ENERGY_LADDER_H

#include "iteration/iteration.h"
#include "layout/energy/energy.h"

struct erg_layout_ladder {
    const struct erg_layout_energy_request *request;
    struct erg_time_parts parts;
    /* The highest clock first, then from what the cap leaves of it down to the lowest: what is
     * requested above that changes nothing. */
    struct erg_layout_rung {
        int clock_mhz;
        struct erg_layout_costs costs;
    } * rungs;
    size_t count;
    /* Of what follows the pipeline: at the lowest clock at which memory-bound kernels take no
     * longer than at the highest. */
    struct erg_layout_rung tail;
};

/*
 * `clocks`: about so many, evenly; 0: all that a search considers. `request` must outlive it. Takes
 * some microseconds and one more a clock. To be released.
 */
void erg_layout_ladder_init(struct erg_layout_ladder *ladder,
                            const struct erg_layout_energy_request *request,
                            const struct erg_layout *layout, size_t clocks);
void erg_layout_ladder_release(struct erg_layout_ladder *ladder);

/* Of one instruction of a chunk, at the clock of a rung. */
struct erg_pass_cost erg_layout_ladder_cost(const struct erg_layout_ladder *ladder,
                                            const struct erg_layout *layout, long stage, long chunk,
                                            enum erg_direction direction, size_t rung);

/* All stages of a layout. */
struct erg_time_place erg_layout_ladder_place(const struct erg_layout_ladder *ladder,
                                              const struct erg_layout *layout);

/* What follows the pipeline, over all GPUs: erg_layout_tail() and the bytes of messages between
 * stages, whose time is the pipeline's. */
void erg_layout_pipeline_tail(struct erg_layout_tail *tail,
                              const struct erg_layout_energy_place *places, size_t count,
                              const struct erg_layout *layout);

/* Of an iteration with everything at the highest clock, as erg_layout_energy() says. */
double erg_layout_ladder_time(const struct erg_layout_ladder *ladder,
                              const struct erg_layout *layout, double uneven_s);

/* ---- all stages, each on the ladder of its own GPUs ---- */

struct erg_layout_climb {
    const struct erg_layout_ladder *ladders; /* [count], of the layout's degrees */
    const struct erg_time_place *places;     /* [count], in the order of the pipeline */
    size_t count;
    double closed_s; /* of an iteration with everything at the highest clocks (energy.h) */
};

static inline size_t erg_layout_climb_place(const struct erg_layout_climb *climb, long stage)
{
    size_t place = 0;
    while (stage >= climb->places[place].end)
        place++;
    return place;
}

/* What a GPU that waits draws, the mean over the stages. */
double erg_layout_climb_waiting_w(const struct erg_layout_climb *climb,
                                  const struct erg_layout *layout);

/* Schedule, stages, microbatches, the power of waiting, and between the stages the latencies of
 * messages, for which there is room in `hop_latency_s` [pipeline]. */
struct erg_pipeline erg_layout_climb_pipeline(const struct erg_layout_climb *climb,
                                              const struct erg_layout *layout,
                                              double *hop_latency_s);

/*
 * The options of every instruction, the highest clock first; recipe: the clock in MHz. The solver
 * knows one power of waiting for all stages, the mean. While a stage works it does not wait, so
 * what its own GPUs would draw more or less than that is taken off or added there; over the
 * iteration both come out right. tables[2 * stages * chunks], to be released one by one.
 */
void erg_layout_climb_tables(struct erg_frontier *tables, const struct erg_layout_climb *climb,
                             const struct erg_layout *layout);

/* What follows the pipeline, at the clocks of the ladders' tails. */
void erg_layout_climb_tail(struct erg_layout_tail *tail, const struct erg_layout_climb *climb,
                           const struct erg_layout *layout);

/* Of the pipeline alone with everything at the highest clocks, or at the lowest, as its schedule
 * says: some ten nanoseconds an instruction. */
double erg_layout_climb_time(const struct erg_layout_climb *climb, const struct erg_layout *layout,
                             bool lowest);

#endif
