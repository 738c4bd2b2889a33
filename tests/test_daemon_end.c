/*
 * Whatever ends, GPUs come back (H8): holders of leases killed at random moments, also while a
 * child of theirs has the socket, and the daemon killed at random moments, whose successor takes
 * back what is lent before it lets anybody in.
 */
#include "daemon_world.h"

#include "base/random.h"

/* Every so many kills wait until a lock is there, so that a busy host has enough of them. */
enum { KILLS = 200, SEEN = 5, GPUS = 8 };

/* ---- a holder ---- */

/* Leases clock and limit of a GPU and changes them until it cannot. */
static int be_holder(const struct daemon_world *world, unsigned gpu, bool with_child)
{
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    struct erg_error err;
    uint64_t clock = 0, power = 0;
    if (erg_daemon_connect(&client, world->socket, &hello, &err) != 0)
        return 1;
    if (with_child && fork() == 0) { /* it holds what the owner had open */
        erg_sleep_ns(60000000000);
        _exit(0);
    }
    if (erg_daemon_take_lease(client, gpu, ERG_KNOB_CLOCK, &clock, &ttl_ms, &err) != 0 ||
        erg_daemon_take_lease(client, gpu, ERG_KNOB_POWER, &power, &ttl_ms, &err) != 0)
        return 2;
    for (unsigned i = 0;; i++) {
        struct erg_wire_request set = {.type = ERG_WIRE_CLOCK,
                                       .lease = clock,
                                       .low = 600 + i % 90 * 15,
                                       .high = 600 + i % 90 * 15,
                                       .flags = i % 3 ? ERG_WIRE_WAIT : 0};
        struct erg_wire_request limit = {.type = ERG_WIRE_POWER,
                                         .lease = power,
                                         .high = 300000 + i % 10 * 1000,
                                         .flags = ERG_WIRE_WAIT};
        if (erg_daemon_exchange(client, &set, NULL, &err) != 0 ||
            erg_daemon_exchange(client, &limit, NULL, &err) != 0)
            return 3;
        erg_sleep_ns(200000);
    }
}

static pid_t start_holder(const struct daemon_world *world, unsigned gpu, bool with_child)
{
    fflush(NULL);
    pid_t holder = fork();
    if (holder == 0) {
        setpgid(0, 0);
        _exit(be_holder(world, gpu, with_child));
    }
    setpgid(holder, holder);
    return holder;
}

/* ---- what must be true after an end ---- */

static void assert_given_back(const struct daemon_world *world, unsigned gpu)
{
    struct setting limit = setting_of(world, gpu, 'l');
    assert_int_equal(setting_of(world, gpu, 's').high, 0);
    if (limit.lines)
        assert_int_equal(limit.high, 650000);
}

