/* The GPUs of a job, of one kind or of several, and which stages lie on which. */
#include "job/job_internal.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { KEY_BYTES = 64 };

/* The path of a key of the nodes of a kind. */
static const char *node_key(char path[KEY_BYTES], size_t kind, const char *key)
{
    if (kind == 0)
        snprintf(path, KEY_BYTES, "cluster.%s", key);
    else
        snprintf(path, KEY_BYTES, "cluster.more_nodes[%zu].%s", kind - 1, key);
    return path;
}

/* ---- the cluster ---- */

/* The failure of each load gets the line of the key that names it. */
static int load_chassis(struct erg_job *job, size_t index, const struct erg_yaml *yaml,
                        struct erg_error *err)
{
    struct erg_job_kind *kind = &job->kinds[index];
    struct erg_error inner = {0};
    char key[KEY_BYTES];
    char *name = erg_job_relative_to(job->path, kind->nodes->chassis);
    int result = erg_chassis_load(&kind->chassis, name, &inner);
    free(name);
    node_key(key, index, "chassis");
    if (result != 0)
        return erg_yaml_fail(yaml, key, err, "%.700s", inner.message);
    if (kind->chassis->gpus != (unsigned)kind->nodes->gpus_per_node)
        return erg_yaml_fail(yaml, key, err,
                             "expected a chassis of the %d GPUs of a node, %s has %u slots",
                             kind->nodes->gpus_per_node, kind->chassis->name, kind->chassis->gpus);
    return 0;
}

static int load_kind(struct erg_job *job, size_t index, const char *engine,
                     const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_job_kind *kind = &job->kinds[index];
    struct erg_error inner = {0};
    char key[KEY_BYTES];
    char *gpu = erg_job_relative_to(job->path, kind->nodes->gpu);
    int result = 0;
    if (erg_gpu_load(&kind->gpu, gpu, &inner) != 0)
        result = erg_yaml_fail(yaml, node_key(key, index, "gpu"), err, "%.700s", inner.message);
    free(gpu);
    if (result == 0 && kind->nodes->chassis)
        result = load_chassis(job, index, yaml, err);
    if (result == 0 && engine) {
        char *name = erg_job_relative_to(job->path, engine);
        if (erg_engine_load(&kind->engine, name, &inner) != 0)
            result = erg_yaml_fail(yaml, index ? node_key(key, index, "engine") : "engine", err,
                                   "%.700s", inner.message);
        free(name);
    }
    if (result == 0 && kind->nodes->intra_node_bandwidth > 0)
        kind->gpu->link_bandwidth = kind->nodes->intra_node_bandwidth;
    return result;
}

int erg_job_load_kinds(struct erg_job *job, const struct erg_job_file *file,
                       const struct erg_yaml *yaml, struct erg_error *err)
{
    job->kind_count = 1 + job->cluster.more_count;
    job->kinds = erg_xcalloc(job->kind_count, sizeof *job->kinds);
    for (size_t k = 0; k < job->kind_count; k++) {
        job->kinds[k].nodes = k ? &job->cluster.more[k - 1] : &job->cluster;
        if (load_kind(job, k, k ? job->kinds[k].nodes->engine : file->engine, yaml, err) != 0)
            return -1;
    }
    job->gpu = job->kinds[0].gpu;
    job->engine = job->kinds[0].engine;
    return 0;
}

/* ---- which stages lie where ---- */

/* Stages name a kind by its GPU. */
static int check_names_differ(const struct erg_job *job, const struct erg_yaml *yaml,
                              struct erg_error *err)
{
    char key[KEY_BYTES];
    for (size_t k = 1; k < job->kind_count; k++)
        for (size_t i = 0; i < k; i++)
            if (strcasecmp(job->kinds[i].gpu->name, job->kinds[k].gpu->name) == 0)
                return erg_yaml_fail(yaml, node_key(key, k, "gpu"), err,
                                     "other nodes have %s, too, so stage_gpus cannot tell them "
                                     "apart; expected the GPUs of every kind to differ in name",
                                     job->kinds[k].gpu->name);
    return 0;
}

static int place_stage(struct erg_job *job, size_t stage, const char *gpu,
                       const struct erg_yaml *yaml, struct erg_error *err)
{
    size_t *kind = &job->stage_kind[stage];
    while (*kind < job->kind_count && strcasecmp(gpu, job->kinds[*kind].gpu->name) != 0)
        ++*kind;
    if (*kind < job->kind_count)
        return 0;
    char key[KEY_BYTES];
    struct erg_text names = {0};
    for (size_t k = 0; k < job->kind_count; k++)
        erg_text_printf(&names, "%s%s", k ? " or " : "", job->kinds[k].gpu->name);
    snprintf(key, sizeof key, "stage_gpus[%zu]", stage);
    erg_yaml_fail(yaml, key, err, "no nodes of the cluster have the GPU '%.80s'; expected %.400s",
                  gpu, names.data);
    erg_text_release(&names);
    return -1;
}

