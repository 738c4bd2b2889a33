/* The tuner: blocks of a training's own steps, each at one value of the knob. */
#include "ergon/tune.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "ergon/telemetry.h"
#include "hooks/tune_profile.h"
#include "hooks/tune_search.h"
#include "telemetry/clocks.h"
#include "telemetry/knobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WATTS = 25,  /* between two limits */
    VALUES = 33, /* of clocks at most: 8 comparisons can distinguish them */
    MOST_VALUES = 100000,
    MOVED_STEPS = 200, /* steps of other time or power until a new search */
};

static const double moved = 0.03;
static const int64_t pause_ns = 500000000; /* a longer pause between steps ends a block */

/* Steps at one value. */
struct tune_block {
    struct erg_window *window; /* NULL: steps still settle, or the window was dropped */
    int32_t settle, steps;
    int64_t begin_ns, end_ns; /* of the latest step that began or ended */
};

struct erg_tune {
    struct erg_tune_options options;
    struct erg_gpus *gpus;
    struct erg_clocks *clocks;
    struct erg_meter *meter;
    int32_t *values; /* [search.count], rising */
    struct erg_tune_goal goal;
    struct erg_tune_search search;
    struct tune_block block;
    bool in_step, failed;
    struct erg_error error;
    int32_t value; /* the current value */
    int32_t searches;
    bool meets;
    int64_t blocks, steps;
    /* After the search: the usual step, and the number of steps that have differed since. */
    struct erg_tune_block usual;
    int32_t moved_steps;
    struct erg_tune_point *points; /* from a profile file; NULL: from the search */
    size_t point_count;
};

void erg_tune_defaults(struct erg_tune_options *options)
{
    *options = (struct erg_tune_options){.size = sizeof *options,
                                         .selector = ERG_TUNE_COST,
                                         .weight = 0.5,
                                         .slowdown = 1,
                                         .settle_steps = 5,
                                         .measure_steps = 20,
                                         .measure_s = 2};
}

/* ---- options ---- */

static int check_options(const struct erg_tune_options *options, struct erg_error *err)
{
    if (options->knob != ERG_TUNE_POWER && options->knob != ERG_TUNE_CLOCK)
        return erg_fail(err, ERG_USAGE,
                        "opening a tuner: knob %d, expected ERG_TUNE_POWER or ERG_TUNE_CLOCK",
                        options->knob);
    if (options->selector < ERG_TUNE_ENERGY || options->selector > ERG_TUNE_BUDGET)
        return erg_fail(err, ERG_USAGE, "opening a tuner: there is no selector %d",
                        options->selector);
    if (!(options->weight >= 0 && options->weight <= 1))
        return erg_fail(err, ERG_USAGE, "opening a tuner: weight %g, expected 0 to 1",
                        options->weight);
    if (!(options->slowdown >= 1))
        return erg_fail(err, ERG_USAGE, "opening a tuner: slowdown %g, expected at least 1",
                        options->slowdown);
    if (options->selector == ERG_TUNE_BUDGET && !(options->budget_j > 0))
        return erg_fail(err, ERG_USAGE,
                        "opening a tuner: budget_j %g, expected the joules of a step",
                        options->budget_j);
    if (options->settle_steps < 0 || options->measure_steps < 1 || !(options->measure_s >= 0))
        return erg_fail(err, ERG_USAGE,
                        "opening a tuner: settle_steps %d, measure_steps %d and measure_s %g, "
                        "expected at least 0, 1 and 0",
                        options->settle_steps, options->measure_steps, options->measure_s);
    if (options->least < 0 || options->most < 0 || options->step < 0)
        return erg_fail(err, ERG_USAGE,
                        "opening a tuner: least %d, most %d and step %d, expected 0 or more",
                        options->least, options->most, options->step);
    return 0;
}

/* ---- values ---- */

/* Clocks that all GPUs have. */
struct tune_range {
    int64_t least, most, full_w;
};

