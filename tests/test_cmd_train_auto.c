/*
 * ergon train --auto from outside: what the job leaves open is chosen and kept, ways to run its
 * passes are tried on steps of the run, and the losses are those of a plain run.
 */
#include "fake_clocks.h"
#include "train_job.h"

#include "io/json.h"
#include "job/job.h"

static const char tensor_job[] = "model: model\n"
                                 "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                                 "tensor: 2\n"
                                 "microbatch_size: 4\n"
                                 "microbatches: 4\n"
                                 "sequence: 32\n"
                                 "train:\n"
                                 "  data: [{file: tokens.bin}]\n"
                                 "  updates: 80\n"
                                 "  learning_rate: 0.01\n"
                                 "  warmup: 2\n"
                                 "  log_every: 5\n";

static const char open_job[] = "model: model\n"
                               "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\n"
                               "sequence: 16\n"
                               "train:\n"
                               "  data: [{file: tokens.bin}]\n"
                               "  updates: 12\n"
                               "  batch: 16\n"
                               "  learning_rate: 0.01\n";

/* "ergon train ARGUMENTS" on so many ranks of the host. */
static void check_ranks(int ranks, int exit_code, const char *part, const char *arguments)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "run -n %d -- '%s' train --device host --dtype float32 %s", ranks,
                    ERGON_TEST_PROGRAM, arguments);
    check(exit_code, part, line.data);
    erg_text_release(&line);
}

static char *text_of(const char *name)
{
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder(name), 0, &text, NULL, &err), &err);
    return text;
}

/* The last line of a run's log that has this key. */
static json_t *line_with(const char *run, const char *key)
{
    char path[100];
    json_t *found = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = text_of(path);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_object_get(object, key)) {
            json_decref(found);
            found = json_incref(object);
        }
        json_decref(object);
    }
    free(text);
    return found;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static struct erg_job *job_of(const char *run)
{
    char path[100];
    struct erg_job *job;
    struct erg_error err;
    snprintf(path, sizeof path, "%s/job.yaml", run);
    assert_ok(erg_job_load(&job, in_folder(path), NULL, &err), &err);
    return job;
}

static double last_loss(const char *run)
{
    json_t *line = line_with(run, "loss");
    double loss = number_of(line, "loss");
    json_decref(line);
    return loss;
}

/* ---- trials ---- */

/* The best is the fastest of those that were tried, where energy is not known. */
static void the_fastest_measured_way_runs(void **state)
{
    (void)state;
    check_ranks(2, 0, "auto: tries sequential, nanobatching for 0.1 s",
                "@/tensor.yaml -o @/tried --auto=0.1 -n 76");
    /* What was found is kept, and said at the end of a run that went on. */
    check_ranks(2, 0, " ways ", "@/tensor.yaml -o @/tried --auto");
    check_ranks(2, 0, "trained 80 steps", "@/tensor.yaml -o @/plain -q");
    assert_true(fabs(last_loss("tried") - last_loss("plain")) < 1e-3);
    json_t *line = line_with("tried", "trials");
    assert_non_null(line);
    const json_t *trials = json_object_get(line, "trials");
    const json_t *ways = json_object_get(trials, "ways");
    const char *best = json_string_value(json_object_get(trials, "best"));
    const char *least = NULL;
    double least_ms = INFINITY;
    assert_int_equal(json_array_size(ways), 2);
    for (size_t i = 0; i < json_array_size(ways); i++) {
        const json_t *way = json_array_get(ways, i);
        assert_true(number_of(way, "rounds") >= 1);
        assert_true(number_of(way, "steps") >= 2);
        assert_true(isnan(number_of(way, "step_j")));
        if (number_of(way, "step_ms") < least_ms) {
            least_ms = number_of(way, "step_ms");
            least = json_string_value(json_object_get(way, "way"));
        }
    }
    /* Compared round by round, which need not be how means compare that are nearly alike. */
    const double saved = number_of(json_object_get(trials, "saved"), "time");
    if (strcmp(best, least) != 0)
        assert_true(fabs(saved) < 0.1);
    assert_true(saved >= 0);
    assert_true(isnan(number_of(json_object_get(trials, "saved"), "energy")));
    /* The plan of the folder, of checkpoints and of the page say the same. */
    json_t *plan = json_load_file(in_folder("tried/plan.json"), 0, NULL);
    const json_t *selected = json_object_get(plan, "selected");
    assert_string_equal(json_string_value(json_object_get(selected, "method")), best);
    assert_string_equal(json_string_value(json_object_get(selected, "rule")),
                        "the best of the ways that the run has tried");
    shell("cmp @/tried/plan.json @/tried/latest/plan.json && "
          "cmp @/tried/job.yaml @/tried/latest/job.yaml");
    char *page = text_of("tried/report.html");
    assert_non_null(strstr(page, "\"trials\":{\"best\":"));
    free(page);
    json_decref(plan);
    json_decref(line);
}

