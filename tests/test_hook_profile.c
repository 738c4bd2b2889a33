/*
 * Profiles made of ordinary steps: a trainer of two stages and two pipelines, whose passes take as
 * long and draw as much as the locked clock says, on a fake driver and the fake NVML.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "fake_cuda.h"
#include "fake_nvml.h"
#include "hooked.h"

#include "base/clock.h"
#include "hooks/hook_internal.h"
#include "plan/plan.h"

#include <dlfcn.h>
#include <sys/mman.h>

enum { STAGES = 2, REPLICAS = 2, RANKS = STAGES * REPLICAS, MICROBATCHES = 3 };
enum { PASSES = 2 * MICROBATCHES, MOST_STEPS = 2000, FULL_MHZ = 1980 };

/* ---- what passes need ---- */

#define WAITING_W 90.0

/* Batches that are so much larger. */
static double larger = 1;

/* Stage 0 has less to do. */
static double time_of(int stage, int direction, int clock_mhz)
{
    return larger * (direction == ERG_FORWARD ? 0.006 : 0.012) * (stage == 0 ? 0.7 : 1) * FULL_MHZ /
           clock_mhz;
}

/* Beyond that of waiting; pipeline 1 has thirstier GPUs. Below a certain clock the voltage stays.
 */
static double power_of(int direction, int replica, int clock_mhz)
{
    const double share = (double)clock_mhz / FULL_MHZ, volts = fmax(1 - 2.5 * (1 - share), 0.8);
    return (direction == ERG_FORWARD ? 0.9 : 1) * (replica ? 1.04 : 1) *
           (250 + 300 * share * volts * volts);
}

static double energy_of(int stage, int direction, int replica, int clock_mhz)
{
    return (WAITING_W + power_of(direction, replica, clock_mhz)) *
           time_of(stage, direction, clock_mhz);
}

/* ---- the fakes' functions ---- */

static struct {
    void *(*stream)(void);
    int64_t (*work)(void *stream, double seconds);
    void (*draw)(unsigned gpu, int64_t from_ns, int64_t to_ns, double more_w);
} fake;

/* The library, which is to be closed. */
static void *find_function(const char *library, const char *name, void *function)
{
    void *opened = dlopen(library, RTLD_NOW), *symbol;
    assert_non_null(opened);
    symbol = dlsym(opened, name);
    assert_non_null(symbol);
    memcpy(function, &symbol, sizeof symbol);
    return opened;
}

/* Of the world that the hook has opened; while the library is open, so is that world. */
static void *find_draw(void)
{
    return find_function(ERGON_TEST_FAKE_NVML, "fake_nvml_work", &fake.draw);
}

static int begin(void **state)
{
    setenv("ERGON_LIBCUDA", ERGON_TEST_FAKE_CUDA, 1);
    find_function(ERGON_TEST_FAKE_CUDA, "fake_cuda_stream", &fake.stream);
    find_function(ERGON_TEST_FAKE_CUDA, "fake_cuda_work", &fake.work);
    return make_folder(state);
}

static void sleep_until(int64_t until_ns)
{
    for (int64_t now_ns; (now_ns = erg_now_ns()) < until_ns;)
        erg_sleep_ns(until_ns - now_ns);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- a job of four ranks ---- */

struct result {
    struct erg_hook_stats stats;
    char said[1024];
};

static struct shared {
    _Atomic int arrived, left, started;
    struct hook_profile_message messages[RANKS];
    /* When a pass is through, known as soon as it is queued. */
    _Atomic int64_t done_ns[REPLICAS][MOST_STEPS][2][STAGES][MICROBATCHES];
    _Atomic double work_j[RANKS][MOST_STEPS]; /* without waiting */
    /* Since the step began, were no CPU ever late: what clocks alone make of it. */
    _Atomic double through_s[REPLICAS][MOST_STEPS][2][STAGES][MICROBATCHES];
    _Atomic double end_s[RANKS][MOST_STEPS];
    struct result results[RANKS];
} * shared;

static int this_rank;
static const struct world *this_world;

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    int *round = context;
    assert_int_equal(bytes, sizeof *shared->messages);
    memcpy(&shared->messages[this_rank], mine, bytes);
    ++*round;
    for (atomic_fetch_add(&shared->arrived, 1); atomic_load(&shared->arrived) < RANKS * *round;)
        erg_sleep_ns(20000);
    memcpy(all, shared->messages, RANKS * bytes);
    for (atomic_fetch_add(&shared->left, 1); atomic_load(&shared->left) < RANKS * *round;)
        erg_sleep_ns(20000);
    return 0;
}

