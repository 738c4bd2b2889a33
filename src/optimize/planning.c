/*
 * Planning: from the survey to the plans of every method.
 */
#include "optimize/optimization_internal.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "layout/energy/layout_energy.h"

#include <stdlib.h>

enum { VERIFY_ROUNDS = 5 }; /* after that, plan with the measurements so far */

/* ---- work of a stage outside its layers' own passes: copies to host memory, and recomputation
 * where stages differ in it ---- */

static void add_pass(struct erg_cost *sum, const struct erg_pass_cost *pass)
{
    sum->time_s += pass->time_s;
    sum->energy_j += pass->total_j;
}

/* One layer of a stage; the job's own recomputation is part of its passes. */
static void add_layer(struct erg_cost *extra, const struct erg_layout_energy_request *request,
                      const struct erg_time_parts *parts, const struct erg_layout_costs *costs,
                      const struct erg_layout *layout, long stage, enum erg_direction direction)
{
    enum erg_recompute recompute = erg_layout_recompute(layout, stage);
    const struct erg_pass_cost copy = erg_layout_copy_cost(request, parts, costs, 1, recompute,
                                                           erg_layout_offload(layout, stage));
    add_pass(extra, &copy);
    if (direction == ERG_FORWARD || !layout->stage_recompute)
        return;
    if (erg_recompute_norms(recompute))
        add_pass(extra, &costs->passes[ERG_PASS_NORMS]);
    if (erg_recompute_activation(recompute))
        add_pass(extra, &costs->passes[ERG_PASS_ACTIVATION]);
    if (recompute == ERG_RECOMPUTE_FULL)
        add_pass(extra, &costs->passes[ERG_PASS_FORWARD]);
}

/* On the GPUs of one kind, for all stages: those that lie elsewhere take theirs from there. */
static void add_extras(struct erg_optimization_kind *kind, const struct erg_model *model,
                       const struct erg_layout *layout)
{
    struct erg_time_machine machine;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    size_t clocks = kind->survey.clock_count;
    erg_time_machine_init(&machine, kind->on->gpu, kind->on->nodes);
    const struct erg_layout_energy_request request = {.time = {model, kind->on->engine, &machine},
                                                      .gpu = kind->on->gpu};
    long gpus = erg_cluster_gpus(kind->on->nodes);
    erg_time_parts_of(&parts, &request.time, layout, gpus);
    erg_layout_work_of(&work, &request, &parts, layout, gpus);
    kind->extras = erg_xcalloc(2 * (size_t)layout->pipeline * clocks, sizeof *kind->extras);
    for (size_t clock = 0; clock < clocks; clock++) {
        struct erg_layout_costs costs;
        erg_layout_costs_at(&costs, &request, &work, kind->survey.clocks_mhz[clock]);
        for (long i = 0; i < 2 * layout->pipeline; i++)
            add_layer(&kind->extras[(size_t)i * clocks + clock], &request, &parts, &costs, layout,
                      i / 2, i % 2 ? ERG_BACKWARD : ERG_FORWARD);
    }
}

static void find_extras(struct erg_optimization *o)
{
    const struct erg_job *job = o->job;
    if (!(job->layout.offload > 0) && !job->layout.stage_recompute)
        return;
    for (size_t k = 0; k < job->kind_count; k++)
        add_extras(&o->kinds[k], job->model, &job->layout);
}

/* ---- option tables ---- */

static struct erg_host_model host_of(const struct erg_optimization_kind *kind)
{
    return (struct erg_host_model){kind->workload_request.stack->host_per_kernel_s,
                                   kind->on->gpu->static_power_w};
}

/* Adds steps that an instruction runs `times` times in addition to its layers. */
static void add_work(const struct erg_optimization_kind *kind, const struct erg_cost *cost,
                     const struct erg_steps *steps, int times, struct erg_cost *fixed)
{
    struct erg_host_model host = host_of(kind);
    for (size_t clock = 0; clock < kind->survey.clock_count; clock++) {
        struct erg_cost one = erg_host_floor(&host, cost[clock], steps->kernels);
        fixed[clock].time_s += times * one.time_s;
        fixed[clock].energy_j += times * one.energy_j;
    }
}

