/*
 * Clients of zeusd, the daemon of Zeus, at a socket of ergon's: its HTTP routes over a local
 * socket, as Zeus 0.16.0 asks them. $ZEUSD_SOCK_PATH names that socket to a client.
 *
 *   GET  /discover, /time
 *   GET  /gpu/get_power, get_cumulative_energy, get_power_limit, get_power_limit_constraints,
 *        get_persistence_mode
 *   POST /gpu/set_gpu_locked_clocks, reset_gpu_locked_clocks, set_mem_locked_clocks,
 *        reset_mem_locked_clocks, reset_locked_clocks, set_power_limit, set_persistence_mode
 *
 * Readings of CPUs and streams are not there. 200 is success; else there is a sentence for each GPU
 * that refused: 400 for a wrong query or value, 403 for what the rules or another holder forbid,
 * 404 for what is not there, 500 for what the driver refuses.
 *
 * Each process that asks is a guest of the daemon (daemon/daemon.h), known by its socket alone.
 * Its settings are a lease of that process, over all of its connections, under the same rules and
 * in the same audit. It ends when the process resets it, and with the process.
 */
#ifndef ERG_SERVE_ZEUSD_H
#define ERG_SERVE_ZEUSD_H

#include "ergon/error.h"

struct erg_zeusd;

/* `guests` becomes the pipe that the daemon reads. */
int erg_zeusd_new(struct erg_zeusd **zeusd, const char *path, int *guests, struct erg_error *err);

/* Listens; of struct erg_daemon_options. */
int erg_zeusd_listen(void *zeusd, struct erg_error *err);

void erg_zeusd_free(struct erg_zeusd *zeusd);

#endif
