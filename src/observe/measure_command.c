/* Runs a command between two readings of the energy, cut by the hour if requested. */
#include "observe/measure_command.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cluster/tariff.h"
#include "observe/parts.h"
#include "telemetry/rapl.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define HOUR_S 3600

static const int64_t learning_ns = 1500000000; /* longest wait */

/* The source of energy: GPUs by a meter, or the CPU alone. */
struct sources {
    struct erg_meter *meter;
    struct erg_rapl *rapl;
    struct erg_tariff carbon, price; /* carbon and price by the hour */
};

static void describe_gpus(struct erg_runs *runs, struct erg_meter *meter)
{
    runs->gpu_count = erg_meter_gpus(meter);
    for (size_t g = 0; g < runs->gpu_count; g++) {
        runs->gpus[g].size = sizeof *runs->gpus;
        erg_meter_gpu(meter, g, &runs->gpus[g], NULL);
    }
}

/* Waits before the first run until temperatures and the steps of the counters are known. */
static void wait_until_known(struct erg_meter *meter)
{
    int64_t deadline_ns = erg_now_ns() + learning_ns;
    bool known = false;
    while (!known && erg_now_ns() < deadline_ns) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        known = true;
        for (size_t g = 0; g < erg_meter_gpus(meter); g++) {
            struct erg_meter_gpu gpu = {.size = sizeof gpu};
            erg_meter_gpu(meter, g, &gpu, NULL);
            known = known && (gpu.trouble[0] || !isnan(gpu.counter_period_s));
        }
    }
}

static int open_sources(struct sources *sources, struct erg_runs *runs, const char *select,
                        struct erg_error *err)
{
    struct erg_error cpu = {0};
    if (erg_meter_open(&sources->meter, select, err) == 0) {
        describe_gpus(runs, sources->meter);
        wait_until_known(sources->meter);
        return 0;
    }
    if (err->status != ERG_NO_DEVICE || select || erg_rapl_open(&sources->rapl, NULL, &cpu) != 0)
        return -1;
    erg_log(ERG_LOG_WARNING, "no GPU is measured, only the CPU: %s", err->message);
    return 0;
}

static void close_sources(struct sources *sources)
{
    if (sources->meter)
        erg_meter_close(sources->meter);
    if (sources->rapl)
        erg_rapl_close(sources->rapl);
    erg_tariff_release(&sources->carbon);
    erg_tariff_release(&sources->price);
}

/* ---- emissions and costs ---- */

static int open_tables(struct sources *sources, struct erg_runs *runs,
                       const struct erg_measure_input *values, struct erg_error *err)
{
    if (values->carbon &&
        erg_tariff_load_hours(&sources->carbon, values->carbon, "g_per_kwh", err) != 0)
        return -1;
    if (values->price &&
        erg_tariff_load_hours(&sources->price, values->price, "usd_per_kwh", err) != 0)
        return -1;
    runs->has_carbon = values->carbon != NULL;
    runs->has_price = values->price != NULL;
    return 0;
}

/* Adds up the parts, each within one hour; NaN if a part's rate is unknown. */
static void take_parts(const struct sources *sources, const struct erg_part *parts, size_t count,
                       struct erg_run *run)
{
    run->co2_g = run->cost_usd = count ? 0 : NAN;
    for (size_t i = 0; i < count; i++) {
        const double kwh = parts[i].energy_j / 3.6e6;
        const double at_s = 0.5 * (parts[i].begin_s + parts[i].end_s);
        double next_s;
        run->co2_g += sources->carbon.count
                          ? kwh * erg_tariff_at(&sources->carbon, at_s, &next_s)->g_co2_per_kwh
                          : (double)NAN;
        run->cost_usd += sources->price.count
                             ? kwh * erg_tariff_at(&sources->price, at_s, &next_s)->usd_per_kwh
                             : (double)NAN;
    }
}

/* ---- one run ---- */

