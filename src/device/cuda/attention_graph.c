/*
 * Attention as the operation graphs that cuDNN recognises as a whole. It recognises few graphs. The
 * multiplication by one, the fp32 sum of dQ and the row sums in the caller's memory look
 * superfluous, but without them the plans fail, need gigabytes, or are half as fast.
 */
#include "device/cuda/attention_internal.h"

#include <assert.h>
#include <stdbool.h>

/* Dimensions are [batch, head, row, column]. */
struct extent {
    int64_t dims[4], strides[4];
};

/* Operations are added in sequence; after the first failure all calls do nothing. */
struct builder {
    const struct erg_cudnn *cudnn;
    const struct erg_attention_shape *shape;
    struct erg_attention_graph *graph;
    int64_t next_virtual;
    bool failed;
    struct erg_error *err;
};

typedef cudnnBackendDescriptor_t descriptor;

static descriptor make(struct builder *b, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    assert(b->graph->part_count < sizeof b->graph->parts / sizeof *b->graph->parts);
    if (b->failed || erg_cudnn_make(b->cudnn, type, &made, b->err) != 0)
        b->failed = true;
    else
        b->graph->parts[b->graph->part_count++] = made;
    return made;
}

static void set(struct builder *b, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (!b->failed)
        b->failed = erg_cudnn_set(b->cudnn, d, name, type, count, values, b->err) != 0;
}

