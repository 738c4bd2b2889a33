/* A simulation as a table. */
#include "api/simulate_print.h"

#include "base/table.h"
#include "io/print.h"

#include <math.h>

static void add_hours(struct erg_table *table, const char *what, double seconds)
{
    erg_table_add(table, "%s", what);
    erg_table_add(table, isfinite(seconds) ? "%.2f h" : "-", seconds / 3600);
}

static void add_rate(struct erg_table *table, const char *what, double samples_per_s)
{
    erg_table_add(table, "%s", what);
    erg_table_add(table, isfinite(samples_per_s) ? "%.1f samples/s" : "-", samples_per_s);
}

static void add_share(struct erg_table *table, const char *what, double share)
{
    erg_table_add(table, "%s", what);
    erg_table_add(table, isfinite(share) ? "%.1f %%" : "-", 100 * share);
}

void erg_simulate_print(FILE *out, const struct erg_simulate_call *at,
                        const struct erg_simulated *result)
{
    const struct erg_summary *summary = &result->summary;
    struct erg_table table = {.columns = 2};
    struct erg_text text = {0};
    fprintf(out, "%s on %d GPUs of %u types: %ld of %ld jobs finished in %.1f hours\n",
            at->simulation.policy->name, at->fleet->gpus, at->fleet->types_count,
            summary->finished_jobs, summary->submitted_jobs, summary->simulated_s / 3600);
    add_hours(&table, "completion, mean of finished jobs", summary->mean_jct_s);
    add_hours(&table, "completion, median", summary->median_jct_s);
    add_hours(&table, "completion, 99th percentile", summary->p99_jct_s);
    add_hours(&table, "time in system, mean of all jobs", summary->mean_time_in_system_s);
    add_hours(&table, "waiting, mean of all jobs", summary->mean_queue_s);
    add_rate(&table, "throughput, mean", summary->mean_throughput);
    for (size_t i = 0; i < result->families_count && result->families_count > 1; i++) {
        struct erg_text name = {0};
        erg_text_printf(&name, "  of %s", result->families[i].name);
        add_rate(&table, name.data, result->families[i].mean_throughput);
        erg_text_release(&name);
    }
    add_rate(&table, "throughput, peak", summary->peak_throughput);
    add_share(&table, "GPUs in use", summary->utilization);
    add_share(&table, "GPUs at work, without restarts and lost work", summary->goodput);
    if (!isnan(summary->fragmentation))
        add_share(&table, "of free GPUs, in pieces of nodes", summary->fragmentation);
    erg_table_add(&table, "starts, moves and resizings");
    erg_table_add(&table, "%ld", summary->reconfigurations);
    if (!isnan(summary->energy_j)) {
        erg_table_add(&table, "energy of GPUs");
        erg_table_add(&table, "%.4g GJ", summary->energy_j / 1e9);
        erg_table_add(&table, "power of GPUs, peak");
        erg_table_add(&table, "%.4g kW", summary->peak_power_w / 1e3);
    }
    if (!isnan(summary->off_gpu_s)) {
        erg_table_add(&table, "GPUs of nodes that were off");
        erg_table_add(&table, "%.1f %%, %.0f nodes woken",
                      100 * summary->off_gpu_s / (at->fleet->gpus * summary->simulated_s),
                      summary->wake_ups);
    }
    if (!isnan(summary->throttled_s))
        add_hours(&table, "slowed down by the power cap", summary->throttled_s);
    if (!isnan(summary->cost_usd)) {
        erg_table_add(&table, "electricity");
        erg_table_add(&table, "%.2f USD, %.4g kg CO2", summary->cost_usd, summary->co2_kg);
    }
    if (!isnan(summary->deadlines_met))
        add_share(&table, "deadlines met", summary->deadlines_met);
    erg_table_text(&text, &table, "  ");
    fputs(text.data, out);
    if (summary->rejected_jobs > 0)
        fprintf(out, "%ld %s rejected, %ld of them can run on no GPUs of this cluster\n",
                summary->rejected_jobs, summary->rejected_jobs == 1 ? "job was" : "jobs were",
                summary->unrunnable_jobs);
    erg_text_release(&text);
    erg_table_release(&table);
}
