/* The host as a device: declarations shared by its files. */
#ifndef ERG_DEVICE_HOST_INTERNAL_H
#define ERG_DEVICE_HOST_INTERNAL_H

#include "device/host/host.h"
#include "launch/peers.h"

/* Runs one kernel now. */
void erg_host_run(bool float32, const struct erg_kernel *kernel);

struct erg_group {
    int *ranks; /* [count] of the world */
    size_t count, place;
    uint32_t channel;
};

/*
 * A running exchange, in steps that never wait: each sends the data that the other ranks need next,
 * after their data of the previous step has arrived.
 */
struct erg_host_exchange {
    struct erg_exchange exchange;
    const struct erg_group *group;
    int step; /* the next one */
};

/* Whether the next step can run. */
bool erg_host_exchange_ready(const struct erg_host_exchange *exchange, struct erg_peers *peers);
/* Runs it. True: it was the last one. */
bool erg_host_exchange_step(struct erg_host_exchange *exchange, struct erg_peers *peers,
                            size_t element_bytes);

#endif
