/* Questions of ergon/ask.h about jobs and clusters, through the public headers: their numbers are
 * those of the other doors, and a refusal is an answer where something was found. */
#include "check.h"
#include "folder.h"

#include <ergon/ergon.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define EXAMPLES ERGON_TEST_SOURCE_DIR "/examples/"

static const char kwai_job[] = EXAMPLES "kwai/llama2-7b.yaml";
static const char quick_job[] = EXAMPLES "quickstart.yaml";

static json_t *document_of(const struct erg_answer *answer)
{
    json_t *root = json_loads(erg_answer_json(answer), 0, NULL);
    assert_non_null(root);
    return root;
}

static double number_in(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("the key %s has no number", key);
    return json_number_value(value);
}

/* ---- layouts ---- */

static void layouts_are_those_of_the_search(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    struct erg_job *job;
    struct erg_layouts *layouts;
    struct erg_layouts_options options = {.size = sizeof options, .gpus = "8", .top = 3};
    struct erg_layouts_row row = {.size = sizeof row};
    const struct erg_ask_layouts question = {
        .size = sizeof question, .job = kwai_job, .options = &options};
    assert_ok(erg_ask_layouts(&answer, &question, &err), &err);
    assert_ok(erg_answer_check(answer, &err), &err);
    json_t *root = document_of(answer);
    const json_t *rows = json_object_get(root, "layouts");
    assert_int_equal(json_array_size(rows), 3);
    assert_ok(erg_job_open(&job, kwai_job, &err), &err);
    assert_ok(erg_layouts_find(&layouts, job, &options, &err), &err);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(erg_layouts_row(layouts, i, &row, &err), &err);
        assert_close(number_in(json_array_get(rows, i), "time_s"), row.time_s, 1e-12);
        assert_non_null(strstr(erg_answer_text(answer), row.name));
    }
    assert_null(erg_answer_csv(answer));
    json_decref(root);
    erg_layouts_free(layouts);
    erg_job_free(job);
    erg_answer_free(answer);
}

static void exports_and_comparisons_are_text_alone(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    struct erg_job *job;
    struct erg_job_info info = {.size = sizeof info};
    const struct erg_layouts_options options = {
        .size = sizeof options, .gpus = "8", .layout = "t=2,p=2"};
    const struct erg_layouts_options eight = {.size = sizeof eight, .gpus = "8"};
    struct erg_ask_layouts question = {
        .size = sizeof question, .job = kwai_job, .options = &options, .export_as = "job"};
    assert_ok(erg_ask_layouts(&answer, &question, &err), &err);
    assert_null(erg_answer_json(answer));
    const char *text = erg_answer_text(answer);
    assert_ok(erg_job_open_text(&job, kwai_job, text, strlen(text), &err), &err);
    assert_ok(erg_job_info(job, &info, &err), &err);
    assert_int_equal(info.tensor, 2);
    assert_int_equal(info.pipeline, 2);
    assert_int_equal(info.data, 2);
    erg_job_free(job);
    erg_answer_free(answer);

    question.export_as = NULL;
    question.options = &eight;
    question.why = "t=8";
    assert_ok(erg_ask_layouts(&answer, &question, &err), &err);
    assert_null(erg_answer_json(answer));
    assert_non_null(strstr(erg_answer_text(answer), " % slower than the fastest.\n"));
    assert_ok(erg_answer_check(answer, &err), &err);
    erg_answer_free(answer);
}

static void nothing_that_fits_is_an_answer(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    const struct erg_layouts_options options = {
        .size = sizeof options, .gpus = "8", .memory_bytes = 1e9};
    struct erg_ask_layouts question = {
        .size = sizeof question, .job = kwai_job, .options = &options};
    assert_ok(erg_ask_layouts(&answer, &question, &err), &err);
    assert_string_equal(erg_answer_text(answer), "");
    assert_fails(erg_answer_check(answer, &err), &err, "something fits");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    json_t *root = document_of(answer);
    assert_string_equal(json_string_value(json_object_get(root, "reason")), err.message);
    json_decref(root);
    erg_answer_free(answer);
}

static void layouts_refuse_what_does_not_go_together(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    struct erg_layouts_options options = {.size = sizeof options, .layout = "t=2"};
    struct erg_ask_layouts question = {
        .size = sizeof question, .job = kwai_job, .options = &options, .why = "t=4"};
    assert_fails(erg_ask_layouts(&answer, &question, &err), &err, "--layout and --why");
    assert_int_equal(err.status, ERG_USAGE);
    options.layout = NULL;
    question.export_as = "torchtitan";
    assert_fails(erg_ask_layouts(&answer, &question, &err), &err, "text for people");
    question.why = NULL;
    question.export_as = "torchtitans";
    assert_fails(erg_ask_layouts(&answer, &question, &err), &err, "did you mean 'torchtitan'");
    question.export_as = NULL;
    question.planner = "arena";
    question.slots = 1;
    assert_fails(erg_ask_layouts(&answer, &question, &err), &err, "--slots places one layout");
    question = (struct erg_ask_layouts){.size = sizeof question};
    assert_fails(erg_ask_layouts(&answer, &question, &err), &err, "expected a job");
    question.size = 4;
    assert_fails(erg_ask_layouts(&answer, &question, &err), &err, "size");
}

