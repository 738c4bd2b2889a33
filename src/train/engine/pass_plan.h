/*
 * Pass plan: how each instruction of a rank's stage runs by a plan (plan/plan.h): under which
 * option, and for nanobatches the program of the stage (decoder/decoder_stage.h) that the option
 * stands for, down to where each exchange begins and how many SMs it gets.
 *
 * All points of the plan's selected method are at hand, or those of all its methods: another one is
 * chosen between two steps.
 */
#ifndef ERG_TRAIN_ENGINE_PASS_PLAN_H
#define ERG_TRAIN_ENGINE_PASS_PLAN_H

#include "decoder/decoder_stage.h"
#include "job/job.h"
#include "plan/plan.h"

struct erg_pass_way {
    const struct erg_plan_option *option;
    const struct erg_stage_program *program; /* NULL: one operation after the other */
};

struct erg_pass_program {
    struct erg_stage_program program;
    size_t chunk;
    enum erg_direction direction;
    const struct erg_plan_option *option; /* one of those that it stands for */
};

struct erg_pass_plan {
    const struct erg_plan *plan;
    size_t stage;
    struct erg_pass_way *ways; /* [count]: the stage's instructions, at the point in force */
    size_t count;
    struct {
        struct erg_pass_program *items;
        size_t count, capacity;
    } programs;                   /* of all that may run of the stage and overlap, each once */
    struct erg_workload workload; /* owns the steps */
};

/* Whether two options have the same launches, regardless of clocks. */
bool erg_pass_options_are_alike(const struct erg_plan_option *a, const struct erg_plan_option *b);

/* The plan is of this job (erg_plan_check_job()), and outlives the pass plan, as the job does. The
 * selected point is in force. `all`: of every method, else of the selected one. */
int erg_pass_plan_init(struct erg_pass_plan *passes, const struct erg_plan *plan, bool all,
                       const struct erg_job *job, long stage, struct erg_error *err);
void erg_pass_plan_release(struct erg_pass_plan *passes);

/* From now on instructions run as at this point of one of these methods. */
void erg_pass_plan_choose(struct erg_pass_plan *passes, const struct erg_plan_point *point);

#endif
