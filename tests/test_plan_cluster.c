/*
 * One frontier from a plan up to a cluster: the rows that a job with a plan brings are the plan's
 * points, its scheduler gives it one of them below a power cap, and the trainer takes that very
 * one.
 */
#define _GNU_SOURCE

#include "api/managed_plan.h"
#include "cluster/live/controller_internal.h"
#include "cluster/policies/policies.h"
#include "io/csv.h"
#include "live_world.h"
#include "plan/plan_pace.h"
#include "train/run/run_plan.h"
#include "train_job.h"

enum { MOST_ROWS = 1000, JOB_GPUS = 4, ALL_GPUS = 8 };

static const double idle_w = 50;

static struct {
    struct erg_plan *plan;
    size_t count; /* points of `method` */
} opt;
static const enum erg_method method = ERG_METHOD_SEQUENTIAL_CLOCKS;

/* ---- the plan ---- */

/* Two copies of a plan that was made for one. */
static int begin(void **state)
{
    struct erg_error err;
    struct erg_text path = {0}, live;
    if (make_job(state) != 0)
        return -1;
    shell("mkdir @/bin @/queue && printf '#!/bin/sh\\necho 19\\n' >@/bin/sbatch && "
          "chmod +x @/bin/sbatch");
    erg_text_printf(&path, "%s:%s", in_folder("bin"), getenv("PATH"));
    setenv("PATH", path.data, 1);
    erg_text_release(&path);
    write_text("planned.yaml", "model: model\n"
                               "cluster: {nodes: 1, gpus_per_node: 2, gpu: A100-SXM4-40GB}\n"
                               "tensor: 2\nmicrobatch_size: 4\nmicrobatches: 4\nsequence: 32\n"
                               "train: {data: [{file: tokens.bin}], updates: 8, "
                               "learning_rate: 0.01}\n");
    shell("sed 's/gpus_per_node: 2/gpus_per_node: 4/; s/^tensor/data: 2\\ntensor/' @/planned.yaml "
          ">@/job.yaml");
    live = with_folder("slurm: {partition: ergon, spool: @/queue, poll_s: 1, settle_s: 0.01}\n"
                       "types:\n"
                       "  - {name: A100-SXM4-40GB, nodes: \"h[001-002]\", gpus_per_node: 4, "
                       "memory_gb: 42.9, idle_power_w: 50}\n");
    write_text("queue.yaml", live.data);
    erg_text_release(&live);
    check(0, "plan.json", "optimize @/planned.yaml -o @/opt");
    assert_ok(erg_plan_load(&opt.plan, in_folder("opt/plan.json"), &err), &err);
    opt.count = opt.plan->methods[method].point_count;
    assert_true(opt.count > 4 && opt.count < MOST_ROWS);
    return 0;
}

static int finish(void **state)
{
    erg_plan_free(opt.plan);
    return remove_folder(state);
}

/* Submits the job with options of its training: its folder, until the next one. */
static const char *submit(const char *options, const char *says)
{
    static char path[120];
    struct erg_text line = {0};
    shell("rm -rf @/queue/* && rm -rf @/submitted");
    erg_text_printf(&line, "submit --live @/queue.yaml @/job.yaml -- %s", options);
    check(0, says, line.data);
    erg_text_release(&line);
    shell("cp -r @/queue/* @/submitted");
    snprintf(path, sizeof path, "%s", in_folder("submitted"));
    return path;
}

/* ---- rows ---- */

struct rows {
    double time_s[MOST_ROWS], power_w[MOST_ROWS];
    size_t count;
};

/* Those of one node with so many GPUs, as they are in the file. */
static void read_rows(struct rows *rows, const char *path, const char *gpus)
{
    struct erg_csv *csv;
    struct erg_error err;
    size_t column[4];
    static const char *const names[] = {"num_nodes", "gpus_per_node", "iter_time_s", "gpu_power_w"};
    assert_ok(erg_csv_load(&csv, path, &err), &err);
    for (size_t i = 0; i < 4; i++)
        assert_ok(erg_csv_require(csv, names[i], &column[i], &err), &err);
    rows->count = 0;
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        if (strcmp(erg_csv_text(csv, row, column[0]), "1") != 0 ||
            strcmp(erg_csv_text(csv, row, column[1]), gpus) != 0)
            continue;
        assert_true(rows->count < MOST_ROWS);
        assert_ok(erg_csv_double(csv, row, column[2], &rows->time_s[rows->count], &err), &err);
        assert_ok(erg_csv_double(csv, row, column[3], &rows->power_w[rows->count], &err), &err);
        rows->count++;
    }
    erg_csv_free(csv);
}

