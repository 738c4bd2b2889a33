/* Sweeps over the intervals of a GPU, from one change of the running kernels to the next. */
#include "trace/kernel_time.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* The running kernels and their ends; a heap. */
struct kernel_running {
    int64_t end_ns;
    uint8_t category;
    bool computes;
};

struct erg_kernel_sweep {
    erg_energy_at *energy;
    void *context;
    struct kernel_running *items;
    size_t count, capacity;
    size_t compute[ERG_CATEGORIES], other[ERG_CATEGORIES]; /* running kernels of each category */
    size_t computes;
    int64_t now_ns;
    double energy_j; /* until now */
    bool begun;
    struct erg_kernel_time time;
};

struct erg_kernel_sweep *erg_kernel_sweep_new(erg_energy_at *energy, void *context)
{
    struct erg_kernel_sweep *sweep = erg_xcalloc(1, sizeof *sweep);
    sweep->energy = energy;
    sweep->context = context;
    return sweep;
}

static void count(struct erg_kernel_sweep *sweep, const struct kernel_running *one, bool begins)
{
    size_t *of = one->computes ? sweep->compute : sweep->other;
    of[one->category] += begins ? 1 : (size_t)-1;
    if (one->computes)
        sweep->computes += begins ? 1 : (size_t)-1;
}

/* Advances to `to`; nothing begins or ends until then. */
static void pass(struct erg_kernel_sweep *sweep, int64_t to_ns)
{
    struct erg_kernel_time *time = &sweep->time;
    const int64_t duration_ns = to_ns - sweep->now_ns;
    const size_t *in_front = sweep->computes ? sweep->compute : sweep->other;
    double energy_j = 0;
    size_t shown = 0;
    if (duration_ns <= 0)
        return;
    if (sweep->energy) {
        double until_j = sweep->energy(sweep->context, to_ns);
        energy_j = until_j - sweep->energy_j;
        sweep->energy_j = until_j;
    }
    for (size_t i = 0; i < ERG_CATEGORIES; i++)
        shown += in_front[i] > 0;
    for (size_t i = 0; i < ERG_CATEGORIES; i++)
        if (in_front[i]) {
            time->category[i].exposed_ns += duration_ns;
            time->category[i].energy_j += energy_j / (double)shown;
        }
    if (sweep->computes)
        time->compute_ns += duration_ns;
    else if (shown)
        time->exposed_ns += duration_ns;
    else
        time->idle_ns += duration_ns;
    time->idle_energy_j += shown ? 0 : energy_j;
    time->energy_j += energy_j;
    sweep->now_ns = to_ns;
}

static void push(struct erg_kernel_sweep *sweep, struct kernel_running one)
{
    ERG_PUSH(sweep, items, one);
    size_t at = sweep->count - 1;
    for (; at && sweep->items[(at - 1) / 2].end_ns > one.end_ns; at = (at - 1) / 2)
        sweep->items[at] = sweep->items[(at - 1) / 2];
    sweep->items[at] = one;
}

static struct kernel_running pop(struct erg_kernel_sweep *sweep)
{
    assert(sweep->count > 0);
    const struct kernel_running first = sweep->items[0], last = sweep->items[--sweep->count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < sweep->count) {
        if (child + 1 < sweep->count && sweep->items[child + 1].end_ns < sweep->items[child].end_ns)
            child++;
        if (sweep->items[child].end_ns >= last.end_ns)
            break;
        sweep->items[at] = sweep->items[child];
        at = child;
    }
    sweep->items[at] = last;
    return first;
}

static void end_until(struct erg_kernel_sweep *sweep, int64_t until_ns)
{
    while (sweep->count && sweep->items[0].end_ns <= until_ns) {
        pass(sweep, sweep->items[0].end_ns);
        const struct kernel_running ended = pop(sweep);
        count(sweep, &ended, false);
    }
}

void erg_kernel_sweep_add(struct erg_kernel_sweep *sweep,
                          const struct erg_kernel_interval *interval)
{
    struct erg_kernel_time *time = &sweep->time;
    const struct kernel_running one = {interval->end_ns, interval->category, interval->computes};
    if (!sweep->begun) {
        sweep->begun = true;
        sweep->now_ns = time->begin_ns = interval->start_ns;
        time->end_ns = interval->end_ns;
        if (sweep->energy)
            sweep->energy_j = sweep->energy(sweep->context, sweep->now_ns);
    }
    end_until(sweep, interval->start_ns);
    pass(sweep, interval->start_ns);
    assert(one.category < ERG_CATEGORIES);
    time->category[one.category].count++;
    time->category[one.category].summed_ns += (double)(interval->end_ns - interval->start_ns);
    if (interval->end_ns > time->end_ns)
        time->end_ns = interval->end_ns;
    if (interval->end_ns > interval->start_ns) {
        count(sweep, &one, true);
        push(sweep, one);
    }
}

void erg_kernel_sweep_end(struct erg_kernel_sweep *sweep, struct erg_kernel_time *time)
{
    end_until(sweep, INT64_MAX);
    *time = sweep->time;
    if (!sweep->energy) {
        time->energy_j = time->idle_energy_j = NAN;
        for (size_t i = 0; i < ERG_CATEGORIES; i++)
            time->category[i].energy_j = NAN;
    }
    free(sweep->items);
    free(sweep);
}

int erg_kernel_interval_compare(const void *left, const void *right)
{
    const struct erg_kernel_interval *a = left, *b = right;
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

void erg_kernel_time_of(struct erg_kernel_time *time, const struct erg_kernel_record *records,
                        size_t count, int32_t device, erg_energy_at *energy, void *context)
{
    struct erg_kernel_interval *intervals = erg_xcalloc(count + 1, sizeof *intervals);
    struct erg_kernel_sweep *sweep = erg_kernel_sweep_new(energy, context);
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (records[i].device == device)
            intervals[found++] =
                (struct erg_kernel_interval){.start_ns = records[i].start_ns,
                                             .end_ns = records[i].end_ns,
                                             .category = (uint8_t)records[i].category,
                                             .computes = erg_kernel_computes(&records[i])};
    qsort(intervals, found, sizeof *intervals, erg_kernel_interval_compare);
    for (size_t i = 0; i < found; i++)
        erg_kernel_sweep_add(sweep, &intervals[i]);
    erg_kernel_sweep_end(sweep, time);
    free(intervals);
}
