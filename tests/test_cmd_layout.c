/* ergon layout: its document, its tables, its files and its refusals. */
#include "commands.h"
#include "json_file.h"

#include <stdlib.h>
#include <unistd.h>

#define JOB "'" ERGON_TEST_SOURCE_DIR "/examples/kwai/llama-65b.yaml'"
#define SMALL "'" ERGON_TEST_SOURCE_DIR "/examples/kwai/llama2-7b.yaml'"
#define SMALLER SMALL " --recompute none --batch 8"
#define A100S                                                                                      \
    "--engine megatron-a100 --cluster '" ERGON_TEST_SOURCE_DIR                                     \
    "/data/clusters/2x8-a100-sxm4-40gb.yaml' --sequence 2048 --batch 48"
#define ON_A100 SMALL " " A100S
/* The best of all: in order, within memory, with GPUs and batch as asked, and adding up. */
static void test_document(void **state)
{
    (void)state;
    json_t *document =
        run_json("layout " JOB " --gpus 64 --sequence 4096 --batch 256 --top 7 --json", 0);
    const json_t *layouts = json_object_get(document, "layouts"),
                 *tried = json_object_get(document, "tried");
    assert_int_equal(number(document, "schema_version"), 1);
    assert_int_equal(json_array_size(layouts), 7);
    assert_near(number(tried, "evaluated"),
                number(tried, "feasible") + number(tried, "slower") + number(tried, "memory") +
                    number(tried, "host_memory"),
                0);
    double before = 0, budget = number(document, "memory_budget_bytes");
    for (size_t i = 0; i < 7; i++) {
        const json_t *layout = json_array_get(layouts, i), *item;
        const char *name;
        double sum = 0;
        json_object_foreach(json_object_get(layout, "time_items_s"), name, item) sum +=
            json_number_value(item);
        assert_close(sum, number(layout, "time_s"), 1e-9);
        assert_near(number(layout, "t") * number(layout, "c") * number(layout, "p") *
                        number(layout, "d"),
                    64, 0);
        assert_near(number(layout, "microbatch") * number(layout, "microbatches") *
                        number(layout, "d"),
                    256, 0);
        assert_close(number(layout, "tokens_per_s"), 256 * 4096 / number(layout, "time_s"), 1e-9);
        assert_true(number(layout, "peak_bytes") <= (1 + 1e-9) * budget);
        sum = 0;
        json_object_foreach(json_object_get(layout, "energy_items_j"), name, item) sum +=
            json_number_value(item);
        assert_close(sum, number(layout, "energy_j"), 1e-9);
        assert_close(number(layout, "gpu_power_w"),
                     number(layout, "energy_j") / number(layout, "time_s") / 64, 1e-6);
        assert_true(number(layout, "time_s") >= before);
        before = number(layout, "time_s");
    }
    json_decref(document);
}

/* One of the published iterations: 256 GPUs, 233981 tokens/s at an offload ratio of 0.355. */
static void test_one_layout(void **state)
{
    (void)state;
    json_t *document = run_json("layout " JOB " --sequence 4096 --recompute none "
                                "--memory-budget 64GiB --layout t=2,p=8,l=2 --json",
                                0);
    const json_t *layout = json_array_get(json_object_get(document, "layouts"), 0);
    assert_int_equal(json_array_size(json_object_get(document, "layouts")), 1);
    assert_close(number(layout, "tokens_per_s"), 233981, 0.03);
    assert_near(number(layout, "offload"), 0.355, 0.02);
    assert_int_equal(number(layout, "d"), 16);
    assert_true(json_is_integer(json_object_get(layout, "peak_bytes")));
    json_decref(document);
}

static void check_output(const char *arguments, int exit_code, const char *expected)
{
    struct program_result result = run_program(arguments);
    if (result.exit_code != exit_code || !strstr(result.out.data, expected))
        fail_msg("ergon %s: exit %d, expected %d with \"%s\", got\n%s", arguments, result.exit_code,
                 exit_code, expected, result.out.data);
    erg_text_release(&result.out);
}

