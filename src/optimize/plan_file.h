/*
 * Plan files: reading back what `ergon optimize` wrote (docs/plan-format.md).
 *
 * A file is believed only after a complete check: schema and version, types, ranges, every index,
 * every instruction list against the pipeline's schedule, and every point's time and energy
 * against what its own instructions add up to. So whoever holds a struct erg_plan_file need not
 * check again. What is only there to be looked at (timelines, the search's progress) is not read.
 *
 * Energies of options are those of one GPU and one instruction; energies of points those of all
 * GPUs of one pipeline and one iteration.
 */
#ifndef ERG_OPTIMIZE_PLAN_FILE_H
#define ERG_OPTIMIZE_PLAN_FILE_H

#include "base/memory.h"
#include "ergon/error.h"
#include "iteration/iteration.h"
#include "microbatch/microbatch.h"
#include "optimize/methods.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* How one partition type runs: its communication starts before operation `slot` on `sms` SMs. */
struct erg_plan_configuration {
    const char *partition, *slot;
    int sms;
};

struct erg_plan_option {
    double time_s, energy_j;
    int clock_mhz;
    enum erg_mode mode;
    struct erg_plan_configuration *configurations; /* of mode overlap */
    size_t configuration_count;
};

/* The options of one virtual stage in one direction. */
struct erg_plan_options {
    struct erg_plan_option *items;
    size_t count;
};

struct erg_plan_point {
    double time_s, energy_j;
    double planned_time_s, planned_energy_j; /* as in struct erg_plan */
    double static_energy_j;
    uint32_t *option; /* per instruction of the schedule: index into its options */
};

struct erg_plan_method {
    /* Time up, energy strictly down; then the slower ones that pay only while waiting for a
     * straggler. NULL = not in the file. */
    struct erg_plan_point *points;
    size_t point_count, slower_count;
    struct erg_versus versus;
};

/* GPUs of one kind, and what stood for them. */
struct erg_plan_kind {
    const char *gpu, *device, *identity;
    long nodes, gpus_per_node;
    double blocking_power_w, static_power_w;
    double mean_clock_mhz; /* of GPUs that chose their clocks themselves; 0: clocks were set */
    const json_t *clocks_mhz;
};

struct erg_plan_file {
    json_t *document; /* texts below are borrowed from it */
    struct erg_arena arena;
    const char *name, *model, *stack, *recompute;
    long tensor, context, data, microbatch_size, sequence, gpus_per_stage;
    struct erg_plan_kind *kinds;
    size_t kind_count;            /* at least 1 */
    size_t *stage_kind;           /* [stages] */
    long *layers;                 /* [virtual stages] */
    struct erg_schedule schedule; /* with the pipeline */
    struct erg_scale scale;
    struct erg_plan_options *options; /* [2 * virtual stages], as erg_table_index() */
    struct erg_plan_method methods[ERG_METHOD_COUNT];
    enum erg_method selected_method;
    size_t selected_point;
    const char *selected_rule;
};

/* `name` stands for the file in messages. */
int erg_plan_file_load(struct erg_plan_file **plan, const char *path, struct erg_error *err);
int erg_plan_file_parse(struct erg_plan_file **plan, const char *name, const char *text,
                        size_t length, struct erg_error *err);
void erg_plan_file_free(struct erg_plan_file *plan);

/* The option that instruction i of the schedule runs at a point. */
const struct erg_plan_option *erg_plan_file_option(const struct erg_plan_file *plan,
                                                   const struct erg_plan_point *point, size_t i);

/*
 * Time and energy of a point from its instructions: longest path over the schedule, measured
 * overhead of the stack, blocking power while GPUs wait. start_s (may be NULL) receives when each
 * instruction starts, in planned seconds.
 */
void erg_plan_file_evaluate(const struct erg_plan_file *plan, const struct erg_plan_point *point,
                            double *start_s, double *time_s, double *energy_j);

/*
 * Energy of an iteration that is held until `until_s` at least (another pipeline is late): every
 * GPU draws blocking power from the point's end until then.
 */
double erg_plan_file_held_energy(const struct erg_plan_file *plan,
                                 const struct erg_plan_point *point, double until_s);

/*
 * Picks a point of a method: fastest, least energy, knee; within a deadline the least energy;
 * within a budget the fastest; for a straggler the least energy held until then, of the points
 * and the slower ones that are ready by then. ERG_INFEASIBLE names the bound that cannot be met,
 * ERG_USAGE a method that is not in the file.
 */
int erg_plan_file_pick(const struct erg_plan_file *plan, enum erg_method method, enum erg_goal goal,
                       double bound, size_t *point, struct erg_error *err);

#endif