/* ---- memory ---- */

/* As published for LLaMA-65B: tests/test_cmd_memory.c. */
static void memory_has_the_published_peak(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    const double half = 0.5;
    const struct erg_memory_options options = {.size = sizeof options,
                                               .gpus = 256,
                                               .batch = 256,
                                               .layout = "t=2,c=2,p=8,l=2",
                                               .accounting = "framework"};
    char page[4096];
    snprintf(page, sizeof page, "%s", in_folder("memory.html"));
    const struct erg_ask_memory question = {.size = sizeof question,
                                            .job = EXAMPLES "kwai/llama-65b.yaml",
                                            .options = &options,
                                            .sequence = 8192,
                                            .recompute = "none",
                                            .offload = &half,
                                            .page = page};
    assert_ok(erg_ask_memory(&answer, &question, &err), &err);
    json_t *root = document_of(answer);
    assert_close(number_in(root, "peak_bytes"), 61136119808, 0.0015);
    assert_non_null(strstr(erg_answer_text(answer), "56.9"));
    FILE *file = fopen(page, "r");
    assert_non_null(file);
    fclose(file);
    json_decref(root);
    erg_answer_free(answer);
}

static void memory_that_does_not_fit_is_an_answer(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    const double none = 0, more = 1.5;
    const struct erg_memory_options options = {.size = sizeof options, .batch = 64};
    struct erg_ask_memory question = {.size = sizeof question,
                                      .job = EXAMPLES "kwai/llama-65b.yaml",
                                      .options = &options,
                                      .recompute = "none",
                                      .offload = &none};
    assert_ok(erg_ask_memory(&answer, &question, &err), &err);
    json_t *root = document_of(answer);
    assert_true(json_is_false(json_object_get(root, "fits")));
    assert_fails(erg_answer_check(answer, &err), &err, "GiB more than");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    json_decref(root);
    erg_answer_free(answer);
    question.recompute = "nothing";
    assert_fails(erg_ask_memory(&answer, &question, &err), &err, "expected one of none, norms");
    question.recompute = NULL;
    question.offload = &more;
    assert_fails(erg_ask_memory(&answer, &question, &err), &err, "expected a share from 0 to 1");
    question.job = NULL;
    assert_fails(erg_ask_memory(&answer, &question, &err), &err, "expected a job");
}

/* ---- plans ---- */

static void a_plan_is_an_answer(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer, *same;
    struct erg_plan *plan;
    struct erg_plan_info info = {.size = sizeof info};
    const uint64_t seed = 3;
    char output[4096];
    snprintf(output, sizeof output, "%s", in_folder("asked"));
    struct erg_optimize_options options = {.size = sizeof options, .deadline_s = 5};
    struct erg_ask_optimize question = {.size = sizeof question,
                                        .job = quick_job,
                                        .options = &options,
                                        .microbatches = 4,
                                        .search = "random",
                                        .seed = &seed};
    assert_ok(erg_ask_optimize(&answer, &question, &err), &err);
    const char *text = erg_answer_json(answer);
    assert_ok(erg_plan_open_text(&plan, "asked", text, strlen(text), &err), &err);
    assert_ok(erg_plan_info(plan, &info, &err), &err);
    const double energy_j = info.energy_j;
    assert_int_equal(info.microbatches, 4);
    assert_true(info.time_s <= 5 && info.energy_j > 0);
    assert_non_null(strstr(erg_answer_text(answer), "selected: "));
    assert_null(strstr(erg_answer_text(answer), "plan.json"));
    erg_plan_free(plan);

    options.folder = output;
    assert_ok(erg_ask_optimize(&same, &question, &err), &err);
    assert_non_null(strstr(erg_answer_text(same), "asked/plan.json, report "));
    assert_ok(erg_plan_open(&plan, in_folder("asked/plan.json"), &err), &err);
    assert_ok(erg_plan_info(plan, &info, &err), &err);
    assert_near(info.energy_j, energy_j, 0);
    erg_plan_free(plan);
    erg_answer_free(same);
    erg_answer_free(answer);

    question.search = "luck";
    assert_fails(erg_ask_optimize(&answer, &question, &err), &err, "search got 'luck'");
    question.search = NULL;
    question.microbatches = -1;
    assert_fails(erg_ask_optimize(&answer, &question, &err), &err, "microbatches got -1");
    options.energy_j = 5;
    assert_fails(erg_ask_optimize(&answer, &question, &err), &err, "expected one of them");
    options.energy_j = 0;
    options.deadline_s = 1e-3;
    question.microbatches = 4;
    assert_fails(erg_ask_optimize(&answer, &question, &err), &err, "deadline of 0.001 s binds");
    assert_int_equal(err.status, ERG_INFEASIBLE);
}

