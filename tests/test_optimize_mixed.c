/*
 * `ergon optimize` of pipelines through GPUs of several kinds: two kinds that are the same give the
 * plan of one, every stage has the tables of its own GPUs, and what ergon layout writes is taken.
 * That energies of plan files add up is in test_plan.c.
 */
#include "json_file.h"
#include "optimize.h"

#include "io/file.h"
#include "job/job.h"
#include "optimize/methods.h"

#define EXAMPLE "'" ERGON_TEST_SOURCE_DIR "/examples/mixed/llama-3.2-1b_h800_a100.yaml'"

/* A catalogue file of the A100, under another name in the folder. */
static void write_twin(void)
{
    struct erg_error err = {0};
    struct erg_text twin = {0};
    char *text;
    const char *path = ERGON_TEST_SOURCE_DIR "/data/gpus/a100-sxm4-40gb.yaml";
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    char *name = strstr(text, "A100-SXM4-40GB\n");
    assert_non_null(name);
    erg_text_add_bytes(&twin, text, (size_t)(name - text));
    erg_text_add(&twin, "Twin");
    erg_text_add(&twin, name + strlen("A100-SXM4-40GB"));
    write_file("twin.yaml", twin.data);
    erg_text_release(&twin);
    free(text);
}

static int set_up(void **state)
{
    if (make_quick_folder(state))
        return -1;
    write_twin();
    return 0;
}

/* SMALL_JOB on other nodes, with four stages and more keys. */
static void write_stages(const char *name, const char *cluster, const char *more)
{
    struct erg_text nodes = {0};
    erg_text_printf(&nodes, "%s\ntensor: 2\npipeline: 4\n%s", cluster, more);
    write_job(name,
              "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\n"
              "pipeline: 2\n",
              nodes.data);
    erg_text_release(&nodes);
}

/* ---- two kinds that are the same ---- */

/* The same numbers: points, options, timelines, schedule and stage profile; kinds' numbers are no
 * part of them. */
static void assert_same_numbers(json_t *mixed, json_t *uniform)
{
    static const char *const keys[] = {"methods", "stages",   "schedule",
                                       "job",     "selected", "timelines",
                                       "search",  "seed",     "stage_profile"};
    json_t *stage;
    size_t i;
    json_array_foreach(json_object_get(mixed, "stages"), i, stage)
    {
        json_object_set_new(stage, "kind", json_integer(0));
    }
    for (i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(mixed, keys[i]), json_object_get(uniform, keys[i])))
            fail_msg("the plans differ in \"%s\"", keys[i]);
}

static void check_twins(const char *more, const char *options)
{
    char text[512];
    snprintf(text, sizeof text, "name: twins\n%s", more);
    write_stages("one.yaml",
                 "cluster: {nodes: 2, gpus_per_node: 4, gpu: A100-SXM4-40GB, "
                 "inter_node_bandwidth_gb_s: 50}",
                 text);
    snprintf(text, sizeof text,
             "name: twins\nstage_gpus: [A100-SXM4-40GB, a100-sxm4-40gb, Twin, Twin]\n%s", more);
    write_stages("two.yaml",
                 "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB, "
                 "inter_node_bandwidth_gb_s: 50, more_nodes: [{nodes: 1, gpus_per_node: 4, "
                 "gpu: ./twin.yaml, engine: megatron-kwai-a100, inter_node_bandwidth_gb_s: 50}]}",
                 text);
    check_optimize("one.yaml", "one", options, 0, "selected: ");
    check_optimize("two.yaml", "two", options, 0, "Twin (2 stages)");
    json_t *uniform = load_plan("one"), *mixed = load_plan("two");
    assert_int_equal(json_array_size(json_object_get(mixed, "kinds")), 2);
    assert_same_numbers(mixed, uniform);
    json_decref(uniform);
    json_decref(mixed);
}

static void two_names_of_one_kind_give_its_plan(void **state)
{
    (void)state;
    /* Everything is measured: what is measured because plans use it depends on who uses it. */
    check_twins("", "--search exhaustive");
    check_twins("virtual_stages: 2\nrecompute: full\n", "-m sequential+clocks,nanobatching+clocks");
    check_twins("engine: megatron-kwai-a100\nstage_recompute: [full, norms, none, balanced]\n"
                "stage_offload: [0.3, 0.2, 0.1, 0]\n",
                "-m sequential,sequential+clocks");
}

