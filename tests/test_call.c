/* base/call, base/sized and io/yaml_set: what a call of the library leaves to its caller. */
#include "check.h"

#include "base/call.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/thread.h"
#include "io/yaml.h"

#include <stdatomic.h>

/* ---- the watch ---- */

struct heard {
    char text[256];
    size_t steps, most;
    int level;
    atomic_int stop;
};

static void log_line(void *context, int level, const char *text)
{
    struct heard *heard = context;
    heard->level = level;
    snprintf(heard->text, sizeof heard->text, "%s", text);
}

static void progress(void *context, const char *task, size_t done, size_t total)
{
    struct heard *heard = context;
    assert_string_equal(task, "pieces");
    heard->steps++;
    heard->most = done;
    assert_int_equal(total, 40);
}

static int cancel(void *context)
{
    return atomic_load(&((struct heard *)context)->stop);
}

static int piece(void *context, size_t i, struct erg_error *err)
{
    erg_progress("pieces", i, 40);
    if (i == 7 && context)
        atomic_store((atomic_int *)context, 1);
    for (int wait = 0; i == 7 && context && wait < 1000 && !erg_interrupted(); wait++)
        erg_sleep_ns(1000000); /* the caller is asked every 10 ms */
    return erg_interrupt_check(err);
}

static int in_pieces(void *argument, struct erg_error *err)
{
    erg_log(ERG_LOG_WARNING, "%d pieces", 40);
    return erg_parallel_for(40, 4, piece, argument, err);
}

static void callers_hear_of_their_own_calls(void **state)
{
    (void)state;
    struct heard heard = {0}, other = {0};
    struct erg_error err;
    const struct erg_watch watch = {sizeof watch, &heard, log_line, progress, cancel};
    assert_ok(erg_call_run(in_pieces, NULL, &watch, &err), &err);
    assert_string_equal(heard.text, "40 pieces");
    assert_int_equal(heard.level, ERG_WATCH_WARNING);
    assert_int_equal(heard.steps, 40);
    assert_ok(erg_call_run(in_pieces, NULL, NULL, &err), &err); /* nobody listens */
    assert_int_equal(heard.steps, 40);
    assert_int_equal(other.steps, 0);
}

static void callers_end_calls(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct erg_error err;
    const struct erg_watch watch = {.size = sizeof watch, .context = &heard, .cancel = cancel};
    assert_fails(erg_call_run(in_pieces, &heard.stop, &watch, &err), &err, "interrupted");
    assert_int_equal(err.status, ERG_INTERRUPTED);
    assert_false(erg_interrupted()); /* nobody else is */
    assert_ok(erg_call_run(in_pieces, NULL, NULL, &err), &err);
}

/* ---- memory ---- */

static int take_all(void *context, size_t i, struct erg_error *err)
{
    (void)context;
    (void)err;
    if (i == 3)
        free(erg_xmalloc((size_t)1 << 46));
    return 0;
}

static int run_out(void *argument, struct erg_error *err)
{
    if (argument)
        return erg_parallel_for(8, 4, take_all, NULL, err);
    free(erg_xcalloc(SIZE_MAX / 2, 4));
    return 0;
}

static void calls_that_run_out_of_memory_fail(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer ends the process itself */
#endif
    struct erg_error err;
    int parallel = 1;
    for (int i = 0; i < 20; i++) {
        assert_fails(erg_call_run(run_out, NULL, NULL, &err), &err, "out of memory");
        assert_fails(erg_call_run(run_out, &parallel, NULL, &err), &err,
                     "1 x 70368744177664 bytes");
        assert_int_equal(err.status, ERG_FAILED);
    }
    assert_ok(erg_call_run(in_pieces, NULL, NULL, &err), &err);
}

/* ---- sizes ---- */

struct today {
    size_t size;
    int64_t first;
    double second;
};

struct tomorrow {
    struct today known;
    int64_t third;
};

struct yesterday {
    size_t size;
    int64_t first;
};

static void sizes_go_both_ways(void **state)
{
    (void)state;
    struct erg_error err;
    struct today own = {sizeof own, 1, 2};
    const struct yesterday old = {sizeof old, 5};
    assert_ok(erg_sized_take(&own, sizeof own, &old, "today", &err), &err);
    assert_int_equal(own.first, 5);
    assert_true(own.second == 2 && own.size == sizeof own);
    struct tomorrow later = {{sizeof later, 6, 7}, 0};
    assert_ok(erg_sized_take(&own, sizeof own, &later, "today", &err), &err);
    assert_true(own.first == 6 && own.second == 7 && own.size == sizeof own);
    later.third = 1;
    assert_fails(erg_sized_take(&own, sizeof own, &later, "today", &err), &err,
                 "struct today: byte 24 of 32 is set, but this library supports 24 bytes");
    assert_int_equal(err.status, ERG_USAGE);
    assert_int_equal(own.first, 6);
    assert_ok(erg_sized_take(&own, sizeof own, NULL, "today", &err), &err);
    const struct today none = {0};
    assert_fails(erg_sized_take(&own, sizeof own, &none, "today", &err), &err,
                 "its size is 0; expected sizeof(struct today)");

    struct yesterday small = {sizeof small, 0};
    assert_ok(erg_sized_give(&small, &own, sizeof own, "today", &err), &err);
    assert_true(small.first == 6 && small.size == sizeof small);
    assert_ok(erg_sized_give(&later, &own, sizeof own, "today", &err), &err);
    assert_true(later.known.first == 6 && later.third == 1 && later.known.size == sizeof later);
}

