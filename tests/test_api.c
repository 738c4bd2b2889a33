/* The doors of api/, through the public headers alone: jobs, memory, layouts, plans, the main job.
 */
#include "check.h"
#include "folder.h"

#include <ergon/ergon.h>

#include <sys/resource.h>
#include <sys/wait.h>

static const char kwai_job[] = ERGON_TEST_SOURCE_DIR "/examples/kwai/llama2-7b.yaml";
static const char quick_job[] = ERGON_TEST_SOURCE_DIR "/examples/quickstart.yaml";

static struct erg_job *open_job(const char *path)
{
    struct erg_error err;
    struct erg_job *job;
    assert_ok(erg_job_open(&job, path, &err), &err);
    return job;
}

static void set(struct erg_job **job, const char *key, const char *value)
{
    struct erg_error err;
    assert_ok(erg_job_set(job, key, value, &err), &err);
}

/* ---- models ---- */

static void models_say_their_size(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    struct erg_model_info info = {.size = sizeof info};
    struct erg_model_work work = {.size = sizeof work};
    assert_ok(erg_model_open(&model, "llama-3.2-3b", &err), &err);
    assert_ok(erg_model_info(model, &info, &err), &err);
    assert_string_equal(info.architecture, "LlamaForCausalLM");
    assert_int_equal(info.layers, 28);
    assert_int_equal(info.hidden, 3072);
    assert_true(info.tied && info.gated);
    assert_true(info.parameters == 3212749824.0); /* as Hugging Face counts it */
    assert_ok(erg_model_work(model, 8192, 4096, &work, &err), &err);
    assert_close(work.training_flops,
                 3 * (work.linear_flops + work.head_flops + work.attention_flops), 1e-12);
    assert_close(work.recomputing_flops - work.training_flops,
                 work.linear_flops + work.attention_flops, 1e-12);
    assert_true(work.head_flops == 2 * 8192.0 * 3072 * 128256);
    assert_fails(erg_model_work(model, 10, 4096, &work, &err), &err, "expected one sequence");
    erg_model_free(model);
    assert_fails(erg_model_open(&model, "llama-3.2-3c", &err), &err, "llama-3.2-3b");
    assert_fails(erg_model_open_text(&model, "mine", "{}", 2, &err), &err, "mine");
    erg_model_free(NULL);
}

/* ---- jobs ---- */

static void keys_make_another_job(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job = open_job(quick_job), *before = job;
    struct erg_job_info info = {.size = sizeof info};
    assert_ok(erg_job_check(job, &err), &err);
    assert_ok(erg_job_set(&job, "microbatches", "16", &err), &err);
    assert_ptr_not_equal(job, before);
    set(&job, "search.seed", "3");
    assert_ok(erg_job_info(job, &info, &err), &err);
    assert_string_equal(info.name, "quickstart");
    assert_int_equal(info.microbatches, 16);
    assert_int_equal(info.batch, 128);
    assert_int_equal(info.gpus, 16);
    assert_string_equal(info.recompute, "full");
    assert_null(info.engine);
    assert_non_null(strstr(erg_job_text(job), "microbatches: 16"));
    before = job;
    assert_fails(erg_job_set(&job, "microbatches", "many", &err), &err, "key 'microbatches'");
    assert_fails(erg_job_set(&job, "micro_batches", "2", &err), &err,
                 "did you mean 'microbatches'");
    assert_fails(erg_job_set(&job, "model", "a: b", &err), &err, "not a single value");
    assert_ptr_equal(job, before);
    set(&job, "tensor", "4"); /* half of the cluster: a layout yet to be chosen */
    assert_fails(erg_job_check(job, &err), &err, "16");
    erg_job_free(job);
    erg_job_free(NULL);
    assert_fails(erg_job_open(&job, "/nonexistent/job.yaml", &err), &err, "/nonexistent/job.yaml");
}

