/*
 * The host as a device: operations of ops/ on this process's CPU, in bf16 or float.
 *
 * Streams are queues. A seed makes them find races: what is at the head of some stream whose events
 * have happened runs next, chosen at random, so that any order which the events allow can come out,
 * and a wait that is missing becomes a wrong number. Without one everything runs when it is queued.
 */
#ifndef ERG_DEVICE_HOST_H
#define ERG_DEVICE_HOST_H

#include "device/backend.h"

struct erg_host_options {
    bool float32;  /* elements are floats, else bf16 */
    uint64_t seed; /* of the order of streams; 0: as queued */
};

struct erg_backend *erg_host_open(const struct erg_host_options *options);

#endif
