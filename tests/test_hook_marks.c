/*
 * Hooks whose trainer queues passes on a stream and runs ahead, on a fake CUDA driver: clocks
 * follow the stream, not the calls.
 */
#include "fake_clocks.h"
#include "fake_cuda.h"
#include "side_by_side.h"

#include "base/clock.h"
#include "base/log.h"
#include "ergon/ergon.h"
#include "hooks/programme.h"

#include <dlfcn.h>

#define SAMPLE ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json"

static void *library;
static struct erg_plan *plan;
static const struct erg_plan_point *point;

/* Passes are so many times shorter than planned. */
static double faster = 8;

/* The fake's functions that tests ask. */
static struct {
    void *(*stream)(void);
    int64_t (*work)(void *stream, double seconds);
    void (*capture)(void *stream, bool captures);
    unsigned (*calls)(const char *name);
    unsigned (*strays)(void);
} cuda;

static void find_functions(void)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {{"fake_cuda_stream", &cuda.stream},
                     {"fake_cuda_work", &cuda.work},
                     {"fake_cuda_capture", &cuda.capture},
                     {"fake_cuda_calls", &cuda.calls},
                     {"fake_cuda_strays", &cuda.strays}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(library, functions[i].name);
        assert_non_null(symbol);
        memcpy(functions[i].function, &symbol, sizeof symbol);
    }
}

static int load(void **state)
{
    struct erg_error err = {0};
    (void)state;
    setenv("ERGON_LIBCUDA", ERGON_TEST_FAKE_CUDA, 1);
    library = dlopen(ERGON_TEST_FAKE_CUDA, RTLD_NOW);
    assert_non_null(library);
    find_functions();
    assert_ok(erg_plan_load(&plan, SAMPLE, &err), &err);
    point = &plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS].points[2];
    return 0;
}

static int unload(void **state)
{
    (void)state;
    erg_plan_free(plan);
    return 0; /* threads of the library still run */
}

static unsigned warnings;

static void count_warning(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    (void)text;
    warnings += level == ERG_LOG_WARNING;
}

/* ---- a trainer that runs ahead ---- */

static struct erg_hook *open_hook(int markers, int mode)
{
    struct erg_hook_options options;
    struct erg_hook *hook;
    struct erg_error err = {0};
    erg_hook_defaults(&options);
    options.plan = SAMPLE;
    options.point = 2;
    options.gpu = "1";
    options.markers = markers;
    options.mode = mode;
    options.dwell_s = 1e-9;
    assert_ok(erg_hook_open(&hook, &options, &err), &err);
    return hook;
}

static double pass_s(size_t i)
{
    return erg_scale_time(&plan->scale, erg_plan_option(plan, point, i)->time_s) / faster;
}

/* Queues a step, without waiting; when it will be done. */
static int64_t queue_step(struct erg_hook *hook, void *stream)
{
    struct erg_error err = {0};
    int64_t done_ns = 0;
    assert_ok(erg_hook_step_begin(hook, &err), &err);
    for (size_t i = 0; i < plan->schedule.per_stage; i++) {
        const struct erg_instruction *instruction = &plan->schedule.instructions[i];
        assert_ok(erg_hook_begin(hook, instruction->direction, 0, (int)instruction->microbatch,
                                 stream, &err),
                  &err);
        done_ns = cuda.work(stream, pass_s(i));
        assert_ok(erg_hook_end(hook, stream, &err), &err);
    }
    assert_ok(erg_hook_step_end(hook, &err), &err);
    return done_ns;
}

static struct erg_hook_stats stats_of(struct erg_hook *hook)
{
    struct erg_hook_stats stats = {.size = sizeof stats};
    assert_int_equal(erg_hook_stats(hook, &stats), 0);
    return stats;
}

/* Passes that are through. */
static int64_t count_done(struct erg_hook *hook)
{
    int64_t count = 0;
    struct erg_hook_class about = {.size = sizeof about};
    for (int i = 0; erg_hook_class(hook, i, &about) == 0; i++)
        count += about.count;
    return count;
}

static void await_done(struct erg_hook *hook, int64_t count)
{
    for (int i = 0; i < 20000 && count_done(hook) < count; i++)
        pause_s(0.001);
    assert_int_equal(count_done(hook), count);
}

static void check_classes(struct erg_hook *hook, double tolerance)
{
    struct erg_hook_class about = {.size = sizeof about};
    for (int i = 0; erg_hook_class(hook, i, &about) == 0; i++)
        if (about.kind <= ERG_BACKWARD && about.count) {
            /* Passes of a class may be planned at several clocks. */
            double least = INFINITY, most = 0;
            for (size_t k = 0; k < plan->schedule.per_stage; k++)
                if ((int)plan->schedule.instructions[k].direction == about.kind) {
                    least = fmin(least, pass_s(k));
                    most = fmax(most, pass_s(k));
                }
            assert_true(about.mean_s >= least - tolerance && about.mean_s <= most + tolerance);
        }
}

