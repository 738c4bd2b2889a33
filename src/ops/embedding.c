/* Embedding on the host: row lookup, learned positions, and the sums of their gradients. */
#include "ops/element.h"

#include <string.h>

void ERG_OPS(embedding_forward)(size_t tokens, size_t hidden, size_t first, size_t rows,
                                const int32_t *ids, const erg_element *table, erg_element *out)
{
    for (size_t t = 0; t < tokens; t++) {
        size_t row = (size_t)ids[t] - first; /* wraps to something huge below first */
        if (row < rows)
            memcpy(out + t * hidden, table + row * hidden, hidden * sizeof *out);
        else
            memset(out + t * hidden, 0, hidden * sizeof *out);
    }
}

void ERG_OPS(embedding_backward)(size_t tokens, size_t hidden, size_t first, size_t rows,
                                 const int32_t *ids, const int32_t *order, const erg_element *d_out,
                                 float *d_table)
{
    for (size_t i = 0; i < tokens; i++) {
        size_t t = (size_t)order[i], row = (size_t)ids[t] - first;
        for (size_t c = 0; row < rows && c < hidden; c++)
            d_table[row * hidden + c] += wide(d_out[t * hidden + c]);
    }
}

void ERG_OPS(position_forward)(size_t tokens, size_t sequence, size_t hidden,
                               const int32_t *positions, const erg_element *table, erg_element *x)
{
    for (size_t t = 0; t < tokens; t++) {
        size_t place = t % sequence, row = positions ? (size_t)positions[place] : place;
        for (size_t c = 0; c < hidden; c++)
            x[t * hidden + c] = rounded(wide(x[t * hidden + c]) + wide(table[row * hidden + c]));
    }
}

void ERG_OPS(position_backward)(size_t tokens, size_t sequence, size_t hidden,
                                const int32_t *positions, const erg_element *d_out, float *d_table)
{
    for (size_t t = 0; t < tokens; t++) {
        size_t place = t % sequence, row = positions ? (size_t)positions[place] : place;
        for (size_t c = 0; c < hidden; c++)
            d_table[row * hidden + c] += wide(d_out[t * hidden + c]);
    }
}
