/* What the parts of ergon's own policy share; policy_ergon.c says what it does and why. */
#ifndef ERG_CLUSTER_ERGON_INTERNAL_H
#define ERG_CLUSTER_ERGON_INTERNAL_H

#include "cluster/market.h"
#include "cluster/scheduler.h"

/* GPUs that a workload can make use of. */
struct ergon_choice {
    int type, gpus;
    double samples_per_s; /* on the fastest locality */
    double iteration_s;
    int first_locality, localities; /* shapes, the fastest first; in the menu's list */
    int point;                      /* with the most merit */
    double merit;                   /* there; see ergon_merit() */
};

/*
 * All that a workload can be given: of each type the numbers of GPUs that are faster than any
 * smaller number of them.
 */
struct ergon_menu {
    struct {
        struct ergon_choice *items;
        size_t count, capacity;
    } choices;
    struct {
        int *items;
        size_t count, capacity;
    } localities;
    /* Samples/s that count as one GPU equivalent: what a GPU of the fleet gives it at best, in the
     * mean over GPUs of those types that it can run on. */
    double unit;
    double least_j; /* energy of a sample on the most economical choice and operating point */
};

void ergon_menu_make(struct ergon_menu *menu, const struct erg_scheduler *scheduler, int workload);
void ergon_menu_release(struct ergon_menu *menu);

/*
 * What a speed at an operating point is worth: GPU equivalents, less what the energy of a sample
 * takes from it: `least_j / energy`, to the power of ERGON_ENERGY.
 */
double ergon_merit(const struct ergon_menu *menu, double samples_per_s, int gpus,
                   const struct erg_operating_point *point);

/* A hundredth less energy is worth as much as this share of a hundredth more speed. */
#define ERGON_ENERGY 0.3

/* A job that is to have GPUs, in the order of weights. */
struct ergon_order {
    int job;
    const struct ergon_menu *menu;
    const struct ergon_choice *choice; /* NULL: stays on the GPUs that it has */
    int point;
};

/*
 * Gives the jobs their GPUs, larger numbers first; those not named keep theirs. Where GPUs are free
 * but scattered, smaller jobs move. What cannot be placed is left without GPUs.
 */
void ergon_place(struct erg_scheduler *scheduler, const struct ergon_order *orders, size_t count);

/* Places one job on the fastest locality that has room; false where none has. */
bool ergon_fit(struct erg_scheduler *scheduler, const struct ergon_order *order);

#endif
