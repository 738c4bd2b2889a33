/* The server of metrics and plans: its requests, and what it serves. */
#include "serve/serve.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "observe/live.h"
#include "observe/openmetrics.h"
#include "serve/serve_address.h"
#include "serve/serve_http.h"
#include "serve/serve_plan.h"
#include "serve/serve_token.h"
#include "telemetry/rapl.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Most open connections, without and with a plan. */
static const struct erg_serve_limits scrapers = {.of_address = 16, .together = 48};
static const struct erg_serve_limits trainers = {
    .of_address = 256, .together = 512, .held = ERG_PLAN_SERVER_RANKS};

struct server {
    struct erg_gpus *gpus; /* NULL: no GPUs, only a plan is served */
    struct erg_live *live;
    struct erg_rapl *rapl; /* NULL if CPU energy cannot be read */
    char *token;           /* NULL: requests need no token */
    bool plans;
    struct erg_serve_plan plan;
    struct erg_serve_connections connections;
};

/* ---- requests; one thread answers all ---- */

static enum MHD_Result answer_scrape(const struct server *server, struct MHD_Connection *connection)
{
    struct erg_text text = {0};
    struct erg_live_view view = {0};
    struct erg_rapl_reading cpu = {0};
    erg_live_look(server->live, erg_now_ns(), &view);
    if (server->rapl)
        erg_rapl_read(server->rapl, &cpu);
    bool open_metrics = erg_openmetrics_accepted(
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT));
    (open_metrics ? erg_openmetrics_text : erg_prometheus_text)(&text, &view, &cpu);
    erg_live_view_release(&view);
    enum MHD_Result result = erg_serve_answer(
        connection, MHD_HTTP_OK,
        open_metrics ? ERG_OPENMETRICS_CONTENT_TYPE : ERG_PROMETHEUS_CONTENT_TYPE, NULL, &text);
    erg_text_release(&text);
    return result;
}

static enum MHD_Result answer_metrics(const struct server *server,
                                      struct MHD_Connection *connection, const char *method,
                                      const char *path)
{
    if (!erg_serve_reads(method))
        return erg_serve_refuse_method(connection);
    if (strcmp(path, "/metrics") != 0)
        return erg_serve_answer_plain(connection, MHD_HTTP_NOT_FOUND, NULL,
                                      "Not found; the metrics are at /metrics.\n");
    return answer_scrape(server, connection);
}

static enum MHD_Result answer_plan(struct server *server, struct erg_serve_request *request,
                                   const char *path, const char *method)
{
    struct erg_plan_question *question = &request->question;
    if (erg_serve_plan_ask(&server->plan, request, method, path) != MHD_YES)
        return MHD_NO;
    if (!question->status) /* it waits, and is called again here */
        return MHD_YES;
    const struct erg_serve_header allow[] = {{MHD_HTTP_HEADER_ALLOW, question->allow}, {0}};
    return erg_serve_answer(request->connection, question->status, "application/json", allow,
                            &question->answer);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    (void)version;
    struct server *server = context;
    struct erg_serve_request *request = *state;
    if (!request) { /* the headers have arrived */
        request = erg_xcalloc(1, sizeof *request);
        request->connection = connection;
        *state = request;
        return MHD_YES;
    }
    if (*upload_bytes) {
        if (server->plans)
            erg_serve_plan_read(request, upload, *upload_bytes);
        *upload_bytes = 0;
        return MHD_YES;
    }
    const char *path = erg_serve_path(url);
    if (server->token && !erg_serve_brings_token(connection, server->token))
        return erg_serve_answer_plain(
            connection, MHD_HTTP_UNAUTHORIZED,
            (const struct erg_serve_header[]){{MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer"}, {0}},
            "The request lacks the server's token.\n");
    if (server->plans && !(server->gpus && strcmp(path, "/metrics") == 0))
        return answer_plan(server, request, path, method);
    return answer_metrics(server, connection, method, path);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    (void)code;
    struct server *server = context;
    struct erg_serve_request *request = *state;
    if (request && server->plans)
        erg_serve_plan_finish(&server->plan, request);
    else
        erg_serve_answered(&server->connections, connection);
    if (request) {
        erg_text_release(&request->body);
        erg_text_release(&request->question.answer);
    }
    free(request);
}

/* ---- serving ---- */

static int listen_at(FILE *out, struct MHD_Daemon **daemon, struct server *server,
                     const char *listen, const struct addrinfo *address, struct erg_error *err)
{
    const struct erg_serve_handlers handlers = {on_request, on_completed, server};
    int port;
    if (erg_serve_start(daemon, &server->connections, &handlers, listen, address, &port, err) != 0)
        return -1;
    const int host = (int)(strrchr(listen, ':') - listen);
    if (server->plans)
        fprintf(out, "http://%.*s:%d\n", host, listen, port);
    if (server->gpus)
        fprintf(out, "http://%.*s:%d/metrics\n", host, listen, port);
    fflush(out); /* the parent process waits for these lines */
    return 0;
}

static void wait_for_signal(struct server *server)
{
    for (unsigned turn = 1; !erg_interrupted(); turn++) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        erg_serve_close_late(&server->connections);
        if (server->plans && turn % 10 == 0)
            erg_serve_plan_tick(&server->plan);
    }
    if (server->plans)
        erg_serve_plan_end(&server->plan);
}

/* A connection needs a file descriptor. */
static void init_connections(struct server *server)
{
    struct erg_serve_limits limits = server->plans ? trainers : scrapers;
    struct rlimit files;
    if (server->plans && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        const rlim_t others = 64, wanted = limits.together + limits.held + 2 * others;
        files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_cur < wanted)
            limits.held = files.rlim_cur > limits.together + 3 * others
                              ? files.rlim_cur - limits.together - 2 * others
                              : others;
    }
    erg_serve_connections_init(&server->connections, &limits);
}

