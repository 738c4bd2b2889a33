/* A plain pass through a whole decoder, op by op. */
#include "device/cuda/decoder_internal.h"

enum { COMM_SMS = 16 };

/* An op of a pass, on the whole microbatch, and the communication after it (or 0). */
struct pass_op {
    unsigned parts;
    bool backward, weights;
    int comm;
};

#define PART(id) (1u << ERG_MODEL_##id)
static const struct pass_op embedding_ops[] = {
    {PART(EMBEDDING), false, false, ERG_MODEL_REDUCE_EMBEDDING},
};
static const struct pass_op first_ops[] = {{PART(NORM_A), false, false, 0}};
static const struct pass_op next_ops[] = {{PART(BDA_M) | PART(NORM_A), false, false, 0}};
static const struct pass_op forward_ops[] = {
    {PART(QKV), false, false, 0},
    {PART(QKV_POST) | PART(ROPE), false, false, ERG_MODEL_GATHER_KV},
    {PART(ATTENTION), false, false, 0},
    {PART(PROJ), false, false, ERG_MODEL_REDUCE_A},
    {PART(BDA_A) | PART(NORM_M), false, false, 0},
    {PART(FC1), false, false, 0},
    {PART(ACTIVATION), false, false, 0},
    {PART(FC2), false, false, ERG_MODEL_REDUCE_M},
};
static const struct pass_op last_ops[] = {{PART(BDA_M), false, false, 0}};
static const struct pass_op head_ops[] = {
    {PART(NORM_FINAL), false, false, 0},
    {PART(HEAD), false, false, 0},
    {PART(LOSS), false, false, 0},
    {PART(LOSS), true, false, 0},
    {PART(HEAD), true, false, ERG_MODEL_REDUCE_HEAD},
    {PART(HEAD), true, true, 0},
    {PART(NORM_FINAL), true, false, 0},
};
static const struct pass_op backward_ops[] = {
    {PART(FC2), true, false, 0},
    {PART(FC2), true, true, 0},
    {PART(ACTIVATION), true, false, 0},
    {PART(FC1), true, false, ERG_MODEL_REDUCE_M},
    {PART(FC1), true, true, 0},
    {PART(NORM_M) | PART(FORK_M) | PART(BDA_A), true, false, 0},
    {PART(PROJ), true, false, 0},
    {PART(PROJ), true, true, ERG_MODEL_GATHER_KV},
    {PART(ATTENTION), true, false, ERG_MODEL_SCATTER_KV},
    {PART(QKV_POST) | PART(ROPE), true, false, 0},
    {PART(QKV), true, false, ERG_MODEL_REDUCE_A},
    {PART(QKV), true, true, 0},
    {PART(NORM_A) | PART(FORK_A), true, false, 0},
};
static const struct pass_op embedding_gradient_ops[] = {{PART(EMBEDDING), true, false, 0}};
#undef PART

/* Communicates among all ranks of the group. */
static int communicate(struct erg_decoder *decoder, size_t layer, int part,
                       struct CUstream_st *stream, struct erg_error *err)
{
    bool gather = part == ERG_MODEL_GATHER_KV, scatter = part == ERG_MODEL_SCATTER_KV;
    struct erg_comm comm = {
        .kind = gather    ? ERG_COMM_ALLGATHER_KV
                : scatter ? ERG_COMM_REDUCESCATTER_KV
                          : ERG_COMM_ALLREDUCE,
        .part = part,
        .sequences = decoder->options.sequences,
    };
    if (decoder_degree(decoder, gather || scatter ? ERG_MESH_CONTEXT : ERG_MESH_TENSOR) == 1)
        return 0;
    return erg_decoder_comm(decoder, layer, &comm, 0, COMM_SMS, stream, err);
}

static int run_ops(struct erg_decoder *decoder, const struct pass_op *ops, size_t count, int layer,
                   struct CUstream_st *stream, struct erg_error *err)
{
    struct erg_decoder_launch launch = {stream, 0};
    for (size_t i = 0; i < count; i++) {
        struct erg_op_code code = {ops[i].parts, ops[i].backward, ops[i].weights,
                                   decoder->options.sequences};
        if (erg_decoder_op(decoder, (size_t)layer, &code, 0, &launch, err) ||
            (ops[i].comm && communicate(decoder, (size_t)layer, ops[i].comm, stream, err)))
            return -1;
    }
    return 0;
}

int erg_decoder_pass(struct erg_decoder *decoder, struct CUstream_st *stream, struct erg_error *err)
{
#define RUN(ops, layer) run_ops(decoder, ops, sizeof(ops) / sizeof *(ops), layer, stream, err)
    int last = decoder->options.layers - 1;
    if (decoder->options.embedding && RUN(embedding_ops, 0))
        return -1;
    for (int layer = 0; layer <= last; layer++)
        if ((layer ? RUN(next_ops, layer) : RUN(first_ops, layer)) || RUN(forward_ops, layer))
            return -1;
    if (RUN(last_ops, last) || (decoder->options.head && RUN(head_ops, last)))
        return -1;
    for (int layer = last; layer >= 0; layer--) {
        bool replay = decoder->options.replay && layer < last;
        if ((replay && (RUN(first_ops, layer) || RUN(forward_ops, layer))) ||
            RUN(backward_ops, layer))
            return -1;
    }
    return decoder->options.embedding ? RUN(embedding_gradient_ops, 0) : 0;
#undef RUN
}
