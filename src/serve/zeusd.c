/* Answers zeusd's routes with leases of the daemon. */
#define _GNU_SOURCE /* pipe2 */
#include "serve/zeusd.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/service.h"
#include "base/text.h"
#include "serve/zeusd_guests.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Most connections of all clients, and the seconds after which a silent one is closed. */
enum { CONNECTIONS = 192, SILENT_S = 30 };

/* Every sensor has been read once after this time. */
static const int64_t first_ns = 2000000000;

struct erg_zeusd {
    const char *path;
    int guests[2]; /* the pipe */
    struct erg_gpus *gpus;
    struct erg_zeusd_guests *known;
    struct MHD_Daemon *server;
    int64_t begun_ns;
};

/* A request for GPUs. */
struct question {
    struct erg_zeusd *zeusd;
    struct erg_zeusd_guest *guest;
    uint64_t gpus; /* one bit per GPU */
    uint32_t least, most;
    bool block, enabled;
    struct erg_text *answer; /* text of the values read */
};

/* Returns 200, or another status with a sentence in `err`. */
typedef unsigned act_of_gpu(const struct question *question, uint32_t gpu, struct erg_error *err);

/* ---- reads ---- */

/* Writes the text before the value of a GPU. */
static void begin_member(struct erg_text *answer, uint32_t gpu)
{
    erg_text_printf(answer,
                    "%s\"%u\":", answer->count && answer->data[answer->count - 1] != '{' ? "," : "",
                    (unsigned)gpu);
}

static unsigned put_reading(const struct question *question, uint32_t gpu, enum erg_metric metric,
                            const char *format, struct erg_error *err)
{
    int64_t value;
    const unsigned status = erg_zeusd_guest_read(question->guest, gpu, metric, &value, err);
    if (status != 200)
        return status;
    begin_member(question->answer, gpu);
    erg_text_printf(question->answer, "%s%" PRId64 "%s", format, value, *format ? "}" : "");
    return 200;
}

static unsigned read_energy(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    return put_reading(question, gpu, ERG_METRIC_ENERGY, "{\"energy_mj\":", err);
}

static unsigned read_power(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    const unsigned status = put_reading(question, gpu, ERG_METRIC_POWER_INSTANT, "", err);
    return status == 200 ? status : put_reading(question, gpu, ERG_METRIC_POWER_AVERAGE, "", err);
}

/* Asks the driver: the daemon's reading may be older than the latest change. */
static unsigned read_limit(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    int64_t limit_mw;
    if (erg_knob_read(question->zeusd->gpus, gpu, ERG_KNOB_POWER, &limit_mw, err) != 0)
        return 500;
    begin_member(question->answer, gpu);
    erg_text_printf(question->answer, "{\"power_limit_mw\":%" PRId64 "}", limit_mw);
    return 200;
}

static unsigned read_constraints(const struct question *question, uint32_t gpu,
                                 struct erg_error *err)
{
    struct erg_wire_gpu there;
    const unsigned status = erg_zeusd_guest_gpu(question->guest, gpu, &there, err);
    if (status != 200)
        return status;
    begin_member(question->answer, gpu);
    erg_text_printf(question->answer, "{\"min_power_limit_mw\":%u,\"max_power_limit_mw\":%u}",
                    (unsigned)there.least[ERG_KNOB_POWER], (unsigned)there.most[ERG_KNOB_POWER]);
    return 200;
}

static unsigned read_persistence(const struct question *question, uint32_t gpu,
                                 struct erg_error *err)
{
    bool on;
    if (erg_persistence_read(question->zeusd->gpus, gpu, &on, err) != 0)
        return 500;
    begin_member(question->answer, gpu);
    erg_text_printf(question->answer, "{\"enabled\":%s}", on ? "true" : "false");
    return 200;
}

/* ---- writes ---- */

static unsigned set_clock(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    return erg_zeusd_guest_set(question->guest, gpu, ERG_KNOB_CLOCK, question->least,
                               question->most, question->block, err);
}

static unsigned set_memory(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    return erg_zeusd_guest_set(question->guest, gpu, ERG_KNOB_MEMORY, question->least,
                               question->most, question->block, err);
}

static unsigned set_limit(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    return erg_zeusd_guest_set(question->guest, gpu, ERG_KNOB_POWER, question->most, question->most,
                               question->block, err);
}

static unsigned reset_clock(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    return erg_zeusd_guest_reset(question->guest, gpu, ERG_KNOB_CLOCK, err);
}

static unsigned reset_memory(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    return erg_zeusd_guest_reset(question->guest, gpu, ERG_KNOB_MEMORY, err);
}

