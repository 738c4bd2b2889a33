/*
 * What clients can do to a daemon (H11, H13): packets that are none, too many connections,
 * subscribers that do not read, and a GPU whose driver hangs. It lives, and others do not notice.
 */
#define _DEFAULT_SOURCE /* setgroups */
#include "daemon_world.h"

#include "base/random.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/un.h>

static int connect_raw(const struct daemon_world *world)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 20};
    memcpy(address.sun_path, world->socket, strlen(world->socket));
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(file >= 0);
    assert_int_equal(setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(file, (struct sockaddr *)&address, sizeof address), 0);
    return file;
}

/* The status of the next answer; -1 where the connection was closed. */
static int next_status(int file)
{
    static unsigned char bytes[ERG_WIRE_MOST];
    struct erg_wire_head head;
    struct erg_wire_reader body;
    ssize_t count = recv(file, bytes, sizeof bytes, 0);
    if (count <= 0)
        return -1;
    assert_true(erg_wire_read_head(&head, &body, bytes, (size_t)count));
    return (int)head.status;
}

/* A packet that is no request is answered, and its connection closed. */
static void assert_refused(const struct daemon_world *world, const void *bytes, size_t count)
{
    int file = connect_raw(world);
    assert_int_equal(send(file, bytes, count, MSG_NOSIGNAL), count);
    assert_int_equal(next_status(file), ERG_WIRE_MALFORMED);
    assert_int_equal(next_status(file), -1);
    close(file);
}

