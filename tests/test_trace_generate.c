/*
 * Traces drawn by a seed: whether arrivals, run times, sizes and deadlines are distributed as the
 * recipe says. Bounds are those of 20,000 draws: five standard deviations of a share, and what a
 * Kolmogorov-Smirnov test at 1 % allows.
 */
#include "check.h"
#include "cluster/traces/generate.h"
#include "folder.h"
#include "io/file.h"

#define EXAMPLE ERGON_TEST_SOURCE_DIR "/examples/cluster"

enum { JOBS = 20000 };

static struct erg_fleet *fleet;

static int set_up(void **state)
{
    struct erg_error err;
    return make_folder(state) ? -1 : erg_fleet_load(&fleet, EXAMPLE "/cluster.yaml", &err);
}

static const char *recipe_path(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/recipe.yaml", folder);
    return path;
}

static int tear_down(void **state)
{
    erg_fleet_free(fleet);
    return remove_folder(state);
}

static void init_maker(struct erg_trace_maker *maker)
{
    struct erg_error err;
    assert_ok(erg_trace_maker_init(maker, fleet, EXAMPLE "/profiles", &err), &err);
}

/* Draws by a recipe's text into a new maker. */
static int draw(struct erg_trace_maker *maker, const char *recipe, uint64_t seed,
                struct erg_error *err)
{
    struct erg_error bad;
    assert_ok(erg_file_write(recipe_path(), recipe, strlen(recipe), &bad), &bad);
    init_maker(maker);
    return erg_trace_generate(maker, recipe_path(), seed, err);
}

static struct erg_text text_of(const struct erg_trace_maker *maker)
{
    struct erg_text text = {0};
    erg_trace_maker_write(&text, maker);
    return text;
}

#define RECIPE_OF(jobs)                                                                            \
    "jobs: " jobs "\n"                                                                             \
    "jobs_per_day: 500\n"                                                                          \
    "daily_swing: 0.6\n"                                                                           \
    "busiest_hour: 15\n"                                                                           \
    "duration: {median_h: 2, sigma: 1.2, least_h: 0.25, most_h: 40}\n"                             \
    "gpus: [{count: 1, weight: 2}, {count: 4, weight: 5}, {count: 8, weight: 3}]\n"                \
    "types: [{name: H800-SXM-80GB, weight: 1}, {name: A100-SXM4-40GB, weight: 3}]\n"               \
    "models:\n"                                                                                    \
    "  - {model: Llama-3.2-1B, size: 1.24B, batch: 128, weight: 2}\n"                              \
    "  - {model: Llama-2-7b-hf, size: 6.74B, batch: 128, weight: 1}\n"                             \
    "tenants: [{name: a, weight: 1}, {name: b, weight: 3}]\n"                                      \
    "deadlines: {share: 0.3, least: 1.5, most: 4}\n"

static void test_arrivals(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_error err;
    assert_ok(draw(&maker, RECIPE_OF("20000"), 7, &err), &err);
    const struct erg_job_trace *trace = maker.trace;
    int by_day = 0;
    assert_int_equal(trace->count, JOBS);
    for (size_t i = 0; i < JOBS; i++) {
        double hour = fmod(trace->jobs[i].submit_s / 3600, 24);
        by_day += hour >= 9 && hour < 21;
        assert_true(i == 0 || trace->jobs[i].submit_s >= trace->jobs[i - 1].submit_s);
    }
    /* The mean of 20,000 exponential times is known to 1 / sqrt(20,000). */
    assert_close(trace->jobs[JOBS - 1].submit_s / JOBS, 86400. / 500, 5 / sqrt(JOBS));
    /* Half the day around the busiest hour has 1/2 + swing / pi of the arrivals. */
    assert_near((double)by_day / JOBS, 0.5 + 0.6 / 3.14159265, 5 * sqrt(0.25 / JOBS));
    erg_trace_maker_release(&maker);
}

