/*
 * The sampler on the fake NVML: schedule and classes, missed deadlines, and GPUs that hang, are
 * slow or get lost.
 */
#include "base/clock.h"
#include "fake_gpus.h"
#include "side_by_side.h"
#include "telemetry/sampler.h"

#include <sched.h>
#include <time.h>

enum { GPUS = 8, KEPT = 4096 };

/* What the writer got. It runs in one thread, which has ended before a test looks. */
struct seen {
    size_t count[GPUS], metric[GPUS][ERG_METRICS], idle;
    int64_t scheduled_ns[GPUS][KEPT], start_ns[GPUS][KEPT];
    bool lost[GPUS];
};

static void put(void *context, const struct erg_sampler_item *item)
{
    struct seen *seen = context;
    size_t i = seen->count[item->gpu]++;
    assert_true(i < KEPT);
    seen->scheduled_ns[item->gpu][i] = item->scheduled_ns;
    seen->start_ns[item->gpu][i] = item->sample.start_ns;
    seen->lost[item->gpu] |= item->sample.lost;
    for (int m = 0; m < ERG_METRICS; m++)
        seen->metric[item->gpu][m] += erg_gpu_has(&item->sample, (enum erg_metric)m);
}

static void idle(void *context)
{
    ((struct seen *)context)->idle++;
}

static void pause_s(double duration_s)
{
    nanosleep(&(struct timespec){(time_t)duration_s, (long)(fmod(duration_s, 1) * 1e9)}, NULL);
}

struct run {
    struct fake fake;
    struct erg_gpus *gpus;
    struct erg_sampler *sampler;
    struct seen *seen;
};

static struct run start(const char *script, int64_t fast_ms)
{
    struct run run = {.fake = fake_open(ERGON_TEST_FAKE_NVML, script),
                      .seen = calloc(1, sizeof(struct seen))};
    struct erg_error err = {0};
    struct erg_sampler_options options = erg_sampler_options_default();
    options.period_ns[ERG_COST_FAST] = fast_ms * 1000000;
    assert_ok(erg_gpus_open(&run.gpus, NULL, &err), &err);
    assert_ok(erg_sampler_start(&run.sampler, run.gpus, &options,
                                &(struct erg_sampler_sink){put, idle, run.seen}, &err),
              &err);
    return run;
}

static void stop(struct run *run)
{
    erg_sampler_stop(run->sampler);
    run->sampler = NULL;
    erg_gpus_close(run->gpus);
}

static void finish(struct run *run)
{
    free(run->seen);
    fake_close(&run->fake);
}

/* Waits for so many samples of every GPU but one; a busy machine just takes longer. */
static void wait_for_samples(const struct run *run, uint64_t count, size_t except)
{
    for (size_t gpu = 0; gpu < erg_gpus_count(run->gpus); gpu++)
        for (struct erg_sampler_stats stats = {0}; gpu != except && stats.samples < count;) {
            erg_sampler_stats(run->sampler, gpu, &stats);
            pause_s(0.005);
        }
}

static void test_classes(void **state)
{
    (void)state;
    struct run run = start("gpus 8\n", 25);
    wait_for_samples(&run, 50, GPUS);
    struct erg_sampler_stats stats;
    erg_sampler_stats(run.sampler, 3, &stats);
    stop(&run);
    assert_true(stats.samples > 0);
    assert_int_equal(stats.dropped, 0);
    assert_true(stats.cpu_ns > 0);
    assert_false(stats.lost);
    assert_true(run.seen->idle > 0);
    for (size_t gpu = 0; gpu < GPUS; gpu++) {
        const size_t *metric = run.seen->metric[gpu];
        /* The counts of classes to each other do not depend on how busy the machine is. */
        assert_int_equal(metric[ERG_METRIC_ENERGY], run.seen->count[gpu]);
        assert_true(metric[ERG_METRIC_TEMPERATURE] < metric[ERG_METRIC_ENERGY]);
        assert_true(metric[ERG_METRIC_TEMPERATURE] >= 2);
        assert_true(metric[ERG_METRIC_POWER_LIMIT] < metric[ERG_METRIC_TEMPERATURE]);
        assert_true(metric[ERG_METRIC_POWER_LIMIT] >= 1);
        for (size_t i = 1; i < run.seen->count[gpu]; i++) {
            int64_t step_ns = run.seen->scheduled_ns[gpu][i] - run.seen->scheduled_ns[gpu][i - 1];
            assert_true(step_ns > 0 && step_ns % 25000000 == 0);
            assert_true(run.seen->start_ns[gpu][i] >= run.seen->scheduled_ns[gpu][i]);
        }
    }
    finish(&run);
}

/* A read of 70 ms at a period of 20 ms: three deadlines of four are missed, and none made up. */
static void test_missed_deadlines(void **state)
{
    (void)state;
    struct run run = start("gpus 1\ngpu 0 slow GetTotalEnergyConsumption 0.07\n", 20);
    wait_for_samples(&run, 5, GPUS);
    struct erg_sampler_stats stats;
    erg_sampler_stats(run.sampler, 0, &stats);
    stop(&run);
    assert_true(stats.samples >= 3);
    assert_true(stats.missed >= 3 * (stats.samples - 1));
    for (size_t i = 1; i < run.seen->count[0]; i++) {
        int64_t step_ns = run.seen->scheduled_ns[0][i] - run.seen->scheduled_ns[0][i - 1];
        assert_true(step_ns >= 80000000 && step_ns % 20000000 == 0);
    }
    finish(&run);
}

