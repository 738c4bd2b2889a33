/*
 * Plans read back: what is accepted adds up, whatever is broken is named, and picks are what a
 * look at every point finds. The sample is a real plan of a published workload, rounded to seven
 * digits; real runs of several shapes are made here.
 */
#include "goals.h"
#include "json_file.h"
#include "optimize.h"
#include "random_plan.h"

#include "base/random.h"
#include "plan/plan.h"
#include "report/text/plan_point.h"

static const char sample_path[] = ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json";

static struct erg_plan *load_sample(void)
{
    struct erg_error err = {0};
    struct erg_plan *plan = NULL;
    assert_ok(erg_plan_load(&plan, sample_path, &err), &err);
    return plan;
}

static void test_sample_is_read(void **state)
{
    (void)state;
    struct erg_plan *plan = load_sample();
    const struct erg_pipeline *pipeline = &plan->schedule.pipeline;
    assert_string_equal(plan->model, "meta-llama/Llama-3.2-3B");
    assert_int_equal(pipeline->stages, 2);
    assert_int_equal(pipeline->microbatches, 8);
    assert_int_equal(plan->schedule.count, 32);
    assert_int_equal(plan->stages[0].layers, 15);
    assert_int_equal(plan->scale.gpus_per_stage, 8);
    assert_near(plan->scale.overhead, 0.067947, 0);
    assert_int_equal(plan->selected.method, ERG_METHOD_ERGON);
    const struct erg_plan_method *sequential = &plan->methods[ERG_METHOD_SEQUENTIAL];
    assert_int_equal(sequential->point_count, 1);
    assert_near(sequential->points[0].time_s, 5.475139, 0);
    assert_near(sequential->versus.max_throughput_time, 0, 0);
    assert_true(isnan(sequential->versus.iso_energy_time));
    const struct erg_plan_option *option = erg_plan_option(plan, &sequential->points[0], 0);
    assert_int_equal(option->mode, ERG_MODE_SEQUENTIAL);
    assert_int_equal(option->clock_mhz, 1410);
    assert_near(option->time_s, 0.1595624, 0);

    const struct erg_plan_point *fastest = &plan->methods[ERG_METHOD_ERGON].points[0];
    option = erg_plan_option(plan, fastest, plan->schedule.per_stage);
    assert_int_equal(option->mode, ERG_MODE_OVERLAP);
    assert_int_equal(option->configuration_count, 2);
    assert_string_equal(option->configurations[0].partition, "fwd_attn");
    erg_plan_free(plan);
}

/* GPUs of one kind can choose their clocks themselves while those of the other have clocks set. */
static void test_clocks_are_those_of_the_stage(void **state)
{
    (void)state;
    struct erg_plan *plan = load_sample();
    struct erg_plan_kind kinds[2] = {plan->kinds[0], plan->kinds[0]};
    plan->kinds = kinds;
    plan->kind_count = 2;
    plan->stages[1].kind = 1;
    for (size_t own = 0; own < 2; own++) {
        char *text;
        size_t length;
        FILE *out = open_memstream(&text, &length);
        kinds[own].mean_clock_mhz = 1300;
        kinds[1 - own].mean_clock_mhz = NAN;
        erg_plan_point_print(out, plan);
        fclose(out);
        const char *stages[2] = {strstr(text, "Stage 0, "), strstr(text, "Stage 1, ")};
        assert_true(stages[0] && stages[1]);
        const bool late = strstr(stages[1], "default clock");
        text[stages[1] - text] = 0;
        const bool early = strstr(stages[0], "default clock");
        assert_true(early == (own == 0) && late == (own == 1));
        free(text);
    }
    erg_plan_free(plan);
}

/* ---- every number follows from the document itself ---- */

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

struct document {
    json_t *root;
    struct erg_schedule schedule;
    struct erg_frontier *tables;
    size_t table_count;
    double overhead, gpus_per_stage;
    double blocking_w, static_w; /* of one GPU of each stage, all together */
    double stage_w[8];           /* blocking */
};