static int serve_until_signal(FILE *out, const char *listen, const struct addrinfo *address,
                              struct server *server, struct erg_error *err)
{
    struct MHD_Daemon *daemon;
    init_connections(server);
    int result = listen_at(out, &daemon, server, listen, address, err);
    if (result == 0) {
        wait_for_signal(server);
        MHD_stop_daemon(daemon);
    }
    erg_serve_connections_release(&server->connections);
    return result;
}

/* ---- sources ---- */

static int serve_gpus(FILE *out, const struct erg_serve_options *values, const char *listen,
                      const struct addrinfo *address, struct server *server, struct erg_error *err)
{
    struct erg_sampler_options pace = erg_live_pace(values->interval_ms);
    struct erg_sampler *sampler;
    struct erg_error cpu;
    server->live = erg_live_new(server->gpus, &pace, 1000000000, erg_now_ns());
    struct erg_sampler_sink sink = {.put = erg_live_put, .context = server->live};
    if (erg_rapl_open(&server->rapl, NULL, &cpu) != 0) {
        server->rapl = NULL;
        erg_log(ERG_LOG_INFO, "no CPU energy: %s", cpu.message);
    }
    int result = erg_sampler_start(&sampler, server->gpus, &pace, &sink, err);
    if (result == 0) {
        result = serve_until_signal(out, listen, address, server, err);
        erg_sampler_stop(sampler);
    }
    erg_live_free(server->live);
    if (server->rapl)
        erg_rapl_close(server->rapl);
    return result;
}

/* A machine without GPUs can serve plans. */
static int open_gpus(const struct erg_serve_options *values, struct server *server,
                     struct erg_error *err)
{
    struct erg_error none = {0};
    if (erg_gpus_open(&server->gpus, values->gpus, &none) == 0)
        return 0;
    server->gpus = NULL;
    if (server->plans && !values->gpus && none.status == ERG_NO_DEVICE) {
        erg_log(ERG_LOG_INFO, "no metrics: %s", none.message);
        return 0;
    }
    if (err)
        *err = none;
    return -1;
}

static int serve(FILE *out, const struct erg_serve_options *values, const char *listen,
                 const struct addrinfo *address, struct server *server, struct erg_error *err)
{
    if (open_gpus(values, server, err) != 0)
        return -1;
    int result = server->gpus ? serve_gpus(out, values, listen, address, server, err)
                              : serve_until_signal(out, listen, address, server, err);
    if (server->gpus)
        erg_gpus_close(server->gpus);
    return result;
}

/* ---- start ---- */

static int check_options(const struct erg_serve_options *values, const char *listen,
                         const struct addrinfo *address, struct erg_error *err)
{
    if (!values->plan && (values->record || values->point))
        return erg_fail(
            err, ERG_USAGE,
            "--record and --point were given without --plan; expected --plan PLAN.json");
    if (values->plan && !values->token && !erg_serve_is_loopback(address))
        return erg_fail(
            err, ERG_USAGE,
            "--plan is served at %s, which other machines can reach; expected --token FILE",
            listen);
    return 0;
}

static int open_and_serve(FILE *out, const struct erg_serve_options *values, const char *listen,
                          const struct addrinfo *address, struct erg_error *err)
{
    struct server server = {.plans = values->plan != NULL};
    const struct erg_plan_server_options plan = {
        .plan = values->plan,
        .number = values->point,
        .record = values->record,
    };
    if (check_options(values, listen, address, err) != 0 ||
        (values->token && erg_serve_read_token(values->token, &server.token, err) != 0))
        return -1;
    int result =
        server.plans ? erg_serve_plan_open(&server.plan, &plan, &server.connections, err) : 0;
    if (result == 0) {
        result = serve(out, values, listen, address, &server, err);
        if (server.plans)
            erg_serve_plan_close(&server.plan);
    }
    free(server.token);
    return result;
}

int erg_serve(FILE *out, const struct erg_serve_options *values, struct erg_error *err)
{
    struct addrinfo *address; /* first, so that machines without GPUs report a wrong plan, too */
    if (erg_serve_resolve("listen", values->listen, &address, err) != 0)
        return -1;
    int result = open_and_serve(out, values, values->listen, address, err);
    freeaddrinfo(address);
    return result;
}
