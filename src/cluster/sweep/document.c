/* Sweeps: the summary of their points. */
#include "cluster/sweep/sweep_internal.h"

#include "base/statistics.h"
#include "io/csv.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIDENCE 0.95

/* All numbers of all points. */
struct results {
    const struct erg_sweep *sweep;
    const char **metrics; /* keys of the summaries; borrowed from `keys` */
    size_t metrics_count;
    json_t *keys;   /* the first summary */
    double *values; /* [point][metric]; NAN: undefined, or the point is missing */
    size_t missing;
    struct sweep_unserved unserved;
};

/* ---- reading ---- */

/* Every number of a summary except labels; an undefined one is null. */
static bool is_metric(const char *key, const json_t *value)
{
    return (json_is_number(value) || json_is_null(value)) && strcmp(key, "schema_version") != 0 &&
           strcmp(key, "gpus") != 0;
}

static void learn_metrics(struct results *results, json_t *summary)
{
    const char *key;
    json_t *value;
    results->keys = json_incref(summary);
    results->metrics = erg_xcalloc(json_object_size(summary), sizeof(const char *));
    json_object_foreach(summary, key, value) if (is_metric(key, value))
        results->metrics[results->metrics_count++] = key;
    size_t numbers = erg_sweep_points(results->sweep) * results->metrics_count;
    results->values = erg_xcalloc(numbers, sizeof *results->values);
    for (size_t i = 0; i < numbers; i++)
        results->values[i] = NAN;
}

static int read_results(struct results *results, struct erg_documents *store, struct erg_error *err)
{
    for (size_t i = 0; i < erg_sweep_points(results->sweep); i++) {
        struct erg_sweep_point point = erg_sweep_point(results->sweep, i);
        json_t *summary;
        if (erg_sweep_point_get(results->sweep, store, &point, &summary, err) != 0)
            return -1;
        if (!summary) {
            results->missing++;
            continue;
        }
        if (!results->values)
            learn_metrics(results, summary);
        for (size_t m = 0; m < results->metrics_count; m++) {
            const json_t *value = json_object_get(summary, results->metrics[m]);
            if (json_is_number(value))
                results->values[i * results->metrics_count + m] = json_number_value(value);
        }
        erg_sweep_unserved_read(&results->unserved, results->sweep, &point, summary);
        json_decref(summary);
    }
    erg_sweep_unserved_settle(&results->unserved);
    return 0;
}

static void release(struct results *results)
{
    json_decref(results->keys);
    free(results->metrics);
    free(results->values);
    free(results->unserved.items);
}

/* ---- intervals ---- */

/* The key of a comparison: a point without the seed and, if traces are pooled, without the
 * trace. */
struct compared {
    struct erg_sweep_point point;
    size_t metric;
};

static double value_at(const struct results *results, const struct compared *place, unsigned policy)
{
    struct erg_sweep_point point = place->point;
    point.policy = policy;
    return results
        ->values[erg_sweep_index(results->sweep, &point) * results->metrics_count + place->metric];
}

/* The numbers of one simulation, or their comparison with the reference's. */
enum quantity { VALUE, DIFFERENCE, LOG_RATIO };

static double one_value(const struct results *results, const struct compared *place,
                        enum quantity quantity)
{
    double value = value_at(results, place, place->point.policy);
    if (quantity == VALUE)
        return value;
    double reference = value_at(results, place, results->sweep->reference_index);
    return quantity == DIFFERENCE ? value - reference : log(value / reference);
}

