/* A search: defaults, the run of its method, and its result. */
#include "search/search_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const erg_search_method_names[] = {"gp", "trees", "random", "exhaustive", NULL};
static const int method_count =
    sizeof erg_search_method_names / sizeof *erg_search_method_names - 1;

const char *erg_search_method_name(enum erg_search_method method)
{
    return (int)method >= 0 && (int)method < method_count ? erg_search_method_names[method] : NULL;
}

void erg_search_defaults(struct erg_search_options *options, enum erg_search_method method,
                         size_t run_ops)
{
    *options = (struct erg_search_options){.method = method, .seed = 1};
    if (method == ERG_SEARCH_GP) {
        options->budget = 28;
        options->start = 8;
        options->batch = 4;
        options->stop_ratio = 0.01;
        options->minimum = 12;
        options->sweep_clocks = 1;
        return;
    }
    /* Small, medium and large partitions: the batches of the published search (Kareus). */
    size_t batches = run_ops <= 1 ? 3 : 4;
    options->start = run_ops <= 1 ? 36 : run_ops <= 3 ? 48 : 96;
    options->batch = run_ops <= 3 ? 16 : 32;
    options->budget = options->start + batches * options->batch;
}

static int check_options(const struct erg_space *space, const struct erg_search_options *options,
                         const struct erg_oracle *oracle, struct erg_error *err)
{
    if (!erg_search_method_name(options->method))
        return erg_fail(err, ERG_FAILED, "searching a partition: there is no method number %d",
                        (int)options->method);
    bool model = options->method == ERG_SEARCH_GP || options->method == ERG_SEARCH_TREES;
    if (options->method != ERG_SEARCH_EXHAUSTIVE && !options->budget)
        return erg_fail(err, ERG_FAILED, "searching a partition: the budget of measurements is 0");
    if (model && (!options->start || !options->batch))
        return erg_fail(err, ERG_FAILED,
                        "searching a partition by %s: start %zu and batch %zu, expected at least "
                        "one measurement each",
                        erg_search_method_name(options->method), options->start, options->batch);
    if (!(options->blocking_power_w >= 0.0) || !isfinite(options->blocking_power_w))
        return erg_fail(err, ERG_FAILED,
                        "searching a partition: blocking power is %g W, expected 0 or more",
                        options->blocking_power_w);
    if (options->method == ERG_SEARCH_GP && options->sweep_clocks > space->clock_count)
        return erg_fail(err, ERG_FAILED,
                        "searching a partition: a time sweep at %zu clocks was asked for, the grid "
                        "has %zu",
                        options->sweep_clocks, space->clock_count);
    if (!oracle->measure ||
        (options->method == ERG_SEARCH_GP && options->sweep_clocks && !oracle->measure_time))
        return erg_fail(err, ERG_FAILED,
                        "searching a partition: the device offers no %s measurements",
                        oracle->measure ? "time-only" : "energy");
    return 0;
}

/* Without a model a config is known by the (geometric) mean of its readings. */
static void fill_table_from_readings(struct erg_search_result *result)
{
    const struct erg_search_model *model = result->model;
    size_t *seen = erg_xcalloc(result->config_count, sizeof *seen);
    memset(result->table, 0, result->config_count * sizeof *result->table);
    for (size_t i = 0; i < model->count; i++) {
        const struct erg_measurement *reading = &model->items[i].seen;
        const size_t config = model->same_as[model->items[i].config];
        struct erg_estimate *e = &result->table[config];
        e->time_s += log(reading->time_s);
        e->energy_j += log(reading->energy_j);
        e->time_sd += reading->time_sd * reading->time_sd;
        e->energy_sd += reading->energy_sd * reading->energy_sd;
        seen[config]++;
    }
    for (size_t i = 0; i < result->config_count; i++) {
        struct erg_estimate *e = &result->table[i];
        double n = (double)seen[i];
        *e = !seen[i] ? (struct erg_estimate){NAN, NAN, NAN, NAN, ERG_UNKNOWN}
                      : (struct erg_estimate){exp(e->time_s / n), exp(e->energy_j / n),
                                              sqrt(e->time_sd) / n, sqrt(e->energy_sd) / n,
                                              ERG_MEASURED};
    }
    for (size_t i = 0; i < result->config_count; i++)
        result->table[i] = result->table[model->same_as[i]];
    free(seen);
}

static void refresh_table(struct erg_search_result *result)
{
    erg_search_merge_held(result->model);
    if (result->model->gp) {
        erg_gp_pair_refit(result->model->gp, result->model);
        for (size_t i = 0; i < result->config_count; i++) {
            result->table[i] = erg_gp_pair_estimate(result->model->gp, i);
            if (result->model->measured[i])
                result->table[i].knowledge = ERG_MEASURED;
        }
    } else {
        fill_table_from_readings(result);
    }
}

