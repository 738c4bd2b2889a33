/* The daemon: leases and what they let set, pace, bounds, grants, its files (H10). */
#include "daemon_world.h"
#include "side_by_side.h"

static void test_a_lease_of_a_clock(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_wire_change change;
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 2, ERG_KNOB_CLOCK);
    assert_int_equal(setting_of(&world, 2, 's').lines, 0); /* a lease changes nothing */
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 1200, &change, &err), &err);
    struct setting found = setting_of(&world, 2, 's');
    assert_int_equal(found.low, 900);
    assert_int_equal(found.high, 1200);
    assert_true(change.received_ns <= change.begin_ns && change.begin_ns <= change.end_ns);
    assert_true(change.begin_ns <= found.at_ns && found.at_ns <= change.end_ns);
    assert_ok(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err);
    assert_ok(ask_for(client, ERG_WIRE_RESET, lease, &err), &err);
    assert_int_equal(setting_of(&world, 2, 's').high, 0);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 1500, 1500, NULL, &err), &err);
    assert_ok(ask_for(client, ERG_WIRE_RELEASE, lease, &err), &err);
    await_setting(&world, 2, 's', 0);
    assert_fails(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err, "holds no such lease");
    assert_int_equal(audit_lines(&world, "\"event\":\"lease\"", "\"least\":345,\"most\":1980", 1),
                     1);
    assert_int_equal(audit_lines(&world, "\"event\":\"end\"",
                                 "\"reason\":\"released\",\"changes\":2,\"superseded\":0,"
                                 "\"limited\":0,\"least\":900,\"most\":1500,\"mean\":1350.0",
                                 1),
                     1);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_power_and_memory(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("gpu 1 limit 650\n", ALL_FOR_ME);
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t power = take_lease(client, 1, ERG_KNOB_POWER);
    uint64_t memory = take_lease(client, 1, ERG_KNOB_MEMORY);
    assert_ok(change_knob(client, power, ERG_WIRE_POWER, 0, 450000, NULL, &err), &err);
    assert_ok(change_knob(client, memory, ERG_WIRE_CLOCK, 3201, 3201, NULL, &err), &err);
    assert_int_equal(setting_of(&world, 1, 'l').high, 450000);
    assert_int_equal(setting_of(&world, 1, 'm').high, 3201);
    assert_fails(change_knob(client, power, ERG_WIRE_POWER, 0, 199000, NULL, &err), &err,
                 "expected 200000 to 700000 mW");
    assert_fails(change_knob(client, memory, ERG_WIRE_POWER, 0, 450000, NULL, &err), &err,
                 "the lease is for the memory");
    erg_daemon_disconnect(client);
    await_setting(&world, 1, 'l', 650000); /* what it was */
    await_setting(&world, 1, 'm', 0);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_standing_values(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("gpu 0 limit 500\n", ALL_FOR_ME
                           "standing: {power_w: default, clock_mhz: 1755, persistence: on}\n");
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t power = take_lease(client, 0, ERG_KNOB_POWER);
    uint64_t clock = take_lease(client, 0, ERG_KNOB_CLOCK);
    assert_ok(change_knob(client, power, ERG_WIRE_POWER, 0, 400000, NULL, &err), &err);
    assert_ok(change_knob(client, clock, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    assert_int_equal(setting_of(&world, 0, 'p').high, 1);
    erg_daemon_disconnect(client);
    await_setting(&world, 0, 'l', 700000);
    await_setting(&world, 0, 's', 1755);
    stop_daemon(&world);
    assert_int_equal(setting_of(&world, 0, 'p').high, 0);
    daemon_world_end(&world);
}

static void test_busy_and_release(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("gpu 0 slow ResetGpuLockedClocks 0.2\n", ALL_FOR_ME);
    struct erg_error err;
    uint64_t second;
    start_daemon(&world);
    struct erg_daemon_client *a = connect_client(&world), *b = connect_client(&world);
    uint64_t lease = take_lease(a, 0, ERG_KNOB_CLOCK);
    assert_ok(change_knob(a, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    assert_fails(erg_daemon_take_lease(b, 0, ERG_KNOB_CLOCK, &second, &ttl_ms, &err), &err,
                 "the clock of GPU 0 is held by user");
    assert_ok(erg_daemon_take_lease(b, 0, ERG_KNOB_POWER, &second, &ttl_ms, &err), &err);
    assert_fails(ask_for(b, ERG_WIRE_KEEP, lease, &err), &err, "holds no such lease");
    assert_fails(change_knob(b, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err,
                 "holds no such lease");
    struct erg_wire_gpu gpu;
    assert_ok(erg_daemon_ask_gpu(b, 0, &gpu, &err), &err);
    assert_int_equal(gpu.holders[ERG_KNOB_CLOCK], geteuid());
    assert_int_equal(gpu.holders[ERG_KNOB_MEMORY], -1);
    assert_int_equal(gpu.rights, 0xe);
    /* Who asks while the driver takes it back waits for that. */
    assert_ok(ask_for(a, ERG_WIRE_RELEASE, lease, &err), &err);
    int64_t begin_ns = erg_now_ns();
    second = take_lease(b, 0, ERG_KNOB_CLOCK);
    assert_true(erg_now_ns() - begin_ns > 100000000);
    assert_int_equal(setting_of(&world, 0, 's').high, 0);
    assert_ok(change_knob(b, second, ERG_WIRE_CLOCK, 1200, 1200, NULL, &err), &err);
    erg_daemon_disconnect(a);
    assert_ok(ask_for(b, ERG_WIRE_KEEP, second, &err), &err);
    assert_int_equal(setting_of(&world, 0, 's').high, 1200);
    erg_daemon_disconnect(b);
    await_setting(&world, 0, 's', 0);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_bounds(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("", "rules:\n  - {user: '@me', may: [clock, power], gpus: '0,1', "
                               "clock_mhz: [600, 1500], power_w: [400, 2000]}\n");
    struct erg_error err;
    uint64_t none;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    static const struct {
        unsigned low, high;
        const char *says;
    } wrong[] = {{585, 900, "expected 600 to 1500 MHz"},
                 {900, 1515, "expected 600 to 1500 MHz"},
                 {1200, 900, "the lower one first"},
                 {900, 1213, "has no such clock"},
                 {0, UINT32_MAX, "expected 600 to 1500 MHz"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(
            change_knob(client, lease, ERG_WIRE_CLOCK, wrong[i].low, wrong[i].high, NULL, &err),
            &err, wrong[i].says);
    assert_int_equal(setting_of(&world, 0, 's').lines, 0);
    struct erg_wire_gpu gpu;
    assert_ok(erg_daemon_ask_gpu(client, 0, &gpu, &err), &err);
    assert_int_equal(gpu.least[ERG_KNOB_CLOCK], 600);
    assert_int_equal(gpu.most[ERG_KNOB_POWER], 700000);
    assert_fails(erg_daemon_take_lease(client, 2, ERG_KNOB_CLOCK, &none, &ttl_ms, &err), &err,
                 "no rule lets user");
    assert_fails(erg_daemon_take_lease(client, 0, ERG_KNOB_MEMORY, &none, &ttl_ms, &err), &err,
                 "no rule lets user");
    assert_fails(erg_daemon_take_lease(client, 8, ERG_KNOB_CLOCK, &none, &ttl_ms, &err), &err,
                 "there is no GPU 8");
    assert_fails(erg_daemon_take_lease(client, 0, 4, &none, &ttl_ms, &err), &err, "with a knob 4");
    assert_int_equal(audit_lines(&world, "\"event\":\"refused\"", "no rule allows it", 2), 2);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* Of many targets in a row the driver sees a few, the last one among them. */
static void test_the_pace(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("", "rules:\n  - {user: '@me', may: [clock], gpus: all}\n"
                               "rate: {changes_per_s: 4, burst: 2}\n");
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    int64_t begin_ns = erg_now_ns();
    for (unsigned i = 0; i < 99; i++) {
        struct erg_wire_request set = {
            .type = ERG_WIRE_CLOCK, .lease = lease, .low = 345 + 15 * i, .high = 345 + 15 * i};
        assert_ok(erg_daemon_exchange(client, &set, NULL, &err), &err);
    }
    assert_int_equal(erg_daemon_said(client), ERG_WIRE_LIMITED);
    /* Who waits for the answer gets it when the clock is set, and not before. */
    struct erg_wire_change change;
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 1830, 1830, &change, &err), &err);
    assert_int_equal(setting_of(&world, 0, 's').high, 1830);
    assert_true(change.received_ns < change.begin_ns && change.begin_ns <= change.end_ns);
    double taken_s = 1e-9 * (double)(erg_now_ns() - begin_ns);
    assert_true(setting_of(&world, 0, 's').lines <= 4 + (int)(4 * taken_s));
    erg_daemon_disconnect(client);
    await_setting(&world, 0, 's', 0);
    assert_int_equal(audit_lines(&world, "\"event\":\"end\"", "\"changes\":100", 1), 1);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* Who begins and ends leases over and over gets few of them, and delays nobody else. */
static void test_the_pace_of_others(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("", "rules:\n  - {user: '@me', may: [clock, power], gpus: all}\n"
                               "rate: {changes_per_s: 20, node_changes_per_s: 1000, burst: 2}\n");
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *busy = connect_client(&world), *other = connect_client(&world);
    unsigned taken = 0;
    const int64_t begin_ns = erg_now_ns();
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t lease;
        if (erg_daemon_take_lease(busy, 0, ERG_KNOB_CLOCK, &lease, &ttl_ms, &err) != 0) {
            assert_int_equal(erg_daemon_said(busy), ERG_WIRE_BUSY);
            assert_non_null(strstr(err.message, "begin too often, expected at most 20 a second"));
            continue;
        }
        struct erg_wire_request set = {
            .type = ERG_WIRE_CLOCK, .lease = lease, .low = 1200, .high = 1200};
        taken++;
        for (int again = 0; again < 20; again++)
            assert_ok(erg_daemon_exchange(busy, &set, NULL, &err), &err);
        assert_int_equal(ask_for(busy, ERG_WIRE_RELEASE, lease, &err), 0);
    }
    assert_true(taken <= 3 + 20e-9 * (double)(erg_now_ns() - begin_ns));
    uint64_t lease = take_lease(other, 1, ERG_KNOB_CLOCK);
    struct erg_wire_request set = {
        .type = ERG_WIRE_CLOCK, .lease = lease, .low = 1305, .high = 1305};
    assert_ok(erg_daemon_exchange(other, &set, NULL, &err), &err);
    assert_int_equal(erg_daemon_said(other), ERG_WIRE_DONE); /* not put off */
    await_setting(&world, 1, 's', 1305);
    assert_true(audit_lines(&world, "\"event\":\"lease\"", "", 1) <= (int)taken + 1);
    erg_daemon_disconnect(busy);
    erg_daemon_disconnect(other);
    await_setting(&world, 1, 's', 0);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* What waits in the driver's queue is replaced by what is newer, and its asker told. */
static void test_newest_wins(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("gpu 0 slow SetGpuLockedClocks 0.1\n", ALL_FOR_ME);
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    for (unsigned i = 0; i < 20; i++) { /* without waiting */
        struct erg_wire_request request = {
            .type = ERG_WIRE_CLOCK, .lease = lease, .low = 600 + 15 * i, .high = 600 + 15 * i};
        assert_ok(erg_daemon_exchange(client, &request, NULL, &err), &err);
    }
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 1500, 1500, NULL, &err), &err);
    assert_int_equal(setting_of(&world, 0, 's').high, 1500);
    assert_true(setting_of(&world, 0, 's').lines <= 4);
    erg_daemon_disconnect(client);
    await_setting(&world, 0, 's', 0);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_time_to_live(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME "lease: {ttl_s: 2}\n");
    struct erg_error err;
    uint64_t ended;
    const char *reason;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    for (int i = 0; i < 10; i++) { /* any packet keeps it */
        erg_sleep_ns(300000000);
        assert_ok(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err);
    }
    assert_null(erg_daemon_ended_lease(client, &ended));
    await_setting(&world, 0, 's', 0);
    reason = erg_daemon_ended_lease(client, &ended);
    assert_non_null(reason);
    assert_string_equal(reason, "its holder was silent for too long");
    assert_int_equal(ended, lease);
    assert_int_equal(audit_lines(&world, "\"event\":\"end\"", "its holder was silent", 1), 1);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_rules_are_read_again(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_error err;
    uint64_t ended;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    /* A file that is wrong, or others' to write, changes nothing. */
    write_rules(&world, "rules:\n  - {usr: '@me', may: [clock], gpus: all}\n");
    kill(world.daemon, SIGHUP);
    assert_int_equal(audit_lines(&world, "\"event\":\"config\"", "\"taken\":false", 1), 1);
    write_rules(&world, "rules: []\n");
    assert_int_equal(chmod(world.rules, 0620), 0);
    kill(world.daemon, SIGHUP);
    assert_int_equal(audit_lines(&world, "\"taken\":false", "has mode 0620", 1), 1);
    assert_ok(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err);
    /* The audit is opened anew: here it was moved away. */
    char moved[128];
    snprintf(moved, sizeof moved, "%s.1", world.audit);
    assert_int_equal(rename(world.audit, moved), 0);
    assert_int_equal(chmod(world.rules, 0600), 0);
    kill(world.daemon, SIGHUP);
    assert_int_equal(audit_lines(&world, "\"taken\":true", "\"rules\":0", 1), 1);
    await_setting(&world, 0, 's', 0);
    assert_string_equal(erg_daemon_ended_lease(client, &ended), "the rules have changed");
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_rules_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *rules, *says;
    } wrong[] = {
        {"rules:\n  - {may: [clock], gpus: all}\n",
         "expected one of the keys user, group and slurm"},
        {"rules:\n  - {user: nobody-knows, may: [clock], gpus: all}\n", "does not exist here"},
        {"rules:\n  - {user: '0', may: [clok], gpus: all}\n", "clok"},
        {"rules:\n  - {user: '0', may: [clock], gpus: '9'}\n", "there is no GPU 9"},
        {"rules:\n  - {user: '0', may: [clock], gpus: GPU-z}\n", "fits 0 GPUs"},
        {"rules:\n  - {user: '0', may: [clock], gpus: all, clock_mhz: [900, 600]}\n", "lower one"},
        {"rules:\n  - {slurm: granted, may: [clock], gpus: all}\n", "gpus: job"},
        {"standing: {power_w: much}\n", "standing.power_w"},
        {"rate: {burst: 0}\n", "rate.burst"},
        {"lease: {ttl_s: -1}\n", "lease.ttl_s"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct daemon_world world = daemon_world_begin("", wrong[i].rules);
        struct erg_daemon_options options = {
            .config = world.rules, .folder = world.folder, .proc = "/proc"};
        struct erg_error err;
        assert_fails(erg_daemon_run(&options, &err), &err, wrong[i].says);
        assert_int_equal(erg_daemon_restore(&options, &err), 0); /* needs no rules */
        daemon_world_end(&world);
    }
}

static void test_two_daemons(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_daemon_options options = {
        .config = world.rules, .folder = world.folder, .proc = "/proc"};
    struct erg_error err;
    start_daemon(&world);
    assert_fails(erg_daemon_run(&options, &err), &err, "another daemon holds it");
    assert_fails(erg_daemon_restore(&options, &err), &err, "another daemon holds it");
    erg_daemon_disconnect(connect_client(&world)); /* the first is as it was */
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* The end of the daemon is the end of its leases, and holders hear of it. */
static void test_the_end(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_error err;
    uint64_t ended;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 3, ERG_KNOB_CLOCK);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    stop_daemon(&world);
    assert_int_equal(setting_of(&world, 3, 's').high, 0);
    assert_string_equal(erg_daemon_ended_lease(client, &ended), "the daemon ends");
    assert_fails(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err, "has ended");
    erg_daemon_disconnect(client);
    daemon_world_end(&world);
}

/* A daemon that was killed and does not come back: "ergon daemon --restore". */
static void test_restore(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("gpu 5 limit 600\n", ALL_FOR_ME);
    struct erg_daemon_options options = {
        .config = world.rules, .folder = world.folder, .proc = "/proc"};
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t clock = take_lease(client, 4, ERG_KNOB_CLOCK);
    uint64_t power = take_lease(client, 5, ERG_KNOB_POWER);
    assert_ok(change_knob(client, clock, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    assert_ok(change_knob(client, power, ERG_WIRE_POWER, 0, 300000, NULL, &err), &err);
    kill(world.daemon, SIGKILL);
    waitpid(world.daemon, NULL, 0);
    assert_int_equal(setting_of(&world, 4, 's').high, 900);
    assert_ok(erg_daemon_restore(&options, &err), &err);
    assert_int_equal(setting_of(&world, 4, 's').high, 0);
    assert_int_equal(setting_of(&world, 5, 'l').high, 600000);
    int lines = setting_of(&world, 4, 's').lines;
    assert_ok(erg_daemon_restore(&options, &err), &err); /* nothing is left to do */
    assert_int_equal(setting_of(&world, 4, 's').lines, lines);
    erg_daemon_disconnect(client);

    /* A GPU that is not here may still be locked, and is not forgotten meanwhile. */
    char path[96];
    snprintf(path, sizeof path, "%s/leases", world.folder);
    write_file(path, "GPU-of-old clock 0\n");
    start_daemon(&world);
    client = connect_client(&world);
    take_lease(client, 4, ERG_KNOB_CLOCK);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    for (int again = 0; again < 2; again++) {
        assert_fails(erg_daemon_restore(&options, &err), &err,
                     "is not a lease of a present GPU: 'GPU-of-old clock 0'");
        assert_int_equal(err.status, ERG_NO_DEVICE);
    }
    assert_int_equal(unlink(path) || mkdir(path, 0700), 0);
    assert_fails(erg_daemon_restore(&options, &err), &err, "leases");
    assert_int_equal(rmdir(path), 0);
    assert_ok(erg_daemon_restore(&options, &err), &err);
    daemon_world_end(&world);
}

static void test_refusals_of_the_driver(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("gpu 0 nolocks\n"
                                                   "gpu 1 fail SetGpuLockedClocks 15\n",
                                                   ALL_FOR_ME);
    struct erg_error err;
    uint64_t ended, again;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    assert_fails(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err,
                 "setting the SM clock of GPU 0 (NVIDIA Fake H200): no permission");
    lease = take_lease(client, 1, ERG_KNOB_CLOCK);
    assert_fails(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err,
                 "has fallen off the bus");
    for (int i = 0; i < 500 && !erg_daemon_ended_lease(client, &ended); i++)
        erg_sleep_ns(10000000);
    assert_string_equal(erg_daemon_ended_lease(client, &ended), "the GPU has fallen off the bus");
    assert_fails(erg_daemon_take_lease(client, 1, ERG_KNOB_CLOCK, &again, &ttl_ms, &err), &err,
                 "is lost");
    erg_daemon_disconnect(client);
    kill(world.daemon, SIGKILL); /* it would try for 10 s to unlock GPU 0, which refuses */
    waitpid(world.daemon, NULL, 0);
    daemon_world_end(&world);
}

/* ---- grants ---- */

/* The daemon sees this process in a job, as a control group of Slurm would have it. */
static void be_in_job(struct daemon_world *world, unsigned job)
{
    char path[160], text[160];
    snprintf(world->proc, sizeof world->proc, "%s/proc", world->folder);
    mkdir(world->proc, 0755);
    snprintf(path, sizeof path, "%s/%ld", world->proc, (long)getpid());
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%ld/cgroup", world->proc, (long)getpid());
    snprintf(text, sizeof text, "0::/system.slice/n1_slurmstepd.scope/job_%u/step_0/user/task_0\n",
             job);
    write_file(path, text);
}

static int grant(struct erg_daemon_client *client, uint32_t job, uint32_t uid, uint64_t gpus,
                 struct erg_error *err)
{
    struct erg_wire_request request = {
        .type = gpus ? ERG_WIRE_GRANT : ERG_WIRE_REVOKE, .job = job, .uid = uid, .gpus = gpus};
    return erg_daemon_exchange(client, &request, NULL, err);
}

static void test_grants(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("", "rules:\n  - {slurm: granted, may: [clock], gpus: job}\n");
    struct erg_error err;
    uint64_t lease, ended;
    be_in_job(&world, 77);
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    assert_fails(erg_daemon_take_lease(client, 1, ERG_KNOB_CLOCK, &lease, &ttl_ms, &err), &err,
                 "job 77");
    assert_ok(grant(client, 77, geteuid() + 1, 2, &err), &err); /* another user's job */
    assert_fails(erg_daemon_take_lease(client, 1, ERG_KNOB_CLOCK, &lease, &ttl_ms, &err), &err,
                 "job 77");
    assert_ok(grant(client, 77, geteuid(), 2, &err), &err);
    assert_ok(grant(client, 78, geteuid(), 1, &err), &err);
    assert_fails(erg_daemon_take_lease(client, 0, ERG_KNOB_CLOCK, &lease, &ttl_ms, &err), &err,
                 "job 77");
    lease = take_lease(client, 1, ERG_KNOB_CLOCK);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    assert_fails(grant(client, 0, 1, 1, &err), &err, "the number of a job");
    assert_fails(grant(client, 79, 1, 256, &err), &err, "this machine, which has 8");
    assert_ok(grant(client, 77, 0, 0, &err), &err); /* the epilog */
    await_setting(&world, 1, 's', 0);
    assert_string_equal(erg_daemon_ended_lease(client, &ended), "the grant was revoked");
    assert_fails(erg_daemon_take_lease(client, 1, ERG_KNOB_CLOCK, &lease, &ttl_ms, &err), &err,
                 "job 77");
    /* Grants outlive a daemon that is killed. */
    assert_ok(grant(client, 77, geteuid(), 4, &err), &err);
    assert_int_equal(audit_lines(&world, "\"event\":\"grant\"", "", 4), 4);
    erg_daemon_disconnect(client);
    kill(world.daemon, SIGKILL);
    waitpid(world.daemon, NULL, 0);
    start_daemon(&world);
    client = connect_client(&world);
    take_lease(client, 2, ERG_KNOB_CLOCK);
    erg_daemon_disconnect(client);
    assert_int_equal(audit_lines(&world, "\"event\":\"revoke\"", "\"job\":77", 1), 1);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* A client that takes and gives back as fast as it can leaves pairs of lines, and how many more
 * there were. */
static void test_a_flood_of_leases(void **state)
{
    (void)state;
    enum { LEASES = 1000 };
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    for (int i = 0; i < LEASES; i++) {
        struct erg_wire_request release = {.type = ERG_WIRE_RELEASE,
                                           .lease = take_lease(client, 0, ERG_KNOB_CLOCK)};
        assert_ok(erg_daemon_exchange(client, &release, NULL, &err), &err);
    }
    take_lease(client, 1, ERG_KNOB_CLOCK); /* of another GPU there is its line */
    erg_daemon_disconnect(client);
    assert_int_equal(audit_lines(&world, "\"event\":\"end\"", "\"index\":1,", 1), 1);
    const int begun = audit_lines(&world, "\"event\":\"lease\"", "\"index\":0,", 1);
    assert_true(begun >= 20 && begun < LEASES);
    assert_int_equal(audit_lines(&world, "\"event\":\"end\"", "\"index\":0,", begun), begun);
    assert_true(audit_lines(&world, "\"lost\":", "", 1) >= 1);
    stop_daemon(&world);
    daemon_world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lease_of_a_clock),
        cmocka_unit_test(test_power_and_memory),
        cmocka_unit_test(test_standing_values),
        cmocka_unit_test(test_busy_and_release),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_the_pace),
        cmocka_unit_test(test_the_pace_of_others),
        cmocka_unit_test(test_newest_wins),
        cmocka_unit_test(test_time_to_live),
        cmocka_unit_test(test_rules_are_read_again),
        cmocka_unit_test(test_rules_that_are_wrong),
        cmocka_unit_test(test_two_daemons),
        cmocka_unit_test(test_the_end),
        cmocka_unit_test(test_restore),
        cmocka_unit_test(test_refusals_of_the_driver),
        cmocka_unit_test(test_grants),
        cmocka_unit_test(test_a_flood_of_leases),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
