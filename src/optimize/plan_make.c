/* The plan of a finished optimization. */
#include "optimize/optimization_internal.h"

#include "base/memory.h"
#include "device/emulated/emulated.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct maker {
    const struct erg_optimization *o;
    struct erg_plan *plan;
};

static void *allocate(const struct maker *m, size_t count, size_t bytes)
{
    return erg_arena_alloc(&m->plan->arena, (count + !count) * bytes);
}

static const char *copy(const struct maker *m, const char *text)
{
    return text ? erg_arena_strdup(&m->plan->arena, text) : NULL;
}

static const char *op_kind_name(enum erg_op_kind kind)
{
    static const char *const names[] = {[ERG_OP_MEMORY] = "memory",
                                        [ERG_OP_GEMM] = "gemm",
                                        [ERG_OP_ATTENTION_FORWARD] = "attention",
                                        [ERG_OP_ATTENTION_BACKWARD] = "attention"};
    assert((size_t)kind < sizeof names / sizeof *names);
    return names[kind];
}

static const char *comm_name(enum erg_comm_kind kind)
{
    static const char *const names[] = {[ERG_COMM_NONE] = "none",
                                        [ERG_COMM_ALLREDUCE] = "allreduce",
                                        [ERG_COMM_ALLGATHER_KV] = "allgather_kv",
                                        [ERG_COMM_REDUCESCATTER_KV] = "reducescatter_kv",
                                        [ERG_COMM_ALLGATHER_HIDDEN] = "allgather_hidden",
                                        [ERG_COMM_REDUCESCATTER_HIDDEN] = "reducescatter_hidden",
                                        [ERG_COMM_NORM_HIDDEN] = "norm_hidden",
                                        [ERG_COMM_ALLTOALL] = "alltoall"};
    assert((size_t)kind < sizeof names / sizeof *names);
    return names[kind];
}

size_t erg_optimization_partition(const struct erg_optimization_kind *kind, int direction, size_t k)
{
    bool skips_forward = direction == ERG_BACKWARD && !kind->workload.replays_forward;
    return k + (skips_forward ? kind->workload.forward_count : 0);
}

/* ---- the request and the GPUs ---- */

static void make_job(const struct maker *m)
{
    const struct erg_job *job = m->o->job;
    struct erg_plan *plan = m->plan;
    const size_t stages = (size_t)job->layout.pipeline;
    plan->seed = (long)job->search.seed;
    plan->name = copy(m, job->name);
    plan->model = copy(m, job->model->name);
    plan->stack = copy(m, job->stack->name);
    plan->sequence_parallel = erg_job_splits_stream(job);
    plan->layout = erg_layout_copy(&job->layout, &plan->arena);
    plan->hop_latency_s = allocate(m, stages, sizeof *plan->hop_latency_s);
    memcpy(plan->hop_latency_s, m->o->hop_latency_s, stages * sizeof *plan->hop_latency_s);
    plan->scale.overhead = m->o->plan_request.scale.overhead;
    plan->scale.gpus_per_stage = m->o->plan_request.scale.gpus_per_stage;
    plan->window_s = m->o->profiler.window_s;
    plan->cooldown_s = m->o->profiler.cooldown_s;
    plan->warmup_s = m->o->profiler.warmup_s;
}