static void add_fixed(const struct erg_optimization_kind *kind, enum erg_fixed what, int times,
                      struct erg_cost *fixed)
{
    add_work(kind, kind->survey.fixed[what], &kind->workload.fixed[what], times, fixed);
}

/* The work of virtual stage x in one direction outside its layers' own, at every clock: work
 * outside the layers, and the stage's copies and recomputation. The caller frees it. */
static struct erg_cost *fixed_work(const struct erg_optimization *o, size_t x, int direction,
                                   bool nanobatched)
{
    const struct erg_optimization_kind *kind = erg_optimization_kind(o, x);
    size_t clocks = kind->survey.clock_count;
    struct erg_cost *fixed = erg_xcalloc(clocks, sizeof *fixed);
    size_t last = (size_t)(o->job->layout.pipeline * o->job->layout.virtual_stages) - 1;
    if (x == 0 && direction == ERG_FORWARD)
        add_fixed(kind, ERG_FIXED_EMBEDDING_FORWARD, 1, fixed);
    else if (x == 0 && nanobatched)
        add_fixed(kind, ERG_FIXED_EMBEDDING_BACKWARD_NANOBATCH, 2, fixed);
    else if (x == 0)
        add_fixed(kind, ERG_FIXED_EMBEDDING_BACKWARD, 1, fixed);
    if (x == last)
        add_fixed(kind, direction == ERG_FORWARD ? ERG_FIXED_HEAD_FORWARD : ERG_FIXED_HEAD_BACKWARD,
                  1, fixed);
    size_t stage = x % (size_t)o->job->layout.pipeline;
    const double layers = (double)erg_job_chunk_layers(o->job, x);
    for (size_t clock = 0; kind->extras && clock < clocks; clock++) {
        const struct erg_cost *extra =
            &kind->extras[(2 * stage + (size_t)direction) * clocks + clock];
        fixed[clock].time_s += layers * extra->time_s;
        fixed[clock].energy_j += layers * extra->energy_j;
    }
    return fixed;
}

/* All kinds of GPUs are surveyed for the same work. */
static bool has_partitions(const struct erg_optimization *o)
{
    return o->kinds[0].survey.partition_count > 0;
}

static void new_tables(const struct erg_optimization *o, struct erg_method_result *result)
{
    erg_method_release(result);
    result->table_count = (size_t)(2 * o->job->layout.pipeline * o->job->layout.virtual_stages);
    result->tables = erg_xcalloc(result->table_count, sizeof *result->tables);
}

/* Tables of whole layers (sequential or nanobatched), unfiltered: one option per clock. */
static void add_whole_layers(const struct erg_optimization *o, struct erg_method_result *result,
                             enum erg_mode mode)
{
    bool nanobatched = mode == ERG_MODE_NANOBATCH;
    for (size_t i = 0; i < result->table_count; i++) {
        size_t x = i / 2;
        int direction = (int)(i % 2), layers = (int)erg_job_chunk_layers(o->job, x);
        const struct erg_optimization_kind *kind = erg_optimization_kind(o, x);
        const struct erg_workload *workload = &kind->workload;
        const struct erg_survey *survey = &kind->survey;
        struct erg_host_model host = host_of(kind);
        struct erg_cost *fixed = fixed_work(o, x, direction, nanobatched);
        const struct erg_steps *layer =
            nanobatched ? &workload->nanobatch[direction] : &workload->sequential[direction];
        const struct erg_cost *cost =
            nanobatched ? survey->nanobatch[direction] : survey->sequential[direction];
        if (nanobatched && kind->survey_request.ends) {
            add_work(kind, survey->nanobatch_single[direction],
                     &workload->nanobatch_single[direction], 1, fixed);
            layers--;
        }
        erg_microbatch_add_whole(&result->tables[i], mode, cost, layer->kernels, layers, fixed,
                                 survey->clock_count, &host);
        free(fixed);
    }
}

