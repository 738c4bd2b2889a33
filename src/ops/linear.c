/*
 * Linear layers on the host: the product, and its gradients of input, weight and bias. Each sum is
 * added up in order (ops/tile.h).
 */
#include "base/memory.h"
#include "ops/element.h"
#include "ops/tile.h"

#include <assert.h>
#include <stdlib.h>

/* Lines of terms: term k of line i is at from[i * line + k * term]. */
struct lines {
    const erg_element *from;
    size_t count, line, term;
};

/* Floats of lines, as tiles read them: [panels of `width` lines, terms, width]. Lines that a last
 * panel lacks are zeros. To be freed. */
static inline float *panels(const struct lines *lines, size_t terms, size_t width)
{
    size_t count = (lines->count + width - 1) / width;
    float *to = erg_xmalloc((count * terms * width + 1) * sizeof *to), *at = to;
    for (size_t first = 0; first < lines->count; first += width) {
        const erg_element *from = lines->from + first * lines->line;
        size_t there = lines->count - first < width ? lines->count - first : width;
        for (size_t k = 0; k < terms; k++, at += width, from += lines->term) {
            if (there == width) {
                for (size_t i = 0; i < width; i++)
                    at[i] = wide(from[i * lines->line]);
                continue;
            }
            for (size_t i = 0; i < width; i++)
                at[i] = i < there ? wide(from[i * lines->line]) : 0;
        }
    }
    return to;
}

/* out[row, column] = the rounded sum over the terms of row x column, plus bias[column] (NULL:
 * none); or that sum is added to added[row, column]. */
static void product(const struct lines *rows, const struct lines *columns, size_t terms,
                    const erg_element *bias, erg_element *out, float *added)
{
    enum { ROWS = ERG_OPS_TILE_ROWS, COLUMNS = ERG_OPS_TILE_COLUMNS };
    assert(!out != !added);
    float *a = panels(rows, terms, ROWS), *b = panels(columns, terms, COLUMNS);
    for (size_t column = 0; column < columns->count; column += COLUMNS)
        for (size_t row = 0; row < rows->count; row += ROWS) {
            float sums[ROWS][COLUMNS];
            erg_ops_tile(terms, (const float(*)[ROWS])(a + row * terms),
                         (const float(*)[COLUMNS])(b + column * terms), sums);
            for (size_t r = 0; r < ROWS && row + r < rows->count; r++)
                for (size_t c = 0; c < COLUMNS && column + c < columns->count; c++) {
                    size_t at = (row + r) * columns->count + column + c;
                    if (added)
                        added[at] += sums[r][c];
                    else
                        out[at] = rounded(bias ? sums[r][c] + wide(bias[column + c]) : sums[r][c]);
                }
        }
    free(a);
    free(b);
}

void ERG_OPS(linear_forward)(size_t tokens, size_t inputs, size_t outputs, const erg_element *x,
                             const erg_element *weight, const erg_element *bias, erg_element *y)
{
    const struct lines rows = {x, tokens, inputs, 1}, columns = {weight, outputs, inputs, 1};
    product(&rows, &columns, inputs, bias, y, NULL);
}

void ERG_OPS(linear_input_gradient)(size_t tokens, size_t inputs, size_t outputs,
                                    const erg_element *d_y, const erg_element *weight,
                                    erg_element *d_x)
{
    const struct lines rows = {d_y, tokens, outputs, 1}, columns = {weight, inputs, 1, inputs};
    product(&rows, &columns, outputs, NULL, d_x, NULL);
}

void ERG_OPS(linear_weight_gradient)(size_t tokens, size_t inputs, size_t outputs,
                                     const erg_element *x, const erg_element *d_y, float *d_weight)
{
    const struct lines rows = {d_y, outputs, 1, outputs}, columns = {x, inputs, 1, inputs};
    product(&rows, &columns, tokens, NULL, NULL, d_weight);
}

void ERG_OPS(bias_gradient)(size_t tokens, size_t width, const erg_element *d_y, float *d_bias)
{
    float *sums = erg_xcalloc(width + 1, sizeof *sums);
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < width; i++)
            sums[i] += wide(d_y[t * width + i]);
    for (size_t i = 0; i < width; i++)
        d_bias[i] += sums[i];
    free(sums);
}
