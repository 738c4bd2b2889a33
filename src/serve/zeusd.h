/*
 * A socket for clients of zeusd, the daemon of Zeus: zeusd's HTTP routes over a local socket, as in
 * Zeus 0.16.0. Clients find the socket in $ZEUSD_SOCK_PATH.
 *
 *   GET  /discover, /time
 *   GET  /gpu/get_power, get_cumulative_energy, get_power_limit, get_power_limit_constraints,
 *        get_persistence_mode
 *   POST /gpu/set_gpu_locked_clocks, reset_gpu_locked_clocks, set_mem_locked_clocks,
 *        reset_mem_locked_clocks, reset_locked_clocks, set_power_limit, set_persistence_mode
 *
 * CPU readings and streams are not supported. The status 200 means success; otherwise the body has
 * a sentence for each GPU that refused: 400 for a wrong query or value, 403 for what the rules or
 * another holder forbid, 404 for an unknown GPU or route, 500 for an error of the driver.
 *
 * Each client process is a guest of the daemon (daemon/daemon.h), identified by its socket. Its
 * settings are a lease of that process, across all of its connections, under the same rules and in
 * the same audit. The lease ends when the process resets the settings, or ends.
 */
#ifndef ERG_SERVE_ZEUSD_H
#define ERG_SERVE_ZEUSD_H

#include "ergon/error.h"

struct erg_zeusd;

/* *guests is the pipe that the daemon reads. */
int erg_zeusd_new(struct erg_zeusd **zeusd, const char *path, int *guests, struct erg_error *err);

/* Starts to listen; a callback of struct erg_daemon_options. */
int erg_zeusd_listen(void *zeusd, struct erg_error *err);

void erg_zeusd_free(struct erg_zeusd *zeusd);

#endif