/* ---- tables of their own ---- */

/* Rows of the stage profile that two plans have in common for a stage; *other counts the rest. */
static size_t common_rows(const json_t *one, const json_t *two, int stage, size_t *other)
{
    const json_t *lists[2] = {
        json_object_get(one, "stage_profile"),
        json_object_get(two, "stage_profile"),
    };
    size_t i, k, common = 0;
    json_t *row, *candidate;
    *other = 0;
    json_array_foreach((json_t *)(uintptr_t)lists[0], i, row)
    {
        bool found = false;
        if (json_integer_value(json_object_get(row, "stage")) != stage)
            continue;
        json_array_foreach((json_t *)(uintptr_t)lists[1], k, candidate)
        {
            found |= json_equal(row, candidate);
        }
        common += found;
        *other += !found;
    }
    return common;
}

#define H800 "nodes: %d, gpus_per_node: 2, gpu: H800-SXM-80GB, inter_node_bandwidth_gb_s: 100"
#define A100 "nodes: %d, gpus_per_node: 2, gpu: A100-SXM4-80GB, inter_node_bandwidth_gb_s: 50"

static json_t *plan_on(const char *out, const char *stages, int h800, int a100)
{
    char cluster[512], more[256];
    snprintf(cluster, sizeof cluster, "cluster: {" H800 ", more_nodes: [{" A100 "}]}", h800, a100);
    snprintf(more, sizeof more, "stage_gpus: [%s]\n", stages);
    write_stages("own.yaml", cluster, more);
    check_optimize("own.yaml", out, "-m sequential", 0, "selected: sequential");
    return load_plan(out);
}

static void a_moved_stage_changes_its_own_tables_only(void **state)
{
    (void)state;
    json_t *half =
        plan_on("half", "H800-SXM-80GB, H800-SXM-80GB, A100-SXM4-80GB, A100-SXM4-80GB", 2, 2);
    json_t *moved =
        plan_on("moved", "H800-SXM-80GB, A100-SXM4-80GB, A100-SXM4-80GB, A100-SXM4-80GB", 1, 3);
    size_t clocks[2] = {0};
    for (int k = 0; k < 2; k++)
        clocks[k] = json_array_size(json_object_get(
            json_array_get(json_object_get(half, "kinds"), (size_t)k), "clocks_mhz"));
    assert_true(clocks[0] > 0 && clocks[1] > 0 && clocks[0] != clocks[1]);
    for (int stage = 0; stage < 4; stage++) {
        size_t other, common = common_rows(half, moved, stage, &other);
        size_t rows = 2 * clocks[stage >= 2]; /* forward and backward */
        assert_int_equal(common, stage == 1 ? 0 : rows);
        assert_int_equal(other, stage == 1 ? rows : 0);
    }
    /* Full clock is each kind's own. */
    json_t *timeline = json_array_get(json_object_get(half, "timelines"), 0), *span;
    size_t s, i;
    json_t *row;
    json_array_foreach(json_object_get(timeline, "stages"), s, row)
    {
        json_array_foreach(row, i, span)
        {
            assert_int_equal(json_integer_value(json_object_get(span, "clock_mhz")),
                             s < 2 ? 1980 : 1410);
        }
    }
    json_decref(half);
    json_decref(moved);
}

/*
 * 4 x 2048 tokens of 2048 bf16 values: each GPU sends half and gathers the other half over its own
 * links. Stages of one kind fill its nodes; between two kinds the slower of both ways counts.
 */
static void messages_between_kinds_take_the_slower_network(void **state)
{
    (void)state;
    double bytes = 4 * 2048 * 2048 * 2.0;
    double h800_s = bytes / 100e9 + bytes / 2 / 200e9, a100_s = bytes / 50e9 + bytes / 2 / 300e9;
    json_t *plan =
        plan_on("hops", "H800-SXM-80GB, A100-SXM4-80GB, A100-SXM4-80GB, H800-SXM-80GB", 2, 2);
    const json_t *hops = json_object_get(json_object_get(plan, "job"), "hop_latency_s");
    assert_true(a100_s > h800_s);
    for (size_t s = 0; s < 4; s++) /* the last one's next is the first */
        assert_close(json_number_value(json_array_get(hops, s)), s < 3 ? a100_s : h800_s, 1e-9);
    json_decref(plan);
}

