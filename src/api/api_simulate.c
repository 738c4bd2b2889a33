/* ergon/simulate.h: clusters simulated for a program. */
#include "ergon/simulate.h"

#include "api/door.h"
#include "api/simulate_call.h"
#include "base/call.h"
#include "base/memory.h"
#include "base/sized.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>

struct erg_simulations {
    struct erg_arena arena;
    struct erg_simulations_result *results;
    size_t count, capacity;
    json_t *comparison; /* NULL: no page was asked for */
    char *json;
};

struct simulations_running {
    struct erg_simulations_options options;
    struct erg_simulations *simulations;
};

static void keep(void *context, const struct erg_simulate_call *at,
                 const struct erg_simulated *result)
{
    struct erg_simulations *simulations = context;
    const struct erg_summary *summary = &result->summary;
    ERG_RESERVE(simulations, results, 1);
    simulations->results[simulations->count++] = (struct erg_simulations_result){
        .policy = erg_arena_strdup(&simulations->arena, at->simulation.policy->name),
        .submitted_jobs = summary->submitted_jobs,
        .finished_jobs = summary->finished_jobs,
        .rejected_jobs = summary->rejected_jobs,
        .reconfigurations = summary->reconfigurations,
        .mean_completion_s = summary->mean_jct_s,
        .median_completion_s = summary->median_jct_s,
        .p99_completion_s = summary->p99_jct_s,
        .mean_waiting_s = summary->mean_queue_s,
        .utilization = summary->utilization,
        .goodput = summary->goodput,
        .deadlines_met = summary->deadlines_met,
        .energy_j = summary->energy_j,
        .peak_power_w = summary->peak_power_w,
        .cost_usd = summary->cost_usd,
        .co2_kg = summary->co2_kg,
        .simulated_s = summary->simulated_s,
    };
}

static double or_none(double given, double none)
{
    return given > 0 ? given : none;
}

int erg_simulate_call_take(struct erg_simulate_input *input,
                           const struct erg_simulations_options *options, struct erg_error *err)
{
    const char *missing = !options->cluster    ? "cluster"
                          : !options->trace    ? "trace"
                          : !options->profiles ? "profiles"
                          : !options->policies ? "policies"
                                               : NULL;
    double ignored;
    if (missing)
        return erg_fail(err, ERG_USAGE, "a simulation needs %s", missing);
    if (erg_door_amount(&ignored, "until_s", options->until_s, err) != 0 ||
        erg_door_amount(&ignored, "power_cap_w", options->power_cap_w, err) != 0 ||
        erg_door_amount(&ignored, "work", options->work, err) != 0 ||
        erg_door_amount(&ignored, "failure_s", options->failure_s, err) != 0 ||
        erg_door_amount(&ignored, "repair_s", options->repair_s, err) != 0)
        return -1;
    *input = (struct erg_simulate_input){
        .cluster = options->cluster,
        .trace = options->trace,
        .policies = options->policies,
        .profiles = options->profiles,
        .tariff = options->tariff,
        .outages = options->outages,
        .folder = options->folder,
        .until_s = or_none(options->until_s, INFINITY),
        .power_cap_w = or_none(options->power_cap_w, INFINITY),
        .work = or_none(options->work, 1),
        .failure_s = or_none(options->failure_s, NAN),
        .repair_s = or_none(options->repair_s, NAN),
        .seed = options->seed,
        .page = options->page != 0,
    };
    return 0;
}

static int run(void *argument, struct erg_error *err)
{
    struct simulations_running *running = argument;
    struct erg_simulate_input input;
    if (erg_simulate_call_take(&input, &running->options, err) != 0)
        return -1;
    struct erg_simulations *simulations = erg_xcalloc(1, sizeof *simulations);
    input.each = keep;
    input.context = simulations;
    struct erg_simulate_call at;
    int status = erg_simulate_call_run(&at, &input, err);
    if (status == 0) {
        simulations->json = erg_door_json(erg_simulate_call_document(&at));
        simulations->comparison = json_incref(at.comparison);
        running->simulations = simulations;
    } else {
        erg_simulations_free(simulations);
    }
    erg_simulate_call_release(&at);
    return status;
}

int erg_simulations_run(struct erg_simulations **simulations,
                        const struct erg_simulations_options *options, struct erg_error *err)
{
    struct simulations_running running = {0};
    if (erg_sized_take(&running.options, sizeof running.options, options, "erg_simulations_options",
                       err) != 0 ||
        erg_call_run(run, &running, running.options.watch, err) != 0)
        return -1;
    *simulations = running.simulations;
    return 0;
}

void erg_simulations_free(struct erg_simulations *simulations)
{
    if (!simulations)
        return;
    free(simulations->results);
    erg_arena_release(&simulations->arena);
    json_decref(simulations->comparison);
    free(simulations->json);
    free(simulations);
}

size_t erg_simulations_count(const struct erg_simulations *simulations)
{
    return simulations->count;
}

int erg_simulations_result(const struct erg_simulations *simulations, size_t index,
                           struct erg_simulations_result *result, struct erg_error *err)
{
    if (index >= simulations->count)
        return erg_fail(err, ERG_USAGE, "policy %zu of %zu; expected one below %zu", index,
                        simulations->count, simulations->count);
    return erg_sized_give(result, &simulations->results[index], sizeof *simulations->results,
                          "erg_simulations_result", err);
}

const char *erg_simulations_json(const struct erg_simulations *simulations)
{
    return simulations->json;
}

int erg_simulations_write_page(const struct erg_simulations *simulations, const char *path,
                               struct erg_error *err)
{
    if (!simulations->comparison)
        return erg_fail(err, ERG_USAGE, "the page shows more than was kept; expected 1 for `page`");
    return erg_report_cluster_write(path, simulations->comparison, err);
}
