/* Partition types: their names, their launch slots and SM counts, and the ends of an instruction.
 */
#include "partition/partition.h"

#include "device/emulated/emulated.h"
#include "partition/partition_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kareus, sets of SMs: groups of four and more GPUs need more SMs; more than 30 never helped. */
static const int sms_large_group[] = {3, 6, 9, 12, 15, 18, 21, 24, 27, 30};
static const int sms_small_group[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                      11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

/* The SM counts that a communication in a group of GPUs may have, increasing. */
static const int *sms_of_group(int gpus, size_t *count)
{
    bool large = gpus >= 4;
    *count = large ? sizeof sms_large_group / sizeof *sms_large_group
                   : sizeof sms_small_group / sizeof *sms_small_group;
    return large ? sms_large_group : sms_small_group;
}

struct erg_model_shape erg_partition_shape(const struct erg_workload_request *request,
                                           int sequences)
{
    return (struct erg_model_shape){
        .tensor = request->tensor,
        .context = request->context,
        .sequences = sequences,
        .sequence = request->sequence,
        .tile_m = request->gpu->gemm_tile_m,
        .tile_n = request->gpu->gemm_tile_n,
        .head_gemm_factor = request->gpu->head_gemm_factor,
        .sequence_parallel = request->sequence_parallel,
        .fused_kernels = request->stack->fused_kernels,
        .norms_again = request->norms_again,
        .activation_again = request->activation_again,
    };
}

int erg_partition_cut_layers(struct erg_segments *segments,
                             const struct erg_workload_request *request, int sequences, int layers,
                             bool backward, bool replay, struct erg_error *err)
{
    struct erg_model_shape shape = erg_partition_shape(request, sequences);
    struct erg_model_ops forward_ops = {0}, backward_ops = {0};
    erg_model_layer_forward(&forward_ops, request->model, &shape);
    erg_model_layer_backward(&backward_ops, request->model, &shape);
    for (int layer = 0; layer < layers; layer++)
        if (((!backward || replay) && erg_segments_add(segments, &forward_ops, err)) ||
            (backward && erg_segments_add(segments, &backward_ops, err)))
            return -1;
    return 0;
}

int erg_partition_cut_steady_layer(struct erg_segments *segments,
                                   const struct erg_workload_request *request, int sequences,
                                   bool backward, bool replay, size_t *first, size_t *count,
                                   struct erg_error *err)
{
    if (erg_partition_cut_layers(segments, request, sequences, 3, backward, replay, err))
        return -1;
    size_t cuts = 0;
    for (size_t i = 0; i < segments->count; i++)
        cuts += segments->items[i].comm.kind != ERG_COMM_NONE;
    *count = cuts / 3;
    *first = cuts - 2 * *count; /* under sequence parallelism the first layer has one more */
    assert(*first + *count <= segments->count);
    return 0;
}

int erg_partition_replay_apart(const struct erg_workload_request *request, bool *apart,
                               struct erg_error *err)
{
    struct erg_segments segments = {0};
    int status =
        erg_partition_cut_layers(&segments, request, request->microbatch_size, 1, true, true, err);
    *apart = true;
    for (size_t k = 0; k < segments.count; k++) {
        bool runs[2] = {false, false}; /* forward, backward */
        for (size_t i = 0; i < segments.items[k].count; i++) {
            const struct erg_op *op = &segments.items[k].pieces[i].op;
            runs[op->code.backward] |= op->kind != ERG_OP_MEMORY;
        }
        *apart &= !(runs[0] && runs[1]);
    }
    erg_segments_release(&segments);
    return status;
}

/* ---- names and slots ---- */

static bool has(unsigned parts, enum erg_model_op_id id)
{
    return parts & (1u << id);
}

void erg_partition_name(char *name, size_t capacity, bool backward, unsigned parts)
{
    bool qkv = has(parts, ERG_MODEL_QKV), attention = has(parts, ERG_MODEL_ATTENTION);
    bool proj = has(parts, ERG_MODEL_PROJ);
    bool mlp = has(parts, ERG_MODEL_FC1) || has(parts, ERG_MODEL_FC2);
    bool whole = qkv && attention && proj;
    snprintf(name, capacity, "%s_%s%s%s%s", backward ? "bwd" : "fwd",
             whole ? "attn"
             : qkv ? "qkv"
                   : "",
             !whole && attention ? "a" : "", !whole && proj ? "o" : "", mlp ? "mlp" : "");
}

static const char *comm_suffix(enum erg_comm_kind kind)
{
    switch (kind) {
    case ERG_COMM_ALLREDUCE:
        return "_ar";
    case ERG_COMM_ALLGATHER_KV:
        return "_ag";
    case ERG_COMM_REDUCESCATTER_KV:
        return "_rs";
    case ERG_COMM_NORM_HIDDEN:
        return "_norm";
    case ERG_COMM_ALLGATHER_HIDDEN: /* of the ends of instructions alone */
    case ERG_COMM_REDUCESCATTER_HIDDEN:
    case ERG_COMM_ALLTOALL: /* never here */
    case ERG_COMM_NONE:
        break;
    }
    return "";
}

/* Appends the communication to the keys of partitions that would share one. */
static void name_partitions(struct erg_partition *partitions, size_t count)
{
    bool *shared = erg_xcalloc(count, sizeof *shared);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            shared[i] |= i != j && !strcmp(partitions[i].key, partitions[j].key);
    for (size_t i = 0; i < count; i++)
        if (shared[i]) {
            size_t used = strlen(partitions[i].key);
            snprintf(partitions[i].key + used, sizeof partitions[i].key - used, "%s",
                     comm_suffix(partitions[i].task.comm.kind));
        }
    free(shared);
}

/*
 * Whether the ops of `task` from `op` on, alone at the highest clock, last as long as its
 * communication alone on `sms` SMs. Estimated by the model of the device; only the catalogue's
 * constants matter.
 */
static int covers(const struct erg_workload_request *request, const struct erg_task *task,
                  size_t op, int sms, bool *covered, struct erg_error *err)
{
    struct erg_step rest = {
        .task = {.ops = task->ops + op, .op_count = task->op_count - op},
    };
    struct erg_step alone = {.task = {.comm = task->comm}, .launch = {.sms = sms}};
    struct erg_stack no_join = *request->stack;
    no_join.join_grid_s = 0;
    struct erg_emulated_result compute, comm;
    if (erg_emulated_run(request->gpu, &no_join, &rest, 1, request->gpu->search_max_mhz, &compute,
                         err) ||
        erg_emulated_run(request->gpu, &no_join, &alone, 1, request->gpu->search_max_mhz, &comm,
                         err))
        return -1;
    *covered = compute.time_s >= comm.time_s;
    return 0;
}

int erg_partition_end_sms(const struct erg_workload_request *request, const struct erg_task *task,
                          int *sms, struct erg_error *err)
{
    size_t count, k = 0;
    const int *choices = sms_of_group(task->comm.group, &count);
    bool hidden = false;
    while (!hidden && k < count)
        if (covers(request, task, 0, choices[k++], &hidden, err))
            return -1;
    assert(k > 0 && k <= count);
    *sms = choices[k - 1];
    return 0;
}

static int find_slots(struct erg_partition *partition, const struct erg_segment *segment,
                      const struct erg_workload_request *request, struct erg_arena *arena,
                      struct erg_error *err)
{
    struct erg_slot *slots = erg_arena_alloc(arena, segment->count * sizeof *slots);
    int numbers[ERG_GROUP_EMBEDDING + 1] = {0};
    size_t count = 0;
    for (size_t i = 0; i < segment->count; i++) {
        const struct erg_piece *piece = &segment->pieces[i];
        if (!piece->starts_slot)
            continue;
        assert(piece->group <= ERG_GROUP_EMBEDDING);
        slots[count].op = i;
        snprintf(slots[count].name, sizeof slots[count].name, "%s_%d",
                 erg_model_group_name(piece->group), numbers[piece->group]++);
        count++;
    }
    partition->run_ops = count;
    if (count > 1) {
        const struct erg_piece *last = &segment->pieces[slots[count - 1].op];
        bool repeated_linear = last->group == ERG_GROUP_LINEAR && numbers[ERG_GROUP_LINEAR] > 1;
        bool covered = false;
        /* A fifth of the most SMs: a launch that late and hidden only by many SMs slows the compute
         * more than an earlier one. */
        if (!repeated_linear && covers(request, &partition->task, slots[count - 1].op,
                                       partition->sms[partition->sms_count / 5 - 1], &covered, err))
            return -1;
        if (!covered)
            count--;
    }
    partition->slots = slots;
    partition->slot_count = count;
    return 0;
}

/* ---- partition types ---- */

static bool same_comm(const struct erg_comm *a, const struct erg_comm *b)
{
    return a->kind == b->kind && a->group == b->group && a->wire_bytes == b->wire_bytes;
}

static int add_partition(struct erg_workload *workload, size_t direction_first,
                         const struct erg_workload_request *request, bool backward,
                         const struct erg_segment *segment, const struct erg_comm *comm,
                         struct erg_error *err)
{
    char base[sizeof workload->partitions->key];
    erg_partition_name(base, sizeof base, backward, segment->parts);
    size_t end = workload->forward_count + workload->backward_count;
    for (size_t i = direction_first; i < end; i++) {
        struct erg_partition *known = &workload->partitions[i];
        if (!strcmp(known->key, base) && same_comm(&known->task.comm, comm)) {
            known->occurrences++;
            return 0;
        }
    }
    assert(end < MAX_PARTITIONS);
    struct erg_partition *partition = &workload->partitions[end];
    *partition = (struct erg_partition){.backward = backward, .occurrences = 1};
    partition->sms = sms_of_group(comm->group, &partition->sms_count);
    memcpy(partition->key, base, sizeof base);
    partition->task = erg_segment_task(workload->arena, segment, *comm, &partition->op_names);
    partition->kernels = erg_task_kernels(&partition->task);
    if (find_slots(partition, segment, request, workload->arena, err))
        return -1;
    *(backward ? &workload->backward_count : &workload->forward_count) += 1;
    return 0;
}

int erg_partition_derive(struct erg_workload *workload, const struct erg_workload_request *request,
                         bool backward, bool replay, struct erg_error *err)
{
    struct erg_segments segments = {0};
    size_t first = 0, count = 0, direction_first = workload->forward_count;
    int status = erg_partition_cut_steady_layer(&segments, request, request->microbatch_size / 2,
                                                backward, replay, &first, &count, err);
    for (size_t k = first; !status && k < first + count; k++) {
        const struct erg_segment *segment = &segments.items[k];
        assert(k > 0); /* the communication before the first is that of the layer before */
        const struct erg_segment *before = &segments.items[k - 1];
        status = add_partition(workload, direction_first, request, backward, segment, &before->comm,
                               err) ||
                         add_partition(workload, direction_first, request, backward, segment,
                                       &segment->comm, err)
                     ? -1
                     : 0;
    }
    if (!status)
        name_partitions(workload->partitions + direction_first,
                        backward ? workload->backward_count : workload->forward_count);
    erg_segments_release(&segments);
    return status;
}

struct erg_step erg_partition_step(const struct erg_partition *partition, size_t slot, int sms)
{
    return (struct erg_step){
        .task = partition->task,
        .launch = {.slot = partition->slots[slot].op, .sms = sms},
    };
}
