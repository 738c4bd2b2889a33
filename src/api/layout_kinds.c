/* Which GPUs are asked about: a search for each number of them and each set of kinds. */
#define _DEFAULT_SOURCE /* strsep */
#include "api/layout_query.h"

#include "base/memory.h"
#include "base/text.h"
#include "layout/memory/stage_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- numbers ---- */

struct numbers {
    long *items;
    size_t count, capacity;
};

static int compare_longs(const void *left, const void *right)
{
    const long a = *(const long *)left, b = *(const long *)right;
    return (a > b) - (a < b);
}

/* Whole nodes from one number to another, and what divides a node evenly. */
static void add_range(struct numbers *numbers, long from, long to, long node)
{
    for (long gpus = from; gpus <= to && gpus < node; gpus++)
        if (node % gpus == 0)
            ERG_PUSH(numbers, items, gpus);
    for (long gpus = (from + node - 1) / node * node; gpus <= to; gpus += node)
        ERG_PUSH(numbers, items, gpus);
}

/* The same of nodes of several kinds: what some whole nodes have together, and parts of one. */
static void add_mixed_range(struct numbers *numbers, long from, long to,
                            const struct erg_cluster *cluster)
{
    /* For each number, the least nodes of this kind that it needs; -1: impossible. */
    long *nodes = erg_xcalloc((size_t)to + 1, sizeof *nodes);
    for (long gpus = 1; gpus <= to; gpus++)
        nodes[gpus] = -1;
    for (size_t k = 0; k <= cluster->more_count; k++) {
        const struct erg_cluster *kind = k ? &cluster->more[k - 1] : cluster;
        const long node = kind->gpus_per_node;
        for (long gpus = 0; gpus <= to; gpus++) {
            const long before = gpus >= node ? nodes[gpus - node] : -1;
            if (nodes[gpus] >= 0)
                nodes[gpus] = 0;
            else if (before >= 0 && before < kind->nodes)
                nodes[gpus] = before + 1;
        }
        for (long gpus = from; gpus < node && gpus <= to; gpus++)
            if (node % gpus == 0)
                ERG_PUSH(numbers, items, gpus);
    }
    for (long gpus = from; gpus <= to; gpus++)
        if (nodes[gpus] >= 0)
            ERG_PUSH(numbers, items, gpus);
    free(nodes);
}

static int add_part(struct numbers *numbers, char *part, const struct erg_cluster *cluster,
                    const char *option, long all, struct erg_error *err)
{
    enum { MOST = 10000000, RANGE = 4096 };
    const long node = cluster->gpus_per_node;
    char *dash = strchr(part, '-');
    long from = 1, to = all;
    bool range = dash || !strcmp(part, "any"), right = true;
    if (dash)
        *dash = '\0';
    if (strcmp(part, "any") != 0)
        right = erg_parse_long(part, &from);
    if (dash)
        right = right && erg_parse_long(dash + 1, &to);
    if (!range)
        to = from;
    if (!right || from < 1 || to < from || to > MOST || (to - from) / node > RANGE)
        return erg_fail(err, ERG_USAGE,
                        "%s got '%s%s%s'; expected numbers from 1 to ten million like 64, ranges "
                        "of at most %d nodes like 64-1024, or any",
                        option, part, dash ? "-" : "", dash ? dash + 1 : "", RANGE);
    if (cluster->more_count > 0 && to > all)
        return erg_fail(err, ERG_USAGE,
                        "%s got %ld, more than the %ld GPUs of all kinds in the cluster; expected "
                        "at most that number, since the kind of further GPUs is unknown",
                        option, to, all);
    if (range && cluster->more_count > 0)
        add_mixed_range(numbers, from, to, cluster);
    else if (range)
        add_range(numbers, from, to, node);
    else
        ERG_PUSH(numbers, items, from);
    return 0;
}

