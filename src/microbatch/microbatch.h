/*
 * Microbatch (scale 2): from partition frontiers to the options of an instruction.
 *
 * An instruction is one forward or backward of one microbatch on one stage. It runs at one
 * clock. Its layers run either as overlapped partitions, every partition type with one
 * configuration (launch slot, SMs), or as a whole layer (sequential, or plain nanobatching)
 * that was measured as such. Times and energies of partitions add, so the options at one clock
 * are a Minkowski sum of the partitions' frontiers; the instruction's options are the union over
 * clocks and execution models. The composition is exact: nothing is dropped but what another
 * option beats in time and effective energy, and no factor is applied.
 *
 * Effective energy is e - blocking power * time: a GPU that finishes early waits at blocking power,
 * so the iteration minimises the sum of this quantity; its frontier contains the frontier of total
 * energy for every blocking power >= 0.
 *
 * Sources: Kareus section 3.3 (Algorithm 2) and 5.1; execution-model switching, section 5.2.
 */
#ifndef ERG_MICROBATCH_H
#define ERG_MICROBATCH_H

#include "ergon/frontier.h"

#include <stddef.h>
#include <stdint.h>

enum erg_mode {
    ERG_MODE_OVERLAP,    /* two nanobatches, partitions overlapped under their schedules */
    ERG_MODE_SEQUENTIAL, /* one microbatch, communication after compute */
    ERG_MODE_NANOBATCH,  /* two nanobatches, communication launched at once by the library */
};
enum { ERG_MODES = ERG_MODE_NANOBATCH + 1 };

const char *erg_mode_name(enum erg_mode mode); /* "overlap", "sequential", "nanobatch" */
extern const char *const erg_mode_names[];     /* ends with NULL */

/* A time and an energy of one GPU. */
struct erg_cost {
    double time_s, energy_j;
};

/* The data of one partition type of a layer. */
struct erg_partition_table {
    int occurrences;                   /* per layer, in this instruction */
    int kernels;                       /* the host launches this many per occurrence */
    const struct erg_frontier *clocks; /* [clock_count]: time and total energy of one occurrence;
                                          recipe = configuration; empty = clock not available */
};

/*
 * How fast the host launches: a layer takes at least host_per_kernel_s * kernels, blended as
 * (t^6 + host^6)^(1/6); the added time costs idle_power_w. All zero for a runtime that replays
 * captured graphs.
 */
struct erg_host_model {
    double host_per_kernel_s;
    double idle_power_w;
};

struct erg_cost erg_host_floor(const struct erg_host_model *host, struct erg_cost layer,
                               int kernels);

/*
 * Partitions composed: of one layer, or of all layers of an instruction, as often as the tables'
 * occurrences say.
 */
struct erg_layer;

/*
 * Composes `count` partition types over `clock_count` clocks. A clock that one type lacks is
 * not available. Never fails; `tables` is not referenced after the call.
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

/* The options of one instruction: time up, effective energy strictly down. */
struct erg_microbatch {
    struct erg_microbatch_option *options;
    size_t count, capacity;
    size_t partition_count;
};

/*
 * Adds the options of `layers` overlapped layers plus the work outside partitions,
 * fixed[clock_count] (embedding, head, loss; zeros where a stage has none).
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
