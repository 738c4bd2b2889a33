/*
 * From op lists to the iteration, without noise: the acceptance numbers of the emulated A100 for
 * Llama 3.2 3B, TP8, microbatch 8, 4K, PP2 with 15 + 13 layers, 8 microbatches
 * (J of two GPUs; tolerance 0.5 %).
 */
#include "check.h"

#include "base/memory.h"
#include "device/emulated/emulated.h"
#include "optimize/methods.h"
#include "partition/partition.h"

enum { CLOCKS = 18, STAGES = 2, TABLES = 2 * STAGES };

struct fixture {
    struct erg_model *model;
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_workload workload;
    struct erg_cost fixed[ERG_FIXED_COUNT][CLOCKS];
    struct erg_host_model host;
};

static int clock_mhz(size_t index)
{
    return 900 + 30 * (int)index;
}

static struct erg_cost exact(const struct fixture *f, const struct erg_step *steps, size_t count,
                             size_t clock)
{
    struct erg_error err = {0};
    struct erg_emulated_result result;
    assert_ok(erg_emulated_run(f->gpu, f->stack, steps, count, clock_mhz(clock), &result, &err),
              &err);
    return (struct erg_cost){result.time_s, result.energy_j};
}

static int set_up(void **state)
{
    struct fixture *f = test_calloc(1, sizeof *f);
    struct erg_error err = {0};
    assert_ok(erg_model_load(&f->model, "llama-3.2-3b", &err), &err);
    assert_ok(erg_gpu_load(&f->gpu, "a100-sxm4-40gb", &err), &err);
    assert_ok(erg_stack_load(&f->stack, "published-python", &err), &err);
    struct erg_workload_request request = {
        .model = f->model,
        .gpu = f->gpu,
        .stack = f->stack,
        .tensor = 8,
        .context = 1,
        .microbatch_size = 8,
        .sequence = 4096,
        .recompute = true,
    };
    assert_ok(erg_workload_build(&f->workload, &request, &err), &err);
    f->host = (struct erg_host_model){f->stack->host_per_kernel_s, f->gpu->static_power_w};
    for (int i = 0; i < ERG_FIXED_COUNT; i++)
        for (size_t clock = 0; clock < CLOCKS; clock++) {
            const struct erg_steps *steps = &f->workload.fixed[i];
            f->fixed[i][clock] = erg_host_floor(
                &f->host, exact(f, steps->steps, steps->count, clock), steps->kernels);
        }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    erg_workload_release(&f->workload);
    erg_stack_free(f->stack);
    erg_gpu_free(f->gpu);
    erg_model_free(f->model);
    test_free(f);
    return 0;
}

static struct erg_method_request request_of(const struct fixture *f)
{
    return (struct erg_method_request){
        .pipeline = {.stages = STAGES,
                     .microbatches = 8,
                     .chunks = 1,
                     .blocking_power_w = f->gpu->blocking_power_w},
        .scale = {.blocking_power_w = f->gpu->blocking_power_w,
                  .static_power_w = f->gpu->static_power_w,
                  .stages = STAGES,
                  .gpus_per_stage = 1},
        .points = 24,
    };
}

static const int layers[STAGES] = {15, 13};

static void fixed_of(const struct fixture *f, size_t table, bool nanobatched,
                     struct erg_cost *fixed)
{
    bool backward = table % 2, first = table / 2 == 0;
    for (size_t clock = 0; clock < CLOCKS; clock++) {
        int what = first      ? backward ? nanobatched ? ERG_FIXED_EMBEDDING_BACKWARD_NANOBATCH
                                                       : ERG_FIXED_EMBEDDING_BACKWARD
                                         : ERG_FIXED_EMBEDDING_FORWARD
                   : backward ? ERG_FIXED_HEAD_BACKWARD
                              : ERG_FIXED_HEAD_FORWARD;
        int times = first && backward && nanobatched ? 2 : 1;
        fixed[clock] = (struct erg_cost){times * f->fixed[what][clock].time_s,
                                         times * f->fixed[what][clock].energy_j};
    }
}

static void new_method(struct erg_method_result *result)
{
    *result = (struct erg_method_result){.table_count = TABLES};
    result->tables = erg_xcalloc(TABLES, sizeof *result->tables);
}

static void add_whole(const struct fixture *f, struct erg_method_result *result, enum erg_mode mode)
{
    for (size_t t = 0; t < TABLES; t++) {
        const struct erg_steps *layer = mode == ERG_MODE_NANOBATCH ? &f->workload.nanobatch[t % 2]
                                                                   : &f->workload.sequential[t % 2];
        struct erg_cost cost[CLOCKS], fixed[CLOCKS];
        for (size_t clock = 0; clock < CLOCKS; clock++)
            cost[clock] = exact(f, layer->steps, layer->count, clock);
        fixed_of(f, t, mode == ERG_MODE_NANOBATCH, fixed);
        erg_microbatch_add_whole(&result->tables[t], mode, cost, layer->kernels, layers[t / 2],
                                 fixed, CLOCKS, &f->host);
    }
}