/* In a child, which keeps its small address space. */
static int run_out_of_memory(void)
{
    enum { TEXT = 64 << 20, LEFT = 32 << 20 };
    struct erg_error err = {0};
    struct erg_job *job;
    unsigned long pages = 0;
    char *text = malloc(TEXT);
    FILE *file = fopen("/proc/self/statm", "r");
    if (!text || !file || fscanf(file, "%lu", &pages) != 1)
        return 1;
    memset(text, '\n', TEXT);
    const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + LEFT;
    const struct rlimit limit = {most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    if (erg_job_open_text(&job, "large.yaml", text, TEXT, &err) == 0 ||
        !strstr(err.message, "out of memory") || err.status != ERG_FAILED)
        return 3;
    /* And goes on. */
    return erg_job_open(&job, quick_job, &err) != 0 || erg_job_check(job, &err) != 0 ? 4 : 0;
}

static void a_call_without_memory_fails(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer needs the address space for itself */
#endif
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(run_out_of_memory());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- memory ---- */

static void memory_is_that_of_the_command(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job = open_job(kwai_job);
    struct erg_memory *memory;
    struct erg_memory_info info = {.size = sizeof info};
    assert_ok(erg_memory_find(&memory, job, NULL, &err), &err);
    assert_ok(erg_memory_info(memory, &info, &err), &err);
    assert_true(info.stages == info.pipeline && info.stages > 0);
    double most = 0;
    for (int64_t s = 0; s < info.stages; s++) {
        struct erg_memory_stage_info stage = {.size = sizeof stage};
        assert_ok(erg_memory_stage(memory, (size_t)s, &stage, &err), &err);
        assert_close(stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes +
                         stage.activations_bytes + stage.other_bytes,
                     stage.peak_bytes, 1e-9);
        assert_true(stage.layers > 0);
        most = fmax(most, stage.peak_bytes - stage.gpu_bytes);
    }
    assert_int_equal(info.fits, most <= 0);
    assert_int_equal(!*info.change, info.fits && info.host_fits);
    struct erg_memory_stage_info none = {.size = sizeof none};
    assert_fails(erg_memory_stage(memory, (size_t)info.stages, &none, &err), &err, "expected one");
    assert_non_null(strstr(erg_memory_json(memory), "\"ergon.memory\""));
    assert_ok(erg_memory_write_page(memory, in_folder("memory.html"), &err), &err);
    erg_memory_free(memory);
    erg_job_free(job);
}

static void a_layout_that_does_not_fit_is_an_answer(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job = open_job(kwai_job);
    struct erg_memory *memory;
    struct erg_memory_info info = {.size = sizeof info};
    struct erg_memory_options options = {
        .size = sizeof options, .layout = "t=1,c=1,p=1,l=32", .gpus = 8, .batch = 64};
    set(&job, "recompute", "none");
    set(&job, "offload", "0");
    assert_ok(erg_memory_find(&memory, job, &options, &err), &err);
    erg_job_free(job);
    assert_ok(erg_memory_info(memory, &info, &err), &err);
    assert_int_equal(info.fits, 0);
    assert_non_null(strstr(info.change, "stage 0 needs"));
    assert_null(strstr(info.change, "--"));
    erg_memory_free(memory);
    erg_memory_free(NULL);

    job = open_job(kwai_job);
    options = (struct erg_memory_options){.size = sizeof options, .accounting = "framewrk"};
    assert_fails(erg_memory_find(&memory, job, &options, &err), &err,
                 "accounting got 'framewrk', did you mean 'framework'?");
    options = (struct erg_memory_options){.size = sizeof options, .gpus = -1};
    assert_fails(erg_memory_find(&memory, job, &options, &err), &err, "gpus got -1");
    options = (struct erg_memory_options){.size = sizeof options, .per_stage = 1};
    assert_fails(erg_memory_find(&memory, job, &options, &err), &err,
                 "per-stage needs solve-offload");
    options = (struct erg_memory_options){.size = 4};
    assert_fails(erg_memory_find(&memory, job, &options, &err), &err, "erg_memory_options");
    erg_job_free(job);
}

/* ---- layouts ---- */

static void layouts_come_ranked(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job = open_job(ERGON_TEST_SOURCE_DIR "/examples/kwai/llama-65b.yaml"), *made;
    struct erg_layouts *layouts;
    struct erg_layouts_options options = {.size = sizeof options, .gpus = "64", .top = 5};
    assert_ok(erg_layouts_find(&layouts, job, &options, &err), &err);
    assert_int_equal(erg_layouts_count(layouts), 5);
    double before_s = 0;
    for (size_t i = 0; i < 5; i++) {
        struct erg_layouts_row row = {.size = sizeof row};
        assert_ok(erg_layouts_row(layouts, i, &row, &err), &err);
        assert_true(row.time_s >= before_s && row.energy_j > 0 && row.mfu > 0 && row.mfu < 1);
        assert_int_equal(row.tensor * row.context * row.pipeline * row.data, 64);
        assert_int_equal(row.gpus, 64);
        assert_int_equal(row.data * row.microbatch_size * row.microbatches, row.batch);
        assert_close(row.power_w, row.energy_j / row.time_s, 1e-12);
        before_s = row.time_s;
        assert_ok(erg_layouts_job(layouts, i, &made, &err), &err);
        assert_ok(erg_job_check(made, &err), &err);
        struct erg_job_info info = {.size = sizeof info};
        assert_ok(erg_job_info(made, &info, &err), &err);
        assert_int_equal(info.tensor, row.tensor);
        assert_int_equal(info.batch, row.batch);
        erg_job_free(made);
    }
    struct erg_plan *plan;
    assert_fails(erg_layouts_plan(layouts, &plan, &err), &err, "a plan contains clocks");
    assert_fails(erg_layouts_write_page(layouts, in_folder("l.html"), &err), &err, "`page`");
    assert_fails(erg_layouts_job(layouts, 5, &made, &err), &err, "expected one from 0 to 4");
    assert_non_null(strstr(erg_layouts_json(layouts), "\"ergon.layouts\""));
    erg_layouts_free(layouts);
    erg_layouts_free(NULL);
    options = (struct erg_layouts_options){.size = sizeof options, .gpus = "x"};
    assert_fails(erg_layouts_find(&layouts, job, &options, &err), &err,
                 "gpus got 'x'; expected numbers");
    options = (struct erg_layouts_options){.size = sizeof options, .memory_bytes = 1e9};
    assert_fails(erg_layouts_find(&layouts, job, &options, &err), &err, "something fits");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_job_free(job);
    job = open_job(quick_job);
    assert_fails(erg_layouts_find(&layouts, job, NULL, &err), &err, "key 'engine'");
    assert_int_equal(err.status, ERG_USAGE);
    erg_job_free(job);
}

static void the_best_layout_is_a_plan(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job = open_job(kwai_job);
    struct erg_layouts *layouts;
    struct erg_plan *plan;
    struct erg_layouts_options options = {
        .size = sizeof options, .gpus = "8", .objective = "least_energy", .layout = "t=4,p=2,l=16"};
    struct erg_layouts_row row = {.size = sizeof row};
    struct erg_plan_info info = {.size = sizeof info};
    assert_ok(erg_layouts_find(&layouts, job, &options, &err), &err);
    erg_job_free(job);
    assert_ok(erg_layouts_row(layouts, 0, &row, &err), &err);
    assert_ok(erg_layouts_plan(layouts, &plan, &err), &err);
    erg_layouts_free(layouts); /* the plan stands alone */
    assert_ok(erg_plan_info(plan, &info, &err), &err);
    assert_string_equal(info.method, "sequential+clocks");
    assert_int_equal(info.tensor, 4);
    assert_close(info.time_s, row.time_s, 0.2); /* of a pipeline; the row has its step */
    assert_ok(erg_plan_save(plan, in_folder("layout-plan.json"), &err), &err);
    erg_plan_free(plan);
    assert_ok(erg_plan_open(&plan, in_folder("layout-plan.json"), &err), &err);
    erg_plan_free(plan);
}

/* ---- the main job and its plan ---- */

static size_t steps;

static void count_step(void *context, const char *task, size_t done, size_t total)
{
    (void)task;
    (void)done;
    (void)total;
    ++*(size_t *)context;
}

static int at_once(void *context)
{
    return ++*(size_t *)context > 1;
}

static void the_main_job_makes_a_plan(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job = open_job(quick_job);
    struct erg_watch watch = {.size = sizeof watch, .context = &steps, .progress = count_step};
    struct erg_optimize_options options = {
        .size = sizeof options, .folder = in_folder("out"), .watch = &watch};
    struct erg_plan *plan, *again;
    struct erg_plan_info info = {.size = sizeof info}, other = {.size = sizeof other};
    set(&job, "microbatches", "4");
    set(&job, "search.method", "random");
    set(&job, "search.budget", "4");
    assert_ok(erg_optimize_job(&plan, job, &options, &err), &err);
    assert_true(steps > 10);
    assert_ok(erg_plan_info(plan, &info, &err), &err);
    assert_string_equal(info.method, "ergon");
    assert_int_equal(info.microbatches, 4);
    assert_int_equal(info.passes, 8);
    assert_int_equal(access(in_folder("out/plan.json"), R_OK), 0);
    assert_int_equal(access(in_folder("out/report.html"), R_OK), 0);
    assert_int_equal(access(in_folder("out/profile.db"), R_OK), 0);

    /* The same without a folder, and from what was written. */
    options = (struct erg_optimize_options){.size = sizeof options};
    assert_ok(erg_optimize_job(&again, job, &options, &err), &err);
    assert_ok(erg_plan_info(again, &other, &err), &err);
    assert_true(other.time_s == info.time_s && other.energy_j == info.energy_j);
    erg_plan_free(again);
    assert_ok(erg_plan_open(&again, in_folder("out/plan.json"), &err), &err);
    assert_ok(erg_plan_info(again, &other, &err), &err);
    assert_true(other.time_s == info.time_s && other.energy_j == info.energy_j);
    erg_plan_free(again);

    /* Ended by its caller. */
    size_t asked = 0;
    watch = (struct erg_watch){.size = sizeof watch, .context = &asked, .cancel = at_once};
    options = (struct erg_optimize_options){.size = sizeof options, .watch = &watch};
    assert_fails(erg_optimize_job(&again, job, &options, &err), &err, "interrupted");
    assert_int_equal(err.status, ERG_INTERRUPTED);

    options = (struct erg_optimize_options){.size = sizeof options, .methods = "ergo"};
    assert_fails(erg_optimize_job(&again, job, &options, &err), &err, "did you mean");
    options = (struct erg_optimize_options){.size = sizeof options, .deadline_s = 0.01};
    assert_fails(erg_optimize_job(&again, job, &options, &err), &err, "deadline");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_plan_free(plan);
    erg_job_free(job);
}

static void goals_choose_points(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_plan *plan;
    struct erg_plan_info info = {.size = sizeof info};
    struct erg_plan_goal goal = {.size = sizeof goal};
    struct erg_plan_point_info first = {.size = sizeof first}, point = first;
    struct erg_plan_method_info method = {.size = sizeof method};
    assert_ok(erg_plan_open(&plan, in_folder("out/plan.json"), &err), &err);
    assert_ok(erg_plan_method(plan, 4, &method, &err), &err);
    assert_string_equal(method.name, "ergon");
    assert_true(method.points > 2);
    assert_ok(erg_plan_point(plan, NULL, 0, &first, &err), &err);
    for (int64_t i = 0; i < method.points; i++) {
        assert_ok(erg_plan_point(plan, "ergon", (size_t)i, &point, &err), &err);
        assert_true(i == 0 || (point.time_s > first.time_s && point.energy_j < first.energy_j));
        assert_close(point.power_w * point.time_s, point.energy_j, 1e-12);
        first = point;
    }
    assert_ok(erg_plan_choose(plan, &goal, &err), &err); /* as it is */
    goal.deadline_s = point.time_s;                      /* the slowest */
    assert_ok(erg_plan_choose(plan, &goal, &err), &err);
    assert_ok(erg_plan_info(plan, &info, &err), &err);
    assert_int_equal(info.point, method.points - 1);
    goal.power_w = point.power_w / 2;
    assert_fails(erg_plan_choose(plan, &goal, &err), &err, "power");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_ok(erg_plan_info(plan, &info, &err), &err);
    assert_int_equal(info.point, method.points - 1);
    goal = (struct erg_plan_goal){.size = sizeof goal, .point = 1};
    assert_ok(erg_plan_choose(plan, &goal, &err), &err);
    assert_ok(erg_plan_info(plan, &info, &err), &err);
    assert_int_equal(info.point, 0);
    goal.deadline_s = 1;
    assert_fails(erg_plan_choose(plan, &goal, &err), &err, "expected one of them");
    goal = (struct erg_plan_goal){.size = sizeof goal, .pick = "quickest"};
    assert_fails(erg_plan_choose(plan, &goal, &err), &err, "expected one of fastest");
    assert_fails(erg_plan_point(plan, "ergon", 1000000, &point, &err), &err, "expected one below");
    assert_fails(erg_plan_method(plan, 5, &method, &err), &err, "expected one from 0 to 4");
    assert_ok(erg_plan_write_page(plan, in_folder("plan.html"), &err), &err);
    erg_plan_free(plan);
    erg_plan_free(NULL);
}

static void points_expand(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_plan *plan;
    struct erg_plan_pass passes[8] = {{.size = sizeof passes[0]}};
    size_t count;
    assert_ok(erg_plan_open(&plan, in_folder("out/plan.json"), &err), &err);
    assert_ok(erg_plan_passes(plan, 1, NULL, 0, &count, &err), &err);
    assert_int_equal(count, 8);
    assert_ok(erg_plan_passes(plan, 1, passes, 8, &count, &err), &err);
    double end_s = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(passes[i].start_s >= end_s - 1e-9 && passes[i].time_s > 0);
        assert_int_equal(passes[i].direction, i % 2 ? ERG_BACKWARD : ERG_FORWARD);
        assert_int_equal(passes[i].microbatch, i / 2); /* of the last stage */
        assert_true(passes[i].clock_mhz > 0);
        end_s = passes[i].start_s + passes[i].time_s;
    }
    /* A caller of another day, whose passes are shorter. */
    struct {
        size_t size;
        int64_t microbatch;
    } old[2] = {{sizeof old[0], -1}, {0, -1}};
    assert_ok(erg_plan_passes(plan, 0, (struct erg_plan_pass *)old, 2, &count, &err), &err);
    assert_int_equal(old[1].size, sizeof old[0]);
    assert_int_equal(old[0].microbatch, 0);
    assert_int_equal(old[1].microbatch, 1);
    assert_fails(erg_plan_passes(plan, 2, passes, 8, &count, &err), &err, "expected one below 2");
    assert_non_null(strstr(erg_plan_chosen_json(plan), "\"instructions\""));
    erg_plan_free(plan);
}

/* ---- clusters ---- */

static void clusters_are_simulated(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_simulations *simulations;
    struct erg_simulations_options options = {
        .size = sizeof options,
        .cluster = ERGON_TEST_SOURCE_DIR "/examples/cluster/cluster.yaml",
        .trace = ERGON_TEST_SOURCE_DIR "/examples/cluster/trace.csv",
        .profiles = ERGON_TEST_SOURCE_DIR "/examples/cluster/profiles",
        .policies = "fcfs,ergon",
        .until_s = 12 * 3600,
    };
    struct erg_simulations_result results[2];
    assert_ok(erg_simulations_run(&simulations, &options, &err), &err);
    assert_int_equal(erg_simulations_count(simulations), 2);
    for (size_t i = 0; i < 2; i++) {
        results[i].size = sizeof results[i];
        assert_ok(erg_simulations_result(simulations, i, &results[i], &err), &err);
        assert_true(results[i].submitted_jobs > results[i].finished_jobs);
        assert_true(results[i].utilization > 0 && results[i].utilization <= 1);
        assert_true(results[i].energy_j > 0);
        assert_true(isnan(results[i].cost_usd)); /* there is no tariff */
    }
    assert_string_equal(results[0].policy, "fcfs");
    assert_true(results[1].finished_jobs > results[0].finished_jobs);
    assert_int_equal(results[0].submitted_jobs, results[1].submitted_jobs);
    assert_non_null(strstr(erg_simulations_json(simulations), "\"ergon.simulations\""));
    assert_fails(erg_simulations_write_page(simulations, in_folder("c.html"), &err), &err,
                 "`page`");
    assert_fails(erg_simulations_result(simulations, 2, &results[0], &err), &err,
                 "expected one below 2");
    erg_simulations_free(simulations);
    options.page = 1;
    options.policies = "fcfs";
    assert_ok(erg_simulations_run(&simulations, &options, &err), &err);
    assert_ok(erg_simulations_write_page(simulations, in_folder("c.html"), &err), &err);
    erg_simulations_free(simulations);
    erg_simulations_free(NULL);

    options.policies = "fcfs,fcfs";
    assert_fails(erg_simulations_run(&simulations, &options, &err), &err,
                 "policies: 'fcfs' is listed twice");
    options.policies = "fifo";
    assert_fails(erg_simulations_run(&simulations, &options, &err), &err, "fifo");
    options.policies = "fcfs";
    options.repair_s = 5;
    assert_fails(erg_simulations_run(&simulations, &options, &err), &err,
                 "repair_s needs failure_s");
    options = (struct erg_simulations_options){.size = sizeof options};
    assert_fails(erg_simulations_run(&simulations, &options, &err), &err,
                 "a simulation needs cluster");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_say_their_size),
        cmocka_unit_test(keys_make_another_job),
        cmocka_unit_test(a_call_without_memory_fails),
        cmocka_unit_test(memory_is_that_of_the_command),
        cmocka_unit_test(a_layout_that_does_not_fit_is_an_answer),
        cmocka_unit_test(layouts_come_ranked),
        cmocka_unit_test(the_best_layout_is_a_plan),
        cmocka_unit_test(the_main_job_makes_a_plan),
        cmocka_unit_test(goals_choose_points),
        cmocka_unit_test(points_expand),
        cmocka_unit_test(clusters_are_simulated),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