/* The GPUs of one kind, and what stood for them. */
static struct erg_plan_kind make_kind(const struct maker *m,
                                      const struct erg_optimization_kind *kind)
{
    const struct erg_gpu *gpu = kind->on->gpu;
    const struct erg_device *device = m->o->request->device;
    const size_t count = kind->survey.clock_count;
    struct erg_plan_kind made = {
        .gpu = copy(m, gpu->name),
        .nodes = kind->on->nodes->nodes,
        .gpus_per_node = kind->on->nodes->gpus_per_node,
        .gpus_used = erg_cluster_gpus(kind->on->nodes),
        .device = device ? copy(m, device->board ? device->board : gpu->name)
                         : erg_arena_printf(&m->plan->arena, "emulated %s", gpu->name),
        .identity = copy(m, erg_lab_identity(kind->lab)),
        .emulated = !device,
        .confidence = device ? NULL : copy(m, gpu->confidence),
        .blocking_power_w = gpu->blocking_power_w,
        .static_power_w = gpu->static_power_w,
        .power_cap_w = gpu->power_cap_w,
        .sms = gpu->sms,
        .clocks_mhz = allocate(m, count, sizeof(int)),
        .clock_count = count,
        .mean_clock_mhz =
            erg_lab_fixed_clock(kind->lab) ? erg_lab_counts(kind->lab).mean_clock_mhz : NAN,
    };
    for (size_t i = 0; i < count; i++)
        made.clocks_mhz[i] = kind->survey.clocks_mhz[count - 1 - i];
    return made;
}

/* Budgets are those of each partition; the largest stands for all. Only models have a start and
 * batches. */
static void find_largest(const struct erg_optimization *o, const struct erg_optimization_kind *kind,
                         struct erg_search_options *largest)
{
    for (size_t i = 0; i < kind->survey.partition_count; i++) {
        struct erg_search_options own =
            erg_survey_search_options(o->job, kind->on->gpu, kind->workload.partitions[i].run_ops);
        if (own.method == ERG_SEARCH_EXHAUSTIVE)
            own.budget = erg_space_size(&kind->survey.spaces[i]);
        if (own.budget > largest->budget)
            *largest = own;
    }
}

static struct erg_plan_search make_search(const struct erg_optimization *o)
{
    struct erg_search_options largest = erg_survey_search_options(o->job, o->job->gpu, 0);
    bool exhaustive = largest.method == ERG_SEARCH_EXHAUSTIVE;
    if (exhaustive)
        largest.budget = 0;
    for (size_t k = 0; k < o->job->kind_count; k++)
        find_largest(o, &o->kinds[k], &largest);
    if (exhaustive || largest.method == ERG_SEARCH_RANDOM)
        largest.start = largest.batch = 0;
    return (struct erg_plan_search){
        .method = erg_search_method_name(largest.method),
        .prior = o->job->search.prior == ERG_JOB_EMULATOR_PRIOR ? "emulator" : "none",
        .budget = largest.budget,
        .start = largest.start,
        .batch = largest.batch,
        .sweep_clocks = largest.sweep_clocks,
    };
}

/* ---- partitions ---- */

static void make_front(const struct maker *m, const struct erg_optimization_kind *kind,
                       size_t index, struct erg_plan_partition *out)
{
    const struct erg_partition *partition = &kind->workload.partitions[index];
    const struct erg_search_result *search = kind->survey.searches[index];
    const struct erg_space *space = &kind->survey.spaces[index];
    struct erg_frontier frontier = {0};
    erg_search_front(search, kind->on->gpu->blocking_power_w, &frontier);
    out->frontier_count = frontier.count;
    out->frontier = allocate(m, frontier.count, sizeof *out->frontier);
    for (size_t i = 0; i < frontier.count; i++) {
        size_t config = (size_t)frontier.points[i].recipe;
        struct erg_choice choice = erg_space_choice(space, config);
        const struct erg_estimate *estimate = &search->table[config];
        assert(config < search->config_count);
        out->frontier[i] = (struct erg_plan_estimate){
            .clock_mhz = space->clocks_mhz[choice.clock],
            .slot = copy(m, partition->slots[choice.slot].name),
            .sms = space->sms[choice.sm],
            .time_s = estimate->time_s,
            .energy_j = estimate->energy_j,
            .time_sd = estimate->time_sd,
            .energy_sd = estimate->energy_sd,
            .measured = estimate->knowledge == ERG_MEASURED,
        };
    }
    erg_frontier_release(&frontier);
}

