/* The policies of Arena's published comparison: those that differ from the library's. */
#include "policies.h"
#include "artifact.h"
#include "cluster/policies/arena_internal.h"
#include "cluster/policies/elasticflow.h"

#include <string.h>

/* The artifact's versions deal out shares by data parallel plans. */
static void *open_elastic(const struct erg_scheduler *scheduler, const void *rules)
{
    struct erg_elastic_rules own = *(const struct erg_elastic_rules *)rules;
    own.speeds = artifact_of(scheduler)->data_parallel;
    return erg_elastic_open(scheduler, &own);
}

static const struct erg_policy elasticflow = {
    .name = "elasticflow",
    .summary = "ElasticFlow, as Arena's comparison has it",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = &(const struct erg_elastic_rules){.as_published = true, .deadlines = true},
    .open = open_elastic,
    .decide = erg_elastic_decide,
    .close = erg_elastic_close,
};

static const struct erg_policy elasticflow_ls = {
    .name = "elasticflow-ls",
    .summary = "the same without deadlines",
    .events = ERG_EVENTS_OF_JOBS,
    .rules = &(const struct erg_elastic_rules){.as_published = true},
    .open = open_elastic,
    .decide = erg_elastic_decide,
    .close = erg_elastic_close,
};

/* Arena without one of its parts, as in the publication. */
#define ABLATION(symbol, title, text, ...)                                                         \
    static const struct erg_policy symbol = {                                                      \
        .name = (title),                                                                           \
        .summary = (text),                                                                         \
        .events = ERG_EVENTS_OF_JOBS,                                                              \
        .rules = &(const struct erg_arena_rules){__VA_ARGS__},                                     \
        .open = erg_arena_open,                                                                    \
        .decide = erg_arena_decide,                                                                \
        .close = erg_arena_close,                                                                  \
    }

ABLATION(arena_ns, "arena-ns", "Arena without scaling", .no_scaling = true);
ABLATION(arena_nh, "arena-nh", "Arena without changes of GPU type", .no_types = true);
ABLATION(arena_no, "arena-no", "Arena without opportunistic execution", .no_opportunism = true);

const struct erg_policy *const artifact_policies[] = {
    &elasticflow, &elasticflow_ls, &artifact_gavel, &artifact_sia,
    &arena_ns,    &arena_nh,       &arena_no,       NULL,
};

int artifact_policy_find(const struct erg_policy **policy, const char *name, struct erg_error *err)
{
    for (size_t i = 0; artifact_policies[i]; i++)
        if (!strcmp(artifact_policies[i]->name, name)) {
            *policy = artifact_policies[i];
            return 0;
        }
    struct erg_error own;
    return erg_policy_find(policy, name, &own) == 0
               ? 0
               : erg_fail(err, own.status, "%s, arena-ns, arena-nh, arena-no", own.message);
}