static unsigned reset_clocks(const struct question *question, uint32_t gpu, struct erg_error *err)
{
    const unsigned status = reset_clock(question, gpu, err);
    return status == 200 ? reset_memory(question, gpu, err) : status;
}

/* The daemon has no such setting for clients: only its rules set the mode. */
static unsigned set_persistence(const struct question *question, uint32_t gpu,
                                struct erg_error *err)
{
    bool on;
    if (erg_persistence_read(question->zeusd->gpus, gpu, &on, err) != 0)
        return 500;
    if (on == question->enabled)
        return 200;
    erg_fail(err, ERG_NO_DEVICE,
             "the persistence mode of GPU %u is %s, and only the daemon's rules change it: key "
             "standing.persistence",
             (unsigned)gpu, on ? "on" : "off");
    return 403;
}

/* ---- routes ---- */

enum query { GPUS = 1, BLOCK = 2, CLOCKS = 4, LIMIT = 8, ENABLED = 16, ALL_GPUS = 32 };

static const struct zeusd_route {
    const char *path;
    bool post;
    unsigned query; /* keys of the query: all are required, except GPUS with ALL_GPUS, and BLOCK */
    const char *begin, *end; /* put around the values of GPUs */
    act_of_gpu *act;
} routes[] = {
    {"/gpu/get_power", false, GPUS | ALL_GPUS, NULL, "}}", read_power},
    {"/gpu/get_cumulative_energy", false, GPUS, "{", "}", read_energy},
    {"/gpu/get_power_limit", false, GPUS | ALL_GPUS, "{", "}", read_limit},
    {"/gpu/get_power_limit_constraints", false, GPUS | ALL_GPUS, "{", "}", read_constraints},
    {"/gpu/get_persistence_mode", false, GPUS | ALL_GPUS, "{", "}", read_persistence},
    {"/gpu/set_gpu_locked_clocks", true, GPUS | BLOCK | CLOCKS, "", "", set_clock},
    {"/gpu/set_mem_locked_clocks", true, GPUS | BLOCK | CLOCKS, "", "", set_memory},
    {"/gpu/reset_gpu_locked_clocks", true, GPUS | BLOCK, "", "", reset_clock},
    {"/gpu/reset_mem_locked_clocks", true, GPUS | BLOCK, "", "", reset_memory},
    {"/gpu/reset_locked_clocks", true, GPUS | BLOCK, "", "", reset_clocks},
    {"/gpu/set_power_limit", true, GPUS | BLOCK | LIMIT, "", "", set_limit},
    {"/gpu/set_persistence_mode", true, GPUS | BLOCK | ENABLED, "", "", set_persistence},
};

/* ---- the query ---- */

struct zeusd_query {
    const struct zeusd_route *route;
    struct question *question;
    unsigned given;
    struct erg_error *err;
    bool wrong;
};

static bool take_gpus(struct zeusd_query *reading, const char *text)
{
    struct erg_error why;
    const size_t count = erg_gpus_count(reading->question->zeusd->gpus);
    if (erg_gpu_bits(text, count, NULL, &reading->question->gpus, &why) == 0)
        return true;
    erg_fail(reading->err, ERG_USAGE, "gpu_ids=%s: %s", text, why.message);
    return false;
}

static bool take_word(struct zeusd_query *reading, const char *key, const char *text, bool *value)
{
    *value = strcmp(text, "true") == 0;
    if (*value || strcmp(text, "false") == 0)
        return true;
    erg_fail(reading->err, ERG_USAGE, "%s=%s: expected true or false", key, text);
    return false;
}

static bool take_number(struct zeusd_query *reading, const char *key, const char *text,
                        uint32_t *value)
{
    long number;
    if (erg_parse_long(text, &number) && number >= 0 && number <= UINT32_MAX) {
        *value = (uint32_t)number;
        return true;
    }
    erg_fail(reading->err, ERG_USAGE, "%s=%s: expected a number of at least 0", key, text);
    return false;
}