static struct erg_plan_partition make_partition(const struct maker *m, size_t kind_index,
                                                size_t index)
{
    const struct erg_optimization_kind *kind = &m->o->kinds[kind_index];
    const struct erg_partition *partition = &kind->workload.partitions[index];
    const struct erg_search_result *search = kind->survey.searches[index];
    struct erg_plan_partition made = {
        .key = copy(m, partition->key),
        .kind = kind_index,
        .direction = partition->backward ? ERG_BACKWARD : ERG_FORWARD,
        .occurrences = partition->occurrences,
        .communication = comm_name(partition->task.comm.kind),
        .wire_bytes = partition->task.comm.wire_bytes,
        .ops = allocate(m, partition->task.op_count, sizeof *made.ops),
        .op_count = partition->task.op_count,
        .slots = allocate(m, partition->slot_count, sizeof *made.slots),
        .slot_count = partition->slot_count,
        .sms = allocate(m, partition->sms_count, sizeof *made.sms),
        .sms_count = partition->sms_count,
        .configurations = search->config_count,
        .measured = search->full_count,
        .swept = search->swept_count,
        .hypervolume = allocate(m, search->evaluation_count, sizeof *made.hypervolume),
        .hypervolume_count = search->evaluation_count,
    };
    for (size_t i = 0; i < made.op_count; i++)
        made.ops[i] = (struct erg_plan_op){copy(m, partition->op_names[i]),
                                           op_kind_name(partition->task.ops[i].kind)};
    for (size_t i = 0; i < made.slot_count; i++)
        made.slots[i] = copy(m, partition->slots[i].name);
    memcpy(made.sms, partition->sms, made.sms_count * sizeof *made.sms);
    for (size_t i = 0; i < made.hypervolume_count; i++)
        made.hypervolume[i] = search->progress[i];
    make_front(m, kind, index, &made);
    return made;
}

static void make_kinds(const struct maker *m)
{
    struct erg_plan *plan = m->plan;
    size_t count = 0, at = 0;
    plan->kind_count = m->o->job->kind_count;
    plan->kinds = allocate(m, plan->kind_count, sizeof *plan->kinds);
    for (size_t k = 0; k < plan->kind_count; k++) {
        plan->kinds[k] = make_kind(m, &m->o->kinds[k]);
        count += m->o->kinds[k].survey.partition_count;
    }
    plan->search = make_search(m->o);
    plan->partition_count = count;
    plan->partitions = allocate(m, count, sizeof *plan->partitions);
    for (size_t k = 0; k < plan->kind_count; k++)
        for (size_t i = 0; i < m->o->kinds[k].survey.partition_count; i++)
            plan->partitions[at++] = make_partition(m, k, i);
}

/* ---- beyond the iteration ---- */

/* The engine of these GPUs: the job's, or the one in the catalogue with the name of the software
 * stack. An engine that was measured on other GPUs still gives the bytes that move; the GPU's own
 * file then gives their rate. */
static int find_engine(struct erg_engine *own, const struct erg_job *job,
                       const struct erg_job_kind *kind)
{
    struct erg_engine *loaded = NULL;
    struct erg_error ignored;
    if (!kind->engine && erg_engine_load(&loaded, job->stack->name, &ignored) != 0)
        return -1;
    const struct erg_engine *engine = kind->engine ? kind->engine : loaded;
    const bool suits = erg_engine_check_gpu(engine, kind->gpu, &ignored) == 0;
    const double stack_factor = job->stack->library_link_factor;
    *own = *engine;
    own->name = NULL; /* is released with the loaded data */
    if (!suits) {
        own->memory_efficiency = kind->gpu->memory_efficiency;
        own->link_efficiency = own->network_efficiency =
            stack_factor > 0 ? stack_factor : kind->gpu->library_link_factor;
    }
    if (loaded)
        erg_engine_free(loaded);
    return 0;
}

