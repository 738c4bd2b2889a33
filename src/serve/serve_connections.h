/*
 * Connections of ergon serve. One client must not keep others out. libmicrohttpd limits the number
 * of connections and the time that one is silent. That does not help against clients that open many
 * connections or send one byte now and then. So each whole request has a deadline of
 * ERG_SERVE_DEADLINE_S, and a connection beyond the limit, per address or in all, closes the oldest
 * one: a new connection always finds a place. A connection whose answer has to wait is held, and
 * exempt from these limits.
 */
#ifndef ERG_SERVE_SERVE_CONNECTIONS_H
#define ERG_SERVE_SERVE_CONNECTIONS_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ERG_SERVE_DEADLINE_S = 10 };

/* Most open connections. */
struct erg_serve_limits {
    size_t of_address, together; /* not counting held ones */
    size_t held;
};

struct erg_serve_connections {
    pthread_mutex_t lock;
    struct erg_serve_limits limits;
    struct erg_serve_connection {
        int file; /* 0: a free place */
        struct in6_addr address;
        int64_t since_ns; /* when it arrived, or got its last answer */
        uint64_t number;  /* increases with each connection */
        void *request;    /* the held request; NULL: none */
        bool closing;
    } * items;
    size_t count; /* places; the server may use one fewer */
    size_t held;
    uint64_t come;
};

void erg_serve_connections_init(struct erg_serve_connections *connections,
                                const struct erg_serve_limits *limits);
void erg_serve_connections_release(struct erg_serve_connections *connections);

/* Callbacks for MHD_OPTION_NOTIFY_CONNECTION and MHD_OPTION_NOTIFY_COMPLETED; the struct is their
 * context. */
void erg_serve_notice(void *connections, struct MHD_Connection *connection, void **own,
                      enum MHD_ConnectionNotificationCode code);
void erg_serve_answered(struct erg_serve_connections *connections,
                        struct MHD_Connection *connection);

/* Closes connections that exceed their deadline; call it several times a second. */
void erg_serve_close_late(struct erg_serve_connections *connections);

/* Holds a connection until its request is answered; false: too many are held. */
bool erg_serve_hold(struct erg_serve_connections *connections, struct MHD_Connection *connection,
                    void *request);

/* Finds held requests whose clients have hung up, at most `most`; returns their number. */
size_t erg_serve_find_gone(struct erg_serve_connections *connections, void **requests, size_t most);

#endif