static struct erg_interval interval(const struct results *results, const struct compared *place,
                                    enum quantity quantity)
{
    const struct erg_sweep *sweep = results->sweep;
    unsigned seeds = (unsigned)sweep->seeds, traces = sweep->traces_count;
    double *of_seeds = erg_xcalloc(seeds, sizeof *of_seeds);
    double *of_traces = erg_xcalloc(traces, sizeof *of_traces);
    struct compared at = *place;
    struct erg_interval result;
    for (unsigned t = 0; t < traces; t++) {
        if (sweep->pool_traces)
            at.point.trace = t;
        for (at.point.seed = 0; at.point.seed < seeds; at.point.seed++)
            of_seeds[at.point.seed] = one_value(results, &at, quantity);
        result = erg_interval_of_mean(of_seeds, seeds, CONFIDENCE);
        if (!sweep->pool_traces)
            break;
        of_traces[t] = result.mean;
    }
    if (sweep->pool_traces)
        result = erg_interval_of_mean(of_traces, traces, CONFIDENCE);
    free(of_seeds);
    free(of_traces);
    return result;
}

static json_t *interval_document(const struct erg_interval *interval)
{
    return erg_json_pack("{s:o, s:o, s:I}", "mean", erg_json_number(interval->mean), "half_width",
                         erg_json_number(interval->half_width), "count",
                         (json_int_t)interval->count);
}

/*
 * Relative to the reference: the mean of the logarithms of the pairs' ratios, so that seeds with
 * longer jobs do not weigh more. All null if a value of a pair is zero.
 */
static json_t *change_document(const struct erg_interval *logs)
{
    double half = logs->half_width;
    bool known = isfinite(logs->mean);
    return erg_json_pack(
        "{s:o, s:o, s:o, s:I}", "mean", erg_json_number(known ? expm1(logs->mean) : NAN), "low",
        erg_json_number(known ? expm1(logs->mean - half) : NAN), "high",
        erg_json_number(known ? expm1(logs->mean + half) : NAN), "count", (json_int_t)logs->count);
}

/* ---- the document ---- */

static json_t *policy_document(const struct results *results, const struct erg_sweep_point *point)
{
    json_t *metrics = json_object();
    for (size_t m = 0; m < results->metrics_count; m++) {
        struct compared place = {*point, m};
        struct erg_interval values = interval(results, &place, VALUE);
        json_t *metric = interval_document(&values);
        if (point->policy != results->sweep->reference_index) {
            struct erg_interval differences = interval(results, &place, DIFFERENCE);
            struct erg_interval ratios = interval(results, &place, LOG_RATIO);
            json_object_set_new(metric, "difference", interval_document(&differences));
            json_object_set_new(metric, "change", change_document(&ratios));
        }
        json_object_set_new(metrics, results->metrics[m], metric);
    }
    return erg_json_pack("{s:s, s:o}", "name", results->sweep->policies[point->policy], "metrics",
                         metrics);
}

static json_t *group_document(const struct results *results, struct erg_sweep_point point)
{
    const struct erg_sweep *sweep = results->sweep;
    const struct erg_sweep_inputs *inputs =
        &sweep->inputs[(size_t)point.cluster * sweep->traces_count + point.trace];
    json_t *loads = json_array();
    double cap = sweep->power_caps[point.cap];
    for (point.load = 0; point.load < sweep->loads_count; point.load++) {
        json_t *policies = json_array();
        for (point.policy = 0; point.policy < sweep->policies_count; point.policy++)
            json_array_append_new(policies, policy_document(results, &point));
        json_array_append_new(loads, erg_json_pack("{s:f, s:o}", "load", sweep->loads[point.load],
                                                   "policies", policies));
    }
    return erg_json_pack(
        "{s:s, s:i, s:s?, s:o, s:o, s:o, s:o}", "cluster", sweep->clusters[point.cluster], "gpus",
        inputs->fleet->gpus, "trace", sweep->pool_traces ? NULL : sweep->traces[point.trace],
        "power_cap", erg_json_number(cap), "power_cap_w", erg_json_number(cap * inputs->power_w),
        "loads", loads, "unserved", erg_sweep_unserved_document(&results->unserved, sweep, &point));
}

