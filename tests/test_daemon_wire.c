/* The daemon's packets: what is written is read, and no truncation of any message is taken for one.
 */
#include "check.h"
#include "telemetry/daemon_wire.h"

static struct erg_wire_request request_of(unsigned type)
{
    return (struct erg_wire_request){.type = type,
                                     .sequence = 4711,
                                     .lease = 0x1122334455667788,
                                     .metrics = 0x8000000000000003,
                                     .index = 5,
                                     .knob = ERG_KNOB_POWER,
                                     .ttl_ms = 30000,
                                     .low = 1200,
                                     .high = 1500,
                                     .flags = 3,
                                     .period_ms = 100,
                                     .job = 77,
                                     .uid = 1000,
                                     .gpus = 0x8000000000000001};
}

/* A copy of its own size, so that the sanitizer sees a read behind it. */
static enum erg_wire_status read_cut(const struct erg_wire_writer *writer, size_t count,
                                     struct erg_wire_request *request)
{
    unsigned char *copy = malloc(count ? count : 1);
    memcpy(copy, writer->bytes, count);
    enum erg_wire_status status = erg_wire_read_request(request, copy, count);
    free(copy);
    return status;
}

static void test_requests(void **state)
{
    (void)state;
    struct erg_wire_writer writer, again;
    struct erg_wire_request found;
    for (unsigned type = ERG_WIRE_HELLO; type < ERG_WIRE_TYPES; type++) {
        struct erg_wire_request request = request_of(type);
        erg_wire_write_request(&writer, &request);
        assert_int_equal(erg_wire_read_request(&found, writer.bytes, writer.count), ERG_WIRE_DONE);
        erg_wire_write_request(&again, &found);
        assert_int_equal(again.count, writer.count);
        assert_memory_equal(again.bytes, writer.bytes, writer.count);
        for (size_t count = 0; count < writer.count; count++) {
            assert_int_equal(read_cut(&writer, count, &found), ERG_WIRE_MALFORMED);
            struct erg_wire_writer shorter = writer;
            shorter.count = count;
            if (count >= ERG_WIRE_HEADER) { /* and with a header that agrees */
                erg_wire_end(&shorter);
                assert_int_equal(read_cut(&shorter, count, &found), ERG_WIRE_MALFORMED);
            }
        }
        erg_wire_put_u16(&writer, 0);
        erg_wire_end(&writer);
        assert_int_equal(read_cut(&writer, writer.count, &found), ERG_WIRE_MALFORMED);
    }
}

static void test_bytes_of_a_request(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {
        'E',  'R',  'G',  'D',  1,    0,    6,    0, 0x67, 0x12, 0,    0, 36, 0, 0, 0, 0x88, 0x77,
        0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xb0, 4, 0,    0,    0xdc, 5, 0,  0, 3, 0, 0,    0};
    struct erg_wire_writer writer;
    struct erg_wire_request request = request_of(ERG_WIRE_CLOCK);
    erg_wire_write_request(&writer, &request);
    assert_int_equal(writer.count, sizeof bytes);
    assert_memory_equal(writer.bytes, bytes, sizeof bytes);
}

static void test_headers(void **state)
{
    (void)state;
    struct erg_wire_writer writer;
    struct erg_wire_request found, request = request_of(99);
    erg_wire_write_request(&writer, &request); /* a type of tomorrow */
    erg_wire_put_u64(&writer, 1);
    erg_wire_end(&writer);
    assert_int_equal(erg_wire_read_request(&found, writer.bytes, writer.count), ERG_WIRE_DONE);
    assert_int_equal(found.type, 99);
    assert_int_equal(found.sequence, 4711);
    for (size_t i = 0; i < 6; i++) { /* magic and version */
        writer.bytes[i] ^= 1;
        assert_int_equal(erg_wire_read_request(&found, writer.bytes, writer.count),
                         ERG_WIRE_MALFORMED);
        writer.bytes[i] ^= 1;
    }
}

static bool read_body(unsigned type, struct erg_wire_reader *body)
{
    struct erg_wire_hello hello;
    struct erg_wire_gpu gpu;
    struct erg_wire_change change;
    return type == ERG_WIRE_HELLO ? erg_wire_read_hello(&hello, body)
           : type == ERG_WIRE_GPU ? erg_wire_read_gpu(&gpu, body)
                                  : erg_wire_read_change(&change, body);
}

static void test_answers(void **state)
{
    (void)state;
    static const unsigned types[] = {ERG_WIRE_HELLO, ERG_WIRE_GPU, ERG_WIRE_CLOCK};
    struct erg_wire_hello hello = {1, 1, 8, {1, 2, 3}, 123456789012345, "ergon 0.1.0"};
    struct erg_wire_gpu gpu = {.uuid = "GPU-1",
                               .name = "H200",
                               .rights = 6,
                               .least = {0, 345, 200000},
                               .most = {0, 1980, 700000},
                               .holders = {-1, -1, 1000, -1}};
    struct erg_wire_change change = {1, 2, 3, 1200};
    for (size_t i = 0; i < 3; i++) {
        struct erg_wire_writer writer;
        struct erg_wire_head head;
        struct erg_wire_reader body;
        erg_wire_begin_answer(&writer, types[i], 9, ERG_WIRE_DONE, -3, "well");
        if (i == 0)
            erg_wire_put_hello(&writer, &hello);
        else if (i == 1)
            erg_wire_put_gpu(&writer, &gpu);
        else
            erg_wire_put_change(&writer, &change);
        erg_wire_end(&writer);
        assert_true(erg_wire_read_head(&head, &body, writer.bytes, writer.count));
        assert_int_equal(head.type, types[i] | ERG_WIRE_ANSWER);
        assert_int_equal(head.driver, -3);
        assert_string_equal(head.text, "well");
        struct erg_wire_reader whole = body;
        assert_true(read_body(types[i], &body));
        if (i == 1) {
            struct erg_wire_gpu found;
            assert_true(erg_wire_read_gpu(&found, &whole));
            assert_string_equal(found.uuid, "GPU-1");
            assert_int_equal(found.most[ERG_KNOB_POWER], 700000);
            assert_int_equal(found.holders[ERG_KNOB_POWER], 1000);
            assert_int_equal(found.holders[ERG_KNOB_MEMORY], -1);
        }
        for (size_t count = 0; count < writer.count; count++) {
            struct erg_wire_writer cut = writer;
            cut.count = count;
            if (count >= ERG_WIRE_HEADER)
                erg_wire_end(&cut);
            unsigned char *copy = malloc(count ? count : 1);
            memcpy(copy, cut.bytes, count);
            bool read = erg_wire_read_head(&head, &body, copy, count) && read_body(types[i], &body);
            assert_false(read);
            free(copy);
        }
    }
}

/* What does not fit is left out, and the writer says so. */
static void test_a_full_packet(void **state)
{
    (void)state;
    struct erg_wire_writer writer;
    erg_wire_begin(&writer, ERG_WIRE_READING, 0);
    while (!writer.full)
        erg_wire_put_u64(&writer, 1);
    assert_int_equal(writer.count, ERG_WIRE_MOST);
    erg_wire_put_u16(&writer, 1);
    assert_int_equal(writer.count, ERG_WIRE_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),      cmocka_unit_test(test_bytes_of_a_request),
        cmocka_unit_test(test_headers),       cmocka_unit_test(test_answers),
        cmocka_unit_test(test_a_full_packet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