/* GPUs of the nodes of all kinds. */
static long gpus_of(const struct erg_cluster *cluster)
{
    long all = erg_cluster_gpus(cluster);
    for (size_t k = 0; k < cluster->more_count; k++)
        all += erg_cluster_gpus(&cluster->more[k]);
    return all;
}

/*
 * Numbers of GPUs from text like "64", "4,8-16" or "any", rising, each once. A range stands for its
 * numbers of whole nodes, and of parts that divide a node evenly; any: up to the cluster's. On
 * nodes of several kinds a number is that of all kinds together, and no more than there are. NULL:
 * all of the cluster.
 */
static int list_numbers(struct numbers *numbers, const struct erg_layout_input *input,
                        const struct erg_cluster *cluster, struct erg_error *err)
{
    const char *text = input->gpus, *option = input->dashes ? "--gpus" : "gpus";
    const long all = gpus_of(cluster);
    if (!text) {
        ERG_PUSH(numbers, items, all);
        return 0;
    }
    char *copy = erg_xstrdup(text), *rest = copy, *part;
    int status = 0;
    while (!status && (part = strsep(&rest, ",")))
        status = add_part(numbers, part, cluster, option, all, err);
    free(copy);
    if (!status && !numbers->count)
        status = erg_fail(err, ERG_USAGE,
                          "%s got '%s', which contains no multiple of the %d GPUs of a node; "
                          "expected numbers instead of a range",
                          option, text, cluster->gpus_per_node);
    if (status)
        return -1;
    qsort(numbers->items, numbers->count, sizeof *numbers->items, compare_longs);
    size_t kept = 1;
    for (size_t i = 1; i < numbers->count; i++)
        if (numbers->items[i] != numbers->items[kept - 1])
            numbers->items[kept++] = numbers->items[i];
    numbers->count = kept;
    return 0;
}

/* ---- kinds ---- */

static int load_kind(struct erg_layout_query *at, struct erg_layout_search *search, size_t index,
                     const struct erg_cluster *nodes, struct erg_error *err)
{
    const struct erg_layout_input *input = at->input;
    const struct erg_job_kind *own = at->cluster ? NULL : &at->job->kinds[index];
    const char *engine = index == 0 ? input->engine : own ? NULL : nodes->engine;
    struct erg_layout_kind *kind = &search->kinds[index];
    if ((!own && erg_gpu_load(&at->gpus[index], nodes->gpu, err) != 0) ||
        (engine && erg_engine_load(&at->engines[index], engine, err) != 0))
        return -1;
    if (engine)
        erg_job_apply_training(at->job, at->engines[index]);
    if (engine && input->any_gpu)
        at->engines[index]->peak_flops = erg_gpu_peak_flops(own ? own->gpu : at->gpus[index]);
    const struct erg_engine *used = at->engines[index];
    if (!used && (own || index == 0))
        used = at->job->kinds[index].engine;
    if (!used && index == 0)
        return erg_fail(err, ERG_USAGE,
                        "%s: missing key 'engine', the training engine; expected it there or "
                        "%sengine NAME, for example megatron-a100 (data/engines)",
                        at->job->path, input->dashes ? "--" : "");
    if (erg_layout_kind_init(kind, nodes, own ? own->gpu : at->gpus[index], used, err) != 0)
        return -1;
    if (!isnan(input->memory_bytes))
        kind->memory_bytes = input->memory_bytes;
    if (!isnan(input->host_bytes))
        kind->host_bytes = input->host_bytes;
    /* A job's stages name their kind by its GPU. */
    for (size_t i = 0; i < index; i++)
        if (strcasecmp(search->kinds[i].name, kind->name) == 0)
            return erg_fail(err, ERG_FAILED,
                            "several entries of nodes have the GPU %s, and a plan cannot tell them "
                            "apart; expected more_nodes with GPUs of other names, for example a "
                            "copy of the GPU's file with another name",
                            kind->name);
    return 0;
}