/* `parts` may be NULL. */
static int run_child(const struct erg_child_signals *signals, const char *const *command,
                     struct erg_parts *parts, struct erg_child_end *end, struct erg_error *err)
{
    int result = erg_child_run(signals, command, end, err);
    if (parts)
        erg_parts_stop(parts);
    return result;
}

static int run_with_meter(struct erg_meter *meter, const struct erg_child_signals *signals,
                          const char *const *command, struct erg_parts *parts,
                          struct erg_child_end *end, struct erg_window_result *result,
                          struct erg_error *err)
{
    struct erg_window *window = erg_window_begin(meter);
    if (run_child(signals, command, parts, end, err) != 0) {
        erg_window_cancel(window);
        return -1;
    }
    result->size = sizeof *result;
    return erg_window_end(window, result, err);
}

static int run_with_rapl(struct erg_rapl *rapl, const struct erg_child_signals *signals,
                         const char *const *command, struct erg_parts *parts,
                         struct erg_child_end *end, struct erg_window_result *result,
                         struct erg_error *err)
{
    struct erg_rapl_reading before, after;
    erg_rapl_read(rapl, &before);
    int64_t start_ns = erg_now_ns();
    if (run_child(signals, command, parts, end, err) != 0)
        return -1;
    int64_t end_ns = erg_now_ns();
    erg_rapl_read(rapl, &after);
    *result = (struct erg_window_result){.begin_ns = start_ns,
                                         .end_ns = end_ns,
                                         .time_s = 1e-9 * (double)(end_ns - start_ns),
                                         .energy_j = NAN,
                                         .uncertainty_j = NAN};
    erg_rapl_between(&before, &after, result);
    return 0;
}

/* A measured run, cut into hours if requested. */
static int run_measured(const struct sources *sources, const struct erg_child_signals *signals,
                        const struct erg_runs *runs, struct erg_child_end *end, struct erg_run *run,
                        struct erg_error *err)
{
    struct erg_parts *parts = NULL;
    struct erg_part *items = NULL;
    size_t count = 0;
    if ((runs->has_carbon || runs->has_price) &&
        erg_parts_begin(&parts, sources->meter, sources->rapl, HOUR_S, err) != 0)
        return -1;
    int result =
        sources->meter
            ? run_with_meter(sources->meter, signals, runs->command, parts, end, &run->window, err)
            : run_with_rapl(sources->rapl, signals, runs->command, parts, end, &run->window, err);
    if (parts)
        erg_parts_end(parts, &run->window, &items, &count);
    take_parts(sources, items, count, run);
    free(items);
    return result;
}

/* Runs warm-ups and repeats until one fails or a signal comes; *end is the last run's. */
static int run_all(const struct sources *sources, const struct erg_child_signals *signals,
                   const struct erg_measure_input *values, struct erg_runs *runs,
                   struct erg_child_end *end, struct erg_error *err)
{
    const char *const *command = runs->command;
    *end = (struct erg_child_end){0};
    for (long i = 0; i < values->warmups + values->repeats; i++) {
        struct erg_run run = {0};
        int result;
        if (i < values->warmups)
            result = erg_child_run(signals, command, end, err);
        else
            result = run_measured(sources, signals, runs, end, &run, err);
        if (result != 0)
            return -1;
        run.exit_status = end->status;
        if (i < values->warmups)
            runs->warmups++;
        else
            ERG_PUSH(runs, items, run);
        if (end->status || end->interrupted)
            break;
    }
    return 0;
}

int erg_measure(struct erg_runs *runs, const struct erg_measure_input *input,
                struct erg_child_end *end, struct erg_error *err)
{
    struct sources sources = {0};
    struct erg_child_signals signals;
    *runs = (struct erg_runs){.command = input->command};
    erg_child_block(&signals); /* before the meter starts its threads */
    int result = open_tables(&sources, runs, input, err) != 0 ||
                         open_sources(&sources, runs, input->gpus, err) != 0 ||
                         run_all(&sources, &signals, input, runs, end, err) != 0
                     ? -1
                     : 0;
    close_sources(&sources);
    return result;
}
