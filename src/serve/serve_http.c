/* Starts an HTTP server, and makes its answers. */
#include "serve/serve_http.h"

#include "serve/serve_address.h"

#include <signal.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum MHD_Result erg_serve_answer(struct MHD_Connection *connection, unsigned status,
                                 const char *content_type, const struct erg_serve_header *headers,
                                 const struct erg_text *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text->count, text->data, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    for (; headers && headers->name; headers++)
        if (headers->value)
            MHD_add_response_header(response, headers->name, headers->value);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result erg_serve_answer_plain(struct MHD_Connection *connection, unsigned status,
                                       const struct erg_serve_header *headers, const char *sentence)
{
    struct erg_text text = {0};
    erg_text_add(&text, sentence);
    enum MHD_Result result = erg_serve_answer(connection, status, ERG_SERVE_PLAIN, headers, &text);
    erg_text_release(&text);
    return result;
}

bool erg_serve_reads(const char *method)
{
    return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

enum MHD_Result erg_serve_refuse_method(struct MHD_Connection *connection)
{
    static const struct erg_serve_header allow[] = {{MHD_HTTP_HEADER_ALLOW, "GET, HEAD"}, {0}};
    return erg_serve_answer_plain(connection, MHD_HTTP_METHOD_NOT_ALLOWED, allow,
                                  "Expected the method GET or HEAD.\n");
}

const char *erg_serve_path(const char *target)
{
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    return scheme ? target + scheme + strcspn(target + scheme, "/?") : target;
}

int erg_serve_start(struct MHD_Daemon **daemon, struct erg_serve_connections *connections,
                    const struct erg_serve_handlers *handlers, const char *listen,
                    const struct addrinfo *address, int *port, struct erg_error *err)
{
    sigset_t all, before;
    int listener = -1, reason = erg_serve_listen(address, &listener);
    if (reason)
        return erg_fail(err, ERG_FAILED,
                        "listening at %s failed: %s; expected a free port at an address of this "
                        "machine",
                        listen, strerror(reason));
    *port = erg_serve_port(listener);
    const unsigned most = (unsigned)connections->count - 1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    *daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        handlers->on_request, handlers->context, MHD_OPTION_LISTEN_SOCKET, listener,
        MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_NOTIFY_CONNECTION, erg_serve_notice,
        connections, MHD_OPTION_NOTIFY_COMPLETED, handlers->on_completed, handlers->context,
        MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (*daemon)
        return 0;
    close(listener);
    return erg_fail(err, ERG_FAILED, "listening at %s failed: the server's threads cannot start",
                    listen);
}
