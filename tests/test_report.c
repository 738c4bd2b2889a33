/* The report: the page, the table and the trace of a plan. */
#include "check.h"
#include "json_file.h"

#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "report/report.h"

#include <jansson.h>

static json_t *sample(void)
{
    struct erg_error err;
    json_t *plan = NULL;
    assert_ok(load_json(&plan, ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json", &err), &err);
    return plan;
}

/* A name for a file of this test, removed by the caller. */
static const char *scratch(const char *name)
{
    static char path[256];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/ergon_report_%ld_%s", folder ? folder : "/tmp", (long)getpid(),
             name);
    return path;
}

static char *written_page(const json_t *plan)
{
    struct erg_error err;
    char *html = NULL;
    const char *path = scratch("page.html");
    assert_ok(erg_report_write(path, plan, &err), &err);
    assert_ok(erg_file_read(path, 0, &html, NULL, &err), &err);
    unlink(path);
    return html;
}

/* The document inside a page. */
static json_t *embedded(char *html)
{
    const char *open = "<script type=\"application/json\" id=\"plan\">";
    char *from = strstr(html, open);
    assert_non_null(from);
    from += strlen(open);
    char *to = strstr(from, "</script>");
    assert_non_null(to);
    json_error_t where;
    json_t *plan = json_loadb(from, (size_t)(to - from), 0, &where);
    if (!plan)
        fail_msg("the page's document at byte %d: %s", where.position, where.text);
    return plan;
}

static void test_page_is_complete_and_needs_nothing(void **state)
{
    (void)state;
    json_t *plan = sample();
    char *html = written_page(plan);
    assert_memory_equal(html, "<!DOCTYPE html>", 15);
    assert_null(strstr(html, "@PLAN@"));
    assert_null(strstr(html, "@STYLE@"));
    assert_null(strstr(html, "@SCRIPT@"));
    assert_non_null(strstr(html, "</html>"));
    /* Nothing is loaded: the only address is the name space of SVG. */
    for (char *link = html; (link = strstr(link, "http")); link++)
        assert_memory_equal(link, "http://www.w3.org/2000/svg", 26);
    assert_null(strstr(html, "src="));
    free(html);
    json_decref(plan);
}

static void test_page_contains_the_escaped_plan(void **state)
{
    (void)state;
    json_t *plan = sample();
    json_object_set_new(json_object_get(plan, "job"), "name",
                        json_string("</script><script>alert(1)</script>"));
    char *html = written_page(plan);
    assert_null(strstr(html, "alert(1)</script>"));
    json_t *inside = embedded(html);
    assert_string_equal(json_string_value(json_object_get(json_object_get(inside, "job"), "name")),
                        "</script><script>alert(1)</script>");
    free(html);
    json_decref(inside);
    json_decref(plan);
}

/* Every instruction of a point is in the runs of its stage and direction, in order. */
static void test_page_keeps_the_recipes(void **state)
{
    (void)state;
    json_t *plan = sample();
    char *html = written_page(plan);
    json_t *inside = embedded(html);
    const json_t *points =
        json_object_get(json_object_get(json_object_get(plan, "methods"), "ergon"), "points");
    const json_t *views =
        json_object_get(json_object_get(json_object_get(inside, "methods"), "ergon"), "points");
    assert_int_equal(json_array_size(points), json_array_size(views));
    assert_int_equal(json_array_size(points), 12);
    const json_t *schedule = json_object_get(plan, "schedule");
    for (size_t p = 0; p < json_array_size(points); p++) {
        const json_t *view = json_array_get(views, p);
        const json_t *all = json_object_get(json_array_get(points, p), "options");
        assert_null(json_object_get(view, "options"));
        for (size_t s = 0; s < json_array_size(all); s++) {
            const json_t *runs[2], *stage = json_array_get(json_object_get(view, "uses"), s);
            size_t at[2] = {0}, used[2] = {0};
            runs[0] = json_object_get(stage, "forward");
            runs[1] = json_object_get(stage, "backward");
            const json_t *list = json_array_get(all, s);
            for (size_t i = 0; i < json_array_size(list); i++) {
                const json_t *one = json_array_get(json_array_get(schedule, s), i);
                int d = strcmp(json_string_value(json_object_get(one, "type")), "backward") == 0;
                if (used[d] == (size_t)json_integer_value(json_array_get(runs[d], at[d] + 1)) &&
                    used[d]) {
                    at[d] += 2;
                    used[d] = 0;
                }
                used[d]++;
                assert_int_equal(json_integer_value(json_array_get(runs[d], at[d])),
                                 json_integer_value(json_array_get(list, i)));
            }
            for (int d = 0; d < 2; d++) {
                assert_int_equal(at[d] + 2, json_array_size(runs[d]));
                assert_int_equal(used[d], json_integer_value(json_array_get(runs[d], at[d] + 1)));
            }
        }
    }
    free(html);
    json_decref(inside);
    json_decref(plan);
}

/* A plan with most parts missing is still a page, a table and a trace. */
static void test_missing_parts_are_left_out(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text table = {0};
    json_t *plan = json_pack("{s:s, s:i}", "schema", "ergon.plan", "schema_version", 3);
    char *html = written_page(plan);
    json_decref(embedded(html));
    free(html);
    assert_ok(erg_report_table(&table, plan, &err), &err);
    erg_text_release(&table);
    const char *path = scratch("empty.json");
    assert_ok(erg_report_trace(path, plan, &err), &err);
    unlink(path);
    json_decref(plan);
}

static void test_foreign_documents_are_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text table = {0};
    const char *path = scratch("refused");
    json_t *plan = sample();
    json_object_set_new(plan, "schema_version", json_integer(1));
    assert_fails(erg_report_write(path, plan, &err), &err, "'schema_version': this ergon reads");
    assert_fails(erg_report_trace(path, plan, &err), &err, "writing the trace");
    assert_fails(erg_report_table(&table, plan, &err), &err, "got 1");
    json_object_set_new(plan, "schema", json_string("other.plan"));
    assert_fails(erg_report_write(path, plan, &err), &err,
                 "'schema': expected \"ergon.plan\", got \"other.plan\"");
    json_t *list = json_array();
    assert_fails(erg_report_write(path, list, &err), &err, "plan document");
    assert_fails(erg_report_memory_write(path, plan, &err), &err, "expected \"ergon.memory\"");
    assert_int_equal(access(path, F_OK), -1);
    assert_null(table.data);
    json_decref(list);
    json_decref(plan);
}

