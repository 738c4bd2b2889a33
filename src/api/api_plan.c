/* ergon/plan.h: plans as a program opens them, and what it asks of them. */
#include "ergon/plan.h"

#include "api/door.h"
#include "api/plan_chosen.h"
#include "base/call.h"
#include "base/sized.h"
#include "report/report.h"
#include "report/text/plan_point.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan_opening {
    struct erg_plan **plan;
    const char *name, *text; /* NULL: read the file */
    size_t length;
};

static int open_plan(void *argument, struct erg_error *err)
{
    const struct plan_opening *at = argument;
    return at->text ? erg_plan_parse(at->plan, at->name, at->text, at->length, err)
                    : erg_plan_load(at->plan, at->name, err);
}

int erg_plan_open(struct erg_plan **plan, const char *path, struct erg_error *err)
{
    struct plan_opening at = {.plan = plan, .name = path};
    return erg_call_run(open_plan, &at, NULL, err);
}

int erg_plan_open_text(struct erg_plan **plan, const char *name, const char *text, size_t length,
                       struct erg_error *err)
{
    struct plan_opening at = {plan, name, text, length};
    return erg_call_run(open_plan, &at, NULL, err);
}

/* ---- what it is ---- */

static const struct erg_plan_point *selected(const struct erg_plan *plan)
{
    return &plan->methods[plan->selected.method].points[plan->selected.point];
}

int erg_plan_info(const struct erg_plan *plan, struct erg_plan_info *info, struct erg_error *err)
{
    const struct erg_layout *layout = &plan->layout;
    const struct erg_plan_point *point = selected(plan);
    struct erg_plan_beyond beyond;
    erg_plan_beyond(&beyond, plan);
    const struct erg_plan_info own = {
        .name = plan->name,
        .model = plan->model,
        .gpu = plan->kinds[0].gpu,
        .kinds = (int64_t)plan->kind_count,
        .tensor = layout->tensor,
        .context = layout->context,
        .pipeline = layout->pipeline,
        .data = layout->data,
        .virtual_stages = layout->virtual_stages,
        .microbatch_size = layout->microbatch,
        .microbatches = layout->microbatches,
        .sequence = layout->sequence,
        .passes = (int64_t)plan->schedule.per_stage,
        .method = erg_method_name(plan->selected.method),
        .rule = plan->selected.rule,
        .point = (int64_t)plan->selected.point,
        .time_s = point->time_s,
        .energy_j = point->energy_j,
        .static_energy_j = point->static_energy_j,
        .step_time_s = point->time_s + beyond.time_s,
        .step_energy_j = point->energy_j + beyond.energy_j,
        .points = (int64_t)plan->methods[plan->selected.method].point_count,
    };
    return erg_sized_give(info, &own, sizeof own, "erg_plan_info", err);
}

int erg_plan_method(const struct erg_plan *plan, size_t index, struct erg_plan_method_info *info,
                    struct erg_error *err)
{
    if (index >= ERG_METHOD_COUNT)
        return erg_fail(err, ERG_USAGE, "method %zu of %d; expected one from 0 to %d", index,
                        ERG_METHOD_COUNT, ERG_METHOD_COUNT - 1);
    const struct erg_plan_method *method = &plan->methods[index];
    const struct erg_plan_method_info own = {
        .name = erg_method_name((enum erg_method)index),
        .label = method->label,
        .points = (int64_t)method->point_count,
        .slower = (int64_t)method->slower_count,
    };
    return erg_sized_give(info, &own, sizeof own, "erg_plan_method_info", err);
}

int erg_plan_point(const struct erg_plan *plan, const char *method, size_t index,
                   struct erg_plan_point_info *info, struct erg_error *err)
{
    enum erg_method number = plan->selected.method;
    if (method && erg_method_parse(method, &number, err) != 0)
        return -1;
    const struct erg_plan_method *of = &plan->methods[number];
    const size_t count = of->point_count + of->slower_count;
    if (index >= count)
        return erg_fail(err, ERG_USAGE, "point %zu of %zu of %s; expected one below %zu", index,
                        count, erg_method_name(number), count);
    const struct erg_plan_point *point = &of->points[index];
    const struct erg_plan_point_info own = {
        .time_s = point->time_s,
        .energy_j = point->energy_j,
        .power_w = point->energy_j / point->time_s,
        .static_energy_j = point->static_energy_j,
    };
    return erg_sized_give(info, &own, sizeof own, "erg_plan_point_info", err);
}

/* ---- which point ---- */

static int goal_of(struct erg_goal *goal, const struct erg_plan_goal *wanted, struct erg_error *err)
{
    static const enum erg_objective objectives[] = {ERG_FASTEST, ERG_LEAST_ENERGY, ERG_KNEE};
    int pick;
    double bounds[4];
    if (erg_door_choice(&pick, "pick", wanted->pick, ERG_WORDS_PICK, err) != 0 ||
        erg_door_amount(&bounds[0], "deadline_s", wanted->deadline_s, err) != 0 ||
        erg_door_amount(&bounds[1], "energy_j", wanted->energy_j, err) != 0 ||
        erg_door_amount(&bounds[2], "power_w", wanted->power_w, err) != 0 ||
        erg_door_amount(&bounds[3], "straggler_s", wanted->straggler_s, err) != 0)
        return -1;
    *goal = (struct erg_goal){
        .objective = pick >= 0                                           ? objectives[pick]
                     : wanted->deadline_s > 0 || wanted->straggler_s > 0 ? ERG_LEAST_ENERGY
                                                                         : ERG_FASTEST,
        .deadline_s = wanted->deadline_s,
        .energy_j = wanted->energy_j,
        .power_w = wanted->power_w,
        .straggler_s = wanted->straggler_s,
    };
    return 0;
}

