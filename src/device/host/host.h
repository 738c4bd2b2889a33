/*
 * The host as a device: operations of ops/ on this process's CPU, in bf16 or float, and exchanges
 * by messages between processes (launch/peers.h), of one machine or of several.
 *
 * Streams are queues, which run when one of them is waited for: what was queued first of all that
 * can run, or, to find races, any of it. A seed chooses at random among the heads of streams whose
 * events have happened and whose messages have come, so that any order which the events allow can
 * come out, and a wait that is missing becomes a wrong number.
 */
#ifndef ERG_DEVICE_HOST_H
#define ERG_DEVICE_HOST_H

#include "device/backend.h"

struct erg_host_options {
    bool float32;                      /* elements are floats, else bf16 */
    uint64_t seed;                     /* of the order of streams; 0: as queued */
    bool spoils_free;                  /* as of the backend */
    struct erg_rendezvous *rendezvous; /* of the ranks, outlives the backend; NULL: one rank */
};

/* World call where there is a rendezvous. */
int erg_host_open(struct erg_backend **backend, const struct erg_host_options *options,
                  struct erg_error *err);

#endif