static int find_range(struct erg_tune *tune, struct tune_range *range, struct erg_error *err)
{
    const enum erg_knob knob =
        tune->options.knob == ERG_TUNE_POWER ? ERG_KNOB_POWER : ERG_KNOB_CLOCK;
    const int64_t unit = knob == ERG_KNOB_POWER ? 1000 : 1;
    *range = (struct tune_range){0, INT32_MAX, 0};
    for (size_t i = 0; i < erg_gpus_count(tune->gpus); i++) {
        struct erg_knob_bounds bounds;
        erg_knob_bounds_read(tune->gpus, i, &bounds);
        const int64_t least = (bounds.least[knob] + unit - 1) / unit;
        const int64_t most = bounds.most[knob] / unit;
        range->full_w += bounds.most[ERG_KNOB_POWER] / 1000;
        erg_knob_bounds_release(&bounds);
        if (most <= 0)
            return erg_fail(err, ERG_NO_DEVICE,
                            "opening a tuner: the %s of GPU %d cannot be set, expected a GPU of "
                            "NVIDIA that allows it",
                            knob == ERG_KNOB_POWER ? "power limit" : "SM clock",
                            erg_gpus_info(tune->gpus, i)->index);
        range->least = least > range->least ? least : range->least;
        range->most = most < range->most ? most : range->most;
    }
    if (tune->options.least > range->least)
        range->least = tune->options.least;
    if (tune->options.most && tune->options.most < range->most)
        range->most = tune->options.most;
    if (range->least > range->most)
        return erg_fail(
            err, ERG_USAGE,
            "opening a tuner: no value lies within %lld to %lld, the range that the options and "
            "all GPUs allow",
            (long long)range->least, (long long)range->most);
    return 0;
}

/* From the highest downwards, in even steps. */
static int list_limits(struct erg_tune *tune, const struct tune_range *range, size_t *count,
                       struct erg_error *err)
{
    const int64_t step = tune->options.step ? tune->options.step : WATTS;
    *count = (size_t)((range->most - range->least) / step) + 1;
    if (*count > MOST_VALUES)
        return erg_fail(err, ERG_USAGE, "opening a tuner: %zu values, expected at most %d", *count,
                        MOST_VALUES);
    tune->values = erg_xcalloc(*count, sizeof *tune->values);
    for (size_t i = 0; i < *count; i++)
        tune->values[*count - 1 - i] = (int32_t)(range->most - (int64_t)i * step);
    return 0;
}

/* The clocks that the GPUs have, far enough apart. */
static int list_clocks(struct erg_tune *tune, const struct tune_range *range, size_t *count,
                       struct erg_error *err)
{
    struct erg_clock_list list;
    if (erg_clocks_supported(tune->gpus, 0, &list, err) != 0)
        return -1;
    size_t first = 0, end = list.count;
    while (first < end && list.clocks_mhz[first] < range->least)
        first++;
    while (end > first && list.clocks_mhz[end - 1] > range->most)
        end--;
    const size_t stride = (end - first + VALUES - 1) / VALUES;
    tune->values = erg_xcalloc(end - first + 1, sizeof *tune->values);
    *count = 0;
    int32_t last_mhz = INT32_MAX;
    for (size_t i = end; i > first; i--) {
        const int clock_mhz = list.clocks_mhz[i - 1];
        if (tune->options.step ? last_mhz - clock_mhz >= tune->options.step
                               : (end - i) % stride == 0) {
            tune->values[(*count)++] = clock_mhz;
            last_mhz = clock_mhz;
        }
    }
    erg_clock_list_release(&list);
    for (size_t i = 0; i < *count / 2; i++) {
        const int32_t high = tune->values[i];
        tune->values[i] = tune->values[*count - 1 - i];
        tune->values[*count - 1 - i] = high;
    }
    return *count ? 0
                  : erg_fail(err, ERG_USAGE,
                             "opening a tuner: the GPU has no clock within %lld to %lld MHz",
                             (long long)range->least, (long long)range->most);
}

static int list_values(struct erg_tune *tune, size_t *count, struct erg_error *err)
{
    struct tune_range range;
    if (find_range(tune, &range, err) != 0)
        return -1;
    tune->goal = (struct erg_tune_goal){.selector = tune->options.selector,
                                        .weight = tune->options.weight,
                                        .slowdown = tune->options.slowdown,
                                        .budget_j = tune->options.budget_j,
                                        .full_w = (double)range.full_w};
    return tune->options.knob == ERG_TUNE_POWER ? list_limits(tune, &range, count, err)
                                                : list_clocks(tune, &range, count, err);
}

/* ---- setting ---- */

