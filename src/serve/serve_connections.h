/*
 * Connections of ergon serve: none may keep the others out. libmicrohttpd limits how many there are
 * and how long one is silent; neither helps against clients that open many, or send a byte now and
 * then. Here a connection has DEADLINE seconds for each whole request, and one too many, of an
 * address or of all, closes the oldest, so that a new one always finds a place. A connection whose
 * answer has to wait is held: these limits do not hold for it.
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

/* How many connections may be open. */
struct erg_serve_limits {
    size_t of_address, together; /* that are not held */
    size_t held;
};

struct erg_serve_connections {
    pthread_mutex_t lock;
    struct erg_serve_limits limits;
    struct erg_serve_connection {
        int file; /* 0 = free */
        struct in6_addr address;
        int64_t since_ns; /* it came, or got its last answer */
        uint64_t number;  /* the oldest has the lowest */
        void *request;    /* that is held; NULL: none */
        bool closing;
    } * items;
    size_t count; /* the server may have one fewer */
    size_t held;
    uint64_t come;
};

void erg_serve_connections_init(struct erg_serve_connections *connections,
                                const struct erg_serve_limits *limits);
void erg_serve_connections_release(struct erg_serve_connections *connections);

/* Of MHD_OPTION_NOTIFY_CONNECTION, and of what MHD_OPTION_NOTIFY_COMPLETED names, with the struct
 * as context. */
void erg_serve_notice(void *connections, struct MHD_Connection *connection, void **own,
                      enum MHD_ConnectionNotificationCode code);
void erg_serve_answered(struct erg_serve_connections *connections,
                        struct MHD_Connection *connection);

/* Closes those whose time is over; to be called several times a second. */
void erg_serve_close_late(struct erg_serve_connections *connections);

/* Holds a connection for a request until it is answered; false: too many are held. */
bool erg_serve_hold(struct erg_serve_connections *connections, struct MHD_Connection *connection,
                    void *request);

/* The requests whose clients have hung up while they were held, `most` at most: how many. */
size_t erg_serve_find_gone(struct erg_serve_connections *connections, void **requests, size_t most);

#endif
