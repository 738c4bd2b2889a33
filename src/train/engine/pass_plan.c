/* Converts the options of a plan to the work of a stage. */
#include "train/engine/pass_plan.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool erg_pass_options_are_alike(const struct erg_plan_option *a, const struct erg_plan_option *b)
{
    if (a->mode != b->mode || a->configuration_count != b->configuration_count)
        return false;
    for (size_t i = 0; i < a->configuration_count; i++) {
        const struct erg_plan_configuration *x = &a->configurations[i], *y = &b->configurations[i];
        if (strcmp(x->partition, y->partition) != 0 || strcmp(x->slot, y->slot) != 0 ||
            x->sms != y->sms)
            return false;
    }
    return true;
}

static const struct erg_pass_program *find(const struct erg_pass_plan *passes, size_t chunk,
                                           enum erg_direction direction,
                                           const struct erg_plan_option *option)
{
    for (size_t i = 0; i < passes->programs.count; i++) {
        const struct erg_pass_program *program = &passes->programs.items[i];
        if (program->chunk == chunk && program->direction == direction &&
            erg_pass_options_are_alike(program->option, option))
            return program;
    }
    return NULL;
}

static int add_program(struct erg_pass_plan *passes, const struct erg_job *job,
                       const struct erg_workload_request *request, size_t chunk,
                       enum erg_direction direction, const struct erg_plan_option *option,
                       struct erg_error *err)
{
    const long layers =
        erg_layout_chunk_layers(&job->layout, job->model->layers, (long)passes->stage, (long)chunk);
    struct erg_steps steps;
    if (option->mode == ERG_MODE_SEQUENTIAL || find(passes, chunk, direction, option))
        return 0;
    if (erg_plan_expand(option, &passes->workload, request, (int)layers, direction == ERG_BACKWARD,
                        NULL, &steps, err) != 0)
        return -1;
    const struct erg_pass_program program = {{steps.steps, steps.count}, chunk, direction, option};
    ERG_PUSH(&passes->programs, items, program);
    return 0;
}

/* Adds the programs of this stage's instructions at all points of a method. */
static int add_programs(struct erg_pass_plan *passes, const struct erg_plan_method *method,
                        const struct erg_job *job, const struct erg_workload_request *request,
                        struct erg_error *err)
{
    const struct erg_plan *plan = passes->plan;
    const size_t first = passes->stage * passes->count;
    for (size_t k = 0; k < method->point_count + method->slower_count; k++)
        for (size_t i = first; i < first + passes->count; i++) {
            const struct erg_instruction *instruction = &plan->schedule.instructions[i];
            if (add_program(passes, job, request, instruction->chunk, instruction->direction,
                            erg_plan_option(plan, &method->points[k], i), err) != 0)
                return -1;
        }
    return 0;
}

int erg_pass_plan_init(struct erg_pass_plan *passes, const struct erg_plan *plan, bool all,
                       const struct erg_job *job, long stage, struct erg_error *err)
{
    const struct erg_job_kind *kind = &job->kinds[job->stage_kind[stage]];
    struct erg_workload_request request = erg_workload_of_job(job, kind->gpu);
    erg_workload_set_recompute(&request, erg_layout_recompute(&job->layout, stage));
    *passes = (struct erg_pass_plan){
        .plan = plan, .stage = (size_t)stage, .count = plan->schedule.per_stage};
    if (erg_workload_build(&passes->workload, &request, err) != 0)
        return -1;
    passes->ways = erg_xcalloc(passes->count, sizeof *passes->ways);
    for (size_t i = 0; i < ERG_METHOD_COUNT; i++)
        if ((all || i == plan->selected.method) &&
            add_programs(passes, &plan->methods[i], job, &request, err) != 0) {
            erg_pass_plan_release(passes);
            return -1;
        }
    const struct erg_plan_method *method = &plan->methods[plan->selected.method];
    erg_pass_plan_choose(passes, &method->points[plan->selected.point]);
    return 0;
}

void erg_pass_plan_release(struct erg_pass_plan *passes)
{
    if (!passes->ways)
        return;
    free(passes->programs.items);
    free(passes->ways);
    erg_workload_release(&passes->workload);
    *passes = (struct erg_pass_plan){0};
}

void erg_pass_plan_choose(struct erg_pass_plan *passes, const struct erg_plan_point *point)
{
    const struct erg_schedule *schedule = &passes->plan->schedule;
    for (size_t i = 0; i < passes->count; i++) {
        const size_t at = passes->stage * schedule->per_stage + i;
        const struct erg_instruction *instruction = &schedule->instructions[at];
        const struct erg_plan_option *option = erg_plan_option(passes->plan, point, at);
        const struct erg_pass_program *program =
            find(passes, instruction->chunk, instruction->direction, option);
        assert(program || option->mode == ERG_MODE_SEQUENTIAL);
        passes->ways[i] = (struct erg_pass_way){option, program ? &program->program : NULL};
    }
}
