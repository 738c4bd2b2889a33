/* The page of a controller: its routes, names that try to be more, slow clients, a browser. */
#include "folder.h"
#include "live_status.h"
#include "openmetrics.h"
#include "served.h"
#include "side_by_side.h"

#include "base/log.h"
#include "serve/schedule_page.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define OPEN "application/openmetrics-text;version=1.0.0"
#define NOW 1800000000

static struct erg_schedule_page *open_page(struct server *server)
{
    struct erg_schedule_page *page;
    struct erg_error err = {0};
    assert_ok(erg_schedule_page_open(&page, "127.0.0.1:0", &err), &err);
    assert_int_equal(sscanf(erg_schedule_page_url(page), "http://127.0.0.1:%d/", &server->port), 1);
    return page;
}

static void update(struct erg_schedule_page *page, json_t *status)
{
    erg_schedule_page_update(page, status);
    json_decref(status); /* a copy is kept */
}

/* What follows the headers of an answer of status 200. */
static char *body_of(const struct server *server, const char *request)
{
    struct erg_text answer = ask(server, request);
    if (strncmp(answer.data, "HTTP/1.1 200", 12) != 0)
        fail_msg("%s got:\n%s", request, answer.data);
    const char *body = strstr(answer.data, "\r\n\r\n");
    assert_non_null(body);
    char *copy = erg_xstrdup(body + 4);
    erg_text_release(&answer);
    return copy;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

static void test_routes(void **state)
{
    (void)state;
    struct server server;
    struct erg_schedule_page *page = open_page(&server);
    check_answer(&server, "GET /status.json HTTP/1.1", "HTTP/1.1 503", "has not looked");
    check_answer(&server, "GET / HTTP/1.1", "HTTP/1.1 200", "id=\"plan\">{}</script>");
    char *none = body_of(&server, "GET /metrics HTTP/1.1\r\nAccept: " OPEN);
    assert_int_equal(openmetrics_check(none), 1); /* what answers, and no number made up */
    free(none);

    update(page, live_status(NOW));
    check_answer(&server, "GET / HTTP/1.1", "HTTP/1.1 200",
                 "Content-Type: text/html; charset=utf-8");
    check_answer(&server, "GET / HTTP/1.1", "HTTP/1.1 200",
                 "Content-Security-Policy: default-src 'none';");
    check_answer(&server, "GET / HTTP/1.1", "HTTP/1.1 200", "\"at_unix_s\":1800000000.0,");
    check_answer(&server, "GET /?x=1 HTTP/1.1", "HTTP/1.1 200", "ergon schedule");
    check_answer(&server, "GET http://localhost/ HTTP/1.1", "HTTP/1.1 200", "ergon schedule");
    check_answer(&server, "GET /status.json HTTP/1.1", "HTTP/1.1 200",
                 "Content-Type: application/json");
    check_answer(&server, "GET /status.json HTTP/1.1", "HTTP/1.1 200", "\r\nAge: ");
    check_answer(&server, "GET http://h:1/status.json?now HTTP/1.1", "HTTP/1.1 200", "bert-large");
    check_answer(&server, "GET /status.jsonx HTTP/1.1", "HTTP/1.1 404", "the page is at /");
    check_answer(&server, "GET /metrics/ HTTP/1.1", "HTTP/1.1 404", "the metrics are at /metrics");
    check_answer(&server, "GET /../etc/passwd HTTP/1.1", "HTTP/1.1 404", "text/plain");
    for (size_t i = 0; i < 3; i++) {
        static const char *const paths[] = {"/", "/status.json", "/metrics"};
        static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS"};
        char request[64];
        for (size_t m = 0; m < 4; m++) {
            snprintf(request, sizeof request, "%s %s HTTP/1.1", methods[m], paths[i]);
            check_answer(&server, request, "HTTP/1.1 405", "Allow: GET, HEAD");
        }
        snprintf(request, sizeof request, "HEAD %s HTTP/1.1", paths[i]);
        char *body = body_of(&server, request);
        assert_string_equal(body, "");
        free(body);
    }
    erg_schedule_page_close(page);
}

static void test_status_is_the_newest(void **state)
{
    (void)state;
    struct server server;
    struct erg_schedule_page *page = open_page(&server);
    for (int i = 0; i < 3; i++) {
        json_t *status = live_status(NOW + i + 0.125), *read;
        struct erg_error err = {0};
        erg_schedule_page_update(page, status);
        char *text = body_of(&server, "GET /status.json HTTP/1.1");
        assert_ok(erg_json_parse(&read, "answer", text, strlen(text), &err), &err);
        assert_true(json_equal(read, status)); /* to the last digit */
        json_decref(read);
        json_decref(status);
        free(text);
    }
    erg_schedule_page_close(page);
}

/* Whatever a job is called, the page has the scripts that it had. */
static void test_hostile_names(void **state)
{
    (void)state;
    struct server server;
    struct erg_schedule_page *page = open_page(&server);
    char *before = body_of(&server, "GET / HTTP/1.1");
    update(page, live_status(NOW));
    char *text = body_of(&server, "GET / HTTP/1.1");
    assert_int_equal(count_of(text, "<script"), count_of(before, "<script"));
    assert_int_equal(count_of(text, "</script"), count_of(before, "</script"));
    assert_null(strstr(text, "<img"));
    assert_null(strstr(text, "<b>bold"));
    assert_non_null(strstr(text, "\\u003c/script>\\u003cscript>document.title"));
    for (const char *at = text; *at; at++)
        assert_true((unsigned char)*at >= ' ' || *at == '\n');
    free(before);
    free(text);
    erg_schedule_page_close(page);
}

static void check_line(const char *text, const char *line)
{
    char whole[256];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(text, whole))
        fail_msg("expected the line \"%s\" in:\n%s", line, text);
}

