/* Energy of layouts: a case worked by hand, the cap, the emulated device, frontiers and picks. */
#include "check.h"
#include "energy_of_layout.h"

#include "device/emulated/emulated.h"
#include "layout/energy/layout_frontier.h"
#include "llama.h"

/* ---- by hand ---- */

/* Every rate is 1, nothing else costs time; the voltage is the same at every clock. */
static const struct erg_engine plain_engine = {
    .peak_flops = 1e15,
    .gemm_efficiency = 1,
    .whole_head_efficiency = 1,
    .attention_efficiency = 1,
    .attention_backward_efficiency = 1,
    .memory_efficiency = 1,
    .activation_factor = 1,
    .fused_kernels = true,
    .link_efficiency = 1,
    .network_efficiency = 1,
    .gradient_bytes = 6,
    .optimizer_bytes = 24,
    .optimizer_sharded_bytes = 28,
};
static const struct erg_time_machine plain_machine = {
    .memory_bandwidth = 1e12,
    .link_bandwidth = 1e11,
    .network_bandwidth = 1e10,
    .node_gpus = 8,
};
static const struct erg_gpu plain_gpu = {
    .clock_max_mhz = 2000,
    .search_max_mhz = 2000,
    .search_min_mhz = 1000,
    .search_step_mhz = 100,
    .memory_issue = 2,
    .static_power_w = 100,
    .active_power_w = 20,
    .energy_per_flop_j = 1e-12,
    .attention_forward_energy = 1,
    .attention_backward_energy = 1,
    .energy_per_hbm_byte_j = 10e-12,
    .energy_per_wire_byte_j = 100e-12,
    .comm_hbm_per_wire = 2,
    .blocking_power_w = 50,
    .idle_power_w = 30,
    .power_cap_w = 1e6,
    .cap_softness_mhz = 1,
};

/* Bytes of a linear's three products; the weight's gradient is added to in fp32. */
static double linear_bytes(double tokens, double in, double out)
{
    return 3 * 2 * (tokens * in + in * out + tokens * out) + 8 * in * out;
}

