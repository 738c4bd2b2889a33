/* Repeated runs as a table and as JSON (observe/runs.h). */
#include "observe/runs.h"

#include "base/statistics.h"
#include "base/table.h"
#include "io/json.h"
#include "observe/format.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sources that differ by more than this get a warning. */
static const double ratio_most = 1.1;

void erg_runs_release(struct erg_runs *runs)
{
    free(runs->items);
    *runs = (struct erg_runs){0};
}

/* ---- spreads over the runs ---- */

/* A member of struct erg_window_gpu, by its offset. */
static const struct column {
    size_t offset;
    const char *key;
} columns[] = {
#define COLUMN(member)                                                                             \
    {                                                                                              \
        offsetof(struct erg_window_gpu, member), #member                                           \
    }
    COLUMN(energy_j),
    COLUMN(uncertainty_j),
    COLUMN(power_energy_j),
    COLUMN(ratio),
    COLUMN(power_mean_w),
    COLUMN(power_peak_w),
    COLUMN(temperature_begin_c),
    COLUMN(temperature_end_c),
    COLUMN(temperature_max_c),
    COLUMN(memory_temperature_max_c),
    COLUMN(throttled_power_s),
    COLUMN(throttled_thermal_s),
    COLUMN(sm_clock_mean_mhz),
#undef COLUMN
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static double value_at(const void *owner, size_t offset)
{
    double value;
    memcpy(&value, (const char *)owner + offset, sizeof value);
    return value;
}

enum total {
    TIME,
    ENERGY,
    ENERGY_UNCERTAINTY,
    POWER,
    CPU,
    CPU_UNCERTAINTY,
    DRAM,
    DRAM_UNCERTAINTY,
    TOTALS
};

/* `what` is the name in the table; an energy is followed by its uncertainty. */
static const struct {
    const char *what, *unit, *key;
    size_t offset; /* in the window or, for a sum, in its GPUs */
    bool sum;
} totals[TOTALS] = {
#define WINDOW(member) offsetof(struct erg_window_result, member), false
#define GPUS(member) offsetof(struct erg_window_gpu, member), true
    [TIME] = {"time", "s", "time_s", WINDOW(time_s)},
    [ENERGY] = {"energy of GPUs", "J", "energy_j", GPUS(energy_j)},
    [ENERGY_UNCERTAINTY] = {NULL, NULL, "uncertainty_j", GPUS(uncertainty_j)},
    [POWER] = {"mean power of GPUs", "W", "power_mean_w", GPUS(power_mean_w)},
    [CPU] = {"energy of CPUs", "J", "cpu_energy_j", WINDOW(cpu_j)},
    [CPU_UNCERTAINTY] = {NULL, NULL, "cpu_uncertainty_j", WINDOW(cpu_uncertainty_j)},
    [DRAM] = {"energy of DRAM", "J", "dram_energy_j", WINDOW(dram_j)},
    [DRAM_UNCERTAINTY] = {NULL, NULL, "dram_uncertainty_j", WINDOW(dram_uncertainty_j)},
#undef WINDOW
#undef GPUS
};

/*
 * Whether a GPU's energy is known in every run. Only such GPUs are summed, so that the sums of all
 * runs cover the same GPUs.
 */
static bool is_counted(const struct erg_runs *runs, size_t gpu)
{
    for (size_t i = 0; i < runs->count; i++)
        if (isnan(runs->items[i].window.gpu[gpu].energy_j))
            return false;
    return true;
}

static size_t counted_gpus(const struct erg_runs *runs)
{
    size_t count = 0;
    for (size_t g = 0; g < runs->gpu_count; g++)
        count += is_counted(runs, g);
    return count;
}

/* Sum over those GPUs; NaN if there is none, or if one's value is unknown. */
static double sum_of(const struct erg_runs *runs, const struct erg_window_result *window,
                     size_t offset)
{
    double sum = counted_gpus(runs) ? 0 : NAN;
    for (size_t g = 0; g < runs->gpu_count; g++)
        if (is_counted(runs, g))
            sum += value_at(&window->gpu[g], offset);
    return sum;
}

static double total_of(const struct erg_runs *runs, const struct erg_window_result *window,
                       enum total total)
{
    return totals[total].sum ? sum_of(runs, window, totals[total].offset)
                             : value_at(window, totals[total].offset);
}

static struct erg_spread spread_total(const struct erg_runs *runs, enum total total)
{
    struct erg_spread spread = {0};
    for (size_t i = 0; i < runs->count; i++)
        erg_spread_add(&spread, total_of(runs, &runs->items[i].window, total));
    return spread;
}

static struct erg_spread spread_gpu(const struct erg_runs *runs, size_t gpu, size_t offset)
{
    struct erg_spread spread = {0};
    for (size_t i = 0; i < runs->count; i++)
        erg_spread_add(&spread, value_at(&runs->items[i].window.gpu[gpu], offset));
    return spread;
}

#define SPREAD(runs, gpu, member) spread_gpu(runs, gpu, offsetof(struct erg_window_gpu, member))

/* ---- emissions and costs ---- */

static const struct price {
    const char *what, *unit, *key;
    size_t offset, asked; /* in a run; whether requested, in the runs */
} prices[] = {
    {"emissions (CO2)", "g", "co2_g", offsetof(struct erg_run, co2_g),
     offsetof(struct erg_runs, has_carbon)},
    {"cost", "USD", "cost_usd", offsetof(struct erg_run, cost_usd),
     offsetof(struct erg_runs, has_price)},
};
enum { PRICES = sizeof prices / sizeof *prices };

static bool is_asked(const struct erg_runs *runs, const struct price *price)
{
    return *(const bool *)(const void *)((const char *)runs + price->asked);
}

static struct erg_spread spread_price(const struct erg_runs *runs, const struct price *price)
{
    struct erg_spread spread = {0};
    for (size_t i = 0; i < runs->count; i++)
        erg_spread_add(&spread, value_at(&runs->items[i], price->offset));
    return spread;
}

/* ---- table ---- */

/* Adds "energy of 1 of 2 GPUs" if that of the other is unknown, padded to the column's width. */
static void add_name(struct erg_text *out, const struct erg_runs *runs, enum total total)
{
    size_t counted = counted_gpus(runs);
    bool partial = counted && counted < runs->gpu_count;
    struct erg_text name = {0};
    if (partial && (total == ENERGY || total == POWER))
        erg_text_printf(&name, "%s of %zu of %zu GPUs", total == ENERGY ? "energy" : "mean power",
                        counted, runs->gpu_count);
    else
        erg_text_add(&name, totals[total].what);
    erg_text_printf(out, "  %-*s", partial ? 27 : 20, name.data);
    erg_text_release(&name);
}

static void add_total(struct erg_text *out, const struct erg_runs *runs, enum total total)
{
    char mean[ERG_FORMAT_BYTES], sd[ERG_FORMAT_BYTES], known[ERG_FORMAT_BYTES];
    struct erg_spread spread = spread_total(runs, total);
    bool of_gpus = total == ENERGY || total == POWER;
    if (!spread.count && of_gpus && !runs->gpu_count)
        return;
    double deviation = erg_spread_sd(&spread);
    add_name(out, runs, total);
    erg_text_add_padded(
        out, erg_format_quantity(mean, erg_spread_mean(&spread), totals[total].unit), 10, true);
    if (!isnan(deviation))
        erg_text_printf(out, " ± %s", erg_format_quantity(sd, deviation, totals[total].unit));
    if (!isnan(deviation) && spread.mean > 0)
        erg_text_printf(out, " (%.1f %%)", 100 * deviation / spread.mean);
    if (spread.count && (total == ENERGY || total == CPU || total == DRAM)) {
        struct erg_spread uncertainty = spread_total(runs, total + 1);
        erg_text_printf(out, "%s known to ± %s", isnan(deviation) ? "," : ", each",
                        erg_format_quantity(known, erg_spread_mean(&uncertainty), "J"));
    }
    if (spread.count && spread.count < runs->count)
        erg_text_printf(out, ", known for %zu runs", spread.count);
    erg_text_add(out, "\n");
}

static void add_price(struct erg_text *out, const struct erg_runs *runs, const struct price *price)
{
    const struct erg_spread spread = spread_price(runs, price);
    erg_text_printf(out, "  %-20s", price->what);
    if (!spread.count)
        erg_text_add(out, "         -, unknown for some hours");
    else
        erg_text_printf(out, "%10.4g %s", spread.mean, price->unit);
    if (spread.count > 1)
        erg_text_printf(out, " ± %.2g %s", erg_spread_sd(&spread), price->unit);
    if (spread.count && spread.count < runs->count)
        erg_text_printf(out, ", known for %zu runs", spread.count);
    erg_text_add(out, "\n");
}

static void add_heat(struct erg_table *table, const struct erg_runs *runs, size_t g)
{
    assert(runs->count > 0 && g < runs->gpu_count);
    double begin = runs->items[0].window.gpu[g].temperature_begin_c;
    double end = runs->items[runs->count - 1].window.gpu[g].temperature_end_c;
    struct erg_spread most = SPREAD(runs, g, temperature_max_c);
    if (isnan(begin) || isnan(end) || !most.count)
        erg_table_add(table, "-");
    else
        erg_table_add(table, "%.0f to %.0f, max %.0f °C", begin, end, most.most);
}

static void add_held_down(struct erg_table *table, const struct erg_runs *runs, size_t g)
{
    char power[ERG_FORMAT_BYTES], heat[ERG_FORMAT_BYTES];
    struct erg_spread by_power = SPREAD(runs, g, throttled_power_s);
    struct erg_spread by_heat = SPREAD(runs, g, throttled_thermal_s);
    if (!by_power.count && !by_heat.count)
        erg_table_add(table, "-");
    else if (by_power.most <= 0 && by_heat.most <= 0)
        erg_table_add(table, "no");
    else
        erg_table_add(table, "by power %s, by heat %s",
                      erg_format_quantity(power, erg_spread_mean(&by_power), "s"),
                      erg_format_quantity(heat, erg_spread_mean(&by_heat), "s"));
}

static void add_gpu(struct erg_table *table, const struct erg_runs *runs, size_t g)
{
    char quantity[ERG_FORMAT_BYTES], deviation[ERG_FORMAT_BYTES];
    struct erg_spread energy = SPREAD(runs, g, energy_j), known = SPREAD(runs, g, uncertainty_j);
    struct erg_spread ratio = SPREAD(runs, g, ratio), mean = SPREAD(runs, g, power_mean_w);
    struct erg_spread peak = SPREAD(runs, g, power_peak_w);
    struct erg_spread clock = SPREAD(runs, g, sm_clock_mean_mhz);
    erg_table_add(table, "%d %s", runs->gpus[g].index, runs->gpus[g].name);
    erg_format_quantity(quantity, erg_spread_mean(&energy), "J");
    if (energy.count > 1)
        erg_table_add(table, "%s ± %s", quantity,
                      erg_format_quantity(deviation, erg_spread_sd(&energy), "J"));
    else
        erg_table_add(table, "%s", quantity);
    erg_format_quantity(quantity, erg_spread_mean(&known), "J");
    erg_table_add(table, "%s%s", known.count ? "± " : "", quantity);
    if (ratio.count)
        erg_table_add(table, "%.3f", ratio.mean);
    else
        erg_table_add(table, "-");
    erg_table_add(table, "%s", erg_format_quantity(quantity, erg_spread_mean(&mean), "W"));
    erg_table_add(table, "%s", erg_format_quantity(quantity, peak.count ? peak.most : NAN, "W"));
    erg_table_add(table, "%s", erg_format_quantity(quantity, 1e6 * erg_spread_mean(&clock), "Hz"));
    add_heat(table, runs, g);
    add_held_down(table, runs, g);
}

static void add_gpus(struct erg_text *out, const struct erg_runs *runs)
{
    static const char *const headings[] = {"GPU",  "energy", "known to", "power/counter", "mean",
                                           "peak", "clock",  "heat",     "held down"};
    struct erg_table table = {.columns = sizeof headings / sizeof *headings};
    for (size_t c = 0; c < table.columns; c++)
        erg_table_add(&table, "%s", headings[c]);
    for (size_t g = 0; g < runs->gpu_count; g++)
        add_gpu(&table, runs, g);
    erg_table_text(out, &table, "  ");
    erg_table_release(&table);
}

/* The number of runs in which a GPU's member (by its offset) has a value. */
static size_t count_runs(const struct erg_runs *runs, size_t g, size_t offset, int value)
{
    size_t count = 0;
    for (size_t i = 0; i < runs->count; i++) {
        int found;
        memcpy(&found, (const char *)&runs->items[i].window.gpu[g] + offset, sizeof found);
        count += found == value;
    }
    return count;
}

#define COUNT(runs, gpu, member, value)                                                            \
    count_runs(runs, gpu, offsetof(struct erg_window_gpu, member), value)

/* Adds the reason why power readings were summed, which the energy itself does not show. */
static void add_counter_warning(struct erg_text *out, const struct erg_runs *runs, size_t g)
{
    static const char *const reasons[] = {
        [ERG_COUNTER_MISSING] = "has no energy counter",
        [ERG_COUNTER_STILL] = "its counter stood still",
        [ERG_COUNTER_RESET] = "its counter restarted or jumped",
    };
    for (int state = ERG_COUNTER_MISSING; state <= ERG_COUNTER_RESET; state++) {
        size_t used = 0;
        for (size_t i = 0; i < runs->count; i++) {
            const struct erg_window_gpu *gpu = &runs->items[i].window.gpu[g];
            used += gpu->quality == ERG_ENERGY_POWER_ONLY && gpu->counter == state;
        }
        if (used)
            erg_text_printf(out, "  GPU %d%s %s: power readings were summed.\n",
                            runs->gpus[g].index, state == ERG_COUNTER_MISSING ? "" : ":",
                            reasons[state]);
    }
}

/* Adds the caveats of the numbers. */
static void add_warnings(struct erg_text *out, const struct erg_runs *runs)
{
    for (size_t g = 0; g < runs->gpu_count; g++) {
        size_t missing = COUNT(runs, g, quality, ERG_ENERGY_MISSING);
        size_t estimated = COUNT(runs, g, quality, ERG_ENERGY_ESTIMATED);
        int index = runs->gpus[g].index;
        struct erg_spread ratio = SPREAD(runs, g, ratio);
        double mean = erg_spread_mean(&ratio);
        if (runs->gpus[g].trouble[0])
            erg_text_printf(out, "  GPU %d does not work: %s.\n", index, runs->gpus[g].trouble);
        else if (COUNT(runs, g, lost, 0) < runs->count)
            erg_text_printf(out, "  GPU %d did not answer in time or fell off the bus.\n", index);
        if (missing && counted_gpus(runs))
            erg_text_printf(out, "  GPU %d: its energy is missing in the sum.\n", index);
        else if (missing)
            erg_text_printf(out, "  GPU %d: its energy is unknown.\n", index);
        if (missing && missing < runs->count)
            erg_text_printf(out, "  GPU %d: its own numbers cover %zu of the %zu runs.\n", index,
                            runs->count - missing, runs->count);
        add_counter_warning(out, runs, g);
        if (estimated)
            erg_text_printf(out,
                            "  GPU %d: shorter than three steps of its counter, so estimated; "
                            "repeat the work inside the command.\n",
                            index);
        if (!estimated && (mean > ratio_most || mean < 1 / ratio_most))
            erg_text_printf(out, "  GPU %d: its two sources of energy differ by %.0f %%.\n", index,
                            100 * fabs(mean - 1));
    }
}

void erg_runs_table(struct erg_text *out, const struct erg_runs *runs)
{
    erg_text_add(out, "\nEnergy of '");
    for (const char *const *word = runs->command; *word; word++) {
        erg_text_add(out, word == runs->command ? "" : " ");
        erg_text_add_utf8(out, *word, strlen(*word));
    }
    erg_text_printf(out, "', %zu run%s", runs->count, erg_plural(runs->count));
    if (runs->warmups)
        erg_text_printf(out, " after %zu of warm-up", runs->warmups);
    if (runs->count > 1)
        erg_text_add(out, " (mean ± standard deviation)");
    erg_text_add(out, ":\n\n");
    for (enum total total = 0; total < TOTALS; total++)
        if (totals[total].what)
            add_total(out, runs, (enum total)total);
    for (int i = 0; i < PRICES; i++)
        if (is_asked(runs, &prices[i]))
            add_price(out, runs, &prices[i]);
    if (!runs->gpu_count)
        return;
    erg_text_add(out, "\n");
    add_gpus(out, runs);
    add_warnings(out, runs);
}

/* ---- JSON ---- */

static json_t *spread_json(const struct erg_spread *spread)
{
    double mean = erg_spread_mean(spread), sd = erg_spread_sd(spread);
    return erg_json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "mean", mean, "sd", sd, "cv", sd / mean,
                         "min", spread->count ? spread->least : NAN, "max",
                         spread->count ? spread->most : NAN, "count", (json_int_t)spread->count);
}