static void add_overlap(const struct fixture *f, struct erg_method_result *result)
{
    size_t types = f->workload.forward_count + f->workload.backward_count;
    struct erg_partition_table tables[16];
    struct erg_frontier lists[16][CLOCKS] = {{{0}}};
    for (size_t i = 0; i < types; i++) {
        const struct erg_partition *p = &f->workload.partitions[i];
        for (size_t clock = 0; clock < CLOCKS; clock++)
            for (size_t slot = 0; slot < p->slot_count; slot++)
                for (size_t s = 0; s < p->sms_count; s++) {
                    struct erg_step step = erg_partition_step(p, slot, p->sms[s]);
                    struct erg_cost cost = exact(f, &step, 1, clock);
                    erg_frontier_add(&lists[i][clock], cost.time_s, cost.energy_j,
                                     (int64_t)(slot * p->sms_count + s));
                }
        tables[i] = (struct erg_partition_table){p->occurrences, p->kernels, lists[i]};
    }
    for (size_t t = 0; t < TABLES; t++) {
        struct erg_cost fixed[CLOCKS];
        fixed_of(f, t, true, fixed);
        struct erg_layer *layer =
            erg_layer_compose(tables, t % 2 ? types : f->workload.forward_count, CLOCKS, &f->host,
                              f->gpu->blocking_power_w);
        erg_microbatch_add_overlap(&result->tables[t], layer, layers[t / 2], fixed);
        erg_layer_free(layer);
    }
    for (size_t i = 0; i < types; i++)
        for (size_t clock = 0; clock < CLOCKS; clock++)
            erg_frontier_release(&lists[i][clock]);
}

static void check_full_clock(struct fixture *f, enum erg_mode mode, double time_s, double energy_j)
{
    struct erg_error err = {0};
    struct erg_method_request request = request_of(f);
    struct erg_method_result result;
    new_method(&result);
    add_whole(f, &result, mode);
    assert_ok(erg_method_run_full_clock(&result, &request, &err), &err);
    assert_close(result.points[0].time_s, time_s, 0.005);
    assert_close(result.points[0].energy_j, energy_j, 0.005);
    erg_method_release(&result);
}

static void check_frontier(struct fixture *f, struct erg_method_result *result, double fastest_s,
                           double fastest_j, double cheapest_s, double cheapest_j)
{
    struct erg_error err = {0};
    struct erg_method_request request = request_of(f);
    for (size_t t = 0; t < TABLES; t++)
        erg_microbatch_filter(&result->tables[t], f->gpu->blocking_power_w);
    assert_ok(erg_method_plan(result, &request, &err), &err);
    const struct erg_plan_point *first = &result->points[0];
    const struct erg_plan_point *last = &result->points[result->point_count - 1];
    assert_close(first->time_s, fastest_s, 0.005);
    assert_close(first->energy_j, fastest_j, 0.005);
    assert_close(last->energy_j, cheapest_j, 0.005);
    if (cheapest_s > 0) /* the minimum is flat in time */
        assert_close(last->time_s, cheapest_s, 0.03);
    erg_method_release(result);
}

static void sequential_at_full_clock(void **state)
{
    check_full_clock(*state, ERG_MODE_SEQUENTIAL, 5.128, 3104.7);
}

static void nanobatching_at_full_clock(void **state)
{
    check_full_clock(*state, ERG_MODE_NANOBATCH, 4.689, 2929.9);
}

static void sequential_with_clocks(void **state)
{
    struct erg_method_result result;
    new_method(&result);
    add_whole(*state, &result, ERG_MODE_SEQUENTIAL);
    check_frontier(*state, &result, 5.128, 2816.3, 5.76, 2351.7);
}

static void nanobatching_with_clocks(void **state)
{
    struct erg_method_result result;
    new_method(&result);
    add_whole(*state, &result, ERG_MODE_NANOBATCH);
    check_frontier(*state, &result, 4.689, 2680.7, 0, 2233.7);
}

static void partitions_over_their_whole_space(void **state)
{
    struct erg_method_result result;
    new_method(&result);
    add_overlap(*state, &result);
    check_frontier(*state, &result, 4.323, 2539.5, 4.92, 2129.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential_at_full_clock),
        cmocka_unit_test(nanobatching_at_full_clock),
        cmocka_unit_test(sequential_with_clocks),
        cmocka_unit_test(nanobatching_with_clocks),
        cmocka_unit_test(partitions_over_their_whole_space),
    };
    return cmocka_run_group_tests_name("planning", tests, set_up, tear_down);
}