/* The GPU of a rank: what it has queued is done one after the other, whenever the CPU comes. */
struct gpu {
    void *stream;
    int64_t free_ns;
    double free_s; /* as `through_s` */
};

static const int64_t lead_ns = 2000000; /* queued so long before */

/* When the pass may begin; its neighbour has told by then. `free_s` becomes when it might. */
static int64_t await_neighbour(const struct erg_instruction *pass, int step, double *free_s)
{
    const int stage = this_rank % STAGES, replica = this_rank / STAGES;
    const int other = pass->direction == ERG_FORWARD ? stage - 1 : stage + 1;
    if (other < 0 || other == STAGES)
        return 0;
    const _Atomic int64_t *done_ns =
        &shared->done_ns[replica][step][pass->direction][other][pass->microbatch];
    while (!atomic_load(done_ns))
        erg_sleep_ns(100000);
    *free_s =
        fmax(*free_s, shared->through_s[replica][step][pass->direction][other][pass->microbatch]);
    return atomic_load(done_ns);
}

/* `hook` NULL: nobody follows. */
static int run_pass(struct erg_hook *hook, struct gpu *gpu, const struct erg_instruction *pass,
                    int step, struct erg_error *err)
{
    const int stage = this_rank % STAGES, replica = this_rank / STAGES;
    const int direction = (int)pass->direction;
    const int64_t ready_ns = later(gpu->free_ns, await_neighbour(pass, step, &gpu->free_s));
    sleep_until(ready_ns - lead_ns);
    const int locked_mhz = lock_of(this_world, this_rank);
    const int clock_mhz = locked_mhz ? locked_mhz : FULL_MHZ;
    const int64_t now_ns = erg_now_ns(), wanted_ns = later(ready_ns, now_ns + lead_ns);
    const int64_t from_ns =
        fake.work(gpu->stream, 1e-9 * (double)(wanted_ns - later(gpu->free_ns, now_ns)));
    if (hook && erg_hook_begin(hook, direction, (int)pass->chunk, (int)pass->microbatch,
                               gpu->stream, err) != 0)
        return -1;
    const double power_w = power_of(direction, replica, clock_mhz);
    const double takes_s = time_of(stage, direction, clock_mhz);
    gpu->free_ns = fake.work(gpu->stream, takes_s);
    gpu->free_s += takes_s;
    if (hook) {
        fake.draw((unsigned)this_rank, from_ns, gpu->free_ns, power_w);
        if (erg_hook_end(hook, gpu->stream, err) != 0)
            return -1;
    }
    shared->work_j[this_rank][step] = shared->work_j[this_rank][step] + power_w * takes_s;
    shared->through_s[replica][step][direction][stage][pass->microbatch] = gpu->free_s;
    atomic_store(&shared->done_ns[replica][step][direction][stage][pass->microbatch], gpu->free_ns);
    return 0;
}

static int run_step(struct erg_hook *hook, struct gpu *gpu, int step, struct erg_error *err)
{
    struct erg_instruction order[PASSES];
    const struct erg_pass_order passes = erg_pass_order_of(STAGES, 1, MICROBATCHES);
    erg_schedule_stage(order, (size_t)(this_rank % STAGES), &passes);
    atomic_fetch_add(&shared->started, 1);
    while (atomic_load(&shared->started) < RANKS * (step + 1))
        erg_sleep_ns(20000);
    if (hook && erg_hook_step_begin(hook, err) != 0)
        return -1;
    gpu->free_ns = erg_now_ns() + lead_ns;
    gpu->free_s = 0;
    for (int i = 0; i < PASSES; i++)
        if (run_pass(hook, gpu, &order[i], step, err) != 0)
            return -1;
    shared->end_s[this_rank][step] = gpu->free_s;
    sleep_until(gpu->free_ns);
    return hook ? erg_hook_step_end(hook, err) : 0;
}

