/* The plan that a run follows. */
#include "train/run/run_plan.h"

#include "io/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A plan measured on other GPUs does not apply to these; an emulated plan applies to a kind of GPU.
 * The host runs any plan, to rehearse it. */
static int check_gpus(const struct erg_plan *plan, const struct erg_train_options *options,
                      const char *device, long stage, struct erg_error *err)
{
    if (strcmp(device, "host") == 0 || options->force_plan)
        return 0;
    const struct erg_plan_kind *kind = erg_plan_stage_kind(plan, (size_t)stage);
    if (!kind->emulated && kind->device && !strstr(kind->device, device))
        return erg_fail(
            err, ERG_USAGE,
            "it was measured on %s, but this run uses a %s; expected a plan for this GPU, or "
            "--force",
            kind->device, device);
    return 0;
}

int erg_run_plan_find(const struct erg_plan *plan, const struct erg_train_options *options,
                      struct erg_plan_selection *chosen, struct erg_error *err)
{
    struct erg_goal goal = {.objective = ERG_FASTEST};
    struct erg_plan_input input = {.method = options->method, .number = options->point};
    if (options->deadline_s > 0)
        goal = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = options->deadline_s};
    else if (options->energy_budget_j > 0)
        goal.energy_j = options->energy_budget_j;
    if (options->deadline_s > 0 || options->energy_budget_j > 0)
        input.goal = &goal;
    return erg_plan_find_input(plan, &input, chosen, err);
}

int erg_run_plan_parse(struct erg_plan **out, const char *name, const char *text, size_t length,
                       const struct erg_train_options *options, const struct erg_job *job,
                       const char *device, long stage, struct erg_error *err)
{
    struct erg_plan *plan = NULL;
    *out = NULL;
    if (erg_plan_parse(&plan, name, text, length, err) != 0)
        return -1;
    if (erg_plan_check_job(plan, job, err) || check_gpus(plan, options, device, stage, err)) {
        erg_plan_free(plan);
        return erg_fail_context(err, "%s", name);
    }
    *out = plan;
    return 0;
}

int erg_run_plan_open(struct erg_plan **out, char **text, const struct erg_train_options *options,
                      const struct erg_job *job, const char *device, long stage,
                      struct erg_error *err)
{
    char *read;
    size_t length;
    *out = NULL;
    if (text)
        *text = NULL;
    if (!options->plan)
        return 0;
    if (erg_file_read(options->plan, 0, &read, &length, err) != 0)
        return -1;
    int result =
        erg_run_plan_parse(out, options->plan, read, length, options, job, device, stage, err);
    if (result == 0 && text)
        *text = read;
    else
        free(read);
    if (result != 0)
        return -1;
    struct erg_plan_selection chosen;
    if (erg_run_plan_find(*out, options, &chosen, err) != 0) {
        erg_plan_free(*out);
        *out = NULL;
        return erg_fail_context(err, "%s", options->plan);
    }
    (*out)->selected = chosen;
    return 0;
}

const struct erg_plan_point *erg_run_plan_selected(const struct erg_plan *plan)
{
    return &plan->methods[plan->selected.method].points[plan->selected.point];
}

void erg_run_plan_expect(struct erg_run_expected *expected, const struct erg_plan *plan,
                         const char *file, const struct erg_job *job)
{
    struct erg_plan_beyond beyond;
    *expected =
        (struct erg_run_expected){.time_s = NAN, .energy_j = NAN, .step_s = NAN, .step_j = NAN};
    if (!plan)
        return;
    erg_plan_beyond(&beyond, plan);
    *expected = (struct erg_run_expected){
        .plan = file,
        .method = erg_method_name(plan->selected.method),
        .rule = plan->selected.rule,
        .point = plan->selected.point + 1,
        .points = plan->methods[plan->selected.method].point_count,
        .time_s = erg_run_plan_selected(plan)->time_s,
        .energy_j = erg_run_plan_selected(plan)->energy_j * (double)job->layout.data,
        .step_s = NAN,
        .step_j = NAN,
    };
    if (plan->layout.data != job->layout.data)
        return; /* with other ranks, sums of gradients take another time */
    expected->step_s = expected->time_s + beyond.time_s;
    expected->step_j = expected->energy_j + beyond.energy_j * (double)job->layout.data;
}

void erg_run_plan_modes(struct erg_run_plan_modes *modes, const struct erg_plan *plan,
                        const struct erg_plan_point *point, size_t stage)
{
    const struct erg_schedule *schedule = &plan->schedule;
    *modes = (struct erg_run_plan_modes){
        .own_clocks = !isnan(erg_plan_stage_kind(plan, stage)->mean_clock_mhz)};
    for (size_t i = 0; i < schedule->per_stage; i++) {
        const struct erg_plan_option *option =
            erg_plan_option(plan, point, stage * schedule->per_stage + i);
        const int mhz = option->clock_mhz;
        modes->modes[option->mode]++;
        modes->least_mhz = i && modes->least_mhz < mhz ? modes->least_mhz : mhz;
        modes->most_mhz = modes->most_mhz > mhz ? modes->most_mhz : mhz;
    }
}
