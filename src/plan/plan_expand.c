/* From an option of a plan to the launch of every operation. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static int find_launch(const struct erg_workload *workload,
                       const struct erg_plan_configuration *wanted, struct erg_launch *launches,
                       struct erg_error *err)
{
    for (size_t i = 0; i < workload->forward_count + workload->backward_count; i++) {
        const struct erg_partition *partition = &workload->partitions[i];
        if (strcmp(partition->key, wanted->partition) != 0)
            continue;
        for (size_t k = 0; k < partition->slot_count; k++)
            if (!strcmp(partition->slots[k].name, wanted->slot)) {
                launches[i] = (struct erg_launch){partition->slots[k].op, wanted->sms};
                return 0;
            }
    }
    return erg_fail(err, ERG_USAGE,
                    "expanding a plan: it launches a communication of partition %s at %s, but the "
                    "job has no such partition or launch slot",
                    wanted->partition, wanted->slot);
}

static int expand_overlap(const struct erg_plan_option *option, struct erg_workload *workload,
                          const struct erg_workload_request *request, int layers, bool backward,
                          struct erg_launch *launches, struct erg_steps *steps,
                          struct erg_error *err)
{
    const size_t types = workload->forward_count + workload->backward_count;
    struct erg_launch *own = erg_xcalloc(types + 1, sizeof *own);
    int status = 0;
    for (size_t i = 0; !status && i < option->configuration_count; i++)
        status = find_launch(workload, &option->configurations[i], own, err);
    if (!status)
        status = erg_stage_nanobatched(workload, request, layers, backward, own, steps, err);
    if (launches)
        memcpy(launches, own, types * sizeof *own);
    free(own);
    return status;
}

int erg_plan_expand(const struct erg_plan_option *option, struct erg_workload *workload,
                    const struct erg_workload_request *request, int layers, bool backward,
                    struct erg_launch *launches, struct erg_steps *steps, struct erg_error *err)
{
    switch (option->mode) {
    case ERG_MODE_SEQUENTIAL:
        return erg_stage_sequential(workload, request, layers, backward, steps, err);
    case ERG_MODE_NANOBATCH:
        return erg_stage_nanobatched(workload, request, layers, backward, NULL, steps, err);
    case ERG_MODE_OVERLAP:
        break;
    }
    return expand_overlap(option, workload, request, layers, backward, launches, steps, err);
}