/* Steps until the profile is over, else so many. */
static int be_rank(const struct erg_hook_options *options, int steps, struct erg_error *err)
{
    struct erg_hook *hook = NULL;
    struct gpu gpu = {.stream = fake.stream()};
    struct erg_hook_stats stats = {.size = sizeof stats};
    int round = 0, result = 0;
    if (options && erg_hook_open(&hook, options, err) != 0)
        return 1;
    if (options)
        find_draw();
    if (options && options->mode == ERG_HOOK_PROFILE && this_rank == 0)
        assert_ok(erg_hook_profile_to(hook, in_folder("profile.csv"), err), err);
    if (options && options->mode == ERG_HOOK_PROFILE)
        result = erg_hook_agree(hook, gather, &round, RANKS, err);
    for (int step = 0; step < steps && result == 0 && !stats.profile_over; step++) {
        result = run_step(hook, &gpu, step, err);
        if (hook)
            erg_hook_stats(hook, &stats);
    }
    shared->results[this_rank].stats = stats;
    if (stats.profile_over && lock_of(this_world, this_rank) != 0)
        result = 1;
    return result || (hook && erg_hook_close(hook, err) != 0);
}

static void run_job(const struct world *world, int mode, const char *plan, int steps)
{
    pid_t ranks[RANKS];
    this_world = world;
    memset(shared, 0, sizeof *shared);
    for (int rank = 0; rank < RANKS; rank++)
        if ((ranks[rank] = fork()) == 0) {
            struct erg_hook_options options;
            struct erg_error err = {0};
            char gpu[8];
            this_rank = rank;
            snprintf(gpu, sizeof gpu, "%d", rank);
            erg_hook_defaults(&options);
            options.mode = mode;
            options.plan = plan;
            options.stage = rank % STAGES;
            options.replica = rank / STAGES;
            options.gpu = gpu;
            options.markers = ERG_MARK_EVENTS;
            int result = be_rank(mode == ERG_HOOK_OBSERVE ? NULL : &options, steps, &err);
            snprintf(shared->results[rank].said, sizeof shared->results[rank].said, "%s",
                     err.message);
            _exit(result != 0);
        }
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        assert_int_equal(waitpid(ranks[rank], &status, 0), ranks[rank]);
        if (status)
            fail_msg("rank %d: %s", rank, shared->results[rank].said);
    }
}

/* ---- what came of it ---- */

/* The next clock of the GPU that is at most 96 %. */
static int clock_below(int clock_mhz)
{
    return (int)floor(0.96 * clock_mhz / 15) * 15;
}

/* `claimed`: the uncertainty that the hook says, which grows where this machine is busy.
   `left_out`: the clocks whose energy it could not tell, as it says. */
static void check_profile(const char *path, double claimed, int left_out, int *clocks)
{
    struct erg_profile profile;
    struct erg_error err = {0};
    double worst_s = 0, worst_j = 0;
    assert_ok(erg_profile_load(&profile, path, &err), &err);
    assert_int_equal(profile.virtual_stages, STAGES);
    for (int table = 0; table < 2 * STAGES; table++) {
        const struct erg_frontier *rows = &profile.tables[table];
        const int stage = table / 2, direction = table % 2;
        int expected_mhz = FULL_MHZ, missing = 0;
        *clocks = (int)rows->count;
        for (size_t i = 0; i < rows->count; i++) {
            const int clock_mhz = (int)rows->points[i].recipe;
            const double energy_j = (energy_of(stage, direction, 0, clock_mhz) +
                                     energy_of(stage, direction, 1, clock_mhz)) /
                                    2;
            worst_s = fmax(worst_s,
                           fabs(rows->points[i].time_s / time_of(stage, direction, clock_mhz) - 1));
            worst_j = fmax(worst_j, fabs(rows->points[i].energy_j / energy_j - 1));
            for (; expected_mhz > clock_mhz; missing++)
                expected_mhz = clock_below(expected_mhz);
            assert_int_equal(clock_mhz, expected_mhz);
            expected_mhz = clock_below(expected_mhz);
        }
        assert_true(missing <= left_out);
    }
    print_message("%d clocks, times within %.2f %%, energies within %.2f %%\n", *clocks,
                  100 * worst_s, 100 * worst_j);
    assert_true(worst_s < 0.01);
    assert_true(worst_j < fmax(0.03, 2 * claimed));
    erg_profile_release(&profile);
}

