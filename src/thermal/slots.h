/*
 * Which slots of a node each tensor group takes, and how many layers, where GPUs are not equally
 * cool.
 *
 * A pipeline of stages, one tensor group each; the groups of one node are placed, and all nodes are
 * like it. A stage's time for a microbatch is that of its slowest GPU, and the iteration takes
 * (microbatches + stages - 1) times that of the slowest stage: powers, temperatures and clocks
 * follow from each other. Each GPU runs at the highest clock that its cap and the chassis' limit
 * allow, and draws its waiting power for the rest of the time.
 */
#ifndef ERG_THERMAL_SLOTS_H
#define ERG_THERMAL_SLOTS_H

#include "thermal/thermal.h"

/* Busy power: static (1 + leak (T - reference)) + other + dynamic f v(f)^2, the last relative to
 * the reference clock; v is 1 up to the knee, and rises above it. */
struct erg_slots_gpu {
    double lowest_mhz, highest_mhz, reference_mhz;
    double static_w, leak_per_k, reference_c;
    double other_w, dynamic_w;
    double waiting_w; /* at the reference temperature; leaks as static_w */
    double voltage_knee_mhz, voltage_slope_per_ghz;
    double cap_w;
};

enum erg_slots_goal {
    ERG_SLOTS_TIME,   /* the shortest iteration, then the least energy */
    ERG_SLOTS_ENERGY, /* the least energy of an iteration */
    ERG_SLOTS_HEAT,   /* the coolest hottest GPU, then the shortest iteration */
};

struct erg_slots_request {
    const struct erg_chassis *chassis; /* constant fans, limit ERG_HEAT_HOLD */
    struct erg_slots_gpu gpu;
    int groups;           /* of the node; they have as many GPUs each as fill its slots */
    const int *layers;    /* [groups] */
    const double *more_s; /* [groups]: that a microbatch takes beside layers; NULL: nothing */
    double compute_s;     /* of a layer and microbatch at the reference clock: goes with 1 / f */
    double fixed_s;       /* and whatever the clock */
    int microbatches, stages;
    double other_s; /* the slowest stage of other nodes, for a microbatch; 0: none */
    enum erg_slots_goal goal;
    bool pace;        /* a GPU that would wait runs no faster than the slowest stage needs */
    bool move_layers; /* between the groups of the node; none gets less than one */
};

/* A placement, and what comes of it. */
struct erg_slots_placement {
    int group[ERG_CHASSIS_GPUS];  /* of each slot */
    int layers[ERG_CHASSIS_GPUS]; /* of each group */
    double clock_mhz[ERG_CHASSIS_GPUS], temperature_c[ERG_CHASSIS_GPUS];
    double mean_w[ERG_CHASSIS_GPUS];
    double time_s;   /* of an iteration */
    double energy_j; /* of the node, for an iteration */
    double hottest_c;
};

/* What comes of the groups and layers that `placement` has. */
void erg_slots_evaluate(const struct erg_slots_request *request,
                        struct erg_slots_placement *placement);

/* Slots in the order of the groups: what launchers do. */
void erg_slots_given(const struct erg_slots_request *request,
                     struct erg_slots_placement *placement);

struct erg_slots_found {
    struct erg_slots_placement given, best;
    bool exact;    /* all placements of the given layers were looked at */
    size_t looked; /* at so many */
    /* Of the gain by the goal, the share that is there because GPUs are not equally hot; NAN
     * without a gain. */
    double heat_share;
};

/*
 * Looks at all placements that differ by more than lanes which are alike, up to some ten thousand;
 * beyond that it exchanges slots until no exchange helps. With move_layers, layers and slots in
 * turn, at most three times. ERG_FAILED where groups do not fill the slots evenly, or the chassis
 * has a fan that is regulated or the proportional law.
 */
int erg_slots_place(const struct erg_slots_request *request, struct erg_slots_found *found,
                    struct erg_error *err);

#endif
