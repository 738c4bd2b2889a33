/* Kernels recorded by CUPTI (trace/cupti.h), on a fake of its library. */
#define _DEFAULT_SOURCE /* setenv */
#include "check.h"

#include "base/clock.h"
#include "trace/cupti.h"

#ifdef ERGON_TEST_FAKE_CUPTI

static struct erg_cupti *open_fake(const char *words)
{
    struct erg_cupti *cupti;
    struct erg_error err;
    setenv("ERGON_CUPTI", ERGON_TEST_FAKE_CUPTI, 1);
    setenv("ERGON_FAKE_CUPTI", words, 1);
    assert_ok(erg_cupti_open(&cupti, &err), &err);
    return cupti;
}

static const struct erg_kernel_record *find(const struct erg_cupti_records *records,
                                            const char *name, uint64_t *number)
{
    const struct erg_kernel_record *found = NULL;
    for (size_t i = 0; i < records->count; i++)
        if (strcmp(records->items[i].name, name) == 0) {
            assert_null(found);
            found = &records->items[i];
            *number = records->numbers[i];
        }
    assert_non_null(found);
    return found;
}

static void test_records(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_cupti *cupti = open_fake("");
    struct erg_cupti_records records;
    uint64_t number;
    erg_cupti_push(cupti, 9); /* nothing records yet */
    erg_cupti_pop(cupti);
    int64_t begin_ns = erg_now_ns();
    assert_ok(erg_cupti_start(cupti, &err), &err);
    erg_cupti_push(cupti, 1);
    erg_cupti_push(cupti, 2); /* within it */
    erg_cupti_pop(cupti);
    erg_cupti_pop(cupti);
    assert_ok(erg_cupti_stop(cupti, &records, &err), &err);
    int64_t end_ns = erg_now_ns();
    assert_int_equal(records.count, 5); /* without the one that has not ended */
    for (size_t i = 0; i < records.count; i++) {
        assert_true(records.items[i].start_ns >= begin_ns);
        assert_true(records.items[i].end_ns >= records.items[i].start_ns);
        assert_true(records.items[i].end_ns <= end_ns);
        assert_int_equal(records.items[i].wait_ns, -1);
    }
    const struct erg_kernel_record *inner = find(&records, "fake_gemm_2", &number);
    assert_int_equal(number, 2);
    const struct erg_kernel_record *outer = find(&records, "fake_gemm_1", &number);
    assert_int_equal(number, 1);
    assert_true(outer->start_ns <= inner->start_ns && inner->end_ns <= outer->end_ns);
    assert_int_equal(outer->source, ERG_SOURCE_KERNEL);
    assert_int_equal(outer->stream, 7);
    assert_int_equal(outer->grid[0], 132);
    assert_int_equal(outer->grid[1], 2);
    assert_int_equal(outer->block[0], 256);
    const struct erg_kernel_record *copy = find(&records, "Memcpy DtoH", &number);
    assert_int_equal(number, 0);
    assert_int_equal(copy->source, ERG_SOURCE_MEMCPY);
    assert_int_equal(copy->bytes, 4096);
    assert_int_equal(copy->stream, 8);
    assert_int_equal(find(&records, "Memcpy PtoP", &number)->bytes, 512);
    assert_int_equal(find(&records, "Memset", &number)->source, ERG_SOURCE_MEMSET);
    assert_int_equal(records.overhead_ns, 2500);
    /* A second recording has nothing of the first. */
    assert_ok(erg_cupti_start(cupti, &err), &err);
    erg_cupti_push(cupti, 3);
    erg_cupti_pop(cupti);
    assert_ok(erg_cupti_stop(cupti, &records, &err), &err);
    assert_int_equal(records.count, 4);
    find(&records, "fake_gemm_3", &number);
    struct erg_cupti *other;
    assert_fails(erg_cupti_open(&other, &err), &err, "open in this process already");
    erg_cupti_close(cupti);
}

/* More than all buffers hold: the writer empties them meanwhile. The test is slower than the
 * writer, since it waits between pieces of one buffer. */
static void test_many(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_cupti *cupti = open_fake("kernels=2000");
    struct erg_cupti_records records;
    assert_ok(erg_cupti_start(cupti, &err), &err);
    for (uint64_t i = 0; i < 100; i++) { /* 49 MB */
        erg_cupti_push(cupti, 5 + i % 3);
        erg_cupti_pop(cupti);
        erg_sleep_ns(10000000);
    }
    assert_ok(erg_cupti_stop(cupti, &records, &err), &err);
    assert_int_equal(records.count, 100 * 2000 + 3);
    size_t of[3] = {0};
    for (size_t i = 0; i < records.count; i++)
        if (records.numbers[i])
            of[records.numbers[i] - 5]++;
    assert_int_equal(of[0], 34 * 2000);
    assert_int_equal(of[1], 33 * 2000);
    assert_int_equal(of[2], 33 * 2000);
    erg_cupti_close(cupti);
}

static void test_dropped(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_cupti *cupti = open_fake("drop=17");
    struct erg_cupti_records records;
    assert_ok(erg_cupti_start(cupti, &err), &err);
    assert_fails(erg_cupti_stop(cupti, &records, &err), &err,
                 "CUPTI dropped 17 records of kernels, since its 8 buffers of 4 MiB were full");
    setenv("ERGON_FAKE_CUPTI", "", 1); /* the next one is whole */
    assert_ok(erg_cupti_start(cupti, &err), &err);
    assert_ok(erg_cupti_stop(cupti, &records, &err), &err);
    erg_cupti_close(cupti);
    cupti = open_fake("refuse");
    assert_fails(erg_cupti_start(cupti, &err), &err, "another profiler is at work in this process");
    erg_cupti_close(cupti);
}

static void test_wrong_library(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_cupti *cupti;
    setenv("ERGON_CUPTI", ERGON_TEST_FAKE_CUPTI, 1);
    setenv("ERGON_FAKE_CUPTI", "version=120000", 1);
    assert_fails(erg_cupti_open(&cupti, &err), &err, "CUPTI here has version 120000, expected 13");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    setenv("ERGON_CUPTI", "/nonexistent/libcupti.so", 1);
    assert_fails(erg_cupti_open(&cupti, &err), &err, "opening libcupti.so.13: not found");
    setenv("ERGON_CUPTI", ERGON_TEST_FAKE_NVML, 1);
    assert_fails(erg_cupti_open(&cupti, &err), &err, "it has no function cuptiGetVersion");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_wrong_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    struct erg_error err;
    struct erg_cupti *cupti;
    puts("built without the header of CUPTI");
    return erg_cupti_open(&cupti, &err) == 0 || err.status != ERG_NO_DEVICE;
}

#endif