static double normal_share(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Hours that a job runs on what it asks for, but for the part of an iteration cut off. */
static double hours_of(const struct erg_trace_maker *maker, const struct erg_trace_job *job)
{
    return (job->iterations + 0.5) *
           erg_trace_maker_iteration(maker, job->workload, job->type, job->gpus) / 3600;
}

static void test_durations(void **state)
{
    (void)state;
    static double hours[JOBS];
    struct erg_trace_maker maker;
    struct erg_error err;
    assert_ok(draw(&maker, RECIPE_OF("20000"), 7, &err), &err);
    for (size_t i = 0; i < JOBS; i++)
        hours[i] = hours_of(&maker, &maker.trace->jobs[i]);
    qsort(hours, JOBS, sizeof *hours, compare_doubles);
    double low = normal_share(log(0.25 / 2) / 1.2), high = normal_share(log(40. / 2) / 1.2);
    double distance = 0;
    for (size_t i = 0; i < JOBS; i++) {
        double share = (normal_share(log(hours[i] / 2) / 1.2) - low) / (high - low);
        distance = fmax(distance, fabs(share - (i + 0.5) / JOBS));
    }
    assert_true(distance < 1.63 / sqrt(JOBS));
    assert_true(hours[0] > 0.24 && hours[JOBS - 1] < 40.01);
    erg_trace_maker_release(&maker);
}

static void assert_share(int count, int of, double share)
{
    assert_near((double)count / of, share, 5 * sqrt(share * (1 - share) / of));
}

/*
 * One GPU of either type has no room for the 7B model, so of 2/3 x 10/10 + 1/3 x 8/10 that can run
 * 1/3 x 8/10 are its, and 2/3 x 2/10 ask for one GPU.
 */
static void test_inputs(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_error err;
    assert_ok(draw(&maker, RECIPE_OF("20000"), 3, &err), &err);
    int large = 0, ones = 0, h800 = 0, tenant_b = 0, due = 0;
    for (size_t i = 0; i < JOBS; i++) {
        const struct erg_trace_job *job = &maker.trace->jobs[i];
        double run_s = 3600 * hours_of(&maker, job), slack = job->deadline_s - job->submit_s;
        large += !strcmp(maker.trace->workloads[job->workload].size, "6.74B");
        ones += job->gpus == 1;
        h800 += job->type == 0;
        tenant_b += !strcmp(maker.trace->tenants[job->tenant], "b");
        due += isfinite(slack);
        assert_true(isinf(slack) || (slack > 1.48 * run_s && slack < 4.06 * run_s));
    }
    double runs = 2. / 3 + 1. / 3 * 0.8;
    assert_share(large, JOBS, 1. / 3 * 0.8 / runs);
    assert_share(ones, JOBS, 2. / 3 * 0.2 / runs);
    assert_share(h800, JOBS, 0.25);
    assert_share(tenant_b, JOBS, 0.75);
    assert_share(due, JOBS, 0.3);
    erg_trace_maker_release(&maker);
}

/* What is written reads back; a longer trace begins with the shorter one. */
static void test_seeds(void **state)
{
    (void)state;
    struct erg_trace_maker makers[3];
    struct erg_text texts[3];
    struct erg_error err;
    assert_ok(draw(&makers[0], RECIPE_OF("100"), 5, &err), &err);
    assert_ok(draw(&makers[1], RECIPE_OF("200"), 5, &err), &err);
    assert_ok(draw(&makers[2], RECIPE_OF("100"), 6, &err), &err);
    for (int i = 0; i < 3; i++)
        texts[i] = text_of(&makers[i]);
    assert_memory_equal(texts[0].data, texts[1].data, texts[0].count);
    assert_string_not_equal(texts[0].data, texts[2].data);
    struct erg_job_trace *trace;
    assert_ok(erg_job_trace_parse(&trace, "drawn.csv", texts[1].data, texts[1].count, fleet, &err),
              &err);
    assert_int_equal(trace->count, 200);
    assert_int_equal(trace->inversions, 0);
    for (size_t i = 0; i < trace->count; i++) {
        const struct erg_trace_job *read = &trace->jobs[i], *made = &makers[1].trace->jobs[i];
        assert_string_equal(read->id, made->id);
        assert_true(read->submit_s == made->submit_s && read->deadline_s == made->deadline_s &&
                    read->iterations == made->iterations && read->type == made->type);
    }
    erg_job_trace_free(trace);
    for (int i = 0; i < 3; i++) {
        erg_text_release(&texts[i]);
        erg_trace_maker_release(&makers[i]);
    }
}

static void test_shipped_trace(void **state)
{
    (void)state;
    struct erg_trace_maker maker;
    struct erg_error err;
    char *shipped;
    size_t length;
    init_maker(&maker);
    assert_ok(erg_trace_generate(&maker, EXAMPLE "/recipe.yaml", 1, &err), &err);
    struct erg_text text = text_of(&maker);
    assert_ok(erg_file_read(EXAMPLE "/trace.csv", 0, &shipped, &length, &err), &err);
    assert_string_equal(text.data, shipped);
    free(shipped);
    erg_text_release(&text);
    erg_trace_maker_release(&maker);
}

static void assert_refused(const char *recipe, const char *part)
{
    struct erg_trace_maker maker;
    struct erg_error err;
    assert_fails(draw(&maker, recipe, 1, &err), &err, part);
    erg_trace_maker_release(&maker);
}

static void test_refusals(void **state)
{
    (void)state;
#define LITTLE                                                                                     \
    "jobs: 1\njobs_per_day: 1\nduration: {median_h: 1, sigma: 1, least_h: 0, most_h: 9}\n"
    assert_refused(LITTLE, "'gpus'");
    assert_refused(LITTLE "gpus: [{count: 3, weight: 1}]\n",
                   "recipe.yaml:4: key 'gpus[0]': no job could be drawn");
    assert_refused(LITTLE "gpus:\n  - {count: 1, weight: 1}\n  - {count: 3200, weight: 1}\n",
                   "recipe.yaml:6: key 'gpus[1]': no job could be drawn");
    assert_refused(LITTLE "gpus: [{count: 1, weight: 1}]\n"
                          "models:\n"
                          "  - {model: Llama-3.2-1B, size: 1.24B, batch: 128, weight: 2}\n"
                          "  - {model: Llama-2-7b-hf, size: 6.74B, batch: 128, weight: 1}\n",
                   "recipe.yaml:7: key 'models[1]': no job could be drawn");
    assert_refused(LITTLE "gpus: [{count: 1, weight: 0}]\n", "'gpus[0].weight'");
    assert_refused(LITTLE "gpus: [{count: 1, weight: 1}]\ntypes: [{name: V100, weight: 1}]\n",
                   "recipe.yaml:5: key 'types[0].name': the cluster has no GPU type 'V100'");
    assert_refused(LITTLE "gpus: [{count: 1, weight: 1}]\n"
                          "models: [{model: bert, size: 1B, batch: 8, weight: 1}]\n",
                   "have no bert of size 1B with batches of 8");
    assert_refused(LITTLE "gpus: [{count: 1, weight: 1}]\ndaily_swing: 1.5\n", "'daily_swing'");
    assert_refused("jobs: 1\njobs_per_day: 1\ngpus: [{count: 1, weight: 1}]\n"
                   "duration: {median_h: 10, sigma: 1, least_h: 0, most_h: 9}\n",
                   "'duration.median_h': expected a number from 1e-06 to 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrivals),      cmocka_unit_test(test_durations),
        cmocka_unit_test(test_inputs),        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_shipped_trace), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
