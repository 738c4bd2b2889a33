/* Sweeps: reads their file, and all files that it names. */
#include "cluster/simulate/outages.h"
#include "cluster/sweep/sweep_internal.h"

#include "base/random.h"
#include "io/file.h"
#include "io/yaml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define OPTIONAL CYAML_FLAG_OPTIONAL
#define OPTIONAL_LIST (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)

static const cyaml_schema_value_t path_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 4000)};
static const cyaml_schema_value_t number_schema = {CYAML_VALUE_FLOAT(CYAML_FLAG_DEFAULT, double)};

#define SWEEP struct erg_sweep
#define FAILURES struct erg_sweep_failures
static const cyaml_schema_field_t failure_fields[] = {
    CYAML_FIELD_FLOAT("mean_h", CYAML_FLAG_DEFAULT, FAILURES, mean_h),
    CYAML_FIELD_FLOAT("repair_h", OPTIONAL, FAILURES, repair_h),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_SEQUENCE("clusters", CYAML_FLAG_POINTER, SWEEP, clusters, &path_schema, 1, 1000),
    CYAML_FIELD_SEQUENCE("traces", CYAML_FLAG_POINTER, SWEEP, traces, &path_schema, 1, 1000),
    CYAML_FIELD_STRING_PTR("profiles", CYAML_FLAG_POINTER, SWEEP, profiles, 1, 4000),
    CYAML_FIELD_SEQUENCE("policies", CYAML_FLAG_POINTER, SWEEP, policies, &path_schema, 1, 1000),
    CYAML_FIELD_STRING_PTR("reference", OPTIONAL | CYAML_FLAG_POINTER, SWEEP, reference, 1, 100),
    CYAML_FIELD_SEQUENCE("loads", OPTIONAL_LIST, SWEEP, loads, &number_schema, 1, 1000),
    CYAML_FIELD_SEQUENCE("power_caps", OPTIONAL_LIST, SWEEP, power_caps, &number_schema, 1, 1000),
    CYAML_FIELD_INT("seeds", OPTIONAL, SWEEP, seeds),
    CYAML_FIELD_BOOL("resample", OPTIONAL, SWEEP, resample),
    CYAML_FIELD_BOOL("pool_traces", OPTIONAL, SWEEP, pool_traces),
    CYAML_FIELD_MAPPING("failures", OPTIONAL, SWEEP, failures, failure_fields),
    CYAML_FIELD_INT("rounds", OPTIONAL, SWEEP, rounds),
    CYAML_FIELD_FLOAT("work", OPTIONAL, SWEEP, work),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, SWEEP, fields)};

/* ---- values ---- */

static int check_texts(const struct erg_yaml *yaml, const char *key, char *const *texts,
                       unsigned count, struct erg_error *err)
{
    char place[64];
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < i; k++)
            if (!strcmp(texts[i], texts[k])) {
                snprintf(place, sizeof place, "%s[%u]", key, i);
                return erg_yaml_fail(yaml, place, err, "'%s' is listed twice", texts[i]);
            }
    return 0;
}

static int check_numbers(const struct erg_yaml *yaml, const char *key, const double *numbers,
                         unsigned count, double most, struct erg_error *err)
{
    char place[64];
    for (unsigned i = 0; i < count; i++) {
        snprintf(place, sizeof place, "%s[%u]", key, i);
        if (erg_yaml_check_range(yaml, place, numbers[i], 0.001, most, err) != 0)
            return -1;
        for (unsigned k = 0; k < i; k++)
            if (numbers[i] == numbers[k])
                return erg_yaml_fail(yaml, place, err, "%g is listed twice", numbers[i]);
    }
    return 0;
}

static int find_policy(const struct erg_yaml *yaml, const char *key, const char *name,
                       const struct erg_policy **policy, struct erg_error *err)
{
    struct erg_error reason;
    if (erg_policy_find(policy, name, &reason) == 0)
        return 0;
    return erg_yaml_fail(yaml, key, err, "%s", reason.message);
}

static int find_policies(struct erg_sweep *sweep, const struct erg_yaml *yaml,
                         struct erg_error *err)
{
    char key[64];
    if (check_texts(yaml, "policies", sweep->policies, sweep->policies_count, err) != 0)
        return -1;
    sweep->policy = erg_xcalloc(sweep->policies_count, sizeof(const struct erg_policy *));
    for (unsigned i = 0; i < sweep->policies_count; i++) {
        snprintf(key, sizeof key, "policies[%u]", i);
        if (find_policy(yaml, key, sweep->policies[i], &sweep->policy[i], err) != 0)
            return -1;
        if (sweep->reference && !strcmp(sweep->reference, sweep->policies[i]))
            sweep->reference_index = i;
    }
    if (sweep->reference && strcmp(sweep->reference, sweep->policies[sweep->reference_index]) != 0)
        return erg_yaml_fail(yaml, "reference", err, "expected one of the policies, got '%s'",
                             sweep->reference);
    return 0;
}