static void a_case_by_hand(void **state)
{
    (void)state;
    struct erg_model *model = llama("llama", 32000, 4, 1024, 3072, 8, 8);
    const double L = 4, T = 2048, h = 1024, f = 3072, V = 32000, m = 6;
    struct erg_layout layout = {1, 1, 1, 1, 1, 1, 6, 2048, .recompute = ERG_RECOMPUTE_NONE};
    const struct erg_layout_energy_request request = {
        .time = {model, &plain_engine, &plain_machine}, .gpu = &plain_gpu};
    double linear = L * 3 * 2 * T * (4 * h * h + 3 * h * f), attention = L * 3.5 * 2 * T * T * h;
    double memory = L * (2 * (16 + 8) * T * h + (6 + 10) * T * f);
    double head = 3 * 2 * T * h * V, head_memory = 6 * T * V + 10 * T * h;
    double parameters = L * (4 * h * h + 3 * h * f + 2 * h) + 2 * V * h + h;
    double optimizer = parameters * (24 + 28), items[ERG_LAYOUT_ENERGY_ITEMS] = {0};
    items[ERG_LAYOUT_ENERGY_LINEAR] =
        m * (1e-12 * linear + 10e-12 * L *
                                  (linear_bytes(T, h, 3 * h) + linear_bytes(T, h, h) +
                                   linear_bytes(T, h, 2 * f) + linear_bytes(T, f, h)));
    items[ERG_LAYOUT_ENERGY_ATTENTION] = m * (1e-12 * attention + 10e-12 * L * 26 * T * h);
    items[ERG_LAYOUT_ENERGY_MEMORY] = m * 10e-12 * memory;
    items[ERG_LAYOUT_ENERGY_HEAD] =
        m * (1e-12 * head + 10e-12 * (linear_bytes(T, h, V) + head_memory));
    items[ERG_LAYOUT_ENERGY_OPTIMIZER] = 10e-12 * optimizer;
    for (int half = 0; half < 2; half++) {
        double time_s = m * ((linear + attention + head) / 1e15 * (half ? 2 : 1) +
                             (memory + head_memory) / 1e12) +
                        optimizer / 1e12;
        struct erg_layout_energy energy;
        energy_of_layout(&energy, &request, &layout, half ? 1000 : 0, 0);
        items[ERG_LAYOUT_ENERGY_ACTIVE] = 20 * time_s / (half ? 2 : 1);
        items[ERG_LAYOUT_ENERGY_STATIC] = 100 * time_s;
        double total = 0;
        for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++) {
            if (!(fabs(energy.items[i] - items[i]) <= 1e-12 * energy.total_j))
                fail_msg("%s at %s clock: %.12g J, expected %.12g J",
                         erg_layout_energy_item_name(i), half ? "half" : "full", energy.items[i],
                         items[i]);
            total += items[i];
        }
        assert_close(energy.time_s, time_s, 1e-12);
        assert_close(energy.total_j, total, 1e-12);
        assert_close(energy.power_w, total / time_s, 1e-12);
        assert_close(energy.gpu_power_w, total / time_s, 1e-9);
    }

    /* Two stages and two replicas, recomputing all: the same products and a forward pass more; who
     * does not work waits. */
    layout = (struct erg_layout){1, 1, 2, 2, 1, 1, 3, 2048, .recompute = ERG_RECOMPUTE_FULL};
    struct erg_layout_energy energy;
    struct erg_time time;
    energy_of_layout(&energy, &request, &layout, 0, 0);
    erg_time_layout(&time, &request.time, &layout);
    double again = linear / 3 + attention / 3.5, again_memory = L * (24 * T * h + 6 * T * f);
    double group_optimizer = parameters * (24 + 14.0) / 1e12;
    double busy_s = m * ((linear + attention + head + again) / 1e15 +
                         (memory + head_memory + again_memory) / 1e12) +
                    2 * group_optimizer;
    assert_close(energy.time_s, time.total, 1e-12);
    assert_close(energy.items[ERG_LAYOUT_ENERGY_STATIC], 100 * busy_s, 1e-12);
    assert_close(energy.items[ERG_LAYOUT_ENERGY_WAITING], 50 * (4 * time.total - busy_s), 1e-12);
    assert_close(energy.items[ERG_LAYOUT_ENERGY_LINEAR], items[ERG_LAYOUT_ENERGY_LINEAR], 1e-12);
    /* A ring of two carries half of the 6 bytes; a byte sent is 120 pJ with its HBM bytes. */
    assert_close(energy.items[ERG_LAYOUT_ENERGY_GRADIENTS], 2 * 120e-12 * 3 * parameters, 1e-12);
    /* A hidden tensor forward, its gradient backward, of six microbatches. */
    assert_close(energy.items[ERG_LAYOUT_ENERGY_WIRES], 120e-12 * 6 * 2 * 2 * T * h, 1e-12);
    erg_model_free(model);
}

/* ---- measured rates and the cap ---- */

struct world {
    struct erg_model *model;
    struct erg_engine *engine;
    struct erg_gpu *gpu;
    struct erg_time_machine machine;
    struct erg_layout_energy_request request;
};

static const struct erg_cluster h800_cluster = {
    .nodes = 8, .gpus_per_node = 8, .intra_node_bandwidth = 200e9, .inter_node_bandwidth = 100e9};

static void world_open(struct world *world)
{
    struct erg_error err;
    world->model = llama("llama", 32000, 80, 8192, 22016, 64, 64);
    assert_ok(erg_engine_load(&world->engine, "megatron-kwai-h800", &err), &err);
    assert_ok(erg_gpu_load(&world->gpu, "h800-sxm-80gb", &err), &err);
    erg_time_machine_init(&world->machine, world->gpu, &h800_cluster);
    world->request = (struct erg_layout_energy_request){
        .time = {world->model, world->engine, &world->machine}, .gpu = world->gpu};
}

static void world_close(struct world *world)
{
    erg_model_free(world->model);
    erg_engine_free(world->engine);
    erg_gpu_free(world->gpu);
}