/* All GPUs had one clock after the other, and none began one before all had left that before. */
static void check_locks(const struct world *world)
{
    FILE *log = fopen(world->log, "r");
    char line[128], what[16];
    int latest[RANKS] = {0}, lowest = FULL_MHZ, counts[RANKS] = {0};
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        int gpu, low;
        assert_int_equal(sscanf(line, "%*d %15s %d %d", what, &gpu, &low), 3);
        if (strcmp(what, "set") != 0)
            continue;
        if (latest[gpu] && low < latest[gpu])
            counts[gpu]++;
        latest[gpu] = low;
        lowest = low < lowest ? low : lowest;
        for (int other = 0; other < RANKS; other++)
            assert_true(!latest[other] || latest[other] * 0.96 * 0.96 < lowest);
    }
    fclose(log);
    for (int gpu = 0; gpu < RANKS; gpu++) {
        assert_int_equal(counts[gpu], counts[0]);
        assert_int_equal(latest[gpu], lowest);
        assert_int_equal(lock_of(world, gpu), 0);
    }
}

/* Of the step that took the least energy, of those that took no longer: its time and that energy.
 */
static double best_step(int steps, double most_s, double *energy_j)
{
    double best_s = INFINITY;
    *energy_j = INFINITY;
    for (int step = 1; step < steps; step++) {
        double step_s = 0, step_j = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            step_s = fmax(step_s, shared->end_s[rank][step]);
            step_j += shared->work_j[rank][step];
        }
        step_j += RANKS * WAITING_W * step_s;
        if (step_s <= most_s && step_j < *energy_j) {
            best_s = step_s;
            *energy_j = step_j;
        }
    }
    return best_s;
}

/* The profile as it would be with larger batches: clocks change in milliseconds, whatever a batch
 * takes, and are not worth changing for small ones. */
static void enlarge(const char *path)
{
    struct erg_text text = {0};
    char line[128];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    erg_text_add(&text, line);
    larger = 5;
    while (fgets(line, sizeof line, file)) {
        double time_s, energy_j;
        int end = 0;
        assert_int_equal(sscanf(line, "%*d,%*[^,],%*d,%n%lf,%lf", &end, &time_s, &energy_j), 2);
        erg_text_printf(&text, "%.*s%.9g,%.9g\n", end, line, larger * time_s, larger * energy_j);
    }
    fclose(file);
    write_text("profile.csv", text.data);
    erg_text_release(&text);
}

