/*
 * Studies: one training job after the other, in every combination of model, layout, microbatch and
 * optimisation on one cluster. A YAML file says which:
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
 * Lists multiply. All of an entry's lists but its layouts may stand at the top, too, for the
 * entries that have none of their own:
 *
 *   microbatch, optimisations   # or overlap: [none, gradients, tensor, all], recompute: [full]
 *   layers: [equal, alternate+1, "21,19,21,19"]
 *   placement: [given, cold-first, search]
 *   clocks: [0, 1500]           # MHz that are asked for; 0: the GPU's highest
 *   power_w: [0, 600]           # of a GPU; 0: its own cap
 *   inlet_c: [29, 42]
 *   faults: [{node: 2, clock_share: 0.25}]   # a share of 1 is no fault
 *   lora: {rank: 32, targets: [qkv]}
 *
 * A point is what one combination comes to. Two combinations that come to the same are one point
 * with two names: it runs once. Its ID is a hash of all that its result depends on, the contents of
 * the files that it names and the version of ergon included, and of nothing else.
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

/* What a communication runs beside compute for; bits. */
enum {
    ERG_STUDY_OVERLAP_GRADIENTS = 1, /* sums of gradients and gathers of weights */
    ERG_STUDY_OVERLAP_TENSOR = 2,    /* exchanges of tensor groups */
};

enum erg_study_placement {
    ERG_STUDY_GIVEN,      /* ranks fill slots in the order of layout.h */
    ERG_STUDY_COLD_FIRST, /* early stages have the coolest slots */
    ERG_STUDY_SEARCH,     /* what is best by energy and time */
};
extern const char *const erg_study_placement_names[]; /* "given", …; ends with NULL */

enum { ERG_STUDY_NO_NODE = -1 };

/* What the points of a file share. */
struct erg_study_machine {
    const char *cluster_name, *engine_name;
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    const struct erg_chassis *chassis; /* NULL: GPUs do not heat each other */
};

/* How a point is measured. */
struct erg_study_measuring {
    const char *device; /* "emulated", or that of `ergon train`: "cuda", "host" */
    uint64_t seed;
    long repeats; /* windows; emulated ones differ in the sensors' phases and noise */
    double settle_k_per_min;
    long settle_most_iterations;
    double record_period_ms;
    double settle_s, window_s; /* of real windows: so long before them, and each of them */
    const char *sensor;        /* "hopper", "exact" */
    bool trace_stages;         /* kernels of one rank of each stage */
    double transient_s;        /* NaN: the steady state; else so long from a cold start */
};

/* The keys of a point. Texts and pointers live as long as the study. */
struct erg_study_point {
    const struct erg_study_machine *machine;
    const struct erg_study_measuring *measuring;
    const char *model_name; /* as in the file: "gpt3-175b" */
    const struct erg_model *model;
    /* Degrees, microbatch, microbatches, sequence, recomputation and, where stages differ in
     * layers, chunk_layers. */
    struct erg_layout layout;
    const char *degrees; /* the text in the file: "e=8,t=1,p=4" */
    long batch;          /* sequences of an iteration */
    unsigned overlap;    /* ERG_STUDY_OVERLAP_…, of those that change anything in this layout */
    enum erg_study_placement placement;
    double clock_mhz, power_w; /* 0: as the GPU has it */
    double inlet_c;            /* NaN: as the chassis has it */
    long fault_node;           /* whose clocks are down to a share; ERG_STUDY_NO_NODE: none */
    double fault_clock_share;
    long lora_rank;           /* 0: every weight is trained */
    const char *lora_targets; /* "qkv", with commas between */
    /* One sentence where the layout cannot be; then nothing above of the layout may be used. */
    const char *impossible;
    char id[17];
};

/* One combination of the file, as figures draw it. */
struct erg_study_mark {
    /* "gpt3-175b/t=2,p=16/b=1/cc": of the entry's model and layout and of what is not usual. Unique
     * in the study. */
    const char *name;
    const char *label;        /* of the degrees: "TP2 PP16" */
    const char *optimisation; /* "base", "cc", …; else what overlaps and is recomputed */
    const char *variant;      /* the rest of the name, "inlet=42/lora=32"; "": nothing unusual */
    size_t point;
    bool equal; /* another mark, before this one, is of the same point */
};

struct erg_study {
    const char *name;
    struct erg_study_machine machine;
    struct erg_study_measuring measuring;
    struct erg_study_point *points;
    size_t point_count;
    struct erg_study_mark *marks; /* in the order of the file */
    size_t mark_count;
    const int *figures; /* numbers that the file wants; none: all that its points fill */
    size_t figure_count;
    struct erg_arena arena; /* private, like the rest */
    struct erg_chassis *chassis;
    uint64_t cluster_hash, engine_hash;
    struct erg_study_models *models;
};

/* What the caller says in place of the file. */
struct erg_study_change {
    bool seeded;
    uint64_t seed;
    double transient_s; /* NaN: none */
    const char *sensor; /* NULL: as the file says */
    const char *device; /* NULL: emulated */
};

/* Reads the file and all that it names. Every error says file and line. */
int erg_study_load(struct erg_study **study, const char *path,
                   const struct erg_study_change *change, struct erg_error *err);
void erg_study_free(struct erg_study *study); /* NULL is fine */

/* Whether `number` is a figure that can be drawn (report/figures). */
bool erg_study_has_figure(long number);

/* All that the result of a point depends on: its keys, and fingerprints of what it names. New
 * references. */
json_t *erg_study_keys(const struct erg_study_point *point);
json_t *erg_study_identity(const struct erg_study *study, const struct erg_study_point *point);

/* DIR/sweep.json, schema "ergon.characterize": all marks with the keys of their points. A new
 * reference. */
json_t *erg_study_document(const struct erg_study *study);

#endif