static const long uneven[] = {11, 11, 10, 10, 10, 10, 9, 9};
static const struct erg_layout layouts[] = {
    {2, 1, 8, 4, 5, 1, 64, 4096, .recompute = ERG_RECOMPUTE_NONE, .offload = 0.355},
    {2, 1, 4, 8, 10, 1, 32, 4096, .recompute = ERG_RECOMPUTE_BALANCED, .offload = 0.945},
    {4, 1, 8, 2, 5, 1, 48, 4096, .recompute = ERG_RECOMPUTE_BALANCED},
    {8, 1, 8, 1, 1, 1, 24, 4096, .recompute = ERG_RECOMPUTE_FULL},
    {4, 2, 8, 1, 1, 1, 24, 8192, .recompute = ERG_RECOMPUTE_NONE, .chunk_layers = uneven},
    {4, 1, 8, 2, 5, 1, 48, 4096, .recompute = ERG_RECOMPUTE_NORMS},
    {4, 1, 8, 2, 5, 1, 48, 4096, .recompute = ERG_RECOMPUTE_ACTIVATION},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void at_the_highest_clock_the_time_model_holds(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    for (int i = 0; i < LAYOUTS; i++) {
        struct erg_time time;
        struct erg_layout_energy energy, slower;
        erg_time_layout(&time, &world.request.time, &layouts[i]);
        energy_of_layout(&energy, &world.request, &layouts[i], 0, 0);
        assert_close(energy.time_s, time.total, 1e-12);
        double sum = 0;
        for (int k = 0; k < ERG_LAYOUT_ENERGY_ITEMS; k++) {
            assert_true(energy.items[k] >= 0);
            sum += energy.items[k];
        }
        assert_close(sum, energy.total_j, 1e-12);
        assert_true(energy.gpu_power_w > 300 && energy.gpu_power_w < world.gpu->power_cap_w);
        assert_close(energy.power_w, 64 * energy.gpu_power_w, 1e-12);
        /* Time never falls with a lower clock, power always. */
        for (int clock = 1950; clock >= 1200; clock -= 30) {
            energy_of_layout(&slower, &world.request, &layouts[i], clock, 0);
            assert_true(slower.time_s >= energy.time_s * (1 - 1e-12));
            assert_true(slower.power_w <= energy.power_w * (1 + 1e-12));
            assert_true(slower.clock_mhz <= clock);
            energy = slower;
        }
        assert_true(energy.time_s > 1.2 * time.total && energy.time_s < 1.65 * time.total);
    }
    world_close(&world);
}

/* An engine whose host is about as slow as the GPU, and whose softmax is not fused. */
static void also_where_host_and_gpu_wait_for_each_other(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    world.engine->score_forward_bytes = 13;
    world.engine->score_backward_bytes = 19;
    world.engine->softmax_heads = 64;
    world.engine->unfused_score_bytes = 34;
    world.engine->unfused_host_factor = 1.2;
    world.engine->host_layer_s = 3e-3;
    world.engine->host_wait_s = 1e-4;
    world.engine->host_head_s = 8e-3;
    world.engine->host_blend = 0.35;
    for (int i = 0; i < LAYOUTS; i++) {
        struct erg_time time;
        struct erg_layout_energy energy;
        erg_time_layout(&time, &world.request.time, &layouts[i]);
        energy_of_layout(&energy, &world.request, &layouts[i], 0, 0);
        assert_close(energy.time_s, time.total, 1e-12);
    }
    world_close(&world);
}

static void the_cap_slows_rates_measured_without_it(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    struct erg_time time;
    struct erg_layout_energy measured, counted;
    erg_time_layout(&time, &world.request.time, &layouts[3]);
    world.gpu->power_cap_w = 500;
    energy_of_layout(&measured, &world.request, &layouts[3], 0, 0);
    world.request.rates_mhz = world.gpu->clock_max_mhz;
    energy_of_layout(&counted, &world.request, &layouts[3], 0, 0);
    assert_close(measured.time_s, time.total, 1e-12);
    assert_true(measured.clock_mhz < 1900 && counted.clock_mhz < 1900);
    assert_true(counted.time_s > 1.02 * time.total);
    assert_true(counted.gpu_power_w < 501 && measured.gpu_power_w < 501);

    /* Of every pass, and no lower than needed. */
    struct erg_time_parts parts;
    struct erg_layout_work work;
    struct erg_layout_costs costs;
    erg_time_parts_of(
        &parts, &world.request.time,
        &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 1, .sequence = 4096}, 64);
    erg_layout_work_of(
        &work, &world.request, &parts,
        &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 1, .sequence = 4096}, 64);
    erg_layout_costs_at(&costs, &world.request, &work, 0);
    assert_int_equal(work.pass_count, ERG_PASS_DENSE_FORWARD);
    for (int i = 0; i < work.pass_count; i++) {
        double power_w = costs.passes[i].total_j / costs.passes[i].time_s;
        assert_true(power_w < 500 * 1.002);
        if (costs.passes[i].clock_mhz < 1900)
            assert_close(power_w, 500, 0.005);
    }
    world_close(&world);
}

