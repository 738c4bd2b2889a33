/* The HTTP server behind ergon serve and the page of ergon schedule: its start, and answers. */
#ifndef ERG_SERVE_SERVE_HTTP_H
#define ERG_SERVE_SERVE_HTTP_H

#include "base/text.h"
#include "ergon/error.h"
#include "serve/serve_connections.h"

#include <microhttpd.h>
#include <netdb.h>
#include <stdbool.h>

#define ERG_SERVE_PLAIN "text/plain; charset=utf-8"

/* A header beyond the content's type. A list ends with a NULL name; a NULL value is left out. */
struct erg_serve_header {
    const char *name, *value;
};

/* `headers` may be NULL. The text is copied. */
enum MHD_Result erg_serve_answer(struct MHD_Connection *connection, unsigned status,
                                 const char *content_type, const struct erg_serve_header *headers,
                                 const struct erg_text *text);

/* The same with plain text. */
enum MHD_Result erg_serve_answer_plain(struct MHD_Connection *connection, unsigned status,
                                       const struct erg_serve_header *headers,
                                       const char *sentence);

/* Whether a method only reads; the answer to one that does not. */
bool erg_serve_reads(const char *method);
enum MHD_Result erg_serve_refuse_method(struct MHD_Connection *connection);

/* The path of a request; its target may be a whole URI (RFC 9112, 3.2.2). */
const char *erg_serve_path(const char *target);

struct erg_serve_handlers {
    MHD_AccessHandlerCallback on_request;
    MHD_RequestCompletedCallback on_completed;
    void *context;
};

/*
 * Listens and answers from a thread of its own, which takes no signals, until MHD_stop_daemon().
 * `listen` is what `address` was resolved from; *port is where it listens.
 */
int erg_serve_start(struct MHD_Daemon **daemon, struct erg_serve_connections *connections,
                    const struct erg_serve_handlers *handlers, const char *listen,
                    const struct addrinfo *address, int *port, struct erg_error *err);

#endif