/* The defaults of missing lists. */
static void set_default(double **list, unsigned *count, double value)
{
    if (*list)
        return;
    *list = erg_xmalloc(sizeof **list);
    **list = value;
    *count = 1;
}

static int check_draws(struct erg_sweep *sweep, const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_sweep_failures *failures = &sweep->failures;
    bool draws = sweep->resample;
    if (!erg_yaml_has(yaml, "seeds"))
        sweep->seeds = 1;
    if (erg_yaml_has(yaml, "failures")) {
        draws = true;
        if (!erg_yaml_has(yaml, "failures.repair_h"))
            failures->repair_h = 4;
        if (erg_yaml_check_range(yaml, "failures.mean_h", failures->mean_h, 0.01, 1e9, err) != 0 ||
            erg_yaml_check_range(yaml, "failures.repair_h", failures->repair_h, 0.001, 1e6, err) !=
                0)
            return -1;
        if (!sweep->rounds)
            return erg_yaml_fail(yaml, "failures", err,
                                 "failures need a limited time: expected the key 'rounds'");
    }
    if (erg_yaml_check_range(yaml, "seeds", sweep->seeds, 1, 1000000, err) != 0)
        return -1;
    if (sweep->seeds > 1 && !draws)
        return erg_yaml_fail(yaml, "seeds", err,
                             "every seed would give the same results: expected 'resample: true' or "
                             "'failures', which are drawn, or 1 seed, got %d",
                             sweep->seeds);
    return 0;
}

static int check_values(struct erg_sweep *sweep, const struct erg_yaml *yaml, struct erg_error *err)
{
    if (!erg_yaml_has(yaml, "work"))
        sweep->work = 1;
    if (erg_yaml_has(yaml, "rounds") &&
        erg_yaml_check_range(yaml, "rounds", sweep->rounds, 1, 1e9, err) != 0)
        return -1;
    if (erg_yaml_check_range(yaml, "work", sweep->work, 1e-6, 1e6, err) != 0 ||
        check_texts(yaml, "clusters", sweep->clusters, sweep->clusters_count, err) != 0 ||
        check_texts(yaml, "traces", sweep->traces, sweep->traces_count, err) != 0 ||
        check_numbers(yaml, "loads", sweep->loads, sweep->loads_count, 1000, err) != 0 ||
        check_numbers(yaml, "power_caps", sweep->power_caps, sweep->power_caps_count, 1, err) !=
            0 ||
        find_policies(sweep, yaml, err) != 0 || check_draws(sweep, yaml, err) != 0)
        return -1;
    set_default(&sweep->loads, &sweep->loads_count, 1);
    set_default(&sweep->power_caps, &sweep->power_caps_count, NAN);
    if (sweep->pool_traces && sweep->traces_count < 2)
        return erg_yaml_fail(
            yaml, "pool_traces", err,
            "expected at least two traces, so that the variation between traces can be estimated");
    if (erg_sweep_points(sweep) > 10000000)
        return erg_fail(err, ERG_FAILED, "%s: these are %zu points, expected at most 10 million",
                        sweep->path, erg_sweep_points(sweep));
    return 0;
}

/* ---- files ---- */

/* The path of a name in a file, relative to the file; a new text. */
static char *path_from(const char *file, const char *name)
{
    const char *slash = strrchr(file, '/');
    struct erg_text path = {0};
    if (slash && name[0] != '/')
        erg_text_add_bytes(&path, file, (size_t)(slash - file) + 1);
    erg_text_add(&path, name);
    return path.data;
}

/* Adds the key to an error about a file that the key names. */
static int hash_file(uint64_t *hash, const char *path, const struct erg_yaml *yaml, const char *key,
                     struct erg_error *err)
{
    char *text;
    size_t length;
    struct erg_error inner;
    if (erg_file_read(path, 0, &text, &length, &inner) != 0)
        return erg_yaml_fail(yaml, key, err, "%.700s", inner.message);
    *hash = erg_hash_u64(*hash, erg_hash_u64(erg_hash_text(text), length));
    free(text);
    return 0;
}

static int hash_profiles(struct erg_sweep *sweep, const char *folder, const struct erg_yaml *yaml,
                         struct erg_error *err)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/prof_optimal.csv", folder);
    int result = hash_file(&sweep->profiles_hash, path.data, yaml, "profiles", err);
    erg_text_release(&path);
    return result;
}