static double age_in(const char *metrics)
{
    const char *line = strstr(metrics, "\nergon_schedule_snapshot_age_seconds ");
    double age = NAN;
    if (line)
        assert_int_equal(sscanf(strchr(line, ' '), "%lf", &age), 1);
    return age;
}

static void test_metrics(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "ergon_schedule_info{policy=\"ergon\"} 1",
        "ergon_schedule_resource_manager_up 1",
        "ergon_schedule_jobs{phase=\"running\"} 1",
        "ergon_schedule_jobs{phase=\"stopping\"} 1",
        "ergon_schedule_jobs{phase=\"starting\"} 1",
        "ergon_schedule_jobs{phase=\"waiting\"} 1",
        "ergon_schedule_jobs{phase=\"failed\"} 1",
        "ergon_schedule_jobs{phase=\"ended\"} 1",
        "ergon_schedule_jobs{phase=\"unknown\"} 0",
        "ergon_schedule_jobs_needing_attention 1",
        "ergon_schedule_gpus{type=\"A40-48GB\",state=\"managed\"} 4",
        "ergon_schedule_gpus{type=\"A40-48GB\",state=\"unavailable\"} 4",
        "ergon_schedule_gpus{type=\"H100-SXM-80GB\",state=\"managed\"} 5",
        "ergon_schedule_gpus{type=\"H100-SXM-80GB\",state=\"foreign\"} 1",
        "ergon_schedule_gpus{type=\"H100-SXM-80GB\",state=\"free\"} 1",
        "ergon_schedule_gpus{type=\"H100-SXM-80GB\",state=\"unavailable\"} 1",
        "ergon_schedule_nodes{type=\"A40-48GB\",state=\"up\"} 1",
        "ergon_schedule_nodes{type=\"A40-48GB\",state=\"down\"} 1",
        "ergon_schedule_nodes{type=\"H100-SXM-80GB\",state=\"draining\"} 1",
        "ergon_schedule_power_watts 5120",
        "ergon_schedule_power_idle_watts 1800",
        "ergon_schedule_power_cap_watts 9000",
        "ergon_schedule_decisions_total 17",
        "ergon_schedule_actions_total 31",
        "ergon_schedule_actions_failed_total 2",
    };
    struct server server;
    struct erg_schedule_page *page = open_page(&server);
    update(page, live_status(NOW));
    char *text = body_of(&server, "GET /metrics HTTP/1.1\r\nAccept: " OPEN);
    char *older = body_of(&server, "GET /metrics HTTP/1.1");
    openmetrics_check(text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        check_line(text, lines[i]);
        check_line(older, lines[i]);
    }
    assert_non_null(strstr(older, "# TYPE ergon_schedule_actions_failed_total counter\n"));
    assert_null(strstr(older, "# EOF"));
    assert_null(strstr(older, "# UNIT"));
    check_answer(&server, "GET /metrics HTTP/1.1", "HTTP/1.1 200", "text/plain; version=0.0.4");
    check_answer(&server, "GET /metrics HTTP/1.1\r\nAccept: " OPEN, "HTTP/1.1 200",
                 "Content-Type: application/openmetrics-text; version=1.0.0");
    free(text);
    free(older);

    /* A status without an answer of the resource manager leaves the snapshot as old as it is; what
     * a status does not say is not there. */
    json_t *late = live_status(NOW + 1);
    json_object_set_new(late, "answers", json_false());
    json_object_set_new(json_object_get(late, "power"), "cap_w", json_null());
    json_object_del(late, "actions_failed");
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    update(page, late);
    text = body_of(&server, "GET /metrics HTTP/1.1\r\nAccept: " OPEN);
    openmetrics_check(text);
    check_line(text, "ergon_schedule_resource_manager_up 0");
    assert_null(strstr(text, "power_cap_watts"));
    assert_null(strstr(text, "actions_failed"));
    assert_true(age_in(text) >= 0.3);
    free(text);
    erg_schedule_page_close(page);
}