/* ---- the emulated device ---- */

enum { MOST_STEPS = 32 };

/* A layer, op after op, communication by the library and after its op. */
static size_t layer_steps(struct erg_step *steps, const struct erg_model_ops *ops)
{
    size_t count = 0;
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_model_op *op = &ops->items[i];
        if (!op->comm && !op->work_count)
            continue;
        struct erg_step *step = &steps[count++];
        *step = (struct erg_step){.task.ops = op->work, .task.op_count = (size_t)op->work_count};
        if (op->comm)
            step->task.comm = op->communication;
        step->task.comm.library = true;
        step->launch.slot = step->task.op_count;
    }
    return count;
}

static double run_s(const struct erg_gpu *gpu, const struct erg_stack *stack,
                    const struct erg_step *step)
{
    struct erg_emulated_result result;
    struct erg_error err;
    assert_ok(erg_emulated_run(gpu, stack, step, 1, gpu->clock_max_mhz, &result, &err), &err);
    return result.time_s;
}

/*
 * Rates as an engine has them, measured on the emulated device at the highest clock, one op after
 * the other (the cap acts on none alone, and is taken away); then whole layers at every clock, the
 * cap in place. Not the same, and why the two may differ: an engine has one efficiency for all
 * products, and their part of an emulated layer's launch gaps; the emulated device's communication
 * gets slower with the clock, its memory-bound kernels each by themselves.
 */
static void layers_are_as_on_the_emulated_device(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        double cap_w; /* 0: its own */
    } cases[] = {{"a100-sxm4-80gb", 0}, {"h200-sxm", 0}, {"h200-sxm", 450}};
    struct erg_model *model = llama("llama", 32000, 28, 3072, 8192, 24, 24);
    double worst_time = 0, worst_energy = 0;
    for (size_t which = 0; which < sizeof cases / sizeof *cases; which++) {
        struct erg_gpu *gpu;
        struct erg_error err;
        assert_ok(erg_gpu_load(&gpu, cases[which].gpu, &err), &err);
        if (cases[which].cap_w > 0)
            gpu->power_cap_w = cases[which].cap_w;
        const struct erg_stack stack = {.fused_kernels = true};
        struct erg_gpu uncapped = *gpu;
        uncapped.power_cap_w = 1e6;
        const struct erg_model_shape shape = {
            .tensor = 8,
            .context = 1,
            .sequences = 8,
            .sequence = 4096,
            .tile_m = gpu->gemm_tile_m,
            .tile_n = gpu->gemm_tile_n,
            .fused_kernels = true,
        };
        struct erg_model_ops ops[2];
        struct erg_step steps[2][MOST_STEPS];
        size_t counts[2];
        double seconds[3] = {0}, flops[2] = {0}, bytes = 0, wire_s = 0, wire_bytes = 0;
        erg_model_layer_forward(&ops[0], model, &shape);
        erg_model_layer_backward(&ops[1], model, &shape);
        for (int direction = 0; direction < 2; direction++) {
            counts[direction] = layer_steps(steps[direction], &ops[direction]);
            for (size_t i = 0; i < counts[direction]; i++) {
                const struct erg_step *step = &steps[direction][i];
                double time_s = run_s(&uncapped, &stack, step);
                enum erg_op_kind kind =
                    step->task.op_count ? step->task.ops[0].kind : ERG_OP_MEMORY;
                int slot = kind == ERG_OP_GEMM ? 0 : kind == ERG_OP_MEMORY ? 2 : 1;
                if (!step->task.op_count) {
                    wire_s += time_s;
                    wire_bytes += step->task.comm.wire_bytes;
                    continue;
                }
                seconds[slot] += time_s;
                for (size_t k = 0; k < step->task.op_count; k++) {
                    if (slot < 2)
                        flops[slot] += step->task.ops[k].flops;
                    else
                        bytes += step->task.ops[k].bytes;
                }
            }
        }
        double peak = gpu->flops_per_sm_clock * gpu->sms * gpu->clock_max_mhz * 1e6;
        const struct erg_engine engine = {
            .peak_flops = peak,
            .gemm_efficiency = flops[0] / seconds[0] / peak,
            .whole_head_efficiency = 1,
            .attention_efficiency = flops[1] / seconds[1] / peak,
            .attention_backward_efficiency = flops[1] / seconds[1] / peak,
            .memory_efficiency = bytes / seconds[2] / gpu->memory_bandwidth,
            .activation_factor = 1,
            .fused_kernels = true,
            .link_efficiency = wire_bytes / wire_s / gpu->link_bandwidth,
            .network_efficiency = 1,
            .tensor_forward = 1,
            .tensor_backward = 1,
        };
        const struct erg_time_machine machine = {
            gpu->memory_bandwidth, gpu->link_bandwidth, 1e10, 8, 0, 0, 0, 1, 0};
        const struct erg_layout_energy_request request = {
            {model, &engine, &machine}, gpu, .rates_mhz = gpu->clock_max_mhz};
        struct erg_time_parts parts;
        struct erg_layout_work work;
        erg_time_parts_of(
            &parts, &request.time,
            &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 8, .sequence = 4096}, 8);
        erg_layout_work_of(
            &work, &request, &parts,
            &(struct erg_layout){.tensor = 8, .context = 1, .microbatch = 8, .sequence = 4096}, 8);
        for (int clock = gpu->search_min_mhz; clock <= gpu->search_max_mhz; clock += 30) {
            struct erg_layout_costs costs;
            erg_layout_costs_at(&costs, &request, &work, clock);
            double time_s[2] = {0}, energy_j[2] = {0};
            for (int direction = 0; direction < 2; direction++) {
                struct erg_emulated_result result;
                assert_ok(erg_emulated_run(gpu, &stack, steps[direction], counts[direction], clock,
                                           &result, &err),
                          &err);
                time_s[0] += result.time_s;
                energy_j[0] += result.energy_j;
                time_s[1] += costs.passes[direction].time_s;
                energy_j[1] += costs.passes[direction].total_j;
            }
            worst_time = fmax(worst_time, fabs(time_s[1] / time_s[0] - 1));
            worst_energy = fmax(worst_energy, fabs(energy_j[1] / energy_j[0] - 1));
        }
        erg_gpu_free(gpu);
    }
    assert_near(worst_time, 0, 0.006);
    assert_near(worst_energy, 0, 0.006);
    erg_model_free(model);
}