/* The part of the request that all searches share: everything except the GPUs. */
static int fill_search(struct erg_layout_query *at, struct erg_layout_search *search,
                       const struct erg_cluster *cluster, struct erg_error *err)
{
    enum { LEAST_TOP = 64 };
    const struct erg_layout_input *input = at->input;
    const struct erg_layout *layout = &at->job->layout;
    const double batch =
        input->batch != ERG_NOT_GIVEN ? (double)input->batch : (double)erg_layout_batch(layout);
    *search = (struct erg_layout_search){
        .model = at->job->model,
        .kind_count = 1 + cluster->more_count,
        .sequence = layout->sequence,
        .batch_least = (long)ceil(batch * (1 - input->slack)),
        .batch_most = (long)floor(batch * (1 + input->slack)),
        .memory_slack = isnan(input->memory_bytes) ? 0 : ERG_MEMORY_ERROR,
        .recomputes = input->recompute >= 0 ? 1u << input->recompute : ERG_RECOMPUTE_ALL,
        .offload = true,
        .per_stage = input->per_stage,
        .fsdp = input->fsdp,
        .expert_capacity = layout->expert_capacity,
        /* A search refines the splits of those that it keeps, so with fewer the first ones might
         * depend on how many are shown. */
        .top = (size_t)(input->top > LEAST_TOP ? input->top : LEAST_TOP),
    };
    if (search->kind_count > ERG_LAYOUT_MOST_KINDS)
        return erg_fail(err, ERG_FAILED, "expected nodes of at most %d kinds, got %zu",
                        ERG_LAYOUT_MOST_KINDS, search->kind_count);
    for (size_t k = 0; k < search->kind_count; k++)
        if (load_kind(at, search, k, k ? &cluster->more[k - 1] : cluster, err) != 0)
            return -1;
    return 0;
}

/* Whether these kinds together can have the given number of GPUs, with some of each. */
static bool may_be_used(const struct erg_layout_search *search, unsigned used, long gpus)
{
    long least = 0, most = 0;
    for (size_t k = 0; k < search->kind_count; k++)
        if (used & 1u << k) {
            least++;
            most += search->kinds[k].gpus;
        }
    return gpus >= least && gpus <= most;
}

/* On one kind, one search for each number of GPUs. On several kinds: without numbers, one search
 * over any number; with one number, one search over all kinds; with several numbers, for each of
 * them one on every kind alone and on all sets of kinds. */
static void list_searches(struct erg_layout_query *at, const struct erg_layout_search *search,
                          const struct numbers *numbers)
{
    const bool mixed = search->kind_count > 1, sets = mixed && numbers->count > 1;
    const unsigned all = sets ? 1u << search->kind_count : 1;
    at->searches = erg_xcalloc(numbers->count * all, sizeof *at->searches);
    for (size_t i = 0; i < numbers->count; i++)
        for (unsigned used = sets; used < all; used++) {
            const long gpus = numbers->items[i];
            struct erg_layout_search *own = &at->searches[at->search_count];
            if (sets && !may_be_used(search, used, gpus))
                continue;
            *own = *search;
            own->used = used;
            own->gpus = mixed && !at->input->gpus ? 0 : gpus;
            if (!mixed)
                own->kinds[0].gpus = gpus;
            at->search_count++;
        }
}

int erg_layout_list_searches(struct erg_layout_query *at, const struct erg_cluster *cluster,
                             struct erg_error *err)
{
    struct erg_layout_search search;
    struct numbers numbers = {0};
    int status = fill_search(at, &search, cluster, err) ||
                         list_numbers(&numbers, at->input, cluster, err) ||
                         erg_time_machine_check(&search.kinds[0].machine,
                                                numbers.items[numbers.count - 1], err)
                     ? -1
                     : 0;
    if (!status)
        list_searches(at, &search, &numbers);
    free(numbers.items);
    return status;
}