static void open_document(struct document *document, json_t *root)
{
    struct erg_error err = {0};
    json_t *job = json_object_get(root, "job"), *kinds = json_object_get(root, "kinds");
    json_t *stages = json_object_get(root, "stages");
    double hops_s[8];
    struct erg_pipeline pipeline = {
        .stages = (size_t)number(job, "pipeline"),
        .microbatches = (size_t)number(job, "microbatches"),
        .chunks = (size_t)number(job, "virtual_stages"),
        .hop_latency_s = hops_s,
    };
    *document = (struct document){
        .root = root,
        .overhead = number(job, "overhead"),
        .gpus_per_stage = number(job, "gpus_per_stage"),
        .table_count = 2 * pipeline.stages * pipeline.chunks,
    };
    assert_true(pipeline.stages <= 8);
    for (size_t s = 0; s < pipeline.stages; s++) {
        size_t kind = (size_t)number(json_array_get(stages, s), "kind");
        const json_t *on = json_array_get(kinds, kind);
        hops_s[s] = json_number_value(json_array_get(json_object_get(job, "hop_latency_s"), s));
        document->stage_w[s] = number(on, "blocking_power_w");
        document->blocking_w += document->stage_w[s];
        document->static_w += number(on, "static_power_w");
    }
    assert_ok(erg_schedule_init(&document->schedule, &pipeline, &err), &err);
    document->tables = calloc(document->table_count, sizeof *document->tables);
    assert_non_null(document->tables);
    assert_int_equal(json_array_size(stages), document->table_count / 2);
    static const char *const directions[] = {"forward", "backward"};
    for (size_t t = 0; t < document->table_count; t++) {
        json_t *direction = json_object_get(json_array_get(stages, t / 2), directions[t % 2]);
        size_t k;
        json_t *option;
        json_array_foreach(json_object_get(direction, "options"), k, option)
        {
            erg_frontier_add(&document->tables[t], number(option, "time_s"),
                             number(option, "energy_j"), (int64_t)k);
        }
    }
}

static void close_document(struct document *document)
{
    erg_schedule_release(&document->schedule);
    for (size_t t = 0; t < document->table_count; t++)
        erg_frontier_release(&document->tables[t]);
    free(document->tables);
    json_decref(document->root);
}

static void check_point(const struct document *document, const json_t *point, double *planned_s)
{
    const struct erg_schedule *schedule = &document->schedule;
    const json_t *stages = json_object_get(point, "options");
    uint32_t *option = calloc(schedule->count, sizeof *option);
    assert_non_null(option);
    for (size_t i = 0; i < schedule->count; i++)
        option[i] = (uint32_t)json_integer_value(json_array_get(
            json_array_get(stages, i / schedule->per_stage), i % schedule->per_stage));
    /* What instructions take, and waiting whenever a stage runs none. */
    double time_s, beyond_j, energy_j = 0;
    erg_iteration_evaluate(schedule, document->tables, option, NULL, &time_s, &beyond_j);
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        size_t table = erg_table_index(&schedule->pipeline, instruction);
        struct erg_point run = document->tables[table].points[option[i]];
        energy_j += run.energy_j - document->stage_w[instruction->stage] * run.time_s;
    }
    free(option);
    *planned_s = time_s;
    time_s += time_s * document->overhead;
    energy_j += document->blocking_w * time_s;
    assert_close(number(point, "time_s"), time_s, 1e-12);
    assert_close(number(point, "energy_j"), energy_j * document->gpus_per_stage, 1e-12);
    assert_close(number(point, "static_energy_j"),
                 document->static_w * document->gpus_per_stage * time_s, 1e-12);
    assert_close(number(point, "dynamic_energy_j"),
                 number(point, "energy_j") - number(point, "static_energy_j"), 1e-12);
    assert_true(number(point, "dynamic_energy_j") > 0);
    /* A realised plan never overruns the deadline it was rounded for. */
    assert_true(number(point, "time_s") <= number(point, "planned_time_s") * (1 + 1e-9));
}

