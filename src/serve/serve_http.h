/* The HTTP server of ergon serve and of the page of ergon schedule: start and answers. */
#ifndef ERG_SERVE_SERVE_HTTP_H
#define ERG_SERVE_SERVE_HTTP_H

#include "base/text.h"
#include "ergon/error.h"
#include "serve/serve_connections.h"

#include <microhttpd.h>
#include <netdb.h>
#include <stdbool.h>

#define ERG_SERVE_PLAIN "text/plain; charset=utf-8"

/* A header in addition to the content type. A list ends with a NULL name; a NULL value is left
 * out. */
struct erg_serve_header {
    const char *name, *value;
};

/* `headers` may be NULL. The text is copied. */
enum MHD_Result erg_serve_answer(struct MHD_Connection *connection, unsigned status,
                                 const char *content_type, const struct erg_serve_header *headers,
                                 const struct erg_text *text);

/* The same, with plain text. */
enum MHD_Result erg_serve_answer_plain(struct MHD_Connection *connection, unsigned status,
                                       const struct erg_serve_header *headers,
                                       const char *sentence);

/* Returns true for a method that only reads; the second function answers other methods. */
bool erg_serve_reads(const char *method);
enum MHD_Result erg_serve_refuse_method(struct MHD_Connection *connection);

/* The path of a request, whose target may be a whole URI (RFC 9112, 3.2.2). */
const char *erg_serve_path(const char *target);

struct erg_serve_handlers {
    MHD_AccessHandlerCallback on_request;
    MHD_RequestCompletedCallback on_completed;
    void *context;
};

/*
 * Listens, and answers from a thread of its own, which takes no signals, until MHD_stop_daemon().
 * `address` was resolved from `listen`; *port gets the port in use.
 */
int erg_serve_start(struct MHD_Daemon **daemon, struct erg_serve_connections *connections,
                    const struct erg_serve_handlers *handlers, const char *listen,
                    const struct addrinfo *address, int *port, struct erg_error *err);

#endif
