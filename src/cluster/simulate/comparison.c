/* Simulations of several policies as one document for the page. */
#include "cluster/simulate/comparison.h"

#include "base/memory.h"
#include "base/statistics.h"
#include "cluster/simulate/gpu_uses.h"
#include "cluster/simulate/results.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = ERG_COMPARISON_STEPS };

/* ---- time in equal steps ---- */

struct steps {
    double length_s;
};

/* Adds `value` during an interval to the means over the steps. */
static void spread(double *means, const struct steps *steps, double from_s, double to_s,
                   double value)
{
    for (int k = (int)(from_s / steps->length_s); k < STEPS && k * steps->length_s < to_s; k++) {
        double low_s = fmax(from_s, k * steps->length_s);
        double high_s = fmin(to_s, (k + 1) * steps->length_s);
        if (high_s > low_s)
            means[k] += value * (high_s - low_s) / steps->length_s;
    }
}

static json_t *numbers(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, erg_json_number(values[i]));
    return array;
}

enum { WAITING, RUNNING, BUSY, DOWN, OFF, THROUGHPUT, POWER, QUANTITIES };
static const char *const quantities[QUANTITIES] = {
    [WAITING] = "waiting", [RUNNING] = "running", [BUSY] = "busy_gpus",
    [DOWN] = "down_gpus",  [OFF] = "off_gpus",    [THROUGHPUT] = "samples_per_s",
    [POWER] = "power_w",
};

static json_t *course(const struct erg_simulated *result, const struct steps *steps)
{
    double(*means)[STEPS] = erg_xcalloc(QUANTITIES, sizeof *means);
    for (size_t i = 0; i < result->samples_count; i++) {
        const struct erg_cluster_sample *sample = &result->samples[i];
        double to_s = i + 1 < result->samples_count ? result->samples[i + 1].at_s
                                                    : result->summary.simulated_s;
        const double values[QUANTITIES] = {
            [WAITING] = sample->waiting, [RUNNING] = sample->running,
            [BUSY] = sample->busy_gpus,  [DOWN] = sample->down_gpus,
            [OFF] = sample->off_gpus,    [THROUGHPUT] = sample->samples_per_s,
            [POWER] = sample->power_w,
        };
        for (int q = 0; q < QUANTITIES; q++)
            spread(means[q], steps, sample->at_s, to_s, values[q]);
    }
    json_t *document = json_object();
    for (int q = 0; q < QUANTITIES; q++)
        json_object_set_new(document, quantities[q], numbers(means[q], STEPS));
    free(means);
    return document;
}

/* ---- completion times ---- */

/* At 0, 1, …, 100 % of the finished jobs; empty without finished jobs. */
static json_t *completions(const struct erg_simulated *result)
{
    double *times = erg_xcalloc(result->jobs_count, sizeof *times), percents[101];
    size_t count = 0;
    for (size_t i = 0; i < result->jobs_count; i++)
        if (result->jobs[i].state == ERG_JOB_ENDED)
            times[count++] = result->jobs[i].ended_s - result->jobs[i].submitted_s;
    qsort(times, count, sizeof *times, erg_compare_doubles);
    for (size_t i = 0; i <= 100 && count > 0; i++)
        percents[i] = times[(count - 1) * i / 100];
    free(times);
    return numbers(percents, count > 0 ? 101 : 0);
}

/* ---- GPUs ---- */

static json_t *single_uses(const struct erg_gpu_uses *uses, const struct erg_job_trace *trace)
{
    json_t *array = json_array();
    for (size_t i = 0; i < uses->count; i++) {
        const struct erg_gpu_use *use = &uses->items[i];
        char bits[ERG_NODE_GPUS_MOST + 1];
        erg_slice_bits(bits, &use->gpus);
        json_array_append_new(array,
                              erg_json_pack("[i, s, f, f, i, s]", use->gpus.node, bits, use->from_s,
                                            use->to_s, use->job, trace->jobs[use->job].id));
    }
    return array;
}