static void rows_of(struct rows *rows, const char *folder_of_job, const char *gpus)
{
    char path[200];
    snprintf(path, sizeof path, "%s/profile.csv", folder_of_job);
    read_rows(rows, path, gpus);
}

/* Row k is the plan's point `own` + k: as long as its iteration and what lies beyond it, with the
 * mean power of one of its two GPUs. */
static void check_rows(const struct rows *rows, const struct erg_plan_selection *own)
{
    struct erg_plan_beyond beyond;
    erg_plan_beyond(&beyond, opt.plan);
    assert_true(beyond.time_s > 0 && beyond.energy_j > 0);
    assert_int_equal(rows->count, opt.plan->methods[own->method].point_count - own->point);
    for (size_t k = 0; k < rows->count; k++) {
        const struct erg_plan_point *point = &opt.plan->methods[own->method].points[own->point + k];
        const double step_s = point->time_s + beyond.time_s;
        assert_close(rows->time_s[k], step_s, 1e-15);
        assert_close(rows->power_w[k], (point->energy_j + beyond.energy_j) / step_s / 2, 1e-14);
        assert_int_equal(erg_plan_pace_point(opt.plan, own, rows->time_s[k] / rows->time_s[0]),
                         own->point + k);
    }
}

static void a_job_brings_the_points_of_its_plan(void **state)
{
    (void)state;
    static struct rows rows, others;
    const char *job = submit("--plan @/opt/plan.json --point=3 -m sequential+clocks", "job 19");
    rows_of(&rows, job, "4");
    check_rows(&rows, &(struct erg_plan_selection){.method = method, .point = 2});
    /* Other shapes have what the planner says without a plan. */
    static const char *const gpus[] = {"1", "2"};
    for (size_t i = 0; i < 2; i++) {
        rows_of(&rows, job, gpus[i]);
        assert_true(rows.count > 0);
        shell("cp -r @/submitted @/with");
        submit("", "job 19");
        rows_of(&others, in_folder("submitted"), gpus[i]);
        assert_int_equal(rows.count, others.count);
        assert_memory_equal(rows.time_s, others.time_s, rows.count * sizeof *rows.time_s);
        shell("rm -rf @/submitted && mv @/with @/submitted");
    }
    /* Without further options it is the plan's selected point. */
    submit("--plan @/opt/plan.json", "job 19");
    rows_of(&rows, job, "4");
    check_rows(&rows, &opt.plan->selected);
    /* By a deadline, in seconds of an iteration. */
    struct erg_text line = {0};
    erg_text_printf(&line, "--plan @/opt/plan.json -m sequential+clocks -D %.17g",
                    opt.plan->methods[method].points[4].time_s);
    submit(line.data, "job 19");
    rows_of(&rows, job, "4");
    check_rows(&rows, &(struct erg_plan_selection){.method = method, .point = 4});
    erg_text_release(&line);
    /* Two GPUs at most are too few for its copies. */
    check(0, "no GPUs that the job may get can run it by its plan",
          "submit --live @/queue.yaml @/job.yaml --at-most 2 -- --plan @/opt/plan.json");
}

/* A trainer and a submission begin at the same point: of the plan's own method the one that it
 * selects, of another one the fastest. */