static enum MHD_Result take_key(void *context, enum MHD_ValueKind kind, const char *key,
                                const char *value)
{
    struct zeusd_query *reading = context;
    struct question *question = reading->question;
    const unsigned takes = reading->route->query;
    const char *text = value ? value : "";
    unsigned given = 0;
    bool right = true;
    (void)kind;
    if (takes & GPUS && strcmp(key, "gpu_ids") == 0)
        given = GPUS, right = take_gpus(reading, text);
    else if (takes & BLOCK && strcmp(key, "block") == 0)
        given = BLOCK, right = take_word(reading, key, text, &question->block);
    else if (takes & ENABLED && strcmp(key, "enabled") == 0)
        given = ENABLED, right = take_word(reading, key, text, &question->enabled);
    else if (takes & LIMIT && strcmp(key, "power_limit_mw") == 0)
        given = LIMIT, right = take_number(reading, key, text, &question->most);
    else if (takes & CLOCKS && strcmp(key, "min_clock_mhz") == 0)
        right = take_number(reading, key, text, &question->least);
    else if (takes & CLOCKS && strcmp(key, "max_clock_mhz") == 0)
        given = CLOCKS, right = take_number(reading, key, text, &question->most);
    else {
        erg_fail(reading->err, ERG_USAGE, "the query of %s has an unknown key \"%s\"",
                 reading->route->path, key);
        right = false;
    }
    reading->given |= given;
    reading->wrong = reading->wrong || !right;
    return right ? MHD_YES : MHD_NO;
}

static bool read_query(struct MHD_Connection *connection, const struct zeusd_route *route,
                       struct question *question, struct erg_error *err)
{
    struct zeusd_query reading = {route, question, 0, err, false};
    const size_t count = erg_gpus_count(question->zeusd->gpus);
    unsigned needed = route->query & (GPUS | CLOCKS | LIMIT | ENABLED);
    if (route->query & ALL_GPUS) {
        needed &= ~(unsigned)GPUS;
        question->gpus = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
    }
    question->block = true;
    question->least = UINT32_MAX;
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, take_key, &reading);
    if (reading.wrong)
        return false;
    if ((reading.given & needed) == needed &&
        (!(route->query & CLOCKS) || question->least != UINT32_MAX))
        return true;
    erg_fail(err, ERG_USAGE, "the query of %s lacks a key; expected gpu_ids%s", route->path,
             route->query & CLOCKS    ? ", min_clock_mhz and max_clock_mhz"
             : route->query & LIMIT   ? " and power_limit_mw"
             : route->query & ENABLED ? " and enabled"
                                      : "");
    return false;
}

/* ---- answers ---- */

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status,
                               struct erg_text *text)
{
    static char empty[1];
    struct MHD_Response *response = MHD_create_response_from_buffer(
        text->count, text->count ? text->data : empty, MHD_RESPMEM_MUST_COPY);
    if (text->count)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    erg_text_release(text);
    return result;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned status, const char *sentence)
{
    struct erg_text text = {0};
    char escaped[2048];
    erg_text_printf(&text, "{\"error\":\"%s\"}",
                    erg_text_escape_json(escaped, sizeof escaped, sentence));
    return respond(connection, status, &text);
}

static enum MHD_Result discover(struct erg_zeusd *zeusd, struct erg_zeusd_guest *guest,
                                struct MHD_Connection *connection)
{
    struct erg_text text = {0};
    erg_text_add(&text, "{\"gpus\":[");
    for (size_t i = 0; i < erg_gpus_count(zeusd->gpus); i++) {
        const struct erg_gpu_info *info = erg_gpus_info(zeusd->gpus, i);
        char name[400];
        int64_t energy_mj;
        bool counts;
        while (!(counts = erg_zeusd_guest_read(guest, (uint32_t)i, ERG_METRIC_ENERGY, &energy_mj,
                                               NULL) == 200) &&
               erg_now_ns() < zeusd->begun_ns + first_ns) /* the daemon has just started to read */
            erg_sleep_ns(first_ns / 100);
        erg_text_printf(&text,
                        "%s{\"id\":%zu,\"name\":\"%s\",\"pci_address\":\"%s\","
                        "\"cumulative_energy_available\":%s}",
                        i ? "," : "", i, erg_text_escape_json(name, sizeof name, info->name),
                        info->pci, counts ? "true" : "false");
    }
    erg_text_add(&text, "],\"cpus\":[],\"enabled_api_groups\":[\"gpu-control\",\"gpu-read\"],"
                        "\"auth_required\":false}");
    return respond(connection, 200, &text);
}

static enum MHD_Result act(const struct zeusd_route *route, struct question *question,
                           struct MHD_Connection *connection)
{
    struct erg_text answer = {0}, errors = {0};
    unsigned worst = 200;
    question->answer = &answer; // cppcheck-suppress autoVariables ; NULL again below
    if (route->begin)
        erg_text_add(&answer, route->begin);
    else
        erg_text_printf(&answer, "{\"timestamp_ms\":%" PRId64 ",\"power_mw\":{",
                        (int64_t)(1e3 * erg_unix_s()));
    erg_text_add(&errors, "{\"errors\":{");
    for (uint32_t gpu = 0; gpu < 64; gpu++) {
        struct erg_error err = {0};
        char escaped[2048];
        if (!(question->gpus >> gpu & 1))
            continue;
        const unsigned status = route->act(question, gpu, &err);
        if (status == 200)
            continue;
        worst = status > worst ? status : worst;
        begin_member(&errors, gpu);
        erg_text_printf(&errors, "\"%s\"",
                        erg_text_escape_json(escaped, sizeof escaped, err.message));
    }
    erg_text_add(&answer, route->end);
    erg_text_add(&errors, "}}");
    const enum MHD_Result result = respond(connection, worst, worst == 200 ? &answer : &errors);
    erg_text_release(worst == 200 ? &errors : &answer);
    question->answer = NULL;
    return result;
}