/* ---- YAML with other values ---- */

static const char document[] = "# a comment, \xc3\xa4\n"
                               "model: one   # \xe2\x82\xac\n"
                               "cluster:\n"
                               "  nodes: 2 # two\n"
                               "  more:\n"
                               "    - {a: 1}\n"
                               "    - {a: 2}\n"
                               "flow: {x: 1, y: [1, 2]}\n"
                               "list:\n"
                               "- 1\n"
                               "- 2\n"
                               "last: 'text'\n";

static char *set(const char *text, const char *key, const char *value)
{
    struct erg_error err;
    struct erg_yaml *yaml;
    struct erg_text out = {0};
    assert_ok(erg_yaml_open_text(&yaml, "f", text, strlen(text), &err), &err);
    assert_ok(erg_yaml_set(&out, yaml, key, value, &err), &err);
    erg_yaml_close(yaml);
    assert_ok(erg_yaml_open_text(&yaml, "g", out.data, out.count, &err), &err);
    assert_true(erg_yaml_has(yaml, key));
    erg_yaml_close(yaml);
    return out.data;
}

static void assert_set(const char *key, const char *value, const char *expected)
{
    char *text = set(document, key, value);
    if (!strstr(text, expected))
        fail_msg("%s = %s gave\n%s\nexpected in it\n%s", key, value, text, expected);
    free(text);
}

static void keys_are_set_in_place(void **state)
{
    (void)state;
    assert_set("model", "two", "model: two   # \xe2\x82\xac\ncluster:\n");
    assert_set("model", "\"a, b\"", "model: \"a, b\"   #");
    assert_set("model", "a#b", "model: \"a#b\"   #");
    assert_set("cluster.nodes", "31", "  nodes: 31 # two\n  more:\n");
    assert_set("cluster.gpu", "A100", "    - {a: 2}\n  gpu: A100\nflow:");
    assert_set("cluster.more", "[]", "  more:\n    []\n\nflow: {x");
    assert_set("cluster", "{nodes: 3}", "cluster:\n  {nodes: 3}\n\n\n\nflow: {x");
    assert_set("flow.x", "5", "flow: {x: 5, y: [1, 2]}\n");
    assert_set("flow.y", "[3]", "flow: {x: 1, y: [3]}\n");
    assert_set("flow.z", "9", "flow: {z: 9, x: 1, y");
    assert_set("list", "[4, 5]", "list:\n [4, 5]\n\nlast");
    assert_set("last", "7", "last: 7\n");
    assert_set("cluster.x.z", "1", "    - {a: 2}\n  x: {z: 1}\nflow:");
    assert_set("search.gp.seed", "3", "last: 'text'\nsearch: {gp: {seed: 3}}\n");
    char *text = set("{a: 1}", "b.c", "2");
    assert_string_equal(text, "{b: {c: 2}, a: 1}");
    free(text);
    text = set("a: 1", "b", "2");
    assert_string_equal(text, "a: 1\nb: 2\n");
    free(text);
    text = set("a: {b: 1} # one\nc:\n  d: 1 # two\n", "e", "3");
    assert_string_equal(text, "a: {b: 1} # one\nc:\n  d: 1 # two\ne: 3\n");
    free(text);
    text = set("c: &c\n  d: |\n    two\n", "c.e", "3");
    assert_string_equal(text, "c: &c\n  d: |\n    two\n  e: 3\n");
    free(text);
    text = set("# nothing\n", "b", "2");
    assert_string_equal(text, "b: 2");
    free(text);
}

static void assert_refused(const char *key, const char *value, const char *why)
{
    struct erg_error err;
    struct erg_yaml *yaml;
    struct erg_text out = {0};
    assert_ok(erg_yaml_open_text(&yaml, "f", document, strlen(document), &err), &err);
    assert_fails(erg_yaml_set(&out, yaml, key, value, &err), &err, why);
    assert_int_equal(err.status, ERG_USAGE);
    erg_text_release(&out);
    erg_yaml_close(yaml);
}

static void invalid_values_are_refused(void **state)
{
    (void)state;
    assert_refused("model", "a\nb: 1", "expected a YAML value on one line");
    assert_refused("model", "[1", "expected a YAML value on one line");
    assert_refused("model", "a: b", "not a single value");
    assert_refused("model", "- b", "not a single value");
    assert_refused("model", "", "not a single value");
    assert_refused("model.x", "1", "'model' is not an object, so it has no key 'x'");
    assert_refused("", "1", "is not a key");
    assert_refused("a..b", "1", "is not a key");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_hear_of_their_own_calls),
        cmocka_unit_test(callers_end_calls),
        cmocka_unit_test(calls_that_run_out_of_memory_fail),
        cmocka_unit_test(sizes_go_both_ways),
        cmocka_unit_test(keys_are_set_in_place),
        cmocka_unit_test(invalid_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