/* Spans do not overlap, are as long as their options and end when the point does. */
static void check_timeline(const struct document *document, const json_t *timeline)
{
    const json_t *method = json_object_get(json_object_get(document->root, "methods"),
                                           json_string_value(json_object_get(timeline, "method")));
    double planned_s = 0, end_s = 0;
    if (method) { /* the one before may belong to a method that is not reported */
        const json_t *points = json_object_get(method, "points");
        check_point(document, json_array_get(points, (size_t)number(timeline, "point")),
                    &planned_s);
        assert_close(number(timeline, "time_s"), planned_s, 1e-12);
    }
    size_t s, i;
    json_t *stage, *span;
    json_array_foreach(json_object_get(timeline, "stages"), s, stage)
    {
        double free_s = 0;
        json_array_foreach(stage, i, span)
        {
            double start_s = number(span, "start_s"), length_s = number(span, "end_s") - start_s;
            assert_true(start_s >= free_s * (1 - 1e-12));
            assert_close(number(span, "power_w") * length_s, number(span, "energy_j"), 1e-9);
            free_s = number(span, "end_s");
        }
        end_s = free_s > end_s ? free_s : end_s;
    }
    assert_close(number(timeline, "time_s"), end_s, 1e-12);
}

static void check_document(const char *line, const char *replacement)
{
    write_job("job.yaml", line, replacement);
    check_optimize("job.yaml", "out", "", 0, "selected: ergon");
    struct document document;
    open_document(&document, load_plan("out"));
    size_t points = 0, slower = 0, i;
    const char *key;
    json_t *method, *point, *timeline;
    json_object_foreach(json_object_get(document.root, "methods"), key, method)
    {
        double last_s = 0, last_j = INFINITY, planned_s, waiting_w;
        json_array_foreach(json_object_get(method, "points"), i, point)
        {
            check_point(&document, point, &planned_s);
            assert_true(number(point, "time_s") > last_s && number(point, "energy_j") < last_j);
            last_s = number(point, "time_s");
            last_j = number(point, "energy_j");
            points++;
        }
        /* Beyond the frontier: less energy beyond that of waiting. */
        waiting_w = document.blocking_w * document.gpus_per_stage;
        last_j -= waiting_w * last_s;
        json_array_foreach(json_object_get(method, "slower"), i, point)
        {
            double beyond_j = number(point, "energy_j") - waiting_w * number(point, "time_s");
            check_point(&document, point, &planned_s);
            assert_true(number(point, "time_s") > last_s && beyond_j < last_j);
            last_s = number(point, "time_s");
            last_j = beyond_j;
            slower++;
        }
    }
    assert_true(points > 20 && slower > 5);
    json_array_foreach(json_object_get(document.root, "timelines"), i, timeline)
    {
        check_timeline(&document, timeline);
    }
    assert_int_equal(i, 2);
    close_document(&document);
    char arguments[256];
    snprintf(arguments, sizeof arguments, "show %s 2>&1", in_folder("out/plan.json"));
    check_program(arguments, 0, "Stage 0");
    /* A straggler far away is worth a slower plan than any that stops when it likes. */
    snprintf(arguments, sizeof arguments, "show %s --straggler 1000 2>&1",
             in_folder("out/plan.json"));
    check_program(arguments, 0, "beyond the frontier (the least energy when held");
}

static void test_real_plans_add_up(void **state)
{
    (void)state;
    check_document("", "");
    check_document("pipeline: 2", "pipeline: 2\nrecompute: full\nstack: published-python");
    check_document("pipeline: 2", "pipeline: 2\nvirtual_stages: 2\nlayers: [5, 4, 4, 3]");
    check_document("gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\npipeline: 2",
                   "gpus_per_node: 2, gpu: A100-SXM4-40GB}\ntensor: 2");
    /* Stages on GPUs of two kinds, which do not even follow each other. */
    check_document("nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\npipeline: 2",
                   "nodes: 1, gpus_per_node: 4, gpu: H800-SXM-80GB, inter_node_bandwidth_gb_s: 50, "
                   "more_nodes: [{nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-80GB, "
                   "inter_node_bandwidth_gb_s: 25}]}\ntensor: 2\npipeline: 4\n"
                   "stage_gpus: [H800-SXM-80GB, A100-SXM4-80GB, H800-SXM-80GB, A100-SXM4-80GB]");
}