static int set_value(struct erg_tune *tune, int32_t value, struct erg_error *err)
{
    for (size_t i = 0; i < erg_gpus_count(tune->gpus); i++)
        if (tune->options.knob == ERG_TUNE_POWER
                ? erg_clocks_limit(tune->clocks, i, INT64_C(1000) * value, err)
                : erg_clocks_lock(tune->clocks, i, value, NULL, err))
            return -1;
    tune->value = value;
    return 0;
}

static void drop_window(struct erg_tune *tune)
{
    if (tune->block.window)
        erg_window_cancel(tune->block.window);
    tune->block.window = NULL;
    tune->block.steps = 0;
}

static void start_block(struct erg_tune *tune, bool settles)
{
    drop_window(tune);
    tune->block.settle = settles ? tune->options.settle_steps : 0;
}

/* Sets the search's next value if it differs. */
static int go_to_next(struct erg_tune *tune, struct erg_error *err)
{
    const int32_t next = tune->values[erg_tune_search_value(&tune->search)];
    const bool other = next != tune->value;
    start_block(tune, other);
    return other ? set_value(tune, next, err) : 0;
}

static int fail(struct erg_tune *tune, struct erg_error *err)
{
    drop_window(tune);
    tune->failed = true;
    (void)erg_clocks_close(tune->clocks, NULL);
    tune->clocks = NULL;
    if (err)
        *err = tune->error;
    return -1;
}

/* ---- the profile ---- */

static double uncertainty(const struct erg_spread *spread)
{
    return spread->count > 1 ? erg_student_critical(spread->count - 1, 0.95) *
                                   erg_spread_sd(spread) / sqrt((double)spread->count)
                             : NAN;
}

static struct erg_tune_point describe(const struct erg_tune *tune, size_t value)
{
    const struct erg_spread *time = &tune->search.time[value];
    const struct erg_spread *energy = &tune->search.energy[value];
    return (struct erg_tune_point){.size = sizeof(struct erg_tune_point),
                                   .value = tune->values[value],
                                   .blocks = (int32_t)time->count,
                                   .time_s = time->mean,
                                   .energy_j = energy->mean,
                                   .time_uncertainty_s = uncertainty(time),
                                   .energy_uncertainty_j = uncertainty(energy)};
}

static void take_points(struct erg_tune *tune)
{
    free(tune->points);
    tune->points = erg_xcalloc(tune->search.count, sizeof *tune->points);
    tune->point_count = 0;
    for (size_t i = 0; i < tune->search.count; i++)
        if (tune->search.time[i].count)
            tune->points[tune->point_count++] = describe(tune, i);
}

static int by_value(const void *a, const void *b)
{
    return ((const struct erg_tune_point *)a)->value - ((const struct erg_tune_point *)b)->value;
}

/* Takes the values of a profile as if they had been measured, and finds the best one. */
static int take_profile(struct erg_tune *tune, size_t *chosen, struct erg_error *err)
{
    const char *path = tune->options.profile;
    bool per_step;
    if (erg_tune_profile_read(path, tune->options.knob, &tune->points, &tune->point_count,
                              &per_step, err) != 0)
        return -1;
    if (!per_step && tune->options.selector == ERG_TUNE_BUDGET)
        return erg_fail(err, ERG_USAGE,
                        "opening a tuner: the energies in '%s' are not marked as per step "
                        "(\"per\": \"step\"), which a budget needs",
                        path);
    qsort(tune->points, tune->point_count, sizeof *tune->points, by_value);
    struct erg_tune_search listed;
    erg_tune_search_begin(&listed, tune->point_count, &tune->goal);
    for (size_t i = 0; i < tune->point_count; i++) {
        erg_spread_add(&listed.time[i], tune->points[i].time_s);
        erg_spread_add(&listed.energy[i], tune->points[i].energy_j);
    }
    *chosen = erg_tune_search_pick(&listed);
    tune->meets = erg_tune_search_meets(&listed, *chosen);
    erg_tune_search_release(&listed);
    return 0;
}

/* ---- open and close ---- */

static int open_sensors(struct erg_tune *tune, struct erg_error *err)
{
    const char *gpus = tune->options.gpus;
    if (erg_gpus_open(&tune->gpus, gpus, err) != 0)
        return -1;
    if (erg_gpus_count(tune->gpus) > ERG_METER_GPUS_MAX)
        return erg_fail(err, ERG_USAGE, "opening a tuner: %zu GPUs, expected at most %d",
                        erg_gpus_count(tune->gpus), ERG_METER_GPUS_MAX);
    return erg_meter_open(&tune->meter, gpus, err);
}

