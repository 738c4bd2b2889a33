/* A tile of a product of matrices: one source, for the vectors of any machine and for AVX2's. */
#include "ops/tile.h"

#include <string.h>

/* Implements erg_ops_tile() in vectors of `lanes` floats. The loops over the sums are unrolled,
 * else these do not stay in registers. */
#define GROW(lanes)                                                                                \
    typedef float vector __attribute__((vector_size(lanes * sizeof(float))));                      \
    vector sum[ERG_OPS_TILE_ROWS][ERG_OPS_TILE_COLUMNS / lanes] = {{{0}}};                         \
    for (size_t k = 0; k < terms; k++) {                                                           \
        vector column[ERG_OPS_TILE_COLUMNS / lanes];                                               \
        memcpy(column, columns[k], sizeof column);                                                 \
        _Pragma("GCC unroll 8") for (size_t r = 0; r < ERG_OPS_TILE_ROWS; r++)                     \
            _Pragma("GCC unroll 8") for (size_t v = 0; v < ERG_OPS_TILE_COLUMNS / lanes; v++)      \
                sum[r][v] += rows[k][r] * column[v];                                               \
    }                                                                                              \
    memcpy(sums, sum, sizeof sum)

#if defined __x86_64__ && defined __GNUC__
__attribute__((target("avx2"))) static void grow_avx2(size_t terms,
                                                      const float (*rows)[ERG_OPS_TILE_ROWS],
                                                      const float (*columns)[ERG_OPS_TILE_COLUMNS],
                                                      float (*sums)[ERG_OPS_TILE_COLUMNS])
{
    GROW(8);
}
#endif

void erg_ops_tile(size_t terms, const float (*rows)[ERG_OPS_TILE_ROWS],
                  const float (*columns)[ERG_OPS_TILE_COLUMNS], float (*sums)[ERG_OPS_TILE_COLUMNS])
{
#if defined __x86_64__ && defined __GNUC__
    if (__builtin_cpu_supports("avx2")) {
        grow_avx2(terms, rows, columns, sums);
        return;
    }
#endif
    GROW(4);
}