/* Rows of several nodes of one type, so that there are few enough. */
static json_t *shares(const struct erg_gpu_uses *uses, const struct erg_fleet *fleet,
                      const struct steps *steps)
{
    int nodes_per_row = (fleet->nodes + ERG_COMPARISON_ROWS - 1) / ERG_COMPARISON_ROWS;
    int *row_of = erg_xcalloc((size_t)fleet->nodes, sizeof *row_of);
    double *gpus = erg_xcalloc((size_t)fleet->nodes, sizeof *gpus);
    json_t *rows = json_array();
    int count = 0;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        const struct erg_gpu_type *type = &fleet->types[t];
        for (int n = 0; n < type->nodes; n += nodes_per_row, count++)
            for (int k = n; k < type->nodes && k < n + nodes_per_row; k++) {
                row_of[type->first_node + k] = count;
                gpus[count] += type->gpus_per_node;
            }
    }
    double(*means)[STEPS] = erg_xcalloc((size_t)count, sizeof *means);
    for (size_t i = 0; i < uses->count; i++) {
        const struct erg_gpu_use *use = &uses->items[i];
        spread(means[row_of[use->gpus.node]], steps, use->from_s, use->to_s,
               __builtin_popcountll(use->gpus.gpus));
    }
    int row = 0;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        const struct erg_gpu_type *type = &fleet->types[t];
        for (int n = 0; n < type->nodes; n += nodes_per_row, row++) {
            int last = n + nodes_per_row < type->nodes ? n + nodes_per_row : type->nodes;
            json_t *percent = json_array();
            for (int k = 0; k < STEPS; k++)
                json_array_append_new(percent,
                                      json_integer(lround(100 * means[row][k] / gpus[row])));
            json_array_append_new(rows, erg_json_pack("{s:s, s:i, s:i, s:o}", "type", type->name,
                                                      "first_node", type->first_node + n, "nodes",
                                                      last - n, "percent", percent));
        }
    }
    free(means);
    free(gpus);
    free(row_of);
    return rows;
}

/* ---- the document ---- */

json_t *erg_comparison_new(const struct erg_simulation *simulation)
{
    const struct erg_fleet *fleet = simulation->fleet;
    json_t *types = json_array();
    for (unsigned t = 0; t < fleet->types_count; t++)
        json_array_append_new(types,
                              erg_json_pack("{s:s, s:i, s:i, s:i}", "name", fleet->types[t].name,
                                            "nodes", fleet->types[t].nodes, "gpus_per_node",
                                            fleet->types[t].gpus_per_node, "first_node",
                                            fleet->types[t].first_node));
    const char *path = simulation->trace->path, *slash = strrchr(path, '/');
    return erg_json_pack("{s:s, s:i, s:s, s:i, s:i, s:o, s:I, s:i, s:[]}", "schema",
                         "ergon.cluster", "schema_version", 1, "trace", slash ? slash + 1 : path,
                         "gpus", fleet->gpus, "nodes", fleet->nodes, "types", types, "jobs",
                         (json_int_t)simulation->trace->count, "steps", STEPS, "policies");
}

void erg_comparison_add(json_t *comparison, const struct erg_simulated *result,
                        const struct erg_simulation *simulation)
{
    struct steps steps = {fmax(result->summary.simulated_s, 1) / STEPS};
    struct erg_gpu_uses uses;
    erg_gpu_uses_read(&uses, result);
    bool few = uses.count <= ERG_COMPARISON_USES && simulation->fleet->gpus <= 512;
    json_t *policy =
        erg_json_pack("{s:s, s:s, s:o, s:f, s:o, s:o}", "name", simulation->policy->name, "what",
                      simulation->policy->summary, "summary",
                      erg_simulated_document(result, simulation), "step_s", steps.length_s,
                      "course", course(result, &steps), "completion_s", completions(result));
    if (few)
        json_object_set_new(policy, "uses", single_uses(&uses, simulation->trace));
    else
        json_object_set_new(policy, "shares", shares(&uses, simulation->fleet, &steps));
    json_array_append_new(json_object_get(comparison, "policies"), policy);
    erg_gpu_uses_release(&uses);
}
