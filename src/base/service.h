/*
 * The interface between a service manager and a program, by the environment that systemd documents
 * in sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3). Without a service manager the
 * functions do nothing.
 */
#ifndef ERG_BASE_SERVICE_H
#define ERG_BASE_SERVICE_H

#include "ergon/error.h"

#include <stdint.h>

/* The listening local socket of packets that was passed, the only one; -1: none. */
int erg_service_socket(void);

/* One that everybody may connect to, of SOCK_SEQPACKET or SOCK_STREAM; an existing file with the
 * path is removed. -1 where that failed. */
int erg_service_listen(const char *path, int type, struct erg_error *err);

/* Sends a state to the service manager, for example "READY=1". A manager that does not read what
 * was sent stops no service: then "WATCHDOG=1" is dropped, other states after a second. */
void erg_service_notify(const char *state);

/* How often the program should tell that it lives ("WATCHDOG=1"), ns; 0: not. */
int64_t erg_service_watchdog_ns(void);

#endif