int erg_plan_choose(struct erg_plan *plan, const struct erg_plan_goal *goal, struct erg_error *err)
{
    struct erg_plan_goal wanted = {0};
    struct erg_goal own;
    if (erg_sized_take(&wanted, sizeof wanted, goal, "erg_plan_goal", err) != 0 ||
        goal_of(&own, &wanted, err) != 0)
        return -1;
    const bool any = wanted.pick || wanted.deadline_s > 0 || wanted.energy_j > 0 ||
                     wanted.power_w > 0 || wanted.straggler_s > 0;
    if (wanted.point < 0 || (wanted.point && any))
        return erg_fail(err, ERG_USAGE,
                        "a point is chosen by its number, from 1 on, or by a goal; expected one "
                        "of them");
    const struct erg_plan_input input = {
        .method = wanted.method, .number = (size_t)wanted.point, .goal = any ? &own : NULL};
    return erg_plan_select(plan, &input, err);
}

/* ---- what it does ---- */

int erg_plan_passes(const struct erg_plan *plan, size_t stage, struct erg_plan_pass *passes,
                    size_t capacity, size_t *count, struct erg_error *err)
{
    const struct erg_schedule *schedule = &plan->schedule;
    const struct erg_plan_point *point = selected(plan);
    if (stage >= schedule->pipeline.stages)
        return erg_fail(err, ERG_USAGE, "stage %zu of %zu; expected one below %zu", stage,
                        schedule->pipeline.stages, schedule->pipeline.stages);
    const size_t all = schedule->per_stage, first = stage * all,
                 bytes = capacity ? passes->size : 0;
    if (count)
        *count = all;
    if (!capacity)
        return 0;
    double *start_s = malloc(schedule->count * sizeof *start_s), time_s, energy_j;
    if (!start_s)
        return erg_fail(err, ERG_FAILED, "out of memory for %zu passes", schedule->count);
    erg_plan_evaluate(plan, point, start_s, &time_s, &energy_j);
    int status = 0;
    for (size_t i = 0; i < all && i < capacity && status == 0; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[first + i];
        const struct erg_plan_option *option = erg_plan_option(plan, point, first + i);
        const struct erg_plan_pass own = {
            .microbatch = instruction->microbatch,
            .chunk = instruction->chunk,
            .direction = (int32_t)instruction->direction,
            .clock_mhz = option->clock_mhz,
            .start_s = start_s[first + i],
            .time_s = option->time_s,
            .energy_j = option->energy_j,
            .mode = erg_mode_name(option->mode),
        };
        char *at = (char *)passes + i * bytes;
        memcpy(at, &bytes, sizeof bytes);
        status = erg_sized_give(at, &own, sizeof own, "erg_plan_pass", err);
    }
    free(start_s);
    return status;
}

/* The time until which a straggler holds the selected point is not part of a plan. */
const char *erg_plan_chosen_json(struct erg_plan *plan)
{
    char *text = erg_door_json(erg_plan_chosen_document(plan));
    const char *kept = text ? erg_arena_strdup(&plan->arena, text) : NULL;
    free(text);
    return kept;
}

const char *erg_plan_chosen_text(struct erg_plan *plan)
{
    struct erg_text table = {0};
    char *text = NULL;
    size_t count;
    FILE *out = open_memstream(&text, &count);
    json_t *document = erg_plan_json(plan);
    const char *kept = NULL;
    if (out && erg_report_table(&table, document, NULL) == 0) {
        fprintf(out, "%s\n", table.data);
        erg_plan_point_print(out, plan);
        if (fflush(out) == 0)
            kept = erg_arena_strdup(&plan->arena, text);
    }
    if (out)
        fclose(out);
    free(text);
    json_decref(document);
    erg_text_release(&table);
    return kept;
}

/* ---- files ---- */

struct writing {
    const struct erg_plan *plan;
    const char *path;
};

static int save(void *argument, struct erg_error *err)
{
    const struct writing *at = argument;
    return erg_plan_write(at->plan, at->path, err);
}

int erg_plan_save(const struct erg_plan *plan, const char *path, struct erg_error *err)
{
    struct writing at = {plan, path};
    return erg_call_run(save, &at, NULL, err);
}

static int write_page(void *argument, struct erg_error *err)
{
    const struct writing *at = argument;
    json_t *document = erg_plan_json(at->plan);
    const int status = erg_report_write(at->path, document, err);
    json_decref(document);
    return status;
}

int erg_plan_write_page(const struct erg_plan *plan, const char *path, struct erg_error *err)
{
    struct writing at = {plan, path};
    return erg_call_run(write_page, &at, NULL, err);
}