/* Not known without an engine. */
static void make_step_ends(const struct maker *m)
{
    const struct erg_job *job = m->o->job;
    const size_t stages = (size_t)job->layout.pipeline;
    struct erg_engine *engines = erg_xcalloc(job->kind_count, sizeof *engines);
    struct erg_step_end_kind *kinds = erg_xcalloc(job->kind_count, sizeof *kinds);
    bool known = true;
    for (size_t k = 0; k < job->kind_count && known; k++) {
        const struct erg_job_kind *kind = &job->kinds[k];
        known = find_engine(&engines[k], job, kind) == 0;
        kinds[k] = (struct erg_step_end_kind){.engine = &engines[k], .gpu = kind->gpu};
        erg_time_machine_init(&kinds[k].machine, kind->gpu, kind->nodes);
    }
    if (known) {
        m->plan->step_end_count = stages;
        m->plan->step_ends = allocate(m, stages, sizeof *m->plan->step_ends);
        erg_step_ends_init(m->plan->step_ends, job->model, &job->layout, kinds, job->stage_kind);
    }
    free(engines);
    free(kinds);
}

/* ---- options and points ---- */

static struct erg_plan_option make_option(const struct maker *m,
                                          const struct erg_optimization_kind *kind, int direction,
                                          const struct erg_microbatch *table,
                                          const struct erg_microbatch_option *option)
{
    assert(option->clock >= 0 && (size_t)option->clock < kind->survey.clock_count);
    struct erg_plan_option made = {
        .mode = option->mode,
        .clock_mhz = kind->survey.clocks_mhz[option->clock],
        .time_s = option->time_s,
        .energy_j = option->energy_j,
    };
    if (!option->configurations)
        return made;
    made.configuration_count = table->partition_count;
    made.configurations = allocate(m, table->partition_count, sizeof *made.configurations);
    for (size_t k = 0; k < table->partition_count; k++) {
        size_t index = erg_optimization_partition(kind, direction, k);
        const struct erg_partition *partition = &kind->workload.partitions[index];
        const struct erg_space *space = &kind->survey.spaces[index];
        struct erg_choice choice = erg_space_choice(space, (size_t)option->configurations[k]);
        made.configurations[k] = (struct erg_plan_configuration){
            copy(m, partition->key), copy(m, partition->slots[choice.slot].name),
            space->sms[choice.sm]};
    }
    return made;
}

/* Appends the options of a method's tables; its points number them from `first` on. To be freed. */
static size_t *append_options(const struct maker *m, const struct erg_method_result *result)
{
    size_t *first = erg_xcalloc(result->table_count, sizeof *first);
    for (size_t t = 0; t < result->table_count; t++) {
        struct erg_plan_options *options = &m->plan->stages[t / 2].passes[t % 2];
        first[t] = options->count;
        for (size_t k = 0; k < result->tables[t].count; k++)
            options->items[options->count++] =
                make_option(m, erg_optimization_kind(m->o, t / 2), (int)(t % 2), &result->tables[t],
                            &result->tables[t].options[k]);
    }
    return first;
}

static void make_method(const struct maker *m, enum erg_method name)
{
    const struct erg_method_result *result = &m->o->methods[name];
    const struct erg_schedule *schedule = &result->iteration.schedule;
    const size_t count = result->point_count + result->slower_count;
    size_t *first = append_options(m, result);
    struct erg_plan_method *method = &m->plan->methods[name];
    *method = (struct erg_plan_method){
        .label = erg_method_label(name),
        .points = allocate(m, count, sizeof *method->points),
        .point_count = result->point_count,
        .slower_count = result->slower_count,
        .versus = result->versus,
    };
    for (size_t p = 0; p < count; p++) {
        struct erg_plan_point *point = &method->points[p];
        *point = result->points[p];
        point->option = allocate(m, schedule->count, sizeof *point->option);
        for (size_t i = 0; i < schedule->count; i++) {
            size_t t = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
            point->option[i] = (uint32_t)first[t] + result->points[p].option[i];
        }
    }
    free(first);
}

static bool is_reported(const struct erg_optimization *o, int method)
{
    return o->request->methods[method] && o->methods[method].point_count > 0;
}

