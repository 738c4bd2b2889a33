/*
 * Clocks set from instruction to instruction, on the fake NVML: which the driver saw, and when. The
 * device is a number that the test counts up. Run with an argument this program is an owner of
 * clocks that waits to be killed.
 */
#include "fake_clocks.h"

#include "base/log.h"
#include "base/memory.h"
#include "fake_nvml.h"
#include "plan/plan.h"
#include "train/engine/clock_controller.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- what was said ---- */

static struct {
    pthread_mutex_t lock;
    unsigned count;
    char last[1200];
} warnings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_warning(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    if (level != ERG_LOG_WARNING)
        return;
    pthread_mutex_lock(&warnings.lock);
    warnings.count++;
    snprintf(warnings.last, sizeof warnings.last, "%s", text);
    pthread_mutex_unlock(&warnings.lock);
}

static unsigned count_warnings(void)
{
    pthread_mutex_lock(&warnings.lock);
    unsigned count = warnings.count;
    pthread_mutex_unlock(&warnings.lock);
    return count;
}

/* ---- a rank ---- */

struct rig {
    struct world world;
    struct erg_gpus *gpus;
    struct erg_clock_controller *controller; /* NULL: it could not be opened */
    uint64_t finished;
    struct erg_error err;
};

/* In place, since the controller looks at the rig's number. */
static void open_rig(struct rig *rig, const char *commands, bool required)
{
    *rig = (struct rig){.world = world_begin(commands)};
    warnings.count = 0;
    assert_ok(erg_gpus_open(&rig->gpus, "all", &rig->err), &rig->err);
    const struct erg_clock_controller_options options = {
        .gpus = rig->gpus, .gpu = 1, .finished = &rig->finished, .required = required};
    if (erg_clock_controller_open(&rig->controller, &options, &rig->err) != 0)
        rig->controller = NULL;
}

static void close_rig(struct rig *rig)
{
    assert_ok(erg_clock_controller_close(rig->controller, &rig->err), &rig->err);
    assert_int_equal(lock_of(&rig->world, 1), 0);
    assert_int_equal(lock_of(&rig->world, 0), 0);
    erg_gpus_close(rig->gpus);
    world_end(&rig->world);
}

static void ask(struct rig *rig, int clock_mhz, uint64_t due)
{
    assert_ok(erg_clock_controller_ask(rig->controller, clock_mhz, due, &rig->err), &rig->err);
}

static void finish(struct rig *rig, uint64_t finished)
{
    __atomic_store_n(&rig->finished, finished, __ATOMIC_RELEASE);
}

static struct erg_clock_numbers read_numbers(struct rig *rig)
{
    struct erg_clock_numbers numbers;
    erg_clock_controller_read(rig->controller, &numbers);
    return numbers;
}

/* Until so many of those asked for wait no more. */
static struct erg_clock_numbers await_done(struct rig *rig, uint64_t count)
{
    struct erg_clock_numbers numbers = read_numbers(rig);
    for (int i = 0; i < 20000 && numbers.set + numbers.skipped + numbers.superseded < count; i++) {
        pause_s(0.001);
        numbers = read_numbers(rig);
    }
    assert_int_equal(numbers.set + numbers.skipped + numbers.superseded, count);
    return numbers;
}

static struct erg_clock_numbers await_refusal(struct rig *rig)
{
    for (int i = 0; i < 20000 && !read_numbers(rig).refused; i++)
        pause_s(0.001);
    struct erg_clock_numbers numbers = read_numbers(rig);
    assert_true(numbers.refused);
    return numbers;
}

enum { MOST_CLOCKS = 64 };

