/*
 * Studies: training jobs one after the other, in every combination of model, layout, microbatch and
 * optimisation on one cluster. A YAML file lists the combinations:
 *
 *   name: h200-optimisation
 *   cluster: charllm-h200       # a name of data/clusters, or a path relative to this file
 *   engine: nemo-hopper         # a name of data/engines, or a path
 *   batch: 128                  # sequences of an iteration
 *   sequence: 2048              # tokens; here or in an entry
 *   points:
 *     - {model: gpt3-175b, layouts: ["t=2,p=16", "t=8,fsdp=4"], microbatch: [1, 4]}
 *   optimisations: [base, cc, act, cc+act]
 *   figures: [4, 8]
 *
 * The study runs the product of all lists. All lists of an entry except its layouts may also be at
 * the top level, as defaults of entries without their own:
 *
 *   microbatch, optimisations   # or overlap: [none, gradients, tensor, all], recompute: [full]
 *   layers: [equal, alternate+1, "21,19,21,19"]
 *   placement: [given, cold-first, search]
 *   clocks: [0, 1500]           # requested MHz; 0: the GPU's highest
 *   power_w: [0, 600]           # per GPU; 0: its own cap
 *   inlet_c: [29, 42]
 *   faults: [{node: 2, clock_share: 0.25}]   # a share of 1 is no fault
 *   lora: {rank: 32, targets: [qkv]}
 *
 * A point is the resolved form of a combination. Two combinations that resolve to the same values
 * are one point with two names, which runs once. Its ID is a hash of everything that its result
 * depends on, including the contents of the named files and the version of ergon.
 */
#ifndef ERG_CHARACTERIZE_STUDY_H
#define ERG_CHARACTERIZE_STUDY_H

#include "base/memory.h"
#include "ergon/error.h"
#include "hardware/engine.h"
#include "hardware/hardware.h"
#include "job/layout.h"
#include "model/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_chassis; /* thermal/ */

/* Communication that overlaps with compute; bits. */
enum {
    ERG_STUDY_OVERLAP_GRADIENTS = 1, /* sums of gradients and gathers of weights */
    ERG_STUDY_OVERLAP_TENSOR = 2,    /* exchanges of tensor groups */
};

enum erg_study_placement {
    ERG_STUDY_GIVEN,      /* ranks fill slots in the order of layout.h */
    ERG_STUDY_COLD_FIRST, /* early stages get the coolest slots */
    ERG_STUDY_SEARCH,     /* the best in energy and time */
};
extern const char *const erg_study_sensor_names[];    /* "hopper", "exact"; ends with NULL */
extern const char *const erg_study_placement_names[]; /* "given", …; ends with NULL */

enum { ERG_STUDY_NO_NODE = -1 };

/* Values common to all points of a file. */
struct erg_study_machine {
    const char *cluster_name, *engine_name;
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    const struct erg_chassis *chassis; /* NULL: no model of heat */
};

/* How points are measured. */
struct erg_study_measurement {
    const char *device; /* "emulated", or a device of `ergon train`: "cuda", "host" */
    uint64_t seed;
    long repeats; /* number of windows; emulated ones differ in the sensors' phases and noise */
    double settle_k_per_min;
    long settle_most_iterations;
    double record_period_ms;
    double settle_s, window_s; /* of real windows: the time before the first, and the length of
                                * each */
    const char *sensor;        /* "hopper", "exact" */
    bool trace_stages;         /* trace the kernels of one rank of each stage */
    double transient_s;        /* NaN: the steady state; else this time after a cold start */
};

/* The keys of a point. The study owns texts and pointers. */
struct erg_study_point {
    const struct erg_study_machine *machine;
    const struct erg_study_measurement *measuring;
    const char *model_name; /* as in the file: "gpt3-175b" */
    const struct erg_model *model;
    /* Degrees, microbatch, microbatches, sequence, recomputation and, if stages differ in layers,
     * chunk_layers. */
    struct erg_layout layout;
    const char *degrees; /* the file's text: "e=8,t=1,p=4" */
    long batch;          /* sequences of an iteration */
    unsigned overlap;    /* ERG_STUDY_OVERLAP_…, only bits that have an effect in this layout */
    enum erg_study_placement placement;
    double clock_mhz, power_w; /* 0: the GPU's */
    double inlet_c;            /* NaN: the chassis's */
    long fault_node;           /* node whose clocks are reduced; ERG_STUDY_NO_NODE: none */
    double fault_clock_share;
    long lora_rank;           /* 0: all weights are trained */
    const char *lora_targets; /* separated by commas: "qkv" */
    /* For an impossible layout, one sentence; the members of the layout above are then invalid. */
    const char *impossible;
    char id[17];
};

/* One combination of the file, as figures draw it. */
struct erg_study_mark {
    /* Unique in the study: "gpt3-175b/t=2,p=16/b=1/cc", made of the entry's model and layout and of
     * all unusual values. */
    const char *name;
    const char *label;        /* from the degrees: "TP2 PP16" */
    const char *optimisation; /* "base", "cc", …; otherwise what overlaps and is recomputed */
    const char *variant;      /* rest of the name, "inlet=42/lora=32"; "": all values are usual */
    size_t point;
    bool equal; /* an earlier mark has the same point */
};

struct erg_study {
    const char *name;
    struct erg_study_machine machine;
    struct erg_study_measurement measuring;
    struct erg_study_point *points;
    size_t point_count;
    struct erg_study_mark *marks; /* in the order of the file */
    size_t mark_count;
    const int *figures; /* numbers from the file; none: all figures for which there are points */
    size_t figure_count;
    struct erg_arena arena; /* private, like the rest */
    struct erg_chassis *chassis;
    uint64_t cluster_hash, engine_hash;
    struct erg_study_models *models;
};

/* Options of the caller that replace keys of the file. */
struct erg_study_change {
    bool seeded;
    uint64_t seed;
    double transient_s; /* NaN: none */
    const char *sensor; /* NULL: the file's */
    const char *device; /* NULL: emulated */
};

/* Reads the file and all files that it names. Errors have file and line. */
int erg_study_load(struct erg_study **study, const char *path,
                   const struct erg_study_change *change, struct erg_error *err);
void erg_study_free(struct erg_study *study); /* NULL is fine */

/* Returns true if `number` is a figure that can be drawn (report/figures). */
bool erg_study_has_figure(long number);

/* Everything that the result of a point depends on: its keys, and fingerprints of the named files.
 * New references. */
json_t *erg_study_keys(const struct erg_study_point *point);
json_t *erg_study_identity(const struct erg_study *study, const struct erg_study_point *point);

/* DIR/sweep.json, schema "ergon.characterize": all marks with the keys of their points. Returns a
 * new reference. */
json_t *erg_study_document(const struct erg_study *study);

#endif