/* ---- picks ---- */

static double objective(const struct erg_plan *plan, const struct erg_plan_point *point,
                        const struct erg_goal *goal)
{
    if (goal->deadline_s > 0)
        return point->time_s <= goal->deadline_s ? point->energy_j : INFINITY;
    if (goal->energy_j > 0)
        return point->energy_j <= goal->energy_j ? point->time_s : INFINITY;
    if (goal->straggler_s > 0) { /* 85 W, 2 stages of 8 GPUs */
        assert_near(plan->scale.blocking_power_w, 85, 0);
        return point->time_s <= goal->straggler_s
                   ? point->energy_j + 85 * 16 * (goal->straggler_s - point->time_s)
                   : INFINITY;
    }
    return goal->objective == ERG_FASTEST ? point->time_s : point->energy_j;
}

static void check_pick(const struct erg_plan *plan, enum erg_method method, struct erg_goal goal)
{
    const struct erg_plan_method *own = &plan->methods[method];
    double best = INFINITY;
    size_t count = own->point_count + (goal.straggler_s > 0 ? own->slower_count : 0);
    for (size_t i = 0; i < count; i++)
        best = fmin(best, objective(plan, &own->points[i], &goal));
    struct erg_error err = {0};
    size_t point;
    if (isinf(best)) {
        assert_fails(erg_plan_pick(plan, method, &goal, &point, &err), &err, " binds: ");
        assert_int_equal(err.status, ERG_INFEASIBLE);
        return;
    }
    assert_ok(erg_plan_pick(plan, method, &goal, &point, &err), &err);
    assert_near(objective(plan, &own->points[point], &goal), best, 1e-9 * best);
}

static void test_picks_are_the_best_points(void **state)
{
    (void)state;
    struct erg_plan *plan = load_sample();
    for (int m = 0; m < ERG_METHOD_COUNT; m++) {
        enum erg_method method = (enum erg_method)m;
        check_pick(plan, method, FASTEST);
        check_pick(plan, method, LEAST_ENERGY);
        for (double bound = 4; bound < 8; bound += 0.0625) {
            check_pick(plan, method, DEADLINE(bound));
            check_pick(plan, method, STRAGGLER(bound));
            check_pick(plan, method, BUDGET(bound * 4000));
        }
        const struct erg_plan_method *own = &plan->methods[m];
        for (size_t i = 0; i < own->point_count; i++) { /* bounds that are met exactly */
            struct erg_error err = {0};
            size_t point;
            assert_ok(erg_plan_pick(plan, method, &DEADLINE(own->points[i].time_s), &point, &err),
                      &err);
            assert_int_equal(point, i);
            assert_ok(erg_plan_pick(plan, method, &BUDGET(own->points[i].energy_j), &point, &err),
                      &err);
            assert_int_equal(point, i);
        }
    }
    size_t knee;
    struct erg_error err = {0};
    assert_ok(erg_plan_pick(plan, ERG_METHOD_ERGON, &KNEE, &knee, &err), &err);
    assert_true(knee > 0 && knee + 1 < plan->methods[ERG_METHOD_ERGON].point_count);
    plan->methods[ERG_METHOD_NANOBATCHING].point_count = 0;
    assert_fails(erg_plan_pick(plan, ERG_METHOD_NANOBATCHING, &FASTEST, &knee, &err), &err,
                 "no points of method nanobatching");
    erg_plan_free(plan);
}

/* ---- broken files ---- */

