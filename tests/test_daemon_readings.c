/* What sensors say, asked of the daemon once and subscribed to. */
#include "daemon_world.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int64_t value_of(struct erg_wire_reader *body, uint32_t gpu, unsigned metric)
{
    int64_t value = -1;
    for (uint32_t gpus = erg_wire_get_u32(body); gpus > 0; gpus--) {
        uint32_t index = erg_wire_get_u32(body);
        for (uint32_t count = erg_wire_get_u32(body); count > 0 && !body->broken; count--) {
            unsigned found = erg_wire_get_u16(body);
            (void)erg_wire_get_u16(body);
            int64_t now = (int64_t)erg_wire_get_u64(body);
            (void)erg_wire_get_u64(body);
            value = found == metric && index == gpu ? now : value;
        }
    }
    assert_false(body->broken);
    assert_int_equal(body->left, 0);
    return value;
}

static void test_readings(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("gpu 1 temperature 61 70\n", ALL_FOR_ME "telemetry: {period_ms: 20}\n");
    struct erg_wire_reader body;
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    struct erg_wire_request request = {.type = ERG_WIRE_READ,
                                       .index = UINT32_MAX,
                                       .metrics = UINT64_C(1) << ERG_METRIC_TEMPERATURE |
                                                  UINT64_C(1) << ERG_WIRE_ANSWERS};
    for (int i = 0; i < 500; i++, erg_sleep_ns(10000000)) {
        assert_ok(erg_daemon_exchange(client, &request, &body, &err), &err);
        if (value_of(&body, 1, ERG_METRIC_TEMPERATURE) == 61)
            break;
    }
    request.metrics = UINT64_MAX;
    assert_ok(erg_daemon_exchange(client, &request, &body, &err), &err);
    struct erg_wire_reader again = body;
    assert_int_equal(value_of(&body, 1, ERG_METRIC_TEMPERATURE), 61);
    assert_int_equal(value_of(&again, 7, ERG_WIRE_ANSWERS), 1);
    request.index = 8;
    assert_fails(erg_daemon_exchange(client, &request, &body, &err), &err, "there is no GPU 8");
    struct erg_wire_request subscribe = {.type = ERG_WIRE_SUBSCRIBE, .metrics = 1, .period_ms = 5};
    assert_fails(erg_daemon_exchange(client, &subscribe, NULL, &err), &err, "expected 20 ms");
    take_lease(client, 0, ERG_KNOB_POWER); /* its holder may */
    assert_ok(erg_daemon_exchange(client, &subscribe, NULL, &err), &err);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void send_request(int file, struct erg_wire_request request)
{
    struct erg_wire_writer writer;
    erg_wire_write_request(&writer, &request);
    assert_int_equal(send(file, writer.bytes, writer.count, 0), (ssize_t)writer.count);
}

/* The next packet of a type; what came before it is counted in *readings. */
static struct erg_wire_reader await_packet(int file, unsigned type, int *readings)
{
    static unsigned char bytes[ERG_WIRE_MOST];
    for (;;) {
        struct erg_wire_head head;
        struct erg_wire_reader body;
        ssize_t count = recv(file, bytes, sizeof bytes, 0);
        assert_true(count > 0 && erg_wire_read_head(&head, &body, bytes, (size_t)count));
        if (head.type == type) {
            assert_int_equal(type == ERG_WIRE_READING ? 0 : head.status, 0);
            return body;
        }
        *readings += head.type == ERG_WIRE_READING;
    }
}

/* Who gives its lease back is told as seldom as everybody else from then on. */
static void test_the_pace_of_a_subscriber(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME "telemetry: {period_ms: 100}\n");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int readings = 0;
    start_daemon(&world);
    const int file = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    memcpy(address.sun_path, world.socket, strlen(world.socket));
    assert_int_equal(connect(file, (struct sockaddr *)&address, sizeof address), 0);
    send_request(file, (struct erg_wire_request){.type = ERG_WIRE_LEASE, .knob = ERG_KNOB_POWER});
    struct erg_wire_reader body = await_packet(file, ERG_WIRE_LEASE | ERG_WIRE_ANSWER, &readings);
    const uint64_t lease = erg_wire_get_u64(&body);
    send_request(
        file, (struct erg_wire_request){.type = ERG_WIRE_SUBSCRIBE, .metrics = 1, .period_ms = 5});
    for (int i = 0; i < 20; i++)
        await_packet(file, ERG_WIRE_READING, &readings);
    send_request(file, (struct erg_wire_request){.type = ERG_WIRE_RELEASE, .lease = lease});
    await_packet(file, ERG_WIRE_RELEASE | ERG_WIRE_ANSWER, &readings);
    const int64_t begin_ns = erg_now_ns();
    readings = 0;
    erg_sleep_ns(1000000000);
    send_request(file, (struct erg_wire_request){.type = ERG_WIRE_HELLO});
    await_packet(file, ERG_WIRE_HELLO | ERG_WIRE_ANSWER, &readings);
    const double taken_s = 1e-9 * (double)(erg_now_ns() - begin_ns);
    if (readings > 10 * taken_s + 2)
        fail_msg("%d readings in %.2f s, expected one every 100 ms", readings, taken_s);
    assert_true(readings > 0);
    close(file);
    stop_daemon(&world);
    daemon_world_end(&world);
}

static void test_readings_for_members(void **state)
{
    (void)state;
    struct daemon_world world =
        daemon_world_begin("", "rules:\n  - {user: '@me', may: [clock], gpus: '3'}\n"
                               "telemetry: {who: members}\n");
    struct erg_wire_request request = {
        .type = ERG_WIRE_READ, .index = 3, .metrics = UINT64_C(1) << ERG_WIRE_ANSWERS};
    struct erg_wire_reader body;
    struct erg_error err;
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    assert_ok(erg_daemon_exchange(client, &request, &body, &err), &err);
    assert_int_equal(value_of(&body, 3, ERG_WIRE_ANSWERS), 1);
    request.index = 2;
    assert_fails(erg_daemon_exchange(client, &request, &body, &err), &err,
                 "users who match a rule");
    request.index = UINT32_MAX;
    assert_ok(erg_daemon_exchange(client, &request, &body, &err), &err);
    assert_int_equal(value_of(&body, 2, ERG_WIRE_ANSWERS), -1);
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    daemon_world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readings),
        cmocka_unit_test(test_the_pace_of_a_subscriber),
        cmocka_unit_test(test_readings_for_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