static void options_mean_one_point(void **state)
{
    (void)state;
    struct erg_job *job;
    struct erg_error err;
    const struct erg_plan_selection kept = opt.plan->selected;
    opt.plan->selected =
        (struct erg_plan_selection){.method = method, .point = 3, .rule = "as asked for"};
    assert_ok(erg_plan_write(opt.plan, in_folder("chosen.json"), &err), &err);
    opt.plan->selected = kept;
    assert_ok(erg_job_load(&job, in_folder("planned.yaml"), NULL, &err), &err);
    static const struct {
        const char *word;
        enum erg_method method;
        size_t point;
    } cases[] = {{"--plan", ERG_METHOD_SEQUENTIAL_CLOCKS, 3},
                 {"-msequential+clocks", ERG_METHOD_SEQUENTIAL_CLOCKS, 3},
                 {"--method=nanobatching+clocks", ERG_METHOD_NANOBATCHING_CLOCKS, 0},
                 {"--point=2", ERG_METHOD_SEQUENTIAL_CLOCKS, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_arena arena = {0};
        struct erg_managed_options options;
        struct erg_plan *submitted, *trained;
        struct erg_plan_selection own;
        struct erg_train_options train;
        const char *const words[] = {"--plan", in_folder("chosen.json"), cases[i].word};
        erg_managed_options_split(&options, words, i ? 3 : 2, &arena);
        assert_ok(erg_managed_plan_open(&submitted, &own, &options, job, &err), &err);
        assert_true(own.method == cases[i].method && own.point == cases[i].point);
        assert_ok(erg_managed_options_read(&train, &options, &err), &err);
        train.plan = options.plan;
        assert_ok(erg_run_plan_open(&trained, NULL, &train, job, "host", 0, &err), &err);
        assert_true(trained->selected.method == own.method && trained->selected.point == own.point);
        erg_plan_free(submitted);
        erg_plan_free(trained);
        erg_arena_release(&arena);
    }
    erg_job_free(job);
}

/* Each point of each method, from each point of the options, also after the profile's times were
 * corrected by measured ones. */
static void slowdowns_lead_to_their_points(void **state)
{
    (void)state;
    static struct rows rows;
    size_t checked = 0;
    for (int m = 0; m < ERG_METHOD_COUNT; m++) {
        const struct erg_plan_method *points = &opt.plan->methods[m];
        const size_t all = points->point_count + points->slower_count;
        const size_t stride = all / 12 + 1;
        for (size_t from = 0; from < all; from += stride) {
            const struct erg_plan_selection own = {.method = (enum erg_method)m, .point = from};
            const struct erg_profile_shape shape = {.model =
                                                        &(struct erg_model){.name = (char[]){"m"}},
                                                    .gpu = "A100",
                                                    .batch = 32,
                                                    .nodes = 1,
                                                    .node_gpus = 4};
            struct erg_text text = {0};
            struct erg_error err;
            erg_profile_rows_header(&text);
            erg_profile_rows_row(&text, &shape, 77, 99);
            assert_ok(erg_managed_plan_rows(&text, &shape, opt.plan, &own, &err), &err);
            assert_ok(erg_profile_rows_scale(&text, "A100", 1.2345678, 0.87654321, &err), &err);
            write_text("rows.csv", text.data);
            erg_text_release(&text);
            read_rows(&rows, in_folder("rows.csv"), "4");
            assert_int_equal(rows.count,
                             from < points->point_count ? points->point_count - from : 1);
            for (size_t k = 0; k < rows.count; k++, checked++) {
                const double slowdown = rows.time_s[k] / rows.time_s[0];
                assert_int_equal(erg_plan_pace_point(opt.plan, &own, slowdown), from + k);
                /* A pause takes the rest. */
                if (k + 1 < rows.count)
                    assert_int_equal(
                        erg_plan_pace_point(opt.plan, &own,
                                            0.5 * (rows.time_s[k] + rows.time_s[k + 1]) /
                                                rows.time_s[0]),
                        from + k);
            }
        }
    }
    print_message("%zu slowdowns\n", checked);
    assert_true(checked > 50);
}

/* ---- a controller ---- */

static struct {
    struct erg_live_file *file;
    struct erg_controller *controller;
} at;

static void begin_controller(const char *policy, double cap_w)
{
    struct erg_error err;
    world.at_s = 5000;
    erg_live_file_free(open_world(2)); /* makes the spool */
    shell("sed 's,@/queue,@/spool,' @/queue.yaml >@/live.yaml");
    assert_ok(erg_live_file_load(&at.file, in_folder("live.yaml"), &err), &err);
    at.file->power_cap_w = cap_w;
    struct erg_controller_setup setup = {.file = at.file,
                                         .engine = &world.base,
                                         .journal = in_folder("journal"),
                                         .policy = at.file->policy,
                                         .compress = 1};
    assert_ok(erg_policy_find(&setup.policy, policy, &err), &err);
    assert_ok(erg_controller_new(&at.controller, &setup, &err), &err);
    submit_job(JOB_GPUS);
    shell("cp @/submitted/request.json @/submitted/profile.csv @/spool/0000000000000001");
}

static void end_controller(void)
{
    erg_controller_free(at.controller);
    close_world(at.file);
    memset(&at, 0, sizeof at);
    shell("rm -rf @/spool @/journal*");
}

static void pass(void)
{
    struct erg_error err;
    double wait_s;
    world.at_s += 2;
    assert_ok(erg_controller_pass(at.controller, &wait_s, &err), &err);
}

static struct erg_live_plan plan_of_job(void)
{
    struct erg_live_plan plan;
    struct erg_arena arena = {0};
    struct erg_error err;
    assert_ok(erg_job_folder_read_plan(&plan, in_folder("spool/0000000000000001"), &arena, &err),
              &err);
    assert_non_null(plan.type);
    erg_arena_release(&arena);
    return plan;
}

/* The most that all GPUs may draw, so that a job of this power fits. */
static double cap_for(double power_w)
{
    return ALL_GPUS * idle_w + JOB_GPUS * (power_w - idle_w);
}

/* Below a cap between the powers of two points the job gets the slower one, its slowdown and its
 * watts, whatever has been measured meanwhile; and the trainer goes there. */
static void a_cap_chooses_a_point_of_the_plan(void **state)
{
    (void)state;
    static struct rows rows;
    const struct erg_plan_selection own = {.method = method, .point = 1};
    rows_of(&rows, submit("--plan @/opt/plan.json --point=2 --method sequential+clocks", "job 19"),
            "4");
    assert_true(rows.power_w[rows.count - 1] > idle_w);
    const size_t points[] = {1, 2, rows.count / 2, rows.count - 1};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        const size_t k = points[i];
        begin_controller("fcfs", cap_for(0.5 * (rows.power_w[k - 1] + rows.power_w[k])));
        for (int step = 0; step < 3; step++) {
            pass();
            pass();
            const struct erg_live_plan plan = plan_of_job();
            print_message("point %zu: %.6f times as long, %.3f W\n", k, plan.slowdown,
                          plan.power_w);
            assert_true(plan.capped && plan.nodes == 1 && plan.gpus_per_node == JOB_GPUS);
            assert_int_equal(plan.point, k);
            assert_close(plan.slowdown, rows.time_s[k] / rows.time_s[0], 1e-15);
            assert_close(plan.power_w, rows.power_w[k], 1e-12);
            assert_int_equal(erg_plan_pace_point(opt.plan, &own, plan.slowdown), own.point + k);
            /* The job is slower than planned, and at this point more so. */
            struct erg_scheduler *scheduler = at.controller->scheduler;
            const struct erg_cluster_job *job = &scheduler->jobs[0];
            erg_scheduler_measured(scheduler, job->request->workload, job->shape, (int)k,
                                   (1.3 + 0.1 * step) * rows.time_s[k], 50);
            erg_scheduler_measured(scheduler, job->request->workload, job->shape, 0,
                                   1.1 * rows.time_s[0], 50);
        }
        end_controller();
    }
}

