/*
 * The host as a device: operations of ops/ on this process's CPU, in bf16 or float, and exchanges
 * by messages between processes (launch/peers.h), of one machine or of several.
 *
 * Streams are queues that run while the caller waits for one of them. Among the items that can run,
 * the one queued first runs next; to find races, a seed makes a random choice instead, among the
 * heads of streams whose events have happened and whose messages have come. So any order that the
 * events allow can occur, and a missing wait gives a wrong number.
 */
#ifndef ERG_DEVICE_HOST_H
#define ERG_DEVICE_HOST_H

#include "device/backend.h"

struct erg_host_options {
    bool float32;                      /* elements are floats; false: bf16 */
    uint64_t seed;                     /* of the order of streams; 0: as queued */
    bool spoils_free;                  /* as in struct erg_backend */
    struct erg_rendezvous *rendezvous; /* of the ranks; outlives the backend; NULL: one rank */
};

/* A world call with a rendezvous. */
int erg_host_open(struct erg_backend **backend, const struct erg_host_options *options,
                  struct erg_error *err);

#endif