static void test_unwritable_place_is_one_sentence(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *plan = sample();
    assert_fails(erg_report_write("/nonexistent/folder/report.html", plan, &err), &err,
                 "/nonexistent/folder/report.html");
    json_decref(plan);
}

static void test_table(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_text table = {0};
    json_t *plan = sample();
    assert_ok(erg_report_table(&table, plan, &err), &err);
    assert_string_equal(
        table.data,
        "sample <tensor 8>: meta-llama/Llama-3.2-3B, 2 stages of 8 GPUs, 8 "
        "microbatches of 8 x 4096 tokens\n"
        "measured on emulated A100-SXM4-40GB, search gp, seed 0\n"
        "\n"
        "                     fastest                 time     energy   energy "
        "saved       time saved\n"
        "method                  time    energy  saved (1)  saved (1)  same time "
        "(2)  same energy (2)\n"
        "sequential           5.475 s  25.04 kJ      0.0 %      0.0 %        -11.4 "
        "%                –\n"
        "sequential+clocks    5.475 s  22.49 kJ      0.0 %     10.2 %          0.0 "
        "%            0.0 %\n"
        "nanobatching         4.986 s  23.55 kJ      8.9 %      6.0 %         -4.7 "
        "%                –\n"
        "nanobatching+clocks  4.986 s  21.48 kJ      8.9 %     14.2 %         19.7 "
        "%           16.8 %\n"
        "ergon                4.595 s  20.53 kJ     16.1 %     18.0 %         25.2 "
        "%           25.4 %\n"
        "\n"
        "(1) the fastest plan against sequential at full clock\n"
        "(2) against sequential+clocks: within the time of its fastest plan, within the\n"
        "    energy of its cheapest; – where no plan is that fast or that frugal\n"
        "\n"
        "selected: ergon, point 1 of 12 (the fastest): 4.595 s, 20.53 kJ\n");
    erg_text_release(&table);
    /* A job of milliseconds has as many digits. */
    const char *name;
    json_t *method;
    json_object_foreach(json_object_get(plan, "methods"), name, method)
    {
        json_t *fastest = json_array_get(json_object_get(method, "points"), 0);
        json_object_set_new(fastest, "time_s", json_real(0.0123456));
        json_object_set_new(fastest, "energy_j", json_real(38.6478));
    }
    assert_ok(erg_report_table(&table, plan, &err), &err);
    assert_non_null(strstr(table.data, "\nergon                0.0123 s  38.6 J "));
    assert_non_null(strstr(table.data, "(the fastest): 0.0123 s, 38.6 J\n"));
    erg_text_release(&table);
    json_decref(plan);
}

/* Spans of the trace: as many as the plan's timelines have, in microseconds, with their values. */
static void test_trace(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *plan = sample(), *trace = NULL, *event;
    const char *path = scratch("trace.json");
    assert_ok(erg_report_trace(path, plan, &err), &err);
    assert_ok(load_json(&trace, path, &err), &err);
    unlink(path);
    const json_t *events = json_is_array(trace) ? trace : json_object_get(trace, "traceEvents");
    size_t i, spans = 0, counters = 0;
    double last_s = 0, energy_j = 0;
    json_array_foreach((json_t *)(uintptr_t)events, i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const json_t *args = json_object_get(event, "args");
        counters += strcmp(phase, "C") == 0;
        if (strcmp(phase, "X") != 0)
            continue;
        spans++;
        if (json_integer_value(json_object_get(event, "pid")) != 2)
            continue;
        double end_s = 1e-6 * (json_number_value(json_object_get(event, "ts")) +
                               json_number_value(json_object_get(event, "dur")));
        last_s = fmax(last_s, end_s);
        energy_j += json_number_value(json_object_get(args, "energy_j"));
    }
    const json_t *after = json_array_get(json_object_get(plan, "timelines"), 1);
    assert_near(last_s, json_number_value(json_object_get(after, "time_s")), 1e-6);
    assert_int_equal(spans, 2 * 2 * 16 + (5 + 1 + 1) + (4 + 1 + 1) + (6 + 1 + 1) + (7 + 1 + 1));
    assert_true(counters >= 4);
    /* The instructions' energy of one GPU per stage is less than that of all with the waiting. */
    assert_true(energy_j > 0.8 * 20528.9 / 8 / 1.07 && energy_j < 20528.9 / 8);
    json_decref(trace);
    json_decref(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_is_complete_and_needs_nothing),
        cmocka_unit_test(test_page_contains_the_escaped_plan),
        cmocka_unit_test(test_page_keeps_the_recipes),
        cmocka_unit_test(test_missing_parts_are_left_out),
        cmocka_unit_test(test_foreign_documents_are_refused),
        cmocka_unit_test(test_unwritable_place_is_one_sentence),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
