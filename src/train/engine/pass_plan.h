/*
 * Pass plan: how each instruction of a rank's stage runs by a plan (plan/plan.h): its option and,
 * for nanobatches, the option's program of the stage (decoder/decoder_stage.h), with the start and
 * the SMs of each exchange.
 *
 * It holds all points of the plan's selected method, or of all its methods; the point can change
 * between two steps.
 */
#ifndef ERG_TRAIN_ENGINE_PASS_PLAN_H
#define ERG_TRAIN_ENGINE_PASS_PLAN_H

#include "decoder/decoder_stage.h"
#include "job/job.h"
#include "plan/plan.h"

struct erg_pass_way {
    const struct erg_plan_option *option;
    const struct erg_stage_program *program; /* NULL: sequential operations */
};

struct erg_pass_program {
    struct erg_stage_program program;
    size_t chunk;
    enum erg_direction direction;
    const struct erg_plan_option *option; /* one of the options with this program */
};

struct erg_pass_plan {
    const struct erg_plan *plan;
    size_t stage;
    struct erg_pass_way *ways; /* [count]: the stage's instructions at the current point */
    size_t count;
    struct {
        struct erg_pass_program *items;
        size_t count, capacity;
    } programs;                   /* of all overlapping options that the stage may run, each once */
    struct erg_workload workload; /* owns the steps */
};

/* Whether two options have the same launches, regardless of clocks. */
bool erg_pass_options_are_alike(const struct erg_plan_option *a, const struct erg_plan_option *b);

/*
 * The plan belongs to this job (erg_plan_check_job()); both outlive the pass plan. The selected
 * point is current. `all`: points of every method; otherwise of the selected one.
 */
int erg_pass_plan_init(struct erg_pass_plan *passes, const struct erg_plan *plan, bool all,
                       const struct erg_job *job, long stage, struct erg_error *err);
void erg_pass_plan_release(struct erg_pass_plan *passes);

/* From now on instructions run by this point of one of these methods. */
void erg_pass_plan_choose(struct erg_pass_plan *passes, const struct erg_plan_point *point);

#endif