static json_t *run_json(const struct erg_runs *runs, const struct erg_run *run)
{
    static const char *const qualities[] = {"missing", "measured", "estimated", "power_only"};
    static const char *const counters[] = {"used", "missing", "still", "reset"};
    json_t *object = erg_json_pack("{s:i}", "exit_status", run->exit_status), *gpus = json_array();
    for (enum total total = 0; total < TOTALS; total++)
        json_object_set_new(object, totals[total].key,
                            erg_json_number(total_of(runs, &run->window, total)));
    for (int i = 0; i < PRICES; i++)
        if (is_asked(runs, &prices[i]))
            json_object_set_new(object, prices[i].key,
                                erg_json_number(value_at(run, prices[i].offset)));
    json_object_set_new(object, "energy_gpus", json_integer((json_int_t)counted_gpus(runs)));
    for (size_t g = 0; g < runs->gpu_count; g++) {
        const struct erg_window_gpu *gpu = &run->window.gpu[g];
        json_t *row = erg_json_pack("{s:i, s:s, s:s, s:b}", "index", runs->gpus[g].index, "quality",
                                    qualities[gpu->quality], "counter", counters[gpu->counter],
                                    "lost", gpu->lost);
        for (size_t c = 0; c < COLUMNS; c++)
            json_object_set_new(row, columns[c].key,
                                erg_json_number(value_at(gpu, columns[c].offset)));
        json_array_append_new(gpus, row);
    }
    json_object_set_new(object, "gpus", gpus);
    return object;
}

