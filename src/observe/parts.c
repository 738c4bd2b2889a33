/* Energy by the hour (observe/parts.h). */
#include "observe/parts.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct erg_parts {
    struct erg_meter *meter;
    struct erg_rapl *rapl;
    double period_s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool ends;

    /* Used by the thread only, until it has ended. */
    struct erg_window *window;
    struct erg_rapl_reading reading;
    double begin_s;
    struct erg_part *items;
    size_t count, capacity;
};

static void begin_part(struct erg_parts *parts)
{
    parts->begin_s = erg_unix_s();
    if (parts->meter)
        parts->window = erg_window_begin(parts->meter);
    else
        erg_rapl_read(parts->rapl, &parts->reading);
}

static double known_sum(const struct erg_window_result *result)
{
    const double energies_j[] = {result->energy_j, result->cpu_j, result->dram_j};
    double sum_j = NAN;
    for (int i = 0; i < 3; i++)
        if (!isnan(energies_j[i]))
            sum_j = isnan(sum_j) ? energies_j[i] : sum_j + energies_j[i];
    return sum_j;
}

/* The next part begins where this one ends. */
static void cut_part(struct erg_parts *parts)
{
    struct erg_window *window = parts->window;
    const struct erg_rapl_reading before = parts->reading;
    struct erg_part part = {.begin_s = parts->begin_s, .end_s = erg_unix_s()};
    struct erg_window_result result = {
        .size = sizeof result, .energy_j = NAN, .uncertainty_j = NAN};
    begin_part(parts);
    if (parts->meter) {
        erg_window_end(window, &result, NULL);
    } else {
        result.begin_ns = before.end_ns;
        result.end_ns = parts->reading.begin_ns;
        result.time_s = 1e-9 * (double)(result.end_ns - result.begin_ns);
        erg_rapl_between(&before, &parts->reading, &result);
    }
    part.energy_j = known_sum(&result);
    ERG_PUSH(parts, items, part);
}

static void *cut(void *context)
{
    struct erg_parts *parts = context;
    pthread_mutex_lock(&parts->lock);
    while (!parts->ends) {
        const double now_s = erg_unix_s();
        const double next_s = (floor(now_s / parts->period_s) + 1) * parts->period_s;
        /* In pieces, since the wall clock may be set. */
        const double wait_s = fmin(next_s - now_s, 60);
        const bool whole = wait_s == next_s - now_s;
        const int64_t until_ns = erg_now_ns() + (int64_t)(1e9 * wait_s);
        while (!parts->ends && erg_condition_wait(&parts->ended, &parts->lock, until_ns))
            ;
        if (!parts->ends && whole)
            cut_part(parts);
    }
    pthread_mutex_unlock(&parts->lock);
    return NULL;
}

int erg_parts_begin(struct erg_parts **out, struct erg_meter *meter, struct erg_rapl *rapl,
                    double period_s, struct erg_error *err)
{
    struct erg_parts *parts = erg_xcalloc(1, sizeof *parts);
    parts->meter = meter;
    parts->rapl = meter ? NULL : rapl;
    parts->period_s = period_s;
    pthread_mutex_init(&parts->lock, NULL);
    erg_condition_init(&parts->ended);
    begin_part(parts);
    const int code = erg_thread_start(&parts->thread, cut, parts);
    if (code == 0) {
        *out = parts;
        return 0;
    }
    erg_window_cancel(parts->window);
    free(parts);
    return erg_fail(err, ERG_FAILED, "measuring hour by hour: no thread (%s)", strerror(code));
}

void erg_parts_stop(struct erg_parts *parts)
{
    pthread_mutex_lock(&parts->lock);
    parts->ends = true;
    pthread_cond_signal(&parts->ended);
    pthread_mutex_unlock(&parts->lock);
    pthread_join(parts->thread, NULL);
    if (parts->meter)
        erg_window_cancel(parts->window);
    const struct erg_part last = {.begin_s = parts->begin_s, .end_s = erg_unix_s()};
    ERG_PUSH(parts, items, last);
}

void erg_parts_end(struct erg_parts *parts, const struct erg_window_result *whole,
                   struct erg_part **items, size_t *count)
{
    struct erg_part *last = &parts->items[parts->count - 1];
    last->energy_j = known_sum(whole);
    for (size_t i = 0; i + 1 < parts->count; i++)
        last->energy_j -= parts->items[i].energy_j;
    *items = parts->items;
    *count = parts->count;
    pthread_cond_destroy(&parts->ended);
    pthread_mutex_destroy(&parts->lock);
    free(parts);
}
