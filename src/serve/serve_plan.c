/* Requests of other trainers for the clocks of a plan, and connections whose answer waits. */
#include "serve/serve_plan.h"

#include "base/clock.h"

#include <string.h>

int erg_serve_plan_open(struct erg_serve_plan *plan, const struct erg_plan_server_options *options,
                        struct erg_serve_connections *connections, struct erg_error *err)
{
    *plan = (struct erg_serve_plan){.connections = connections};
    if (erg_plan_server_open(&plan->server, options, err) != 0)
        return -1;
    pthread_mutex_init(&plan->lock, NULL);
    return 0;
}

void erg_serve_plan_close(struct erg_serve_plan *plan)
{
    erg_plan_server_close(plan->server);
    pthread_mutex_destroy(&plan->lock);
}

void erg_serve_plan_read(struct erg_serve_request *request, const char *part, size_t bytes)
{
    request->too_long |= request->body.count + bytes > ERG_PLAN_SERVER_BODY_BYTES;
    if (request->too_long)
        erg_text_release(&request->body);
    else
        erg_text_add_bytes(&request->body, part, bytes);
}

/* ---- waiting; needs the lock ---- */

static struct erg_serve_request *request_of(struct erg_plan_question *question)
{
    return (struct erg_serve_request *)(void *)((char *)question -
                                                offsetof(struct erg_serve_request, question));
}

static void go_on(struct erg_serve_request *request)
{
    request->held = false;
    MHD_resume_connection(request->connection);
}

static void go_on_with_answers(struct erg_serve_plan *plan)
{
    struct erg_plan_question *question;
    while ((question = erg_plan_server_take(plan->server)) != NULL)
        go_on(request_of(question));
}

static void hold(struct erg_serve_plan *plan, struct erg_serve_request *request)
{
    if (!erg_serve_hold(plan->connections, request->connection, request)) {
        erg_plan_server_forget(plan->server, &request->question);
        erg_plan_server_fail(&request->question, 503, "too many ranks are waiting");
        return;
    }
    request->held = true;
    MHD_suspend_connection(request->connection);
}

/* ---- requests ---- */

static void ask(struct erg_serve_plan *plan, struct erg_serve_request *request)
{
    if (request->too_long) {
        erg_plan_server_fail(&request->question, 413, "expected a body of at most 1 MiB");
        return;
    }
    erg_plan_server_ask(plan->server, &request->question, erg_now_ns());
    if (!request->question.status)
        hold(plan, request);
    go_on_with_answers(plan);
}

enum MHD_Result erg_serve_plan_ask(struct erg_serve_plan *plan, struct erg_serve_request *request,
                                   const char *method, const char *path)
{
    struct erg_plan_question *question = &request->question;
    pthread_mutex_lock(&plan->lock);
    const bool gone = request->gone;
    if (!gone && !question->status && !request->held) {
        question->method = method;
        question->path = path;
        question->rank =
            MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "rank");
        question->body = request->body.data ? request->body.data : "";
        question->body_bytes = request->body.count;
        ask(plan, request);
    }
    pthread_mutex_unlock(&plan->lock);
    return gone ? MHD_NO : MHD_YES;
}

/* With the lock, so that no request finds it later. */
void erg_serve_plan_finish(struct erg_serve_plan *plan, struct erg_serve_request *request)
{
    pthread_mutex_lock(&plan->lock);
    if (request->held)
        erg_plan_server_forget(plan->server, &request->question);
    erg_serve_answered(plan->connections, request->connection);
    pthread_mutex_unlock(&plan->lock);
}

/* Clients that have hung up release their place. */
static void release_gone(struct erg_serve_plan *plan)
{
    void *found[256];
    const size_t count =
        erg_serve_find_gone(plan->connections, found, sizeof found / sizeof *found);
    for (size_t i = 0; i < count; i++) {
        struct erg_serve_request *request = found[i];
        if (!request->held)
            continue; /* its answer is being sent */
        erg_plan_server_forget(plan->server, &request->question);
        request->gone = true;
        go_on(request);
    }
}

void erg_serve_plan_tick(struct erg_serve_plan *plan)
{
    pthread_mutex_lock(&plan->lock);
    release_gone(plan);
    erg_plan_server_tick(plan->server, erg_now_ns());
    go_on_with_answers(plan);
    pthread_mutex_unlock(&plan->lock);
}

void erg_serve_plan_end(struct erg_serve_plan *plan)
{
    pthread_mutex_lock(&plan->lock);
    erg_plan_server_end(plan->server);
    go_on_with_answers(plan);
    pthread_mutex_unlock(&plan->lock);
}
