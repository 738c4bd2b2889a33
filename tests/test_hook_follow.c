/*
 * Hooks on the fake NVML in real time: trainers of several ranks that sleep as long as the plan
 * says, a driver that is slow, and ranks that are killed at any moment.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "fake_clocks.h"
#include "optimize.h"

#include "base/clock.h"
#include "ergon/ergon.h"
#include "hooks/programme.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define SAMPLE ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json"

enum { STAGES = 2, REPLICAS = 2, RANKS = STAGES * REPLICAS, STEPS = 2, MOST_PASSES = 64 };

/* What the ranks of a job share. */
struct job {
    _Atomic int arrived; /* at barriers, counted on */
    /* When each pass is through in a step; 0: not yet known. As work that a GPU has queued, it is
     * so even if the CPU notices late. */
    _Atomic int64_t done_ns[REPLICAS][STEPS][STAGES * MOST_PASSES];
    struct rank {
        double step_s[STEPS];
        struct erg_hook_stats stats;
        _Atomic int ready;
        char said[1024];
    } ranks[RANKS];
};

static struct job *share_job(void)
{
    struct job *job =
        mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job != MAP_FAILED);
    return job;
}

static void sleep_until(int64_t until_ns)
{
    for (int64_t now_ns; (now_ns = erg_now_ns()) < until_ns;)
        erg_sleep_ns(until_ns - now_ns);
}

static void await_value(const _Atomic int *value, int least)
{
    while (atomic_load(value) < least)
        erg_sleep_ns(100000);
}

/* ---- a job by its plan ---- */

static struct erg_plan *quickstart;
static size_t point_number;

static int make_plan(void **state)
{
    struct erg_error err = {0};
    make_quick_folder(state);
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, "optimize %s/examples/quickstart.yaml -o %s/out -q 2>&1",
                    ERGON_TEST_SOURCE_DIR, folder);
    check_program(arguments.data, 0, "");
    erg_text_release(&arguments);
    assert_ok(erg_plan_load(&quickstart, in_folder("out/plan.json"), &err), &err);
    point_number = quickstart->methods[ERG_METHOD_SEQUENTIAL_CLOCKS].point_count / 2;
    assert_int_equal(quickstart->schedule.pipeline.stages, STAGES);
    assert_true(quickstart->schedule.per_stage <= MOST_PASSES);
    return 0;
}

static int free_plan(void **state)
{
    erg_plan_free(quickstart);
    return remove_folder(state);
}

static const struct erg_plan_point *the_point(void)
{
    return &quickstart->methods[ERG_METHOD_SEQUENTIAL_CLOCKS].points[point_number];
}

static int open_rank(struct erg_hook **hook, const char *plan, int point, int rank,
                     struct erg_error *err)
{
    struct erg_hook_options options;
    char gpu[8];
    erg_hook_defaults(&options);
    snprintf(gpu, sizeof gpu, "%d", rank);
    options.plan = plan;
    options.point = point;
    options.stage = rank % STAGES;
    options.replica = rank / STAGES;
    options.gpu = gpu;
    return erg_hook_open(hook, &options, err);
}

/* One pass: waits for the neighbour's, then works as long as planned, from `*free_ns` on. */
static int work(struct erg_hook *hook, _Atomic int64_t *done_ns, size_t i, int64_t *free_ns,
                struct erg_error *err)
{
    const struct erg_schedule *schedule = &quickstart->schedule;
    const struct erg_instruction *instruction = &schedule->instructions[i];
    const uint32_t before = schedule->before[i][1];
    if (before != ERG_NONE) {
        while (atomic_load(&done_ns[before]) == 0)
            erg_sleep_ns(100000);
        const int64_t here_ns =
            atomic_load(&done_ns[before]) +
            (int64_t)(1e9 * erg_schedule_latency_s(schedule, before, (uint32_t)i));
        *free_ns = here_ns > *free_ns ? here_ns : *free_ns;
        sleep_until(*free_ns);
    }
    if (erg_hook_begin(hook, instruction->direction, (int)instruction->chunk,
                       (int)instruction->microbatch, NULL, err) != 0)
        return -1;
    *free_ns +=
        (int64_t)(1e9 * erg_scale_time(&quickstart->scale,
                                       erg_plan_option(quickstart, the_point(), i)->time_s));
    sleep_until(*free_ns);
    atomic_store(&done_ns[i], *free_ns);
    return erg_hook_end(hook, NULL, err);
}