static enum MHD_Result answer(struct erg_zeusd *zeusd, struct MHD_Connection *connection,
                              const char *path, bool post)
{
    struct erg_text text = {0};
    struct erg_error err = {0};
    if (!post && strcmp(path, "/time") == 0) {
        erg_text_printf(&text, "{\"timestamp_ms\":%" PRId64 "}", (int64_t)(1e3 * erg_unix_s()));
        return respond(connection, 200, &text);
    }
    const struct zeusd_route *route = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes && !route; i++)
        if (routes[i].post == post && strcmp(routes[i].path, path) == 0)
            route = &routes[i];
    const bool discovers = !post && strcmp(path, "/discover") == 0;
    if (!route && !discovers)
        return say(connection, 404, "unknown route of zeusd");
    struct question question = {.zeusd = zeusd};
    if (route && !read_query(connection, route, &question, &err))
        return say(connection, 400, err.message);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    question.guest = erg_zeusd_guest_of(zeusd->known, info->connect_fd, &err);
    if (!question.guest)
        return say(connection, 403, err.message);
    const enum MHD_Result result =
        discovers ? discover(zeusd, question.guest, connection) : act(route, &question, connection);
    erg_zeusd_guest_done(zeusd->known, question.guest);
    return result;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *upload, size_t *upload_bytes, void **state)
{
    static int begun;
    (void)version;
    (void)upload;
    if (!*state) { /* the headers have arrived */
        *state = &begun;
        return MHD_YES;
    }
    if (*upload_bytes) { /* bodies are ignored */
        *upload_bytes = 0;
        return MHD_YES;
    }
    const bool post = strcmp(method, "POST") == 0;
    if (!post && strcmp(method, "GET") != 0)
        return say(connection, 405, "expected GET or POST");
    return answer(context, connection, path, post);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode code)
{
    struct erg_zeusd *zeusd = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    (void)own;
    erg_zeusd_count(zeusd->known, info->connect_fd, code == MHD_CONNECTION_NOTIFY_STARTED);
}

/* ---- start and end ---- */

int erg_zeusd_new(struct erg_zeusd **out, const char *path, int *guests, struct erg_error *err)
{
    struct erg_zeusd *zeusd = erg_xcalloc(1, sizeof *zeusd);
    zeusd->path = path;
    if (pipe2(zeusd->guests, O_CLOEXEC) != 0) {
        const int code = errno;
        free(zeusd);
        return erg_fail(err, ERG_FAILED, "listening at '%s': no pipe (%s)", path, strerror(code));
    }
    zeusd->known = erg_zeusd_guests_new(zeusd->guests[1]);
    *guests = zeusd->guests[0];
    *out = zeusd;
    return 0;
}

int erg_zeusd_listen(void *context, struct erg_error *err)
{
    struct erg_zeusd *zeusd = context;
    sigset_t all, before;
    if (erg_gpus_open(&zeusd->gpus, "all", err) != 0)
        return -1;
    const int file = erg_service_listen(zeusd->path, SOCK_STREAM, err);
    if (file < 0)
        return -1;
    zeusd->begun_ns = erg_now_ns();
    sigfillset(&all); /* the daemon handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    zeusd->server = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, NULL,
        NULL, on_request, zeusd, MHD_OPTION_LISTEN_SOCKET, file, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENT_S,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, zeusd, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (zeusd->server)
        return 0;
    close(file);
    return erg_fail(err, ERG_FAILED, "listening at '%s': the server's threads cannot start",
                    zeusd->path);
}

void erg_zeusd_free(struct erg_zeusd *zeusd)
{
    if (!zeusd)
        return;
    close(zeusd->guests[0]); /* accept no more guests */
    if (zeusd->server) {
        unlink(zeusd->path);
        MHD_stop_daemon(zeusd->server);
    }
    erg_zeusd_guests_free(zeusd->known);
    if (zeusd->gpus)
        erg_gpus_close(zeusd->gpus);
    close(zeusd->guests[1]);
    free(zeusd);
}