/* Options are compared by their cost beyond waiting on their stage's own GPUs. */
static void filter_tables(const struct erg_optimization *o, struct erg_method_result *result)
{
    for (size_t i = 0; i < result->table_count; i++)
        erg_microbatch_filter(&result->tables[i],
                              erg_optimization_kind(o, i / 2)->on->gpu->blocking_power_w);
}

/* Whether virtual stage x is composed as the one before it: as many layers on the same GPUs. */
static bool composed_alike(const struct erg_optimization *o, size_t x)
{
    return x > 0 && erg_job_chunk_layers(o->job, x) == erg_job_chunk_layers(o->job, x - 1) &&
           erg_optimization_kind(o, x) == erg_optimization_kind(o, x - 1);
}

/* Tables of ergon: overlapped partitions and whole layers side by side. */
static void add_partitions(const struct erg_optimization *o, struct erg_method_result *result,
                           bool measured_only)
{
    add_whole_layers(o, result, ERG_MODE_SEQUENTIAL);
    if (o->kinds[0].survey_request.whole_nanobatch)
        add_whole_layers(o, result, ERG_MODE_NANOBATCH);
    for (int direction = 0; direction < 2 && has_partitions(o); direction++) {
        struct erg_layer *composed = NULL;
        for (size_t x = 0; x < result->table_count / 2; x++) {
            const struct erg_optimization_kind *kind = erg_optimization_kind(o, x);
            if (!composed_alike(o, x)) {
                erg_layer_free(composed);
                composed = erg_survey_compose(&kind->survey, &kind->survey_request,
                                              (int)erg_job_chunk_layers(o->job, x),
                                              direction == ERG_BACKWARD, measured_only);
            }
            struct erg_cost *fixed = fixed_work(o, x, direction, true);
            if (kind->survey_request.ends)
                add_work(kind, kind->survey.ends[direction], &kind->workload.ends[direction], 1,
                         fixed);
            erg_microbatch_add_overlap(&result->tables[2 * x + (size_t)direction], composed, 1,
                                       fixed);
            free(fixed);
        }
        erg_layer_free(composed);
    }
    filter_tables(o, result);
}

/* ---- planning ---- */

static int plan_whole_layers(struct erg_optimization *o, enum erg_method full_clock,
                             enum erg_method clocks, enum erg_mode mode, struct erg_error *err)
{
    struct erg_method_result *one = &o->methods[full_clock], *frontier = &o->methods[clocks];
    new_tables(o, one);
    add_whole_layers(o, one, mode);
    new_tables(o, frontier);
    add_whole_layers(o, frontier, mode);
    filter_tables(o, frontier);
    return erg_interrupt_check(err) || erg_method_run_full_clock(one, &o->plan_request, err) ||
                   erg_method_plan(frontier, &o->plan_request, err)
               ? -1
               : 0;
}

/* ---- which configurations the plans rest on ---- */

unsigned **erg_optimization_uses(const struct erg_optimization *o,
                                 const struct erg_optimization_kind *kind,
                                 const struct erg_method_result *result, size_t first, size_t count)
{
    const struct erg_survey *survey = &kind->survey;
    unsigned **uses = erg_xcalloc(survey->partition_count, sizeof *uses);
    for (size_t i = 0; i < survey->partition_count; i++)
        uses[i] = erg_xcalloc(survey->searches[i]->config_count, sizeof **uses);
    const struct erg_schedule *schedule = &result->iteration.schedule;
    for (size_t p = first; p < first + count; p++)
        for (size_t i = 0; i < schedule->count; i++) {
            const struct erg_instruction *instruction = &schedule->instructions[i];
            if (erg_optimization_kind(o, instruction->stage) != kind)
                continue;
            const struct erg_microbatch *table =
                &result->tables[erg_table_index(&schedule->pipeline, instruction)];
            const struct erg_microbatch_option *option =
                &table->options[result->points[p].option[i]];
            for (size_t k = 0; option->configurations && k < table->partition_count; k++)
                uses[erg_optimization_partition(kind, (int)instruction->direction, k)]
                    [option->configurations[k]]++;
        }
    return uses;
}