static void check_follows(int markers, double tolerance)
{
    enum { STEPS = 3 };
    struct world world = world_begin("");
    void *stream = cuda.stream();
    struct erg_hook *hook = open_hook(markers, ERG_HOOK_FOLLOW);
    const int64_t begin_ns = erg_now_ns(), passes = (int64_t)plan->schedule.per_stage;
    int64_t done_ns = 0;
    for (int step = 0; step < STEPS; step++)
        done_ns = queue_step(hook, stream);
    const int64_t queued_ns = erg_now_ns();
    struct erg_hook_stats stats = stats_of(hook);
    assert_int_equal(stats.steps, STEPS);
    assert_int_equal(stats.passes, STEPS * passes);
    assert_true(stats.clock_changes <= 4 || queued_ns - begin_ns > 50000000);
    /* Nobody waited: the GPU has hardly begun, unless this machine slept. */
    assert_true(count_done(hook) < STEPS * passes || queued_ns >= done_ns);
    await_done(hook, STEPS * passes);
    assert_true(erg_now_ns() >= done_ns && done_ns > begin_ns);
    check_classes(hook, tolerance);
    pause_s(0.01);
    stats = stats_of(hook);
    /* Short passes are over before a higher clock for the next one would be there in time. */
    assert_true(stats.clock_requests >= 2 * STEPS && stats.clock_changes >= 2 * STEPS);
    assert_true(stats.busy_s > 0);
    assert_int_equal(stats.order_errors, 0);
    assert_string_equal(stats.trouble, "");
    print_message("markers %d: %d queued in %.1f ms, done in %.0f ms; %d set, %d superseded\n",
                  markers, (int)stats.passes, 1e-6 * (double)(queued_ns - begin_ns),
                  1e-6 * (double)(done_ns - begin_ns), (int)stats.clock_changes,
                  (int)stats.clock_superseded);
    struct erg_error err = {0};
    assert_ok(erg_hook_close(hook, &err), &err);
    assert_int_equal(lock_of(&world, 1), 0);
    assert_int_equal(cuda.strays(), 0);
    world_end(&world);
    free(stream);
}

static void events_follow_the_stream(void **state)
{
    (void)state;
    check_follows(ERG_MARK_EVENTS, 1e-4);
    assert_true(cuda.calls("cuEventRecord") == 2 * 3 * 16);
    assert_int_equal(cuda.calls("cuEventDestroy_v2"), cuda.calls("cuEventCreate"));
}

static void words_follow_the_stream(void **state)
{
    (void)state;
    unsigned queries = cuda.calls("cuEventQuery");
    check_follows(ERG_MARK_MEMORY, 0.02);
    assert_int_equal(cuda.calls("cuStreamWriteValue32_v2"), 2 * 3 * 16);
    assert_int_equal(cuda.calls("cuEventQuery"), queries);
    assert_int_equal(cuda.calls("cuMemFreeHost"), 1);
}

/* Far ahead of the GPU passes go unmarked, and nothing else happens. */
static void a_long_queue_is_no_matter(void **state)
{
    (void)state;
    enum { STEPS = 60 };
    struct world world = world_begin("");
    void *stream = cuda.stream();
    struct erg_hook *hook = open_hook(ERG_MARK_EVENTS, ERG_HOOK_FOLLOW);
    struct erg_error err = {0};
    cuda.work(stream, 0.3);
    for (int step = 0; step < STEPS; step++) {
        assert_ok(erg_hook_step_begin(hook, &err), &err);
        for (size_t i = 0; i < plan->schedule.per_stage; i++) {
            assert_ok(erg_hook_begin(hook, plan->schedule.instructions[i].direction, -1, -1, stream,
                                     &err),
                      &err);
            cuda.work(stream, 1e-4);
            assert_ok(erg_hook_end(hook, stream, &err), &err);
        }
        assert_ok(erg_hook_step_end(hook, &err), &err);
    }
    pause_s(0.5);
    int64_t done = count_done(hook);
    for (int i = 0; i < 200 && done < 256; i++) {
        pause_s(0.01);
        done = count_done(hook);
    }
    assert_true(done >= 256 && done <= STEPS * 16);
    int64_t before = done;
    queue_step(hook, stream); /* and then on again */
    await_done(hook, before + 16);
    assert_ok(erg_hook_close(hook, &err), &err);
    world_end(&world);
    free(stream);
}

