/*
 * The published four-pass search (Kareus): batches drawn in four passes from boosted-tree
 * predictions. As published with raw_units; otherwise repaired: rescaled targets, uncertainties
 * normalised by the observed ranges, Latin-hypercube start, and each choice of a pass added to the
 * front with its predicted value before the next.
 */
#include "search/search_internal.h"

#include "base/memory.h"
#include "search/boost_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ensemble_size = 5, first_ensemble_seed = 42 };
static const double resample_share = 0.8, reference_factor = 1.1;

struct forest {
    struct erg_search_run *run;
    size_t size, columns;
    float *features; /* size x columns: clock MHz, SM index, one-hot slot */
    struct erg_boost_rows grid;
    double *time_s, *dynamic_j; /* predictions of the main models, energy beyond blocking power */
    double *uncertainty;
    bool *taken;
};

struct erg_pass_sizes erg_pass_sizes(size_t batch)
{
    struct erg_pass_sizes k;
    k.total = (size_t)nearbyint(0.4 * (double)batch); /* half to even */
    k.dynamic = (size_t)nearbyint(0.2 * (double)batch);
    k.fastest = k.dynamic;
    k.uncertain = batch - k.total - k.dynamic - k.fastest;
    return k;
}

static int forest_init(struct forest *forest, struct erg_search_run *run,
                       const struct erg_boost *boost, struct erg_error *err)
{
    const struct erg_space *space = &run->space;
    *forest = (struct forest){.run = run, .size = erg_space_size(space)};
    forest->columns = 2 + space->slot_count;
    forest->features = erg_xcalloc(forest->size * forest->columns, sizeof *forest->features);
    forest->time_s = erg_xcalloc(forest->size, sizeof *forest->time_s);
    forest->dynamic_j = erg_xcalloc(forest->size, sizeof *forest->dynamic_j);
    forest->uncertainty = erg_xcalloc(forest->size, sizeof *forest->uncertainty);
    forest->taken = erg_xcalloc(forest->size, sizeof *forest->taken);
    for (size_t i = 0; i < forest->size; i++) {
        struct erg_choice c = erg_space_choice(space, i);
        float *row = forest->features + i * forest->columns;
        row[0] = (float)space->clocks_mhz[c.clock];
        row[1] = (float)c.sm;
        row[2 + c.slot] = 1.0F;
    }
    return erg_boost_rows_init(&forest->grid, boost, forest->features, forest->size,
                               forest->columns, err);
}

static void forest_release(struct forest *forest)
{
    erg_boost_rows_release(&forest->grid);
    free(forest->features);
    free(forest->time_s);
    free(forest->dynamic_j);
    free(forest->uncertainty);
    free(forest->taken);
}

/* The measurements as a table to learn from. */
struct sample {
    float *features;
    double *time_s, *dynamic_j;
    size_t count;
};

static void sample_init(struct sample *sample, size_t count, size_t columns)
{
    sample->features = erg_xcalloc(count * columns, sizeof *sample->features);
    sample->time_s = erg_xcalloc(count, sizeof *sample->time_s);
    sample->dynamic_j = erg_xcalloc(count, sizeof *sample->dynamic_j);
    sample->count = count;
}

static void sample_release(struct sample *sample)
{
    free(sample->features);
    free(sample->time_s);
    free(sample->dynamic_j);
}

static void sample_set(struct sample *sample, size_t row, const struct forest *forest,
                       const struct erg_search_reading *reading)
{
    memcpy(sample->features + row * forest->columns,
           forest->features + reading->config * forest->columns,
           forest->columns * sizeof *sample->features);
    sample->time_s[row] = reading->seen.time_s;
    sample->dynamic_j[row] =
        reading->seen.energy_j - forest->run->options->blocking_power_w * reading->seen.time_s;
}

static int fit_both(const struct forest *forest, const struct sample *sample, unsigned seed,
                    double *time_s, double *dynamic_j, struct erg_error *err)
{
    bool rescale = !forest->run->options->raw_units;
    if (erg_boost_fit_predict(sample->features, sample->time_s, sample->count, forest->columns,
                              rescale, seed, &forest->grid, time_s, err))
        return -1;
    return erg_boost_fit_predict(sample->features, sample->dynamic_j, sample->count,
                                 forest->columns, rescale, seed, &forest->grid, dynamic_j, err);
}