/* ---- powers of waiting ---- */

enum { STAGES = 2, MICROBATCHES = 2, CLOCKS = 3, TABLES = 2 * STAGES, COUNT = 2 * TABLES };

/* Slower clocks take less energy beyond waiting. */
static void fill_tables(struct erg_method_result *result, const double *waiting_w)
{
    *result = (struct erg_method_result){.tables = calloc(TABLES, sizeof *result->tables),
                                         .table_count = TABLES};
    for (size_t t = 0; t < TABLES; t++) {
        struct erg_microbatch *table = &result->tables[t];
        table->options = calloc(CLOCKS, sizeof *table->options);
        table->count = table->capacity = CLOCKS;
        for (int c = 0; c < CLOCKS; c++) { /* time up */
            double time_s = (t % 2 ? 2 : 1) * (t / 2 ? 0.8 : 1) * (1 + 0.3 * c);
            double power_w = waiting_w[t / 2] + 300 / ((1 + 0.3 * c) * (1 + 0.3 * c));
            table->options[c] = (struct erg_microbatch_option){
                .time_s = time_s, .energy_j = power_w * time_s, .clock = CLOCKS - 1 - c};
        }
    }
}

/* Time and energy of options, one per instruction, from nothing but their own. */
static void add_up(const struct erg_method_result *result, const double *waiting_w,
                   const uint32_t *option, double *time_s, double *energy_j)
{
    const struct erg_schedule *schedule = &result->iteration.schedule;
    double end_s[COUNT], busy_s[STAGES] = {0};
    *time_s = *energy_j = 0;
    for (size_t k = 0; k < schedule->count; k++) {
        uint32_t i = schedule->order[k];
        const struct erg_instruction *instruction = &schedule->instructions[i];
        const struct erg_microbatch_option *run =
            &result->tables[erg_table_index(&schedule->pipeline, instruction)].options[option[i]];
        double start_s = 0;
        for (int b = 0; b < 2; b++)
            if (schedule->before[i][b] != ERG_NONE)
                start_s = fmax(start_s, end_s[schedule->before[i][b]]);
        end_s[i] = start_s + run->time_s;
        *time_s = fmax(*time_s, end_s[i]);
        *energy_j += run->energy_j;
        busy_s[instruction->stage] += run->time_s;
    }
    for (size_t s = 0; s < STAGES; s++)
        *energy_j += waiting_w[s] * (*time_s - busy_s[s]);
}

struct best {
    double shortest_s, shortest_j; /* the cheapest of the fastest */
    double least_j, least_s;
};

/* Of all 6,561 ways to run two microbatches on two stages at three clocks. */
static struct best try_all(const struct erg_method_result *result, const double *waiting_w)
{
    struct best best = {INFINITY, INFINITY, INFINITY, 0};
    uint32_t option[COUNT];
    for (int way = 0; way < 6561; way++) {
        double time_s, energy_j;
        for (int i = 0, rest = way; i < COUNT; i++, rest /= CLOCKS)
            option[i] = (uint32_t)(rest % CLOCKS);
        add_up(result, waiting_w, option, &time_s, &energy_j);
        if (time_s < best.shortest_s - 1e-9)
            best.shortest_j = INFINITY;
        best.shortest_s = fmin(best.shortest_s, time_s);
        if (time_s < best.shortest_s + 1e-9)
            best.shortest_j = fmin(best.shortest_j, energy_j);
        if (energy_j < best.least_j) {
            best.least_j = energy_j;
            best.least_s = time_s;
        }
    }
    return best;
}