static void a_profile_becomes_a_plan_that_saves(void **state)
{
    enum { STEPS = 6 };
    (void)state;
    char path[160], plan[160];
    int clocks = 0;
    struct world world = world_of(RANKS, "gpu * power 0=90\ngpu * counter 0.016 0.007\n");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    snprintf(path, sizeof path, "%s", in_folder("profile.csv"));
    snprintf(plan, sizeof plan, "%s", in_folder("plan.json"));
    const struct erg_hook_stats *stats = &shared->results[0].stats;
    const char *claim = NULL;
    int left_out =
        1; /* clocks; on a busy machine a profile may lack the fast ones, and saves less */
    for (int attempt = 0; attempt < 4 && left_out > 0; attempt++) {
        unlink(path);
        unlink(world.log);
        run_job(&world, ERG_HOOK_PROFILE, NULL, MOST_STEPS);
        print_message("%d steps: %s\n", (int)stats->steps, stats->profile);
        assert_int_equal(stats->profile_over, 1);
        assert_string_equal(stats->trouble, "");
        claim = strstr(stats->profile, "to +-");
        assert_non_null(claim);
        const char *more = strstr(claim, "; at ");
        left_out = more ? atoi(more + strlen("; at ")) : 0;
    }
    check_profile(path, 0.01 * strtod(claim + strlen("to +-"), NULL), left_out, &clocks);
    assert_int_equal(stats->profile_clocks, clocks);
    check_locks(&world);
    for (int rank = 1; rank < RANKS; rank++)
        assert_string_equal(shared->results[rank].stats.profile, "");

    enlarge(path);
    /* The command that was said, but for where its plan goes. */
    struct erg_text line = {0};
    const char *command = strstr(stats->profile, "ergon frontier ");
    assert_non_null(command);
    erg_text_add(&line, command + strlen("ergon "));
    char *end = strstr(line.data, "plan.json");
    assert_non_null(end);
    line.count = (size_t)(end - line.data);
    erg_text_printf(&line, "%s 2>&1", plan);
    check_program(line.data, 0, "time_s");
    erg_text_release(&line);

    double plain_j = 0, saved_j = 0;
    run_job(&world, ERG_HOOK_OBSERVE, NULL, STEPS);
    const double plain_s = best_step(STEPS, INFINITY, &plain_j);
    run_job(&world, ERG_HOOK_FOLLOW, plan, STEPS);
    const double saved_s = best_step(STEPS, 1.02 * plain_s, &saved_j);
    print_message("a step: %.1f ms, %.1f J; by the plan %+.2f %%, %+.2f %%\n", 1e3 * plain_s,
                  plain_j, 100 * (saved_s / plain_s - 1), 100 * (saved_j / plain_j - 1));
    assert_true(saved_j <= 0.995 * plain_j);
    munmap(shared, sizeof *shared);
    world_end(&world);
}

/* ---- one rank ---- */

static struct erg_hook_options profiling(void)
{
    struct erg_hook_options options;
    erg_hook_defaults(&options);
    options.mode = ERG_HOOK_PROFILE;
    options.gpu = "1";
    return options;
}

/* A step of a single stage, which waits before its passes. */
static void sleep_step(struct erg_hook *hook, const struct world *world)
{
    struct erg_error err = {0};
    assert_ok(erg_hook_step_begin(hook, &err), &err);
    pause_s(0.02);
    for (int i = 0; i < PASSES; i++) {
        const int locked_mhz = lock_of(world, 1), clock_mhz = locked_mhz ? locked_mhz : FULL_MHZ;
        assert_ok(erg_hook_begin(hook, i % 2, 0, i / 2, NULL, &err), &err);
        const int64_t from_ns = erg_now_ns();
        const int64_t to_ns = from_ns + (int64_t)(1e9 * time_of(1, i % 2, clock_mhz));
        fake.draw(1, from_ns, to_ns, power_of(i % 2, 0, clock_mhz));
        sleep_until(to_ns);
        assert_ok(erg_hook_end(hook, NULL, &err), &err);
    }
    assert_ok(erg_hook_step_end(hook, &err), &err);
}

static char last_warning[1024];

static void keep_warning(void *context, enum erg_log_level level, const char *text)
{
    count_warning(context, level, text);
    if (level == ERG_LOG_WARNING)
        snprintf(last_warning, sizeof last_warning, "%s", text);
}

