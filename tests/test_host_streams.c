/* The host's streams: a seed makes a missing wait a wrong number, and a wait makes it right. */
#include "check.h"
#include "device/host/host.h"

enum { SEEDS = 20 };

/* One stream writes a byte, another copies it. Returns the copy. */
static char copied(uint64_t seed, bool waits)
{
    struct erg_error err;
    struct erg_backend *host;
    assert_ok(erg_host_open(&host, &(struct erg_host_options){.seed = seed}, &err), &err);
    const struct erg_backend_table *table = host->table;
    struct erg_stream *writer, *reader;
    struct erg_event *written;
    void *memory;
    assert_ok(table->stream_new(host, &writer, false, &err), &err);
    assert_ok(table->stream_new(host, &reader, false, &err), &err);
    assert_ok(table->event_new(host, &written, false, &err), &err);
    assert_ok(table->alloc(host, &memory, 2, &err), &err);
    char *bytes = memory;
    memset(bytes, 0, 2);

    assert_ok(table->fill(host, bytes, 1, 1, writer, &err), &err);
    assert_ok(table->event_record(host, written, writer, &err), &err);
    if (waits)
        assert_ok(table->event_wait(host, written, reader, &err), &err);
    assert_ok(table->copy(host, bytes + 1, bytes, 1, reader, &err), &err);
    assert_ok(table->stream_wait(host, reader, &err), &err);
    char result = bytes[1];

    assert_ok(table->stream_wait(host, writer, &err), &err);
    assert_int_equal(bytes[0], 1);
    table->free(host, memory);
    table->event_free(host, written);
    table->stream_free(host, writer);
    table->stream_free(host, reader);
    table->close(host);
    return result;
}

static void wait_orders_streams(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        assert_int_equal(copied(seed, true), 1);
}

static void missing_wait_is_found(void **state)
{
    (void)state;
    assert_int_equal(copied(0, false), 1); /* as queued */
    int wrong = 0;
    for (uint64_t seed = 1; seed < SEEDS; seed++)
        wrong += copied(seed, false) == 0;
    assert_true(wrong > 0 && wrong < SEEDS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_orders_streams),
        cmocka_unit_test(missing_wait_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