/* Until a holder has locked the clock. */
static void await_lock(const struct daemon_world *world, unsigned gpu)
{
    for (int i = 0; setting_of(world, gpu, 's').high == 0; i++) {
        if (i == 10000)
            fail_msg("GPU %u is not locked after 20 s", gpu);
        erg_sleep_ns(2000000);
    }
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void test_holders_killed(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("gpu * limit 650\n", ALL_FOR_ME);
    struct erg_rng random;
    double taken_ms[KILLS];
    size_t count = 0;
    erg_rng_seed(&random, 1);
    start_daemon(&world);
    for (unsigned i = 0; i < KILLS; i++) {
        unsigned gpu = i % GPUS;
        pid_t holder = start_holder(&world, gpu, i % 3 == 0);
        if (i % SEEN == 0)
            await_lock(&world, gpu);
        erg_sleep_ns((int64_t)(erg_rng_uniform(&random) * 10e6));
        int64_t killed_ns = erg_now_ns();
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
        /* Whoever gets the knob next finds it as it was. */
        struct erg_daemon_client *client = connect_client(&world);
        for (enum erg_knob knob = ERG_KNOB_CLOCK; knob <= ERG_KNOB_POWER; knob++) {
            struct erg_error err;
            uint64_t lease;
            int tries = 0;
            while (erg_daemon_take_lease(client, gpu, knob, &lease, &ttl_ms, &err) != 0) {
                if (++tries > 10000)
                    fail_msg("after 20 s: %s", err.message);
                erg_sleep_ns(2000000);
            }
        }
        assert_given_back(&world, gpu);
        struct setting reset = setting_of(&world, gpu, 's');
        if (reset.lines && reset.at_ns > killed_ns)
            taken_ms[count++] = 1e-6 * (double)(reset.at_ns - killed_ns);
        erg_daemon_disconnect(client);
        kill(-holder, SIGKILL);
    }
    qsort(taken_ms, count, sizeof *taken_ms, rising);
    if (count)
        print_message("%zu of %d holders had a lock; from kill to reset: median %.2f ms, p95 %.2f, "
                      "worst %.2f\n",
                      count, KILLS, taken_ms[count / 2], taken_ms[count * 95 / 100],
                      taken_ms[count - 1]);
    assert_true(count > KILLS / 10);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_daemons_killed(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("gpu * limit 650\n", ALL_FOR_ME);
    struct erg_rng random;
    int locked = 0;
    erg_rng_seed(&random, 2);
    start_daemon(&world);
    for (unsigned i = 0; i < KILLS; i++) {
        pid_t holders[2];
        for (unsigned h = 0; h < 2; h++)
            holders[h] = start_holder(&world, (i + 4 * h) % GPUS, false);
        if (i % SEEN == 0)
            await_lock(&world, i % GPUS);
        erg_sleep_ns((int64_t)(erg_rng_uniform(&random) * 10e6));
        kill(world.daemon, SIGKILL);
        waitpid(world.daemon, NULL, 0);
        for (unsigned h = 0; h < 2; h++)
            locked += setting_of(&world, (i + 4 * h) % GPUS, 's').high != 0;
        start_daemon(&world);
        for (unsigned h = 0; h < 2; h++) {
            /* One that was too early for the first daemon may be the second one's client. */
            int status = 0;
            kill(holders[h], SIGKILL);
            waitpid(holders[h], &status, 0);
            if (WIFEXITED(status))
                assert_given_back(&world, (i + 4 * h) % GPUS);
            else
                await_setting(&world, (i + 4 * h) % GPUS, 's', 0);
        }
    }
    print_message("%d locks were left by %d daemons that were killed\n", locked, KILLS);
    assert_true(locked > KILLS / 20);
    stop_daemon(&world);
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        assert_given_back(&world, gpu);
    daemon_world_end(&world);
}

/* A reset that fails at first is tried again. */
static void test_a_reset_that_fails(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("gpu 0 fail ResetGpuLockedClocks 999 0 3\n", ALL_FOR_ME);
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    erg_daemon_disconnect(client);
    await_setting(&world, 0, 's', 0);
    assert_int_equal(audit_lines(&world, "\"event\":\"end\"", "\"reset\":\"done\"", 1), 1);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* What could not be taken back is not forgotten by the next lease: the limit of before that. It
 * takes ten seconds until the daemon gives up, during which the other tests run. */
static struct daemon_world left;
static char refuses[96]; /* while this file is there, the limit cannot be set */

static void test_a_limit_that_is_left_begins(void **state)
{
    (void)state;
    struct erg_error err;
    left = daemon_world_begin("gpu 0 limit 650\n"
                              "gpu 0 fail SetPowerManagementLimit 999 ./refuses\n",
                              ALL_FOR_ME);
    snprintf(refuses, sizeof refuses, "%s/refuses", left.folder);
    start_daemon(&left);
    struct erg_daemon_client *client = connect_client(&left);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_POWER);
    assert_ok(change_knob(client, lease, ERG_WIRE_POWER, 0, 400000, NULL, &err), &err);
    write_file(refuses, "");
    erg_daemon_disconnect(client);
}

static void test_a_limit_that_is_left_ends(void **state)
{
    (void)state;
    struct erg_error err;
    uint64_t lease;
    for (int i = 0; i < 10 && !audit_lines(&left, "\"event\":\"end\"", "power", 1); i++)
        ;
    assert_int_equal(unlink(refuses), 0);
    struct erg_daemon_client *client = connect_client(&left);
    assert_ok(erg_daemon_take_lease(client, 0, ERG_KNOB_POWER, &lease, &ttl_ms, &err), &err);
    const int failed = audit_lines(&left, "\"reset\":\"failed\"", "power", 0);
    assert_int_equal(failed, 1);
    assert_ok(ask_for(client, ERG_WIRE_RELEASE, lease, &err), &err);
    await_setting(&left, 0, 'l', 650000);
    erg_daemon_disconnect(client);
    stop_daemon(&left);
    daemon_world_end(&left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_limit_that_is_left_begins),
        cmocka_unit_test(test_holders_killed),
        cmocka_unit_test(test_daemons_killed),
        cmocka_unit_test(test_a_reset_that_fails),
        cmocka_unit_test(test_a_limit_that_is_left_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