static json_t *groups_document(const struct results *results)
{
    const struct erg_sweep *sweep = results->sweep;
    json_t *groups = json_array();
    struct erg_sweep_point point = {0};
    for (point.cluster = 0; point.cluster < sweep->clusters_count; point.cluster++)
        for (point.trace = 0; point.trace < (sweep->pool_traces ? 1 : sweep->traces_count);
             point.trace++)
            for (point.cap = 0; point.cap < sweep->power_caps_count; point.cap++)
                json_array_append_new(groups, group_document(results, point));
    return groups;
}

static json_t *texts(char *const *items, unsigned count)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(array, erg_json_new_string(items[i]));
    return array;
}

static json_t *policies_document(const struct erg_sweep *sweep)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < sweep->policies_count; i++)
        json_array_append_new(array, erg_json_pack("{s:s, s:s}", "name", sweep->policies[i], "what",
                                                   sweep->policy[i]->summary));
    return array;
}

int erg_sweep_document(const struct erg_sweep *sweep, struct erg_documents *store,
                       json_t **document, struct erg_error *err)
{
    struct results results = {.sweep = sweep};
    int result = read_results(&results, store, err);
    if (result == 0 && !results.values)
        result = erg_fail(err, ERG_FAILED, "%s: none of its %zu simulations has a result",
                          sweep->path, erg_sweep_points(sweep));
    if (result == 0) {
        const char *slash = strrchr(sweep->path, '/');
        *document = erg_json_pack(
            "{s:s, s:i, s:s, s:I, s:I, s:f, s:o, s:s, s:o, s:b, s:i, s:b, s:o, s:o, s:o, s:f, s:o}",
            "schema", "ergon.sweep", "schema_version", 1, "sweep", slash ? slash + 1 : sweep->path,
            "points", (json_int_t)erg_sweep_points(sweep), "missing", (json_int_t)results.missing,
            "confidence", CONFIDENCE, "policies", policies_document(sweep), "reference",
            sweep->policies[sweep->reference_index], "traces",
            texts(sweep->traces, sweep->traces_count), "pool_traces", sweep->pool_traces, "seeds",
            sweep->seeds, "resample", sweep->resample, "mean_failure_h",
            erg_json_number(sweep->failures.mean_h > 0 ? sweep->failures.mean_h : NAN), "repair_h",
            erg_json_number(sweep->failures.mean_h > 0 ? sweep->failures.repair_h : NAN), "rounds",
            sweep->rounds ? json_integer(sweep->rounds) : json_null(), "work", sweep->work,
            "groups", groups_document(&results));
    }
    release(&results);
    return result;
}

/* ---- the table ---- */

static bool is_missing(const struct results *results, size_t index)
{
    for (size_t m = 0; m < results->metrics_count; m++)
        if (!isnan(results->values[index * results->metrics_count + m]))
            return false;
    return true;
}

int erg_sweep_table(const struct erg_sweep *sweep, struct erg_documents *store,
                    struct erg_text *out, struct erg_error *err)
{
    struct results results = {.sweep = sweep};
    int result = read_results(&results, store, err);
    erg_text_add(out, "cluster,trace,power_cap,load,seed,policy");
    for (size_t m = 0; m < results.metrics_count; m++)
        erg_text_printf(out, ",%s", results.metrics[m]);
    erg_text_add(out, "\n");
    for (size_t i = 0; i < erg_sweep_points(sweep) && result == 0 && results.values; i++) {
        struct erg_sweep_point point = erg_sweep_point(sweep, i);
        if (is_missing(&results, i))
            continue;
        erg_csv_add(out, sweep->clusters[point.cluster]);
        erg_csv_add(out, sweep->traces[point.trace]);
        erg_csv_add_double(out, sweep->power_caps[point.cap]);
        erg_csv_add_double(out, sweep->loads[point.load]);
        erg_csv_add_long(out, (long)point.seed + 1);
        erg_csv_add(out, sweep->policies[point.policy]);
        for (size_t m = 0; m < results.metrics_count; m++)
            erg_csv_add_double(out, results.values[i * results.metrics_count + m]);
        erg_csv_end_row(out);
    }
    release(&results);
    return result;
}
