/*
 * SM clocks by leases of the daemon, behind the same interface as direct locks: who is asked, that
 * both never meet on one GPU, and that the owner's end gives its GPUs back.
 */
#include "base/log.h"
#include "daemon_world.h"
#include "side_by_side.h"
#include "telemetry/clocks.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

static char warned[4000]; /* what the log was told, by any thread */
static pthread_mutex_t warned_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_warning(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    pthread_mutex_lock(&warned_lock);
    size_t length = strlen(warned);
    if (level == ERG_LOG_WARNING)
        snprintf(warned + length, sizeof warned - length, "%s\n", text);
    pthread_mutex_unlock(&warned_lock);
}

/* How often that was said. */
static int count_said(const char *part)
{
    int count = 0;
    pthread_mutex_lock(&warned_lock);
    for (const char *at = warned; (at = strstr(at, part)); at++)
        count++;
    pthread_mutex_unlock(&warned_lock);
    return count;
}

struct rig {
    struct daemon_world world;
    struct erg_gpus *gpus;
    struct erg_clocks *clocks;
    struct erg_error err;
};

static struct rig rig_begin(const char *rules)
{
    struct rig rig = {.world = daemon_world_begin("", rules)};
    start_daemon(&rig.world);
    assert_ok(erg_gpus_open(&rig.gpus, "all", &rig.err), &rig.err);
    setenv("ERGON_DAEMON", rig.world.socket, 1);
    assert_ok(erg_clocks_open(&rig.clocks, rig.gpus, &rig.err), &rig.err);
    return rig;
}

static void rig_end(struct rig *rig)
{
    unsetenv("ERGON_DAEMON");
    erg_gpus_close(rig->gpus);
    if (rig->world.daemon)
        stop_daemon(&rig->world);
    daemon_world_end(&rig->world);
}

static void test_lock_and_reset(void **state)
{
    (void)state;
    struct rig rig = rig_begin(ALL_FOR_ME);
    enum erg_clock_seen seen = ERG_CLOCK_BELOW;
    assert_ok(erg_clocks_lock(rig.clocks, 1, 1200, &seen, &rig.err), &rig.err);
    assert_int_equal(seen, ERG_CLOCK_HELD);
    assert_int_equal(setting_of(&rig.world, 1, 's').high, 1200);
    assert_ok(erg_clocks_set(rig.clocks, 1, 900, &rig.err), &rig.err);
    assert_int_equal(setting_of(&rig.world, 1, 's').high, 900);
    assert_ok(erg_clocks_reset(rig.clocks, 1, &rig.err), &rig.err);
    assert_int_equal(setting_of(&rig.world, 1, 's').high, 0);
    assert_ok(erg_clocks_try(rig.clocks, 2, &rig.err), &rig.err);
    assert_ok(erg_clocks_set(rig.clocks, 2, 1500, &rig.err), &rig.err);
    assert_fails(erg_clocks_lock(rig.clocks, 1, 1213, NULL, &rig.err), &rig.err,
                 "it has no such clock");
    assert_true(erg_clocks_guarded(rig.clocks));
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    await_setting(&rig.world, 2, 's', 0);
    rig_end(&rig);
}

/* Without a lease of the clock, which stays free. */
static void test_a_power_limit(void **state)
{
    (void)state;
    struct rig rig = rig_begin(ALL_FOR_ME);
    assert_ok(erg_clocks_limit(rig.clocks, 1, 400000, &rig.err), &rig.err);
    assert_ok(erg_clocks_limit(rig.clocks, 1, 500000, &rig.err), &rig.err);
    assert_int_equal(setting_of(&rig.world, 1, 'l').high, 500000);
    assert_int_equal(setting_of(&rig.world, 1, 's').lines, 0);
    assert_fails(erg_clocks_limit(rig.clocks, 1, 900000, &rig.err), &rig.err, "expected");
    assert_ok(erg_clocks_limit(rig.clocks, 1, 300000, &rig.err), &rig.err);
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    await_setting(&rig.world, 1, 'l', 700000);
    rig_end(&rig);
}