static double range(const double *values, size_t count)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    return high > low ? high - low : 1.0;
}

/* Adds the population standard deviation over the members, divided by `unit`. */
static void add_spread(const double *members, size_t size, double unit, double *out)
{
    for (size_t i = 0; i < size; i++) {
        double mean = 0.0, square = 0.0;
        for (size_t m = 0; m < ensemble_size; m++)
            mean += members[m * size + i] / ensemble_size;
        for (size_t m = 0; m < ensemble_size; m++) {
            double off = members[m * size + i] - mean;
            square += off * off / ensemble_size;
        }
        out[i] += sqrt(square) / unit;
    }
}

static int fit_ensemble(struct forest *forest, const struct sample *all,
                        const struct erg_search_model *model, struct erg_error *err)
{
    size_t size = forest->size, draws = (size_t)nearbyint(resample_share * (double)all->count);
    double *times = erg_xcalloc(2 * size * ensemble_size, sizeof *times);
    double *energies = times + ensemble_size * size;
    struct sample resample;
    sample_init(&resample, draws ? draws : 1, forest->columns);
    int status = 0;
    for (unsigned m = 0; m < ensemble_size && !status; m++) {
        struct erg_rng rng;
        erg_rng_seed(&rng, first_ensemble_seed + m);
        for (size_t row = 0; row < resample.count; row++)
            sample_set(&resample, row, forest, &model->items[erg_rng_below(&rng, all->count)]);
        status = fit_both(forest, &resample, first_ensemble_seed + m, times + m * size,
                          energies + m * size, err);
    }
    bool raw = forest->run->options->raw_units;
    memset(forest->uncertainty, 0, size * sizeof *forest->uncertainty);
    if (!status) {
        add_spread(times, size, raw ? 1.0 : range(all->time_s, all->count), forest->uncertainty);
        add_spread(energies, size, raw ? 1.0 : range(all->dynamic_j, all->count),
                   forest->uncertainty);
    }
    sample_release(&resample);
    free(times);
    return status;
}

static int forest_fit(struct forest *forest, struct erg_error *err)
{
    const struct erg_search_model *model = forest->run->result->model;
    struct sample all;
    sample_init(&all, model->count, forest->columns);
    for (size_t row = 0; row < model->count; row++)
        sample_set(&all, row, forest, &model->items[row]);
    int status = fit_both(forest, &all, 0, forest->time_s, forest->dynamic_j, err);
    if (!status)
        status = fit_ensemble(forest, &all, model, err);
    sample_release(&all);
    return status;
}

/* The measured front with energy counted as (E - Ps t) + power t. */
static struct erg_reference measured_front(const struct forest *forest, double power, size_t count,
                                           struct erg_frontier *front)
{
    const struct erg_search_model *model = forest->run->result->model;
    double blocking = forest->run->options->blocking_power_w;
    struct erg_reference worst = {0.0, 0.0};
    erg_frontier_clear(front);
    for (size_t i = 0; i < model->count; i++) {
        double t = model->items[i].seen.time_s;
        double e = model->items[i].seen.energy_j - (blocking - power) * t;
        if (i < count)
            erg_frontier_add(front, t, e, (int64_t)model->items[i].config);
        worst.time_s = fmax(worst.time_s, reference_factor * t);
        worst.energy_j = fmax(worst.energy_j, reference_factor * e);
    }
    erg_frontier_filter(front);
    return worst;
}

/* Takes the `wanted` untaken configs of highest score. */
static void take_best(struct forest *forest, const double *scores, size_t wanted, size_t *batch,
                      size_t *count)
{
    while (wanted--) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < forest->size; i++)
            if (!forest->taken[i] && (best == SIZE_MAX || scores[i] > scores[best]))
                best = i;
        if (best == SIZE_MAX)
            return;
        forest->taken[best] = true;
        batch[(*count)++] = best;
    }
}