/* ---- frontiers ---- */

static void frontier_of(struct erg_layout_frontier *frontier, const struct world *world,
                        const struct erg_layout *layout, double deadline_s)
{
    struct erg_error err;
    const struct erg_layout_frontier_request request = {
        .energy = &world->request,
        .layout = layout,
        .points = 8,
        .slower_points = 3,
        .clocks = 6,
        .most_instructions = 2048,
        .deadlines_s = &deadline_s,
        .deadline_count = deadline_s > 0,
    };
    assert_ok(erg_layout_frontier_init(frontier, &request, &err), &err);
}

/* The schedule that the closed form sums up: without messages and with the last stage slowest it is
 * exact, so that all at the highest clock is the closed form's time and energy. */
static void at_one_clock_the_schedule_is_the_closed_form(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    world.engine->pipeline_ends_exposed = 0; /* without virtual stages it holds all the time */
    const long split[] = {20, 20, 20, 20};
    const struct erg_layout layout = {
        4, 1, 4, 1, 1, 1, 12, 4096, .recompute = ERG_RECOMPUTE_BALANCED, .chunk_layers = split};
    struct erg_layout_energy closed, tail_clock;
    struct erg_layout_frontier frontier;
    frontier_of(&frontier, &world, &layout, 0);
    energy_of_layout(&closed, &world.request, &layout, 0, 0);
    assert_near(frontier.drift_s, 0, 1e-9);
    assert_close(frontier.points.points[0].time_s, closed.time_s, 1e-6);

    uint32_t *option = calloc(frontier.iteration.schedule.count, sizeof *option);
    double time_s, energy_j;
    erg_iteration_evaluate(&frontier.iteration.schedule, frontier.tables, option, NULL, &time_s,
                           &energy_j);
    free(option);
    assert_close(time_s + frontier.tail.time_s, closed.time_s, 1e-9);
    /* What follows the pipeline runs at a lower clock that costs no time. */
    energy_of_layout(&tail_clock, &world.request, &layout, frontier.tail_clock_mhz, 0);
    assert_int_equal((int)frontier.tail_clock_mhz, 1530);
    assert_true(4 * energy_j + frontier.tail.total_j < closed.total_j);
    assert_close(4 * energy_j + frontier.tail.total_j, closed.total_j, 1e-3);
    assert_close(frontier.tail.items[ERG_LAYOUT_ENERGY_OPTIMIZER],
                 tail_clock.items[ERG_LAYOUT_ENERGY_OPTIMIZER], 1e-12);

    /* Slack is used: the same time with less energy, and never worse than one clock for all. */
    assert_true(frontier.points.points[0].energy_j < 0.999 * closed.total_j);
    for (int clock = 1200; clock <= 1900; clock += 100) {
        struct erg_layout_energy one;
        energy_of_layout(&one, &world.request, &layout, clock, 0);
        ptrdiff_t i = erg_frontier_pick_deadline(&frontier.frontier, one.time_s);
        assert_true(i >= 0);
        if (one.time_s < frontier.points.points[frontier.points.count - 1].time_s)
            assert_true(frontier.frontier.points[i].energy_j < 1.02 * one.total_j);
    }
    erg_layout_frontier_release(&frontier);
    world_close(&world);
}