static void make_stages(const struct maker *m)
{
    const struct erg_job *job = m->o->job;
    struct erg_plan *plan = m->plan;
    plan->stage_count = (size_t)(job->layout.pipeline * job->layout.virtual_stages);
    plan->stages = allocate(m, plan->stage_count, sizeof *plan->stages);
    for (size_t x = 0; x < plan->stage_count; x++) {
        struct erg_plan_stage *stage = &plan->stages[x];
        stage->stage = (int)((long)x % job->layout.pipeline);
        stage->chunk = (int)((long)x / job->layout.pipeline);
        assert(stage->stage < job->layout.pipeline && stage->chunk < job->layout.virtual_stages);
        stage->kind = job->stage_kind[stage->stage];
        stage->layers = erg_job_chunk_layers(job, x);
        for (int d = 0; d < 2; d++) {
            size_t most = 0; /* options of all methods together */
            for (int i = 0; i < ERG_METHOD_COUNT; i++)
                most += is_reported(m->o, i) ? m->o->methods[i].tables[2 * x + (size_t)d].count : 0;
            stage->passes[d].items = allocate(m, most, sizeof *stage->passes[d].items);
        }
    }
    for (int i = 0; i < ERG_METHOD_COUNT; i++)
        if (is_reported(m->o, i))
            make_method(m, (enum erg_method)i);
}

/* Selects by the job's goal, from the best reported method. */
static int select_point(const struct maker *m, struct erg_error *err)
{
    static const enum erg_method preference[] = {
        ERG_METHOD_ERGON,        ERG_METHOD_SEQUENTIAL_CLOCKS, ERG_METHOD_NANOBATCHING_CLOCKS,
        ERG_METHOD_NANOBATCHING, ERG_METHOD_SEQUENTIAL,
    };
    struct erg_plan_selection *selected = &m->plan->selected;
    size_t i = 0;
    while (!m->plan->methods[preference[i]].point_count)
        i++;
    assert(i < sizeof preference / sizeof *preference);
    selected->method = preference[i];
    selected->rule = erg_goal_rule(&m->o->job->goal);
    return erg_plan_pick(m->plan, selected->method, &m->o->job->goal, &selected->point, err);
}

/* ---- the selected point ---- */

/* One partition under one configuration. */
static int make_picture(const struct maker *m, size_t kind_index, size_t index, size_t config,
                        struct erg_plan_picture *out, struct erg_error *err)
{
    const struct erg_optimization_kind *kind = &m->o->kinds[kind_index];
    const struct erg_gpu *gpu = kind->on->gpu;
    const struct erg_stack *stack = m->o->job->stack;
    const struct erg_partition *partition = &kind->workload.partitions[index];
    const struct erg_space *space = &kind->survey.spaces[index];
    struct erg_choice choice = erg_space_choice(space, config);
    struct erg_step step = erg_partition_step(partition, choice.slot, space->sms[choice.sm]);
    int clock_mhz = space->clocks_mhz[choice.clock];
    struct erg_emulated_result result;
    struct erg_emulated_timeline timeline = {0};
    if (erg_emulated_run(gpu, stack, &step, 1, clock_mhz, &result, err) ||
        erg_emulated_timeline(gpu, stack, &step, 1, clock_mhz, &timeline, err))
        return -1;
    struct erg_plan_lane *lanes = allocate(m, 2, sizeof *lanes);
    lanes[0].name = "compute";
    lanes[1].name = "communication";
    for (int i = 0; i < 2; i++)
        lanes[i].spans = allocate(m, timeline.count, sizeof *lanes[i].spans);
    for (size_t i = 0; i < timeline.count; i++) {
        const struct erg_emulated_span *span = &timeline.spans[i];
        struct erg_plan_lane *lane = &lanes[span->lane != ERG_SPAN_COMPUTE];
        const char *name = span->lane == ERG_SPAN_COMPUTE ? copy(m, partition->op_names[span->op])
                           : span->lane == ERG_SPAN_COMM  ? comm_name(partition->task.comm.kind)
                                                          : "join";
        lane->spans[lane->span_count++] = (struct erg_plan_span){name, span->start_s, span->end_s};
    }
    erg_emulated_timeline_release(&timeline);
    const struct erg_estimate *estimate = &kind->survey.searches[index]->table[config];
    *out = (struct erg_plan_picture){
        .key = copy(m, partition->key),
        .kind = kind_index,
        .clock_mhz = clock_mhz,
        .clock_effective_mhz = result.clock_effective_mhz,
        .slot = copy(m, partition->slots[choice.slot].name),
        .sms = space->sms[choice.sm],
        .time_s = estimate->time_s,
        .energy_j = estimate->energy_j,
        .lanes = lanes,
        .lane_count = 2,
    };
    return 0;
}