static void test_rights(void **state)
{
    (void)state;
    struct rig rig = rig_begin("rules:\n  - {user: '@me', may: [clock], gpus: '1', "
                               "clock_mhz: [600, 1200]}\n");
    assert_fails(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err,
                 "no rule lets user");
    assert_int_equal(rig.err.status, ERG_NO_DEVICE);
    assert_fails(erg_clocks_lock(rig.clocks, 1, 1500, NULL, &rig.err), &rig.err,
                 "expected 600 to 1200 MHz");
    assert_ok(erg_clocks_lock(rig.clocks, 1, 900, NULL, &rig.err), &rig.err);
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    rig_end(&rig);
}

/* Long after its time to live: somebody says every now and then that the owner is there. */
static void test_leases_are_kept(void **state)
{
    (void)state;
    struct rig rig = rig_begin(ALL_FOR_ME "lease: {ttl_s: 1.5}\n");
    assert_ok(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err);
    erg_sleep_ns(4000000000);
    assert_true(erg_clocks_guarded(rig.clocks));
    assert_int_equal(setting_of(&rig.world, 0, 's').high, 900);
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    rig_end(&rig);
}

static void await_unguarded(struct rig *rig)
{
    for (int i = 0; i < 2000 && erg_clocks_guarded(rig->clocks); i++)
        erg_sleep_ns(10000000);
    assert_false(erg_clocks_guarded(rig->clocks));
    for (int i = 0; i < 2000 && !count_said("\n"); i++) /* said right after */
        erg_sleep_ns(10000000);
    assert_fails(erg_clocks_set(rig->clocks, 0, 1200, &rig->err), &rig->err, "has ended");
}

static void test_the_daemon_ends(void **state)
{
    (void)state;
    struct rig rig = rig_begin(ALL_FOR_ME);
    assert_ok(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err);
    stop_daemon(&rig.world);
    assert_int_equal(setting_of(&rig.world, 0, 's').high, 0);
    await_unguarded(&rig);
    assert_int_equal(count_said("has taken a lease back (the daemon ends)"), 1);
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    rig_end(&rig);
}

/* Who changes clocks faster than the daemon lets him waits for it, and hears of that, once. */
static void test_changes_that_come_too_fast(void **state)
{
    (void)state;
    struct rig rig = rig_begin("rules:\n  - {user: '@me', may: [clock], gpus: all}\n"
                               "rate: {changes_per_s: 4, node_changes_per_s: 1000, burst: 1}\n");
    assert_ok(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err);
    for (int i = 0; i < 6; i++) {
        const unsigned clock_mhz = i % 2 ? 900 : 1200;
        assert_ok(erg_clocks_set(rig.clocks, 0, (int)clock_mhz, &rig.err), &rig.err);
        assert_int_equal(setting_of(&rig.world, 0, 's').high, clock_mhz);
    }
    assert_int_equal(count_said("a change of the clock of GPU 0 waited for "), 1);
    assert_int_equal(count_said("which limits the rate of changes (logged once)"), 1);
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    rig_end(&rig);
}

static void test_a_lease_that_is_revoked(void **state)
{
    (void)state;
    struct rig rig = rig_begin(ALL_FOR_ME);
    assert_ok(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err);
    assert_ok(erg_clocks_lock(rig.clocks, 1, 900, NULL, &rig.err), &rig.err);
    write_rules(&rig.world, "rules:\n  - {user: '@me', may: [clock], gpus: '1'}\n");
    kill(rig.world.daemon, SIGHUP);
    await_setting(&rig.world, 0, 's', 0);
    await_unguarded(&rig);
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    await_setting(&rig.world, 1, 's', 0);
    rig_end(&rig);
}

