/* Exchanges between ranks on the host: messages, and sums in the order of ranks. */
#include "device/host/host_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t unit_bytes(const struct erg_exchange *exchange, size_t element_bytes)
{
    return exchange->floats ? sizeof(float) : element_bytes;
}

/* The start of the part of the rank at `place`; an all-reduce is split as evenly as possible. */
static size_t part_begin(const struct erg_host_exchange *e, size_t place)
{
    size_t count = e->exchange.count;
    return e->exchange.kind == ERG_EXCHANGE_ALL_REDUCE ? place * count / e->group->count
                                                       : place * count;
}

static size_t part_count(const struct erg_host_exchange *e, size_t place)
{
    return part_begin(e, place + 1) - part_begin(e, place);
}

static void send(const struct erg_host_exchange *e, struct erg_peers *peers, size_t place,
                 const void *bytes, size_t count)
{
    erg_peers_send(peers, e->group->ranks[place], e->group->channel, bytes, count);
}

/* The `bytes` bytes that the rank at `place` has sent; the caller frees them. */
static void *take(const struct erg_host_exchange *e, struct erg_peers *peers, size_t place,
                  size_t bytes)
{
    size_t count;
    void *message = erg_peers_take(peers, e->group->ranks[place], e->group->channel, &count);
    assert(count == bytes); /* otherwise the ranks make different exchanges */
    (void)bytes;
    return message;
}

static float number_at(const void *values, size_t index, size_t unit)
{
    return unit == sizeof(float) ? ((const float *)values)[index]
                                 : erg_bf16_float(((const erg_bf16 *)values)[index]);
}

/* Sends every other rank its part of the terms. */
static void send_terms(const struct erg_host_exchange *e, struct erg_peers *peers, size_t unit)
{
    for (size_t place = 0; place < e->group->count; place++)
        if (place != e->group->place)
            send(e, peers, place, (const char *)e->exchange.from + part_begin(e, place) * unit,
                 part_count(e, place) * unit);
}

/* Sums this rank's part of all terms into `to`. */
static void sum_terms(const struct erg_host_exchange *e, struct erg_peers *peers, void *to,
                      size_t unit)
{
    size_t count = part_count(e, e->group->place);
    float *sum = erg_xcalloc(count + !count, sizeof *sum);
    for (size_t place = 0; place < e->group->count; place++) {
        bool own = place == e->group->place;
        const char *mine = (const char *)e->exchange.from + part_begin(e, place) * unit;
        void *message = own ? NULL : take(e, peers, place, count * unit);
        const void *terms = own ? mine : message;
        for (size_t i = 0; i < count; i++)
            sum[i] = place ? sum[i] + number_at(terms, i, unit) : number_at(terms, i, unit);
        free(message);
    }
    if (unit == sizeof(float))
        memcpy(to, sum, count * unit);
    else
        erg_ops_to_element(count, sum, to);
    free(sum);
}

static void send_part(const struct erg_host_exchange *e, struct erg_peers *peers, const void *part,
                      size_t unit)
{
    for (size_t place = 0; place < e->group->count; place++)
        if (place != e->group->place)
            send(e, peers, place, part, part_count(e, e->group->place) * unit);
}

static void take_parts(const struct erg_host_exchange *e, struct erg_peers *peers, size_t unit)
{
    for (size_t place = 0; place < e->group->count; place++) {
        if (place == e->group->place)
            continue;
        size_t bytes = part_count(e, place) * unit;
        void *message = take(e, peers, place, bytes);
        memcpy((char *)e->exchange.to + part_begin(e, place) * unit, message, bytes);
        free(message);
    }
}

bool erg_host_exchange_ready(const struct erg_host_exchange *e, struct erg_peers *peers)
{
    if (e->step == 0 && e->exchange.kind != ERG_EXCHANGE_RECEIVE)
        return true;
    for (size_t place = 0; place < e->group->count; place++)
        if (place != e->group->place &&
            !erg_peers_has(peers, e->group->ranks[place], e->group->channel))
            return false;
    return true;
}

bool erg_host_exchange_step(struct erg_host_exchange *e, struct erg_peers *peers,
                            size_t element_bytes)
{
    size_t unit = unit_bytes(&e->exchange, element_bytes), place = e->group->place;
    char *own = e->exchange.to ? (char *)e->exchange.to + part_begin(e, place) * unit : NULL;
    int step = e->step++;
    switch (e->exchange.kind) {
    case ERG_EXCHANGE_ALL_REDUCE:
        if (step == 0) {
            send_terms(e, peers, unit);
            return false;
        }
        if (step == 1) {
            sum_terms(e, peers, own, unit);
            send_part(e, peers, own, unit);
            return false;
        }
        take_parts(e, peers, unit);
        return true;
    case ERG_EXCHANGE_REDUCE_SCATTER:
        if (step == 0) {
            send_terms(e, peers, unit);
            return false;
        }
        sum_terms(e, peers, e->exchange.to, unit);
        return true;
    case ERG_EXCHANGE_ALL_GATHER:
        if (step == 0) {
            send_part(e, peers, e->exchange.from, unit);
            memmove(own, e->exchange.from, e->exchange.count * unit);
            return false;
        }
        take_parts(e, peers, unit);
        return true;
    case ERG_EXCHANGE_SEND:
        send(e, peers, !place, e->exchange.from, e->exchange.count * unit);
        return true;
    default: {
        void *message = take(e, peers, !place, e->exchange.count * unit);
        memcpy(e->exchange.to, message, e->exchange.count * unit);
        free(message);
        return true;
    }
    }
}
