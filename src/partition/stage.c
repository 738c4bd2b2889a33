/* Whole instructions: the exact list of their steps, from the first layer to the last. */
#include "partition/partition_internal.h"

#include <string.h>

static size_t compute_bound(const struct erg_op *ops, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += ops[i].kind != ERG_OP_MEMORY;
    return found;
}

/* Whether a partition with `comm` is of a type with `typical`: at its ends a pass exchanges hidden
 * states one way alone. */
static bool same_exchange(enum erg_comm_kind comm, enum erg_comm_kind typical)
{
    bool one_way = comm == ERG_COMM_ALLGATHER_HIDDEN || comm == ERG_COMM_REDUCESCATTER_HIDDEN;
    return comm == ERG_COMM_NONE || comm == typical || (one_way && typical == ERG_COMM_NORM_HIDDEN);
}

/* The type that computes like a segment of these parts while `task` communicates. The ends of a
 * stage lack some memory-bound ops, so only the compute-bound ops are compared. -1: an end that
 * lacks some compute-bound ops, too. */
static int type_of(const struct erg_workload *workload, bool backward, unsigned parts,
                   const struct erg_task *task)
{
    enum erg_comm_kind comm = task->comm.kind;
    char base[sizeof workload->partitions->key];
    erg_partition_name(base, sizeof base, backward, parts);
    size_t first = backward ? workload->forward_count : 0;
    size_t count = backward ? workload->backward_count : workload->forward_count;
    for (size_t i = first; i < first + count; i++) {
        const struct erg_partition *type = &workload->partitions[i];
        bool same_base = !strncmp(type->key, base, strlen(base)) &&
                         (type->key[strlen(base)] == '\0' || type->key[strlen(base)] == '_');
        bool same_work = compute_bound(type->task.ops, type->task.op_count) ==
                         compute_bound(task->ops, task->op_count);
        if (same_base && same_work && same_exchange(comm, type->task.comm.kind))
            return (int)i;
    }
    return -1;
}

static size_t cuts_per_layer(const struct erg_workload *workload, bool backward)
{
    size_t first = backward ? workload->forward_count : 0, cuts = 0;
    size_t count = backward ? workload->backward_count : workload->forward_count;
    for (size_t i = first; i < first + count; i++)
        cuts += (size_t)workload->partitions[i].occurrences;
    return cuts / 2; /* two nanobatches */
}

int erg_stage_partitions(struct erg_workload *workload, const struct erg_workload_request *request,
                         int layers, bool backward, const struct erg_stage_partition **list,
                         size_t *count, struct erg_error *err)
{
    struct erg_segments segments = {0};
    bool replay = backward && request->recompute;
    if (erg_partition_cut_layers(&segments, request, request->microbatch_size / 2, layers, backward,
                                 replay, err)) {
        erg_segments_release(&segments);
        return -1;
    }
    size_t replayed = backward && workload->replays_forward ? cuts_per_layer(workload, false) : 0;
    /* Without communication all layers are one piece, and none of it a partition type. */
    size_t per_layer = replayed + cuts_per_layer(workload, backward);
    if (!per_layer)
        per_layer = 1;
    /* Under sequence parallelism the first norm is a segment of its own. */
    size_t lead = segments.items[0].comm.kind == ERG_COMM_ALLGATHER_HIDDEN;
    struct erg_stage_partition *entries =
        erg_arena_alloc(workload->arena, 2 * segments.count * sizeof *entries);
    *count = 0;
    for (size_t k = 0; k < segments.count; k++)
        for (int nanobatch = 0; nanobatch < 2; nanobatch++) {
            struct erg_comm comm = {0};
            if (nanobatch == 1)
                comm = segments.items[k].comm;
            else if (k > 0)
                comm = segments.items[k - 1].comm;
            struct erg_task task =
                erg_segment_task(workload->arena, &segments.items[k], comm, NULL);
            entries[(*count)++] = (struct erg_stage_partition){
                .nanobatch = nanobatch,
                .type = k < lead ? -1
                                 : type_of(workload, backward && (k - lead) % per_layer >= replayed,
                                           segments.items[k].parts, &task),
                .task = task,
            };
        }
    *list = entries;
    erg_segments_release(&segments);
    return 0;
}

/* ---- as steps ---- */

/* The same slot in a task that has more or fewer memory-bound ops before its compute than its
 * type. */
static size_t same_slot(const struct erg_partition *type, const struct erg_task *task, size_t slot)
{
    size_t after = type->task.op_count - slot;
    return slot == 0 || after > task->op_count ? 0 : task->op_count - after;
}

int erg_stage_sequential(struct erg_workload *workload, const struct erg_workload_request *request,
                         int layers, bool backward, struct erg_steps *steps, struct erg_error *err)
{
    struct erg_segments segments = {0};
    bool replay = backward && request->recompute;
    int status = erg_partition_cut_layers(&segments, request, request->microbatch_size, layers,
                                          backward, replay, err);
    *steps = (struct erg_steps){0};
    for (size_t k = 0; !status && k < segments.count; k++)
        erg_partition_append_sequential(workload, steps, request, &segments.items[k]);
    erg_segments_release(&segments);
    for (size_t i = 0; i < steps->count; i++)
        steps->steps[i].instruction = true;
    return status;
}

int erg_stage_nanobatched(struct erg_workload *workload, const struct erg_workload_request *request,
                          int layers, bool backward, const struct erg_launch *launches,
                          struct erg_steps *steps, struct erg_error *err)
{
    const struct erg_stage_partition *list;
    size_t count;
    if (erg_stage_partitions(workload, request, layers, backward, &list, &count, err))
        return -1;
    *steps = (struct erg_steps){0};
    for (size_t i = 0; i < count; i++) {
        struct erg_step step = {.task = list[i].task, .instruction = true};
        step.task.comm.library = !launches;
        if (launches && list[i].type >= 0) {
            step.launch = launches[list[i].type];
            step.launch.slot =
                same_slot(&workload->partitions[list[i].type], &list[i].task, step.launch.slot);
        } else if (launches && step.task.comm.kind != ERG_COMM_NONE &&
                   erg_partition_end_sms(request, &step.task, &step.launch.sms, err)) {
            return -1;
        }
        erg_partition_append(workload, steps, &step);
    }
    return 0;
}
