/* SM clocks by leases of the daemon. */
#include "telemetry/leased_clocks.h"

#include "base/log.h"
#include "base/memory.h"
#include "telemetry/daemon_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A lease that the daemon does not hear of ends; a look at its events costs next to nothing. */
enum { LOOK_MS = 200 };

struct erg_leased_clocks {
    struct erg_daemon_client *client;
    pid_t owner;
    size_t count;
    bool limited;         /* the daemon has put a change off, which was said */
    pthread_mutex_t lock; /* of the leases and the time */
    uint32_t ttl_ms;      /* the shortest of them, 0: none */
    struct leased_gpu {
        int64_t index;  /* the daemon's, -1: it does not see this GPU */
        uint64_t lease; /* 0: none */
    } items[];
};

static int ask(struct erg_leased_clocks *leased, size_t gpu, unsigned type, struct erg_error *err)
{
    struct erg_wire_request request = {.type = type, .lease = leased->items[gpu].lease};
    return erg_daemon_exchange(leased->client, &request, NULL, err);
}

static int find_gpus(struct erg_leased_clocks *leased, const struct erg_gpus *gpus, uint32_t count,
                     struct erg_error *err)
{
    for (size_t i = 0; i < leased->count; i++)
        leased->items[i].index = -1;
    for (uint32_t there = 0; there < count; there++) {
        struct erg_wire_gpu gpu;
        if (erg_daemon_ask_gpu(leased->client, there, &gpu, err) != 0)
            return -1;
        for (size_t i = 0; i < leased->count; i++)
            if (strcmp(erg_gpus_info(gpus, i)->uuid, gpu.uuid) == 0)
                leased->items[i].index = there;
    }
    return 0;
}

int erg_leased_open(struct erg_leased_clocks **out, const char *socket, const struct erg_gpus *gpus,
                    struct erg_error *err)
{
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    if (erg_daemon_connect(&client, socket, &hello, err) != 0)
        return -1;
    size_t count = erg_gpus_count(gpus);
    struct erg_leased_clocks *leased =
        erg_xcalloc(1, sizeof *leased + count * sizeof *leased->items);
    leased->client = client;
    leased->owner = getpid();
    leased->count = count;
    pthread_mutex_init(&leased->lock, NULL);
    if (find_gpus(leased, gpus, hello.gpus, err) != 0) {
        erg_leased_close(leased);
        return -1;
    }
    *out = leased;
    return 0;
}

bool erg_leased_is_mine(const struct erg_leased_clocks *leased)
{
    return leased->owner == getpid();
}

void erg_leased_close(struct erg_leased_clocks *leased)
{
    /* The end of the connection ends its leases, but for the copy of it that a child has. */
    for (size_t i = 0; i < leased->count && erg_leased_is_mine(leased); i++)
        if (leased->items[i].lease)
            ask(leased, i, ERG_WIRE_RELEASE, NULL);
    erg_daemon_disconnect(leased->client);
    pthread_mutex_destroy(&leased->lock);
    free(leased);
}

int erg_leased_take(struct erg_leased_clocks *leased, size_t gpu, struct erg_error *err)
{
    struct leased_gpu *item = &leased->items[gpu];
    uint64_t lease;
    uint32_t ttl_ms;
    if (item->lease)
        return ask(leased, gpu, ERG_WIRE_KEEP, err);
    if (item->index < 0)
        return erg_fail(err, ERG_NO_DEVICE,
                        "asking the daemon of clocks: it does not see GPU %zu of this process, "
                        "expected the GPUs of this machine",
                        gpu);
    if (erg_daemon_take_lease(leased->client, (uint32_t)item->index, ERG_KNOB_CLOCK, &lease,
                              &ttl_ms, err) != 0)
        return -1;
    pthread_mutex_lock(&leased->lock);
    item->lease = lease;
    leased->ttl_ms = leased->ttl_ms && leased->ttl_ms < ttl_ms ? leased->ttl_ms : ttl_ms;
    pthread_mutex_unlock(&leased->lock);
    return 0;
}

int erg_leased_set(struct erg_leased_clocks *leased, size_t gpu, int clock_mhz,
                   struct erg_error *err)
{
    struct erg_wire_request request = {.type = ERG_WIRE_CLOCK,
                                       .lease = leased->items[gpu].lease,
                                       .low = (uint32_t)clock_mhz,
                                       .high = (uint32_t)clock_mhz,
                                       .flags = ERG_WIRE_WAIT};
    struct erg_wire_change change;
    char limit[ERG_WIRE_TEXT];
    if (erg_daemon_change(leased->client, &request, &change, limit, err) != 0)
        return -1;
    if (limit[0] && !__atomic_exchange_n(&leased->limited, true, __ATOMIC_RELAXED))
        erg_log(
            ERG_LOG_WARNING,
            "the daemon of clocks limits how often the clock of GPU %zu changes: %s (said once)",
            gpu, limit);
    return 0;
}

int erg_leased_reset(struct erg_leased_clocks *leased, size_t gpu, struct erg_error *err)
{
    return ask(leased, gpu, ERG_WIRE_RESET, err);
}

/* Any packet keeps all leases of the connection. */
static bool keep(struct erg_leased_clocks *leased)
{
    struct erg_wire_request request = {.type = ERG_WIRE_HELLO};
    return erg_daemon_exchange(leased->client, &request, NULL, NULL) == 0;
}

bool erg_leased_await_end(struct erg_leased_clocks *leased, int stop, char *reason, size_t capacity)
{
    uint32_t unheard_ms = 0;
    for (;;) {
        struct pollfd wait = {.fd = stop, .events = POLLIN};
        uint64_t ended;
        pthread_mutex_lock(&leased->lock);
        uint32_t third_ms = leased->ttl_ms / 3;
        pthread_mutex_unlock(&leased->lock);
        int look_ms = third_ms && third_ms < LOOK_MS ? (int)third_ms + 1 : LOOK_MS;
        int ready = poll(&wait, 1, look_ms);
        if (ready > 0)
            return false;
        const char *why = erg_daemon_ended_lease(leased->client, &ended);
        if (why) {
            snprintf(reason, capacity, "%s", why);
            return true;
        }
        unheard_ms += (uint32_t)look_ms;
        if (third_ms && unheard_ms >= third_ms) {
            if (!keep(leased)) {
                why = erg_daemon_ended_lease(leased->client, &ended);
                snprintf(reason, capacity, "%s", why ? why : "the daemon does not answer");
                return true;
            }
            unheard_ms = 0;
        }
    }
}
