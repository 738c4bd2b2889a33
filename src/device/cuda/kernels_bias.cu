/* Kernels of the gradient of a bias: sums of columns, in two stages. */
#include "device/cuda/columns.cuh"

namespace
{
using namespace erg;

enum {
    AHEAD = 4, /* rows that a thread has in flight */
    BLOCKS_OF_AN_SM = 6,
    MOST_BLOCKS = BLOCKS_OF_AN_SM * (PARTIAL_BLOCKS / 2),
};

struct column_grid grid_of(size_t tokens, size_t width)
{
    return column_grid_of(tokens, width, AHEAD, MOST_BLOCKS);
}

/* Partial sums [blocks of rows][width]. */
__global__ void __launch_bounds__(COLUMN_THREADS, BLOCKS_OF_AN_SM)
    sum_columns(uint32_t tokens, uint32_t width, const erg_bf16 *d_y, float *partials)
{
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t column = blockIdx.x * COLUMNS + lane * VECTOR;
    const size_t step = (size_t)gridDim.y * COLUMN_ROWS;
    float sum[VECTOR] = {};
    wait_for_last();
    if (column < width)
        for (size_t row = blockIdx.y * COLUMN_ROWS + warp; row < tokens; row += step * AHEAD) {
            vector ahead[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const size_t at = row + k * step;
                ahead[k] = at < tokens ? load(d_y + at * width + column) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                float values[VECTOR];
                unpack(values, ahead[k]);
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    sum[i] += values[i];
            }
        }
    store_column_sums(width, sum, partials);
}

} // namespace

extern "C" size_t erg_cuda_bias_gradient_scratch(size_t tokens, size_t width)
{
    return grid_of(tokens, width).rows * width * sizeof(float);
}

extern "C" int erg_cuda_bias_gradient(size_t tokens, size_t width, const erg_bf16 *d_y,
                                      float *d_bias, void *scratch, struct CUstream_st *stream,
                                      struct erg_error *err)
{
    if (check_width("the gradient of a bias", tokens, width, VECTOR, err))
        return -1;
    if (tokens == 0)
        return 0;
    const struct column_grid grid = grid_of(tokens, width);
    float *partials = static_cast<float *>(scratch);
    follow(sum_columns, dim3(grid.columns, grid.rows), COLUMN_THREADS, 0, stream, (uint32_t)tokens,
           (uint32_t)width, d_y, partials);
    const struct partials sums = {grid.rows, partials, d_bias};
    add_partials(width, &sums, 1, stream);
    return erg_cuda_check_launch("the gradient of a bias", err);
}