int erg_job_place_stages(struct erg_job *job, const struct erg_job_file *file,
                         const struct erg_yaml *yaml, bool any_layout, struct erg_error *err)
{
    job->stage_kind = erg_xcalloc((size_t)job->layout.pipeline, sizeof *job->stage_kind);
    job->placed = file->stage_gpus || job->kind_count == 1;
    if (!file->stage_gpus && (job->placed || any_layout))
        return 0;
    if (!file->stage_gpus)
        return erg_yaml_fail(yaml, "cluster.more_nodes", err,
                             "the nodes are of several kinds; expected the key 'stage_gpus' with "
                             "the GPU of each stage, as ergon layout --output writes it");
    if (job->kind_count == 1)
        return erg_yaml_fail(yaml, "stage_gpus", err,
                             "all nodes of the cluster are of one kind; expected this key only "
                             "with cluster.more_nodes");
    if (file->stage_gpus_count != (unsigned)job->layout.pipeline)
        return erg_yaml_fail(yaml, "stage_gpus", err,
                             "expected %ld entries, one for each stage, got %u",
                             job->layout.pipeline, file->stage_gpus_count);
    if (check_names_differ(job, yaml, err) != 0)
        return -1;
    for (size_t s = 0; s < (size_t)job->layout.pipeline; s++)
        if (place_stage(job, s, file->stage_gpus[s], yaml, err) != 0)
            return -1;
    return 0;
}

/* ---- checks against the cluster ---- */

/* The used part of them: "2 nodes x 8", "of 2 nodes x 8". */
static void say_nodes(char *text, size_t size, const struct erg_cluster *nodes)
{
    bool all = erg_cluster_gpus(nodes) == (long)nodes->nodes * nodes->gpus_per_node;
    snprintf(text, size, "%s%d nodes x %d", all ? "" : "of ", nodes->nodes, nodes->gpus_per_node);
}

/* A change that makes the degrees and the GPUs match. */
static void say_remedy(char *text, size_t size, const struct erg_cluster *nodes, long replica,
                       long needed)
{
    long gpus = erg_cluster_gpus(nodes), whole = (long)(nodes->nodes - 1) * nodes->gpus_per_node;
    *text = '\0';
    if (gpus % replica == 0)
        snprintf(text, size, "; with data: %ld they would be all used", gpus / replica);
    else if (needed < gpus && needed > whole)
        snprintf(text, size, "; with gpus_used: %ld the others stay free", needed);
}

/* All nodes are of one kind. */
static int check_cluster(const struct erg_job *job, const struct erg_yaml *yaml,
                         struct erg_error *err)
{
    long replica = job->layout.tensor * job->layout.context * job->layout.pipeline,
         needed = replica * job->layout.data;
    long gpus = erg_cluster_gpus(&job->cluster);
    char nodes[64], remedy[96];
    if (needed == gpus)
        return 0;
    say_nodes(nodes, sizeof nodes, &job->cluster);
    say_remedy(remedy, sizeof remedy, &job->cluster, replica, needed);
    return erg_yaml_fail(
        yaml, "cluster", err,
        "the cluster has %ld GPU%s (%s), but tensor %ld x context %ld x pipeline %ld "
        "x data %ld makes %ld%s",
        gpus, erg_plural((size_t)gpus), nodes, job->layout.tensor, job->layout.context,
        job->layout.pipeline, job->layout.data, needed, remedy);
}

/* The nodes of one kind in a cluster of several kinds. */
static int check_kind(const struct erg_job *job, size_t kind, const struct erg_yaml *yaml,
                      struct erg_error *err)
{
    const struct erg_cluster *nodes = job->kinds[kind].nodes;
    char key[KEY_BYTES], have[64];
    long stages = 0, gpus = erg_cluster_gpus(nodes);
    for (int s = 0; s < job->layout.pipeline; s++)
        stages += job->stage_kind[s] == kind;
    long needed = stages * job->layout.tensor * job->layout.context * job->layout.data;
    if (needed == gpus)
        return 0;
    say_nodes(have, sizeof have, nodes);
    return erg_yaml_fail(
        yaml, node_key(key, kind, "nodes"), err,
        "there %s %ld %s (%s), but tensor %ld x context %ld x data %ld x %ld stage%s "
        "on them makes %ld",
        gpus == 1 ? "is" : "are", gpus, job->kinds[kind].gpu->name, have, job->layout.tensor,
        job->layout.context, job->layout.data, stages, erg_plural((size_t)stages), needed);
}

int erg_job_check_nodes(const struct erg_job *job, const struct erg_yaml *yaml,
                        struct erg_error *err)
{
    long group = job->layout.tensor * job->layout.context;
    char key[KEY_BYTES];
    for (size_t k = 0; k < job->kind_count; k++) {
        const struct erg_cluster *nodes = job->kinds[k].nodes;
        if ((job->kind_count == 1 ? check_cluster(job, yaml, err)
                                  : check_kind(job, k, yaml, err)) != 0)
            return -1;
        if (!erg_nodes_hold_groups(nodes->gpus_per_node, group, erg_cluster_gpus(nodes)))
            return erg_yaml_fail(yaml, node_key(key, k, "gpus_per_node"), err,
                                 "tensor %ld x context %ld makes groups of %ld GPUs, which do not "
                                 "fill nodes of %d evenly",
                                 job->layout.tensor, job->layout.context, group,
                                 nodes->gpus_per_node);
    }
    return 0;
}

int erg_job_check_engines(const struct erg_job *job, const struct erg_yaml *yaml,
                          struct erg_error *err)
{
    char key[KEY_BYTES];
    if (!(job->layout.offload > 0) && !job->layout.stage_recompute)
        return 0; /* engines cost nothing */
    for (int s = 0; s < job->layout.pipeline; s++) {
        const struct erg_job_kind *kind = &job->kinds[job->stage_kind[s]];
        size_t index = job->stage_kind[s];
        struct erg_error inner = {0};
        if (kind->engine && erg_engine_check_gpu(kind->engine, kind->gpu, &inner) != 0)
            return erg_yaml_fail(yaml, index ? node_key(key, index, "engine") : "engine", err,
                                 "%.900s", inner.message);
    }
    return 0;
}
