/* Finds the same exchange on all ranks of its group. */
#include "trace/exchange_wait.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct exchanged {
    uint64_t group; /* hash of its name and ranks */
    int64_t start_ns, end_ns;
    uint32_t lane;
    uint32_t size : 24, category : 8;
};

struct erg_exchange_waits {
    struct exchanged *items;
    size_t count, capacity;
    bool too_many;
};

struct erg_exchange_waits *erg_exchange_waits_new(void)
{
    return erg_xcalloc(1, sizeof(struct erg_exchange_waits));
}

void erg_exchange_waits_free(struct erg_exchange_waits *waits)
{
    free(waits->items);
    free(waits);
}

void erg_exchange_waits_add(struct erg_exchange_waits *waits, uint32_t lane,
                            const struct erg_kernel_record *record)
{
    const struct erg_kernel_collective *about = &record->collective;
    const char *ranks = about->ranks ? about->ranks : "";
    bool message = record->category == ERG_CATEGORY_SEND_RECV && record->sub != ERG_SUB_ALL_TO_ALL;
    if (!erg_kernel_communicates(record->category) || message || record->wait_ns >= 0 ||
        !about->group || about->group_size < 2 || about->group_size >= 1 << 24)
        return;
    if (waits->count == ERG_EXCHANGES_MOST) {
        waits->too_many = true;
        return;
    }
    const struct exchanged one = {
        .group = XXH3_64bits_withSeed(ranks, strlen(ranks),
                                      XXH3_64bits(about->group, strlen(about->group))),
        .start_ns = record->start_ns,
        .end_ns = record->end_ns,
        .lane = lane,
        .size = (uint32_t)about->group_size & 0xffffffU,
        .category = (uint32_t)record->category & 0xffU,
    };
    ERG_PUSH(waits, items, one);
}

static int by_group(const void *left, const void *right)
{
    const struct exchanged *a = left, *b = right;
    return a->group != b->group ? (a->group > b->group) - (a->group < b->group)
           : a->lane != b->lane ? (a->lane > b->lane) - (a->lane < b->lane)
                                : (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

struct exchange_finding {
    bool (*unix_ns)(void *context, uint32_t lane, int64_t *time_ns);
    void (*each)(void *context, uint32_t lane, enum erg_kernel_category category, int64_t wait_ns);
    void *context;
};

/*
 * Whether the exchanges of one group are complete: the same number on each of `size` lanes, with
 * the same categories in the same order. *each is then that number.
 */
static bool is_whole(const struct exchanged *items, size_t count, size_t *each)
{
    const size_t size = items[0].size;
    assert(size >= 2); /* add() skips smaller groups */
    *each = count / size;
    if (count % size != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if (items[i].lane != items[i / *each * *each].lane || items[i].size != size ||
            items[i].category != items[i % *each].category ||
            (i % *each == 0 && i > 0 && items[i].lane == items[i - 1].lane))
            return false;
    return true;
}

static void find_group(const struct exchanged *items, size_t count,
                       const struct exchange_finding *finding)
{
    size_t each;
    if (!is_whole(items, count, &each))
        return;
    for (size_t i = 0; i < each; i++) {
        int64_t last_ns = INT64_MIN, shift_ns;
        bool known = true;
        for (size_t k = i; k < count && known; k += each) {
            known = finding->unix_ns(finding->context, items[k].lane, &shift_ns);
            if (known && items[k].start_ns + shift_ns > last_ns)
                last_ns = items[k].start_ns + shift_ns;
        }
        for (size_t k = i; k < count && known; k += each) {
            finding->unix_ns(finding->context, items[k].lane, &shift_ns);
            int64_t wait_ns = last_ns - (items[k].start_ns + shift_ns);
            int64_t whole_ns = items[k].end_ns - items[k].start_ns;
            finding->each(finding->context, items[k].lane,
                          (enum erg_kernel_category)items[k].category,
                          wait_ns < whole_ns ? wait_ns : whole_ns);
        }
    }
}

bool erg_exchange_waits_find(struct erg_exchange_waits *waits,
                             bool (*unix_ns)(void *context, uint32_t lane, int64_t *time_ns),
                             void (*each)(void *context, uint32_t lane,
                                          enum erg_kernel_category category, int64_t wait_ns),
                             void *context)
{
    const struct exchange_finding finding = {unix_ns, each, context};
    if (waits->too_many)
        return false;
    if (waits->count)
        qsort(waits->items, waits->count, sizeof *waits->items, by_group);
    for (size_t first = 0, end; first < waits->count; first = end) {
        for (end = first;
             end < waits->count && waits->items[end].group == waits->items[first].group;)
            end++;
        find_group(waits->items + first, end - first, &finding);
    }
    return true;
}
