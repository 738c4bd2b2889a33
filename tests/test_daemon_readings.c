/* What sensors say, asked of the daemon once and subscribed to. */
#include "daemon_world.h"

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
    assert_fails(erg_daemon_exchange(client, &request, &body, &err), &err, "whom a rule fits");
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
        cmocka_unit_test(test_readings_for_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
