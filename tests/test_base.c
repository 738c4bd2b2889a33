/* base/: errors, text, UTF-8, random numbers, arenas, threads. */
#include "check.h"

#include "base/memory.h"
#include "base/quantity.h"
#include "base/random.h"
#include "base/text.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>

static void errors_climb_with_context(void **state)
{
    (void)state;
    struct erg_error err = {0};
    assert_int_equal(erg_fail(&err, ERG_INFEASIBLE, "needs %d GPUs", 7), -1);
    erg_fail_context(&err, "planning %s", "job.yaml");
    assert_string_equal(err.message, "planning job.yaml: needs 7 GPUs");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    assert_int_equal(erg_fail(NULL, ERG_FAILED, "nobody reads this"), -1);
}

#define FFFD "\xEF\xBF\xBD"

/* The examples of the Unicode Standard (tables 3-8 to 3-11), and bytes of other encodings. */
static const struct {
    const char *bytes, *valid;
} utf8_cases[] = {
    {"", ""},
    {"plain", "plain"},
    {"\xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF",
     "\xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF"},
    {"NVIDIA\xAE A100", "NVIDIA" FFFD " A100"},
    {"caf\xE9", "caf" FFFD},
    {"\xF8NVIDIA", FFFD "NVIDIA"},
    {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", /* overlong */
     FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
    {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", /* surrogates */
     FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
    {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", /* above U+10FFFF */
     FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B"},
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A"}, /* cut short */
    {"\xE2\x82", FFFD},
    {"\xF0\x9F\x98", FFFD},
    {"\xF0\x9F\xC3\xBC", FFFD "\xC3\xBC"},
};

static void bytes_become_valid_utf8(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof utf8_cases / sizeof *utf8_cases; i++) {
        const char *bytes = utf8_cases[i].bytes, *valid = utf8_cases[i].valid;
        struct erg_text text = {0};
        erg_text_add_utf8(&text, bytes, strlen(bytes));
        assert_string_equal(text.data, valid);
        assert_int_equal(erg_utf8_is_valid(bytes, strlen(bytes)), strcmp(bytes, valid) == 0);
        assert_true(erg_utf8_is_valid(valid, strlen(valid)));
        erg_text_release(&text);
    }
    /* In place: U+FFFD takes three bytes, and no character is cut in two. */
    char name[8] = "ab\xE9 cde", full[4] = {'a', 'b', 'c', 'd'}, cut[6] = "\xC3\xBC\xC3\xBC\xC3";
    erg_utf8_repair(name, sizeof name);
    assert_string_equal(name, "ab" FFFD " c");
    erg_utf8_repair(full, sizeof full);
    assert_string_equal(full, "abc");
    erg_utf8_repair(cut, sizeof cut);
    assert_string_equal(cut, "\xC3\xBC\xC3\xBC");
}

static void numbers_refuse_garbage(void **state)
{
    (void)state;
    double value = 0;
    assert_true(erg_parse_double("1.5e3", &value));
    assert_near(value, 1500, 0);
    const char *bad[] = {"",      " 1", "1 ",   "1,5",    "nan", "inf",
                         "1e999", "0x", "0x10", "-0X1p3", "one", NULL};
    for (size_t i = 0; bad[i]; i++)
        assert_false(erg_parse_double(bad[i], &value));
    const struct {
        const char *text;
        double bytes;
    } sizes[] = {{"6e10", 6e10},
                 {"60GiB", 60 * 0x1p30},
                 {"1.5TiB", 1.5 * 0x1p40},
                 {"64GB", 64e9},
                 {"500MiB", 500 * 0x1p20},
                 {"2KiB", 2048},
                 {"3kB", 3e3},
                 {"1MB", 1e6},
                 {"2TB", 2e12}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_true(erg_parse_bytes(sizes[i].text, &value));
        assert_near(value, sizes[i].bytes, 0);
    }
    const char *no_size[] = {"", "GiB", "60gib", "60 GiB", "60G", "1e308GB", "0x10", "nan", NULL};
    for (size_t i = 0; no_size[i]; i++)
        assert_false(erg_parse_bytes(no_size[i], &value));
    long whole = 0;
    assert_true(erg_parse_long("-42", &whole));
    assert_int_equal(whole, -42);
    assert_false(erg_parse_long("4.2", &whole));
    assert_false(erg_parse_long("99999999999999999999", &whole));
    assert_string_equal(erg_whole_number("4.2"), "a whole number");
    assert_string_equal(erg_whole_number("-99999999999999999999"),
                        "a whole number from -9223372036854775808 to 9223372036854775807");
}

static void closest_word(void **state)
{
    (void)state;
    const char *const keys[] = {"microbatch_size", "microbatches", "sequence", "model", NULL};
    assert_string_equal(erg_closest("microbatchs", keys), "microbatches");
    assert_string_equal(erg_closest("seqeunce", keys), "sequence");
    assert_string_equal(erg_closest("modle", keys), "model");
    assert_null(erg_closest("temperature", keys));
}

static void random_streams_repeat_and_have_the_right_moments(void **state)
{
    (void)state;
    struct erg_rng a, b;
    erg_rng_seed(&a, 7);
    erg_rng_seed(&b, 7);
    double sum = 0, squares = 0, hashed = 0, hashed_squares = 0;
    enum { DRAWS = 200000 };
    for (int i = 0; i < DRAWS; i++) {
        double x = erg_rng_normal(&a), y = erg_hash_normal(erg_hash_u64(11, (uint64_t)i));
        assert_near(erg_rng_normal(&b), x, 0);
        sum += x;
        squares += x * x;
        hashed += y;
        hashed_squares += y * y;
    }
    assert_near(sum / DRAWS, 0, 0.01);
    assert_near(squares / DRAWS, 1, 0.02);
    assert_near(hashed / DRAWS, 0, 0.01);
    assert_near(hashed_squares / DRAWS, 1, 0.02);
    size_t counts[6] = {0};
    for (int i = 0; i < 60000; i++)
        counts[erg_rng_below(&a, 6)]++;
    for (int i = 0; i < 6; i++)
        assert_near((double)counts[i], 10000, 500);
}

static void arena_gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    struct erg_arena arena = {0};
    for (size_t bytes = 1; bytes < 60000; bytes = bytes * 3 + 1) {
        unsigned char *memory = erg_arena_alloc(&arena, bytes);
        assert_int_equal((uintptr_t)memory % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(memory[i], 0);
        memset(memory, 0xff, bytes);
    }
    assert_string_equal(erg_arena_printf(&arena, "%s-%d", "stage", 3), "stage-3");
    erg_arena_release(&arena);
}

static int square_into(void *context, size_t i, struct erg_error *err)
{
    (void)err;
    ((size_t *)context)[i] = i * i;
    return 0;
}

static int fail_from_ten(void *context, size_t i, struct erg_error *err)
{
    atomic_fetch_add((atomic_int *)context, 1);
    return i >= 10 ? erg_fail(err, ERG_FAILED, "piece %zu", i) : 0;
}

static void parallel_for_runs_all_and_reports_the_first_failure(void **state)
{
    (void)state;
    size_t squares[1000] = {0};
    struct erg_error err = {0};
    assert_ok(erg_parallel_for(1000, 4, square_into, squares, &err), &err);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(squares[i], i * i);
    atomic_int ran = 0;
    assert_fails(erg_parallel_for(1000, 4, fail_from_ten, &ran, &err), &err, "piece 10");
    assert_true(ran >= 11 && ran < 30);
    assert_ok(erg_parallel_for(0, 4, fail_from_ten, &ran, &err), &err);
}

static int on_same_thread(void *context, size_t i, struct erg_error *err)
{
    (void)i, (void)err;
    return pthread_equal(*(pthread_t *)context, pthread_self()) ? 0 : -1;
}

static int go_parallel_again(void *context, size_t i, struct erg_error *err)
{
    (void)context, (void)i;
    pthread_t self = pthread_self();
    return erg_parallel_for(64, 0, on_same_thread, &self, err);
}

static void tasks_share_the_cores_they_are_on(void **state)
{
    (void)state;
    struct erg_error err = {0};
    assert_int_equal(erg_parallel_for(64, 4, go_parallel_again, NULL, &err), 0);
}

static void write_below(const char *root, const char *path, const char *text)
{
    char full[256], command[320];
    snprintf(full, sizeof full, "%s/%s", root, path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void quotas_of_control_groups(void **state)
{
    (void)state;
    char root[] = "/tmp/ergon-test-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    assert_true(isinf(erg_thread_quota(root))); /* no control groups at all */
    write_below(root, "proc/self/cgroup", "0::/a/b\n");
    write_below(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_true(isinf(erg_thread_quota(root)));
    write_below(root, "sys/fs/cgroup/a/cpu.max", "150000 100000\n"); /* of a group above */
    assert_near(erg_thread_quota(root), 1.5, 0);
    write_below(root, "sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_near(erg_thread_quota(root), 0.5, 0);
    /* A container sees its own group as the root, under the host's path. */
    write_below(root, "proc/self/cgroup", "0::/of/the/host\n");
    write_below(root, "sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_near(erg_thread_quota(root), 3, 0);
    write_below(root, "proc/self/cgroup", "7:memory:/x\n4:cpuacct,cpu:/jobs/1\n");
    assert_true(isinf(erg_thread_quota(root)));
    write_below(root, "sys/fs/cgroup/cpu/jobs/1/cpu.cfs_quota_us", "-1\n");
    write_below(root, "sys/fs/cgroup/cpu/jobs/1/cpu.cfs_period_us", "100000\n");
    assert_true(isinf(erg_thread_quota(root)));
    write_below(root, "sys/fs/cgroup/cpu/jobs/1/cpu.cfs_quota_us", "250000\n");
    assert_near(erg_thread_quota(root), 2.5, 0);
    assert_true(erg_thread_count() >= 1);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static void durations_are_digits(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "",        "-1:00:00", "+1:00:00", " 1:00:00", "1:-0:00",  "1:00: 0", "1:00:+0",
        "1:60:00", "1:00:60",  "1:00",     "1:00:00s", "1:00:000", "1::00",   "123456:00:00"};
    double seconds = -1;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (erg_parse_duration(refused[i], &seconds) || seconds != -1)
            fail_msg("\"%s\" is read as %g s", refused[i], seconds);
    assert_true(erg_parse_duration("11:30:00", &seconds) && seconds == 41400);
    assert_true(erg_parse_duration("1:2:3", &seconds) && seconds == 3723);
    assert_true(erg_parse_duration("99999:59:59", &seconds) && seconds == 359999999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_climb_with_context),
        cmocka_unit_test(bytes_become_valid_utf8),
        cmocka_unit_test(numbers_refuse_garbage),
        cmocka_unit_test(closest_word),
        cmocka_unit_test(random_streams_repeat_and_have_the_right_moments),
        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
        cmocka_unit_test(parallel_for_runs_all_and_reports_the_first_failure),
        cmocka_unit_test(tasks_share_the_cores_they_are_on),
        cmocka_unit_test(quotas_of_control_groups),
        cmocka_unit_test(durations_are_digits),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