/* One hangs; the others go on, and stopping does not wait for it. */
static void test_a_hanging_gpu(void **state)
{
    (void)state;
    size_t threads = fake_threads();
    struct run run = start("gpus 8\ngpu 5 hang GetTotalEnergyConsumption 0.2 600\n", 20);
    struct erg_sampler_stats stuck = {0}, other, still;
    while (stuck.busy_ns < 200000000) {
        erg_sampler_stats(run.sampler, 5, &stuck);
        pause_s(0.005);
    }
    uint64_t most = 0;
    for (size_t gpu = 0; gpu < GPUS; gpu++) {
        erg_sampler_stats(run.sampler, gpu, &other);
        most = other.samples > most ? other.samples : most;
    }
    wait_for_samples(&run, most + 30, 5);
    erg_sampler_stats(run.sampler, 5, &still);
    assert_int_equal(still.samples, stuck.samples);
    assert_true(still.busy_ns > stuck.busy_ns);
    stop(&run); /* comes back before the call does */
    assert_int_equal(run.seen->count[5], stuck.samples);
    assert_true(fake_threads() > threads);
    /* It returns, finds itself alone and cleans up. */
    fake_release(&run.fake, threads);
    finish(&run);
}

static void test_a_lost_gpu(void **state)
{
    (void)state;
    struct run run = start("gpus 2\ngpu 1 lost 0.3\n", 20);
    struct erg_sampler_stats stats = {0};
    while (!stats.lost) {
        erg_sampler_stats(run.sampler, 1, &stats);
        pause_s(0.005);
    }
    wait_for_samples(&run, 2 * stats.samples + 20, 1);
    stop(&run);
    assert_true(stats.lost && run.seen->lost[1] && !run.seen->lost[0]);
    assert_true(run.seen->count[0] > run.seen->count[1]);
    finish(&run);
}

/* Close looks come between the deadlines and bring what describes the end of a window. */
static void test_close_looks(void **state)
{
    (void)state;
    struct run run = start("gpus 2\n", 400);
    wait_for_samples(&run, 1, GPUS);
    erg_sampler_look_closely(run.sampler, erg_now_ns() + 60000000000);
    wait_for_samples(&run, 12, GPUS);
    stop(&run);
    for (size_t gpu = 0; gpu < 2; gpu++) {
        size_t close = 0;
        assert_int_equal(run.seen->metric[gpu][ERG_METRIC_ENERGY], run.seen->count[gpu]);
        /* Once by the schedule and once for the look. */
        assert_true(run.seen->metric[gpu][ERG_METRIC_VIOLATION_POWER] >= 2);
        assert_true(run.seen->metric[gpu][ERG_METRIC_VIOLATION_POWER] < run.seen->count[gpu]);
        for (size_t i = 1; i < run.seen->count[gpu]; i++)
            close +=
                run.seen->scheduled_ns[gpu][i] - run.seen->scheduled_ns[gpu][i - 1] < 400000000;
        assert_true(close > 0);
    }
    finish(&run);
}

static size_t real_time_threads(void)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;)
        count += task->d_name[0] != '.' && sched_getscheduler(atoi(task->d_name)) == SCHED_RR;
    closedir(tasks);
    return count;
}

/* Threads that read wake before ordinary ones, where the system allows it to this user. */
static void test_reading_comes_first(void **state)
{
    (void)state;
    const struct sched_param first = {.sched_priority = 1}, ordinary = {0};
    bool allowed = sched_setscheduler(0, SCHED_RR, &first) == 0;
    if (allowed)
        assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &ordinary), 0);
    struct run run = start("gpus 3\n", 20);
    for (size_t gpu = 0; gpu < 3;) {
        struct erg_sampler_stats stats;
        erg_sampler_stats(run.sampler, gpu, &stats);
        gpu += stats.samples > 0;
        pause_s(0.001);
    }
    assert_int_equal(real_time_threads(), allowed ? 3 : 0);
    stop(&run);
    finish(&run);
}

static void test_a_wrong_period(void **state)
{
    (void)state;
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 1\n");
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    struct erg_sampler *sampler;
    struct erg_sampler_options options = {{1000}};
    struct erg_sampler_sink sink = {put, NULL, NULL};
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    assert_fails(erg_sampler_start(&sampler, gpus, &options, &sink, &err), &err,
                 "expected a period of 1 ms or more");
    erg_gpus_close(gpus);
    fake_close(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_missed_deadlines),
        cmocka_unit_test(test_a_lost_gpu),
        cmocka_unit_test(test_close_looks),
        cmocka_unit_test(test_reading_comes_first),
        cmocka_unit_test(test_a_wrong_period),
        /* Last: the thread that is left alone reads the world of this test when it comes back. */
        cmocka_unit_test(test_a_hanging_gpu),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