static void a_frontier_falls_and_its_points_are_plans(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    for (int i = 3; i < LAYOUTS; i++) {
        struct erg_layout_frontier frontier;
        struct erg_layout_energy closed;
        energy_of_layout(&closed, &world.request, &layouts[i], 0, 0);
        double deadline_s = 1.1 * closed.time_s;
        frontier_of(&frontier, &world, &layouts[i], deadline_s);
        assert_true(frontier.drift_s > -1e-12 && frontier.drift_s < 0.06 * closed.time_s);
        assert_close(frontier.points.points[0].time_s, closed.time_s, 1e-6);
        assert_true(frontier.frontier.count >= 6);
        for (size_t k = 1; k < frontier.frontier.count; k++) {
            assert_true(frontier.frontier.points[k].time_s >
                        frontier.frontier.points[k - 1].time_s);
            assert_true(frontier.frontier.points[k].energy_j <
                        frontier.frontier.points[k - 1].energy_j);
        }
        double replicas = (double)(erg_layout_gpus(&layouts[i]) / layouts[i].pipeline);
        double nearest_s = INFINITY;
        for (size_t k = 0; k < frontier.points.count; k++) {
            const struct erg_point *point = &frontier.points.points[k];
            const struct erg_iteration_plan *plan = &frontier.iteration.plans[point->recipe];
            double time_s, energy_j;
            erg_iteration_evaluate(&frontier.iteration.schedule, frontier.tables, plan->option,
                                   NULL, &time_s, &energy_j);
            assert_close(point->time_s, time_s + frontier.tail.time_s, 1e-12);
            assert_close(point->energy_j, replicas * energy_j + frontier.tail.total_j, 1e-12);
            for (size_t n = 0; n < frontier.iteration.schedule.count; n++) {
                size_t table = erg_table_index(&frontier.iteration.schedule.pipeline,
                                               &frontier.iteration.schedule.instructions[n]);
                int64_t clock = frontier.tables[table].points[plan->option[n]].recipe;
                assert_true(clock >= 1200 && clock <= 1980 && clock % 30 == 0);
            }
            if (point->time_s <= deadline_s)
                nearest_s = fmin(nearest_s, deadline_s - point->time_s);
        }
        assert_true(nearest_s < 0.003 * deadline_s);
        /* Beyond the least energy: more energy at less power. */
        const struct erg_point *least = &frontier.frontier.points[frontier.frontier.count - 1];
        const struct erg_point *last = &frontier.points.points[frontier.points.count - 1];
        assert_true(last->time_s > least->time_s && last->energy_j > least->energy_j);
        assert_true(last->energy_j / last->time_s < least->energy_j / least->time_s);
        erg_layout_frontier_release(&frontier);
    }
    world_close(&world);
}