/* A pass by hypervolume improvement of the predicted (E - Ps t) + power t. */
static void take_improving(struct forest *forest, double power, size_t wanted, size_t *batch,
                           size_t *count)
{
    struct erg_frontier front = {0};
    struct erg_reference reference = measured_front(forest, power, SIZE_MAX, &front);
    double *scores = erg_xcalloc(forest->size, sizeof *scores);
    bool one_by_one = !forest->run->options->raw_units;
    for (size_t left = wanted; left;) {
        for (size_t i = 0; i < forest->size; i++)
            scores[i] = erg_ehvi(&front, reference, forest->time_s[i], 0.0,
                                 forest->dynamic_j[i] + power * forest->time_s[i], 0.0);
        size_t step = one_by_one ? 1 : left, before = *count;
        take_best(forest, scores, step, batch, count);
        if (*count == before)
            break;
        left -= step;
        size_t chosen = batch[*count - 1];
        erg_frontier_add(&front, forest->time_s[chosen],
                         forest->dynamic_j[chosen] + power * forest->time_s[chosen],
                         (int64_t)chosen);
        erg_frontier_filter(&front);
    }
    free(scores);
    erg_frontier_release(&front);
}

static size_t choose_batch(struct forest *forest, size_t wanted, size_t *batch)
{
    struct erg_pass_sizes k = erg_pass_sizes(wanted);
    size_t count = 0;
    memcpy(forest->taken, forest->run->result->model->measured,
           forest->size * sizeof *forest->taken);
    take_improving(forest, forest->run->options->blocking_power_w, k.total, batch, &count);
    take_improving(forest, 0.0, k.dynamic, batch, &count);
    double *speed = erg_xcalloc(forest->size, sizeof *speed);
    for (size_t i = 0; i < forest->size; i++)
        speed[i] = -forest->time_s[i];
    take_best(forest, speed, k.fastest, batch, &count);
    free(speed);
    take_best(forest, forest->uncertainty, k.uncertain, batch, &count);
    return count;
}

/* Growth of the measured front's hypervolume by the readings after the first `before`. */
static double relative_gain(const struct forest *forest, size_t before)
{
    struct erg_frontier front = {0};
    struct erg_reference r = measured_front(forest, 0.0, SIZE_MAX, &front);
    double now = erg_frontier_hypervolume(&front, r.time_s, r.energy_j);
    measured_front(forest, 0.0, before, &front);
    double then = erg_frontier_hypervolume(&front, r.time_s, r.energy_j);
    erg_frontier_release(&front);
    return now > 0.0 ? (now - then) / now : 0.0;
}

static int measure_start(struct erg_search_run *run, size_t count, struct erg_error *err)
{
    return run->options->raw_units ? erg_search_measure_in_order(run, true, count, err)
                                   : erg_search_measure_latin(run, count, err);
}

int erg_search_run_trees(struct erg_search_run *run, struct erg_error *err)
{
    const struct erg_search_options *options = run->options;
    struct erg_search_result *result = run->result;
    size_t budget = options->budget < result->config_count ? options->budget : result->config_count;
    struct erg_boost boost;
    if (erg_boost_open(&boost, err)) /* before anything is measured */
        return -1;
    if (measure_start(run, options->start < budget ? options->start : budget, err))
        return -1;
    struct forest forest;
    int status = forest_init(&forest, run, &boost, err);
    size_t *batch = erg_xcalloc(options->batch, sizeof *batch);
    double last_gain = INFINITY;
    while (!status && result->evaluation_count < budget) {
        size_t before = result->evaluation_count, left = budget - before;
        status = forest_fit(&forest, err);
        if (!status) {
            size_t wanted = left < options->batch ? left : options->batch;
            status = erg_search_measure(run, batch, choose_batch(&forest, wanted, batch), err);
        }
        double gain = status ? 0.0 : relative_gain(&forest, before);
        if (result->evaluation_count >= options->minimum &&
            0.5 * (gain + last_gain) < options->stop_ratio)
            break;
        last_gain = gain;
    }
    free(batch);
    forest_release(&forest);
    return status;
}
