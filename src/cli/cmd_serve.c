/* ergon serve: metrics of all GPUs for Prometheus and others to scrape. */
#include "cli/cli.h"
#include "cli/serve_connections.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "observe/live.h"
#include "observe/openmetrics.h"
#include "telemetry/rapl.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct serve_values {
    const char *listen, *gpus;
    long interval_ms;
};

#define AT(member) offsetof(struct serve_values, member)
static const struct erg_option options[] = {
    {"listen", 'l', ERG_OPTION_TEXT, "ADDRESS:PORT", AT(listen), .default_text = "127.0.0.1:9464",
     .help = "where to listen; \"[::]:9464\" or \"0.0.0.0:9464\" for everybody, port 0 for any"},
    {"gpus", 'g', ERG_OPTION_TEXT, "LIST", AT(gpus),
     .help = "\"all\", or indices and UUIDs with commas; CUDA_VISIBLE_DEVICES unless given"},
    {"interval", 'i', ERG_OPTION_LONG, "MS", AT(interval_ms), 5, 60000, .default_text = "100",
     .help = "time between two readings of power; scrapes get the newest"},
    {0},
};

struct server {
    struct erg_live *live;
    struct erg_rapl *rapl; /* NULL where CPU energy cannot be read */
    struct erg_serve_connections connections;
};

/* ---- requests; one thread answers them all ---- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status,
                              const char *content_type, const char *allow,
                              const struct erg_text *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text->count, text->data, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* The path of a request; its target may be a whole URI (RFC 9112, 3.2.2). */
static const char *path_of(const char *target)
{
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    return scheme ? target + scheme + strcspn(target + scheme, "/?") : target;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    (void)version;
    (void)upload;
    static char seen; /* its address marks a request whose headers have come before */
    if (!*state || *upload_bytes) {
        *state = &seen;
        *upload_bytes = 0; /* bodies are not read */
        return MHD_YES;
    }
    static const char plain[] = "text/plain; charset=utf-8";
    struct server *server = context;
    struct erg_text text = {0};
    enum MHD_Result result;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        erg_text_add(&text, "Only GET and HEAD are answered.\n");
        result = answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, plain, "GET, HEAD", &text);
    } else if (strcmp(path_of(url), "/metrics") != 0) {
        erg_text_add(&text, "There is nothing here; the metrics are at /metrics.\n");
        result = answer(connection, MHD_HTTP_NOT_FOUND, plain, NULL, &text);
    } else {
        struct erg_live_view view = {0};
        struct erg_rapl_reading cpu = {0};
        erg_live_look(server->live, erg_now_ns(), &view);
        if (server->rapl)
            erg_rapl_read(server->rapl, &cpu);
        bool open_metrics = erg_openmetrics_accepted(
            MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT));
        (open_metrics ? erg_openmetrics_text : erg_prometheus_text)(&text, &view, &cpu);
        erg_live_view_release(&view);
        result = answer(connection, MHD_HTTP_OK,
                        open_metrics ? ERG_OPENMETRICS_CONTENT_TYPE : ERG_PROMETHEUS_CONTENT_TYPE,
                        NULL, &text);
    }
    erg_text_release(&text);
    return result;
}

/* ---- listening ---- */

/* "ADDRESS:PORT", an IPv6 address in brackets. */
static int resolve(const char *listen, struct addrinfo **found, struct erg_error *err)
{
    char host[256], *end;
    const char *colon = strrchr(listen, ':');
    long port;
    if (!colon || colon == listen || (size_t)(colon - listen) >= sizeof host ||
        !erg_parse_long(colon + 1, &port) || port < 0 || port > 65535)
        return erg_fail(err, ERG_USAGE,
                        "The option --listen got \"%s\", but must be an address and a port, as in "
                        "\"127.0.0.1:9464\".",
                        listen);
    bool brackets = listen[0] == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - listen) - brackets, listen + brackets);
    end = strchr(host, ']');
    if (end)
        *end = '\0';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int result = getaddrinfo(host, colon + 1, &hints, found);
    if (result == 0)
        return 0;
    return erg_fail(err, ERG_USAGE, "The option --listen got \"%s\", whose address is unknown: %s.",
                    listen, gai_strerror(result));
}

