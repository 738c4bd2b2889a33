/*
 * Programme: the clocks of one rank over the instructions of a step, by a point of a plan.
 *
 * A plan gives each instruction the clock that is best for it alone. A GPU needs milliseconds to
 * change its clock, and frequent changes disturb the exchanges between GPUs. So instructions form
 * groups, each with one clock, the highest planned clock of its members: no instruction gets slower
 * than planned, and the iteration does not take longer. Among all ways to cut the step into groups
 * that last at least a dwell, the programme takes the one with the least energy by the plan's own
 * options. A GPU whose instruction ends early waits, which costs energy, too. Then changes that are
 * too small, save too little, or come too often are removed by raising the lower clock.
 *
 * Method: shortest path over the positions where a group may begin. Cutting a group into two that
 * both reach the dwell never costs more. So the search skips such groups, and its running time
 * grows with the number of instructions in the step times that in a dwell.
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
    double dwell_s;                         /* shortest group; 0: no limit */
    double least_change_mhz;
    double least_saving;   /* of a group's energy, as a share */
    double least_period_s; /* the least seconds per change within any second; 0: no limit */
};

/* The settings for the clocks of a trainer other than ergon's. */
struct erg_programme_input {
    const char *method; /* NULL: "sequential+clocks" */
    size_t number; /* of the point, from 1; 0: the selected one of that method, or the fastest */
    long stage;
    bool clocks_only; /* also accept a method whose passes only ergon's own training can run */
};

/* ERG_USAGE names the missing part of the plan, or a method whose passes cannot be followed. */
int erg_programme_choose(const struct erg_plan *plan, const struct erg_programme_input *input,
                         enum erg_method *method, size_t *point, struct erg_error *err);

/*
 * The clock itself or the next higher one that the GPU has; 0: the GPU has none that high.
 * `supported` as above.
 */
int erg_programme_clock(const struct erg_clock_list *supported, int clock_mhz);

/*
 * ERG_USAGE if the plan lacks clocks for a stage because its GPUs chose them, or if the GPU's
 * highest clock is below the plan's.
 */
int erg_programme_check(const struct erg_plan *plan, size_t stage,
                        const struct erg_clock_list *supported, struct erg_error *err);

/* For a machine whose clocks were not measured. */
#define ERG_PROGRAMME_DWELL_S 0.05
#define ERG_PROGRAMME_LEAST_CHANGE_MHZ 30
#define ERG_PROGRAMME_LEAST_SAVING 0.002
#define ERG_PROGRAMME_LEAST_PERIOD_S 0.1

/* Sets the bounds of a hook's programmes from user options. 0 or NaN: the number above. */
void erg_programme_bound(struct erg_programme_request *request, double dwell_s,
                         double least_change_mhz);

struct erg_programme_group {
    uint32_t first, end; /* positions in the stage's order: [first, end) */
    int clock_mhz;
};

struct erg_programme_pass {
    int planned_mhz;        /* or the next higher clock that the GPU has */
    double start_s, time_s; /* as planned; measured seconds include the stack's overhead */
    uint32_t group;
};

struct erg_programme {
    struct erg_programme_pass *passes; /* [count], in the stage's order */
    uint32_t count;
    struct erg_programme_group *groups;
    uint32_t group_count;
    int highest_mhz;                   /* highest clock that the plan considered for these GPUs */
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
