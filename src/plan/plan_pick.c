/* Queries of a plan: its sums and its points. */
#include "plan/plan_internal.h"

#include <math.h>
#include <stdlib.h>

struct erg_plan_tables erg_plan_tables_new(const struct erg_plan *plan, const double *pace)
{
    size_t stages = plan->schedule.pipeline.stages;
    struct erg_plan_tables tables = {.count = 2 * stages * plan->schedule.pipeline.chunks};
    tables.items = erg_xcalloc(tables.count, sizeof *tables.items);
    for (size_t t = 0; t < tables.count; t++)
        for (size_t k = 0; k < plan->stages[t / 2].passes[t % 2].count; k++) {
            const struct erg_plan_option *option = &plan->stages[t / 2].passes[t % 2].items[k];
            size_t stage = t / 2 % stages;
            double time_s = option->time_s * (pace ? pace[stage] : 1);
            erg_frontier_add(&tables.items[t], time_s,
                             erg_scale_option_energy(&plan->scale, stage, time_s, option->energy_j),
                             (int64_t)k);
        }
    return tables;
}

void erg_plan_tables_release(struct erg_plan_tables *tables)
{
    for (size_t t = 0; t < tables->count; t++)
        erg_frontier_release(&tables->items[t]);
    free(tables->items);
    *tables = (struct erg_plan_tables){0};
}

void erg_plan_evaluate(const struct erg_plan *plan, const struct erg_plan_point *point,
                       double *start_s, double *time_s, double *energy_j)
{
    struct erg_plan_tables tables = erg_plan_tables_new(plan, NULL);
    double planned_s, planned_j;
    erg_iteration_evaluate(&plan->schedule, tables.items, point->option, start_s, &planned_s,
                           &planned_j);
    erg_plan_tables_release(&tables);
    *time_s = erg_scale_time(&plan->scale, planned_s);
    *energy_j = erg_scale_energy(&plan->scale, planned_s, planned_j);
}

double erg_plan_held_energy(const struct erg_plan *plan, const struct erg_plan_point *point,
                            double until_s)
{
    double waiting_w = erg_scale_waiting_w(&plan->scale);
    double held_s = until_s - point->time_s;
    return point->energy_j + (held_s > 0 ? waiting_w * held_s : 0);
}

void erg_plan_beyond(struct erg_plan_beyond *beyond, const struct erg_plan *plan)
{
    double work_j = 0, waiting_w = 0, waited_j = 0;
    *beyond = (struct erg_plan_beyond){NAN, NAN, NAN, NAN};
    for (size_t s = 0; s < plan->step_end_count; s++) {
        const struct erg_step_end *end = &plan->step_ends[s];
        const double own_s = end->gradients_s + end->optimizer_s;
        const double blocking_w = erg_plan_stage_kind(plan, s)->blocking_power_w;
        work_j += end->gradients_j + end->optimizer_j;
        waiting_w += blocking_w;
        waited_j += blocking_w * own_s;
        if (s && own_s <= beyond->time_s)
            continue;
        beyond->time_s = own_s;
        beyond->gradients_s = end->gradients_s;
        beyond->optimizer_s = end->optimizer_s;
    }
    beyond->energy_j =
        (work_j + waiting_w * beyond->time_s - waited_j) * plan->scale.gpus_per_stage;
}

int erg_plan_pick(const struct erg_plan *plan, enum erg_method name, const struct erg_goal *goal,
                  size_t *point, struct erg_error *err)
{
    const struct erg_plan_method *method = &plan->methods[name];
    if (!method->point_count)
        return erg_fail(err, ERG_USAGE,
                        "choosing a point: the plan has no points of method %s; expected another "
                        "method, or a plan made with it",
                        erg_method_name(name));
    struct erg_frontier points = {0};
    size_t count = method->point_count + (goal->straggler_s > 0 ? method->slower_count : 0);
    erg_plan_list_points(&points, method->points, count);
    int status = erg_goal_pick(goal, &points, erg_scale_waiting_w(&plan->scale), point, err);
    erg_frontier_release(&points);
    return status ? erg_fail_context(err, "choosing a point of %s", erg_method_name(name)) : 0;
}

static int select_number(struct erg_plan_selection *chosen, const struct erg_plan *plan,
                         size_t number, struct erg_error *err)
{
    const struct erg_plan_method *method = &plan->methods[chosen->method];
    const size_t count = method->point_count + method->slower_count;
    if (number > count && method->slower_count == 0)
        return erg_fail(err, ERG_USAGE, "choosing a point: %s has the points 1 to %zu, got %zu",
                        erg_method_name(chosen->method), count, number);
    if (number > count)
        return erg_fail(err, ERG_USAGE,
                        "choosing a point: %s has the points 1 to %zu, those above %zu beyond its "
                        "frontier, got %zu",
                        erg_method_name(chosen->method), count, method->point_count, number);
    chosen->point = number - 1;
    chosen->rule = "as asked for";
    return 0;
}

int erg_plan_find_input(const struct erg_plan *plan, const struct erg_plan_input *input,
                        struct erg_plan_selection *chosen, struct erg_error *err)
{
    static const struct erg_goal fastest = {.objective = ERG_FASTEST};
    const struct erg_goal *goal = input->goal ? input->goal : &fastest;
    *chosen = plan->selected;
    if (input->method && erg_method_parse(input->method, &chosen->method, err) != 0)
        return -1;
    if (!input->number && !input->goal && chosen->method == plan->selected.method)
        return 0;
    chosen->rule = erg_goal_rule(goal);
    chosen->held_until_s = input->number ? 0 : goal->straggler_s;
    return erg_plan_pick(plan, chosen->method, goal, &chosen->point, err) ||
                   (input->number && select_number(chosen, plan, input->number, err))
               ? -1
               : 0;
}

int erg_plan_select(struct erg_plan *plan, const struct erg_plan_input *input,
                    struct erg_error *err)
{
    struct erg_plan_selection chosen;
    if (erg_plan_find_input(plan, input, &chosen, err) != 0)
        return -1;
    plan->selected = chosen;
    return 0;
}
