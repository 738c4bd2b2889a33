#include "cli/plan_gpus.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static int compare_longs(const void *left, const void *right)
{
    const long a = *(const long *)left, b = *(const long *)right;
    return (a > b) - (a < b);
}

/* Whole nodes from one number to another, and what divides a node evenly. */
static void add_range(struct plan_gpus *numbers, long from, long to, long node)
{
    for (long gpus = from; gpus <= to && gpus < node; gpus++)
        if (node % gpus == 0)
            ERG_PUSH(numbers, items, gpus);
    for (long gpus = (from + node - 1) / node * node; gpus <= to; gpus += node)
        ERG_PUSH(numbers, items, gpus);
}

/* The same of nodes of several kinds: what some whole nodes have together, and parts of one. */
static void add_mixed_range(struct plan_gpus *numbers, long from, long to,
                            const struct erg_cluster *cluster)
{
    /* Of each number how many nodes of the kind at hand it takes at least; -1: there is no such. */
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

static int add_part(struct plan_gpus *numbers, char *part, const struct erg_cluster *cluster,
                    long all, struct erg_error *err)
{
    enum { MOST = 10000000, RANGE = 4096 };
    const long node = cluster->gpus_per_node;
    char *dash = strchr(part, '-');
    long from = 1, to = all;
    bool range = dash || !strcmp(part, "any"), right = true;
    if (dash)
        *dash = '\0';
    if (strcmp(part, "any"))
        right = erg_parse_long(part, &from);
    if (dash)
        right = right && erg_parse_long(dash + 1, &to);
    if (!range)
        to = from;
    if (!right || from < 1 || to < from || to > MOST || (to - from) / node > RANGE)
        return erg_fail(err, ERG_USAGE,
                        "--gpus: '%s%s%s' is not understood; expected numbers from 1 to ten "
                        "million like 64, ranges of at most %d nodes like 64-1024, or any",
                        part, dash ? "-" : "", dash ? dash + 1 : "", RANGE);
    if (cluster->more_count > 0 && to > all)
        return erg_fail(err, ERG_USAGE,
                        "--gpus: %ld are more than the %ld of all kinds that the cluster has; "
                        "expected no more, since it is not said of which kind others would be",
                        to, all);
    if (range && cluster->more_count > 0)
        add_mixed_range(numbers, from, to, cluster);
    else if (range)
        add_range(numbers, from, to, node);
    else
        ERG_PUSH(numbers, items, from);
    return 0;
}

long erg_plan_gpus_of(const struct erg_cluster *cluster)
{
    long all = erg_cluster_gpus(cluster);
    for (size_t k = 0; k < cluster->more_count; k++)
        all += erg_cluster_gpus(&cluster->more[k]);
    return all;
}

int erg_plan_list_gpus(struct plan_gpus *numbers, const char *text,
                       const struct erg_cluster *cluster, struct erg_error *err)
{
    const long all = erg_plan_gpus_of(cluster);
    char *copy = erg_xstrdup(text), *rest = copy, *part;
    int status = 0;
    while (!status && (part = strsep(&rest, ",")))
        status = add_part(numbers, part, cluster, all, err);
    free(copy);
    if (!status && !numbers->count)
        status = erg_fail(err, ERG_USAGE,
                          "--gpus: '%s' holds no whole nodes of %d GPUs; say the numbers", text,
                          cluster->gpus_per_node);
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