/* A pipeline of many microbatches is solved as a shorter one: what that loses. */
static void many_microbatches_repeat_their_middle(void **state)
{
    (void)state;
    struct world world;
    world_open(&world);
    static const struct erg_layout many[] = {
        {8, 1, 8, 1, 1, 1, 144, 4096, .recompute = ERG_RECOMPUTE_FULL},
        {8, 1, 4, 2, 10, 1, 32, 4096, .recompute = ERG_RECOMPUTE_FULL},
    };
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        struct erg_layout_energy closed;
        struct erg_layout_frontier frontier;
        struct erg_iteration exact;
        struct erg_error err;
        energy_of_layout(&closed, &world.request, &many[i], 0, 0);
        double deadline_s = 1.08 * closed.time_s;
        frontier_of(&frontier, &world, &many[i], deadline_s);
        assert_int_equal(frontier.iteration.schedule.pipeline.microbatches, many[i].microbatches);
        double share_s = INFINITY;
        double times[32];
        size_t count = 0;
        for (size_t k = 0; k < frontier.frontier.count; k++) {
            const struct erg_point *point = &frontier.frontier.points[k];
            times[count++] = frontier.iteration.plans[point->recipe].time_s;
            if (point->time_s <= deadline_s)
                share_s = fmin(share_s, deadline_s - point->time_s);
        }
        assert_true(share_s < 0.005 * deadline_s);
        const struct erg_iteration_request request = {
            .pipeline = frontier.iteration.schedule.pipeline,
            .tables = frontier.tables,
            .deadlines_s = times,
            .deadline_count = count,
            .tries = true,
        };
        assert_ok(erg_iteration_solve(&exact, &request, &err), &err);
        for (size_t k = 1; k < count; k++) {
            const struct erg_iteration_plan *plan =
                &frontier.iteration.plans[frontier.frontier.points[k].recipe];
            double least_j = erg_iteration_planned_energy(&exact, plan->time_s);
            if (!(plan->energy_j > 0.999 * least_j && plan->energy_j < 1.006 * least_j))
                fail_msg("layout %zu, %g s: %.6g J, at best %.6g J", i, plan->time_s,
                         plan->energy_j, least_j);
        }
        assert_close(times[0], exact.plans[0].time_s, 1e-9); /* all at the highest clock */
        erg_iteration_release(&exact);
        erg_layout_frontier_release(&frontier);
    }
    world_close(&world);
}

/* ---- picks ---- */