/* Listens itself, since the server does not say why it could not. */
static int open_socket(const struct addrinfo *address, int *opened)
{
    int on = 1;
    int listener = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(listener, address->ai_addr, address->ai_addrlen) == 0 &&
        listen(listener, SOMAXCONN) == 0) {
        *opened = listener;
        return 0;
    }
    int reason = errno;
    if (listener >= 0)
        close(listener);
    return reason;
}

static int port_of(int listener)
{
    char port[NI_MAXSERV];
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port,
                    NI_NUMERICSERV) != 0)
        return 0;
    return atoi(port);
}

static int listen_at(struct MHD_Daemon **daemon, struct server *server, const char *listen,
                     const struct addrinfo *address, struct erg_error *err)
{
    int listener = -1, reason = open_socket(address, &listener);
    if (reason)
        return erg_fail(err, ERG_FAILED,
                        "listening at %s failed: %s; expected a free port at an address of this "
                        "machine",
                        listen, strerror(reason));
    *daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, on_request, server,
        MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)ERG_SERVE_MOST,
        MHD_OPTION_NOTIFY_CONNECTION, erg_serve_notice, &server->connections,
        MHD_OPTION_NOTIFY_COMPLETED, erg_serve_answered, &server->connections, MHD_OPTION_END);
    if (!*daemon) {
        close(listener);
        return erg_fail(err, ERG_FAILED, "listening at %s failed: no threads for the server",
                        listen);
    }
    printf("http://%.*s:%d/metrics\n", (int)(strrchr(listen, ':') - listen), listen,
           port_of(listener));
    fflush(stdout); /* whoever started this waits for the line */
    return 0;
}

static void wait_for_signal(struct server *server)
{
    while (!erg_interrupted()) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        erg_serve_close_late(&server->connections);
    }
}

static int serve(const struct serve_values *values, const struct addrinfo *address,
                 struct server *server, struct erg_gpus *gpus,
                 const struct erg_sampler_options *pace, struct erg_error *err)
{
    struct erg_sampler_sink sink = {.put = erg_live_put, .context = server->live};
    struct erg_sampler *sampler;
    struct MHD_Daemon *daemon;
    if (erg_sampler_start(&sampler, gpus, pace, &sink, err) != 0)
        return -1;
    int result = listen_at(&daemon, server, values->listen, address, err);
    if (result == 0) {
        wait_for_signal(server);
        MHD_stop_daemon(daemon);
    }
    erg_sampler_stop(sampler);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct serve_values *values = call->values;
    struct erg_sampler_options pace = erg_live_pace(values->interval_ms);
    struct server server = {.connections.lock = PTHREAD_MUTEX_INITIALIZER};
    struct addrinfo *address; /* first: a wrong one is wrong on machines without GPUs, too */
    struct erg_gpus *gpus;
    struct erg_error cpu;
    if (resolve(values->listen, &address, err) != 0)
        return -1;
    if (erg_gpus_open(&gpus, values->gpus, err) != 0) {
        freeaddrinfo(address);
        return -1;
    }
    if (erg_rapl_open(&server.rapl, NULL, &cpu) != 0) {
        server.rapl = NULL;
        erg_log(ERG_LOG_INFO, "no CPU energy: %s", cpu.message);
    }
    server.live = erg_live_new(gpus, &pace, 1000000000, erg_now_ns());
    int result = serve(values, address, &server, gpus, &pace, err);
    erg_live_free(server.live);
    if (server.rapl)
        erg_rapl_close(server.rapl);
    erg_gpus_close(gpus);
    freeaddrinfo(address);
    return result;
}

const struct erg_command erg_cmd_serve = {
    .name = "serve",
    .summary = "serve metrics of GPUs to Prometheus (/metrics)",
    .arguments = "",
    .common = ERG_COMMON_FEW,
    .values_bytes = sizeof(struct serve_values),
    .options = options,
    .details =
        "Prints the address of the metrics and answers until Ctrl-C or SIGTERM. Every scrape "
        "gets the\nnewest readings at once, also while a GPU hangs: its values are left out "
        "then and its\nergon_gpu_up is 0. Listens on this machine only, unless told otherwise.",
    .examples = "  ergon serve\n"
                "  ergon serve --listen 0.0.0.0:9464 --gpus all\n"
                "  curl http://127.0.0.1:9464/metrics\n",
    .run = run,
};
