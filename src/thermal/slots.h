/*
 * Chooses the slots of a node for each tensor group, since GPUs in different slots are not equally
 * cool; slots_nodes.h does so for several nodes, and moves layers.
 *
 * The time of a stage for a microbatch is that of its slowest GPU, and an iteration takes
 * (microbatches + stages - 1) times that of the slowest stage. Powers, temperatures and clocks
 * depend on each other and are solved together. Each GPU runs at the highest clock that its power
 * cap and the chassis' limit allow, and draws waiting power for the rest of the time.
 */
#ifndef ERG_THERMAL_SLOTS_H
#define ERG_THERMAL_SLOTS_H

#include "thermal/thermal.h"

/* Busy power: static (1 + leak (T - reference)) + other + dynamic f v(f)^2, with f relative to the
 * reference clock; v is 1 up to the knee, and rises above it. */
struct erg_slots_gpu {
    double lowest_mhz, highest_mhz, reference_mhz;
    double static_w, leak_per_k, reference_c;
    double other_w, dynamic_w;
    double waiting_w; /* at the reference temperature; leaks like static_w */
    double voltage_knee_mhz, voltage_slope_per_ghz;
    double cap_w;
};

enum erg_slots_goal {
    ERG_SLOTS_TIME,   /* the shortest iteration, then the least energy */
    ERG_SLOTS_ENERGY, /* the least energy of an iteration */
    ERG_SLOTS_HEAT,   /* the lowest temperature of the hottest GPU, then the shortest iteration */
};

struct erg_slots_request {
    const struct erg_chassis *chassis; /* has constant fans and the limit ERG_HEAT_HOLD */
    struct erg_slots_gpu gpu;
    int groups;           /* of the node, with gpus / groups GPUs each */
    const int *layers;    /* [groups] layers of each group */
    const double *more_s; /* [groups] time of a microbatch in addition to its layers; NULL: none */
    double compute_s;     /* per layer and microbatch at the reference clock; proportional to 1 /
                           * f */
    double fixed_s;       /* per layer and microbatch; independent of the clock */
    int microbatches, stages;
    double other_s; /* time of the slowest stage of other nodes, per microbatch; 0: none */
    enum erg_slots_goal goal;
    bool pace; /* lower the clock of a GPU that would wait, as far as the slowest stage
                * allows */
};

/* A placement and its results. */
struct erg_slots_placement {
    int group[ERG_CHASSIS_GPUS];  /* group of each slot */
    int layers[ERG_CHASSIS_GPUS]; /* layers of each group */
    double clock_mhz[ERG_CHASSIS_GPUS], temperature_c[ERG_CHASSIS_GPUS];
    double mean_w[ERG_CHASSIS_GPUS];
    double time_s;   /* of an iteration */
    double energy_j; /* of the node, per iteration */
    double hottest_c;
};

/* Computes the results for the groups and layers in `placement`. */
void erg_slots_evaluate(const struct erg_slots_request *request,
                        struct erg_slots_placement *placement);

/* Fills the slots in the order of the groups, as launchers do. */
void erg_slots_given(const struct erg_slots_request *request,
                     struct erg_slots_placement *placement);

/* The group with the most layers takes the coolest slots, and so on; computes no results. */
void erg_slots_cold_first(const struct erg_slots_request *request,
                          struct erg_slots_placement *placement);

struct erg_slots_found {
    struct erg_slots_placement given, best;
    bool exact;    /* all placements of the given layers were evaluated */
    size_t looked; /* number of placements evaluated */
};

/*
 * Evaluates all distinct placements, up to about ten thousand; lanes that are alike count once.
 * Beyond that it exchanges slots until no exchange helps. ERG_FAILED if groups do not fill the
 * slots evenly, or if the chassis has a regulated fan or the proportional law.
 */
int erg_slots_place(const struct erg_slots_request *request, struct erg_slots_found *found,
                    struct erg_error *err);

#endif
