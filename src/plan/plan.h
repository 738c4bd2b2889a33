/*
 * Plan: the decisions of every scale about one training job, and the cost of each decision.
 *
 * A plan holds the job's layout, the GPUs of each kind, the options of every virtual stage in each
 * direction, and for each method the points of its frontier. A point selects an option for every
 * instruction of the schedule. An option consists of a clock, a mode and, where communication
 * overlaps, the start and the number of SMs of each communication. `ergon optimize`, `ergon layout`
 * and `ergon frontier` make plans; erg_plan_write() and erg_plan_load() keep them in one format
 * (docs/formats/plan.md).
 *
 * A plan is accepted only after a complete check (erg_plan_check): every index, the order of
 * instructions, and the time and energy of every point compared with the sum of its instructions.
 * erg_plan_load() makes it, so users of a loaded plan need not check again.
 *
 * Energies and times of options are those of one GPU and one instruction; those of points are of
 * all GPUs of one pipeline and one iteration, with the energy spent waiting.
 */
#ifndef ERG_PLAN_H
#define ERG_PLAN_H

#include "base/memory.h"
#include "ergon/error.h"
#include "ergon/plan.h"
#include "iteration/iteration.h"
#include "job/job.h"
#include "job/layout.h"
#include "layout/energy/step_end.h"
#include "microbatch/microbatch.h"
#include "partition/partition.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ERG_PLAN_SCHEMA_VERSION = 3 };

/* ---- methods ---- */

/*
 * The ways of running the same iteration that a plan compares.
 *
 *   sequential            microbatches one after the other, communication after compute, full
 *                         clock: the practice of today's training frameworks
 *   sequential+clocks     the same, every instruction at a planned clock
 *   nanobatching          two nanobatches, communication by the library as soon as it can start
 *   nanobatching+clocks   the same, every instruction at a planned clock
 *   ergon                 partitions under their schedules or sequential, whichever is better
 *                         for each instruction, at a planned clock
 *
 * Source: Kareus, evaluation: baselines.
 */
enum erg_method {
    ERG_METHOD_SEQUENTIAL,
    ERG_METHOD_SEQUENTIAL_CLOCKS,
    ERG_METHOD_NANOBATCHING,
    ERG_METHOD_NANOBATCHING_CLOCKS,
    ERG_METHOD_ERGON,
    ERG_METHOD_COUNT,
};

const char *erg_method_name(enum erg_method method);
const char *erg_method_label(enum erg_method method); /* the system known for it */

/* The method with a name from the user: ERG_USAGE lists the methods and suggests the nearest. */
int erg_method_parse(const char *name, enum erg_method *method, struct erg_error *err);

/*
 * Comparison of a method with the two references of the published evaluation. Reductions in
 * percent, positive = better than the reference; NaN = undefined.
 */
struct erg_versus {
    /* The method's fastest point against sequential execution at full clock. */
    double max_throughput_time, max_throughput_energy;
    /* Against the frontier of sequential execution with clocks: least energy within the time of its
     * fastest point, and least time within the energy of its cheapest point. Undefined when the
     * method lacks such a point. */
    double iso_time_energy, iso_energy_time;
};

/*
 * `full_clock` is the one point of sequential execution at full clock. The lists need not be
 * filtered; points are compared as they are, never interpolated, with a relative slack of 1e-9.
 * An empty `method` gives all NaN, an empty `clocks` the latter two.
 */
struct erg_versus erg_compare(const struct erg_frontier *method, struct erg_point full_clock,
                              const struct erg_frontier *clocks);

/* ---- from one GPU per stage to all GPUs of the pipeline ---- */

/* From one GPU per stage as planned to all GPUs of the pipeline as it will be measured. */
struct erg_scale {
    double overhead;         /* of the stack: measured time = planned * (1 + overhead) */
    double blocking_power_w; /* of a GPU that waits, the mean over the stages */
    double static_power_w;   /* for the static share of the energy, likewise */
    const double *beyond_w;  /* [stages]: of a waiting GPU of each beyond the mean; NULL: none */
    int stages;
    int gpus_per_stage;
};