static int open_tune(struct erg_tune *tune, struct erg_error *err)
{
    const char *profile = tune->options.profile;
    size_t count, chosen = 0;
    if (check_options(&tune->options, err) || open_sensors(tune, err) ||
        list_values(tune, &count, err))
        return -1;
    erg_tune_search_begin(&tune->search, count, &tune->goal);
    tune->searches = 1;
    const bool known = profile && access(profile, F_OK) == 0;
    if ((known && take_profile(tune, &chosen, err) != 0) ||
        erg_clocks_open(&tune->clocks, tune->gpus, err) != 0)
        return -1;
    if (!known) {
        tune->meets = true; /* for a single value, which needs no search */
        return go_to_next(tune, err);
    }
    tune->search.done = true;
    start_block(tune, true);
    return set_value(tune, tune->points[chosen].value, err);
}

static int release(struct erg_tune *tune, struct erg_error *err)
{
    drop_window(tune);
    int result = erg_clocks_close(tune->clocks, err);
    erg_meter_close(tune->meter);
    if (tune->gpus)
        erg_gpus_close(tune->gpus);
    erg_tune_search_release(&tune->search);
    free(tune->values);
    free(tune->points);
    free(tune);
    return result;
}

int erg_tune_open(struct erg_tune **out, const struct erg_tune_options *options,
                  struct erg_error *err)
{
    struct erg_tune *tune = erg_xcalloc(1, sizeof *tune);
    erg_tune_defaults(&tune->options);
    memcpy(&tune->options, options,
           options->size < sizeof *options ? options->size : sizeof *options);
    if (open_tune(tune, err) != 0) {
        (void)release(tune, NULL);
        return -1;
    }
    *out = tune;
    return 0;
}

int erg_tune_close(struct erg_tune *tune, struct erg_error *err)
{
    return tune ? release(tune, err) : 0;
}

/* ---- steps ---- */

static int check_call(struct erg_tune *tune, bool in_step, struct erg_error *err)
{
    if (tune->failed) {
        if (err)
            *err = tune->error;
        return -1;
    }
    if (tune->in_step != in_step)
        return erg_fail(err, ERG_FAILED, "tuning: a step %s, expected begin and end to alternate",
                        in_step ? "ends without a begin" : "begins within a step");
    return 0;
}

int erg_tune_step_begin(struct erg_tune *tune, struct erg_error *err)
{
    struct tune_block *block = &tune->block;
    if (check_call(tune, false, err) != 0)
        return -1;
    const int64_t now_ns = erg_now_ns();
    const int64_t step_ns = block->steps ? (block->end_ns - block->begin_ns) / block->steps : 0;
    if (block->window && now_ns - block->end_ns > pause_ns + 3 * step_ns)
        drop_window(tune); /* an epoch ended, or the trainer wrote a checkpoint */
    if (!block->window && block->settle == 0) {
        block->window = erg_window_begin(tune->meter);
        block->begin_ns = block->end_ns = now_ns;
    }
    tune->in_step = true;
    return 0;
}

/* Time and energy of a step of the block. */
static int read_block(struct erg_tune *tune, const struct erg_window_result *result,
                      struct erg_tune_block *block, struct erg_error *err)
{
    if (result->energy_gpus < result->gpus || !(result->energy_j > 0))
        return erg_fail(err, ERG_NO_DEVICE,
                        "tuning: the energy of %zu of %zu GPUs is known, expected that of all",
                        result->energy_gpus, result->gpus);
    block->time_s = 1e-9 * (double)(tune->block.end_ns - tune->block.begin_ns) / tune->block.steps;
    block->energy_j = result->energy_j / tune->block.steps;
    return 0;
}

static int finish(struct erg_tune *tune, struct erg_error *err)
{
    const size_t chosen = erg_tune_search_value(&tune->search);
    struct erg_error saved;
    tune->meets = erg_tune_search_meets(&tune->search, chosen);
    take_points(tune);
    tune->usual = (struct erg_tune_block){NAN, NAN};
    tune->moved_steps = 0;
    if (tune->options.profile &&
        erg_tune_profile_write(tune->options.profile, tune->options.knob, tune->points,
                               tune->point_count, &saved) != 0)
        erg_log(ERG_LOG_WARNING, "%s", saved.message); /* not a reason to stop training */
    return go_to_next(tune, err);
}