/*
 * The next measurements: for each partition at each clock, the predicted configuration that the
 * points use most. One per partition and clock is enough for a plan; the estimates of its
 * neighbours improve, too.
 */
static struct erg_survey_pick *pick_most_used(const struct erg_optimization *o,
                                              const struct erg_optimization_kind *kind,
                                              const struct erg_method_result *result, size_t *count)
{
    struct {
        struct erg_survey_pick *items;
        size_t count, capacity;
    } picks = {0};
    unsigned **uses =
        erg_optimization_uses(o, kind, result, 0, result->point_count + result->slower_count);
    for (size_t partition = 0; partition < kind->survey.partition_count; partition++) {
        const struct erg_space *space = &kind->survey.spaces[partition];
        size_t *most = erg_xcalloc(space->clock_count, sizeof *most); /* config + 1; 0 = none */
        for (size_t config = 0; config < erg_space_size(space); config++) {
            size_t clock = erg_space_choice(space, config).clock;
            if (kind->survey.searches[partition]->table[config].knowledge != ERG_MEASURED &&
                uses[partition][config] &&
                (!most[clock] || uses[partition][config] > uses[partition][most[clock] - 1]))
                most[clock] = config + 1;
        }
        for (size_t clock = 0; clock < space->clock_count; clock++)
            if (most[clock])
                ERG_PUSH(&picks, items, (struct erg_survey_pick){partition, most[clock] - 1});
        free(most);
        free(uses[partition]);
    }
    free(uses);
    *count = picks.count;
    return picks.items;
}

static bool has_overlap(const struct erg_method_result *result)
{
    for (size_t i = 0; i < result->table_count; i++)
        for (size_t k = 0; k < result->tables[i].count; k++)
            if (result->tables[i].options[k].mode == ERG_MODE_OVERLAP)
                return true;
    return false;
}

/* One round of planning: *added configurations were measured because a point uses them. */
static int plan_round(struct erg_optimization *o, bool measured_only, bool with_budgets,
                      size_t *added, struct erg_error *err)
{
    struct erg_method_result *result = &o->methods[ERG_METHOD_ERGON];
    struct erg_method_request request = o->plan_request;
    if (!with_budgets)
        request.budget_count = 0;
    new_tables(o, result);
    add_partitions(o, result, measured_only);
    *added = 0;
    if (erg_interrupt_check(err) || erg_method_plan(result, &request, err))
        return -1;
    for (size_t i = 0; i < o->job->kind_count; i++) {
        struct erg_optimization_kind *kind = &o->kinds[i];
        size_t count, own = 0;
        struct erg_survey_pick *picks = pick_most_used(o, kind, result, &count);
        int status =
            count ? erg_survey_verify(&kind->survey, &kind->survey_request, picks, count, &own, err)
                  : 0;
        free(picks);
        o->verified += own;
        *added += own;
        if (status)
            return -1;
    }
    return 0;
}

/*
 * Plans, measures predicted configurations that the plans use, and plans again, until nothing is
 * left to measure. Plans for energy budgets take the longest to find, so they join once the others
 * rest. The last round plans with measured configurations only: every point rests on measurements.
 */