static void test_the_owner_is_killed(void **state)
{
    (void)state;
    struct rig rig = rig_begin(ALL_FOR_ME);
    int ends[2];
    char byte;
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t owner = fork();
    if (owner == 0) {
        if (erg_clocks_open(&rig.clocks, rig.gpus, &rig.err) != 0 ||
            erg_clocks_lock(rig.clocks, 3, 900, NULL, &rig.err) != 0)
            _exit(1);
        (void)!write(ends[1], "L", 1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(setting_of(&rig.world, 3, 's').high, 900);
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    await_setting(&rig.world, 3, 's', 0);
    close(ends[0]);
    rig_end(&rig);
}

/* Of a direct lock and a lease of one GPU the second is refused, whichever it is. */
static void test_direct_locks_and_leases(void **state)
{
    (void)state;
    struct rig rig = rig_begin(ALL_FOR_ME);
    struct erg_clocks *direct;
    setenv("ERGON_DAEMON", "none", 1);
    assert_ok(erg_clocks_open(&direct, rig.gpus, &rig.err), &rig.err);
    assert_ok(erg_clocks_lock(direct, 0, 1500, NULL, &rig.err), &rig.err);
    assert_fails(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err,
                 "another run of ergon locks those of GPU 0");
    assert_int_equal(setting_of(&rig.world, 0, 's').high, 1500);
    assert_ok(erg_clocks_lock(rig.clocks, 1, 900, NULL, &rig.err), &rig.err);
    assert_fails(erg_clocks_lock(direct, 1, 1500, NULL, &rig.err), &rig.err,
                 "another run of ergon locks those of GPU 1");
    assert_int_equal(setting_of(&rig.world, 1, 's').high, 900);
    assert_ok(erg_clocks_close(direct, &rig.err), &rig.err);
    assert_ok(erg_clocks_lock(rig.clocks, 0, 900, NULL, &rig.err), &rig.err);
    assert_ok(erg_clocks_close(rig.clocks, &rig.err), &rig.err);
    await_setting(&rig.world, 0, 's', 0);
    rig_end(&rig);
}

static void test_permission_per_gpu(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("gpu 0 nolocks\n", ALL_FOR_ME);
    struct erg_gpus *gpus;
    struct erg_clocks *clocks;
    struct erg_error err;
    assert_ok(erg_gpus_open(&gpus, "all", &err), &err);
    setenv("ERGON_DAEMON", "/nonexistent/ergond.sock", 1);
    assert_fails(erg_clocks_open(&clocks, gpus, &err), &err,
                 "connecting to the daemon at '/nonexistent/ergond.sock'");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    setenv("ERGON_DAEMON", "none", 1);
    assert_ok(erg_clocks_open(&clocks, gpus, &err), &err);
    assert_fails(erg_clocks_lock(clocks, 0, 900, NULL, &err), &err, "no permission");
    assert_null(strstr(err.message, "daemon"));
    assert_ok(erg_clocks_close(clocks, &err), &err);
    unsetenv("ERGON_DAEMON");
    if (access(ERG_WIRE_DEFAULT_SOCKET, F_OK) != 0) {
        assert_ok(erg_clocks_open(&clocks, gpus, &err), &err);
        assert_fails(erg_clocks_lock(clocks, 0, 900, NULL, &err), &err, "no permission");
        assert_non_null(strstr(err.message, "connecting to the daemon at '/run/ergon"));
        assert_int_equal(err.status, ERG_NO_DEVICE);
        assert_ok(erg_clocks_close(clocks, &err), &err);
    }
    erg_gpus_close(gpus);
    daemon_world_end(&world);
}

/* Who listens there is neither root nor this user. */
static void test_a_socket_of_another_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("[  NOTE  ] skipped: only root can be another user first\n");
        skip();
    }
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    struct erg_error err;
    int ends[2];
    char byte;
    memcpy(address.sun_path, world.socket, strlen(world.socket));
    assert_int_equal(chmod(world.folder, 0777), 0);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t listens = fork();
    if (listens == 0) {
        int file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        /* Root as the client comes through whatever the mode of the socket. */
        if (setuid(1000) != 0 || bind(file, (struct sockaddr *)&address, sizeof address) != 0 ||
            listen(file, 5) != 0)
            _exit(1);
        (void)!write(ends[1], "L", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    int result = erg_daemon_connect(&client, world.socket, &hello, &err);
    kill(listens, SIGKILL);
    waitpid(listens, NULL, 0);
    assert_int_equal(result, -1);
    assert_non_null(strstr(err.message, "another user listens there, expected root"));
    close(ends[0]);
    close(ends[1]);
    daemon_world_end(&world);
}

int main(void)
{
    erg_log_set_sink(&(struct erg_log_sink){.message = keep_warning});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock_and_reset),
        cmocka_unit_test(test_a_power_limit),
        cmocka_unit_test(test_rights),
        cmocka_unit_test(test_leases_are_kept),
        cmocka_unit_test(test_the_daemon_ends),
        cmocka_unit_test(test_changes_that_come_too_fast),
        cmocka_unit_test(test_a_lease_that_is_revoked),
        cmocka_unit_test(test_the_owner_is_killed),
        cmocka_unit_test(test_direct_locks_and_leases),
        cmocka_unit_test(test_permission_per_gpu),
        cmocka_unit_test(test_a_socket_of_another_user),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