static void an_early_close_keeps_the_measurements(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 1 power 0=90\ngpu 1 counter 0.016 0.007\n");
    const struct erg_hook_options options = profiling();
    struct erg_hook *hook = open_hook(&options);
    struct erg_profile profile;
    struct erg_error err = {0};
    void *library = find_draw();
    assert_ok(erg_hook_profile_to(hook, "/nonexistent/alone.csv", &err), &err);
    assert_ok(erg_hook_profile_to(hook, in_folder("alone.csv"), &err), &err);
    for (int step = 0; step < MOST_STEPS && stats_of(hook).profile_clocks < 1; step++)
        sleep_step(hook, &world);
    assert_int_equal(stats_of(hook).profile_clocks, 1);
    assert_int_equal(stats_of(hook).profile_over, 0);
    assert_true(lock_of(&world, 1) != 0);
    print_message("%d steps: %s\n", (int)stats_of(hook).steps, stats_of(hook).profile);
    assert_non_null(strstr(stats_of(hook).profile, "alone.csv has 1 clock"));
    warnings = 0;
    dlclose(library);
    close_hook(hook, &world);
    assert_int_equal(warnings, 1);
    if (!strstr(last_warning, "closed before all clocks were tried: ") ||
        !strstr(last_warning, " -m 3 ") || !strstr(last_warning, " --plan plan.json"))
        fail_msg("said \"%s\"", last_warning);
    assert_ok(erg_profile_load(&profile, in_folder("alone.csv"), &err), &err);
    assert_int_equal(profile.tables[0].count, 1);
    const struct erg_point *row = &profile.tables[1].points[0];
    const double energy_j = energy_of(1, ERG_BACKWARD, 0, (int)row->recipe);
    assert_near(row->energy_j, energy_j, 0.2 * energy_j); /* passes end late on a busy machine */
    erg_profile_release(&profile);
}

/* Steps that take no time have no energy: nothing is made up. */
static void unknown_values_are_left_out(void **state)
{
    (void)state;
    struct world world = world_begin("");
    const struct erg_hook_options options = profiling();
    struct erg_hook *hook = open_hook(&options);
    struct erg_error err = {0};
    assert_ok(erg_hook_profile_to(hook, in_folder("none.csv"), &err), &err);
    const struct trainer trainer = {1, 0, 4, 2, false, true, true};
    for (int step = 0; step < 100 * 43 && !stats_of(hook).profile_over; step++)
        assert_ok(train(hook, &trainer, &err), &err);
    assert_int_equal(stats_of(hook).profile_over, 1);
    assert_int_equal(stats_of(hook).profile_clocks, 0);
    assert_int_equal(hook->profile->chunks, 2);
    assert_int_equal(hook->profile->microbatches, 4);
    assert_non_null(strstr(last_warning, "could not be determined at any clock"));
    assert_int_equal(access(in_folder("none.csv"), F_OK), -1);
    assert_int_equal(lock_of(&world, 1), 0);
    assert_ok(train(hook, &trainer, &err), &err);
    pause_s(0.005);
    assert_int_equal(lock_of(&world, 1), 0);
    close_hook(hook, &world);
}

/* ---- mistakes ---- */

static int swap_passes(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, ERG_FORWARD, 0, 0, err) ||
           pass(hook, ERG_FORWARD, 0, 2, err);
}

static int other_count(struct erg_hook *hook, struct erg_error *err)
{
    const struct trainer trainer = {2, 0, 7, 1, false, true, true};
    return train(hook, &trainer, err);
}

static int evaluate(struct erg_hook *hook, struct erg_error *err)
{
    const struct trainer trainer = {2, 0, 8, 1, true, false, false};
    return train(hook, &trainer, err);
}

static int split_backward(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, ERG_FORWARD, 0, 0, err) ||
           pass(hook, ERG_BACKWARD_WEIGHT, 0, 0, err);
}

static int stop_early(struct erg_hook *hook, struct erg_error *err)
{
    return erg_hook_step_begin(hook, err) || pass(hook, ERG_FORWARD, 0, 0, err) ||
           erg_hook_step_end(hook, err);
}

static void check_mistake(bool learned, const char *plan,
                          int (*wrong)(struct erg_hook *hook, struct erg_error *err),
                          const char *part)
{
    for (int strict = 1; strict >= 0; strict--) {
        struct erg_error err = {0};
        struct world world = world_begin("");
        struct erg_hook_options options = profiling();
        options.plan = plan;
        options.strict = strict;
        struct erg_hook *hook = open_hook(&options);
        if (learned)
            assert_ok(train(hook, &as_planned, &err), &err);
        else
            assert_int_equal(erg_hook_pause(hook), 0);
        assert_int_equal(await_lock(&world, 0), FULL_MHZ);
        if (!learned)
            assert_int_equal(erg_hook_resume(hook), 0);
        warnings = 0;
        int result = wrong(hook, &err);
        assert_int_equal(lock_of(&world, 1), 0);
        assert_int_equal(stats_of(hook).lease, ERG_HOOK_LEASE_ENDED);
        const char *said = strict ? err.message : stats_of(hook).trouble;
        if (!strstr(said, part))
            fail_msg("said \"%s\", expected \"%s\"", said, part);
        assert_true((result != 0) == strict);
        assert_int_equal(warnings, strict ? 0 : 1);
        assert_true(strict || stats_of(hook).order_errors == 1);
        assert_ok(erg_hook_close(hook, &err), &err);
        assert_int_equal(lock_of(&world, 1), 0);
        world_end(&world);
    }
}