/* The value at "methods.ergon.points.0" and so on; the last part of the path into `last`. */
static json_t *parent_of(json_t *root, const char *path, char *last)
{
    char copy[128], *rest = copy;
    snprintf(copy, sizeof copy, "%s", path);
    json_t *at = root;
    for (char *part = strtok_r(rest, ".", &rest), *next; part; part = next) {
        next = strtok_r(rest, ".", &rest);
        if (!next) {
            snprintf(last, 64, "%s", part);
            return at;
        }
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
        assert_non_null(at);
    }
    return NULL;
}

/* `value` is JSON; NULL takes the place out. */
static void break_at(json_t *root, const char *path, const char *value)
{
    char last[64] = "";
    json_t *parent = parent_of(root, path, last);
    json_t *changed = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(!value || changed);
    if (json_is_array(parent)) {
        size_t index = (size_t)atoi(last);
        assert_int_equal(value ? json_array_set_new(parent, index, changed)
                               : json_array_remove(parent, index),
                         0);
    } else {
        assert_int_equal(
            value ? json_object_set_new(parent, last, changed) : json_object_del(parent, last), 0);
    }
}

static void check_refused(const char *text, size_t length, const char *sentence)
{
    struct erg_error err = {0};
    struct erg_plan *plan;
    assert_fails(erg_plan_parse(&plan, "a.json", text, length, &err), &err, sentence);
    assert_int_equal(err.status, ERG_FAILED);
    assert_memory_equal(err.message, "a.json:", 7);
}

