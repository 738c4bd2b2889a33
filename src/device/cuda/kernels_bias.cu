/* Kernels of the gradient of a bias: sums of columns, in two stages. */
#include "device/cuda/vector.cuh"

namespace
{
using namespace erg;

enum {
    THREADS = 256,
    ROWS = THREADS / LANES, /* at a time: a warp has 32 vectors of one */
    AHEAD = 4,              /* of a warp's rows are on their way at once */
    COLUMNS = LANES * VECTOR,
    MOST_BLOCKS = 4 * PARTIAL_BLOCKS,
};

/* Blocks of columns, and for each of them blocks that take rows in turn. */
struct bias_grid {
    unsigned columns, rows;
};

struct bias_grid grid_of(size_t tokens, size_t width)
{
    struct bias_grid grid;
    grid.columns = (unsigned)blocks_for(width, COLUMNS);
    const size_t most = grid.columns < MOST_BLOCKS ? MOST_BLOCKS / grid.columns : 1;
    const size_t wanted = blocks_for(tokens, ROWS * AHEAD);
    grid.rows = (unsigned)(wanted < most ? wanted : most);
    return grid;
}

/* Partial sums [blocks of rows][width]. */
__global__ void __launch_bounds__(THREADS)
    sum_columns(uint32_t tokens, uint32_t width, const erg_bf16 *d_y, float *partials)
{
    __shared__ __align__(16) float shared[ROWS][COLUMNS];
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t column = blockIdx.x * COLUMNS + lane * VECTOR;
    const size_t step = (size_t)gridDim.y * ROWS;
    float sum[VECTOR] = {};
    wait_for_last();
    if (column < width)
        for (size_t row = blockIdx.y * ROWS + warp; row < tokens; row += step * AHEAD) {
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
    store_floats(&shared[warp][lane * VECTOR], sum);
    __syncthreads();
    let_next_begin();
    const uint32_t mine = blockIdx.x * COLUMNS + threadIdx.x;
    if (mine >= width)
        return;
    float all = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        all += shared[r][threadIdx.x];
    partials[(size_t)blockIdx.y * width + mine] = all;
}
static_assert(THREADS == COLUMNS, "a thread adds up one column of a block");

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
    const struct bias_grid grid = grid_of(tokens, width);
    float *partials = static_cast<float *>(scratch);
    follow(sum_columns, dim3(grid.columns, grid.rows), THREADS, 0, stream, (uint32_t)tokens,
           (uint32_t)width, d_y, partials);
    const struct partials sums = {grid.rows, partials, d_bias};
    add_partials(width, &sums, 1, stream);
    return erg_cuda_check_launch("the gradient of a bias", err);
}
