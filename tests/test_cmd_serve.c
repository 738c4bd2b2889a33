/* ergon serve: scrapes over HTTP, read by a strict reader; a GPU that hangs. */
#include "base/clock.h"
#include "commands.h"
#include "openmetrics.h"
#include "served.h"
#include "side_by_side.h"

#include <time.h>

#define OPEN "application/openmetrics-text;version=1.0.0"

static struct server start(void)
{
    return start_serving((const char *[]){"--listen", "127.0.0.1:0", "--interval", "20", NULL});
}

/* The body of a scrape that is valid OpenMetrics. */
static char *scrape(const struct server *server)
{
    struct erg_text answer = ask(server, "GET /metrics HTTP/1.1\r\nAccept: " OPEN);
    const char *body = strstr(answer.data, "\r\n\r\n");
    assert_non_null(body);
    assert_non_null(strstr(answer.data, "application/openmetrics-text; version=1.0.0"));
    openmetrics_check(body + 4);
    char *copy = erg_xstrdup(body + 4);
    erg_text_release(&answer);
    return copy;
}

/* Scrapes until a line is there, or is not there. */
static char *scrape_until(const struct server *server, const char *line, bool there)
{
    char *text = scrape(server);
    for (int tries = 0; tries < 200 && (strstr(text, line) != NULL) != there; tries++) {
        free(text);
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        text = scrape(server);
    }
    if ((strstr(text, line) != NULL) != there)
        fail_msg("expected \"%s\" %s in:\n%s", line, there ? "to be" : "not to be", text);
    return text;
}