/* For each partition on the GPUs of a kind, the configuration that most instructions of the
 * selected point use, if any does. */
static int make_pictures_of(const struct maker *m, size_t kind_index, struct erg_error *err)
{
    struct erg_plan *plan = m->plan;
    const struct erg_optimization_kind *kind = &m->o->kinds[kind_index];
    unsigned **uses = erg_optimization_uses(m->o, kind, &m->o->methods[ERG_METHOD_ERGON],
                                            plan->selected.point, 1);
    int status = 0;
    for (size_t i = 0; i < kind->survey.partition_count; i++) {
        size_t most = 0;
        for (size_t config = 1; config < erg_space_size(&kind->survey.spaces[i]); config++)
            most = uses[i][config] > uses[i][most] ? config : most;
        if (!status && uses[i][most])
            status =
                make_picture(m, kind_index, i, most, &plan->pictures[plan->picture_count++], err);
        free(uses[i]);
    }
    free(uses);
    return status;
}

static int make_pictures(const struct maker *m, struct erg_error *err)
{
    struct erg_plan *plan = m->plan;
    plan->pictures = allocate(m, plan->partition_count, sizeof *plan->pictures);
    for (size_t k = 0; plan->selected.method == ERG_METHOD_ERGON && k < plan->kind_count; k++)
        if (make_pictures_of(m, k, err))
            return -1;
    return 0;
}

/* Sequential execution of every virtual stage at every clock, the highest first. */
static void make_profile(const struct maker *m)
{
    const struct erg_method_result *sequential = &m->o->methods[ERG_METHOD_SEQUENTIAL];
    struct erg_plan *plan = m->plan;
    size_t count = 0;
    for (size_t t = 0; t < sequential->table_count; t++)
        count += sequential->tables[t].count;
    plan->profile = allocate(m, count, sizeof *plan->profile);
    for (size_t t = 0; t < sequential->table_count; t++)
        for (size_t k = sequential->tables[t].count; k-- > 0;) {
            const struct erg_microbatch_option *option = &sequential->tables[t].options[k];
            const struct erg_survey *survey = &erg_optimization_kind(m->o, t / 2)->survey;
            plan->profile[plan->profile_count++] = (struct erg_plan_row){
                .stage = t / 2,
                .direction = (enum erg_direction)(t % 2),
                .clock_mhz = survey->clocks_mhz[option->clock],
                .time_s = option->time_s,
                .energy_j = option->energy_j,
            };
        }
}

static void count_measurements(const struct maker *m)
{
    struct erg_plan_counts *sum = &m->plan->measurements;
    for (size_t k = 0; k < m->o->job->kind_count; k++) {
        struct erg_lab_counts own = erg_lab_counts(m->o->kinds[k].lab);
        sum->energy += own.energy;
        sum->time_only += own.time_only;
        sum->cached += own.cached;
        sum->device_seconds += own.device_s;
    }
    sum->verified = m->o->verified;
}

int erg_optimization_make_plan(const struct erg_optimization *o, struct erg_plan **plan,
                               struct erg_error *err)
{
    const struct maker maker = {o, erg_plan_new()}, *m = &maker;
    make_job(m);
    make_kinds(m);
    make_stages(m);
    make_step_ends(m);
    make_profile(m);
    count_measurements(m);
    if (erg_plan_complete(m->plan, err) || select_point(m, err) || make_pictures(m, err)) {
        erg_plan_free(m->plan);
        return -1;
    }
    *plan = m->plan;
    return 0;
}