static void test_broken_plans_are_refused_by_key(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *sentence;
    } cases[] = {
        {"schema", "\"ergon.job\"", "key 'schema': not a plan: expected"},
        {"schema", NULL, "expected \"ergon.plan\", got nothing"},
        {"schema_version", "1", ":3: key 'schema_version': the plan has version 1, but this ergon"},
        {"schema_version", "2", "the plan has version 2, but this ergon reads version 3; make it"},
        {"schema_version", "\"3\"", "key 'schema_version'"},
        {"job", "[]", "key 'job'"},
        {"job.name", NULL, "key 'job.name': the key is missing"},
        {"job.pipeline", "3",
         "key 'job.hop_latency_s': expected 3 entries, one for each stage, got 2"},
        {"job.hop_latency_s.1", "-1", "key 'job.hop_latency_s[1]': expected a number from 0"},
        {"job.hop_latency_s.0", "\"fast\"", "key 'job.hop_latency_s[0]': expected a number"},
        {"job.hop_latency_s.0", "0.01", "its instructions add up to"},
        {"job.pipeline", "1e9", "key 'job.pipeline'"},
        {"job.virtual_stages", "100000000", "key 'stages': expected 200000000 entries"},
        {"job.microbatches", "7", "key 'schedule[0]': expected a list of 14 entries"},
        {"job.microbatches", "100000000", "key 'schedule[0]': expected a list of 200000000"},
        {"job.schedule", "\"gpipe\"", "key 'job.schedule': expected 1f1b or interleaved"},
        {"job.schedule", "\"interleaved\"",
         "key 'job.schedule': interleaved with 1 virtual stages"},
        {"job.layers", "[15]", "key 'job.layers': expected 2 entries"},
        {"job.layers.0", "14", "key 'stages[0].layers': 15 differs from job.layers[0]"},
        {"job.overhead", "-0.1", "key 'job.overhead'"},
        {"job.overhead", "0.2", "its instructions add up to"},
        {"kinds", "[]", "key 'kinds': expected at least one kind of GPU"},
        {"kinds.0.gpu", NULL, "key 'kinds[0].gpu'"},
        {"kinds.0.blocking_power_w", "86", "energy_j': the plan has"},
        {"kinds.0.clocks_mhz", "[1410]", "are not a configuration of partition"},
        {"partitions.0.kind", "1", "key 'partitions[0].kind'"},
        {"stages.1.kind", "1", "key 'stages[1].kind'"},
        {"partitions.0.key", "\"fwd_atn\"", "the plan has no partition fwd_attn"},
        {"partitions.0.slots", "[]", "are not a configuration of partition fwd_attn"},
        {"partitions.0.sms", "[]", "are not a configuration of partition fwd_attn"},
        {"partitions.0.sms", "3", "key 'partitions[0].sms'"},
        {"partitions.0.frontier.0.clock_mhz", "7", "are not a configuration of partition fwd_attn"},
        {"partitions.0.frontier.0.slot", "\"moon\"", "key 'partitions[0].frontier[0]': "},
        {"kinds.0.sms", "2", "expected at most the 2 SMs of A100-SXM4-40GB"},
        {"stage_profile.0.stage", "2", "key 'stage_profile[0].stage': expected an integer from 0"},
        {"stage_profile.0.frequency", "7", "7 is none of the clocks_mhz of A100-SXM4-40GB"},
        {"stage_profile.0.time", "0", "key 'stage_profile[0].time'"},
        {"stages.1.stage", "0", "key 'stages[1].stage': expected stage 1 and chunk 0 here"},
        {"stages.0.forward.options.0.time_s", "0", "key 'stages[0].forward.options[0].time_s'"},
        {"stages.0.forward.options.0.time_s", "0.16", "its instructions add up to"},
        {"stages.0.forward.options.0.energy_j", "-1",
         "key 'stages[0].forward.options[0].energy_j'"},
        {"stages.0.forward.options.0.energy_j", "null", "options[0].energy_j'"},
        {"stages.0.forward.options.0.mode", "\"fast\"", "expected overlap, sequential or nano"},
        {"stages.0.forward.options.0.mode", "\"overlap\"", "options[0].configurations'"},
        {"stages.0.forward.options.0.configurations", "[]", "only the mode overlap has them"},
        {"stages.0.forward.options", "[]", "the number of forward options of stages[0]"},
        {"schedule.0.0.type", "\"backward\"", "key 'schedule[0][0].type': the job's schedule has"},
        {"schedule.0.1", "[]", "key 'schedule[0][1]': expected an object"},
        {"schedule.1", NULL, "key 'schedule': expected 2 lists, one per stage, got 1"},
        {"methods.faster", "{}", "key 'methods.faster': there is no such method"},
        {"methods.ergon.points", "[]", "key 'methods.ergon.points': expected at least one point"},
        {"methods.ergon.points.0.energy_j", "19000", "points[0].energy_j': the plan has 19000"},
        {"methods.ergon.points.0.static_energy_j", "1", "static_energy_j': the plan has 1"},
        {"methods.ergon.points.0.dynamic_energy_j", "1", "dynamic_energy_j': the plan has 1"},
        {"methods.ergon.points.0.dynamic_energy_j", "null", "dynamic_energy_j': expected the "},
        {"methods.ergon.points.1.time_s", "5", "points[1].time_s': the plan has 5"},
        {"methods.ergon.points.0.planned_time_s", "0", "points[0].planned_time_s'"},
        {"methods.ergon.points.0.options.1.0", "99", "points[0].options[1][0]': expected a whole"},
        {"methods.ergon.points.0.options.1.0", "-1", "points[0].options[1][0]': expected an int"},
        {"methods.ergon.points.0.options.1.0", "0.5", "points[0].options[1][0]': expected an in"},
        {"methods.ergon.points.0.options.1", "[0]", "points[0].options[1]': expected a list of 16"},
        {"methods.ergon.slower", NULL, "key 'methods.ergon.slower': the key is missing"},
        {"methods.ergon.slower", "[{}]", "key 'methods.ergon.slower[0].time_s'"},
        {"methods.ergon.versus", NULL, "key 'methods.ergon.versus'"},
        {"methods.ergon.versus.iso_time_energy_reduction_percent", "\"a lot\"", "percent'"},
        {"selected.method", "\"fastest\"", "key 'selected.method': expected sequential, sequ"},
        {"selected.point", "1000", "key 'selected.point'"},
        {"methods", "{}", "key 'selected.method'"},
    };
    struct erg_error err = {0};
    json_t *sample = NULL;
    assert_ok(load_json(&sample, sample_path, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *broken = json_deep_copy(sample);
        break_at(broken, cases[i].path, cases[i].value);
        char *text = erg_json_text(broken);
        check_refused(text, strlen(text), cases[i].sentence);
        free(text);
        json_decref(broken);
    }
    /* Points in the wrong order. */
    json_t *points =
        json_object_get(json_object_get(json_object_get(sample, "methods"), "ergon"), "points");
    json_t *first = json_incref(json_array_get(points, 0));
    json_array_remove(points, 0);
    json_array_append_new(points, first);
    char *text = erg_json_text(sample);
    check_refused(text, strlen(text), "points must rise in time and fall in energy");
    free(text);
    json_decref(sample);
    const char *older = "{\"schema_version\": 2, \"kind\": \"iteration plan\", \"stages\": []}";
    check_refused(older, strlen(older), "this plan is of an older ergon");
    check_refused("", 0, "this is not valid JSON");
    check_refused("[]", 2, "a.json:1: expected an object");
    check_refused("{\"schema\": \"ergon.plan\", \"schema_version\": 1e999}", 50, "not valid JSON");
}