static void wrong_orders_are_named(void **state)
{
    (void)state;
    check_mistake(true, NULL, swap_passes,
                  "making a profile: step 1, pass 1 of stage 0: forward pass of microbatch 2 came, "
                  "expected forward pass of microbatch 1 as in the first step");
    check_mistake(true, NULL, other_count, "as in the first step");
    check_mistake(true, NULL, evaluate, "an evaluation needs erg_hook_pause() before it");
    check_mistake(true, NULL, stop_early, "the end of the step came, expected forward pass of");
    check_mistake(true, NULL, split_backward, "zero-bubble");
    check_mistake(false, NULL, evaluate,
                  "the first step had 8 forward and 0 backward passes of chunk 0");
    check_mistake(false, SAMPLE, other_count, "the trainer runs 7 microbatches, the plan has 8");
}

static int fail_to_gather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    (void)mine;
    (void)all;
    (void)bytes;
    return -1;
}

/* Another rank of another stage, as the context says. */
static int gather_two(void *context, const void *mine, void *all, size_t bytes)
{
    const struct hook_profile_message *change = context;
    struct hook_profile_message *messages = all;
    memcpy(&messages[0], mine, bytes);
    memcpy(&messages[1], mine, bytes);
    messages[1].nonce++;
    messages[1].stage = change->stage;
    messages[1].count += change->count;
    messages[1].flags |= change->flags;
    return 0;
}

