/*
 * ergon serve --plan over libmicrohttpd: passes requests to the plan server (hooks/plan_server.h).
 * A connection whose answer has to wait is suspended, and resumed when there is an answer.
 */
#ifndef ERG_SERVE_SERVE_PLAN_H
#define ERG_SERVE_SERVE_PLAN_H

#include "hooks/plan_server.h"
#include "serve/serve_connections.h"

/* An HTTP request, from its headers to its answer. */
struct erg_serve_request {
    struct MHD_Connection *connection;
    struct erg_text body;
    struct erg_plan_question question;
    bool too_long; /* its body */
    bool held, gone;
};

struct erg_serve_plan {
    pthread_mutex_t lock; /* take it before the lock of the connections */
    struct erg_plan_server *server;
    struct erg_serve_connections *connections;
};

int erg_serve_plan_open(struct erg_serve_plan *plan, const struct erg_plan_server_options *options,
                        struct erg_serve_connections *connections, struct erg_error *err);
void erg_serve_plan_close(struct erg_serve_plan *plan);

/* Appends a part of a body. */
void erg_serve_plan_read(struct erg_serve_request *request, const char *part, size_t bytes);

/*
 * Answers a complete request, or one whose connection was resumed: its question then has a status
 * other than 0, or the connection is suspended again. `path` is the request's path without a host.
 * MHD_NO: the client has gone.
 */
enum MHD_Result erg_serve_plan_ask(struct erg_serve_plan *plan, struct erg_serve_request *request,
                                   const char *method, const char *path);

/* A request ends in any way: frees it. Calls erg_serve_answered(). */
void erg_serve_plan_finish(struct erg_serve_plan *plan, struct erg_serve_request *request);

/* Call it about once a second. */
void erg_serve_plan_tick(struct erg_serve_plan *plan);

/* Resumes all suspended connections before the server ends. */
void erg_serve_plan_end(struct erg_serve_plan *plan);

#endif