/* The clocks that the driver was asked for, but for the trial at the beginning. */
static size_t clocks_seen(const struct rig *rig, int *clocks_mhz)
{
    FILE *log = fopen(rig->world.log, "r");
    char line[128], what[16];
    size_t count = 0;
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        int gpu, low;
        assert_int_equal(sscanf(line, "%*d %15s %d %d", what, &gpu, &low), 3);
        if (strcmp(what, "set") != 0)
            continue;
        assert_int_equal(gpu, 1);
        assert_true(count < MOST_CLOCKS);
        clocks_mhz[count++] = low;
    }
    fclose(log);
    assert_true(count > 0 && clocks_mhz[0] == 1980);
    memmove(clocks_mhz, clocks_mhz + 1, --count * sizeof *clocks_mhz);
    return count;
}

static void check_seen(const struct rig *rig, const int *clocks_mhz, size_t count)
{
    int seen_mhz[MOST_CLOCKS];
    assert_int_equal(clocks_seen(rig, seen_mhz), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(seen_mhz[i], clocks_mhz[i]);
}

/* ---- what the driver sees ---- */

/* All instructions of a stage are queued before the first one has ended. */
static void the_driver_sees_the_plan(void **state)
{
    (void)state;
    static struct rig rig;
    struct erg_plan *plan;
    int asked_mhz[MOST_CLOCKS], wanted_mhz[MOST_CLOCKS];
    size_t wanted = 0;
    open_rig(&rig, "", true);
    assert_ok(erg_plan_load(&plan, ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json", &rig.err),
              &rig.err);
    const struct erg_plan_method *method = &plan->methods[ERG_METHOD_ERGON];
    const struct erg_plan_point *point = &method->points[method->point_count / 2];
    size_t count = plan->schedule.per_stage;
    assert_true(count <= MOST_CLOCKS);
    finish(&rig, 5); /* of the steps before */
    for (size_t i = 0; i < count; i++)
        asked_mhz[i] = erg_plan_option(plan, point, i)->clock_mhz;
    for (size_t i = 1; i < count; i++)
        ask(&rig, asked_mhz[i], 5 + i);
    pause_s(0.01);
    check_seen(&rig, NULL, 0); /* nothing has ended */
    size_t changes = 0;
    for (size_t i = 1; i < count; i++) {
        finish(&rig, 5 + i);
        if (i == 1 || asked_mhz[i] != asked_mhz[i - 1])
            wanted_mhz[wanted++] = asked_mhz[i];
        changes += asked_mhz[i] != asked_mhz[i - 1];
        for (int k = 0; k < 20000 && read_numbers(&rig).set < wanted; k++)
            pause_s(0.001);
        check_seen(&rig, wanted_mhz, wanted); /* and none ahead of it */
    }
    assert_true(changes > 1);
    struct erg_clock_numbers numbers = await_done(&rig, count - 1);
    assert_int_equal(numbers.asked, count - 1);
    assert_int_equal(numbers.set, wanted);
    assert_int_equal(numbers.skipped, count - 1 - wanted);
    assert_int_equal(numbers.superseded, 0);
    assert_false(numbers.refused);
    assert_true(numbers.call_mean_s > 0 && numbers.call_worst_s >= numbers.call_mean_s);
    assert_true(numbers.late_mean_s >= 0 && numbers.late_worst_s >= numbers.late_mean_s);
    erg_plan_free(plan);
    close_rig(&rig);
    assert_int_equal(count_warnings(), 0);
}

static void nothing_happens_unasked(void **state)
{
    (void)state;
    static struct rig rig;
    open_rig(&rig, "", true);
    ask(&rig, 0, 0);
    ask(&rig, 0, 3);
    ask(&rig, 900, 4); /* never finished */
    struct erg_clock_numbers numbers = read_numbers(&rig);
    assert_int_equal(numbers.asked, 1);
    assert_int_equal(numbers.skipped, 0);
    assert_true(isnan(numbers.call_mean_s) && isnan(numbers.call_worst_s));
    assert_true(isnan(numbers.late_mean_s) && isnan(numbers.late_worst_s));
    check_seen(&rig, NULL, 0);
    close_rig(&rig);
}

static void the_latest_that_is_due_wins(void **state)
{
    (void)state;
    static struct rig rig;
    open_rig(&rig, "", true);
    ask(&rig, 900, 1);
    ask(&rig, 1200, 2);
    ask(&rig, 1500, 3);
    ask(&rig, 600, 4);
    finish(&rig, 3);
    struct erg_clock_numbers numbers = await_done(&rig, 3);
    assert_int_equal(numbers.set, 1);
    assert_int_equal(numbers.superseded, 2);
    check_seen(&rig, (int[]){1500}, 1);
    finish(&rig, 4);
    numbers = await_done(&rig, 4);
    assert_int_equal(numbers.superseded, 2);
    check_seen(&rig, (int[]){1500, 600}, 2);
    close_rig(&rig);
}

/* The driver takes longer than the instructions that end meanwhile. */
static void a_slow_driver_sets_fewer(void **state)
{
    (void)state;
    static struct rig rig;
    open_rig(&rig, "gpu 1 slow SetGpuLockedClocks 0.05\n", true);
    ask(&rig, 900, 0);
    await_done(&rig, 1);
    ask(&rig, 1200, 0);
    for (uint64_t i = 1; i <= 100; i++)
        ask(&rig, i % 2 ? 1500 : 1185, i); /* more than the ring first holds */
    finish(&rig, 100);
    struct erg_clock_numbers numbers = await_done(&rig, 102);
    assert_true(numbers.superseded >= 99);
    assert_true(numbers.call_worst_s > 0);
    assert_int_equal(lock_of(&rig.world, 1), 1185);
    close_rig(&rig);
}

static void equal_clocks_are_skipped(void **state)
{
    (void)state;
    static struct rig rig;
    open_rig(&rig, "", true);
    ask(&rig, 900, 0);
    await_done(&rig, 1);
    ask(&rig, 900, 1);
    ask(&rig, 0, 1); /* leaves it at 900 */
    ask(&rig, 900, 2);
    assert_int_equal(read_numbers(&rig).skipped, 2);
    ask(&rig, 1200, 3); /* there and back before anybody looks */
    ask(&rig, 900, 4);
    finish(&rig, 4);
    struct erg_clock_numbers numbers = await_done(&rig, 5);
    assert_int_equal(numbers.asked, 5);
    assert_int_equal(numbers.skipped, 3);
    assert_int_equal(numbers.superseded, 1);
    check_seen(&rig, (int[]){900}, 1);
    close_rig(&rig);
}

/* ---- refusals ---- */

/* A world where locks are refused from the beginning. */
static void check_refused_at_once(const char *commands, const char *part)
{
    static struct rig rig;
    open_rig(&rig, commands, false);
    assert_non_null(rig.controller);
    for (uint64_t i = 0; i < 4; i++)
        ask(&rig, i % 2 ? 900 : 1200, i);
    finish(&rig, 4);
    struct erg_clock_numbers numbers = read_numbers(&rig);
    assert_true(numbers.refused);
    assert_int_equal(numbers.asked, 4);
    assert_int_equal(numbers.set + numbers.skipped + numbers.superseded, 0);
    close_rig(&rig);
    assert_int_equal(count_warnings(), 1);
    assert_non_null(strstr(warnings.last, "clocks: refused: "));
    assert_non_null(strstr(warnings.last, part));
    assert_non_null(strstr(warnings.last, "; training continues at the GPU's own clocks"));

    open_rig(&rig, commands, true);
    assert_null(rig.controller);
    assert_int_equal(rig.err.status, ERG_NO_DEVICE);
    assert_non_null(strstr(rig.err.message, part));
    close_rig(&rig);
    assert_int_equal(count_warnings(), 0);
}

static void refusals_are_said_once_or_fail(void **state)
{
    (void)state;
    check_refused_at_once("gpu 1 nolocks\n", "no permission, expected root");
    check_refused_at_once("gpu 1 fail SetGpuLockedClocks 3\n", "not supported by this GPU");
    setenv("ERGON_GUARDIAN", "/nowhere/ergon-guardian", 1);
    check_refused_at_once("", "'/nowhere/ergon-guardian' cannot be run");
    unsetenv("ERGON_GUARDIAN");
}

static void a_device_without_a_counter_is_refused(void **state)
{
    (void)state;
    static struct rig rig;
    open_rig(&rig, "", false);
    struct erg_clock_controller_options options = {.gpus = rig.gpus, .required = true};
    struct erg_clock_controller *other;
    assert_fails(erg_clock_controller_open(&other, &options, &rig.err), &rig.err,
                 "does not report which instruction it has finished");
    assert_int_equal(rig.err.status, ERG_NO_DEVICE);
    options.required = false;
    assert_ok(erg_clock_controller_open(&other, &options, &rig.err), &rig.err);
    assert_ok(erg_clock_controller_ask(other, 900, 0, &rig.err), &rig.err);
    assert_ok(erg_clock_controller_close(other, &rig.err), &rig.err);
    assert_int_equal(count_warnings(), 1);
    close_rig(&rig);
}

/* Later calls fail with that sentence where clocks are required, else nothing is asked for. */
static void check_refused_later(struct rig *rig, bool required, const char *part)
{
    size_t seen = 0;
    int seen_mhz[MOST_CLOCKS];
    struct erg_clock_numbers numbers = await_refusal(rig);
    seen = clocks_seen(rig, seen_mhz);
    for (uint64_t i = 0; i < 3; i++)
        if (required) {
            assert_fails(erg_clock_controller_ask(rig->controller, 600, 10 + i, &rig->err),
                         &rig->err, part);
            assert_int_equal(rig->err.status, ERG_NO_DEVICE);
        } else {
            ask(rig, 600, 10 + i);
        }
    finish(rig, 20);
    pause_s(0.01);
    assert_int_equal(clocks_seen(rig, seen_mhz), seen);
    assert_int_equal(read_numbers(rig).set, numbers.set);
}

static void check_clock_that_is_not_there(bool required)
{
    static struct rig rig;
    open_rig(&rig, "", required);
    ask(&rig, 1200, 0);
    await_done(&rig, 1);
    ask(&rig, 1213, 0);
    check_refused_later(&rig, required, "the nearest are 1200 and 1215 MHz");
    assert_int_equal(lock_of(&rig.world, 1), 0);
    close_rig(&rig);
    assert_int_equal(count_warnings(), !required);
}

static void an_unsupported_clock_is_refused(void **state)
{
    (void)state;
    check_clock_that_is_not_there(false);
    check_clock_that_is_not_there(true);
}

/* From now on the driver of this process allows nothing; the guardian's still does. */
static void take_permission(const struct rig *rig)
{
    char script[256];
    void *library = dlopen(ERGON_TEST_FAKE_NVML, RTLD_NOW);
    assert_non_null(library);
    void *symbol = dlsym(library, "fake_nvml_script");
    bool (*set_script)(const char *);
    assert_non_null(symbol);
    memcpy(&set_script, &symbol, sizeof symbol);
    snprintf(script, sizeof script, "gpus 2\ntail %s\nlog %s\ngpu * nolocks\n",
             rig->world.folder + strlen(rig->world.folder) - 6, rig->world.log);
    assert_true(set_script(script));
    dlclose(library);
}

static void check_permission_that_ends(bool required)
{
    static struct rig rig;
    open_rig(&rig, "", required);
    ask(&rig, 1200, 0);
    ask(&rig, 900, 1);
    await_done(&rig, 1);
    take_permission(&rig);
    finish(&rig, 1);
    check_refused_later(&rig, required, "no permission, expected root");
    assert_int_equal(lock_of(&rig.world, 1), 1200); /* nor may it be unlocked */
    close_rig(&rig);                                /* but by the guardian */
    assert_int_equal(count_warnings(), !required);
}

static void a_revoked_permission_is_a_refusal(void **state)
{
    (void)state;
    check_permission_that_ends(false);
    check_permission_that_ends(true);
}

/* ---- ends ---- */

static void kill_guardian(const struct rig *rig)
{
    FILE *log = fopen(rig->world.log, "r");
    long guardian = 0;
    assert_int_equal(fscanf(log, "%ld", &guardian), 1); /* it unlocks before the first lock */
    fclose(log);
    assert_true(guardian > 1 && guardian != getpid());
    assert_int_equal(kill((pid_t)guardian, SIGKILL), 0);
}

static void check_guardian_killed(bool required)
{
    static struct rig rig;
    open_rig(&rig, "", required);
    ask(&rig, 1200, 0);
    ask(&rig, 900, 1); /* waits */
    await_done(&rig, 1);
    kill_guardian(&rig);
    for (int i = 0; i < 2000 && (lock_of(&rig.world, 1) != 0 || count_warnings() == 0); i++)
        pause_s(0.01);
    assert_int_equal(lock_of(&rig.world, 1), 0);
    finish(&rig, 1);
    check_refused_later(&rig, required, "guardian");
    check_seen(&rig, (int[]){1200}, 1);
    close_rig(&rig);
    assert_int_equal(count_warnings(), 1);
    assert_non_null(strstr(warnings.last, "the guardian of the clocks has ended"));
}

static void without_a_guardian_nothing_is_locked(void **state)
{
    (void)state;
    check_guardian_killed(false);
    check_guardian_killed(true);
}

/* Sets a clock, says so, and waits for its end. */
static int be_owner(void)
{
    static uint64_t finished;
    struct erg_clock_controller_options options = {
        .gpu = 1, .finished = &finished, .required = true};
    struct erg_clock_controller *controller;
    struct erg_clock_numbers numbers = {0};
    struct erg_error err = {0};
    if (erg_gpus_open(&options.gpus, "all", &err) != 0 ||
        erg_clock_controller_open(&controller, &options, &err) != 0 ||
        erg_clock_controller_ask(controller, 1200, 0, &err) != 0 ||
        erg_clock_controller_ask(controller, 900, 1, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 8;
    }
    while (numbers.set < 1) {
        pause_s(0.001);
        erg_clock_controller_read(controller, &numbers);
    }
    if (write(STDOUT_FILENO, "L", 1) != 1)
        return 7;
    for (;;)
        pause();
}

static void a_killed_process_leaves_no_lock(void **state)
{
    (void)state;
    struct world world = world_begin("");
    int ends[2], status;
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t owner = fork();
    if (owner == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test_clock_controller", "owner", (char *)NULL);
        _exit(6);
    }
    assert_true(owner > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    int owned_mhz = lock_of(&world, 1);
    assert_int_equal(kill(owner, SIGKILL), 0); /* before anything can fail */
    assert_int_equal(owned_mhz, 1200);
    assert_int_equal(waitpid(owner, &status, 0), owner);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < 2000 && lock_of(&world, 1) != 0; i++)
        pause_s(0.01);
    assert_int_equal(lock_of(&world, 1), 0);
    assert_int_not_equal(latest_of(&world, 1).process, owner);
    world_end(&world);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 2)
        return be_owner();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_driver_sees_the_plan),
        cmocka_unit_test(nothing_happens_unasked),
        cmocka_unit_test(the_latest_that_is_due_wins),
        cmocka_unit_test(a_slow_driver_sets_fewer),
        cmocka_unit_test(equal_clocks_are_skipped),
        cmocka_unit_test(refusals_are_said_once_or_fail),
        cmocka_unit_test(a_device_without_a_counter_is_refused),
        cmocka_unit_test(an_unsupported_clock_is_refused),
        cmocka_unit_test(a_revoked_permission_is_a_refusal),
        cmocka_unit_test(without_a_guardian_nothing_is_locked),
        cmocka_unit_test(a_killed_process_leaves_no_lock),
    };
    erg_log_set_sink(&(struct erg_log_sink){.message = note_warning});
    return cmocka_run_group_tests_name("clock_controller", tests, NULL, NULL);
}