static void check_powers(double first_w, double second_w)
{
    const double waiting_w[STAGES] = {first_w, second_w}, static_w[STAGES] = {30, 50};
    double beyond_w[STAGES] = {first_w, second_w};
    struct erg_error err = {0};
    struct erg_method_result result;
    struct erg_method_request request = {
        .pipeline = {.stages = STAGES, .microbatches = MICROBATCHES, .chunks = 1},
        .scale = {.stages = STAGES, .gpus_per_stage = 1},
        .points = 24,
    };
    erg_scale_set_powers(&request.scale, beyond_w, static_w);
    request.pipeline.blocking_power_w = request.scale.blocking_power_w;
    fill_tables(&result, waiting_w);
    assert_ok(erg_schedule_init(&result.iteration.schedule, &request.pipeline, &err), &err);
    const struct best best = try_all(&result, waiting_w);
    const double deadline_s = best.least_s * (1 + 1e-9); /* searched harder than the others */
    request.deadlines_s = &deadline_s;
    request.deadline_count = 1;
    assert_ok(erg_method_plan(&result, &request, &err), &err);
    for (size_t p = 0; p < result.point_count; p++) {
        double time_s, energy_j;
        add_up(&result, waiting_w, result.points[p].option, &time_s, &energy_j);
        assert_close(result.points[p].time_s, time_s, 1e-12);
        assert_close(result.points[p].energy_j, energy_j, 1e-12);
        assert_close(result.points[p].static_energy_j, 80 * time_s, 1e-12);
    }
    assert_close(result.points[0].time_s, best.shortest_s, 1e-12);
    assert_close(result.points[0].energy_j, best.shortest_j, 1e-12);
    /* What saves no more than 0.1 % of energy is left out. */
    assert_close(result.points[result.point_count - 1].energy_j, best.least_j, 0.001);
    erg_method_release(&result);
}

static void stages_wait_at_powers_of_their_own(void **state)
{
    (void)state;
    check_powers(100, 100);
    check_powers(60, 140);
    check_powers(140, 60);
    check_powers(0, 300);
}

/* ---- from ergon layout, and to ergon verify ---- */

static void planned_jobs_are_optimized(void **state)
{
    (void)state;
    char arguments[512], path[200];
    struct erg_error err = {0};
    snprintf(arguments, sizeof arguments, "optimize " EXAMPLE " -m sequential -o %s/own 2>&1",
             folder);
    check_program(arguments, 0, "emulated A100-SXM4-80GB (2 stages)");
    snprintf(arguments, sizeof arguments, "layout " EXAMPLE " -o %s/planned 2>&1", folder);
    check_program(arguments, 0, "the best as a job ");
    snprintf(path, sizeof path, "%s/planned/job.yaml", folder);
    struct erg_job *job;
    assert_ok(erg_job_load(&job, path, NULL, &err), &err);
    assert_int_equal(job->kind_count, 2);
    json_t *layouts = NULL;
    snprintf(path, sizeof path, "%s/planned/layouts.json", folder);
    assert_ok(load_json(&layouts, path, &err), &err);
    const json_t *best = json_array_get(json_object_get(layouts, "layouts"), 0), *place;
    size_t i, stage = 0;
    json_array_foreach(json_object_get(best, "places"), i, place)
    {
        for (json_int_t n = json_integer_value(json_object_get(place, "stages")); n > 0; n--)
            assert_string_equal(job->kinds[job->stage_kind[stage++]].gpu->name,
                                json_string_value(json_object_get(place, "gpu")));
    }
    assert_int_equal(stage, (size_t)job->layout.pipeline);
    check_optimize("planned/job.yaml", "planned/out", "-m sequential+clocks", 0,
                   "A100-SXM4-80GB (1 stage)");
    snprintf(arguments, sizeof arguments,
             "verify %s/planned/job.yaml %s/planned/out/plan.json 2>&1", folder, folder);
    check_program(arguments, 2, "lie on GPUs of several kinds, expected a job and a plan on one");
    json_decref(layouts);
    erg_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_names_of_one_kind_give_its_plan),
        cmocka_unit_test(a_moved_stage_changes_its_own_tables_only),
        cmocka_unit_test(stages_wait_at_powers_of_their_own),
        cmocka_unit_test(messages_between_kinds_take_the_slower_network),
        cmocka_unit_test(planned_jobs_are_optimized),
    };
    return cmocka_run_group_tests_name("optimize_mixed", tests, set_up, remove_folder);
}
