/* Declarations shared by the parts of ergon's own policy; ergon.c explains the policy. */
#ifndef ERG_CLUSTER_POLICIES_ERGON_INTERNAL_H
#define ERG_CLUSTER_POLICIES_ERGON_INTERNAL_H

#include "cluster/policies/market.h"
#include "cluster/schedule/scheduler.h"

#include <stdbool.h>

/* How operating points are picked: by erg_menu_merit() with this thrift and these watts elsewhere.
 */
struct ergon_clocking {
    double thrift, rest_w;
};

/* The worth of a workload's progress at an operating point: one value selects the point, the other
 * one assigns GPUs; see erg_menu_merit(). */
struct ergon_worth {
    double clocked, shared;
};

/* GPUs that a workload can use. */
struct erg_menu_choice {
    int type, gpus;
    double samples_per_s; /* on the fastest locality */
    double iteration_s;
    int first_locality, localities; /* shapes in the menu's list, the fastest first */
    int shape;                      /* the fastest */
    size_t first_worth;             /* of the points on that shape; in the menu's list */
};

/*
 * All choices of a workload: for each type, the numbers of GPUs that are faster than any smaller
 * number of them.
 */
struct erg_menu {
    struct {
        struct erg_menu_choice *items;
        size_t count, capacity;
    } choices;
    struct {
        int *items;
        size_t count, capacity;
    } localities;
    /* Samples/s that count as one GPU equivalent: the best of one GPU, the mean over the fleet's
     * GPUs of the types on which it can run. */
    double unit;
    double fastest_s; /* an iteration on the fastest choice, */
    int fastest_gpus; /* and its number of GPUs */
    double least_j;   /* energy of a sample on the most economical choice and operating point */
    struct ergon_worth *worths;      /* ergon's alone, */
    struct ergon_clocking worths_by; /* the settings with which they were computed */
};

/* The menu of a job's workload, made at its first use; `menus`: of all workloads, initially
 * zero. */
const struct erg_menu *erg_menu_of(struct erg_menu *menus, const struct erg_scheduler *scheduler,
                                   int job);
void erg_menu_release(struct erg_menu *menu);

/*
 * The worth of a speed at an operating point: GPU equivalents times (`least_j` / energy of a
 * sample) to the power of `thrift`. One per cent less energy is worth `thrift` per cent more speed.
 * `rest_w`: power drawn elsewhere at the same time.
 */
double erg_menu_merit(const struct erg_menu *menu, double samples_per_s, int gpus,
                      const struct erg_operating_point *point, double rest_w, double thrift);

/* The thrift for the assignment of GPUs. */
#define ERGON_THRIFT 0.1

/* The time for which decisions look ahead. */
#define ERGON_HORIZON_S 3600.0

/* Power of a GPU without a job, above which the power of jobs counts; that of a switched-off GPU if
 * nodes are switched off. */
double erg_fleet_base_power(const struct erg_fleet *fleet, int type);

/* A job that gets GPUs, in the order of weights. */
struct erg_order {
    int job;
    const struct erg_menu *menu;
    const struct erg_menu_choice *choice; /* NULL: stays on the GPUs that it has */
    int point;                            /* the slowest if there are fewer */
};

/*
 * Gives the jobs their GPUs, the largest jobs first; other jobs keep theirs. If enough GPUs are
 * free but scattered, smaller jobs move. A job that cannot be placed gets no GPUs.
 */
void erg_orders_place(struct erg_scheduler *scheduler, const struct erg_order *orders,
                      size_t count);

/* Places one job on the fastest locality that has room; false if none has. */
bool erg_order_fit(struct erg_scheduler *scheduler, const struct erg_order *order);

/* A bidder's offers of free GPUs by falling value, equal ones in their order: the next after
 * `tried` (-1: the first); -1: there is none above 0. */
long erg_order_next_offer(const struct erg_scheduler *scheduler, const struct erg_market *market,
                          size_t bidder, long tried);

/* A job in this decision. */
struct ergon_bidder {
    int job;
    double work; /* left, in GPU-seconds */
    double weight;
    double remaining; /* iterations */
    double needed_s;  /* for them at the fastest */
    double critical;  /* 0 to 1: how far it delays the end of all work, */
    double rest_w;    /* and power of GPUs that idle at that time */
};

/* The choice behind an offer. */
struct ergon_bid {
    int choice; /* of the menu; -1: its present GPUs, though fewer of them were faster */
    bool stays; /* on the GPUs that it has */
    int point;
    double extra_w; /* beyond the base power of its GPUs */
};

/* The parameters of a variant: the worth of time relative to energy. */
struct ergon_taste {
    double thrift_free;    /* for the choice of operating points where GPUs are free */
    double idle_share;     /* a job's time costs its part of this share of the idle power */
    double critical_power; /* exponent of `critical`, by which it pays for all idle power: the
                            * closer a job is to the longest, the more likely it ends last */
};

struct ergon {
    struct erg_menu *menus; /* by workload; without choices: not made yet */
    size_t workloads;
    struct erg_market market; /* bidders in the order of `bidders`, offers in that of `bids` */
    struct {
        struct ergon_bidder *items;
        size_t count, capacity;
    } bidders;
    struct {
        struct ergon_bid *items;
        size_t count, capacity;
    } bids;
    struct {
        struct erg_order *items;
        size_t count, capacity;
    } orders;
    struct {
        double *items;
        size_t count, capacity;
    } rank_weights;        /* of the jobs with most work left, second most, ... */
    double *tenant_used_s; /* by tenant: GPU-seconds, decaying over a day */
    double decided_s;      /* time of the last decision; -INFINITY before the first */
    double power_price;    /* value of a watt below the cap; 0: the cap is kept without a price */
    double energy_price;   /* value of a watt for the energy that it takes */
    double rent_per_w;     /* worth of GPUs at the last clearing, per watt beyond their base
                            * power */
    double long_s;         /* a job is long if it needs this time at its fastest */
    double fleet_idle_w;   /* power of all GPUs when all idle */
    const struct ergon_taste *taste;
    struct ergon_clocking clocking; /* now */
};

/* Updates tenants' shares for the time since the last decision. */
void erg_bidders_keep_accounts(struct ergon *ergon, const struct erg_scheduler *scheduler);

/* Lists all jobs by falling work with their weights. */
void erg_bidders_weigh(struct ergon *ergon, const struct erg_scheduler *scheduler);

/* Clears the market, and finds the price of power where there is a cap. */
void erg_bids_clear(struct ergon *ergon, const struct erg_scheduler *scheduler);

#endif