static void ranks_have_to_agree(void **state)
{
    (void)state;
    static struct hook_profile_message missing = {.stage = 0}, other = {.stage = 1, .count = 1},
                                       ended = {.stage = 1, .flags = 2};
    static const struct {
        erg_hook_exchange *exchange;
        void *context;
        int stage;
        const char *said;
    } cases[] = {
        {NULL, NULL, 1, "stage 1 of replica 0 is not alone, expected erg_hook_agree() before"},
        {fail_to_gather, NULL, 1, "after step 7: the caller's exchange failed"},
        {gather_two, &missing, 1, "none of 2 ranks is stage"},
        {gather_two, &other, 0, "rank 1 has version 1, stage 1, step 7, 1980 MHz, 1 chunks and 9"},
        {gather_two, &ended, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err = {0};
        struct world world = world_begin("");
        struct erg_hook_options options = profiling();
        struct trainer trainer = as_planned;
        options.stage = cases[i].stage;
        trainer.stage = (size_t)cases[i].stage;
        missing.stage = 2 - 2 * (int)(i == 4); /* there is no stage 0, nor 1 of a third */
        struct erg_hook *hook = open_hook(&options);
        if (cases[i].exchange)
            assert_ok(erg_hook_agree(hook, cases[i].exchange, cases[i].context, 2, &err), &err);
        int result = 0, steps = 0;
        for (; steps < 7 && result == 0; steps++)
            result = train(hook, &trainer, &err);
        assert_int_equal(result, cases[i].said ? -1 : 0);
        if (cases[i].said && !strstr(err.message, cases[i].said) &&
            !(i == 2 && strstr(err.message, "rank 1 has version 1, stage 2")))
            fail_msg("said \"%s\", expected \"%s\"", err.message, cases[i].said);
        if (!cases[i].said) {
            assert_int_equal(stats_of(hook).profile_over, 1);
            assert_non_null(strstr(stats_of(hook).trouble, "rank 1 sets no clocks any more"));
        }
        assert_int_equal(lock_of(&world, 1), 0);
        if (i > 0)
            assert_fails(erg_hook_agree(hook, gather_two, NULL, 2, &err), &err,
                         "expected it before the first one");
        assert_ok(erg_hook_close(hook, &err), &err);
        if (access(world.log, F_OK) == 0)
            world_end(&world);
        else {
            unlink(world.script);
            rmdir(world.folder);
        }
    }
}

/* As with FOLLOW. */
static void refusals_are_those_of_followers(void **state)
{
    (void)state;
    static const char *const scripts[] = {"gpu 1 nolocks\n",
                                          "gpu 1 fail TotalEnergyConsumption 3 0 1000\n"
                                          "gpu 1 fail field83 3 0 1000\n"
                                          "gpu 1 fail field186 3 0 1000\n"
                                          "gpu 1 fail GetTotalEnergyConsumption 3 0 1000\n"};
    static const char *const said[] = {"no permission, expected root", "no energy counter"};
    for (int i = 0; i < 2; i++) {
        struct world world = world_begin(scripts[i]);
        const struct erg_hook_options options = profiling();
        struct erg_hook *hook;
        struct erg_error err = {0};
        assert_fails(erg_hook_open(&hook, &options, &err), &err, said[i]);
        assert_int_equal(err.status, ERG_NO_DEVICE);
        unlink(world.script);
        unlink(world.log);
        rmdir(world.folder);
    }
}

static void late_pipelines_are_not_followed(void **state)
{
    (void)state;
    struct world world = world_begin("");
    struct erg_hook_options options = profiling();
    options.plan = SAMPLE;
    struct erg_hook *hook = open_hook(&options);
    struct erg_error err = {0};
    assert_fails(erg_hook_late(hook, 1.1, NULL, &err), &err, "this hook makes a profile");
    assert_ok(train(hook, &as_planned, &err), &err);
    assert_fails(erg_hook_profile_to(hook, "x.csv", &err), &err, "'x.csv' came after a step");
    assert_true(stats_of(hook).point == -1);
    close_hook(hook, &world);
    options.stage = 2;
    world = world_begin("");
    assert_fails(erg_hook_open(&hook, &options, &err), &err,
                 "stage 2 of a pipeline of 2, expected 0 to 1");
    unlink(world.script);
    rmdir(world.folder);
}

/* ---- kill -9 ---- */

static void a_killed_rank_leaves_no_lock(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 1 power 0=90\n");
    int told[2]; /* the child has locked its GPU, after what the open of a hook tries */
    char byte;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        const struct erg_hook_options options = profiling();
        struct erg_hook *hook;
        struct erg_error err = {0};
        int result = erg_hook_open(&hook, &options, &err);
        for (int step = 0; step < 5 && result == 0; step++)
            result = train(hook, &as_planned, &err);
        for (int i = 0; i < 20000 && result == 0 && lock_of(&world, 1) != FULL_MHZ; i++)
            pause_s(0.001);
        result = result || lock_of(&world, 1) != FULL_MHZ || write(told[1], "", 1) != 1;
        pause_s(result == 0 ? 1000 : 0);
        _exit(1);
    }
    close(told[1]);
    const bool locked = read(told[0], &byte, 1) == 1;
    int status;
    close(told[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_true(locked);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    for (int i = 0; i < 20000 && lock_of(&world, 1) != 0; i++)
        pause_s(0.001);
    assert_int_equal(lock_of(&world, 1), 0);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_values_are_left_out),
        cmocka_unit_test(wrong_orders_are_named),
        cmocka_unit_test(ranks_have_to_agree),
        cmocka_unit_test(refusals_are_those_of_followers),
        cmocka_unit_test(late_pipelines_are_not_followed),
        cmocka_unit_test(a_killed_rank_leaves_no_lock),
        cmocka_unit_test(an_early_close_keeps_the_measurements),
        cmocka_unit_test(a_profile_becomes_a_plan_that_saves),
    };
    erg_log_set_sink(&(struct erg_log_sink){.message = keep_warning});
    return cmocka_run_group_tests_name("hook_profile", tests, begin, remove_folder);
}