static void test_tables(void **state)
{
    (void)state;
    check_output("layout " JOB " --top 3", 0, "times of the engine megatron-kwai-h800");
    check_output("layout " JOB " --top 3", 0,
                 "energy by the model of H800-SXM-80GB: the H100-SXM, itself derived from");
    check_output("layout " JOB " --why t=8,p=4,l=2 --recompute balanced", 0,
                 "slower than the fastest");
    check_output("layout " JOB " --layout t=2,c=2,p=8,l=2", 0, "where the time goes");
    check_output("layout " JOB " --layout t=2,c=2,p=8,l=2", 0, "where the energy goes");
    check_output("layout " JOB " --why t=8,p=4,l=2", 0, "where the bytes of stage 0 go");
    /* One that does not fit is explained, too, and what binds is named. */
    check_output("layout " JOB " --gpus 64 --why t=1,p=4,l=2 2>/dev/null", 3, "does not fit");
    check_output("layout " JOB " --gpus 64 --why t=1,p=4,l=2 2>/dev/null", 3,
                 "where the energy goes");
    check_output("layout " JOB " --gpus 64 --why t=1,p=4,l=2 2>&1 >/dev/null", 3,
                 "more than the 72.0 GiB of a GPU with any offloading; most of "
                 "stage 3 is gradients (61.3 GiB), which data parallel ranks do not shard "
                 "(fsdp=N does); it fits with tensor 2");
    check_output("layout " JOB " --layout t=2,c=2,p=8,l=2 --export megatron", 0,
                 "--pipeline-model-parallel-size 8");
    check_output("layout " JOB " --export torchtitan", 0, "[parallelism]");
}

/* Layouts that differ in nothing but the layers of their chunks are told apart: where some differ,
 * each row ends with its own, runs of equal ones as one. */
static void test_layers_of_chunks(void **state)
{
    (void)state;
    static const char asked[] = "layout " JOB " --gpus 56 --batch 252 --top 3";
    struct program_result result = run_program(asked);
    json_t *document = run_json("layout " JOB " --gpus 56 --batch 252 --top 3 --json", 0), *layout;
    const char *row = strstr(result.out.data, "  layers\n");
    size_t i;
    assert_non_null(row);
    row += strlen("  layers\n");
    json_array_foreach(json_object_get(document, "layouts"), i, layout)
    {
        const json_t *layers = json_object_get(layout, "layers");
        const char *end = strchr(row, '\n'), *at = end;
        size_t given = 0;
        assert_true(json_array_size(layers) > 7);
        while (at[-1] != ' ' || at[-2] != ' ')
            at--;
        for (char *next; at < end; at = next) {
            long run = 1, own = strtol(at, &next, 10);
            if (strncmp(next, "×", strlen("×")) == 0) {
                run = own;
                own = strtol(next + strlen("×"), &next, 10);
                assert_true(run > 1);
            }
            for (; run > 0; run--)
                assert_int_equal(json_integer_value(json_array_get(layers, given++)), own);
        }
        assert_int_equal(given, json_array_size(layers));
        row = end + 1;
    }
    json_decref(document);
    erg_text_release(&result.out);
    result = run_program("layout " JOB " --gpus 64 --top 3");
    assert_null(strstr(result.out.data, "  layers\n"));
    erg_text_release(&result.out);
}

/* What is first does not depend on how many are shown. */
static void test_fewer_are_the_first_of_more(void **state)
{
    (void)state;
    static const char
        few[] = "layout " JOB
                " --gpus 96 --batch 256 --batch-slack 0.0625 --sequence 4096 --top 3 --json",
        many[] = "layout " JOB
                 " --gpus 96 --batch 256 --batch-slack 0.0625 --sequence 4096 --top 60 --json";
    json_t *fewer = run_json(few, 0), *more = run_json(many, 0), *layout;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(fewer, "layouts")), 3);
    assert_int_equal(json_array_size(json_object_get(more, "layouts")), 60);
    json_array_foreach(json_object_get(fewer, "layouts"), i, layout)
        assert_close(number(layout, "time_s"),
                     number(json_array_get(json_object_get(more, "layouts"), i), "time_s"), 1e-12);
    json_decref(fewer);
    json_decref(more);
}

/* A page draws every layout of which it says how many fit, also where refining those that are
 * kept finds splits of some that had equal stages only. */
static void test_all_that_fit_are_drawn(void **state)
{
    (void)state;
    char text[400];
    snprintf(text, sizeof text,
             "layout " SMALL " --gpus 4 --batch 12 --sequence 2048 --memory-budget 40e9 "
             "--deadline 1000 -o %s",
             folder);
    check_output(text, 0, "were planned over clocks");
    snprintf(text, sizeof text, "%s/layouts.json", folder);
    struct erg_error err;
    json_t *document = NULL;
    assert_ok(load_json(&document, text, &err), &err);
    const json_t *drawn = json_object_get(json_object_get(document, "points"), "time_s");
    const double fit = number(json_object_get(document, "planned"), "fitting");
    assert_true(fit > 100);
    assert_near(json_array_size(drawn), fit, 0);
    assert_near(number(json_object_get(document, "tried"), "feasible"), fit, 0);
    json_decref(document);
}