static void set_descriptor(struct builder *b, descriptor d, cudnnBackendAttributeName_t name,
                           descriptor value)
{
    set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct builder *b, descriptor d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t type)
{
    set(b, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void finalize(struct builder *b, descriptor d, const char *what)
{
    if (!b->failed)
        b->failed = erg_cudnn_finalize(b->cudnn, d, what, b->err) != 0;
}

static void add_operation(struct builder *b, descriptor operation, const char *what)
{
    struct erg_attention_graph *graph = b->graph;
    assert(graph->operation_count < sizeof graph->operations / sizeof *graph->operations);
    finalize(b, operation, what);
    graph->operations[graph->operation_count++] = operation;
}

/* Tensors. */

static struct extent contiguous(int64_t batch, int64_t heads, int64_t rows, int64_t columns)
{
    return (struct extent){{batch, heads, rows, columns},
                           {heads * rows * columns, rows * columns, columns, 1}};
}

static struct extent strided(int64_t batch, int64_t heads, int64_t tokens, int64_t head_dim,
                             const struct erg_attention_strides *strides)
{
    return (struct extent){{batch, heads, tokens, head_dim},
                           {strides->batch, strides->head, strides->token, 1}};
}

static struct extent transposed(struct extent e)
{
    return (struct extent){{e.dims[0], e.dims[1], e.dims[3], e.dims[2]},
                           {e.strides[0], e.strides[1], e.strides[3], e.strides[2]}};
}

static struct extent extent_of_q(const struct erg_attention_shape *s)
{
    return strided(s->batch, s->query_heads, s->queries, s->head_dim, &s->q);
}

static struct extent extent_of_kv(const struct erg_attention_shape *s)
{
    return strided(s->batch, s->kv_heads, s->keys, s->head_dim, &s->kv);
}

static struct extent extent_of_o(const struct erg_attention_shape *s)
{
    return strided(s->batch, s->query_heads, s->queries, s->head_dim, &s->o);
}

static struct extent extent_of_scores(const struct erg_attention_shape *s)
{
    return contiguous(s->batch, s->query_heads, s->queries, s->keys);
}

static struct extent extent_of_rows(const struct erg_attention_shape *s)
{
    return contiguous(s->batch, s->query_heads, s->queries, 1);
}

enum storage { REAL, VIRTUAL, BY_VALUE };

static descriptor tensor(struct builder *b, int64_t id, cudnnDataType_t type, struct extent e,
                         enum storage storage)
{
    descriptor d = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t alignment = storage == BY_VALUE ? 4 : 16;
    bool is_virtual = storage == VIRTUAL, by_value = storage == BY_VALUE;
    set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set_type(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, e.dims);
    set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, e.strides);
    set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(b, d, "describing a tensor of attention to cuDNN");
    return d;
}

static descriptor real(struct builder *b, enum erg_attention_tensor id, cudnnDataType_t type,
                       struct extent e)
{
    return tensor(b, id, type, e, REAL);
}

static descriptor virtual(struct builder *b, cudnnDataType_t type, struct extent e)
{
    return tensor(b, b->next_virtual++, type, e, VIRTUAL);
}

static descriptor scalar(struct builder *b, enum erg_attention_tensor id, cudnnDataType_t type)
{
    return tensor(b, id, type, contiguous(1, 1, 1, 1), BY_VALUE);
}

/* Operations; each returns its output `y`, so that they read like formulas. */

static descriptor pointwise_mode(struct builder *b, cudnnPointwiseMode_t mode,
                                 cudnnDataType_t compute, int64_t axis)
{
    descriptor d = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(b, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(b, d, CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(b, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(b, d, "describing a pointwise operation of attention to cuDNN");
    return d;
}

/* y = mode(x), mode(x, second) or, for a selection, chosen ? x : second. */
static descriptor pointwise(struct builder *b, descriptor mode, descriptor x, descriptor second,
                            descriptor chosen, descriptor y)
{
    descriptor d = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (second)
        set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second);
    if (chosen)
        set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, chosen);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(b, d, "adding a pointwise operation to the graph of attention");
    return y;
}

static descriptor unary(struct builder *b, cudnnPointwiseMode_t mode, descriptor x, descriptor y)
{
    return pointwise(b, pointwise_mode(b, mode, CUDNN_DATA_FLOAT, 0), x, NULL, NULL, y);
}

static descriptor binary(struct builder *b, cudnnPointwiseMode_t mode, descriptor x,
                         descriptor second, descriptor y)
{
    return pointwise(b, pointwise_mode(b, mode, CUDNN_DATA_FLOAT, 0), x, second, NULL, y);
}

static descriptor matmul(struct builder *b, descriptor x, descriptor second, descriptor y)
{
    descriptor mode = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(b, mode, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(b, mode, "describing a matrix product of attention to cuDNN");
    descriptor d = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, mode);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, second);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    add_operation(b, d, "adding a matrix product to the graph of attention");
    return y;
}

/* Reduces over the dimensions in which y is smaller than x. */
static descriptor reduce(struct builder *b, cudnnReduceTensorOp_t mode, descriptor x, descriptor y)
{
    descriptor m = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(b, m, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set_type(b, m, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(b, m, "describing a reduction of attention to cuDNN");
    descriptor d = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, m);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(b, d, "adding a reduction to the graph of attention");
    return y;
}

static descriptor reshape(struct builder *b, descriptor x, descriptor y)
{
    descriptor d = make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(b, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(b, d, "adding a transposition to the graph of attention");
    return y;
}

/* Scores where the key is visible, minus infinity elsewhere. */
static descriptor mask(struct builder *b, descriptor scores)
{
    const struct erg_attention_shape *s = b->shape;
    struct extent extent = extent_of_scores(s);
    if (s->mask == ERG_MASK_NONE)
        return scores;
    descriptor row = pointwise(b, pointwise_mode(b, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2),
                               scores, NULL, NULL, virtual(b, CUDNN_DATA_INT32, extent));
    descriptor column =
        pointwise(b, pointwise_mode(b, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3), scores,
                  NULL, NULL, virtual(b, CUDNN_DATA_INT32, extent));
    if (s->mask == ERG_MASK_CAUSAL_LAST) {
        row = pointwise(b, pointwise_mode(b, CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, 0), row,
                        scalar(b, ERG_TENSOR_KEYS, CUDNN_DATA_INT32), NULL,
                        virtual(b, CUDNN_DATA_INT32, extent));
        row = pointwise(b, pointwise_mode(b, CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, 0), row,
                        scalar(b, ERG_TENSOR_QUERIES, CUDNN_DATA_INT32), NULL,
                        virtual(b, CUDNN_DATA_INT32, extent));
    }
    descriptor visible =
        pointwise(b, pointwise_mode(b, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0), row, column,
                  NULL, virtual(b, CUDNN_DATA_BOOLEAN, extent));
    return pointwise(b, pointwise_mode(b, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0),
                     scores, scalar(b, ERG_TENSOR_MINUS_INFINITY, CUDNN_DATA_FLOAT), visible,
                     virtual(b, CUDNN_DATA_FLOAT, extent));
}

static void build_forward(struct builder *b)
{
    const struct erg_attention_shape *s = b->shape;
    struct extent scores_extent = extent_of_scores(s), rows = extent_of_rows(s);
    descriptor q = real(b, ERG_TENSOR_Q, CUDNN_DATA_BFLOAT16, extent_of_q(s));
    descriptor kt = real(b, ERG_TENSOR_K, CUDNN_DATA_BFLOAT16, transposed(extent_of_kv(s)));
    descriptor v = real(b, ERG_TENSOR_V, CUDNN_DATA_BFLOAT16, extent_of_kv(s));

    descriptor scores = matmul(b, q, kt, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    scores = binary(b, CUDNN_POINTWISE_MUL, scores, scalar(b, ERG_TENSOR_SCALE, CUDNN_DATA_FLOAT),
                    virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    scores = mask(b, scores);
    descriptor most =
        reduce(b, CUDNN_REDUCE_TENSOR_MAX, scores, virtual(b, CUDNN_DATA_FLOAT, rows));
    descriptor less =
        binary(b, CUDNN_POINTWISE_SUB, scores, most, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    descriptor exponential =
        unary(b, CUDNN_POINTWISE_EXP, less, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    descriptor sum =
        reduce(b, CUDNN_REDUCE_TENSOR_ADD, exponential, virtual(b, CUDNN_DATA_FLOAT, rows));
    descriptor log = unary(b, CUDNN_POINTWISE_LOG, sum, virtual(b, CUDNN_DATA_FLOAT, rows));
    binary(b, CUDNN_POINTWISE_ADD, most, log, real(b, ERG_TENSOR_STATS, CUDNN_DATA_FLOAT, rows));
    descriptor p = binary(b, CUDNN_POINTWISE_DIV, exponential, sum,
                          virtual(b, CUDNN_DATA_BFLOAT16, scores_extent));
    matmul(b, p, v, real(b, ERG_TENSOR_O, CUDNN_DATA_BFLOAT16, extent_of_o(s)));
}

/* transposed . x, summed over the query heads that share a key/value head. */
static void head_gradient(struct builder *b, descriptor transpose, descriptor x,
                          enum erg_attention_tensor id)
{
    const struct erg_attention_shape *s = b->shape;
    descriptor gradient = real(b, id, CUDNN_DATA_BFLOAT16, extent_of_kv(s));
    if (s->query_heads == s->kv_heads) {
        matmul(b, transpose, x, gradient);
        return;
    }
    struct extent per_head = contiguous(s->batch, s->query_heads, s->keys, s->head_dim);
    descriptor parts = matmul(b, transpose, x, virtual(b, CUDNN_DATA_BFLOAT16, per_head));
    reduce(b, CUDNN_REDUCE_TENSOR_ADD, parts, gradient);
}

static void build_backward(struct builder *b)
{
    const struct erg_attention_shape *s = b->shape;
    struct extent scores_extent = extent_of_scores(s), rows = extent_of_rows(s);
    struct extent wide = contiguous(s->batch, s->query_heads, s->queries, s->head_dim);
    struct extent keys = extent_of_kv(s);
    descriptor q = real(b, ERG_TENSOR_Q, CUDNN_DATA_BFLOAT16, extent_of_q(s));
    descriptor kt = real(b, ERG_TENSOR_K, CUDNN_DATA_BFLOAT16, transposed(keys));
    descriptor vt = real(b, ERG_TENSOR_V, CUDNN_DATA_BFLOAT16, transposed(keys));
    descriptor o = real(b, ERG_TENSOR_O, CUDNN_DATA_BFLOAT16, extent_of_o(s));
    descriptor d_o = real(b, ERG_TENSOR_DO, CUDNN_DATA_BFLOAT16, extent_of_o(s));
    descriptor stats = real(b, ERG_TENSOR_STATS, CUDNN_DATA_FLOAT, rows);
    descriptor scale = scalar(b, ERG_TENSOR_SCALE, CUDNN_DATA_FLOAT);

    /* Row sums of dO O, which the gradient of the softmax subtracts. */
    descriptor products =
        binary(b, CUDNN_POINTWISE_MUL, d_o, o, virtual(b, CUDNN_DATA_FLOAT, wide));
    descriptor sums =
        reduce(b, CUDNN_REDUCE_TENSOR_ADD, products, virtual(b, CUDNN_DATA_FLOAT, rows));
    descriptor softmax_sum =
        binary(b, CUDNN_POINTWISE_MUL, sums, scalar(b, ERG_TENSOR_ONE, CUDNN_DATA_FLOAT),
               real(b, ERG_TENSOR_SOFTMAX_SUM, CUDNN_DATA_FLOAT, rows));

    /* P = exp(masked scores - stats) and dV = P^T dO. */
    descriptor scores = matmul(b, q, kt, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    scores =
        binary(b, CUDNN_POINTWISE_MUL, scores, scale, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    scores =
        binary(b, CUDNN_POINTWISE_SUB, scores, stats, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    scores = mask(b, scores);
    descriptor p =
        unary(b, CUDNN_POINTWISE_EXP, scores, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    descriptor pt = reshape(b, p, virtual(b, CUDNN_DATA_BFLOAT16, transposed(scores_extent)));
    head_gradient(b, pt, d_o, ERG_TENSOR_DV);

    /* dS = P (dO V^T - row sums) scale, dK = dS^T Q. */
    descriptor dp = matmul(b, d_o, vt, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    dp = binary(b, CUDNN_POINTWISE_SUB, dp, softmax_sum,
                virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    dp = binary(b, CUDNN_POINTWISE_MUL, dp, p, virtual(b, CUDNN_DATA_FLOAT, scores_extent));
    descriptor ds =
        binary(b, CUDNN_POINTWISE_MUL, dp, scale, virtual(b, CUDNN_DATA_BFLOAT16, scores_extent));
    descriptor dst = reshape(b, ds, virtual(b, CUDNN_DATA_BFLOAT16, transposed(scores_extent)));
    head_gradient(b, dst, q, ERG_TENSOR_DK);

    /*
     * dQ = dS K, summed in fp32: by atomics in our memory, or from the whole of dS by cuDNN in its
     * own order.
     */
    descriptor k = reshape(b, kt, virtual(b, CUDNN_DATA_BFLOAT16, keys));
    if (s->repeatable) {
        matmul(b, ds, k, real(b, ERG_TENSOR_DQ, CUDNN_DATA_BFLOAT16, extent_of_q(s)));
        return;
    }
    descriptor dq_sum = matmul(b, ds, k, real(b, ERG_TENSOR_DQ_SUM, CUDNN_DATA_FLOAT, wide));
    unary(b, CUDNN_POINTWISE_IDENTITY, dq_sum,
          real(b, ERG_TENSOR_DQ, CUDNN_DATA_BFLOAT16, extent_of_q(s)));
}

int erg_attention_graph_build(struct erg_attention_graph *graph, const struct erg_cudnn *cudnn,
                              const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                              struct erg_error *err)
{
    *graph = (struct erg_attention_graph){0};
    struct builder b = {.cudnn = cudnn,
                        .shape = shape,
                        .graph = graph,
                        .next_virtual = ERG_TENSOR_VIRTUAL,
                        .err = err};
    if (pass == ERG_ATTENTION_FORWARD)
        build_forward(&b);
    else
        build_backward(&b);
    graph->graph = make(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&b, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn->handle);
    set(&b, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        (int64_t)graph->operation_count, graph->operations);
    finalize(&b, graph->graph, "giving the graph of attention to cuDNN");
    return b.failed ? -1 : 0;
}

void erg_attention_graph_release(struct erg_attention_graph *graph, const struct erg_cudnn *cudnn)
{
    while (graph->part_count)
        erg_cudnn_destroy(cudnn, &graph->parts[--graph->part_count]);
    *graph = (struct erg_attention_graph){0};
}
