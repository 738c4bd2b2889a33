#include "cli/plan_mixing.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

static int fill_kind(struct plan_mixing *mixing, size_t index, const struct erg_cluster *nodes,
                     const struct erg_gpu *gpu, const struct erg_engine *engine,
                     struct erg_error *err)
{
    const struct plan_values *values = mixing->at->values;
    struct erg_mixed_kind *kind = &mixing->kinds[index];
    if (erg_mixed_kind_init(kind, nodes, gpu, engine, err) != 0)
        return -1;
    if (!isnan(values->memory_bytes))
        kind->memory_bytes = values->memory_bytes;
    if (!isnan(values->host_bytes))
        kind->host_bytes = values->host_bytes;
    return 0;
}

/* A job's stages name their kind by its GPU. */
static int check_names_differ(const struct plan_mixing *mixing, struct erg_error *err)
{
    for (size_t k = 1; k < mixing->kind_count; k++)
        for (size_t i = 0; i < k; i++)
            if (strcasecmp(mixing->kinds[i].name, mixing->kinds[k].name) == 0)
                return erg_fail(err, ERG_FAILED,
                                "several nodes of the cluster have %s, so a plan could not say "
                                "which of them a stage lies on; expected more_nodes with GPUs of "
                                "other names, for example a copy of the GPU's file with another",
                                mixing->kinds[k].name);
    return 0;
}

static int load_kinds(struct plan_mixing *mixing, const struct erg_cluster *cluster,
                      struct erg_error *err)
{
    struct planning *at = mixing->at;
    mixing->kind_count = 1 + cluster->more_count;
    if (mixing->kind_count > ERG_MIXED_MOST_KINDS)
        return erg_fail(err, ERG_FAILED, "expected nodes of at most %d kinds, got %zu",
                        ERG_MIXED_MOST_KINDS, mixing->kind_count);
    if (fill_kind(mixing, 0, cluster, at->energy.gpu, at->energy.time.engine, err) != 0)
        return -1;
    for (unsigned i = 0; i < cluster->more_count; i++) {
        const struct erg_cluster *nodes = &cluster->more[i];
        const struct erg_job_kind *own = at->cluster ? NULL : &at->job->kinds[i + 1];
        if (!own &&
            (erg_gpu_load(&mixing->gpus[i + 1], nodes->gpu, err) != 0 ||
             (nodes->engine && erg_engine_load(&mixing->engines[i + 1], nodes->engine, err) != 0)))
            return -1;
        if (fill_kind(mixing, i + 1, nodes, own ? own->gpu : mixing->gpus[i + 1],
                      own ? own->engine : mixing->engines[i + 1], err) != 0)
            return -1;
    }
    return check_names_differ(mixing, err);
}

static struct erg_mixed_search search_of(const struct plan_mixing *mixing, long gpus, unsigned used)
{
    const struct erg_layout_search *search = mixing->at->searches;
    return (struct erg_mixed_search){
        .model = mixing->at->job->model,
        .kinds = mixing->kinds,
        .kind_count = mixing->kind_count,
        .sequence = search->sequence,
        .batch_least = search->batch_least,
        .batch_most = search->batch_most,
        .memory_slack = search->memory_slack,
        .recomputes = search->recomputes,
        .offload = true,
        .per_stage = search->per_stage,
        .gpus = gpus,
        .used = used,
        .top = (size_t)mixing->at->values->top,
    };
}

/* Whether these kinds, each of them, can make up so many GPUs. */
static bool may_be_used(const struct plan_mixing *mixing, unsigned used, long gpus)
{
    long least = 0, most = 0;
    for (size_t k = 0; k < mixing->kind_count; k++)
        if (used & 1u << k) {
            least++;
            most += mixing->kinds[k].gpus;
        }
    return gpus >= least && gpus <= most;
}

/* One of all GPUs unless numbers were given; of one number, whatever kinds it is of; of each of
 * several on every kind alone and on all sets of them. */
static void list_searches(struct plan_mixing *mixing)
{
    struct planning *at = mixing->at;
    const size_t sets = (size_t)1 << mixing->kind_count, numbers = at->search_count;
    struct erg_layout_search *rows = erg_xcalloc(numbers * sets, sizeof *rows);
    size_t count = 0;
    mixing->searches = erg_xcalloc(numbers * sets, sizeof *mixing->searches);
    for (size_t i = 0; i < numbers; i++)
        for (unsigned used = numbers > 1; used < (numbers > 1 ? sets : 1); used++) {
            const long gpus = at->searches[i].gpus;
            if (used && !may_be_used(mixing, used, gpus))
                continue;
            rows[count] = at->searches[i];
            mixing->searches[count++] = search_of(mixing, at->values->gpus ? gpus : 0, used);
        }
    free(at->searches);
    at->searches = rows;
    at->search_count = count;
    mixing->source = erg_mixed_source(mixing->searches);
    at->source = &mixing->source;
}

int erg_plan_mixing_init(struct plan_mixing *mixing, struct planning *at,
                         const struct erg_cluster *cluster, struct erg_error *err)
{
    *mixing = (struct plan_mixing){.at = at};
    if (load_kinds(mixing, cluster, err) != 0)
        return -1;
    list_searches(mixing);
    return 0;
}

void erg_plan_mixing_release(struct plan_mixing *mixing)
{
    erg_layout_found_release(&mixing->found);
    mixing->at->source = NULL;
    free(mixing->searches);
    for (size_t k = 0; k < ERG_MIXED_MOST_KINDS; k++) {
        erg_gpu_free(mixing->gpus[k]);
        erg_engine_free(mixing->engines[k]);
    }
}