/* On four ranks, two stages or two pipelines, whose points follow each other where clocks are set.
 */
static void four_ranks_find_their_way(void **state)
{
    (void)state;
    static const char *const degrees[] = {"pipeline: 2\n", "data: 2\n"};
    struct world world = world_of(4, "");
    for (size_t i = 0; i < 2; i++) {
        struct erg_text text = {0};
        const char *at = strstr(tensor_job, "gpus_per_node: 2");
        erg_text_printf(&text, "%s", degrees[i]);
        erg_text_add_bytes(&text, tensor_job, (size_t)(at - tensor_job));
        erg_text_printf(&text, "gpus_per_node: 4%s", at + strlen("gpus_per_node: 2"));
        write_text("four.yaml", text.data);
        erg_text_release(&text);
        shell("rm -rf @/four @/four-plain");
        check_ranks(4, 0, " ways ",
                    i ? "@/four.yaml -o @/four --auto=0.1 --require-clocks -n 50"
                      : "@/four.yaml -o @/four --auto=0.1 -n 50");
        check_ranks(4, 0, "trained 50 steps", "@/four.yaml -o @/four-plain -q -n 50");
        assert_true(fabs(last_loss("four") - last_loss("four-plain")) < 1e-3);
        json_t *line = line_with("four", "trials");
        assert_non_null(line);
        json_decref(line);
    }
    for (int gpu = 0; gpu < 4; gpu++)
        assert_int_equal(lock_of(&world, gpu), 0);
    world_end(&world);
}

static void choices_survive_a_stop(void **state)
{
    (void)state;
    check_ranks(2, 0, "auto: tries", "@/tensor.yaml -o @/stopped --auto=0.1 -n 60");
    char *before = text_of("stopped/plan.json");
    check_ranks(2, 0, "as the run began, in ", "@/tensor.yaml -o @/stopped --auto=0.1 -n 62");
    check_ranks(2, 0, "auto: continues with ", "@/tensor.yaml -o @/stopped --auto=0.1 -n 64");
    char *after = text_of("stopped/plan.json");
    assert_string_equal(before, after);
    free(before);
    free(after);
    /* Both files are what every other run takes. */
    check_ranks(2, 0, "by ", "@/stopped/job.yaml --plan @/stopped/plan.json -n 66 -o @/stopped");
    check_ranks(2, 1, "expected", "@/tensor.yaml -o @/stopped --auto --fresh");
}

/* ---- the same bits ---- */

/* Where passes are sequential alone a run has the bits of a plain one of the job that it chose. */
static void bits_are_those_of_a_plain_run(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 4};
    for (size_t i = 0; i < 3; i++) {
        char arguments[200], compared[200];
        snprintf(arguments, sizeof arguments,
                 "@/open.yaml -o @/open%d --auto --export @/open%d-model", ranks[i], ranks[i]);
        check_ranks(ranks[i], 0, "layouts the fastest that fits into ", arguments);
        snprintf(arguments, sizeof arguments,
                 "@/open%d/job.yaml -o @/whole%d -q --export @/whole%d-model", ranks[i], ranks[i],
                 ranks[i]);
        check_ranks(ranks[i], 0, "trained 12 steps", arguments);
        snprintf(compared, sizeof compared,
                 "cmp @/open%d-model/model.safetensors @/whole%d-model/model.safetensors", ranks[i],
                 ranks[i]);
        shell(compared);
        snprintf(compared, sizeof compared, "open%d", ranks[i]);
        struct erg_job *job = job_of(compared);
        assert_int_equal(erg_layout_gpus(&job->layout), ranks[i]);
        assert_int_equal(erg_layout_batch(&job->layout), 16);
        assert_int_equal(job->training->updates, 12);
        erg_job_free(job);
    }
    struct erg_text text = {0};
    erg_text_printf(&text, "%s  deterministic: true\n  sequence_parallel: true\n", tensor_job);
    write_text("same.yaml", text.data);
    erg_text_release(&text);
    check_ranks(2, 0, "sequentially, as train.deterministic requires the same bits",
                "@/same.yaml -o @/same --auto=0.1 --export @/same-model");
    check_ranks(2, 0, "trained 80 steps", "@/same.yaml -o @/whole -q --export @/whole-model");
    assert_same_run("same", "whole");
}

/* ---- layouts ---- */