/* Types of a name that needs escapes; parts of a status that are missing. */
static void test_odd_statuses(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "{}",
        "{\"nodes\":[1,{}],\"jobs\":[2,{}],\"notes\":[3,{}],\"power\":4}",
        ("{\"nodes\":[{\"name\":\"n\",\"type\":\"a \\\"b\\\" \\\\ \\n "
         "c\",\"state\":\"up\",\"gpus\":"
         "[null,\"x\",5]}],\"jobs\":{},\"policy\":\"p\\\"\"}"),
    };
    struct server server;
    struct erg_schedule_page *page = open_page(&server);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        json_t *status;
        struct erg_error err = {0};
        assert_ok(erg_json_parse(&status, "odd", odd[i], strlen(odd[i]), &err), &err);
        update(page, status);
        char *text = body_of(&server, "GET /metrics HTTP/1.1\r\nAccept: " OPEN);
        openmetrics_check(text);
        assert_true(isnan(age_in(text)));
        if (i == 2)
            check_line(text, "ergon_schedule_gpus{type=\"a \\\"b\\\" \\\\ \\n c\","
                             "state=\"foreign\"} 1");
        free(text);
        check_answer(&server, "GET / HTTP/1.1", "HTTP/1.1 200", "</html>");
    }
    erg_schedule_page_close(page);
}

/* Silent and slow clients close nobody out, and are closed in the end. */
static void test_slow_clients(void **state)
{
    (void)state;
    enum { OTHERS = 200 };
    struct server server;
    struct erg_schedule_page *page = open_page(&server);
    int others[OTHERS];
    update(page, live_status(NOW));
    for (int i = 0; i < OTHERS; i++) {
        others[i] = connect_to(&server);
        (void)send(others[i], "GET / HTTP/1.1\r\n", i % 2 ? 16 : 0, MSG_NOSIGNAL);
    }
    check_answer(&server, "GET /status.json HTTP/1.1", "HTTP/1.1 200", "bert-large");
    check_closed(others, OTHERS);
    check_answer(&server, "GET /status.json HTTP/1.1", "HTTP/1.1 200", "bert-large");

    /* One that takes nothing of a large answer does not keep the page from closing. */
    json_t *large = live_status(NOW);
    char *name = erg_xcalloc(1, (8 << 20) + 1);
    memset(name, 'x', 8 << 20);
    json_object_set_new(large, "policy", erg_json_new_string(name));
    update(page, large);
    free(name);
    const int connection = connect_to(&server);
    static const char request[] = "GET /status.json HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_int_equal(send(connection, request, sizeof request - 1, 0), sizeof request - 1);
    char byte;
    assert_int_equal(recv(connection, &byte, 1, 0), 1);
    check_answer(&server, "GET /nothing HTTP/1.1", "HTTP/1.1 404", "Not found");
    erg_schedule_page_close(page);
    close(connection);
}

static void test_addresses_in_use(void **state)
{
    (void)state;
    struct server server;
    struct erg_error err = {0};
    struct erg_schedule_page *page = open_page(&server), *other;
    char taken[64];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", server.port);
    assert_fails(erg_schedule_page_open(&other, taken, &err), &err, "Address already in use");
    assert_fails(erg_schedule_page_open(&other, "9474", &err), &err,
                 "--page got \"9474\", expected an address and a port");
    assert_fails(erg_schedule_page_open(&other, "999.1.1.1:80", &err), &err, "was not found");
    erg_schedule_page_close(page);
}

static char warned[256];

