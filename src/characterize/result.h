/*
 * The result of one point of a sweep: the document points/ID.json, schema "ergon.point" version 1.
 *
 * Emulated and measured points have the same document. An unknown number with a fraction is NaN,
 * and has no key in the document; nothing unknown is 0. Units: seconds, watts, joules, degrees
 * Celsius, MHz, bytes. Shares are of time, from 0 to 1.
 *
 * Three kinds of peak: "peak" is the true highest value, "sensor_peak" the highest reading of the
 * sensor, "p99" the value that is exceeded for a hundredth of the time.
 */
#ifndef ERG_CHARACTERIZE_RESULT_H
#define ERG_CHARACTERIZE_RESULT_H

#include "base/memory.h"
#include "ergon/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum erg_result_status {
    ERG_RESULT_OK,
    ERG_RESULT_MEMORY,     /* does not fit; `message` names the stage, its largest item and the
                            * missing bytes */
    ERG_RESULT_IMPOSSIBLE, /* an impossible layout */
    ERG_RESULT_FAILED,
    ERG_RESULT_SKIPPED,
};
extern const char *const erg_result_status_names[]; /* "ok", "memory", …; ends with NULL */

enum erg_result_source { ERG_RESULT_EMULATED, ERG_RESULT_MEASURED };
extern const char *const erg_result_source_names[]; /* "emulated", "measured"; ends with NULL */

/* A quantity over the time of an iteration. For several GPUs: the mean of their means, the smallest
 * minimum and the largest maximum. */
struct erg_result_series {
    double mean, least, peak, sensor_peak, p99;
};

/* Bytes on the links of one GPU in an iteration, one direction; or of all GPUs together. PCIe
 * includes bytes to the network, and copies to and from host memory. */
struct erg_result_bytes {
    double nvlink, pcie, network;
};

struct erg_result_metrics {
    double time_s;        /* of an iteration */
    double samples_per_s; /* sequences of the batch */
    double tokens_per_s_gpu;
    double mfu;
    double energy_j;        /* of an iteration, all GPUs, exact */
    double sensor_energy_j; /* from the energy counters */
    double j_per_token, tokens_per_j;
    double eff_edp; /* samples / (s MJ): weights speed twice */
    struct erg_result_series power_w, temperature_c, memory_temperature_c;
    double clock_mhz;                /* weighted by time, including waits */
    double busy_clock_mhz;           /* while it works */
    double cap_share, thermal_share; /* shares of busy time below the requested clock, by cause */
    double bubble;                   /* share of an iteration in which stages wait for others */
    double exposed_share;            /* share of an iteration with communication that no compute
                                      * hides */
    struct erg_result_bytes bytes;   /* sent, all GPUs */
    double network_use; /* bytes that a node sends, as a share of its network's capacity;
                         * mean over nodes */
    double temperature_imbalance, power_imbalance,
        busy_imbalance; /* largest over mean of the GPUs */
    double noise; /* of time_s: largest over smallest repeat, minus 1; unknown with one repeat */
};

struct erg_result_gpu {
    long rank; /* among all GPUs */
    long node, local;
    const char *slot; /* "front", "rear", … of the chassis; NULL: no chassis */
    long tensor, context, data, expert, stage; /* coordinates, from 0 */
    struct erg_result_series power_w, temperature_c, memory_temperature_c;
    double energy_j;
    double busy_share; /* share of working time; the rest is waiting */
    double clock_mhz, busy_clock_mhz;
    double cap_share, thermal_share;
    struct erg_result_bytes sent, received;
};

/* The time of an iteration on one GPU of a stage, by activity; mean over the stage's GPUs. */
struct erg_result_stage {
    long stage, layers;
    double forward_s, backward_s; /* of layers, including recomputation */
    double head_s;
    double spin_s;     /* in collectives, waiting for a slower GPU of the group */
    double message_s;  /* exposed messages between stages */
    double wait_s;     /* for other stages */
    double gradient_s; /* sums of gradients, gathers of weights */
    double optimizer_s;
    double total_s; /* the sum: an iteration */
};

/* Kernels of a traced GPU in an iteration, in one of 8 categories. */
struct erg_result_category {
    const char *name; /* "MatMul", "SendRecv", … */
    double summed_s;  /* over all streams */
    double exposed_s; /* not covered by others: communication without compute at the same time */
    double wait_s;    /* part of exposed_s: until the last peer arrived */
    double count;     /* of kernels */
    double energy_j;
};

struct erg_result_kernels {
    long rank, stage;
    struct erg_result_category *categories;
    size_t category_count;
    double idle_s, idle_j; /* no kernel runs */
};

/* Bytes of all GPUs in an iteration, by kind. */
struct erg_result_link {
    const char *kind; /* "tensor", "pipeline", "gradients", "experts", "fsdp", … */
    double nvlink, network;
};

/* Items with the names of `ergon layout` and `ergon memory`. */
struct erg_result_item {
    const char *name;
    double value;
};
struct erg_result_items {
    struct erg_result_item *items;
    size_t count;
};

/* An iteration after a cold start: means over all GPUs, except the peak. */
struct erg_result_moment {
    double begin_s, time_s;
    double power_w, temperature_c, peak_temperature_c;
};

/* One window. */
struct erg_result_repeat {
    double time_s, energy_j, sensor_energy_j;
    double mean_power_w, sensor_peak_power_w;
    double mean_temperature_c, sensor_peak_temperature_c;
};

struct erg_study_result {
    const char *id;
    const json_t *point;    /* the keys, as in sweep.h; NULL: none */
    const json_t *identity; /* fingerprints of everything that the result depends on; NULL: none */
    enum erg_result_status status;
    const char *message; /* one sentence if the status is not ok; else NULL */
    enum erg_result_source source;
    long gpus, nodes, node_gpus;
    struct erg_result_metrics metrics;
    struct erg_result_gpu *gpu; /* [rank]; empty unless ok */
    size_t gpu_count;
    struct erg_result_stage *stages;
    size_t stage_count;
    struct erg_result_kernels *kernels; /* one GPU of each stage */
    size_t kernels_count;
    struct erg_result_link *links;
    size_t link_count;
    struct erg_result_items memory_bytes; /* of the GPU that needs most */
    struct erg_result_items time_s;       /* of the closed form, with the highest clocks at the
                                           * reference temperature */
    struct erg_result_items energy_j;     /* the same, all GPUs */
    struct erg_result_repeat *repeats;
    size_t repeat_count;
    struct erg_result_moment *course; /* after a cold start; empty for a steady state */
    size_t course_count;
    const char **flags; /* sentences: peculiarities that readers of the numbers must be aware of */
    size_t flag_count;
};

/* Sets all numbers with a fraction to NaN and all lists to empty. */
void erg_study_result_init(struct erg_study_result *result);
void erg_result_gpu_init(struct erg_result_gpu *gpu);

/* Returns a new reference. */
json_t *erg_study_result_json(const struct erg_study_result *result);
/* The arena owns texts and lists; `point` and `identity` are borrowed from `root`. Error messages
 * have file, line (if `text` is given) and key. */
int erg_study_result_from_json(struct erg_study_result *result, const json_t *root,
                               const char *name, const char *text, size_t length,
                               struct erg_arena *arena, struct erg_error *err);

/* Writes or reads a file; a write goes to a temporary name first. After a read, *root owns what the
 * result borrows: release it after the result (json_decref). */
int erg_study_result_write(const struct erg_study_result *result, const char *path,
                           struct erg_error *err);
int erg_study_result_read(struct erg_study_result *result, json_t **root, const char *path,
                          struct erg_arena *arena, struct erg_error *err);

#endif