static void keys_of_the_job_stay(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        struct erg_layout layout; /* 0: whatever */
    } cases[] = {
        {"pipeline: 2\n", {.pipeline = 2}},
        {"tensor: 4\nrecompute: full\n", {.tensor = 4, .recompute = ERG_RECOMPUTE_FULL}},
        {"microbatches: 4\nmicrobatch_size: 2\n", {.data = 2, .microbatch = 2, .microbatches = 4}},
        {"microbatches: 8\ncontext: 2\n", {.context = 2, .microbatches = 8}},
        {"data: 1\nlayers: [1, 1]\npipeline: 2\ntensor: 2\nmicrobatch_size: 8\nmicrobatches: 2\n",
         {.tensor = 2, .pipeline = 2, .data = 1, .microbatch = 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        const struct erg_layout *wanted = &cases[i].layout;
        erg_text_printf(&text, "%s%s", cases[i].keys, open_job);
        write_text("kept.yaml", text.data);
        erg_text_release(&text);
        shell("rm -rf @/kept");
        check_ranks(4, 0, "trained 1 step", "@/kept.yaml -o @/kept --auto -n 1");
        struct erg_job *job = job_of("kept");
        const struct erg_layout *own = &job->layout;
        assert_true(!wanted->tensor || own->tensor == wanted->tensor);
        assert_true(!wanted->context || own->context == wanted->context);
        assert_true(!wanted->pipeline || own->pipeline == wanted->pipeline);
        assert_true(!wanted->data || own->data == wanted->data);
        assert_true(!wanted->microbatch || own->microbatch == wanted->microbatch);
        assert_true(!wanted->microbatches || own->microbatches == wanted->microbatches);
        assert_true(!wanted->recompute || own->recompute == wanted->recompute);
        assert_int_equal(erg_layout_gpus(own), 4);
        assert_int_equal(erg_layout_batch(own), 16);
        erg_job_free(job);
    }
    /* A change of the job is a change of the run, and another layout where it asks for one. */
    write_text("kept.yaml", open_job);
    shell("rm -rf @/kept; sed 's/updates: 12/updates: 11/' @/kept.yaml >@/changed.yaml");
    check_ranks(4, 0, "trained 2 steps", "@/kept.yaml -o @/kept --auto -n 2");
    check_ranks(4, 0, "as the run began", "@/changed.yaml -o @/kept --auto -n 3");
    struct erg_job *job = job_of("kept");
    assert_int_equal(job->training->updates, 11);
    erg_job_free(job);
    check_ranks(2, 0, "layouts the fastest", "@/changed.yaml -o @/kept --auto -n 4");
    job = job_of("kept");
    assert_int_equal(erg_layout_gpus(&job->layout), 2);
    erg_job_free(job);
}

static void impossible_choices_are_named(void **state)
{
    (void)state;
    struct erg_text text = {0};
    check_ranks(1, 1, "key 'microbatch_size': the key is missing; expected a number, which only",
                "@/open.yaml");
    check(2, "--auto and --plan exclude each other", "train @/tensor.yaml --auto --plan x");
    check(2, "--auto and --method exclude each other", "train @/tensor.yaml --auto --method ergon");
    check(2, "--auto needs --output", "train @/tensor.yaml --auto");
    check(2, "got the argument \"3\", expected none", "train @/tensor.yaml --auto 3 -o @/x");
    check(2, "between 0 and", "train @/tensor.yaml --auto=-3 -o @/x");
    erg_text_printf(&text, "tensor: 2\n%s", open_job);
    write_text("three.yaml", text.data);
    check_ranks(3, 3, "three.yaml: the layout: ", "@/three.yaml -o @/three --auto");
    text.count = 0;
    erg_text_printf(&text, "layers: [2]\n%s", open_job);
    write_text("lists.yaml", text.data);
    check_ranks(1, 2, "the job lists stages but no microbatches", "@/lists.yaml -o @/x --auto");
    erg_text_release(&text);
    /* The folder of another run is left as it is. */
    check_ranks(1, 0, "trained 1 step", "@/job.yaml -o @/other -n 1 -q");
    check_ranks(1, 1, "of another run", "@/open.yaml -o @/other --auto");
    shell("mkdir @/mine && cp @/open.yaml @/mine/job.yaml && cp @/tokens.* @/mine && cp -r @/model "
          "@/mine");
    check_ranks(1, 1, "/mine/job.yaml': this file exists, not of a run with --auto",
                "@/mine/job.yaml -o @/mine --auto");
    shell("cmp @/open.yaml @/mine/job.yaml && rm @/mine/job.yaml && touch @/mine/plan.json");
    check_ranks(1, 1, "/mine/plan.json': this file exists", "@/open.yaml -o @/mine --auto");
    shell("test ! -e @/other/job.yaml && test ! -e @/other/plan.json && test ! -e @/three");
}

static void it_is_said_beforehand(void **state)
{
    (void)state;
    check(0, "would try on steps of the run",
          "train @/tensor.yaml --auto --dry-run --device host --dtype float32");
    struct erg_text command =
        with_folder("train @/tensor.yaml --auto --dry-run --json --device host --dtype float32");
    struct program_result result = run_program(command.data);
    erg_text_release(&command);
    assert_int_equal(result.exit_code, 0);
    json_t *document = json_loads(result.out.data, 0, NULL);
    const json_t *chosen = json_object_get(document, "auto");
    const json_t *ways = json_object_get(chosen, "ways");
    assert_true(json_is_null(json_object_get(document, "plan")));
    assert_true(json_is_null(json_object_get(chosen, "sequential")));
    assert_int_equal(json_array_size(ways), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(ways, 0), "way")),
                        "sequential");
    assert_true(number_of(json_array_get(ways, 1), "time_s") > 0);
    json_decref(document);
    erg_text_release(&result.out);
    check(0, "passes run sequentially, as its layers have no communication to hide",
          "train @/open.yaml --auto --dry-run --device host");
    shell("test ! -e plan.json");
}