json_t *erg_runs_json(const struct erg_runs *runs)
{
    json_t *command = json_array(), *gpus = json_array(), *items = json_array();
    json_t *summary = json_object();
    for (const char *const *word = runs->command; *word; word++)
        json_array_append_new(command, erg_json_new_string(*word));
    for (enum total total = 0; total < TOTALS; total++) {
        struct erg_spread spread = spread_total(runs, total);
        json_object_set_new(summary, totals[total].key, spread_json(&spread));
    }
    for (int i = 0; i < PRICES; i++) {
        struct erg_spread spread = spread_price(runs, &prices[i]);
        if (is_asked(runs, &prices[i]))
            json_object_set_new(summary, prices[i].key, spread_json(&spread));
    }
    json_object_set_new(summary, "energy_gpus", json_integer((json_int_t)counted_gpus(runs)));
    for (size_t g = 0; g < runs->gpu_count; g++) {
        const struct erg_meter_gpu *info = &runs->gpus[g];
        json_t *row = erg_json_pack("{s:i, s:s, s:s}", "index", info->index, "name", info->name,
                                    "uuid", info->uuid);
        for (size_t c = 0; c < COLUMNS; c++) {
            struct erg_spread spread = spread_gpu(runs, g, columns[c].offset);
            json_object_set_new(row, columns[c].key, spread_json(&spread));
        }
        json_array_append_new(gpus, row);
    }
    for (size_t i = 0; i < runs->count; i++)
        json_array_append_new(items, run_json(runs, &runs->items[i]));
    return erg_json_pack("{s:i, s:o, s:i, s:o, s:o, s:o}", "schema_version", 1, "command", command,
                         "warmups", (int)runs->warmups, "summary", summary, "gpus", gpus, "runs",
                         items);
}
