/* Sweeps: the points of the product, and one of them simulated. */
#include "cluster/simulate/outages.h"
#include "cluster/simulate/results.h"
#include "cluster/sweep/sweep_internal.h"
#include "cluster/traces/vary.h"
#include "ergon/ergon.h"

#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Policies change fastest, so that compared points are simulated together. */
size_t erg_sweep_points(const struct erg_sweep *sweep)
{
    return (size_t)sweep->clusters_count * sweep->traces_count * sweep->power_caps_count *
           sweep->loads_count * (size_t)sweep->seeds * sweep->policies_count;
}

static unsigned take(size_t *index, unsigned count)
{
    unsigned digit = (unsigned)(*index % count);
    *index /= count;
    return digit;
}

struct erg_sweep_point erg_sweep_point(const struct erg_sweep *sweep, size_t index)
{
    struct erg_sweep_point point;
    point.policy = take(&index, sweep->policies_count);
    point.seed = take(&index, (unsigned)sweep->seeds);
    point.load = take(&index, sweep->loads_count);
    point.cap = take(&index, sweep->power_caps_count);
    point.trace = take(&index, sweep->traces_count);
    point.cluster = take(&index, sweep->clusters_count);
    return point;
}

size_t erg_sweep_index(const struct erg_sweep *sweep, const struct erg_sweep_point *point)
{
    size_t index = point->cluster;
    index = index * sweep->traces_count + point->trace;
    index = index * sweep->power_caps_count + point->cap;
    index = index * sweep->loads_count + point->load;
    index = index * (size_t)sweep->seeds + point->seed;
    return index * sweep->policies_count + point->policy;
}

struct erg_sweep_key erg_sweep_key(const struct erg_sweep *sweep,
                                   const struct erg_sweep_point *point)
{
    bool draws = sweep->resample || sweep->failures.mean_h > 0;
    struct erg_text depends = {0};
    struct erg_sweep_key key;
    erg_text_printf(&depends, "ergon %s\n%016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\n",
                    erg_version(), sweep->cluster_hashes[point->cluster],
                    sweep->trace_hashes[point->trace], sweep->profiles_hash);
    erg_text_printf(&depends, "%s %d %.17g\n", sweep->policies[point->policy], sweep->rounds,
                    sweep->work);
    erg_text_printf(&depends, "%.17g %.17g\n", sweep->loads[point->load],
                    sweep->power_caps[point->cap]);
    if (draws)
        erg_text_printf(&depends, "%u %d %.17g %.17g\n", point->seed + 1, sweep->resample,
                        sweep->failures.mean_h, sweep->failures.repair_h);
    snprintf(key.text, sizeof key.text, "%016" PRIx64, erg_hash_text(depends.data));
    erg_text_release(&depends);
    return key;
}

void erg_sweep_describe(struct erg_text *out, const struct erg_sweep *sweep,
                        const struct erg_sweep_point *point)
{
    erg_text_printf(out, "%s, %s, %s, load %g", sweep->clusters[point->cluster],
                    sweep->traces[point->trace], sweep->policies[point->policy],
                    sweep->loads[point->load]);
    if (!isnan(sweep->power_caps[point->cap]))
        erg_text_printf(out, ", cap %g", sweep->power_caps[point->cap]);
    if (sweep->seeds > 1)
        erg_text_printf(out, ", seed %u", point->seed + 1);
}

int erg_sweep_simulate(const struct erg_sweep *sweep, const struct erg_sweep_point *point,
                       json_t **document, struct erg_error *err)
{
    const struct erg_sweep_inputs *inputs =
        &sweep->inputs[(size_t)point->cluster * sweep->traces_count + point->trace];
    const struct erg_sweep_failures *failures = &sweep->failures;
    double cap = sweep->power_caps[point->cap];
    struct erg_trace_variation variation = {
        .load = sweep->loads[point->load], .resample = sweep->resample, .seed = point->seed + 1};
    struct erg_job_trace *trace = erg_job_trace_vary(inputs->trace, &variation);
    struct erg_outages outages = {0};
    struct erg_simulation simulation = {
        .fleet = inputs->fleet,
        .trace = trace,
        .speeds = inputs->speeds,
        .policy = sweep->policy[point->policy],
        .work = sweep->work,
        .until_s = sweep->rounds ? (double)SWEEP_ROUND_S * sweep->rounds : INFINITY,
        .power_cap_w = isnan(cap) ? INFINITY : cap * inputs->power_w,
    };
    if (failures->mean_h > 0)
        erg_outages_draw(&outages, inputs->fleet, 3600 * failures->mean_h,
                         3600 * failures->repair_h, simulation.until_s, point->seed + 1);
    simulation.outages = outages.items;
    simulation.outages_count = outages.count;
    struct erg_simulated simulated;
    int result = erg_simulate(&simulated, &simulation, err);
    if (result == 0) {
        *document = erg_simulated_document(&simulated, &simulation);
        erg_simulated_release(&simulated);
    }
    erg_outages_release(&outages);
    erg_job_trace_free(trace);
    return result;
}