/* From the waiting power and the least power of each stage's GPUs, [stages]. `blocking_w` is set to
 * their power beyond the mean, 0 where all are equal, and must outlive the scale. */
void erg_scale_set_powers(struct erg_scale *scale, double *blocking_w, const double *static_w);

/*
 * The cost of a stage's option in the solver, which uses one power of waiting, the mean. While a
 * stage works it does not wait, so the power of its own waiting GPUs beyond the mean is subtracted
 * for that time: over the iteration the sums are exact.
 */
double erg_scale_option_energy(const struct erg_scale *scale, size_t stage, double time_s,
                               double energy_j);

double erg_scale_time(const struct erg_scale *scale, double planned_s);
double erg_scale_energy(const struct erg_scale *scale, double planned_s, double planned_j);

/* The power of all GPUs of the pipeline that only wait. */
double erg_scale_waiting_w(const struct erg_scale *scale);

/* ---- the plan ---- */

/* One partition type runs so: its communication starts before the operation of `slot`. */
struct erg_plan_configuration {
    const char *partition, *slot;
    int sms;
};

struct erg_plan_option {
    enum erg_mode mode;
    int clock_mhz;
    double time_s, energy_j;
    struct erg_plan_configuration *configurations; /* of mode overlap; else NULL */
    size_t configuration_count;
};

/* The options of one virtual stage in one direction. */
struct erg_plan_options {
    struct erg_plan_option *items;
    size_t count;
};

/* One virtual stage: chunk `chunk` of stage `stage`. */
struct erg_plan_stage {
    int stage, chunk;
    size_t kind;                       /* of its GPUs */
    long layers;                       /* 0: not known */
    struct erg_plan_options passes[2]; /* by enum erg_direction */
};

struct erg_plan_point {
    double time_s, energy_j;
    /* The tightest of the planned deadlines that it meets, and the optimum of the continuous
     * problem for that deadline. */
    double planned_time_s, planned_energy_j;
    double static_energy_j, dynamic_energy_j; /* of energy_j; NaN: not known */
    uint32_t *option;               /* per instruction of the schedule: index into its options */
    struct erg_plan_recipe *recipe; /* private: the same by stages, as it is written */
    size_t recipe_count;
};

struct erg_plan_method {
    const char *label;
    /* Time up, energy strictly down; then `slower_count` slower points that pay only while waiting
     * for another pipeline. NULL: the plan does not have the method. */
    struct erg_plan_point *points;
    size_t point_count, slower_count;
    struct erg_plan_point *slower; /* points + point_count */
    struct erg_versus versus;
};

/* GPUs of one kind, and what stood for them. */
struct erg_plan_kind {
    const char *gpu;
    long nodes, gpus_per_node, gpus_used; /* 0: not known */
    const char *device, *identity;        /* what was measured on; all that makes results differ */
    bool emulated;
    const char *confidence; /* how far the model of an emulated GPU was checked */
    double blocking_power_w;
    double static_power_w, power_cap_w; /* NaN: not known */
    int sms;                            /* 0: not known */
    int *clocks_mhz;                    /* that were considered, decreasing */
    size_t clock_count;
    double mean_clock_mhz; /* of GPUs that chose their clocks themselves; NaN: clocks were set */
};

/* One partition type: its search space, the search and the frontier it found. */
struct erg_plan_partition {
    const char *key;
    size_t kind;
    enum erg_direction direction;
    int occurrences; /* in one layer */
    const char *communication;
    double wire_bytes;
    struct erg_plan_op {
        const char *name, *kind;
    } * ops;
    size_t op_count;
    const char **slots;
    size_t slot_count;
    int *sms;
    size_t sms_count;
    size_t configurations, measured, swept;
    double *hypervolume; /* after each energy measurement, relative to the final front */
    size_t hypervolume_count;
    struct erg_plan_estimate {
        int clock_mhz;
        const char *slot;
        int sms;
        double time_s, energy_j, time_sd, energy_sd; /* the latter relative */
        bool measured;                               /* false: predicted */
    } * frontier;
    size_t frontier_count;
};