static void test_truncations(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_wire_writer writer;
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    for (unsigned type = ERG_WIRE_HELLO; type < ERG_WIRE_TYPES; type++) {
        struct erg_wire_request request = {.type = type, .sequence = 1};
        erg_wire_write_request(&writer, &request);
        size_t whole = writer.count;
        for (writer.count = 1; writer.count < whole; writer.count++) {
            assert_refused(&world, writer.bytes, writer.count);
            if (writer.count >= ERG_WIRE_HEADER) { /* with a header that agrees */
                struct erg_wire_writer agrees = writer;
                erg_wire_end(&agrees);
                assert_refused(&world, agrees.bytes, agrees.count);
            }
        }
    }
    assert_ok(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_any_bytes(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    static unsigned char bytes[2 * ERG_WIRE_MOST];
    struct erg_wire_writer writer;
    struct erg_rng random;
    erg_rng_seed(&random, 3);
    start_daemon(&world);
    for (int i = 0; i < 500; i++) {
        struct erg_wire_request request = {.type = 1 + (unsigned)i % (ERG_WIRE_TYPES - 1),
                                           .index = (uint32_t)erg_rng_next(&random),
                                           .lease = erg_rng_next(&random)};
        erg_wire_write_request(&writer, &request);
        for (size_t at = erg_rng_below(&random, 4); at > 0; at--)
            writer.bytes[erg_rng_below(&random, writer.count)] = (unsigned char)i;
        int file = connect_raw(&world);
        assert_int_equal(send(file, writer.bytes, writer.count, MSG_NOSIGNAL), writer.count);
        close(file);
    }
    assert_refused(&world, bytes, sizeof bytes); /* longer than any message */
    assert_refused(&world, bytes, ERG_WIRE_MOST);
    int file = connect_raw(&world);
    struct erg_wire_request request = {.type = 4711};
    for (int i = 0; i < 3; i++) { /* what a later version may ask for */
        erg_wire_write_request(&writer, &request);
        assert_int_equal(send(file, writer.bytes, writer.count, MSG_NOSIGNAL), writer.count);
        assert_int_equal(next_status(file), ERG_WIRE_MALFORMED);
    }
    close(file);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_the_257th_connection(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_error err;
    int files[256], most = geteuid() == 0 ? 256 : 240; /* some are kept for root */
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world), *more;
    struct erg_wire_hello hello;
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    for (int i = 1; i < most; i++)
        files[i] = connect_raw(&world);
    assert_ok(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err);
    assert_fails(erg_daemon_connect(&more, world.socket, &hello, &err), &err,
                 "too many connections");
    close(files[1]);
    for (int i = 0; i < 1000 && erg_daemon_connect(&more, world.socket, &hello, &err) != 0; i++)
        erg_sleep_ns(2000000);
    erg_daemon_disconnect(more);
    for (int i = 2; i < most; i++)
        close(files[i]);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_connections_of_one_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("[  NOTE  ] skipped: only root can ask as another user\n");
        skip();
    }
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    int status;
    world.per_user = 16;
    assert_int_equal(chmod(world.folder, 0755), 0);
    start_daemon(&world);
    fflush(NULL);
    pid_t asks = fork();
    if (asks == 0) {
        struct erg_daemon_client *client;
        struct erg_wire_hello hello;
        struct erg_error err;
        int let_in = 0;
        if (setgroups(0, NULL) != 0 || setgid(100) != 0 || setuid(1000) != 0)
            _exit(100);
        while (let_in < 50 && erg_daemon_connect(&client, world.socket, &hello, &err) == 0)
            let_in++;
        _exit(let_in);
    }
    waitpid(asks, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 16);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* As user 1000: of three connections one holds a lease, one is subscribed, and the silent one makes
 * room for a fourth; then none does. */
static int crowd(const char *socket)
{
    struct erg_daemon_client *clients[5] = {NULL};
    struct erg_wire_hello hello;
    struct erg_error err;
    struct erg_wire_request hear = {.type = ERG_WIRE_SUBSCRIBE, .metrics = 1, .period_ms = 60000};
    struct erg_wire_request ask = {.type = ERG_WIRE_HELLO};
    for (int i = 0; i < 3; i++)
        if (erg_daemon_connect(&clients[i], socket, &hello, &err) != 0)
            return 1;
    uint64_t lease;
    if (erg_daemon_take_lease(clients[0], 0, ERG_KNOB_CLOCK, &lease, &ttl_ms, &err) != 0 ||
        erg_daemon_exchange(clients[1], &hear, NULL, &err) != 0)
        return 2;
    erg_sleep_ns(2 * 1000000000LL);
    if (erg_daemon_connect(&clients[3], socket, &hello, &err) != 0)
        return 3;
    if (erg_daemon_exchange(clients[2], &ask, NULL, &err) == 0 ||
        !strstr(err.message, "it was silent without a lease, and its place was needed"))
        return 4;
    struct erg_wire_request keep = {.type = ERG_WIRE_KEEP, .lease = lease};
    if (erg_daemon_exchange(clients[0], &keep, NULL, &err) != 0 ||
        erg_daemon_exchange(clients[1], &ask, NULL, &err) != 0 ||
        erg_daemon_exchange(clients[3], &ask, NULL, &err) != 0)
        return 5;
    if (erg_daemon_connect(&clients[4], socket, &hello, &err) == 0 ||
        !strstr(err.message, "there are too many connections already"))
        return 6;
    return 0;
}

static void test_a_silent_connection_makes_room(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("[  NOTE  ] skipped: only root can ask as another user\n");
        skip();
    }
    struct daemon_world world =
        daemon_world_begin("", "rules:\n  - {user: '1000', may: [clock], gpus: all}\n");
    int status;
    world.per_user = 3;
    world.idle_ms = 1000;
    assert_int_equal(chmod(world.folder, 0755), 0);
    start_daemon(&world);
    fflush(NULL);
    pid_t asks = fork();
    if (asks == 0) {
        bool other = setgroups(0, NULL) == 0 && setgid(100) == 0 && setuid(1000) == 0;
        _exit(other ? crowd(world.socket) : 100);
    }
    waitpid(asks, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* ---- how others fare ---- */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { CHANGES = 1000 };

/* Round trips of a client, of which it prints the times; they are no matter of pass or fail, since
 * this machine may do other things. */
static void change_often(struct erg_daemon_client *client, uint64_t lease, const char *when)
{
    static double taken_us[CHANGES];
    struct erg_error err;
    for (unsigned i = 0; i < CHANGES; i++) {
        int64_t begin_ns = erg_now_ns();
        unsigned clock = 600 + 15 * (i % 60);
        assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, clock, clock, NULL, &err), &err);
        taken_us[i] = 1e-3 * (double)(erg_now_ns() - begin_ns);
        erg_sleep_ns(500000);
    }
    qsort(taken_us, CHANGES, sizeof *taken_us, rising);
    print_message("round trips %s: median %.0f us, p99 %.0f us\n", when, taken_us[CHANGES / 2],
                  taken_us[CHANGES * 99 / 100]);
}

/* One who subscribes and never reads loses samples, and nobody else anything. */
static void test_a_slow_subscriber(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME "telemetry: {period_ms: 5}\n");
    struct erg_wire_request request = {
        .type = ERG_WIRE_SUBSCRIBE, .metrics = UINT64_MAX, .period_ms = 5};
    struct erg_wire_writer writer;
    static unsigned char bytes[ERG_WIRE_MOST];
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    change_often(client, lease, "alone");
    int files[4], small = 4096;
    for (int i = 0; i < 4; i++) {
        files[i] = connect_raw(&world);
        setsockopt(files[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        erg_wire_write_request(&writer, &request);
        assert_int_equal(send(files[i], writer.bytes, writer.count, MSG_NOSIGNAL), writer.count);
    }
    change_often(client, lease, "beside four subscribers that do not read");
    uint32_t lost = 0;
    for (int i = 0; i < 2000 && !lost; i++) {
        struct erg_wire_head head;
        struct erg_wire_reader body;
        ssize_t count = recv(files[0], bytes, sizeof bytes, 0);
        assert_true(count > 0 && erg_wire_read_head(&head, &body, bytes, (size_t)count));
        if (head.type == ERG_WIRE_READING)
            lost = erg_wire_get_u32(&body);
    }
    assert_true(lost > 0);
    for (int i = 0; i < 4; i++)
        close(files[i]);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static int64_t answers(struct erg_daemon_client *client, uint32_t gpu)
{
    struct erg_wire_request request = {
        .type = ERG_WIRE_READ, .index = gpu, .metrics = UINT64_C(1) << ERG_WIRE_ANSWERS};
    struct erg_wire_reader body;
    struct erg_error err;
    assert_ok(erg_daemon_exchange(client, &request, &body, &err), &err);
    for (int i = 0; i < 3; i++)
        (void)erg_wire_get_u32(&body); /* one GPU, its index, one metric */
    (void)erg_wire_get_u32(&body);
    return (int64_t)erg_wire_get_u64(&body);
}

static void test_a_gpu_that_hangs(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("gpu 0 hang SetGpuLockedClocks ./hangs 3600\n", ALL_FOR_ME);
    char hangs[96];
    snprintf(hangs, sizeof hangs, "%s/hangs", world.folder);
    struct erg_error err;
    write_file(hangs, "");
    uint64_t refused;
    start_daemon(&world);
    struct erg_daemon_client *stuck = connect_client(&world), *other = connect_client(&world);
    uint64_t lease = take_lease(stuck, 0, ERG_KNOB_CLOCK);
    uint64_t others = take_lease(other, 1, ERG_KNOB_CLOCK);
    struct erg_wire_request request = {
        .type = ERG_WIRE_CLOCK, .lease = lease, .low = 900, .high = 900};
    assert_ok(erg_daemon_exchange(stuck, &request, NULL, &err), &err);
    change_often(other, others, "beside a GPU that hangs");
    while (answers(other, 0) && setting_of(&world, 0, 's').lines == 0)
        erg_sleep_ns(10000000);
    assert_int_equal(setting_of(&world, 0, 's').lines, 0); /* it still hangs */
    assert_int_equal(answers(other, 1), 1);
    assert_fails(erg_daemon_take_lease(other, 0, ERG_KNOB_POWER, &refused, &ttl_ms, &err), &err,
                 "its driver hangs");
    /* Its holder ends meanwhile: the GPU comes back when the driver does. */
    erg_daemon_disconnect(stuck);
    erg_daemon_disconnect(other);
    await_setting(&world, 1, 's', 0);
    assert_int_equal(unlink(hangs), 0);
    while (setting_of(&world, 0, 's').lines < 2)
        erg_sleep_ns(10000000);
    assert_int_equal(setting_of(&world, 0, 's').high, 0);
    stop_daemon(&world);
    daemon_world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_the_257th_connection),
        cmocka_unit_test(test_connections_of_one_user),
        cmocka_unit_test(test_a_silent_connection_makes_room),
        cmocka_unit_test(test_a_slow_subscriber),
        cmocka_unit_test(test_a_gpu_that_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