static int be_rank(struct job *job, int rank)
{
    struct erg_hook *hook;
    struct erg_error err = {0};
    const size_t per_stage = quickstart->schedule.per_stage,
                 first = per_stage * (size_t)(rank % STAGES);
    int result = open_rank(&hook, in_folder("out/plan.json"), (int)point_number, rank, &err);
    for (int step = 0; step < STEPS && result == 0; step++) {
        atomic_fetch_add(&job->arrived, 1);
        await_value(&job->arrived, RANKS * (step + 1));
        result = erg_hook_step_begin(hook, &err);
        int64_t free_ns = erg_now_ns();
        for (size_t i = first; i < first + per_stage && result == 0; i++)
            result = work(hook, job->done_ns[rank / STAGES][step], i, &free_ns, &err);
        result = result || erg_hook_step_end(hook, &err);
        job->ranks[rank].stats.size = sizeof job->ranks[rank].stats;
        erg_hook_stats(hook, &job->ranks[rank].stats);
        job->ranks[rank].step_s[step] = job->ranks[rank].stats.step_last_s;
        pause_s(0.1); /* the optimizer */
    }
    snprintf(job->ranks[rank].said, sizeof job->ranks[rank].said, "%s", err.message);
    return result || erg_hook_close(hook, &err);
}

enum { MOST_LINES = 400 };

/* The clocks that a GPU was locked at, but for the trial at the beginning. */
static size_t locks_of(const struct world *world, int gpu, int *clocks_mhz)
{
    FILE *log = fopen(world->log, "r");
    char line[128], what[16];
    size_t count = 0;
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        int at, low;
        assert_int_equal(sscanf(line, "%*d %15s %d %d", what, &at, &low), 3);
        if (at != gpu || strcmp(what, "set") != 0)
            continue;
        assert_true(count < MOST_LINES);
        clocks_mhz[count++] = low;
    }
    fclose(log);
    assert_true(count > 0 && clocks_mhz[0] == 1980);
    memmove(clocks_mhz, clocks_mhz + 1, --count * sizeof *clocks_mhz);
    return count;
}

static void add_clock(int *clocks_mhz, size_t *count, int clock_mhz)
{
    if (!*count || clocks_mhz[*count - 1] != clock_mhz)
        clocks_mhz[(*count)++] = clock_mhz;
}

static void check_locks(const struct world *world, int gpu, size_t stage)
{
    struct erg_programme programme;
    struct erg_error err = {0};
    int seen_mhz[MOST_LINES], wanted_mhz[MOST_LINES];
    size_t wanted = 0, seen = locks_of(world, gpu, seen_mhz);
    const struct erg_programme_request request = {
        .plan = quickstart,
        .point = the_point(),
        .stage = stage,
        .dwell_s = ERG_PROGRAMME_DWELL_S,
        .least_change_mhz = ERG_PROGRAMME_LEAST_CHANGE_MHZ,
        .least_saving = ERG_PROGRAMME_LEAST_SAVING,
        .least_period_s = ERG_PROGRAMME_LEAST_PERIOD_S,
    };
    assert_ok(erg_programme_init(&programme, &request, &err), &err);
    assert_true(programme.changes > 0);
    for (int step = 0; step < STEPS; step++) {
        for (uint32_t g = 0; g < programme.group_count; g++)
            add_clock(wanted_mhz, &wanted, programme.groups[g].clock_mhz);
        if (stage + 1 == STAGES)
            add_clock(wanted_mhz, &wanted, programme.highest_mhz);
        else if (programme.groups[0].clock_mhz > wanted_mhz[wanted - 1]) /* for the next step */
            add_clock(wanted_mhz, &wanted, programme.groups[0].clock_mhz);
    }
    assert_int_equal(seen, wanted);
    for (size_t i = 0; i < wanted; i++)
        assert_int_equal(seen_mhz[i], wanted_mhz[i]);
    erg_programme_release(&programme);
}