static void keep_warning(void *context, enum erg_log_level level, const char *text)
{
    (void)context;
    if (level == ERG_LOG_WARNING)
        snprintf(warned, sizeof warned, "%s", text);
}

/* Only an address that others reach is warned of. */
static void test_warning_for_public_addresses(void **state)
{
    (void)state;
    const struct erg_log_sink sink = {.message = keep_warning};
    struct erg_schedule_page *page;
    struct erg_error err = {0};
    struct server server;
    erg_log_set_sink(&sink);
    erg_schedule_page_close(open_page(&server));
    assert_string_equal(warned, "");
    assert_ok(erg_schedule_page_open(&page, "0.0.0.0:0", &err), &err);
    assert_non_null(strstr(warned, "other machines can open the page at 0.0.0.0:0"));
    erg_schedule_page_close(page);
    erg_log_set_sink(NULL);
}

/* ---- a browser, where there is one ---- */

static const char *find_browser(void)
{
    static const char *const names[] = {"chromium", "chromium-browser", "google-chrome"};
    char command[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", names[i]);
        if (system(command) == 0)
            return names[i];
    }
    return NULL;
}

/* The document after so many ms of a browser's own time, in which it waits for no clock but for
 * answers. */
static struct erg_text browse(const char *browser, const struct server *server, int budget_ms)
{
    struct erg_text command = {0}, text = {0};
    char block[4096];
    size_t count;
    erg_text_printf(&command,
                    "timeout 200 %s --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
                    "--user-data-dir='%s' --virtual-time-budget=%d --dump-dom "
                    "http://127.0.0.1:%d/ 2>/dev/null",
                    browser, in_folder("browser"), budget_ms, server->port);
    FILE *pipe = popen(command.data, "r");
    assert_non_null(pipe);
    erg_text_add(&text, "");
    while ((count = fread(block, 1, sizeof block, pipe)) > 0)
        erg_text_add_bytes(&text, block, count);
    assert_int_equal(pclose(pipe), 0);
    erg_text_release(&command);
    return text;
}

static atomic_bool ends;

static void *update_often(void *context)
{
    for (int i = 0; !ends; i++) {
        update(context, live_status(NOW + i));
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    return NULL;
}

static void test_browser(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "<title>ergon schedule: 3 run, 2 wait</title>",
        "3 jobs run on 9 of 16 GPUs; 2 wait.",
        "Node a2 is down: Not responding",
        "Job 17 dead of anna: three failures in a row without a new checkpoint",
        "&lt;/script&gt;&lt;script&gt;document.title='owned'",
        "&lt;b&gt;bold&lt;/b&gt;",
        "not enough GPUs are free",
        "h[001-002]",
        "1 ended, 1 cancelled",
        "Policy ergon; updated ",
    };
    const char *browser = find_browser();
    if (!browser) {
        print_message("[  NOTE  ] skipped: there is no Chromium here\n");
        skip();
    }
    struct server server;
    struct erg_schedule_page *page = open_page(&server);
    pthread_t writer;
    update(page, live_status(NOW));
    assert_int_equal(pthread_create(&writer, NULL, update_often, page), 0);
    struct erg_text text = browse(browser, &server, 20000);
    ends = true;
    pthread_join(writer, NULL);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text.data, parts[i]))
            fail_msg("expected \"%s\" in:\n%s", parts[i], text.data);
    assert_null(strstr(text.data, "<img"));
    assert_null(strstr(text.data, ">too long ago<"));
    assert_int_equal(count_of(text.data, "class=\"foreign\""), 2); /* one in the legend */
    assert_int_equal(count_of(text.data, "class=\"managed\"") +
                         count_of(text.data, "class=\"managed moving\""),
                     9 + 2);
    /* It has updated itself: the power chart has a line of more than one moment. */
    const char *line = strstr(text.data, "stroke=\"var(--ergon)\"");
    assert_non_null(line);
    while (line > text.data && strncmp(line, "<path", 5) != 0)
        line--;
    assert_true(count_of(line, "H") > 0 && strcspn(line, "H") < strcspn(line, ">"));
    erg_text_release(&text);
    erg_schedule_page_close(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_status_is_the_newest),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_odd_statuses),
        cmocka_unit_test(test_slow_clients),
        cmocka_unit_test(test_addresses_in_use),
        cmocka_unit_test(test_warning_for_public_addresses),
        cmocka_unit_test(test_browser),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, make_folder, remove_folder);
}