static void test_scrapes(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct server server = start();
    char *text = scrape_until(&server, "ergon_gpu_power_limit_watts{gpu=\"1\"", true);
    static const char *const parts[] = {"ergon_gpu_up{gpu=\"0\"", "ergon_gpu_energy_joules_total",
                                        "ergon_gpu_nvlink_bytes_total", "\n# EOF\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(text, parts[i]));
    double power_w = NAN;
    const char *line = strstr(text, "ergon_gpu_power_watts{gpu=\"1\"");
    assert_int_equal(sscanf(strchr(line, '}'), "} %lf", &power_w), 1);
    assert_near(power_w, 250, 0.5);
    free(text);
    check_answer(&server, "HEAD /metrics HTTP/1.1\r\nAccept: " OPEN, "HTTP/1.1 200",
                 "openmetrics-text");
    check_answer(&server, "GET /metrics HTTP/1.1", "HTTP/1.1 200",
                 "Content-Type: text/plain; version=0.0.4");
    check_answer(&server, "GET /metrics HTTP/1.1\r\nAccept: " OPEN ";q=0.1, text/plain;q=0.2",
                 "HTTP/1.1 200", "# TYPE ergon_build_info gauge\n");
    check_answer(&server, "GET http://localhost/metrics HTTP/1.1", "HTTP/1.1 200", "version=0.0.4");
    check_answer(&server, "GET HTTP://h:1/metrics?x=1 HTTP/1.1", "HTTP/1.1 200", "version=0.0.4");
    check_answer(&server, "GET http://localhost/other HTTP/1.1", "HTTP/1.1 404", "metrics are at");
    check_answer(&server, "GET / HTTP/1.1", "HTTP/1.1 404", "the metrics are at /metrics");
    check_answer(&server, "GET /metrics/x HTTP/1.1", "HTTP/1.1 404", "text/plain");
    check_answer(&server, "POST /metrics HTTP/1.1", "HTTP/1.1 405", "Allow: GET, HEAD");
    stop_serving(&server);
}

/* A name of any bytes, a counter of 2^64-1 for a moment, and one that stands still. */
static void test_odd_names_and_counters(void **state)
{
    (void)state;
    set_world("gpus 2\n"
              "gpu 0 name NVIDIA\xae \"A100\"\n"
              "gpu * power 0=300\n"
              "gpu 0 glitch 0.5 0.5 18446744073709551615\n"
              "gpu 0 glitch 1 0.5 7\n"
              "gpu 1 glitch 0 99 5000000\n");
    const int64_t start_ns = erg_now_ns();
    struct server server = start();
    char *text = scrape_until(&server, "ergon_gpu_energy_joules_total{gpu=\"0\"", true);
    assert_non_null(strstr(text, "name=\"NVIDIA\xEF\xBF\xBD \\\"A100\\\"\""));
    double last_j = 0;
    for (int i = 0; i < 40; i++) { /* 2 s */
        char *now = scrape(&server);
        const char *line = strstr(now, "\nergon_gpu_energy_joules_total{gpu=\"0\"");
        double energy_j = NAN;
        assert_non_null(line);
        assert_int_equal(sscanf(strchr(line, '}'), "} %lf", &energy_j), 1);
        /* 300 W since the start, and as much as a read took. */
        assert_true(energy_j >= 5000 && energy_j >= last_j &&
                    energy_j < 5300 + 300e-9 * (double)(erg_now_ns() - start_ns));
        last_j = energy_j;
        free(now);
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    free(text);
    text = scrape_until(&server, "\nergon_gpu_energy_joules_total{gpu=\"1\"", false);
    assert_non_null(strstr(text, "\nergon_gpu_power_integral_joules_total{gpu=\"1\""));
    free(text);
    stop_serving(&server);
}

/* Others that hold 300 connections open, silent or in the middle of a request, close nobody out. */
static void test_others_leave_a_place(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct server server = start();
    enum { OTHERS = 300 };
    int others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        others[i] = connect_to(&server);
        if (i % 2)
            assert_true(send(others[i], "GET /metrics HTTP/1.1\r\n", 23, MSG_NOSIGNAL) != 0);
    }
    for (int i = 0; i < 5; i++)
        free(scrape(&server));
    /* The oldest were closed, the newest were not. */
    char byte;
    assert_true(recv(others[1], &byte, 1, 0) <= 0);
    assert_int_equal(recv(others[OTHERS - 1], &byte, 1, MSG_DONTWAIT), -1);
    /* And these within seconds, though each goes on with its request. */
    check_closed(others, OTHERS);
    free(scrape(&server));
    stop_serving(&server);
}

static void test_a_hanging_gpu_is_left_out(void **state)
{
    (void)state;
    char script[256];
    snprintf(script, sizeof script,
             "gpus 2\ngpu * power 0=100\ngpu 1 hang GetFieldValues %s 3600\n", in_folder("hangs"));
    set_world(script);
    struct server server = start();
    free(scrape_until(&server, "ergon_gpu_power_watts{gpu=\"1\"", true));
    write_text("hangs", "");
    char *text = scrape_until(&server, "ergon_gpu_power_watts{gpu=\"1\"", false);
    assert_non_null(strstr(text, "ergon_gpu_power_watts{gpu=\"0\""));
    assert_null(strstr(text, "ergon_gpu_energy_joules_total{gpu=\"1\""));
    const char *up = strstr(text, "ergon_gpu_up{gpu=\"1\"");
    assert_non_null(up);
    assert_true(strncmp(strchr(up, '}'), "} 0\n", 4) == 0);
    free(text);
    stop_serving(&server);
}

static void test_addresses_in_use(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check_program("serve --listen 9464 2>&1", 2, "expected an address and a port");
    check_program("serve --listen 127.0.0.1:x 2>&1", 2, "expected an address and a port");
    check_program("serve --listen 127.0.0.1:70000 2>&1", 2, "expected an address and a port");
    check_program("serve --listen 999.1.1.1:80 2>&1", 2, "but the address was not found");
    check_program("serve --listen 192.0.2.1:9464 2>&1", 1,
                  "listening at 192.0.2.1:9464 failed: Cannot assign");
    /* A port that is taken. */
    struct server server = start();
    char arguments[64];
    snprintf(arguments, sizeof arguments, "serve --listen 127.0.0.1:%d 2>&1", server.port);
    check_program(arguments, 1, "failed: Address already in use");
    stop_serving(&server);
    set_world(NULL);
    check_program("serve 2>&1", 4, "looking for NVIDIA GPUs");
    check_program("serve --listen 9464 2>&1", 2, "expected an address and a port");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scrapes),
        cmocka_unit_test(test_odd_names_and_counters),
        cmocka_unit_test(test_others_leave_a_place),
        cmocka_unit_test(test_a_hanging_gpu_is_left_out),
        cmocka_unit_test(test_addresses_in_use),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, commands_begin, remove_folder);
}
