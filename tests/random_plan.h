/*
 * A plan of a job whose instructions run at random: sequential, nanobatched or overlapped, every
 * partition's exchange at any launch slot on any SMs. Times and energies are made up.
 */
#ifndef TESTS_RANDOM_PLAN_H
#define TESTS_RANDOM_PLAN_H

#include "check.h"

#include "base/random.h"
#include "partition/partition.h"
#include "plan/plan.h"

enum { RANDOM_PLAN_OPTIONS = 5, RANDOM_PLAN_ALL = 7 }; /* bits 1 << enum erg_mode */

static inline enum erg_mode random_mode(struct erg_rng *rng, unsigned modes)
{
    enum erg_mode mode;
    do
        mode = (enum erg_mode)erg_rng_below(rng, 3);
    while (!(modes & 1u << mode));
    return mode;
}

static inline void random_configurations(struct erg_plan *plan, struct erg_plan_option *option,
                                         const struct erg_workload *workload, bool backward,
                                         struct erg_rng *rng)
{
    const size_t all = workload->forward_count + workload->backward_count;
    const size_t first = backward && !workload->replays_forward ? workload->forward_count : 0;
    const size_t end = backward ? all : workload->forward_count;
    option->configurations =
        erg_arena_alloc(&plan->arena, (end - first + 1) * sizeof *option->configurations);
    for (size_t i = first; i < end; i++) {
        const struct erg_partition *partition = &workload->partitions[i];
        option->configurations[option->configuration_count++] = (struct erg_plan_configuration){
            erg_arena_strdup(&plan->arena, partition->key),
            erg_arena_strdup(&plan->arena,
                             partition->slots[erg_rng_below(rng, partition->slot_count)].name),
            partition->sms[erg_rng_below(rng, partition->sms_count)]};
    }
}

static inline void random_stages(struct erg_plan *plan, const struct erg_job *job, unsigned modes,
                                 struct erg_rng *rng)
{
    const size_t stages = (size_t)job->layout.pipeline;
    plan->stage_count = stages * (size_t)job->layout.virtual_stages;
    plan->stages = erg_arena_alloc(&plan->arena, plan->stage_count * sizeof *plan->stages);
    for (size_t x = 0; x < plan->stage_count; x++) {
        struct erg_workload_request request = erg_workload_of_job(job, job->gpu);
        struct erg_workload workload;
        struct erg_error err;
        assert_ok(erg_workload_build(&workload, &request, &err), &err);
        plan->stages[x] = (struct erg_plan_stage){.stage = (int)(x % stages),
                                                  .chunk = (int)(x / stages),
                                                  .layers = erg_job_chunk_layers(job, x)};
        for (int d = 0; d < 2; d++) {
            struct erg_plan_options *options = &plan->stages[x].passes[d];
            options->count = RANDOM_PLAN_OPTIONS;
            options->items = erg_arena_alloc(&plan->arena, options->count * sizeof *options->items);
            for (size_t k = 0; k < options->count; k++) {
                options->items[k] = (struct erg_plan_option){
                    .mode = workload.nanobatched ? random_mode(rng, modes) : ERG_MODE_SEQUENTIAL,
                    .clock_mhz = (int)(1410 - 15 * k),
                    .time_s = 1,
                    .energy_j = 1};
                if (options->items[k].mode == ERG_MODE_OVERLAP)
                    random_configurations(plan, &options->items[k], &workload, d == 1, rng);
            }
        }
        erg_workload_release(&workload);
    }
}

/* `modes`: that its options may have. To be freed. */
static inline struct erg_plan *random_plan(const struct erg_job *job, unsigned modes, uint64_t seed)
{
    struct erg_plan *plan = erg_plan_new();
    struct erg_rng rng;
    struct erg_error err;
    const struct erg_pipeline pipeline = {.stages = (size_t)job->layout.pipeline,
                                          .microbatches = (size_t)job->layout.microbatches,
                                          .chunks = (size_t)job->layout.virtual_stages};
    struct erg_plan_method *method = &plan->methods[ERG_METHOD_ERGON];
    erg_rng_seed(&rng, seed);
    plan->layout = erg_layout_copy(&job->layout, &plan->arena);
    plan->sequence_parallel = erg_job_splits_stream(job);
    random_stages(plan, job, modes, &rng);
    assert_ok(erg_schedule_init(&plan->schedule, &pipeline, &err), &err);
    method->points = erg_arena_alloc(&plan->arena, sizeof *method->points);
    method->point_count = 1;
    method->points[0] = (struct erg_plan_point){
        .option =
            erg_arena_alloc(&plan->arena, plan->schedule.count * sizeof *method->points[0].option)};
    for (size_t i = 0; i < plan->schedule.count; i++)
        method->points[0].option[i] = (uint32_t)erg_rng_below(&rng, RANDOM_PLAN_OPTIONS);
    plan->selected.method = ERG_METHOD_ERGON;
    plan->selected.point = 0;
    return plan;
}

#endif
