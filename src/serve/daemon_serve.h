/*
 * The daemon of clocks and power limits (daemon/daemon.h) as a program runs it: also for clients of
 * zeusd (serve/zeusd.h).
 */
#ifndef ERG_SERVE_DAEMON_SERVE_H
#define ERG_SERVE_DAEMON_SERVE_H

#include "ergon/error.h"

#include <stdbool.h>

struct erg_daemon_input {
    const char *config; /* the file of rules */
    const char *folder; /* of its socket and of the state that survives it */
    const char *socket; /* NULL: FOLDER/ergond.sock, or the one that the service manager passes */
    const char *zeusd;  /* a socket for clients of zeusd; NULL: none */
    bool restore;       /* only ends the leases of a killed daemon */
};

/* Serves until SIGTERM or SIGINT. */
int erg_daemon_serve(const struct erg_daemon_input *input, struct erg_error *err);

#endif