/* A policy that chooses points by itself chooses among those of the plan, too. */
static void policies_choose_points_of_the_plan(void **state)
{
    (void)state;
    static struct rows rows;
    const struct erg_plan_selection own = {.method = method, .point = 0};
    rows_of(&rows, submit("--plan @/opt/plan.json --point=1 --method sequential+clocks", "job 19"),
            "4");
    const double cap_w = cap_for(rows.power_w[rows.count / 3]) - 1;
    /* This small a model is faster on one GPU. */
    shell("awk -F, 'NR == 1 || $5 == 1 && $6 == 4' @/submitted/profile.csv >@/only.csv && "
          "mv @/only.csv @/submitted/profile.csv");
    begin_controller("ergon", cap_w);
    for (int i = 0; i < 4; i++)
        pass();
    const struct erg_live_plan plan = plan_of_job();
    print_message("%d x %d GPUs, point %d: %.6f times as long, %.3f W\n", plan.nodes,
                  plan.gpus_per_node, plan.point, plan.slowdown, plan.power_w);
    assert_true(plan.nodes == 1 && plan.gpus_per_node == JOB_GPUS);
    assert_true(plan.point > 0 && (size_t)plan.point < rows.count);
    assert_close(plan.slowdown, rows.time_s[plan.point] / rows.time_s[0], 1e-15);
    assert_close(plan.power_w, rows.power_w[plan.point], 1e-12);
    assert_true(cap_for(plan.power_w) <= cap_w);
    assert_int_equal(erg_plan_pace_point(opt.plan, &own, plan.slowdown), plan.point);
    end_controller();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_brings_the_points_of_its_plan),
        cmocka_unit_test(options_mean_one_point),
        cmocka_unit_test(slowdowns_lead_to_their_points),
        cmocka_unit_test(a_cap_chooses_a_point_of_the_plan),
        cmocka_unit_test(policies_choose_points_of_the_plan),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
