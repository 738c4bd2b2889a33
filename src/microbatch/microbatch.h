/*
 * Microbatch, the second of five scales (partition, microbatch, iteration, layout, cluster): from
 * partition frontiers to the options of an instruction.
 *
 * An instruction is one forward or backward of one microbatch on one stage. It runs at one
 * clock. Its layers run either as overlapped partitions, every partition type with one
 * configuration (launch slot, SMs), or as whole layers (sequential, or plain nanobatching),
 * measured as such. Times and energies of partitions add, so the options at one clock
 * are a Minkowski sum of the partitions' frontiers; the instruction's options are the union over
 * clocks and execution models. The composition is exact: nothing is dropped but what another
 * option beats in time and effective energy.
 *
 * Effective energy is E - blocking power * time: a GPU that finishes early waits at blocking power,
 * so the iteration minimises the sum of this quantity; its frontier contains the frontier of total
 * energy for every blocking power >= 0.
 *
 * Source: composition and switching of execution models, Kareus.
 */
#ifndef ERG_MICROBATCH_H
#define ERG_MICROBATCH_H

#include "ergon/frontier.h"

#include <stddef.h>
#include <stdint.h>

enum erg_mode {
    ERG_MODE_OVERLAP,    /* two nanobatches, partitions overlapped under their schedules */
    ERG_MODE_SEQUENTIAL, /* one microbatch, communication after compute */
    ERG_MODE_NANOBATCH,  /* two nanobatches, each communication started by the communication
                          * library as soon as its inputs are ready */
};
enum { ERG_MODES = ERG_MODE_NANOBATCH + 1 };

const char *erg_mode_name(enum erg_mode mode); /* "overlap", "sequential", "nanobatch" */
extern const char *const erg_mode_names[];     /* ends with NULL */

/* A time and an energy of one GPU. */
struct erg_cost {
    double time_s, energy_j;
};

/* The data of one partition type. */
struct erg_partition_table {
    int occurrences;                   /* in the composed work: a layer or a whole instruction */
    int kernels;                       /* the host launches this many per occurrence */
    const struct erg_frontier *clocks; /* one per clock: time and total energy of one occurrence;
                                        * recipe = configuration; empty = clock not available */
};

/*
 * How fast the host launches: the composed work takes at least host_per_kernel_s * kernels, blended
 * as (t^6 + host^6)^(1/6); the added time costs static_power_w. All zero for a runtime that replays
 * captured graphs.
 */
struct erg_host_model {
    double host_per_kernel_s;
    double static_power_w; /* at most the blocking power, or sums would be dropped too early */
};

struct erg_cost erg_host_floor(const struct erg_host_model *host, struct erg_cost layer,
                               int kernels);

/*
 * The partitions of one layer, or of a whole instruction; `occurrences` decides which.
 */
struct erg_layer;

/*
 * Composes `count` partition types over `clock_count` clocks. A clock that one type lacks is
 * not available. Never fails; `tables` is not referenced after the call. The filter below needs the
 * same blocking_power_w.
 */
struct erg_layer *erg_layer_compose(const struct erg_partition_table *tables, size_t count,
                                    size_t clock_count, const struct erg_host_model *host,
                                    double blocking_power_w);
void erg_layer_free(struct erg_layer *layer);

struct erg_microbatch_option {
    double time_s, energy_j; /* the instruction on one GPU, total energy */
    enum erg_mode mode;
    int clock;               /* index of the clock */
    int64_t *configurations; /* overlap: [partition types], in the order of the tables; else NULL */
};

/* The options of one instruction; after the filter: time up, effective energy strictly down. */
struct erg_microbatch {
    struct erg_microbatch_option *options;
    size_t count, capacity;
    size_t partition_count;
};

/*
 * Adds the options of `layers` times the composed partitions plus the work outside partitions,
 * fixed[clock_count] (embedding, head, loss; zeros where a stage has none), except those that
 * another one beats. Adds nothing without partition types.
 */
void erg_microbatch_add_overlap(struct erg_microbatch *microbatch, const struct erg_layer *layer,
                                int layers, const struct erg_cost *fixed);

/*
 * Adds one option per clock: `layers` whole layers, cost[clock_count] measured as such, with
 * `kernels` host launches each, plus the fixed work. A time of 0 means: not available.
 */
void erg_microbatch_add_whole(struct erg_microbatch *microbatch, enum erg_mode mode,
                              const struct erg_cost *cost, int kernels, int layers,
                              const struct erg_cost *fixed, size_t clock_count,
                              const struct erg_host_model *host);

/* Keeps what nothing beats in (time, effective energy). Call once after all additions. */
void erg_microbatch_filter(struct erg_microbatch *microbatch, double blocking_power_w);
void erg_microbatch_release(struct erg_microbatch *microbatch);

#endif
