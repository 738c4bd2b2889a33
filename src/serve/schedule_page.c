/* The page of a controller, served from a thread of its own. */
#include "serve/schedule_page.h"

#include "cluster/live/schedule_counts.h"
#include "serve/schedule_metrics.h"
#include "serve/serve_address.h"
#include "serve/serve_http.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "observe/openmetrics.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct erg_serve_limits limits = {.of_address = 64, .together = 128};

/* The server's copy of the status. Its texts for answers are made once per update. */
struct shown_status {
    struct erg_text status;  /* JSON; empty: none yet */
    struct erg_text metrics; /* without the age of the snapshot and the final line */
    int64_t updated_ns;
    int64_t answered_ns; /* when the resource manager last answered; 0: never */
};

struct erg_schedule_page {
    struct erg_serve_connections connections;
    struct MHD_Daemon *daemon;
    struct erg_text url;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    struct shown_status shown;
    bool ends;
    pthread_t closer; /* closes connections that exceed their deadline */
};

/* ---- answers ---- */

static double age_s(int64_t since_ns)
{
    return since_ns ? 1e-9 * (double)(erg_now_ns() - since_ns) : NAN;
}

/* Returns a copy of the JSON and its age; without data if there is none yet. */
static struct erg_text copy_status(struct erg_schedule_page *page, double *age)
{
    struct erg_text copy = {0};
    pthread_mutex_lock(&page->lock);
    if (page->shown.status.count > 0)
        erg_text_add_bytes(&copy, page->shown.status.data, page->shown.status.count);
    *age = age_s(page->shown.updated_ns);
    pthread_mutex_unlock(&page->lock);
    return copy;
}

static enum MHD_Result answer_page(struct erg_schedule_page *page,
                                   struct MHD_Connection *connection)
{
    /* Users choose the names of jobs: nothing in them may load anything from elsewhere. */
    static const struct erg_serve_header headers[] = {
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
         "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {0}};
    double age;
    struct erg_text status = copy_status(page, &age), text = {0};
    erg_report_live(&text, status.data);
    enum MHD_Result result =
        erg_serve_answer(connection, MHD_HTTP_OK, "text/html; charset=utf-8", headers, &text);
    erg_text_release(&status);
    erg_text_release(&text);
    return result;
}

/* The age is included because clocks of browsers differ. */
static enum MHD_Result answer_status(struct erg_schedule_page *page,
                                     struct MHD_Connection *connection)
{
    char seconds[32] = "";
    double age;
    struct erg_text status = copy_status(page, &age);
    if (!status.data)
        return erg_serve_answer_plain(connection, MHD_HTTP_SERVICE_UNAVAILABLE, NULL,
                                      "The controller has not looked at the cluster yet.\n");
    snprintf(seconds, sizeof seconds, "%.0f", floor(age));
    const struct erg_serve_header headers[] = {{MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
                                               {MHD_HTTP_HEADER_AGE, seconds},
                                               {"X-Content-Type-Options", "nosniff"},
                                               {0}};
    enum MHD_Result result =
        erg_serve_answer(connection, MHD_HTTP_OK, "application/json", headers, &status);
    erg_text_release(&status);
    return result;
}

static enum MHD_Result answer_metrics(struct erg_schedule_page *page,
                                      struct MHD_Connection *connection)
{
    struct erg_text text = {0}, older = {0};
    const bool open = erg_openmetrics_accepted(
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT));
    pthread_mutex_lock(&page->lock);
    erg_text_add_bytes(&text, page->shown.metrics.data, page->shown.metrics.count);
    erg_schedule_metrics_age(&text, age_s(page->shown.answered_ns));
    pthread_mutex_unlock(&page->lock);
    erg_text_add(&text, "# EOF\n");
    if (!open)
        erg_openmetrics_add_older(&older, text.data);
    enum MHD_Result result = erg_serve_answer(
        connection, MHD_HTTP_OK, open ? ERG_OPENMETRICS_CONTENT_TYPE : ERG_PROMETHEUS_CONTENT_TYPE,
        NULL, open ? &text : &older);
    erg_text_release(&text);
    erg_text_release(&older);
    return result;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    static const struct {
        const char *path;
        enum MHD_Result (*answer)(struct erg_schedule_page *page,
                                  struct MHD_Connection *connection);
    } routes[] = {
        {"/", answer_page}, {"/status.json", answer_status}, {"/metrics", answer_metrics}};
    struct erg_schedule_page *page = context;
    (void)version;
    (void)upload;
    if (!*state) { /* the headers have arrived */
        *state = page;
        return MHD_YES;
    }
    if (*upload_bytes) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (!erg_serve_reads(method))
        return erg_serve_refuse_method(connection);
    const char *path = erg_serve_path(url);
    const size_t length = strcspn(path, "?");
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strlen(routes[i].path) == length && strncmp(path, routes[i].path, length) == 0)
            return routes[i].answer(page, connection);
    return erg_serve_answer_plain(connection, MHD_HTTP_NOT_FOUND, NULL,
                                  "Not found; the page is at /, its data at /status.json, and the "
                                  "metrics are at /metrics.\n");
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct erg_schedule_page *page = context;
    (void)state;
    (void)code;
    erg_serve_answered(&page->connections, connection);
}