/* The course of a partition under the configuration that the selected point uses most. */
struct erg_plan_picture {
    const char *key;
    size_t kind;
    int clock_mhz;
    double clock_effective_mhz; /* under the power cap */
    const char *slot;
    int sms;
    double time_s, energy_j;
    struct erg_plan_lane {
        const char *name;
        struct erg_plan_span {
            const char *name;
            double start_s, end_s;
        } * spans;
        size_t span_count;
    } * lanes;
    size_t lane_count;
};

/* A row of a stage profile: sequential execution of one virtual stage at one clock. */
struct erg_plan_row {
    size_t stage;
    enum erg_direction direction;
    int clock_mhz;
    double time_s, energy_j;
};

struct erg_plan {
    struct erg_arena arena; /* owns everything but the schedule */
    const char *ergon_version, *created_utc;
    long seed;

    const char *name, *model, *stack; /* of the job; NULL: not known */
    struct erg_layout layout;
    bool sequence_parallel; /* tensor ranks have a share of the stream's rows each */
    double *hop_latency_s;  /* [stages], as in struct erg_pipeline */
    struct erg_scale scale;
    struct erg_plan_kind *kinds;
    size_t kind_count; /* at least 1 */

    double window_s, cooldown_s, warmup_s; /* of one measurement; NaN: nothing was measured */
    struct erg_plan_search {
        const char *method, *prior; /* NULL: nothing was searched */
        size_t budget, start, batch, sweep_clocks;
    } search;

    struct erg_plan_partition *partitions;
    size_t partition_count;
    struct erg_plan_stage *stages; /* virtual stages in the order of the model */
    size_t stage_count;
    /* [pipeline]: the cost of a step for each GPU of a stage after the iteration, with the data
     * degree of the layout; NULL: not known. */
    struct erg_step_end *step_ends;
    size_t step_end_count;
    struct erg_schedule schedule; /* with the pipeline */
    struct erg_plan_method methods[ERG_METHOD_COUNT];
    struct erg_plan_selection {
        enum erg_method method;
        size_t point;
        const char *rule;    /* the words for how it was chosen */
        double held_until_s; /* the pipeline waits until then at any point; 0: no wait */
    } selected;

    struct erg_plan_picture *pictures;
    size_t picture_count;
    struct erg_plan_row *profile;
    size_t profile_count;
    struct erg_plan_counts {
        size_t energy, time_only, cached, verified; /* measurements */
        double device_seconds;
    } measurements;

    size_t hop_count, layer_count, recompute_count, offload_count, order_count; /* private */
    enum erg_schedule_kind kind;                                                /* private */
    struct erg_plan_order *order;                                               /* private */
};

/* A plan of the solver on all GPUs of the pipeline; its option is borrowed. */
struct erg_plan_point erg_scale_point(const struct erg_scale *scale,
                                      const struct erg_iteration_plan *plan);

/* Points as a list over time and energy; recipe = index. Clears it first. */
void erg_plan_list_points(struct erg_frontier *out, const struct erg_plan_point *points,
                          size_t count);

struct erg_plan *erg_plan_new(void);

/*
 * Completes a plan whose layout, kinds, stages with all their options, scale (except its stages and
 * powers) and points are filled: the schedule, the powers, and the private parts. Options that no
 * point runs are left out, and the points' indices follow.
 */
int erg_plan_complete(struct erg_plan *plan, struct erg_error *err);

/*
 * Fills pipeline, stages and the methods sequential and sequential+clocks from a solved iteration
 * whose tables are clocks (recipe: MHz), two for each virtual stage, with energies as
 * erg_scale_option_energy() makes them. Stage s lies on GPUs of kind stage_kind[s] (NULL: all on
 * the first); the clocks of the kinds follow from the tables. The points are those of the frontier;
 * `chosen`, an index into the iteration's plans, becomes the selected one, by `rule`. To be
 * completed.
 */