static int plan_ergon(struct erg_optimization *o, struct erg_error *err)
{
    bool with_budgets = false;
    for (int round = 0; round <= VERIFY_ROUNDS; round++) {
        bool last = round == VERIFY_ROUNDS;
        size_t added;
        if (plan_round(o, last, with_budgets || last, &added, err))
            return -1;
        if (round == 0 && has_partitions(o) && !has_overlap(&o->methods[ERG_METHOD_ERGON]))
            erg_log(ERG_LOG_WARNING,
                    "the search left no clock at which overlapping partitions pays: either "
                    "sequential execution is better, or the partitions share no measured clock");
        if (!added && with_budgets)
            return 0;
        if (!added)
            with_budgets = true;
        else
            erg_log(ERG_LOG_INFO, "planning round %d: %zu configurations of the plans measured",
                    round + 1, added);
    }
    return 0;
}

/* ---- all methods ---- */

/* The references' time and energy, and the user's bounds. */
struct targets {
    double deadlines_s[2], budgets_j[2];
};

static void aim(struct erg_optimization *o, struct targets *targets)
{
    const struct erg_method_result *clocks = &o->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    targets->deadlines_s[0] = clocks->points[0].time_s;
    targets->budgets_j[0] = clocks->points[clocks->point_count - 1].energy_j;
    struct erg_method_request *request = &o->plan_request;
    request->deadlines_s = targets->deadlines_s;
    request->budgets_j = targets->budgets_j;
    request->deadline_count = request->budget_count = 1;
    if (o->job->goal.deadline_s > 0)
        targets->deadlines_s[request->deadline_count++] = o->job->goal.deadline_s;
    if (o->job->goal.energy_j > 0)
        targets->budgets_j[request->budget_count++] = o->job->goal.energy_j;
}

static void compare_all(struct erg_optimization *o)
{
    const struct erg_plan_point *m = &o->methods[ERG_METHOD_SEQUENTIAL].points[0];
    struct erg_point full_clock = {m->time_s, m->energy_j, 0};
    struct erg_frontier reference = {0}, own = {0};
    erg_plan_list_points(&reference, o->methods[ERG_METHOD_SEQUENTIAL_CLOCKS].points,
                         o->methods[ERG_METHOD_SEQUENTIAL_CLOCKS].point_count);
    for (int i = 0; i < ERG_METHOD_COUNT; i++) {
        erg_plan_list_points(&own, o->methods[i].points, o->methods[i].point_count);
        o->methods[i].versus = erg_compare(&own, full_clock, &reference);
    }
    erg_frontier_release(&reference);
    erg_frontier_release(&own);
}

int erg_optimization_plan(struct erg_optimization *o, struct erg_error *err)
{
    struct targets targets;
    find_extras(o);
    /* The reference is planned twice, so that every method gets plans exactly at the reference's
     * time and energy, the reference too. */
    int status = plan_whole_layers(o, ERG_METHOD_SEQUENTIAL, ERG_METHOD_SEQUENTIAL_CLOCKS,
                                   ERG_MODE_SEQUENTIAL, err);
    if (!status) {
        aim(o, &targets);
        status = erg_method_plan(&o->methods[ERG_METHOD_SEQUENTIAL_CLOCKS], &o->plan_request, err);
    }
    if (!status) {
        aim(o, &targets);
        if (o->kinds[0].survey_request.whole_nanobatch)
            status = plan_whole_layers(o, ERG_METHOD_NANOBATCHING, ERG_METHOD_NANOBATCHING_CLOCKS,
                                       ERG_MODE_NANOBATCH, err);
    }
    if (!status && o->request->methods[ERG_METHOD_ERGON]) {
        status = plan_ergon(o, err);
        if (!status)
            erg_method_adopt(&o->methods[ERG_METHOD_ERGON],
                             &o->methods[ERG_METHOD_SEQUENTIAL_CLOCKS], &o->plan_request);
    }
    o->plan_request.deadlines_s = o->plan_request.budgets_j = NULL;
    o->plan_request.deadline_count = o->plan_request.budget_count = 0;
    if (!status)
        compare_all(o);
    return status;
}