/* A block of the search is complete. */
static int end_block(struct erg_tune *tune, struct erg_error *err)
{
    struct erg_window_result result = {.size = sizeof result};
    struct erg_tune_block block;
    erg_window_end(tune->block.window, &result, NULL);
    tune->block.window = NULL;
    if (read_block(tune, &result, &block, err) != 0)
        return -1;
    tune->blocks++;
    erg_tune_search_put(&tune->search, &block);
    return tune->search.done ? finish(tune, err) : go_to_next(tune, err);
}

static bool is_moved(double value, double usual)
{
    return fabs(value - usual) > moved * usual;
}

/* Checks a block after the search, without waiting, since training continues. */
static int watch_block(struct erg_tune *tune, struct erg_error *err)
{
    struct erg_window_result result = {.size = sizeof result};
    struct erg_tune_block block;
    erg_window_look(tune->block.window, &result, NULL);
    const int32_t steps = tune->block.steps;
    if (read_block(tune, &result, &block, err) != 0)
        return -1;
    start_block(tune, false);
    if (!(tune->usual.time_s > 0)) {
        tune->usual = block;
        return 0;
    }
    const bool differs =
        is_moved(block.time_s, tune->usual.time_s) ||
        is_moved(block.energy_j / block.time_s, tune->usual.energy_j / tune->usual.time_s);
    tune->moved_steps = differs ? tune->moved_steps + steps : 0;
    if (tune->moved_steps < MOVED_STEPS)
        return 0;
    erg_log(ERG_LOG_INFO, "tuning again: time or power of the steps has moved by more than 3 %%");
    const size_t count = tune->search.count;
    erg_tune_search_release(&tune->search);
    erg_tune_search_begin(&tune->search, count, &tune->goal);
    tune->searches++;
    return go_to_next(tune, err);
}

static bool is_complete(const struct erg_tune *tune)
{
    const struct tune_block *block = &tune->block;
    return block->steps >= tune->options.measure_steps &&
           1e-9 * (double)(block->end_ns - block->begin_ns) >= tune->options.measure_s;
}

int erg_tune_step_end(struct erg_tune *tune, struct erg_error *err)
{
    struct tune_block *block = &tune->block;
    if (check_call(tune, true, err) != 0)
        return -1;
    tune->in_step = false;
    tune->steps++;
    if (!block->window) {
        block->settle -= block->settle > 0;
        return 0;
    }
    block->steps++;
    block->end_ns = erg_now_ns();
    if (!is_complete(tune) || (tune->search.count == 1 && tune->search.done))
        return 0;
    if ((tune->search.done ? watch_block : end_block)(tune, &tune->error) == 0)
        return 0;
    return fail(tune, err);
}

/* ---- results ---- */

int erg_tune_stats(const struct erg_tune *tune, struct erg_tune_stats *stats)
{
    int32_t points = 0;
    for (size_t i = 0; i < tune->search.count; i++)
        points += tune->search.time[i].count > 0;
    const struct erg_tune_stats now = {
        .state = tune->failed        ? ERG_TUNE_FAILED
                 : tune->search.done ? ERG_TUNE_DONE
                                     : ERG_TUNE_MEASURING,
        .value = tune->value,
        .meets = tune->search.done && tune->meets,
        .points = tune->search.done && tune->points ? (int32_t)tune->point_count : points,
        .searches = tune->searches,
        .blocks = tune->blocks,
        .steps = tune->steps,
    };
    erg_sized_give32(stats, &now, sizeof now);
    return 0;
}

int erg_tune_point(const struct erg_tune *tune, int32_t index, struct erg_tune_point *point)
{
    if (index < 0)
        return -1;
    if (tune->search.done && tune->points) {
        if ((size_t)index >= tune->point_count)
            return -1;
        erg_sized_give32(point, &tune->points[index], sizeof *point);
        return 0;
    }
    for (size_t i = 0; i < tune->search.count; i++)
        if (tune->search.time[i].count && index-- == 0) {
            const struct erg_tune_point found = describe(tune, i);
            erg_sized_give32(point, &found, sizeof found);
            return 0;
        }
    return -1;
}
