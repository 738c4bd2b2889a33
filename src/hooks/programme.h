/*
 * Programme: the clocks of one rank over the instructions of a step, by a point of a plan.
 *
 * A plan gives each instruction the clock that is best for it alone. A GPU needs milliseconds to
 * change, and changes that come too often disturb the exchanges between GPUs. So instructions are
 * put together into groups, each with one clock, the highest planned clock of its members: no
 * instruction gets slower than planned, and the iteration does not take longer. Among all ways to
 * cut the step into groups that last for at least a dwell, the cheapest in energy by the plan's own
 * options is taken; a GPU whose instruction ends earlier waits, which costs energy, too. Then
 * changes that are too small, save too little, or come too often are removed by raising the lower
 * clock.
 *
 * Method: shortest path over the positions where a group may begin. Cutting a group into two that
 * both reach the dwell never costs more, so such groups are skipped, and the running time grows
 * with the number of instructions in the step and in a dwell.
 */
#ifndef ERG_HOOKS_PROGRAMME_H
#define ERG_HOOKS_PROGRAMME_H

#include "plan/plan.h"
#include "telemetry/clocks.h"

struct erg_programme_request {
    const struct erg_plan *plan;
    const struct erg_plan_point *point;
    size_t stage;
    const struct erg_clock_list *supported; /* by the GPU; NULL: every clock of the plan */
    double dwell_s;                         /* at least; 0: none */
    double least_change_mhz;
    double least_saving;   /* of a group's energy, as a share */
    double least_period_s; /* the least seconds per change within any second; 0: no limit */
};

/* The settings for the clocks of a trainer other than ergon's. */
struct erg_programme_wish {
    const char *method; /* NULL: "sequential+clocks" */
    size_t number; /* of the point, from 1; 0: the selected one if it is of that method, else the
                      fastest */
    long stage;
    bool clocks_only; /* of a method whose passes only ergon's own training can run, too */
};

/* ERG_USAGE names the missing part of the plan, or a method whose passes cannot be followed. */
int erg_programme_choose(const struct erg_plan *plan, const struct erg_programme_wish *wish,
                         enum erg_method *method, size_t *point, struct erg_error *err);

/* The clock itself or the next higher one that the GPU has; 0: it has none as high. `supported` as
 * above. */
int erg_programme_clock(const struct erg_clock_list *supported, int clock_mhz);

/*
 * ERG_USAGE where the plan lacks clocks for a stage because its GPUs chose them, and where the
 * GPU's highest clock is below the plan's.
 */
int erg_programme_check(const struct erg_plan *plan, size_t stage,
                        const struct erg_clock_list *supported, struct erg_error *err);

/* Where nothing is known of a machine's clocks. */
#define ERG_PROGRAMME_DWELL_S 0.05
#define ERG_PROGRAMME_LEAST_CHANGE_MHZ 30
#define ERG_PROGRAMME_LEAST_SAVING 0.002
#define ERG_PROGRAMME_LEAST_PERIOD_S 0.1

/* Sets the bounds of a hook's programmes from user options: where one is 0 or NaN, the number above
 * is the default. */
void erg_programme_bound(struct erg_programme_request *request, double dwell_s,
                         double least_change_mhz);

struct erg_programme_group {
    uint32_t first, end; /* positions in the stage's order: [first, end) */
    int clock_mhz;
};

struct erg_programme_pass {
    int planned_mhz;        /* or the next higher clock that the GPU has */
    double start_s, time_s; /* as planned, measured seconds: the stack's overhead is in them */
    uint32_t group;
};

struct erg_programme {
    struct erg_programme_pass *passes; /* [count], in the stage's order */
    uint32_t count;
    struct erg_programme_group *groups;
    uint32_t group_count;
    int highest_mhz;                   /* that the plan considered for these GPUs */
    double step_s;                     /* an iteration */
    uint32_t changes, planned_changes; /* in a step, from one instruction to another */
    /* The cost of one GPU's instructions in a step, by the plan's options; planned: each at its own
     * clock. */
    double energy_j, planned_j;
};

/* Fails as erg_programme_check() does. */
int erg_programme_init(struct erg_programme *programme, const struct erg_programme_request *request,
                       struct erg_error *err);
void erg_programme_release(struct erg_programme *programme);

#endif
