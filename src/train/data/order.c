/* The order of data: a permutation of each epoch, and sets in proportion to their weights. */
#include "train/data/order.h"

#include "base/random.h"

#include <assert.h>

static unsigned bits_of(uint64_t value)
{
    unsigned bits = 0;
    for (; value; value >>= 1)
        bits++;
    return bits;
}

uint64_t erg_order_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index)
{
    assert(index < count);
    unsigned half = (bits_of(count - 1) + 1) / 2;
    half = half ? half : 1;
    const uint64_t low = (UINT64_C(1) << half) - 1, key = erg_hash_u64(seed, epoch);
    do {
        uint64_t left = index >> half, right = index & low;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t mixed = left ^ (erg_hash_u64(key + round, right) >> 32 & low);
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}

/* The set of the next sample: the first of those that are furthest behind. */
static size_t next_set(const struct erg_data_order *order)
{
    size_t best = 0;
    double furthest = -1;
    for (size_t i = 0; i < order->count; i++) {
        const struct erg_order_set *set = &order->sets[i];
        double behind = set->weight * (double)(order->next + 1) - (double)set->dealt;
        if (i == 0 || behind > furthest) {
            furthest = behind;
            best = i;
        }
    }
    return best;
}

struct erg_order_place erg_order_deal(struct erg_data_order *order)
{
    size_t index = next_set(order);
    struct erg_order_set *set = &order->sets[index];
    uint64_t epoch = set->dealt / set->samples, place = set->dealt % set->samples;
    uint64_t seed = order->count > 1 ? erg_hash_u64(order->seed, index) : order->seed;
    set->dealt++;
    order->next++;
    return (struct erg_order_place){
        index, order->shuffle ? erg_order_permute(seed, epoch, set->samples, place) : place, epoch};
}

void erg_order_seek(struct erg_data_order *order, uint64_t samples)
{
    for (size_t i = 0; i < order->count; i++)
        order->sets[i].dealt = 0;
    order->next = 0;
    if (order->count == 1) {
        order->sets[0].dealt = order->next = samples;
        return;
    }
    while (order->next < samples) {
        order->sets[next_set(order)].dealt++;
        order->next++;
    }
}