/* The job with the best layout is one that other commands take. */
static void test_files(void **state)
{
    (void)state;
    char command[400], path[200];
    snprintf(command, sizeof command, "layout " SMALLER " --top 3 -o %s", folder);
    check_output(command, 0, "the best as a job");
    snprintf(command, sizeof command, "memory %s/job.yaml", folder);
    check_output(command, 0, "It fits");
    snprintf(path, sizeof path, "%s/plan.json", folder);
    snprintf(command, sizeof command, "show %s", path);
    check_output(command, 0, "the best layout's point for the goal");
    /* On another cluster, and on GPUs that do not fill its nodes, too. */
    snprintf(command, sizeof command, "layout " ON_A100 " --gpus 12 --top 1 -o %s", folder);
    check_output(command, 0, "on 12 A100-SXM4-40GB");
    snprintf(command, sizeof command, "layout %s/job.yaml --engine megatron-a100 --top 1", folder);
    check_output(command, 0, "on 12 A100-SXM4-40GB");
    static const char *const names[] = {"layouts.json", "layouts.html", "job.yaml", "plan.json"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
}

/* Seconds of one layout on a job's own cluster, by its own engine. */
static double time_of(const char *job, const char *layout)
{
    char command[300];
    snprintf(command, sizeof command, "layout %s %s --json", job, layout);
    json_t *document = run_json(command, 0);
    const double time_s = number(json_array_get(json_object_get(document, "layouts"), 0), "time_s");
    json_decref(document);
    return time_s;
}

/* Not only the best: with the engine, the batch and the part of the cluster that were asked for. */
static void test_rows_as_jobs(void **state)
{
    (void)state;
    const char asked[] =
        "'" ERGON_TEST_SOURCE_DIR "/examples/quickstart.yaml' --gpus 12 --batch 48 "
        "--engine megatron-kwai-a100";
    static const char *const rows[] = {"--layout t=2,p=3,v=3,b=2 --recompute none",
                                       "--layout t=1,p=3,b=1 --recompute norms",
                                       "--layout t=4,p=3,b=4 --recompute full"};
    char command[600];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(command, sizeof command, "layout %s %s --export job > %s/row.yaml", asked, rows[i],
                 folder);
        check_output(command, 0, "");
        snprintf(command, sizeof command, "%s/row.yaml", folder);
        assert_close(time_of(command, rows[i]), time_of(asked, rows[i]), 1e-9);
        snprintf(command, sizeof command,
                 "optimize %s/row.yaml -o %s/plan --method sequential 2>&1", folder, folder);
        check_output(command, 0, "selected: sequential");
    }
    snprintf(command, sizeof command, "rm -r %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* A job of the smallest model, of which the head is as long as eight of sixteen layers. */
static void small_model(const char *path)
{
    char command[500];
    snprintf(command, sizeof command,
             "sed 's/^model: .*/model: llama-3.2-1b/; s/^vocabulary: .*//; "
             "s/^virtual_stages: .*//' " SMALL " > %s/job.yaml",
             path);
    assert_int_equal(system(command), 0);
}

/* What the table calls a layout is that layout when it is asked for: v says that chunks may differ,
 * l that they are equal. */
static void test_rows_by_name(void **state)
{
    (void)state;
    const char asked[] = SMALL " --gpus 4 --batch 8 --sequence 4096 --recompute none";
    char command[700];
    small_model(folder);
    snprintf(command, sizeof command, "%s/job.yaml%s", folder, strchr(asked, ' '));
    const double uneven_s = time_of(command, "--layout p=4,v=1"),
                 equal_s = time_of(command, "--layout p=4,l=4");
    assert_close(uneven_s, time_of(command, "--layout t=1,c=1,p=4,v=1,b=1"), 1e-9);
    assert_close(equal_s, time_of(command, "--layout p=4"), 1e-9);
    assert_true(uneven_s < 0.8 * equal_s);

    /* Where chunks must differ to fit, too: the offloading of equal ones is not enough. */
    snprintf(command, sizeof command,
             "layout " SMALL " --batch 4 --sequence 16384 --memory-budget 40GB --recompute full "
             "--layout p=4,v=4 2>&1");
    check_output(command, 0, "t=1,c=1,p=4,v=4,b=1");
    snprintf(command, sizeof command,
             "layout " SMALL " --batch 4 --sequence 16384 --memory-budget 40GB --recompute full "
             "--layout p=4,l=2 2>&1");
    check_output(command, 3, "; it fits with layers of a chunk 8");

    /* What is missing is what the split that needs least misses: as much as would be enough. */
    snprintf(command, sizeof command,
             "layout " SMALL " --batch 4 --sequence 16384 --memory-budget 30GB --recompute full "
             "--layout p=4,v=3 2>&1");
    struct program_result said = run_program(command);
    double missing, budget, needed;
    assert_int_equal(sscanf(said.out.data,
                            "ergon: --layout p=4,v=3: needs %lf GiB more than the %lf GiB",
                            &missing, &budget),
                     2);
    assert_non_null(strstr(said.out.data, "as it is with "));
    assert_int_equal(
        sscanf(strstr(said.out.data, "as it is with "), "as it is with %lf GiB", &needed), 1);
    assert_near(budget + missing, needed, 0.25);
    erg_text_release(&said.out);
    snprintf(command, sizeof command, "rm -r %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* No layout is better by more than the tolerance when it is asked for alone: also where an
 * iteration has two instructions, whose plans are far apart. */
static void test_answers_and_layouts_alone(void **state)
{
    (void)state;
    char asked[700];
    snprintf(asked, sizeof asked,
             "%s/job.yaml --gpus 4 --batch 8 --sequence 4096 --power-budget 1800", folder);
    small_model(folder);
    const double best_s = time_of(asked, "");
    assert_true(time_of(asked, "--layout t=2,b=4 --recompute none") > 0.997 * best_s);
    assert_true(time_of(asked, "--layout t=2,b=4 --recompute norms") > 0.997 * best_s);
    snprintf(asked, sizeof asked, "rm -r %s/*", folder);
    assert_int_equal(system(asked), 0);
}

/* Each layout that is listed is what it is when it is asked for alone: also where most of them are
 * solved for the frontier over layouts only. */
static void test_listed_layouts_match_single_queries(void **state)
{
    (void)state;
    static const struct {
        const char *option, *key;
    } cases[] = {{"--deadline 6.5", "energy_j"}, {"--energy-budget 27000", "time_s"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[400];
        snprintf(command, sizeof command, "layout " SMALL " --gpus 8 --batch 32 %s --json -o %s",
                 cases[i].option, folder);
        json_t *document = run_json(command, 0), *listed;
        size_t k;
        assert_true(json_array_size(json_object_get(document, "layouts")) > 1);
        json_array_foreach(json_object_get(document, "layouts"), k, listed)
        {
            snprintf(command, sizeof command,
                     "layout " SMALL " --gpus 8 --batch 32 %s --json --recompute %s "
                     "--layout t=%.0f,c=%.0f,p=%.0f,v=%.0f,b=%.0f",
                     cases[i].option, json_string_value(json_object_get(listed, "recompute")),
                     number(listed, "t"), number(listed, "c"), number(listed, "p"),
                     number(listed, "v"), number(listed, "microbatch"));
            json_t *alone = run_json(command, 0);
            assert_close(number(json_array_get(json_object_get(alone, "layouts"), 0), cases[i].key),
                         number(listed, cases[i].key), 1e-3);
            json_decref(alone);
        }
        json_decref(document);
    }
    char command[100];
    snprintf(command, sizeof command, "rm -r %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* A file beside the job or in the current folder is found from anywhere. */
static void test_files_of_jobs(void **state)
{
    (void)state;
    char command[900], here[300];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(command, sizeof command,
             "sed 's/^name: .*/name: Own/' '%s/data/gpus/a100-sxm4-80gb.yaml' > %s/own.yaml && "
             "sed 's/^name: .*/name: own/' '%s/data/engines/megatron-kwai-a100.yaml' > "
             "%s/engine.yaml && sed 's/gpu: [^ ]*/gpu: own.yaml/' '%s/examples/quickstart.yaml' > "
             "%s/job.yaml && mkdir %s/far",
             ERGON_TEST_SOURCE_DIR, folder, ERGON_TEST_SOURCE_DIR, folder, ERGON_TEST_SOURCE_DIR,
             folder, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(chdir(folder), 0);
    check_output("plan job.yaml --engine engine.yaml --layout t=2,p=2,b=2 --recompute none "
                 "--export job > far/row.yaml",
                 0, "");
    assert_int_equal(chdir("far"), 0);
    check_output("plan row.yaml --layout t=2,p=2,b=2", 0, "times of the engine own");
    assert_int_equal(chdir(here), 0);
    snprintf(command, sizeof command, "rm -r %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* From the plan of layouts to the plan of clocks and overlap, whatever is recomputed or offloaded.
 */
static void check_way(const char *arguments, const char *recompute, const char *method,
                      const char *expected)
{
    char command[400], path[200];
    snprintf(command, sizeof command, "layout " SMALL " --sequence 2048 --batch 8 --top 1 %s -o %s",
             arguments, folder);
    check_output(command, 0, "the best as a job");
    snprintf(command, sizeof command, "optimize %s/job.yaml -o %s/plan --method %s 2>&1", folder,
             folder, method);
    check_output(command, 0, expected);
    snprintf(path, sizeof path, "%s/plan/plan.json", folder);
    struct erg_error err;
    json_t *plan = NULL;
    assert_ok(load_json(&plan, path, &err), &err);
    const json_t *job = json_object_get(plan, "job");
    assert_string_equal(json_string_value(json_object_get(job, "recompute")), recompute);
    json_decref(plan);
    snprintf(command, sizeof command, "rm -r %s/*", folder);
    assert_int_equal(system(command), 0);
}

static void test_a_plan_is_a_job_of_optimize(void **state)
{
    (void)state;
    check_way("--recompute balanced", "balanced", "ergon", "selected: ergon");
    check_way("--recompute full", "full", "sequential+clocks", "selected: sequential+clocks");
    check_way("--recompute none --memory-budget 34e9", "none", "sequential+clocks",
              "copies to host memory slow compute by the engine megatron-kwai-h800");
    check_way("--per-stage --memory-budget 33.2e9 --gpus 4", "balanced", "sequential+clocks",
              "selected: sequential+clocks");
}

/* Each stage recomputes and offloads what is best for it: no slower than all the same, and other
 * commands read of the job what each does. */
static void test_stages_of_their_own(void **state)
{
    (void)state;
    json_t *same =
        run_json("layout " JOB " --gpus 48 --batch 32 --memory-budget 4.4e10 --top 1 --json", 0);
    char command[400];
    snprintf(command, sizeof command,
             "layout " JOB
             " --gpus 48 --batch 32 --memory-budget 4.4e10 --per-stage --top 1 --json -o %s",
             folder);
    json_t *own = run_json(command, 0);
    const json_t *best = json_array_get(json_object_get(own, "layouts"), 0), *stage;
    const json_t *all = json_array_get(json_object_get(same, "layouts"), 0);
    const json_t *stages = json_object_get(best, "stages");
    double most = 0, peak = 0;
    size_t i;
    assert_true(number(json_object_get(best, "highest_clock"), "time_s") < number(all, "time_s"));
    assert_string_equal(json_string_value(json_object_get(best, "recompute")), "stages");
    assert_int_equal(json_array_size(stages), number(best, "p"));
    json_array_foreach(stages, i, stage)
    {
        double sum = 0;
        const json_t *item;
        const char *name;
        json_object_foreach(json_object_get(stage, "items"), name, item) sum +=
            json_number_value(item);
        assert_close(sum, number(stage, "peak_bytes"), 1e-9);
        most = fmax(most, number(stage, "offload"));
        peak = fmax(peak, number(stage, "peak_bytes"));
    }
    assert_near(most, number(best, "offload"), 0);
    assert_close(peak, number(best, "peak_bytes"), 1e-9);
    json_decref(own);
    json_decref(same);
    snprintf(command, sizeof command, "memory %s/job.yaml", folder);
    check_output(command, 0, "recompute stages, offload 0.");
    check_output(command, 0, "It fits");
    snprintf(command, sizeof command,
             "optimize %s/job.yaml -o %s/plan --method sequential+clocks 2>&1", folder, folder);
    check_output(command, 0, "selected: sequential+clocks");
    snprintf(command, sizeof command, "rm -r %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* To the byte: of stages that share a budget each may need the last of it. */
static void test_a_layout_needs_what_its_stages_need(void **state)
{
    (void)state;
    json_t *document = run_json("layout " SMALL " --per-stage --top 40 --json", 0);
    const json_t *layout, *stage;
    size_t i, s;
    assert_int_equal(json_array_size(json_object_get(document, "layouts")), 40);
    json_array_foreach(json_object_get(document, "layouts"), i, layout)
    {
        double peak = 0;
        json_array_foreach(json_object_get(layout, "stages"), s, stage) peak =
            fmax(peak, number(stage, "peak_bytes"));
        assert_near(peak, number(layout, "peak_bytes"), 0);
    }
    json_decref(document);
}

/* ---- over clocks ---- */

/* The same layouts, sooner or with less energy, as asked; every number follows from the others. */
static void test_objectives(void **state)
{
    (void)state;
    static const char *const questions[] = {
        "--objective fastest",
        "--objective least_energy",
        "--deadline 3.4",
        "--energy-budget 6e3",
        "--power-budget 2000 --objective least_energy",
    };
    double energy_j[5], time_s[5];
    for (size_t i = 0; i < 5; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "layout " SMALLER " %s --json", questions[i]);
        json_t *document = run_json(arguments, 0);
        const json_t *best = json_array_get(json_object_get(document, "layouts"), 0);
        const json_t *planned = json_object_get(document, "planned"), *point;
        time_s[i] = number(best, "time_s");
        energy_j[i] = number(best, "energy_j");
        assert_close(number(best, "gpu_power_w"), energy_j[i] / time_s[i] / 4, 1e-9);
        assert_close(number(best, "gpu_hours"), 4 * time_s[i] / 3600, 1e-9);
        assert_true(number(planned, "gap") <= 0.003);
        assert_true(number(planned, "solved") < 25 && number(planned, "fitting") > 30);
        /* The answer is a point of its layout's frontier, which falls. */
        const json_t *frontier = json_object_get(best, "frontier");
        double before_j = INFINITY;
        bool found = false;
        size_t k;
        json_array_foreach(frontier, k, point)
        {
            assert_true(number(point, "energy_j") < before_j);
            assert_true(number(point, "lowest_mhz") < number(point, "forward_mhz") + 1e-6);
            assert_true(number(point, "backward_mhz") < number(point, "highest_mhz") + 1e-6);
            before_j = number(point, "energy_j");
            found |= number(point, "time_s") == time_s[i] && before_j == energy_j[i];
        }
        assert_true(found && k > 5);
        assert_true(json_array_size(json_object_get(document, "frontier")) >= k / 2);
        json_decref(document);
    }
    /* No time is lost at the fastest, and what is not needed at full clock saves energy. */
    assert_close(time_s[0], 3.018, 0.01);
    assert_true(energy_j[1] < 0.85 * energy_j[0] && time_s[1] > 1.2 * time_s[0]);
    assert_true(time_s[2] <= 3.4 && time_s[2] > 3.35 && energy_j[2] < energy_j[0]);
    assert_true(energy_j[3] <= 6e3 && time_s[3] < time_s[1]);
    assert_true(energy_j[4] / time_s[4] <= 2000.000001);
}

static void test_objectives_as_text(void **state)
{
    (void)state;
    check_output("layout " SMALLER " --deadline 3.4", 0, "the least energy within 3.4 s");
    check_output("layout " SMALLER " --deadline 3.4", 0, "planned over clocks; no other");
    check_output("layout " SMALLER " --layout t=2,p=1 --objective least_energy", 0, "the answer");
    check_output("layout " SMALLER " --deadline 2 2>&1", 3,
                 "within a deadline of 2 s: the nearest");
    check_output("layout " SMALLER " --power-budget 600 2>&1", 3, "a mean power of 600 W");
    check_output("layout " SMALLER " --objective cheapest 2>&1", 2, "least_energy");
}

/* How many GPUs: a row for each number, and the answer among all of them. */
static void test_numbers_of_gpus(void **state)
{
    (void)state;
    json_t *document =
        run_json("layout " ON_A100 " --gpus 4,8-16,3 --deadline 4 --recompute none --json", 0);
    static const int gpus[] = {3, 4, 8, 16};
    const json_t *counts = json_object_get(document, "counts");
    const json_t *best = json_array_get(json_object_get(document, "layouts"), 0);
    size_t on_frontier = 0;
    assert_int_equal(json_array_size(counts), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *count = json_array_get(counts, i);
        assert_int_equal(number(count, "gpus"), gpus[i]);
        bool fits = json_is_true(json_object_get(count, "fits"));
        assert_int_equal(fits, gpus[i] != 3); /* too little memory */
        if (!fits)
            continue;
        assert_int_equal(number(json_object_get(count, "fastest"), "gpus"), gpus[i]);
        assert_int_equal(json_object_get(count, "missed") != NULL,
                         number(json_object_get(count, "fastest"), "time_s") > 4);
        on_frontier += json_is_true(json_object_get(count, "on_frontier"));
    }
    assert_true(on_frontier >= 2);
    assert_true(number(best, "time_s") <= 4);
    assert_true(number(best, "gpus") < 16); /* fewer need less energy */
    json_decref(document);
    check_output("layout " SMALLER " --gpus any", 0, "fewest GPU-hours: 4 GPUs");
    check_output("layout " SMALLER " --gpus any", 0, "2             nothing fits");
    check_output("layout " SMALLER " --gpus any", 0, " kJ\nleast energy: 4 GPUs");
    /* All that two GPUs can do is too late, and what is too late is not the cheapest. */
    static const char late[] = "layout " SMALL " --gpus 2,4 --deadline 8 --recompute full";
    check_output(late, 0, "misses the deadline\n4 ");
    check_output(late, 0, "fewest GPU-hours: 4 GPUs");
    check_output("layout " SMALLER " --gpus 4-2 2>&1", 2, "expected numbers from 1 to ten million");
    check_output("layout " SMALLER " --gpus 5-7 2>&1", 2, "contains no multiple of the");
    check_output("layout " SMALLER " --gpus 16 2>&1", 1, "inter_node_bandwidth_gb_s");
    check_output("layout " SMALLER " --gpus 2,4 --why t=2 2>&1", 2, "need one");
}

/* What a refusal says is needed is enough when it is asked for. */
static void test_the_stated_memory_suffices(void **state)
{
    (void)state;
    static const struct {
        const char *option, *unit;
        double too_little;
    } cases[] = {
        {"--deadline", " s", 2}, {"--energy-budget", " J", 100}, {"--power-budget", " W", 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[300];
        snprintf(command, sizeof command, "layout " SMALLER " %s %g 2>&1", cases[i].option,
                 cases[i].too_little);
        struct program_result result = run_program(command);
        const char *needed = strstr(result.out.data, ", needs ");
        assert_int_equal(result.exit_code, 3);
        assert_non_null(needed);
        char *end;
        const double value = strtod(needed + strlen(", needs "), &end);
        assert_int_equal(strncmp(end, cases[i].unit, 2), 0);
        snprintf(command, sizeof command, "layout " SMALLER " %s %.6g", cases[i].option, value);
        check_output(command, 0, "tokens/s");
        erg_text_release(&result.out);
    }
}

/* Where no bound alone is enough, those that are said are, together. */
static void test_needs_under_all_bounds(void **state)
{
    (void)state;
    struct program_result result =
        run_program("layout " SMALLER " --deadline 2 --power-budget 10 2>&1");
    const char *needed = strstr(result.out.data, "alone is not enough; t=");
    double time_s, power_w;
    assert_int_equal(result.exit_code, 3);
    assert_non_null(needed);
    needed = strstr(needed, "needs ");
    assert_non_null(needed);
    assert_int_equal(sscanf(needed, "needs %lf s and %lf W", &time_s, &power_w), 2);
    char command[300];
    snprintf(command, sizeof command, "layout " SMALLER " --deadline %.6g --power-budget %.6g",
             time_s, power_w);
    check_output(command, 0, "tokens/s");
    erg_text_release(&result.out);
}

/* What nothing fits or keeps is a document, too, with the words that people are told. */
static void test_refusals_as_documents(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *reason, *would_fit;
    } cases[] = {
        {SMALL " --gpus 1", "; something fits with 119.89 GiB a GPU", "gpus"},
        {JOB " --gpus 64 --layout t=1,p=4,l=2", "of a GPU with any offloading", "layout"},
        {JOB " --gpus 64 --layout t=1,p=4,l=2", "or as it is with ", "memory_bytes"},
        {SMALL " --gpus 4 --batch 3 --layout p=4,v=2",
         "a batch of 3 sequences is not a multiple of data 1 x microbatch 1 x pipeline 4, as "
         "interleaving needs",
         "layout"},
        {SMALLER " --deadline 2", "within a deadline of 2 s: the nearest", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[300], said[300];
        snprintf(arguments, sizeof arguments, "layout %s --json 2>/dev/null", cases[i].arguments);
        json_t *document = run_json(arguments, 3);
        const json_t *would_fit = json_object_get(document, "would_fit");
        snprintf(said, sizeof said, "layout %s 2>&1 >/dev/null", cases[i].arguments);
        const char *reason = json_string_value(json_object_get(document, "reason"));
        assert_non_null(strstr(reason, cases[i].reason));
        check_output(said, 3, reason);
        assert_true(json_is_false(json_object_get(document, "fits")));
        assert_int_equal(json_array_size(json_object_get(document, "layouts")), 0);
        assert_true(cases[i].would_fit ? json_object_get(would_fit, cases[i].would_fit) != NULL
                                       : !would_fit);
        json_decref(document);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    check_output("layout '" ERGON_TEST_SOURCE_DIR "/examples/quickstart.yaml' 2>&1", 2,
                 "missing key 'engine'");
    check_output("layout " JOB " --engine megatron-h801 2>&1", 1, "did you mean");
    check_output(
        "layout " JOB " --cluster '" ERGON_TEST_SOURCE_DIR
        "/data/clusters/64x8-a100-sxm4-80gb.yaml' 2>&1",
        1,
        "the engine 'megatron-kwai-h800' is of a GPU with a peak of 989 TFLOP/s, but "
        "A100-SXM4-80GB has 312; expected another one with --engine NAME or the nodes' key "
        "engine, of the catalogue for example: megatron-a100, megatron-kwai-a100");
    check_output("layout " JOB " --layout t=3 2>&1", 3, "--layout t=3");
    check_output("layout " JOB " --layout t=16,p=8 2>&1", 3,
                 "more than the 8 of a node; it fits with tensor ");
    check_output("layout " JOB " --layout p=7,l=3 2>&1", 3,
                 "with v instead of l stages may differ");
    check_output("layout " JOB " --layout x=3 2>&1", 2, "is invalid at 'x=3'");
    check_output("layout " JOB " --layout t=1,p=4,l=20 2>&1", 3, "--layout t=1,p=4,l=20");
    check_output("layout " JOB " --layout t=1,p=4,l=20 2>&1", 3, "; it fits with tensor ");
    check_output("layout " JOB " --why t=1,p=4,l=20 2>&1", 3, "or as it is with ");
    check_output("layout " SMALL " --gpus 1 2>&1", 3, "; something fits with ");
    /* All is offloaded and 0.1 GiB missing, as ergon memory says. */
    check_output("layout " JOB " --gpus 96 --batch 240 --layout t=2,c=1,p=4,v=4,b=1 "
                 "--recompute activation 2>&1",
                 3, "GiB more than the 72.0 GiB of a GPU with any offloading");
    check_output("layout " JOB " --memory-budget 60gb 2>&1", 2, "a number of bytes like");
    check_output("layout " JOB " --layout t=2 --why t=4 2>&1", 2, "expected one of them");
    check_output("layout " JOB " --layout t=2 --fsdp 2>&1", 2,
                 "expected one of them (a layout sets fsdp=N)");
    check_output("layout " JOB " --planner arena --fsdp 2>&1", 2, "--planner arena plans time");
    check_output("layout " JOB " --why t=4 --json 2>&1", 2, "--why prints text for people");
    check_output("layout " JOB " --why t=4 --deadline 9 2>&1", 2, "at the highest clock");
    check_output("layout " JOB " --layout t=4 -o /nowhere 2>&1", 2, "--output writes all layouts");
    check_output("layout " JOB " --export megatron --json 2>&1", 2, "expected one of them");
    check_output("layout " JOB " --export profile --deadline 9 2>&1", 2, "whole frontiers");
    check_output("layout " JOB " --gpus 1 --batch 4 2>&1", 3, "GiB");
    check_output("layout " JOB " --batch-slack 2 2>&1", 2, "batch-slack");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_one_layout),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_layers_of_chunks),
        cmocka_unit_test(test_fewer_are_the_first_of_more),
        cmocka_unit_test(test_all_that_fit_are_drawn),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_rows_as_jobs),
        cmocka_unit_test(test_rows_by_name),
        cmocka_unit_test(test_answers_and_layouts_alone),
        cmocka_unit_test(test_listed_layouts_match_single_queries),
        cmocka_unit_test(test_the_stated_memory_suffices),
        cmocka_unit_test(test_needs_under_all_bounds),
        cmocka_unit_test(test_files_of_jobs),
        cmocka_unit_test(test_refusals_as_documents),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_a_plan_is_a_job_of_optimize),
        cmocka_unit_test(test_objectives),
        cmocka_unit_test(test_objectives_as_text),
        cmocka_unit_test(test_numbers_of_gpus),
        cmocka_unit_test(test_stages_of_their_own),
        cmocka_unit_test(test_a_layout_needs_what_its_stages_need),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
