/* Clusters: as files of their own and inside job files. */
#include "hardware/catalogue.h"
#include "hardware/cluster_schema.h"

#include <math.h>
#include <stdio.h>

/* Key, member, factor from the file's unit to the member's, limits in the file's. */
#define NUMBERS(X)                                                                                 \
    X(intra_node_bandwidth_gb_s, intra_node_bandwidth, 1e9, 0.01, 1e5)                             \
    X(inter_node_bandwidth_gb_s, inter_node_bandwidth, 1e9, 0.01, 1e5)                             \
    X(inter_node_latency_us, inter_node_latency_s, 1e-6, 0, 1e6)                                   \
    X(adapters_per_node, adapters_per_node, 1, 1, 1024)                                            \
    X(host_memory_gib, host_memory_bytes, 0x1p30, 1, 1e6)                                          \
    X(host_memory_bandwidth_gb_s, host_memory_bandwidth, 1e9, 1, 1e5)                              \
    X(shared_link_bandwidth_gb_s, shared_link_bandwidth, 1e9, 0.01, 1e5)
#define FIELD(key, member, factor, min, max)                                                       \
    CYAML_FIELD_FLOAT(#key, CYAML_FLAG_OPTIONAL, struct erg_cluster, member),
#define QUANTITY(key, member, factor, min, max)                                                    \
    {#key, offsetof(struct erg_cluster, member), factor, min, max},

/* Nodes of one kind. */
#define NODES                                                                                      \
    CYAML_FIELD_INT("nodes", CYAML_FLAG_DEFAULT, struct erg_cluster, nodes),                       \
        CYAML_FIELD_INT("gpus_per_node", CYAML_FLAG_DEFAULT, struct erg_cluster, gpus_per_node),   \
        CYAML_FIELD_INT("gpus_used", CYAML_FLAG_OPTIONAL, struct erg_cluster, gpus_used),          \
        CYAML_FIELD_STRING_PTR("gpu", CYAML_FLAG_POINTER, struct erg_cluster, gpu, 1, 200),        \
        CYAML_FIELD_STRING_PTR("chassis", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,                \
                               struct erg_cluster, chassis, 1, 200),                               \
        NUMBERS(FIELD)

static const cyaml_schema_field_t more_fields[] = {
    NODES CYAML_FIELD_STRING_PTR("engine", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                                 struct erg_cluster, engine, 1, 200),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t more_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct erg_cluster, more_fields),
};

const cyaml_schema_field_t erg_cluster_fields[] = {
    NODES CYAML_FIELD_SEQUENCE("more_nodes", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                               struct erg_cluster, more, &more_schema, 1, 8),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct erg_cluster, erg_cluster_fields),
};

const struct erg_quantity erg_cluster_numbers[] = {NUMBERS(QUANTITY){NULL, 0, 0, 0, 0}};

/* Whether enough GPUs are used for the last node to be used, too. */
static int check_used(const struct erg_cluster *cluster, const struct erg_yaml *yaml,
                      const char *key, struct erg_error *err)
{
    const double most = (double)cluster->nodes * cluster->gpus_per_node;
    return erg_yaml_has(yaml, key)
               ? erg_yaml_check_range(yaml, key, cluster->gpus_used,
                                      most - cluster->gpus_per_node + 1, most, err)
               : 0;
}

/* Whether as many GPUs share each adapter. */
static int check_adapters(const struct erg_cluster *cluster, const struct erg_yaml *yaml,
                          const char *key, struct erg_error *err)
{
    const double gpus = cluster->gpus_per_node / cluster->adapters_per_node;
    if (!(cluster->adapters_per_node > 0) ||
        (gpus == floor(gpus) && cluster->adapters_per_node == floor(cluster->adapters_per_node)))
        return 0;
    return erg_yaml_fail(yaml, key, err,
                         "expected a number that divides the %d GPUs of a node, got %g",
                         cluster->gpus_per_node, cluster->adapters_per_node);
}

static int finish_nodes(struct erg_cluster *cluster, const struct erg_yaml *yaml,
                        const char *prefix, bool alone, struct erg_error *err)
{
    const char *dot = *prefix ? "." : "";
    char nodes[128], gpus[128], used[128], adapters[128];
    snprintf(nodes, sizeof nodes, "%s%snodes", prefix, dot);
    snprintf(gpus, sizeof gpus, "%s%sgpus_per_node", prefix, dot);
    snprintf(used, sizeof used, "%s%sgpus_used", prefix, dot);
    snprintf(adapters, sizeof adapters, "%s%sadapters_per_node", prefix, dot);
    if (erg_yaml_check_range(yaml, nodes, cluster->nodes, 1, 100000, err) != 0 ||
        erg_yaml_check_range(yaml, gpus, cluster->gpus_per_node, 1, 1024, err) != 0 ||
        check_used(cluster, yaml, used, err) != 0 ||
        erg_quantities_finish(cluster, erg_cluster_numbers, yaml, prefix, err) != 0 ||
        check_adapters(cluster, yaml, adapters, err) != 0)
        return -1;
    if (cluster->nodes > 1 && !(cluster->inter_node_bandwidth > 0))
        return erg_yaml_fail(yaml, nodes, err,
                             "%d nodes need the key 'inter_node_bandwidth_gb_s', too",
                             cluster->nodes);
    if (!alone && !(cluster->inter_node_bandwidth > 0))
        return erg_yaml_fail(
            yaml, nodes, err,
            "several kinds of nodes need the key 'inter_node_bandwidth_gb_s', too");
    return 0;
}

int erg_cluster_finish(struct erg_cluster *cluster, const struct erg_yaml *yaml, const char *prefix,
                       struct erg_error *err)
{
    if (finish_nodes(cluster, yaml, prefix, cluster->more_count == 0, err) != 0)
        return -1;
    for (unsigned i = 0; i < cluster->more_count; i++) {
        char key[128];
        snprintf(key, sizeof key, "%s%smore_nodes[%u]", prefix, *prefix ? "." : "", i);
        if (finish_nodes(&cluster->more[i], yaml, key, false, err) != 0)
            return -1;
    }
    return 0;
}

/* Whether the GPUs of all nodes can be loaded: what cannot gets the line of its key. */
static int check_gpus(const struct erg_cluster *cluster, const struct erg_yaml *yaml,
                      struct erg_error *err)
{
    for (unsigned i = 0; i <= cluster->more_count; i++) {
        char key[32] = "gpu";
        struct erg_gpu *gpu;
        struct erg_error inner;
        if (i)
            snprintf(key, sizeof key, "more_nodes[%u].gpu", i - 1);
        if (erg_gpu_load(&gpu, i ? cluster->more[i - 1].gpu : cluster->gpu, &inner) != 0)
            return erg_yaml_fail(yaml, key, err, "%.700s", inner.message);
        erg_gpu_free(gpu);
    }
    return 0;
}

int erg_cluster_load(struct erg_cluster **cluster, const char *path, struct erg_error *err)
{
    struct erg_yaml *yaml;
    void *value;
    if (erg_yaml_open(&yaml, path, err) != 0)
        return -1;
    int result = erg_yaml_read(yaml, &schema, &value, err);
    if (result == 0) {
        if (erg_cluster_finish(value, yaml, "", err) == 0 && check_gpus(value, yaml, err) == 0) {
            *cluster = value;
        } else {
            erg_yaml_free(&schema, value);
            result = -1;
        }
    }
    erg_yaml_close(yaml);
    return result;
}

void erg_cluster_free(struct erg_cluster *cluster)
{
    erg_yaml_free(&schema, cluster);
}