/* Any cut and any changed byte is refused or read without harm. */
static void test_damaged_bytes(void **state)
{
    (void)state;
    struct erg_error err = {0};
    json_t *sample = NULL;
    assert_ok(load_json(&sample, sample_path, &err), &err);
    char *text = json_dumps(sample, JSON_COMPACT);
    json_decref(sample);
    size_t length = strlen(text), accepted = 0;
    struct erg_rng rng;
    erg_rng_seed(&rng, 4);
    struct erg_plan *plan;
    for (int i = 0; i < 20; i++)
        assert_int_not_equal(
            erg_plan_parse(&plan, "a.json", text, erg_rng_below(&rng, length), &err), 0);
    for (int i = 0; i < 60; i++) {
        size_t at = erg_rng_below(&rng, length);
        char kept = text[at];
        text[at] = "0123456789-.e\"[]{}, x"[erg_rng_below(&rng, 21)];
        if (erg_plan_parse(&plan, "a.json", text, length, &err) == 0) {
            accepted++;
            erg_plan_free(plan);
        }
        text[at] = kept;
    }
    assert_true(accepted < 60);
    free(text);
}

/* ---- the command ---- */

static void test_show(void **state)
{
    (void)state;
    char arguments[512];
#define SHOW(more, code, part)                                                                     \
    do {                                                                                           \
        snprintf(arguments, sizeof arguments, "show '%s' " more " 2>&1", sample_path);             \
        check_program(arguments, code, part);                                                      \
    } while (0)
    SHOW("", 0, "Stage 1: ");
    SHOW("", 0, "overlap: fwd_attn at ");
    SHOW("--method sequential", 0, "Stage 0: F1 x2, (B1 F1) x6, B1 x2\n");
    SHOW("--method sequential", 0, "  F1  forward   1410 MHz  0.1596 s  50.24 J  sequential\n");
    SHOW("--point 2", 0, "ergon, point 2 (as asked for): ");
    SHOW("--pick least_energy -m sequential+clocks", 0, "(the least energy): 6.4379 s, 18489.7 J");
    SHOW("--straggler 7 -m sequential+clocks", 0, "If another pipeline takes 7.0000 s: ");
    SHOW("--deadline 1", 3, "the deadline of 1 s binds: the fastest takes 4.59515 s");
    SHOW("--energy-budget 1", 3, "the energy budget of 1 J binds");
    SHOW("--point 99", 2, "choosing a point: ergon has the points 1 to ");
    SHOW("--method ergom", 2, "did you mean 'ergon'");
    SHOW("--deadline 5 --point 1", 2, "exclude each other");
    check_program("show /nowhere.json 2>&1", 1, "reading '/nowhere.json': No such file");

    snprintf(arguments, sizeof arguments, "show '%s' --straggler 5.2 --json", sample_path);
    struct program_result result = run_program(arguments);
    assert_int_equal(result.exit_code, 0);
    struct erg_error err = {0};
    json_t *root = NULL;
    assert_ok(erg_json_parse(&root, "stdout", result.out.data, result.out.count, &err), &err);
    const json_t *chosen = json_object_get(root, "chosen");
    double held_j = number(chosen, "held_energy_j"), time_s = number(chosen, "time_s");
    assert_close(held_j, number(chosen, "energy_j") + 85 * 16 * (5.2 - time_s), 1e-12);
    const json_t *stages = json_object_get(chosen, "stages");
    assert_int_equal(json_array_size(stages), 2);
    const json_t *list = json_object_get(json_array_get(stages, 0), "instructions");
    assert_int_equal(json_array_size(list), 16);
    json_decref(root);
    erg_text_release(&result.out);
}