/* Two stages, eight microbatches, two pipelines. */
static void a_job_runs_as_planned(void **state)
{
    (void)state;
    struct world world = world_of(RANKS, "");
    struct job *job = share_job();
    pid_t ranks[RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        if ((ranks[rank] = fork()) == 0)
            _exit(be_rank(job, rank) != 0);
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        assert_int_equal(waitpid(ranks[rank], &status, 0), ranks[rank]);
        if (status)
            fail_msg("rank %d: %s", rank, job->ranks[rank].said);
    }
    double best_s = INFINITY;
    for (int step = 0; step < STEPS; step++) {
        double longest_s = 0;
        for (int rank = 0; rank < RANKS; rank++)
            longest_s = fmax(longest_s, job->ranks[rank].step_s[step]);
        best_s = fmin(best_s, longest_s);
    }
    print_message("iteration %.4f s, planned %.4f s (%+.2f %%)\n", best_s, the_point()->time_s,
                  100 * (best_s / the_point()->time_s - 1));
    assert_close(best_s, the_point()->time_s, 0.01);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct erg_hook_stats *stats = &job->ranks[rank].stats;
        check_locks(&world, rank, (size_t)(rank % STAGES));
        assert_int_equal(lock_of(&world, rank), 0);
        assert_int_equal(stats->passes, STEPS * quickstart->schedule.per_stage);
        assert_int_equal(stats->clock_superseded, 0);
        assert_int_equal(stats->clock_refused, 0);
        assert_true(stats->clock_requests >= STEPS * stats->programme_changes);
        print_message("rank %d: %d changes, %d late\n", rank, (int)stats->clock_changes,
                      (int)stats->clock_late);
    }
    munmap(job, sizeof *job);
    world_end(&world);
}

/* ---- a slow driver ---- */

static size_t count_lines(const struct world *world)
{
    int clocks_mhz[MOST_LINES];
    return locks_of(world, 1, clocks_mhz);
}

/* Calls of 50 ms, clocks that are due every 20 to 40 ms: the newest is set, and the last one by the
 * next call at the latest. */
static void a_slow_driver_is_never_a_call_behind(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 1 slow SetGpuLockedClocks 0.05\n");
    struct erg_hook_options options;
    struct erg_hook *hook;
    struct erg_plan *plan;
    struct erg_error err = {0};
    double worst_s = 0;
    erg_hook_defaults(&options);
    options.plan = SAMPLE;
    options.point = 2;
    options.gpu = "1";
    options.dwell_s = 1e-9;
    options.least_change_mhz = 1;
    assert_ok(erg_hook_open(&hook, &options, &err), &err);
    assert_ok(erg_plan_load(&plan, SAMPLE, &err), &err);
    const struct erg_plan_point *point =
        &plan->methods[ERG_METHOD_SEQUENTIAL_CLOCKS].points[options.point];
    const int64_t begin_ns = erg_now_ns();
    for (int round = 0; round < 6; round++) {
        const size_t last = plan->schedule.per_stage - 1 - (size_t)round;
        assert_ok(erg_hook_step_begin(hook, &err), &err);
        for (size_t i = 0; i < plan->schedule.per_stage; i++) {
            const int clock_mhz = erg_plan_option(plan, point, i)->clock_mhz;
            const struct erg_instruction *instruction = &plan->schedule.instructions[i];
            assert_ok(erg_hook_begin(hook, instruction->direction, -1, -1, NULL, &err), &err);
            if (i == last) { /* now nothing else becomes due but what is merged with it */
                const int64_t given_ns = erg_now_ns();
                const size_t before = count_lines(&world);
                for (int k = 0; k < 20000 && lock_of(&world, 1) < clock_mhz; k++)
                    pause_s(0.001);
                worst_s = fmax(worst_s, 1e-9 * (double)(erg_now_ns() - given_ns));
                assert_true(lock_of(&world, 1) >= clock_mhz);
                assert_true(count_lines(&world) <= before + 3);
            }
            pause_s(0.02);
            assert_ok(erg_hook_end(hook, NULL, &err), &err);
        }
        assert_ok(erg_hook_step_end(hook, &err), &err);
    }
    const double taken_s = 1e-9 * (double)(erg_now_ns() - begin_ns);
    struct erg_hook_stats stats = {.size = sizeof stats};
    assert_int_equal(erg_hook_stats(hook, &stats), 0);
    print_message("%d due, %d set, %d superseded in %.2f s; the last in force after %.0f ms\n",
                  (int)stats.clock_requests, (int)stats.clock_changes, (int)stats.clock_superseded,
                  taken_s, 1e3 * worst_s);
    assert_true((double)stats.clock_changes <= 20 * taken_s + 1);
    assert_true(stats.clock_superseded > 0);
    assert_true(stats.clock_call_mean_s >= 0.05);
    erg_plan_free(plan);
    assert_ok(erg_hook_close(hook, &err), &err);
    world_end(&world);
}

