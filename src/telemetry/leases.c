/* SM clocks and power limits by leases of the daemon. */
#include "telemetry/leases.h"

#include "base/log.h"
#include "base/memory.h"
#include "telemetry/daemon_client.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A lease ends if the daemon hears nothing of it; a check of its events costs almost nothing. */
enum { LOOK_MS = 200 };

/* A driver's change takes less than this. */
static const int64_t late_ns = 30000000;

struct erg_leases {
    struct erg_daemon_client *client;
    pid_t owner;
    size_t count;
    bool limited;         /* the daemon has delayed a change, which was logged */
    pthread_mutex_t lock; /* protects the leases and the time */
    uint32_t ttl_ms;      /* the shortest; 0: no lease */
    struct leased_gpu {
        int64_t index;             /* the daemon's, -1: it does not see this GPU */
        uint64_t lease[ERG_KNOBS]; /* 0: none */
    } items[];
};

static int ask(struct erg_leases *leases, size_t gpu, enum erg_knob knob, unsigned type,
               struct erg_error *err)
{
    struct erg_wire_request request = {.type = type, .lease = leases->items[gpu].lease[knob]};
    return erg_daemon_exchange(leases->client, &request, NULL, err);
}

static int find_gpus(struct erg_leases *leases, const struct erg_gpus *gpus, uint32_t count,
                     struct erg_error *err)
{
    for (size_t i = 0; i < leases->count; i++)
        leases->items[i].index = -1;
    for (uint32_t there = 0; there < count; there++) {
        struct erg_wire_gpu gpu;
        if (erg_daemon_ask_gpu(leases->client, there, &gpu, err) != 0)
            return -1;
        for (size_t i = 0; i < leases->count; i++)
            if (strcmp(erg_gpus_info(gpus, i)->uuid, gpu.uuid) == 0)
                leases->items[i].index = there;
    }
    return 0;
}

int erg_leases_open(struct erg_leases **out, const char *socket, const struct erg_gpus *gpus,
                    struct erg_error *err)
{
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    if (erg_daemon_connect(&client, socket, &hello, err) != 0)
        return -1;
    size_t count = erg_gpus_count(gpus);
    struct erg_leases *leases = erg_xcalloc(1, sizeof *leases + count * sizeof *leases->items);
    leases->client = client;
    leases->owner = getpid();
    leases->count = count;
    pthread_mutex_init(&leases->lock, NULL);
    if (find_gpus(leases, gpus, hello.gpus, err) != 0) {
        erg_leases_close(leases);
        return -1;
    }
    *out = leases;
    return 0;
}

bool erg_leases_is_mine(const struct erg_leases *leases)
{
    return leases->owner == getpid();
}

void erg_leases_close(struct erg_leases *leases)
{
    /* The end of the connection ends its leases, unless a child holds a copy of the connection. */
    for (size_t i = 0; i < leases->count && erg_leases_is_mine(leases); i++)
        for (enum erg_knob knob = 0; knob < ERG_KNOBS; knob++)
            if (leases->items[i].lease[knob])
                ask(leases, i, knob, ERG_WIRE_RELEASE, NULL);
    erg_daemon_disconnect(leases->client);
    pthread_mutex_destroy(&leases->lock);
    free(leases);
}

int erg_leases_take(struct erg_leases *leases, size_t gpu, enum erg_knob knob,
                    struct erg_error *err)
{
    struct leased_gpu *item = &leases->items[gpu];
    assert(gpu < leases->count && knob < ERG_KNOBS);
    uint64_t lease;
    uint32_t ttl_ms;
    if (item->lease[knob])
        return ask(leases, gpu, knob, ERG_WIRE_KEEP, err);
    if (item->index < 0)
        return erg_fail(err, ERG_NO_DEVICE,
                        "asking the daemon of clocks: it does not see GPU %zu of this process, "
                        "expected the GPUs of this machine",
                        gpu);
    if (erg_daemon_take_lease(leases->client, (uint32_t)item->index, knob, &lease, &ttl_ms, err) !=
        0)
        return -1;
    pthread_mutex_lock(&leases->lock);
    item->lease[knob] = lease;
    leases->ttl_ms = leases->ttl_ms && leases->ttl_ms < ttl_ms ? leases->ttl_ms : ttl_ms;
    pthread_mutex_unlock(&leases->lock);
    return 0;
}

int erg_leases_set(struct erg_leases *leases, size_t gpu, enum erg_knob knob, int64_t value,
                   struct erg_error *err)
{
    struct erg_wire_request request = {.type =
                                           knob == ERG_KNOB_CLOCK ? ERG_WIRE_CLOCK : ERG_WIRE_POWER,
                                       .lease = leases->items[gpu].lease[knob],
                                       .low = (uint32_t)value,
                                       .high = (uint32_t)value,
                                       .flags = ERG_WIRE_WAIT};
    struct erg_wire_change change;
    if (erg_daemon_change(leases->client, &request, &change, err) != 0)
        return -1;
    const int64_t waited_ns = change.begin_ns - change.received_ns;
    if (waited_ns > late_ns && !__atomic_exchange_n(&leases->limited, true, __ATOMIC_RELAXED))
        erg_log(ERG_LOG_WARNING,
                "a change of the %s of GPU %zu waited for %.0f ms in the daemon of clocks, which "
                "limits the rate of changes (logged once)",
                knob == ERG_KNOB_CLOCK ? "clock" : "power limit", gpu, 1e-6 * (double)waited_ns);
    return 0;
}

int erg_leases_reset(struct erg_leases *leases, size_t gpu, enum erg_knob knob,
                     struct erg_error *err)
{
    return ask(leases, gpu, knob, ERG_WIRE_RESET, err);
}

/* Any packet keeps all leases of the connection. */
static bool keep(struct erg_leases *leases)
{
    struct erg_wire_request request = {.type = ERG_WIRE_HELLO};
    return erg_daemon_exchange(leases->client, &request, NULL, NULL) == 0;
}

bool erg_leases_await_end(struct erg_leases *leases, int stop, char *reason, size_t capacity)
{
    uint32_t unheard_ms = 0;
    for (;;) {
        struct pollfd wait = {.fd = stop, .events = POLLIN};
        uint64_t ended;
        pthread_mutex_lock(&leases->lock);
        uint32_t third_ms = leases->ttl_ms / 3;
        pthread_mutex_unlock(&leases->lock);
        int look_ms = third_ms && third_ms < LOOK_MS ? (int)third_ms + 1 : LOOK_MS;
        int ready = poll(&wait, 1, look_ms);
        if (ready > 0)
            return false;
        const char *why = erg_daemon_ended_lease(leases->client, &ended);
        if (why) {
            snprintf(reason, capacity, "%s", why);
            return true;
        }
        unheard_ms += (uint32_t)look_ms;
        if (third_ms && unheard_ms >= third_ms) {
            if (!keep(leases)) {
                why = erg_daemon_ended_lease(leases->client, &ended);
                snprintf(reason, capacity, "%s", why ? why : "the daemon does not answer");
                return true;
            }
            unheard_ms = 0;
        }
    }
}