/* ---- energy and clocks ---- */

/* The powercap tree counts 200 W while the run goes on, so energy is as time is. */
static void energy_is_measured_with_a_counter(void **state)
{
    (void)state;
    struct erg_error err;
    assert_ok(erg_dir_make(in_folder("powercap/intel-rapl:0"), &err), &err);
    write_text("powercap/intel-rapl:0/name", "package-0\n");
    write_text("powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    write_text("powercap/intel-rapl:0/energy_uj", "1000000\n");
    struct erg_text command = with_folder(
        "run -n 2 -- '" ERGON_TEST_PROGRAM "' train @/tensor.yaml --device host --dtype float32 -o "
        "@/measured --auto=0.3 >@/said 2>&1 & "
        "train=$!; uj=1000000; while kill -0 $train 2>/dev/null; do uj=$((uj + 2000000)); "
        "echo $uj >@/powercap/intel-rapl:0/next; "
        "mv @/powercap/intel-rapl:0/next @/powercap/intel-rapl:0/energy_uj; sleep 0.01; done; "
        "wait $train && cat @/said");
    setenv("ERGON_POWERCAP", in_folder("powercap"), 1);
    check_program(command.data, 0, "trained 80 steps");
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    erg_text_release(&command);
    json_t *line = line_with("measured", "trials");
    assert_non_null(line);
    const json_t *trials = json_object_get(line, "trials");
    for (size_t i = 0; i < 2; i++) {
        const json_t *way = json_array_get(json_object_get(trials, "ways"), i);
        assert_true(number_of(way, "step_j") > 0);
    }
    assert_false(isnan(number_of(json_object_get(trials, "saved"), "energy")));
    json_decref(line);
}

/* Clocks are ways where they are asked for by name, and are given back. */
static void clocks_are_ways_if_requested(void **state)
{
    (void)state;
    struct world world = world_begin("");
    check_ranks(2, 0, "auto: tries sequential, ", "@/tensor.yaml -o @/own --auto=0.1");
    assert_true(access(world.log, F_OK) != 0); /* the driver was not asked */
    check_ranks(2, 0, "sequential+clocks point ",
                "@/tensor.yaml -o @/locked --auto=0.1 --require-clocks");
    json_t *line = line_with("locked", "clocks");
    assert_true(json_is_false(json_object_get(json_object_get(line, "clocks"), "refused")));
    json_decref(line);
    for (int gpu = 0; gpu < 2; gpu++)
        assert_int_equal(lock_of(&world, gpu), 0);
    world_end(&world);
    /* Where they are refused they are no ways. */
    setenv("ERGON_NVML", "/nonexistent", 1);
    check_ranks(2, 0, "auto: tries sequential, nanobatching for",
                "@/tensor.yaml -o @/refused --auto=0.1 --lock-clocks");
    check_ranks(2, 4, "clocks of the plan",
                "@/tensor.yaml -o @/required --auto=0.1 --require-clocks");
}

static int make_jobs(void **state)
{
    if (make_job(state) != 0)
        return -1;
    write_text("tensor.yaml", tensor_job);
    write_text("open.yaml", open_job);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_measured_way_runs),
        cmocka_unit_test(four_ranks_find_their_way),
        cmocka_unit_test(choices_survive_a_stop),
        cmocka_unit_test(bits_are_those_of_a_plain_run),
        cmocka_unit_test(keys_of_the_job_stay),
        cmocka_unit_test(impossible_choices_are_named),
        cmocka_unit_test(it_is_said_beforehand),
        cmocka_unit_test(energy_is_measured_with_a_counter),
        cmocka_unit_test(clocks_are_ways_if_requested),
    };
    return cmocka_run_group_tests(tests, make_jobs, remove_folder);
}
