/* The first stage of a sum over rows, for each column: shared by the kernels that do it. */
#ifndef ERGON_DEVICE_CUDA_COLUMNS_CUH
#define ERGON_DEVICE_CUDA_COLUMNS_CUH

#include "device/cuda/vector.cuh"

namespace erg
{

enum {
    COLUMN_THREADS = 256,
    COLUMN_ROWS = COLUMN_THREADS / LANES, /* of a block: a warp holds 32 vectors of one */
    COLUMNS = LANES * VECTOR,             /* of a block */
};
static_assert(int(COLUMN_THREADS) == int(COLUMNS), "a thread adds up one column of a block");

/* The numbers of blocks over columns and, for each of these, over rows, which they take in turn. */
struct column_grid {
    unsigned columns, rows;
};

/* A thread loads `ahead` rows at a time; `most` blocks run at once. */
inline struct column_grid column_grid_of(size_t tokens, size_t width, size_t ahead, size_t most)
{
    struct column_grid grid;
    grid.columns = (unsigned)blocks_for(width, COLUMNS);
    const size_t of_a_column = grid.columns < most ? most / grid.columns : 1;
    const size_t wanted = blocks_for(tokens, COLUMN_ROWS * ahead);
    grid.rows = (unsigned)(wanted < of_a_column ? wanted : of_a_column);
    return grid;
}

/* Stores the sums over the block's rows to partials[blocks of rows][width]. */
__device__ inline void store_column_sums(uint32_t width, const float (&sum)[VECTOR],
                                         float *partials)
{
    __shared__ __align__(16) float shared[COLUMN_ROWS][COLUMNS];
    store_floats(&shared[threadIdx.x / LANES][threadIdx.x % LANES * VECTOR], sum);
    __syncthreads();
    let_next_begin();
    const uint32_t mine = blockIdx.x * COLUMNS + threadIdx.x;
    if (mine >= width)
        return;
    float all = 0;
#pragma unroll
    for (int r = 0; r < COLUMN_ROWS; r++)
        all += shared[r][threadIdx.x];
    partials[(size_t)blockIdx.y * width + mine] = all;
}

} // namespace erg

#endif