/* ---- lifecycle ---- */

static void *close_late(void *context)
{
    struct erg_schedule_page *page = context;
    pthread_mutex_lock(&page->lock);
    while (!page->ends) {
        erg_condition_wait(&page->changed, &page->lock, erg_now_ns() + 200000000);
        pthread_mutex_unlock(&page->lock);
        erg_serve_close_late(&page->connections);
        pthread_mutex_lock(&page->lock);
    }
    pthread_mutex_unlock(&page->lock);
    return NULL;
}

static void release(struct erg_schedule_page *page)
{
    erg_serve_connections_release(&page->connections);
    pthread_cond_destroy(&page->changed);
    pthread_mutex_destroy(&page->lock);
    erg_text_release(&page->shown.status);
    erg_text_release(&page->shown.metrics);
    erg_text_release(&page->url);
    free(page);
}

static int start(struct erg_schedule_page *page, const char *listen, const struct addrinfo *address,
                 struct erg_error *err)
{
    const struct erg_serve_handlers handlers = {on_request, on_completed, page};
    int port;
    if (erg_serve_start(&page->daemon, &page->connections, &handlers, listen, address, &port,
                        err) != 0)
        return -1;
    const int reason = erg_thread_start(&page->closer, close_late, page);
    if (reason) {
        MHD_stop_daemon(page->daemon);
        return erg_fail(err, ERG_FAILED, "starting a thread for the page failed: %s",
                        strerror(reason));
    }
    erg_text_printf(&page->url, "http://%.*s:%d/", (int)(strrchr(listen, ':') - listen), listen,
                    port);
    if (!erg_serve_is_loopback(address))
        erg_log(ERG_LOG_WARNING,
                "other machines can open the page at %s: their users can read the names, users and "
                "places of all jobs",
                listen);
    return 0;
}

int erg_schedule_page_open(struct erg_schedule_page **opened, const char *listen,
                           struct erg_error *err)
{
    struct addrinfo *address;
    if (!listen)
        listen = ERG_SCHEDULE_PAGE_LISTEN;
    if (erg_serve_resolve("page", listen, &address, err) != 0)
        return -1;
    struct erg_schedule_page *page = erg_xcalloc(1, sizeof *page);
    erg_serve_connections_init(&page->connections, &limits);
    pthread_mutex_init(&page->lock, NULL);
    erg_condition_init(&page->changed);
    erg_schedule_metrics(&page->shown.metrics, NULL);
    const int result = start(page, listen, address, err);
    freeaddrinfo(address);
    if (result != 0)
        release(page);
    else
        *opened = page;
    return result;
}

const char *erg_schedule_page_url(const struct erg_schedule_page *page)
{
    return page->url.data;
}

void erg_schedule_page_update(struct erg_schedule_page *page, const json_t *status)
{
    char *json = json_dumps(status, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (!json) /* the page is complete without a controller's document */
        return;
    struct shown_status now = {.updated_ns = erg_now_ns()}, before;
    erg_text_add(&now.status, json);
    free(json);
    erg_schedule_metrics(&now.metrics, status);
    pthread_mutex_lock(&page->lock);
    before = page->shown;
    now.answered_ns = erg_schedule_flag(status, "answers") ? now.updated_ns : before.answered_ns;
    page->shown = now;
    pthread_mutex_unlock(&page->lock);
    erg_text_release(&before.status);
    erg_text_release(&before.metrics);
}

void erg_schedule_page_close(struct erg_schedule_page *page)
{
    if (!page)
        return;
    pthread_mutex_lock(&page->lock);
    page->ends = true;
    pthread_cond_signal(&page->changed);
    pthread_mutex_unlock(&page->lock);
    pthread_join(page->closer, NULL);
    MHD_stop_daemon(page->daemon);
    release(page);
}
