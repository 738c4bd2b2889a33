/*
 * No end of the owner of a clock lock or power limit leaves a GPU locked or limited. The owners are
 * this program again, started with the way of their end.
 */
#include "fake_clocks.h"
#include "side_by_side.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* The guardian works after its owner's end; a lock that stays for 20 s has been forgotten. */
static void wait_for_unlocked(const struct world *world, int gpu)
{
    for (int i = 0; i < 2000 && lock_of(world, gpu) != 0; i++)
        pause_s(0.01);
    assert_int_equal(lock_of(world, gpu), 0);
}

/* ---- the owner's part ---- */

static void *churn(void *unused)
{
    (void)unused;
    for (;;)
        free(malloc(1 + (size_t)rand() % 4096));
    return NULL;
}

static struct erg_clocks *owned; /* in sight of the leak checker to the end */
static struct erg_gpus *owned_gpus;

/* Locks, says so, and ends as told. */
static int be_owner(const char *end)
{
    struct erg_error err = {0};
    pthread_t thread;
    for (int i = 0; i < 4 && strcmp(end, "threads") == 0; i++)
        if (pthread_create(&thread, NULL, churn, NULL) != 0)
            return 9;
    if (erg_gpus_open(&owned_gpus, "all", &err) != 0 ||
        erg_clocks_open(&owned, owned_gpus, &err) != 0 ||
        erg_clocks_lock(owned, 0, 1200, NULL, &err) != 0 ||
        erg_clocks_lock(owned, 1, 900, NULL, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 8;
    }
    if (strcmp(end, "limit") == 0 && (erg_clocks_limit(owned, 0, 400000, &err) != 0 ||
                                      erg_clocks_limit(owned, 0, 450000, &err) != 0))
        return 8;
    if (strcmp(end, "child") == 0 && fork() == 0) { /* it holds what the owner had open */
        close(STDOUT_FILENO);
        pause_s(60);
        _exit(0);
    }
    if (write(STDOUT_FILENO, "L", 1) != 1)
        return 7;
    if (strcmp(end, "return") == 0)
        return 3;
    if (strcmp(end, "abort") == 0)
        abort();
    if (strcmp(end, "exec") == 0)
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
    for (;;)
        pause();
}

/* ---- the ends ---- */

/* Starts an owner in a process group of its own and waits until it has locked. */
static pid_t start_owner(const struct world *world, const char *end)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t owner = fork();
    if (owner == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test_clocks_end", end, (char *)NULL);
        _exit(6);
    }
    assert_true(owner > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    if (strcmp(end, "return") != 0 && strcmp(end, "abort") != 0 && strcmp(end, "exec") != 0) {
        assert_int_equal(lock_of(world, 0), 1200);
        assert_int_equal(lock_of(world, 1), 900);
    }
    return owner;
}

/* Ends an owner with a signal, or lets it end (0), and sees both GPUs unlocked by the guardian. */
static void check_end(const char *end, int signal_number, bool group)
{
    struct world world = world_begin("");
    pid_t owner = start_owner(&world, end);
    int status = 0;
    if (signal_number)
        assert_int_equal(kill(group ? -owner : owner, signal_number), 0);
    if (strcmp(end, "exec") != 0) { /* that one lives on as another program */
        assert_int_equal(waitpid(owner, &status, 0), owner);
        if (signal_number)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signal_number);
    }
    if (strcmp(end, "return") == 0)
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    wait_for_unlocked(&world, 0);
    wait_for_unlocked(&world, 1);
    assert_int_not_equal(latest_of(&world, 0).process, owner);
    if (strcmp(end, "exec") == 0) {
        assert_int_equal(waitpid(owner, &status, WNOHANG), 0);
        kill(owner, SIGKILL);
        waitpid(owner, &status, 0);
    }
    if (strcmp(end, "child") == 0)
        assert_int_equal(kill(-owner, SIGKILL), 0); /* it was there to the end */
    world_end(&world);
}

static void test_normal_exit(void **state)
{
    (void)state;
    check_end("return", 0, false);
}

static void test_signals(void **state)
{
    (void)state;
    check_end("wait", SIGTERM, false);
    check_end("wait", SIGINT, true); /* as Ctrl-C does it */
    check_end("wait", SIGHUP, true);
    check_end("wait", SIGKILL, false);
    check_end("wait", SIGKILL, true);
}

static void test_crash(void **state)
{
    (void)state;
    check_end("abort", 0, false);
    check_end("wait", SIGQUIT, true);
}

static void test_owner_with_threads(void **state)
{
    (void)state;
    check_end("threads", SIGKILL, false);
}

static void test_owner_with_a_surviving_child(void **state)
{
    (void)state;
    check_end("child", SIGKILL, false);
}

static void test_owner_that_becomes_another_program(void **state)
{
    (void)state;
    check_end("exec", 0, false);
}

/* GPU 0's driver hangs for 2 s where the guardian unlocks it; GPU 1 does not wait for that. */
static void test_a_gpu_that_hangs_delays_no_other(void **state)
{
    (void)state;
    struct world world = world_begin("gpu 0 hang ResetGpuLockedClocks 3 2\n");
    pid_t owner = start_owner(&world, "wait");
    pause_s(3.3);
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    wait_for_unlocked(&world, 0);
    assert_int_equal(lock_of(&world, 1), 0);
    assert_true(latest_of(&world, 1).line < latest_of(&world, 0).line);
    world_end(&world);
}

/* A limit goes back to what it was, which need not be the default. */
static void test_a_power_limit(void **state)
{
    (void)state;
    struct world world = world_begin("gpu * limits 200 700 700\ngpu * limit 650\n");
    pid_t owner = start_owner(&world, "limit");
    assert_int_equal(limit_of(&world, 0), 450);
    assert_int_equal(limit_of(&world, 1), 0);
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    wait_for_unlocked(&world, 0);
    for (int i = 0; i < 2000 && limit_of(&world, 0) != 650; i++)
        pause_s(0.01);
    assert_int_equal(limit_of(&world, 0), 650);
    assert_int_equal(limit_of(&world, 1), 0);
    world_end(&world);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return be_owner(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal_exit),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_crash),
        cmocka_unit_test(test_owner_with_threads),
        cmocka_unit_test(test_owner_with_a_surviving_child),
        cmocka_unit_test(test_owner_that_becomes_another_program),
        cmocka_unit_test(test_a_gpu_that_hangs_delays_no_other),
        cmocka_unit_test(test_a_power_limit),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
