/*
 * Processes that ask by zeusd's routes, each with a connection of its own to the daemon of the same
 * process, whose guest it is. From any thread; what one process asks is done one after the other.
 *
 * Calls of a guest give 200, or the status of HTTP that fits with a sentence in `err`.
 */
#ifndef ERG_SERVE_ZEUSD_GUESTS_H
#define ERG_SERVE_ZEUSD_GUESTS_H

#include "telemetry/daemon_client.h"
#include "telemetry/gpu.h"
#include "telemetry/gpu_bits.h"

struct erg_zeusd_guests;
struct erg_zeusd_guest;

/* `pipe` takes the daemon's ends of connections. */
struct erg_zeusd_guests *erg_zeusd_guests_new(int pipe);
void erg_zeusd_guests_free(struct erg_zeusd_guests *guests);

/* A connection of a client has begun or ended. One too many of its user is shut down at once. */
void erg_zeusd_count(struct erg_zeusd_guests *guests, int socket, bool begins);

/* The guest that a client's connection is of, for one request; NULL: he is not let in. */
struct erg_zeusd_guest *erg_zeusd_guest_of(struct erg_zeusd_guests *guests, int socket,
                                           struct erg_error *err);
void erg_zeusd_guest_done(struct erg_zeusd_guests *guests, struct erg_zeusd_guest *guest);

unsigned erg_zeusd_guest_read(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_metric metric,
                              int64_t *value, struct erg_error *err);
unsigned erg_zeusd_guest_gpu(struct erg_zeusd_guest *guest, uint32_t gpu,
                             struct erg_wire_gpu *there, struct erg_error *err);

/* MHz or mW, under a lease, which begins where there is none. Without `block` the driver is not
 * waited for. */
unsigned erg_zeusd_guest_set(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                             uint32_t least, uint32_t most, bool block, struct erg_error *err);

/* As it was, and the lease ends. Without a lease there is nothing to do, unless another process has
 * one. */
unsigned erg_zeusd_guest_reset(struct erg_zeusd_guest *guest, uint32_t gpu, enum erg_knob knob,
                               struct erg_error *err);

#endif