/* ---- clusters ---- */

static struct erg_simulations_options cluster_options(void)
{
    return (struct erg_simulations_options){
        .size = sizeof(struct erg_simulations_options),
        .cluster = EXAMPLES "cluster/cluster.yaml",
        .trace = EXAMPLES "cluster/trace.csv",
        .profiles = EXAMPLES "cluster/profiles",
        .policies = "fcfs,ergon",
        .until_s = 12 * 3600,
    };
}

static void policies_are_asked_about(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    struct erg_simulations *simulations;
    struct erg_simulations_options options = cluster_options();
    const struct erg_ask_simulate question = {.size = sizeof question, .options = &options};
    assert_ok(erg_ask_simulate(&answer, &question, &err), &err);
    assert_ok(erg_simulations_run(&simulations, &options, &err), &err);
    json_t *asked = document_of(answer);
    json_t *run = json_loads(erg_simulations_json(simulations), 0, NULL);
    const json_t *policies = json_object_get(asked, "policies");
    assert_int_equal(json_array_size(policies), 2);
    for (size_t i = 0; i < 2; i++) {
        struct erg_simulations_result result = {.size = sizeof result};
        assert_ok(erg_simulations_result(simulations, i, &result, &err), &err);
        assert_close(number_in(json_array_get(policies, i), "energy_j"), result.energy_j, 1e-12);
    }
    assert_non_null(strstr(erg_answer_text(answer), "fcfs on "));
    assert_non_null(strstr(erg_answer_text(answer), "ergon on "));
    json_decref(run);
    json_decref(asked);
    erg_simulations_free(simulations);
    erg_answer_free(answer);
}

/* The second policy cannot write its files, since a file has the name of its folder. */
static void what_was_simulated_until_then_is_answered(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    struct erg_simulations_options options = cluster_options();
    const struct erg_ask_simulate question = {.size = sizeof question, .options = &options};
    char output[4096];
    snprintf(output, sizeof output, "%s", in_folder("policies"));
    assert_int_equal(mkdir(output, 0700), 0);
    write_text("policies/ergon", "");
    options.folder = output;
    assert_ok(erg_ask_simulate(&answer, &question, &err), &err);
    assert_non_null(strstr(erg_answer_text(answer), "fcfs on "));
    assert_null(erg_answer_json(answer));
    assert_fails(erg_answer_check(answer, &err), &err, "policies/ergon");
    erg_answer_free(answer);
    options = cluster_options();
    options.repair_s = 5;
    assert_fails(erg_ask_simulate(&answer, &question, &err), &err, "--repair needs --mean-failure");
    options.cluster = NULL;
    assert_fails(erg_ask_simulate(&answer, &question, &err), &err, "a simulation needs cluster");
}

static void a_sweep_is_a_script_too(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    char output[4096];
    snprintf(output, sizeof output, "%s", in_folder("swept"));
    struct erg_ask_sweep question = {.size = sizeof question,
                                     .file = EXAMPLES "cluster/sweep.yaml",
                                     .folder = output,
                                     .slurm_tasks = 2};
    assert_ok(erg_ask_sweep(&answer, &question, &err), &err);
    assert_null(erg_answer_json(answer));
    assert_non_null(strstr(erg_answer_text(answer), "#SBATCH --array=1-2\n"));
    assert_non_null(strstr(erg_answer_text(answer), "\nergon=ergon\n"));
    erg_answer_free(answer);
    question.program = "/bin/sh";
    assert_ok(erg_ask_sweep(&answer, &question, &err), &err);
    assert_null(strstr(erg_answer_text(answer), "\nergon=ergon\n"));
    erg_answer_free(answer);
    question.part = "1/2";
    assert_fails(erg_ask_sweep(&answer, &question, &err), &err, "--part and --slurm");
    question.slurm_tasks = 0;
    question.part = "3/2";
    assert_fails(erg_ask_sweep(&answer, &question, &err), &err, "expected K/N");
    question.slurm_tasks = 10000;
    assert_fails(erg_ask_sweep(&answer, &question, &err), &err, "slurm_tasks got 10000");
    question.file = NULL;
    assert_fails(erg_ask_sweep(&answer, &question, &err), &err, "expected a file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_those_of_the_search),
        cmocka_unit_test(exports_and_comparisons_are_text_alone),
        cmocka_unit_test(nothing_that_fits_is_an_answer),
        cmocka_unit_test(layouts_refuse_what_does_not_go_together),
        cmocka_unit_test(memory_has_the_published_peak),
        cmocka_unit_test(memory_that_does_not_fit_is_an_answer),
        cmocka_unit_test(a_plan_is_an_answer),
        cmocka_unit_test(policies_are_asked_about),
        cmocka_unit_test(what_was_simulated_until_then_is_answered),
        cmocka_unit_test(a_sweep_is_a_script_too),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
