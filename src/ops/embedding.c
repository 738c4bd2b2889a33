/* Embedding on the host: row lookup, and the sum of its gradient. */
#include "base/memory.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

void erg_ops_embedding_forward(size_t tokens, size_t hidden, size_t first, size_t rows,
                               const int32_t *ids, const erg_bf16 *table, erg_bf16 *out)
{
    for (size_t t = 0; t < tokens; t++) {
        size_t row = (size_t)ids[t] - first; /* wraps to something huge below first */
        if (row < rows)
            memcpy(out + t * hidden, table + row * hidden, hidden * sizeof *out);
        else
            memset(out + t * hidden, 0, hidden * sizeof *out);
    }
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void erg_ops_embedding_order(size_t tokens, const int32_t *ids, int32_t *order)
{
    uint64_t *keys = erg_xcalloc(tokens, sizeof *keys);
    for (size_t t = 0; t < tokens; t++)
        keys[t] = (uint64_t)(uint32_t)ids[t] << 32 | (uint32_t)t;
    qsort(keys, tokens, sizeof *keys, by_key);
    for (size_t t = 0; t < tokens; t++)
        order[t] = (int32_t)(uint32_t)keys[t];
    free(keys);
}

void erg_ops_embedding_backward(size_t tokens, size_t hidden, size_t first, size_t rows,
                                const int32_t *ids, const int32_t *order, const erg_bf16 *d_out,
                                float *d_table)
{
    for (size_t i = 0; i < tokens; i++) {
        size_t t = (size_t)order[i], row = (size_t)ids[t] - first;
        for (size_t c = 0; row < rows && c < hidden; c++)
            d_table[row * hidden + c] += erg_bf16_float(d_out[t * hidden + c]);
    }
}