void erg_search_front(const struct erg_search_result *result, double blocking_power_w,
                      struct erg_frontier *front)
{
    erg_frontier_clear(front);
    for (size_t i = 0; i < result->config_count; i++) {
        const struct erg_estimate *e = &result->table[i];
        if (e->knowledge != ERG_UNKNOWN)
            erg_frontier_add(front, e->time_s, e->energy_j - blocking_power_w * e->time_s,
                             (int64_t)i);
    }
    erg_frontier_filter(front);
}

static void fill_progress(struct erg_search_result *result, double blocking_power_w)
{
    struct erg_frontier front = {0}, reached = {0};
    erg_search_front(result, blocking_power_w, &front);
    struct erg_reference r = erg_reference_of(&front, 0.1);
    double whole = erg_frontier_hypervolume(&front, r.time_s, r.energy_j);
    for (size_t i = 0; i < result->evaluation_count; i++) {
        const struct erg_estimate *e = &result->table[result->order[i]];
        erg_frontier_add(&reached, e->time_s, e->energy_j - blocking_power_w * e->time_s,
                         (int64_t)result->order[i]);
        erg_frontier_filter(&reached);
        double area = erg_frontier_hypervolume(&reached, r.time_s, r.energy_j);
        result->progress[i] = whole > 0.0 ? area / whole : 1.0;
    }
    erg_frontier_release(&front);
    erg_frontier_release(&reached);
}

static struct erg_search_result *new_result(const struct erg_space *space)
{
    struct erg_search_result *result = erg_xcalloc(1, sizeof *result);
    result->config_count = erg_space_size(space);
    result->table = erg_xcalloc(result->config_count, sizeof *result->table);
    result->order = erg_xcalloc(result->config_count, sizeof *result->order);
    result->progress = erg_xcalloc(result->config_count, sizeof *result->progress);
    result->model = erg_xcalloc(1, sizeof *result->model);
    struct erg_search_model *model = result->model;
    model->same_as = erg_xcalloc(result->config_count, sizeof *model->same_as);
    for (size_t i = 0; i < result->config_count; i++)
        model->same_as[i] = i;
    model->measured = erg_xcalloc(result->config_count, sizeof *model->measured);
    model->space = *space;
    int *axes = erg_xcalloc(space->clock_count + space->sms_count, sizeof *axes);
    memcpy(axes, space->clocks_mhz, space->clock_count * sizeof *axes);
    memcpy(axes + space->clock_count, space->sms, space->sms_count * sizeof *axes);
    model->axes = axes;
    model->space.clocks_mhz = axes;
    model->space.sms = axes + space->clock_count;
    return result;
}

int erg_search_run(struct erg_search_result **out, const struct erg_space *space,
                   const struct erg_search_options *options, const struct erg_oracle *oracle,
                   struct erg_error *err)
{
    *out = NULL;
    if (erg_space_check(space, err) || check_options(space, options, oracle, err))
        return -1;
    struct erg_search_result *result = new_result(space);
    struct erg_search_run run = {
        .space = result->model->space, .options = options, .oracle = oracle, .result = result};
    erg_rng_seed(&run.rng, options->seed);
    int status = -1;
    switch (options->method) {
    case ERG_SEARCH_GP:
        status = erg_search_run_gp(&run, err);
        break;
    case ERG_SEARCH_TREES:
        status = erg_search_run_trees(&run, err);
        break;
    case ERG_SEARCH_RANDOM:
        status = erg_search_measure_in_order(&run, true, options->budget, err);
        break;
    case ERG_SEARCH_EXHAUSTIVE:
        status = erg_search_measure_in_order(&run, false, SIZE_MAX, err);
        break;
    }
    if (status) {
        erg_search_free(result);
        return -1;
    }
    refresh_table(result);
    fill_progress(result, options->blocking_power_w);
    *out = result;
    return 0;
}

int erg_search_add(struct erg_search_result *result, size_t config,
                   const struct erg_measurement *observation, struct erg_error *err)
{
    struct erg_search_model *model = result->model;
    if (config >= result->config_count)
        return erg_fail(err, ERG_FAILED,
                        "adding a measurement to a search: config %zu is outside the grid of %zu",
                        config, result->config_count);
    if (erg_search_check(&model->space, config, observation, true, err))
        return -1;
    ERG_PUSH(model, items, (struct erg_search_reading){config, *observation});
    result->full_count++;
    refresh_table(result);
    return 0;
}

void erg_search_free(struct erg_search_result *result)
{
    if (!result)
        return;
    erg_gp_pair_free(result->model->gp);
    free(result->model->items);
    free(result->model->same_as);
    free(result->model->measured);
    free(result->model->axes);
    free(result->model);
    free(result->table);
    free(result->order);
    free(result->progress);
    free(result);
}
