/* What the published comparison took from its profiles: speeds of all plans, and of data parallel
 * ones. */
#include "artifact.h"
#include "cluster/profiles_internal.h"
#include "io/csv.h"

#include "base/memory.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPLICA_MARGIN 1.2
#define MEMORY_SHARE 0.8

/* The rows of dp_mem.csv. */
struct replicas {
    const struct erg_fleet *fleet;
    struct erg_csv *csv; /* NULL: the folder has none */
    struct replica {
        const char *family, *size;
        long batch, gpus;
        double bytes; /* INFINITY: does not fit */
    } * items;
    size_t count, capacity;
};

static int read_replica(struct replicas *replicas, size_t row, const size_t *columns,
                        struct erg_error *err)
{
    const struct erg_csv *csv = replicas->csv;
    struct replica replica = {.family = erg_csv_text(csv, row, columns[0]),
                              .size = erg_csv_text(csv, row, columns[1])};
    double gb;
    if (erg_csv_long(csv, row, columns[2], &replica.batch, err) != 0 ||
        erg_csv_long(csv, row, columns[3], &replica.gpus, err) != 0 ||
        erg_csv_double(csv, row, columns[4], &gb, err) != 0)
        return -1;
    if (gb < 0 && gb != -1)
        return erg_csv_fail(csv, row, err,
                            "column 'dp_replica_mem_gb': expected gigabytes, or -1 for what does "
                            "not fit, got %g",
                            gb);
    replica.bytes = gb < 0 ? INFINITY : gb * 1e9;
    ERG_PUSH(replicas, items, replica);
    return 0;
}

static int read_replicas(struct replicas *replicas, const char *folder, struct erg_error *err)
{
    static const char *const names[] = {"model", "param_num", "global_batch", "num_gpus",
                                        "dp_replica_mem_gb"};
    size_t columns[sizeof names / sizeof *names];
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/dp_mem.csv", folder);
    bool is_there = access(path.data, F_OK) == 0;
    int result = is_there ? erg_csv_load(&replicas->csv, path.data, err) : 0;
    erg_text_release(&path);
    if (result != 0 || !is_there)
        return result;
    for (size_t i = 0; i < sizeof names / sizeof *names && result == 0; i++)
        result = erg_csv_require(replicas->csv, names[i], &columns[i], err);
    for (size_t row = 0; result == 0 && row < erg_csv_rows(replicas->csv); row++)
        result = read_replica(replicas, row, columns, err);
    return result;
}

static bool replica_fits(const struct replicas *replicas, const struct erg_trace_workload *what,
                         const struct erg_gpu_shape *shape)
{
    double memory = replicas->fleet->types[shape->type].memory_bytes;
    for (size_t i = replicas->count; i-- > 0;) { /* later rows replace earlier ones */
        const struct replica *replica = &replicas->items[i];
        if (replica->batch == what->batch && replica->gpus == erg_shape_gpus(shape) &&
            !strcmp(replica->size, what->size) && !strcmp(replica->family, what->family))
            return REPLICA_MARGIN * replica->bytes <= MEMORY_SHARE * memory;
    }
    return !replicas->csv;
}

static double any_speed(const void *context, const struct erg_trace_workload *what,
                        const struct erg_gpu_shape *shape, double samples_per_s, double factor)
{
    (void)context;
    (void)what;
    (void)shape;
    return artifact_round(samples_per_s) * factor;
}

static double data_parallel_speed(const void *context, const struct erg_trace_workload *what,
                                  const struct erg_gpu_shape *shape, double samples_per_s,
                                  double factor)
{
    (void)factor;
    return replica_fits(context, what, shape) ? artifact_round(samples_per_s) : ERG_SPEED_NONE;
}

static int load(struct artifact *artifact, struct erg_profiles *profiles, struct replicas *replicas,
                const char *folder, const struct erg_job_trace *trace, struct erg_error *err)
{
    const struct erg_speed_rule any = {any_speed, NULL};
    const struct erg_speed_rule data_parallel = {data_parallel_speed, replicas};
    const struct erg_fleet *fleet = replicas->fleet;
    if (erg_profiles_read(profiles, folder, fleet, err) != 0 ||
        read_replicas(replicas, folder, err) != 0 ||
        erg_profiles_speeds(&artifact->speeds, profiles, fleet, trace, &any, err) != 0 ||
        erg_profiles_speeds(&artifact->data_parallel, profiles, fleet, trace, &data_parallel,
                            err) != 0)
        return -1;
    return 0;
}

int artifact_load(struct artifact *artifact, const char *folder, const struct erg_fleet *fleet,
                  const struct erg_job_trace *trace, struct erg_error *err)
{
    struct erg_profiles profiles = {0};
    struct replicas replicas = {.fleet = fleet};
    *artifact = (struct artifact){.rules = artifact_accounting};
    int result = load(artifact, &profiles, &replicas, folder, trace, err);
    erg_profiles_release(&profiles);
    erg_csv_free(replicas.csv);
    free(replicas.items);
    return result;
}

void artifact_release(struct artifact *artifact)
{
    erg_speeds_free(artifact->speeds);
    erg_speeds_free(artifact->data_parallel);
}
