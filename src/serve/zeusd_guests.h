/*
 * Client processes of zeusd's routes. Each has a connection of its own to the daemon in this
 * process, whose guest it is. The functions may be called from any thread; requests of one client
 * run one after the other.
 *
 * Functions of a guest return 200, or another HTTP status with a sentence in `err`.
 */
#ifndef ERG_SERVE_ZEUSD_GUESTS_H
#define ERG_SERVE_ZEUSD_GUESTS_H

#include "telemetry/daemon_client.h"
#include "telemetry/gpu.h"
#include "telemetry/gpu_bits.h"

struct erg_zeusd_guests;
struct erg_zeusd_guest;

/* `pipe` receives the daemon's ends of connections. */
struct erg_zeusd_guests *erg_zeusd_guests_new(int pipe);
void erg_zeusd_guests_free(struct erg_zeusd_guests *guests);

/* Counts a client connection that begins or ends. One beyond its user's limit is shut down at
 * once. */
void erg_zeusd_count(struct erg_zeusd_guests *guests, int socket, bool begins);

/* Returns the guest that owns a client connection, for one request; NULL with an error if it is
 * refused. */
struct erg_zeusd_guest *erg_zeusd_guest_of(struct erg_zeusd_guests *guests, int socket,
                                           struct erg_error *err);
void erg_zeusd_guest_done(struct erg_zeusd_guests *guests, struct erg_zeusd_guest *guest);

unsigned erg_zeusd_guest_read(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_metric metric,
                              int64_t *value, struct erg_error *err);
unsigned erg_zeusd_guest_gpu(struct erg_zeusd_guest *guest, uint32_t gpu,
                             struct erg_wire_gpu *there, struct erg_error *err);

/* Sets MHz or mW under a lease, which starts if there is none. Without `block`, the call does not
 * wait for the driver. */
unsigned erg_zeusd_guest_set(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                             uint32_t least, uint32_t most, bool block, struct erg_error *err);

/* Restores the former setting and ends the lease. Without a lease nothing happens, unless another
 * process has one: that is an error. */
unsigned erg_zeusd_guest_reset(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                               struct erg_error *err);

#endif