static double peak_power_w(const struct erg_fleet *fleet)
{
    double power_w = 0;
    for (unsigned t = 0; t < fleet->types_count; t++) {
        const struct erg_gpu_type *type = &fleet->types[t];
        power_w += (double)type->nodes * type->gpus_per_node * type->points[0].power_w;
    }
    return power_w;
}

static int load_inputs(struct erg_sweep *sweep, struct erg_sweep_inputs *inputs,
                       const char *cluster, const char *trace, const char *profiles,
                       struct erg_error *err)
{
    if (erg_fleet_load(&inputs->fleet, cluster, err) != 0 ||
        erg_job_trace_load(&inputs->trace, trace, inputs->fleet, err) != 0 ||
        erg_speeds_load(&inputs->speeds, profiles, inputs->fleet, inputs->trace, err) != 0)
        return -1;
    inputs->power_w = peak_power_w(inputs->fleet);
    if (!isnan(sweep->power_caps[0]) && !(inputs->power_w > 0))
        return erg_fail(
            err, ERG_FAILED,
            "%s: the file lacks the power of its GPUs; the power_caps of %s are shares of it",
            cluster, sweep->path);
    return 0;
}

static int load_files(struct erg_sweep *sweep, const struct erg_yaml *yaml, struct erg_error *err)
{
    char key[32];
    unsigned clusters = sweep->clusters_count, traces = sweep->traces_count;
    char *profiles = path_from(sweep->path, sweep->profiles);
    sweep->inputs = erg_xcalloc((size_t)clusters * traces, sizeof *sweep->inputs);
    sweep->cluster_hashes = erg_xcalloc(clusters, sizeof *sweep->cluster_hashes);
    sweep->trace_hashes = erg_xcalloc(traces, sizeof *sweep->trace_hashes);
    int result = hash_profiles(sweep, profiles, yaml, err);
    for (unsigned c = 0; c < clusters && result == 0; c++) {
        char *cluster = path_from(sweep->path, sweep->clusters[c]);
        snprintf(key, sizeof key, "clusters[%u]", c);
        result = hash_file(&sweep->cluster_hashes[c], cluster, yaml, key, err);
        for (unsigned t = 0; t < traces && result == 0; t++) {
            char *trace = path_from(sweep->path, sweep->traces[t]);
            snprintf(key, sizeof key, "traces[%u]", t);
            if (c == 0)
                result = hash_file(&sweep->trace_hashes[t], trace, yaml, key, err);
            if (result == 0)
                result = load_inputs(sweep, &sweep->inputs[c * traces + t], cluster, trace,
                                     profiles, err);
            free(trace);
        }
        free(cluster);
    }
    free(profiles);
    return result;
}

int erg_sweep_parse(struct erg_sweep **out, const char *name, const char *text, size_t length,
                    struct erg_error *err)
{
    struct erg_yaml *yaml;
    void *value;
    if (erg_yaml_open_text(&yaml, name, text, length, err) != 0)
        return -1;
    int result = erg_yaml_read(yaml, &schema, &value, err);
    if (result == 0) {
        struct erg_sweep *sweep = value;
        sweep->path = erg_xstrdup(name);
        result = check_values(sweep, yaml, err);
        if (result == 0)
            *out = sweep;
        else
            erg_sweep_free(sweep);
    }
    erg_yaml_close(yaml);
    return result;
}

/* The files that a sweep names; errors in one name its key. */
static int load_named_files(struct erg_sweep *sweep, const char *text, size_t length,
                            struct erg_error *err)
{
    struct erg_yaml *yaml;
    if (erg_yaml_open_text(&yaml, sweep->path, text, length, err) != 0)
        return -1;
    int result = load_files(sweep, yaml, err);
    erg_yaml_close(yaml);
    return result;
}

int erg_sweep_load(struct erg_sweep **out, const char *path, struct erg_error *err)
{
    struct erg_sweep *sweep;
    char *text;
    size_t length;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int result = erg_sweep_parse(&sweep, path, text, length, err);
    if (result == 0 && (result = load_named_files(sweep, text, length, err)) != 0)
        erg_sweep_free(sweep);
    free(text);
    if (result == 0)
        *out = sweep;
    return result;
}

void erg_sweep_free(struct erg_sweep *sweep)
{
    if (!sweep)
        return;
    for (unsigned i = 0; sweep->inputs && i < sweep->clusters_count * sweep->traces_count; i++) {
        erg_speeds_free(sweep->inputs[i].speeds);
        erg_job_trace_free(sweep->inputs[i].trace);
        if (sweep->inputs[i].fleet)
            erg_fleet_free(sweep->inputs[i].fleet);
    }
    free(sweep->inputs);
    free(sweep->cluster_hashes);
    free(sweep->trace_hashes);
    free(sweep->policy);
    free(sweep->path);
    erg_yaml_free(&schema, sweep);
}
