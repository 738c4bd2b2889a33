/* Lists of steps, made one by one. */
#include "partition/partition_internal.h"

#include <string.h>

void erg_partition_append(struct erg_workload *workload, struct erg_steps *steps,
                          const struct erg_step *step)
{
    struct erg_step *grown = erg_arena_alloc(workload->arena, (steps->count + 1) * sizeof *grown);
    if (steps->count)
        memcpy(grown, steps->steps, steps->count * sizeof *grown);
    grown[steps->count++] = *step;
    steps->steps = grown;
    steps->kernels += erg_task_kernels(&step->task);
}

void erg_partition_append_segment(struct erg_workload *workload, struct erg_steps *steps,
                                  const struct erg_segment *segment, struct erg_comm comm,
                                  bool at_once)
{
    comm.library = true;
    struct erg_step step = {.task = erg_segment_task(workload->arena, segment, comm, NULL)};
    step.launch.slot = at_once ? 0 : step.task.op_count;
    erg_partition_append(workload, steps, &step);
}

void erg_partition_append_sequential(struct erg_workload *workload, struct erg_steps *steps,
                                     const struct erg_workload_request *request,
                                     const struct erg_segment *segment)
{
    struct erg_comm comm = segment->comm;
    if (comm.kind == ERG_COMM_ALLGATHER_KV || comm.kind == ERG_COMM_REDUCESCATTER_KV)
        comm.wire_bytes *= request->stack->kv_exchange_factor;
    erg_partition_append_segment(workload, steps, segment, comm, false);
}
