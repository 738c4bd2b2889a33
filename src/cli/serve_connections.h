/*
 * Connections of ergon serve: none may keep the others out. libmicrohttpd limits how many there are
 * and how long one is silent; neither helps against clients that open many, or send a byte now and
 * then. Here a connection has DEADLINE seconds for each whole request, and one too many, of an
 * address or of all, closes the oldest, so that a new one always finds a place.
 */
#ifndef ERG_CLI_SERVE_CONNECTIONS_H
#define ERG_CLI_SERVE_CONNECTIONS_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    ERG_SERVE_DEADLINE_S = 10,
    ERG_SERVE_OF_ADDRESS = 16,
    ERG_SERVE_CONNECTIONS = 48,
    ERG_SERVE_MOST = 64, /* of the server, with those that it has not closed yet */
};

struct erg_serve_connections {
    pthread_mutex_t lock;
    struct erg_serve_connection {
        int file; /* 0 = free */
        struct in6_addr address;
        int64_t since_ns; /* it came, or got its last answer */
        uint64_t number;  /* the oldest has the lowest */
        bool closing;
    } items[ERG_SERVE_MOST + 1];
    uint64_t come;
};

/* Of MHD_OPTION_NOTIFY_CONNECTION and MHD_OPTION_NOTIFY_COMPLETED, with the struct as context. */
void erg_serve_notice(void *connections, struct MHD_Connection *connection, void **own,
                      enum MHD_ConnectionNotificationCode code);
void erg_serve_answered(void *connections, struct MHD_Connection *connection, void **request,
                        enum MHD_RequestTerminationCode code);

/* Closes those whose time is over; to be called several times a second. */
void erg_serve_close_late(struct erg_serve_connections *connections);

#endif
