/*
 * The clocks of a rank as a programme: on plans of examples, against what a plan says, and on small
 * plans where the answer is known.
 */
#include "optimize.h"

#include "hooks/option_at.h"
#include "hooks/programme.h"

static struct erg_plan *plans[16];
static const char *plan_names[16];
static size_t plan_count;

static void load(const char *name, const char *path)
{
    struct erg_error err = {0};
    plan_names[plan_count] = name;
    assert_ok(erg_plan_load(&plans[plan_count++], path, &err), &err);
}

static void load_job(const char *job)
{
    struct erg_text text = {0};
    erg_text_printf(&text, "optimize '%s/examples/%s' -o %s/out -q 2>&1", ERGON_TEST_SOURCE_DIR,
                    job, folder);
    check_program(text.data, 0, "");
    load(job, in_folder("out/plan.json"));
    erg_text_release(&text);
}

static int load_plans(void **state)
{
    make_quick_folder(state);
    load("sample", ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json");
    load_job("quickstart.yaml");
    load_job("kareus/llama3.2-3b_cp2tp4_mbs8_seq4096.yaml");
    load_job("kareus/qwen3-1.7b_tp8_mbs16_seq4096.yaml");
    return 0;
}

static int free_plans(void **state)
{
    while (plan_count)
        erg_plan_free(plans[--plan_count]);
    return remove_folder(state);
}

static struct erg_programme compile(const struct erg_programme_request *request)
{
    struct erg_programme programme;
    struct erg_error err = {0};
    assert_ok(erg_programme_init(&programme, request, &err), &err);
    return programme;
}

/* What holds of every programme. */
static void check_groups(const struct erg_programme *programme,
                         const struct erg_programme_request *request)
{
    uint32_t next = 0;
    for (uint32_t g = 0; g < programme->group_count; g++) {
        const struct erg_programme_group *group = &programme->groups[g];
        assert_int_equal(group->first, next);
        assert_true(group->end > next);
        next = group->end;
        double until_s =
            next < programme->count ? programme->passes[next].start_s : programme->step_s;
        assert_true(programme->group_count == 1 ||
                    until_s - programme->passes[group->first].start_s >=
                        request->dwell_s * (1 - 1e-6));
        if (g > 0)
            assert_true(abs(group->clock_mhz - group[-1].clock_mhz) >= request->least_change_mhz);
    }
    assert_int_equal(next, programme->count);
    for (uint32_t i = 0; i < programme->count; i++) {
        const struct erg_programme_pass *pass = &programme->passes[i];
        const struct erg_plan_option *option =
            erg_plan_option(request->plan, request->point, request->stage * programme->count + i);
        assert_true(programme->groups[pass->group].clock_mhz >= pass->planned_mhz);
        assert_true(pass->planned_mhz >= option->clock_mhz);
        assert_true(pass->time_s <=
                    erg_scale_time(&request->plan->scale, option->time_s) * (1 + 1e-9));
    }
    if (request->least_period_s > 0) /* any second, steps one after the other */
        for (uint32_t g = 1; g < programme->group_count; g++) {
            size_t within = 0;
            double from_s = programme->passes[programme->groups[g].first].start_s;
            for (uint32_t h = g; h < programme->group_count; h++)
                within += programme->passes[programme->groups[h].first].start_s < from_s + 1 - 1e-6;
            assert_true((double)within <= 1 / request->least_period_s + 1e-6);
        }
}

/* What merging costs all stages of a point, in percent of the energy. */
static double cost_of_dwell(const struct erg_plan *plan, const struct erg_plan_point *point,
                            double dwell_s)
{
    double energy_j = 0, planned_j = 0;
    for (size_t stage = 0; stage < plan->schedule.pipeline.stages; stage++) {
        const struct erg_programme_request request = {
            .plan = plan,
            .point = point,
            .stage = stage,
            .dwell_s = dwell_s,
            .least_change_mhz = 30,
            .least_saving = 0.002,
            .least_period_s = 0.1,
        };
        struct erg_programme programme = compile(&request);
        check_groups(&programme, &request);
        energy_j += programme.energy_j;
        planned_j += programme.planned_j;
        erg_programme_release(&programme);
    }
    return 100 * (energy_j / planned_j - 1);
}

/* The fastest, the middle and the slowest point of both methods with clocks; of all points twice as
 * much is still little. */
static void a_dwell_costs_little(void **state)
{
    (void)state;
    static const struct {
        double dwell_s, most;
    } dwells[] = {{0.02, 0.1}, {0.05, 0.1}, {0.1, 0.5}, {0.2, 1.5}};
    static const enum erg_method methods[] = {ERG_METHOD_SEQUENTIAL_CLOCKS, ERG_METHOD_ERGON};
    for (size_t d = 0; d < sizeof dwells / sizeof *dwells; d++) {
        double worst = -100, worst_of_three = -100;
        for (size_t k = 0; k < plan_count * 2; k++) {
            const struct erg_plan_method *method = &plans[k / 2]->methods[methods[k % 2]];
            const size_t count = method->point_count;
            for (size_t p = 0; p < count; p++) {
                double more = cost_of_dwell(plans[k / 2], &method->points[p], dwells[d].dwell_s);
                worst = fmax(worst, more);
                if (p == 0 || p == count / 2 || p == count - 1)
                    worst_of_three = fmax(worst_of_three, more);
            }
        }
        print_message("dwell %3.0f ms: energy +%.3f %% at most, of all points +%.3f %%\n",
                      1e3 * dwells[d].dwell_s, worst_of_three, worst);
        assert_true(worst_of_three <= dwells[d].most);
        assert_true(worst <= 2 * dwells[d].most);
    }
}

/* The least energy of all ways to cut a step, found the long way. */
static double least_cost(const struct erg_programme_request *request, uint32_t count,
                         const struct erg_programme *plain)
{
    double least_j = INFINITY;
    const double waiting_w = erg_plan_stage_kind(request->plan, request->stage)->blocking_power_w;
    for (uint32_t cuts = 0; cuts < 1U << (count - 1); cuts++) {
        double cost_j = 0;
        bool fits = true;
        for (uint32_t first = 0, end; first < count && fits; first = end) {
            int highest_mhz = 0;
            for (end = first; end < count && (end == first || !(cuts >> (end - 1) & 1)); end++)
                if (plain->passes[end].planned_mhz > highest_mhz)
                    highest_mhz = plain->passes[end].planned_mhz;
            double until_s = end < count ? plain->passes[end].start_s : plain->step_s;
            fits = until_s - plain->passes[first].start_s >= request->dwell_s * (1 - 1e-9);
            for (uint32_t i = first; i < end; i++) {
                size_t at = request->stage * count + i;
                struct erg_option_cost cost =
                    erg_option_at(request->plan, at,
                                  erg_plan_option(request->plan, request->point, at), highest_mhz);
                cost_j += cost.energy_j - waiting_w * cost.time_s;
            }
        }
        if (fits && cost_j < least_j)
            least_j = cost_j;
    }
    return least_j;
}

static void the_cheapest_groups_are_found(void **state)
{
    (void)state;
    static const double dwells_s[] = {0.15, 0.2, 0.3, 0.5, 0.9, 2};
    const struct erg_plan *plan = plans[0];
    const struct erg_plan_method *method = &plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    const uint32_t count = (uint32_t)plan->schedule.per_stage;
    assert_int_equal(count, 16);
    for (size_t k = 0; k < 2 * sizeof dwells_s / sizeof *dwells_s; k++) {
        struct erg_programme_request request = {
            .plan = plan, .point = &method->points[k % method->point_count], .stage = k % 2};
        struct erg_programme plain = compile(&request);
        request.dwell_s = dwells_s[k / 2];
        struct erg_programme programme = compile(&request);
        double cost_j = programme.energy_j;
        const double waiting_w = erg_plan_stage_kind(plan, k % 2)->blocking_power_w;
        for (uint32_t i = 0; i < count; i++)
            cost_j -= waiting_w * programme.passes[i].time_s / (1 + plan->scale.overhead);
        assert_close(cost_j, least_cost(&request, count, &plain), 1e-9);
        erg_programme_release(&plain);
        erg_programme_release(&programme);
    }
}

static void planned_clocks_stay_without_a_dwell(void **state)
{
    (void)state;
    const struct erg_plan_method *method = &plans[0]->methods[ERG_METHOD_ERGON];
    for (size_t p = 0; p < method->point_count; p++) {
        const struct erg_programme_request request = {
            .plan = plans[0], .point = &method->points[p], .stage = 1};
        struct erg_programme programme = compile(&request);
        for (uint32_t i = 0; i < programme.count; i++) {
            int clock_mhz = programme.groups[programme.passes[i].group].clock_mhz;
            assert_int_equal(clock_mhz, programme.passes[i].planned_mhz);
            assert_int_equal(
                clock_mhz,
                erg_plan_option(plans[0], request.point, programme.count + i)->clock_mhz);
        }
        assert_close(programme.energy_j, programme.planned_j, 1e-12);
        assert_int_equal(programme.changes, programme.planned_changes);
        assert_close(programme.step_s, request.point->time_s, 1e-6);
        assert_int_equal(programme.highest_mhz, 1410);
        erg_programme_release(&programme);
    }
}

static void clocks_that_the_gpu_lacks_become_higher(void **state)
{
    (void)state;
    struct erg_error err = {0};
    const struct erg_plan_method *method = &plans[0]->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    struct erg_clock_list list = {(int[]){905, 1000, 1213, 1300, 1420}, 5};
    struct erg_programme_request request = {
        .plan = plans[0], .point = &method->points[method->point_count - 1], .supported = &list};
    struct erg_programme programme = compile(&request);
    for (uint32_t i = 0; i < programme.count; i++) {
        int planned_mhz = erg_plan_option(plans[0], request.point, i)->clock_mhz, k = 0;
        while (list.clocks_mhz[k] < planned_mhz)
            k++;
        assert_int_equal(programme.passes[i].planned_mhz, list.clocks_mhz[k]);
    }
    assert_int_equal(programme.highest_mhz, 1420);
    assert_true(programme.planned_j > 0);
    erg_programme_release(&programme);
    list.count = 4;
    assert_fails(erg_programme_init(&programme, &request, &err), &err,
                 "has clocks up to 1410 MHz, but the highest of this GPU is 1300 MHz");
    assert_int_equal(err.status, ERG_USAGE);
}

/* Changes of a step at most so often, also round its end. */
static void changes_are_seldom_enough(void **state)
{
    (void)state;
    const struct erg_plan_method *method = &plans[0]->methods[ERG_METHOD_SEQUENTIAL_CLOCKS];
    struct erg_programme_request request = {.plan = plans[0], .point = &method->points[2]};
    struct erg_programme often = compile(&request);
    uint32_t before = often.changes;
    assert_true(before > 6);
    erg_programme_release(&often);
    for (int k = 1; k < 5; k++) {
        request.least_period_s = 0.3 * k;
        struct erg_programme programme = compile(&request);
        check_groups(&programme, &request);
        assert_true(programme.changes <= before);
        assert_true(programme.changes * request.least_period_s <= programme.step_s + 1);
        before = programme.changes;
        erg_programme_release(&programme);
    }
    assert_true(before < 6);
}

/* `line`: shell text with @ for the folder. */
static struct erg_text output_of(const char *line)
{
    struct erg_text text = with_folder(line);
    struct program_result result = run_program(text.data);
    if (result.exit_code)
        fail_msg("ergon %s: %s", text.data, result.out.data);
    erg_text_release(&text);
    return result.out;
}

/* What is shown is what a hook of the same options follows: 0 is its default. The passes of this
 * job are short. */
static void show_prints_the_clocks_of_a_hook(void **state)
{
    (void)state;
    write_text("short.yaml", "model: llama-3.2-1b\n"
                             "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\n"
                             "tensor: 2\npipeline: 2\nmicrobatch_size: 1\nmicrobatches: 32\n"
                             "sequence: 2048\n"
                             "search: {method: random, seed: 7, budget: 5}\n"
                             "profiler: {window_s: 0.5, cooldown_s: 0.5, warmup_s: 0.5}\n");
    struct erg_text made = output_of("optimize @/short.yaml -o @/short -q");
    struct erg_text usual = output_of("hook show @/short/plan.json --point 3 --json");
    struct erg_text zero = output_of("hook show @/short/plan.json --point 3 --dwell 0 "
                                     "--least-change 0 --json");
    struct erg_text least = output_of("hook show @/short/plan.json --point 3 --dwell 1e-6 --json");
    assert_string_equal(usual.data, zero.data);
    assert_string_not_equal(usual.data, least.data);
    check_program("hook show " ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json --point 7 2>&1",
                  2, "sequential+clocks has the points 1 to 6, ");
    erg_text_release(&made);
    erg_text_release(&usual);
    erg_text_release(&zero);
    erg_text_release(&least);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_clocks_stay_without_a_dwell),
        cmocka_unit_test(the_cheapest_groups_are_found),
        cmocka_unit_test(a_dwell_costs_little),
        cmocka_unit_test(clocks_that_the_gpu_lacks_become_higher),
        cmocka_unit_test(changes_are_seldom_enough),
        cmocka_unit_test(show_prints_the_clocks_of_a_hook),
    };
    return cmocka_run_group_tests_name("hook_programme", tests, load_plans, free_plans);
}
