/*
 * GPUs that are held below the clock that was asked for, by the power cap or by heat. All higher
 * clocks are the same to them, and how fast they are depends on how hot they are.
 */
#include "search/search_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tolerance for sensors and the device's own rounding. */
static const double held_below = 0.99;

static bool is_full(const struct erg_search_reading *reading)
{
    return !isnan(reading->seen.energy_j);
}

bool erg_search_is_held(const struct erg_space *space, const struct erg_search_reading *reading)
{
    const struct erg_choice c = erg_space_choice(space, reading->config);
    return reading->seen.clock_mhz > 0 &&
           reading->seen.clock_mhz < held_below * space->clocks_mhz[c.clock];
}

static size_t schedule_count(const struct erg_space *space)
{
    return space->sms_count * space->slot_count;
}

/* SM count and slot, for any clock. */
static size_t schedule_of(const struct erg_space *space, size_t config)
{
    const struct erg_choice c = erg_space_choice(space, config);
    return c.sm * space->slot_count + c.slot;
}

/* The highest clock that each schedule was held at, by full readings where there are some: those
 * are of hot GPUs. */
static void find_held(const struct erg_search_model *model, double *held_mhz)
{
    bool *by_full = erg_xcalloc(schedule_count(&model->space), sizeof *by_full);
    for (size_t i = 0; i < model->count; i++) {
        const struct erg_search_reading *r = &model->items[i];
        const size_t s = schedule_of(&model->space, r->config);
        if (!erg_search_is_held(&model->space, r) || (by_full[s] && !is_full(r)))
            continue;
        if (is_full(r) && !by_full[s]) {
            by_full[s] = true;
            held_mhz[s] = 0;
        }
        held_mhz[s] = fmax(held_mhz[s], r->seen.clock_mhz);
    }
    free(by_full);
}

void erg_search_merge_held(struct erg_search_model *model)
{
    const struct erg_space *space = &model->space;
    const size_t configs = erg_space_size(space);
    double *held_mhz = erg_xcalloc(schedule_count(space), sizeof *held_mhz);
    find_held(model, held_mhz);
    for (size_t i = 0; i < configs; i++) {
        struct erg_choice c = erg_space_choice(space, i);
        const double held = held_mhz[schedule_of(space, i)];
        while (held > 0 && c.clock && held < held_below * space->clocks_mhz[c.clock - 1])
            c.clock--;
        model->same_as[i] = erg_space_index(space, c);
    }
    memset(model->measured, 0, configs * sizeof *model->measured);
    for (size_t i = 0; i < model->count; i++)
        if (is_full(&model->items[i]))
            model->measured[model->same_as[model->items[i].config]] = true;
    for (size_t i = 0; i < configs; i++)
        model->measured[i] = model->measured[model->same_as[i]];
    free(held_mhz);
}

double erg_search_cool_offset(const struct erg_search_model *model)
{
    /* The prior of the difference in ln t between a burst and a full reading, and of the gain of
     * cool GPUs. */
    static const double pair_sd = 0.006, gain_sd = 0.01;
    const struct erg_space *space = &model->space;
    double *burst_s = erg_xcalloc(schedule_count(space), sizeof *burst_s), sum = 0, count = 0;
    for (size_t i = 0; i < model->count; i++)
        if (!is_full(&model->items[i]) && erg_search_is_held(space, &model->items[i]))
            burst_s[schedule_of(space, model->items[i].config)] = model->items[i].seen.time_s;
    for (size_t i = 0; i < model->count; i++) {
        const struct erg_search_reading *r = &model->items[i];
        const double cool_s = burst_s[schedule_of(space, r->config)];
        if (is_full(r) && erg_search_is_held(space, r) && cool_s > 0) {
            sum += log(cool_s / r->seen.time_s);
            count++;
        }
    }
    free(burst_s);
    return sum / (count + pair_sd * pair_sd / (gain_sd * gain_sd));
}