/* ---- a GPU that does as it likes ---- */

static void held_by_the_cap_is_counted(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 1 stuck\ngpu 1 clock 600\ngpu 1 reasons 4 0 1000\n");
    struct erg_hook_options options;
    struct erg_hook *hook;
    struct erg_error err = {0};
    struct erg_hook_stats stats = {.size = sizeof stats};
    erg_hook_defaults(&options);
    options.plan = SAMPLE;
    options.gpu = "1";
    assert_ok(erg_hook_open(&hook, &options, &err), &err);
    assert_ok(erg_hook_step_begin(hook, &err), &err);
    assert_ok(erg_hook_begin_named(hook, "forward", NULL, &err), &err);
    for (int i = 0; i < 2000 && !(stats.below_s > 0); i++) {
        pause_s(0.01);
        assert_int_equal(erg_hook_stats(hook, &stats), 0);
    }
    assert_true(stats.below.power_cap_s > 0 && stats.below_s == stats.below.power_cap_s);
    assert_int_equal(stats.lease, ERG_HOOK_LEASE_DIRECT);
    assert_ok(erg_hook_close(hook, &err), &err);
    world_end(&world);
}

/* ---- kill -9 ---- */

/* Steps of short passes, for ever. */
static int be_victim(struct job *job, int rank)
{
    struct erg_hook *hook;
    struct erg_error err = {0};
    int result = open_rank(&hook, in_folder("out/plan.json"), (int)point_number, rank, &err);
    snprintf(job->ranks[rank].said, sizeof job->ranks[rank].said, "%s", err.message);
    atomic_store(&job->ranks[rank].ready, result == 0 ? 1 : 2);
    while (result == 0) {
        result = erg_hook_step_begin(hook, &err);
        const size_t count = quickstart->schedule.per_stage;
        for (size_t i = 0; i < count && result == 0; i++) {
            const struct erg_instruction *instruction =
                &quickstart->schedule.instructions[count * (size_t)(rank % STAGES) + i];
            result = erg_hook_begin(hook, instruction->direction, -1, -1, NULL, &err);
            pause_s(0.003);
            result = result || erg_hook_end(hook, NULL, &err);
        }
        result = result || erg_hook_step_end(hook, &err);
    }
    return 1;
}

static void killed_ranks_leave_no_lock(void **state)
{
    (void)state;
    const char *asked = getenv("ERGON_TEST_KILLS");
    const int kills = asked ? atoi(asked) : 16;
    int locked = 0;
    double worst_s = 0;
    srand(7);
    for (int killed = 0; killed < kills; killed += RANKS) {
        struct world world = world_of(RANKS, "");
        struct job *job = share_job();
        pid_t ranks[RANKS];
        for (int rank = 0; rank < RANKS; rank++)
            if ((ranks[rank] = fork()) == 0)
                _exit(be_victim(job, rank));
        for (int rank = 0; rank < RANKS; rank++) {
            await_value(&job->ranks[rank].ready, 1);
            if (atomic_load(&job->ranks[rank].ready) != 1)
                fail_msg("rank %d: %s", rank, job->ranks[rank].said);
        }
        pause_s(1e-6 * (double)(rand() % 150000));
        for (int rank = 0; rank < RANKS; rank++)
            locked += lock_of(&world, rank) != 0;
        const int64_t begin_ns = erg_now_ns();
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(kill(ranks[rank], SIGKILL), 0);
        for (int rank = 0; rank < RANKS; rank++) {
            for (int i = 0; i < 20000 && lock_of(&world, rank) != 0; i++)
                pause_s(0.001);
            assert_int_equal(lock_of(&world, rank), 0);
        }
        worst_s = fmax(worst_s, 1e-9 * (double)(erg_now_ns() - begin_ns));
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(waitpid(ranks[rank], NULL, 0), ranks[rank]);
        pause_s(0.01);
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(lock_of(&world, rank), 0);
        munmap(job, sizeof *job);
        world_end(&world);
    }
    print_message("%d killed, %d of them with a lock; all unlocked within %.0f ms\n", kills, locked,
                  1e3 * worst_s);
    assert_true(locked > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_runs_as_planned),
        cmocka_unit_test(a_slow_driver_is_never_a_call_behind),
        cmocka_unit_test(held_by_the_cap_is_counted),
        cmocka_unit_test(killed_ranks_leave_no_lock),
    };
    return cmocka_run_group_tests_name("hook_follow", tests, make_plan, free_plan);
}