/* Two layouts: eight GPUs, and four that are slower and cheaper. */
static void picks_keep_the_bounds(void **state)
{
    (void)state;
    const struct erg_layout eight = {2, 1, 4, 1, 1, 1, 16, 4096, .recompute = ERG_RECOMPUTE_NONE},
                            four = {2, 1, 2, 1, 1, 1, 16, 4096, .recompute = ERG_RECOMPUTE_NONE};
    struct erg_point fast[] = {{10, 4000, 0}, {12, 3300, 1}, {15, 3000, 2}, {20, 3100, 3}};
    struct erg_point slow[] = {{19, 3000, 0}, {24, 2600, 1}, {40, 2700, 2}};
    const struct erg_layout_frontier frontiers[] = {{.points = {fast, 4, 4}},
                                                    {.points = {slow, 3, 3}}};
    const struct erg_layout_option options[] = {{&eight, &frontiers[0], 40e9},
                                                {&four, &frontiers[1], 70e9}};
    static const struct {
        struct erg_goal query;
        size_t option, point;
    } cases[] = {
        {{.objective = ERG_FASTEST}, 0, 0},
        {{.objective = ERG_LEAST_ENERGY}, 1, 1},
        {{.objective = ERG_LEAST_ENERGY, .deadline_s = 19.5},
         0,
         2}, /* of equal energies the faster */
        {{.objective = ERG_LEAST_ENERGY, .deadline_s = 14}, 0, 1},
        {{.energy_j = 3000}, 0, 2},
        {{.energy_j = 2999}, 1, 1},
        {{.power_w = 250}, 0, 2},
        {{.power_w = 156}, 0, 3}, /* 155 W; beaten in time and energy, but by more power */
        {{.power_w = 100}, 1, 2},
        {{.memory_bytes = 50e9, .objective = ERG_LEAST_ENERGY}, 0, 2},
        {{.gpus = 4}, 1, 0},
        {{.gpus = 4, .power_w = 120}, 1, 1},
    };
    struct erg_layout_pick pick;
    struct erg_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(erg_layout_pick(&pick, options, 2, &cases[i].query, &err), &err);
        if (pick.option != cases[i].option || pick.point != cases[i].point)
            fail_msg("query %zu: point %zu of layout %zu, expected %zu of %zu", i, pick.point,
                     pick.option, cases[i].point, cases[i].option);
        assert_close(pick.power_w, pick.energy_j / pick.time_s, 1e-15);
        assert_int_equal(pick.gpus, pick.option ? 4 : 8);
    }
    assert_fails(erg_layout_pick(&pick, options, 2, &(struct erg_goal){.deadline_s = 9}, &err),
                 &err,
                 "within a deadline of 9 s: the nearest, t=2,c=1,p=4,v=1,b=1 on 8 GPUs, needs 10 "
                 "s");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_fails(erg_layout_pick(&pick, options, 2,
                                 &(struct erg_goal){.deadline_s = 18, .power_w = 190}, &err),
                 &err,
                 "a mean power of 190 W with the other bounds: the nearest, "
                 "t=2,c=1,p=4,v=1,b=1 on 8 GPUs, needs 200 W");
    assert_fails(erg_layout_pick(&pick, options, 2,
                                 &(struct erg_goal){.memory_bytes = 32 * 1073741824.0}, &err),
                 &err, "a memory of 32 GiB");
    assert_fails(
        erg_layout_pick(&pick, options, 2,
                        &(struct erg_goal){.deadline_s = 9, .energy_j = 2000, .power_w = 10}, &err),
        &err,
        "within all 3 bounds, and raising any one of them alone is not enough; "
        "t=2,c=1,p=2,v=1,b=1 on 4 GPUs needs 40 s, 2700 J and 67.5 W");
    assert_fails(erg_layout_pick(&pick, options, 0, &(struct erg_goal){0}, &err), &err,
                 "no layout");
    assert_int_equal(err.status, ERG_INFEASIBLE);

    struct erg_frontier all = {0};
    erg_layout_union(&all, options, 2);
    assert_int_equal(all.count, 4);
    assert_true(all.points[2].recipe == 2);
    assert_true(all.points[3].recipe == ((int64_t)1 << 32 | 1));
    erg_frontier_release(&all);
}

/* Plans that are no faster or save nothing to speak of are left out, but for the two ends. */
static void a_union_leaves_out_near_ties(void **state)
{
    (void)state;
    const struct erg_layout layout = {2, 1, 4, 1, 1, 1, 16, 4096, .recompute = ERG_RECOMPUTE_NONE};
    struct erg_point one[] = {{10, 1000, 0}, {12, 800, 1}, {14, 700, 2}};
    struct erg_point other[] = {
        {9.995, 1001, 0}, /* the fastest; after it the first of the others saves nothing */
        {11.995, 805, 1}, /* as slow as {12, 800} */
        {12.5, 799.5, 2}, /* saves nothing after that */
        {15, 699.9, 3},   /* the least energy */
    };
    const struct erg_layout_frontier frontiers[] = {{.points = {one, 3, 3}},
                                                    {.points = {other, 4, 4}}};
    const struct erg_layout_option options[] = {{&layout, &frontiers[0], 40e9},
                                                {&layout, &frontiers[1], 40e9}};
    static const double times_s[] = {9.995, 12, 14, 15};
    struct erg_frontier all = {0};
    erg_layout_union(&all, options, 2);
    assert_int_equal(all.count, 4);
    for (size_t i = 0; i < all.count; i++)
        assert_near(all.points[i].time_s, times_s[i], 0);
    erg_frontier_release(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_case_by_hand),
        cmocka_unit_test(at_the_highest_clock_the_time_model_holds),
        cmocka_unit_test(also_where_host_and_gpu_wait_for_each_other),
        cmocka_unit_test(the_cap_slows_rates_measured_without_it),
        cmocka_unit_test(layers_are_as_on_the_emulated_device),
        cmocka_unit_test(at_one_clock_the_schedule_is_the_closed_form),
        cmocka_unit_test(a_frontier_falls_and_its_points_are_plans),
        cmocka_unit_test(many_microbatches_repeat_their_middle),
        cmocka_unit_test(picks_keep_the_bounds),
        cmocka_unit_test(a_union_leaves_out_near_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
