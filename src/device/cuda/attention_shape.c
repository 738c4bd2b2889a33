/* Shapes of attention: strides of packed tensors, and the checks that cuDNN's kernels need. */
#include "device/cuda/attention.h"

#include <inttypes.h>
#include <stdbool.h>

struct erg_attention_shape erg_attention_packed(int64_t batch, int64_t query_heads,
                                                int64_t kv_heads, int64_t head_dim, int64_t tokens)
{
    int64_t row = (query_heads + 2 * kv_heads) * head_dim, row_o = query_heads * head_dim;
    struct erg_attention_strides packed = {tokens * row, row, head_dim};
    return (struct erg_attention_shape){
        .batch = batch,
        .query_heads = query_heads,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .queries = tokens,
        .keys = tokens,
        .mask = ERG_MASK_CAUSAL,
        .q = packed,
        .kv = packed,
        .o = {tokens * row_o, row_o, head_dim},
    };
}

static bool strides_fit(const struct erg_attention_strides *s)
{
    return s->batch > 0 && s->token > 0 && s->head > 0 && s->batch % 8 == 0 && s->token % 8 == 0 &&
           s->head % 8 == 0;
}

int erg_attention_check_shape(const struct erg_attention_shape *s, struct erg_error *err)
{
    if (s->batch < 1 || s->query_heads < 1 || s->kv_heads < 1 || s->head_dim < 1 ||
        s->queries < 1 || s->keys < 1 || s->queries > INT32_MAX || s->keys > INT32_MAX)
        return erg_fail(err, ERG_FAILED,
                        "planning attention of batch %" PRId64 ", heads %" PRId64 "/%" PRId64
                        " of %" PRId64 ", tokens %" PRId64 "/%" PRId64
                        ": expected positive numbers",
                        s->batch, s->query_heads, s->kv_heads, s->head_dim, s->queries, s->keys);
    if (s->query_heads % s->kv_heads != 0)
        return erg_fail(err, ERG_FAILED,
                        "planning attention: %" PRId64 " query heads cannot share %" PRId64
                        " key/value heads, expected a multiple",
                        s->query_heads, s->kv_heads);
    if (s->mask == ERG_MASK_CAUSAL_LAST && s->keys < s->queries)
        return erg_fail(err, ERG_FAILED,
                        "planning attention: the last %" PRId64 " queries of %" PRId64
                        " keys, expected no more queries than keys",
                        s->queries, s->keys);
    if (!strides_fit(&s->q) || !strides_fit(&s->kv) || !strides_fit(&s->o))
        return erg_fail(err, ERG_FAILED,
                        "planning attention: a stride is not a positive multiple of 8 elements, "
                        "which cuDNN's 16-byte accesses need");
    return 0;
}