void erg_plan_set_iteration(struct erg_plan *plan, const struct erg_iteration *iteration,
                            const struct erg_frontier *tables, const size_t *stage_kind,
                            size_t chosen, const char *rule);

/* An option of a virtual stage that instruction i of the schedule runs at a point. */
const struct erg_plan_option *erg_plan_option(const struct erg_plan *plan,
                                              const struct erg_plan_point *point, size_t i);

/* The GPUs that a stage lies on. */
const struct erg_plan_kind *erg_plan_stage_kind(const struct erg_plan *plan, size_t stage);

/* ---- files ---- */

/* The document, owned by the caller. */
json_t *erg_plan_json(const struct erg_plan *plan);
int erg_plan_write(const struct erg_plan *plan, const char *path, struct erg_error *err);

/* `name` stands for the file in messages. Both check everything. */
int erg_plan_load(struct erg_plan **plan, const char *path, struct erg_error *err);
int erg_plan_parse(struct erg_plan **plan, const char *name, const char *text, size_t length,
                   struct erg_error *err);

/*
 * Whether a training engine that runs the job can run it by the plan: model, software stack, layout
 * except the data degree, recomputation and offloading. ERG_USAGE names the job's key that differs.
 */
int erg_plan_check_job(const struct erg_plan *plan, const struct erg_job *job,
                       struct erg_error *err);

/* ---- queries of a plan ---- */

/*
 * Time and energy of a point from its instructions: longest path over the schedule, measured
 * overhead of the stack, blocking power while GPUs wait. start_s (may be NULL) receives when each
 * instruction starts, in planned seconds.
 */
void erg_plan_evaluate(const struct erg_plan *plan, const struct erg_plan_point *point,
                       double *start_s, double *time_s, double *energy_j);

/* The time of a step after its iteration until its last stage has ended, and the energy of all GPUs
 * of the pipeline, including those that wait; NaN: not known. */
struct erg_plan_beyond {
    double time_s, energy_j;
    double gradients_s, optimizer_s; /* time_s of the stage that takes longest */
};
void erg_plan_beyond(struct erg_plan_beyond *beyond, const struct erg_plan *plan);

/*
 * Energy of an iteration that is held until `until_s` at least (another pipeline is late): every
 * GPU draws blocking power from the point's end until then.
 */
double erg_plan_held_energy(const struct erg_plan *plan, const struct erg_plan_point *point,
                            double until_s);

/*
 * Picks a point of a method by a goal (frontier/goal.h): of the frontier, for a straggler also of
 * the slower points. ERG_INFEASIBLE names the bound that cannot be met, ERG_USAGE a method that the
 * plan does not have.
 */
int erg_plan_pick(const struct erg_plan *plan, enum erg_method method, const struct erg_goal *goal,
                  size_t *point, struct erg_error *err);

/* The requested point: of a method, NULL: the selected one's; by its number, from 1 on, those
 * beyond the frontier included, 0: by the goal. Neither: the selected point of the selected method,
 * of others the fastest. */
struct erg_plan_input {
    const char *method;
    size_t number;
    const struct erg_goal *goal; /* NULL: none */
};

/* The point, and the rule of its choice. Fails as erg_plan_pick() does. */
int erg_plan_find_input(const struct erg_plan *plan, const struct erg_plan_input *input,
                        struct erg_plan_selection *chosen, struct erg_error *err);
/* Makes it the selected one. */
int erg_plan_select(struct erg_plan *plan, const struct erg_plan_input *input,
                    struct erg_error *err);

/*
 * The layers of an instruction under an option as the steps that a device runs, with the launch of
 * every communication; they live as long as the workload, which is that of the plan's layout on the
 * GPUs of the stage. `launches`, [partition types] or NULL, receives those of mode overlap.
 * ERG_USAGE where the workload lacks the partition or slot.
 */
int erg_plan_expand(const struct erg_plan_option *option, struct erg_workload *workload,
                    const struct erg_workload_request *request, int layers, bool backward,
                    struct erg_launch *launches, struct erg_steps *steps, struct erg_error *err);

#endif