/* ---- plans of jobs ---- */

static struct erg_job *job_that(const char *keys)
{
    struct erg_error err;
    struct erg_job *job;
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "model: llama-3.2-1b\n"
                    "cluster: {nodes: 1, gpus_per_node: 8, gpu: A100-SXM4-40GB}\n"
                    "tensor: 2\npipeline: 4\nmicrobatch_size: 4\nmicrobatches: 8\n"
                    "sequence: 2048\nengine: megatron-kwai-a100\n%s\n",
                    keys);
    assert_ok(erg_job_parse(&job, "job.yaml", text.data, text.count, NULL, &err), &err);
    erg_text_release(&text);
    return job;
}

/* A plan is one of the jobs that recompute and offload as it does, on every stage. */
static void test_a_plan_is_of_its_job(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "recompute: full\noffload: 0.5",
        "recompute: full\noffload: 0.25",
        "recompute: none\noffload: 0.5",
        "stage_recompute: [full, norms, none, none]\nstage_offload: [0.5, 0, 0, 0]",
        "stage_recompute: [norms, full, none, none]\nstage_offload: [0.5, 0, 0, 0]",
        "stage_recompute: [full, norms, none, none]\nstage_offload: [0.5, 1, 0, 0]",
        /* as the first one */
        ("stage_recompute: [full, full, full, full]\n"
         "stage_offload: [0.5, 0.5, 0.5, 0.5]"),
    };
    static const struct {
        int plan, job;
        const char *part; /* NULL: they agree */
    } pairs[] = {
        {0, 0, NULL},
        {3, 3, NULL},
        {0, 6, NULL},
        {6, 0, NULL},
        {0, 1, "key 'offload': stage 0 of the plan offloads 0.5, expected 0.25"},
        {0, 2, "key 'recompute': stage 0 of the plan recomputes full, expected none"},
        {3, 4, "key 'stage_recompute': stage 0 of the plan recomputes full, expected norms"},
        {3, 5, "key 'stage_offload': stage 1 of the plan offloads 0, expected 1"},
        {0, 3, "key 'stage_recompute': stage 1 of the plan recomputes full, expected norms"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct erg_error err = {0};
        struct erg_job *planned = job_that(keys[pairs[i].plan]),
                       *own = job_that(keys[pairs[i].job]);
        struct erg_plan *plan = random_plan(planned, RANDOM_PLAN_ALL, i + 1);
        if (pairs[i].part)
            assert_fails(erg_plan_check_job(plan, own, &err), &err, pairs[i].part);
        else
            assert_ok(erg_plan_check_job(plan, own, &err), &err);
        erg_plan_free(plan);
        erg_job_free(planned);
        erg_job_free(own);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample_is_read),
        cmocka_unit_test(test_clocks_are_those_of_the_stage),
        cmocka_unit_test_setup_teardown(test_real_plans_add_up, make_quick_folder, remove_folder),
        cmocka_unit_test(test_picks_are_the_best_points),
        cmocka_unit_test(test_broken_plans_are_refused_by_key),
        cmocka_unit_test(test_damaged_bytes),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_a_plan_is_of_its_job),
    };
    return cmocka_run_group_tests_name("plan file", tests, NULL, NULL);
}