/* Without the clock thread the trainer's own finds out how far the GPU is. */
static void a_forgiven_mistake_ends_clocks_alone(void **state)
{
    (void)state;
    struct world world = world_begin("");
    void *stream = cuda.stream();
    struct erg_hook_options options;
    struct erg_error err = {0};
    struct erg_hook *hook;
    erg_hook_defaults(&options);
    options.plan = SAMPLE;
    options.gpu = "1";
    options.markers = ERG_MARK_EVENTS;
    options.mode = ERG_HOOK_FOLLOW;
    options.strict = 0;
    assert_ok(erg_hook_open(&hook, &options, &err), &err);
    assert_ok(erg_hook_step_begin(hook, &err), &err);
    assert_ok(erg_hook_begin(hook, ERG_BACKWARD, 0, 0, stream, &err), &err); /* forward first */
    assert_ok(erg_hook_end(hook, stream, &err), &err);
    assert_ok(erg_hook_step_end(hook, &err), &err);
    assert_int_equal(lock_of(&world, 1), 0);
    enum { STEPS = 40 }; /* more marks than there is room for */
    faster = 80;
    const int64_t before = count_done(hook), passes = (int64_t)plan->schedule.per_stage;
    for (int step = 0; step < STEPS; step++) {
        const int64_t done_ns = queue_step(hook, stream);
        while (erg_now_ns() < done_ns)
            pause_s(0.001);
    }
    assert_true(count_done(hook) - before >= (STEPS - 2) * passes);
    struct erg_hook_stats stats = stats_of(hook);
    assert_int_equal(stats.order_errors, 1);
    assert_ok(erg_hook_close(hook, &err), &err);
    world_end(&world);
}

static void an_observer_measures_the_stream(void **state)
{
    (void)state;
    void *stream = cuda.stream();
    struct erg_hook *hook = open_hook(ERG_MARK_EVENTS, ERG_HOOK_OBSERVE);
    struct erg_error err = {0};
    int64_t done_ns = queue_step(hook, stream);
    while (erg_now_ns() < done_ns)
        pause_s(0.001);
    queue_step(hook, stream);
    assert_true(count_done(hook) >= 16);
    check_classes(hook, 1e-4);
    assert_ok(erg_hook_close(hook, &err), &err);
    free(stream);
}

static void a_captured_stream_uses_the_host_clock(void **state)
{
    (void)state;
    struct world world = world_begin("");
    void *stream = cuda.stream();
    struct erg_hook *hook = open_hook(ERG_MARK_EVENTS, ERG_HOOK_FOLLOW);
    struct erg_error err = {0};
    warnings = 0;
    cuda.capture(stream, true);
    unsigned records = cuda.calls("cuEventRecord");
    queue_step(hook, stream);
    queue_step(hook, stream);
    await_done(hook, 32);
    assert_int_equal(warnings, 1);
    assert_int_equal(cuda.calls("cuEventRecord"), records);
    assert_ok(erg_hook_close(hook, &err), &err);
    world_end(&world);
    free(stream);
}

static void no_driver_is_no_device(void **state)
{
    (void)state;
    struct erg_hook_options options;
    struct erg_hook *hook;
    struct erg_error err = {0};
    erg_hook_defaults(&options);
    options.plan = SAMPLE;
    options.mode = ERG_HOOK_OBSERVE;
    options.markers = ERG_MARK_EVENTS;
    setenv("ERGON_LIBCUDA", "/nowhere/libcuda.so", 1);
    assert_fails(erg_hook_open(&hook, &options, &err), &err,
                 "'/nowhere/libcuda.so' cannot be opened, expected NVIDIA's driver");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    setenv("ERGON_LIBCUDA", ERGON_TEST_FAKE_NVML, 1);
    assert_fails(erg_hook_open(&hook, &options, &err), &err, "lacks cuCtxGetCurrent");
    setenv("ERGON_LIBCUDA", ERGON_TEST_FAKE_CUDA, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_follow_the_stream),
        cmocka_unit_test(words_follow_the_stream),
        cmocka_unit_test(a_long_queue_is_no_matter),
        cmocka_unit_test(a_forgiven_mistake_ends_clocks_alone),
        cmocka_unit_test(an_observer_measures_the_stream),
        cmocka_unit_test(a_captured_stream_uses_the_host_clock),
        cmocka_unit_test(no_driver_is_no_device),
    };
    erg_log_set_sink(&(struct erg_log_sink){.message = count_warning});
    return run_side_by_side(tests, sizeof tests / sizeof *tests, load, unload);
}
