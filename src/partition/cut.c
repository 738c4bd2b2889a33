/* Cuts the operations of a layer into segments: runs of compute between communications. */
#include "partition/cut_internal.h"

#include <assert.h>
#include <stdlib.h>

static bool merges(const struct erg_piece *before, const struct erg_piece *next)
{
    return before->op.kind == ERG_OP_MEMORY && next->op.kind == ERG_OP_MEMORY &&
           before->group == next->group && before->op.code.backward == next->op.code.backward;
}

static void add_piece(struct erg_segment *segment, struct erg_piece piece)
{
    if (segment->count && merges(&segment->pieces[segment->count - 1], &piece)) {
        struct erg_piece *last = &segment->pieces[segment->count - 1];
        last->op.kernels += piece.op.kernels;
        last->op.bytes += piece.op.bytes;
        last->op.flops += piece.op.flops;
        last->op.code.parts |= piece.op.code.parts;
        return;
    }
    ERG_PUSH(segment, pieces, piece);
}

static const char *weight_gradient_name(enum erg_model_op_id id)
{
    switch (id) {
    case ERG_MODEL_QKV:
        return "qkv weights";
    case ERG_MODEL_PROJ:
        return "proj weights";
    case ERG_MODEL_FC1:
        return "fc1 weights";
    case ERG_MODEL_FC2:
        return "fc2 weights";
    default:
        return "weights";
    }
}

static void add_compute(struct erg_segment *segment, const struct erg_model_op *op)
{
    for (int i = 0; i < op->work_count; i++) {
        bool merged_group = op->work[i].kind == ERG_OP_MEMORY && op->group != ERG_GROUP_EMBEDDING;
        struct erg_piece piece = {
            .op = op->work[i],
            .name = op->work[i].code.weights ? weight_gradient_name(op->id)
                    : merged_group           ? erg_model_group_name(op->group)
                                             : op->name,
            .group = op->group,
            .starts_slot = i == 0,
        };
        add_piece(segment, piece);
    }
    assert(op->id < 32);
    segment->parts |= 1u << op->id;
}

/* Whether nothing but norms of a tensor rank's rows lies between a reduce-scatter and the open
 * segment's end: too little to hide either of the two exchanges around it. */
static bool is_norm_between(const struct erg_segments *segments)
{
    if (segments->count < 2)
        return false;
    const struct erg_segment *before = &segments->items[segments->count - 2];
    const struct erg_segment *open = &segments->items[segments->count - 1];
    bool norms = before->comm.kind == ERG_COMM_REDUCESCATTER_HIDDEN &&
                 open->comm.kind == ERG_COMM_NONE && open->count <= ERG_COMM_WORKS;
    for (size_t i = 0; i < open->count; i++)
        norms &= open->pieces[i].group == ERG_GROUP_NORM;
    return norms;
}

/* The reduce-scatter, the open segment and `gather` become one communication. */
static void join_around_norm(struct erg_segments *segments, const struct erg_comm *gather)
{
    assert(segments->count >= 2);
    struct erg_segment *open = &segments->items[--segments->count];
    struct erg_comm *comm = &segments->items[segments->count - 1].comm;
    comm->kind = ERG_COMM_NORM_HIDDEN;
    comm->wire_bytes += gather->wire_bytes;
    comm->gather_bytes = gather->wire_bytes;
    comm->gather_part = gather->part;
    assert((size_t)comm->work_count + open->count <= ERG_COMM_WORKS);
    for (size_t i = 0; i < open->count; i++)
        comm->works[comm->work_count++] = open->pieces[i].op;
    free(open->pieces);
}

static int add_comm(struct erg_segments *segments, const struct erg_comm *comm,
                    struct erg_error *err)
{
    if (comm->kind == ERG_COMM_ALLGATHER_HIDDEN && is_norm_between(segments)) {
        join_around_norm(segments, comm);
        return 0;
    }
    struct erg_segment *last = segments->count ? &segments->items[segments->count - 1] : NULL;
    if (segments->count == 0 || last->comm.kind == ERG_COMM_NONE) {
        if (segments->count ==
            0) { /* the list starts with a communication: nothing computes before it */
            ERG_PUSH(segments, items, (struct erg_segment){0});
            last = &segments->items[0];
        }
        last->comm = *comm;
        return 0;
    }
    if (last->comm.kind != comm->kind || last->comm.group != comm->group)
        return erg_fail(err, ERG_FAILED,
                        "cutting the op list: two different communications follow each other "
                        "without compute between them; expected the same kind and group, so that "
                        "they can be fused");
    last->comm.wire_bytes += comm->wire_bytes;
    return 0;
}

int erg_segments_add(struct erg_segments *segments, const struct erg_model_ops *ops,
                     struct erg_error *err)
{
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_model_op *op = &ops->items[i];
        if (op->comm) {
            if (add_comm(segments, &op->communication, err))
                return -1;
            continue;
        }
        if (!op->work_count)
            continue;
        if (!segments->count || segments->items[segments->count - 1].comm.kind != ERG_COMM_NONE)
            ERG_PUSH(segments, items, (struct erg_segment){0});
        add_compute(&segments->items[segments->count - 1], op);
    }
    return 0;
}

void erg_segments_release(struct erg_segments *segments)
{
    for (size_t i = 0; i < segments->count; i++)
        free(segments->items[i].pieces);
    free(segments->items);
    *segments = (struct erg_segments){0};
}

struct erg_task erg_segment_task(struct erg_arena *arena, const struct erg_segment *segment,
                                 struct erg_comm comm, const char ***names)
{
    struct erg_op *ops = erg_arena_alloc(arena, segment->count * sizeof *ops);
    const char **op_names = erg_arena_alloc(arena, segment->count * sizeof *op_names);
    for (size_t i = 0; i < segment->count; i++) {
        ops[i] = segment->pieces[i].op;
        op_names[i] = segment->pieces[i].name;
    }
    if (names)
        *names = op_names;
    return (struct erg_task){.ops = ops, .op_count = segment->count, .comm = comm};
}

int erg_task_kernels(const struct erg_task *task)
{
    const struct erg_comm *comm = &task->comm;
    int kernels =
        (comm->kind != ERG_COMM_NONE) + (comm->kind == ERG_COMM_NORM_HIDDEN); /* two exchanges */
    for (int i = 0; i < comm->work_count; i++)
        kernels += comm->works[i].kernels;
    for (size_t i = 0; i < task->op_count; i++)
        kernels += task->ops[i].kernels;
    return kernels;
}
