/*
 * The budget of SMs: lowers the grid of a persistent kernel that was just captured.
 *
 * cuDNN's own settings for the number of SMs are refused or ignored by its attention kernels. But
 * their CTAs take tiles at run time until none are left, so any grid gives the right result. This
 * holds for these kernels only; products of cuBLASLt would lose tiles.
 */
#include "device/cuda/attention_internal.h"
#include "device/cuda/cuda_internal.h"

#include <stdbool.h>

enum { MAIN_KERNEL_THREADS = 384 };

static const char doing[] = "limiting the SMs of attention";

int erg_grid_mark(struct erg_grid_mark *mark, cudaStream_t stream, struct erg_error *err)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    const cudaGraphEdgeData *edges = NULL; /* without it the call fails if there are edges */
    size_t count = 0;
    if (erg_cuda_check(
            cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &count), err,
            "%s", doing) != 0)
        return -1;
    if (status != cudaStreamCaptureStatusActive)
        return erg_fail(err, ERG_FAILED, "%s: the capture of the stream has ended or broken",
                        doing);
    if (count > ERG_GRID_MAX_NODES)
        return erg_fail(err, ERG_FAILED,
                        "%s: the stream waits for %zu captured nodes at once, expected at most %d",
                        doing, count, ERG_GRID_MAX_NODES);
    mark->count = count;
    for (size_t i = 0; i < count; i++)
        mark->nodes[i] = nodes[i];
    return 0;
}

static bool holds(const struct erg_grid_mark *set, cudaGraphNode_t node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->nodes[i] == node)
            return true;
    return false;
}

/*
 * Adds the dependencies of `node` to the nodes to visit, unless seen or captured before the mark.
 */
static int add_dependencies(struct erg_grid_mark *visit, const struct erg_grid_mark *mark,
                            cudaGraphNode_t node, struct erg_error *err)
{
    cudaGraphNode_t from[ERG_GRID_MAX_NODES];
    cudaGraphEdgeData edges[ERG_GRID_MAX_NODES];
    size_t count = ERG_GRID_MAX_NODES;
    if (erg_cuda_check(cudaGraphNodeGetDependencies(node, from, edges, &count), err, "%s", doing))
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (holds(mark, from[i]) || holds(visit, from[i]))
            continue;
        if (visit->count == ERG_GRID_MAX_NODES)
            return erg_fail(err, ERG_FAILED, "%s: one call was captured as more than %d nodes",
                            doing, ERG_GRID_MAX_NODES);
        visit->nodes[visit->count++] = from[i];
    }
    return 0;
}

/*
 * Whether a node can be the persistent kernel; among several, it is the one with the largest grid.
 */
static int read_kernel(const struct erg_cudnn *cudnn, cudaGraphNode_t node, bool *is_main,
                       CUDA_KERNEL_NODE_PARAMS *kernel, struct erg_error *err)
{
    enum cudaGraphNodeType type;
    *is_main = false;
    if (erg_cuda_check(cudaGraphNodeGetType(node, &type), err, "%s", doing) != 0)
        return -1;
    if (type != cudaGraphNodeTypeKernel)
        return 0;
    CUresult result = cudnn->get_kernel_params(node, kernel);
    if (result != CUDA_SUCCESS)
        return erg_fail(err, ERG_FAILED, "%s: the driver does not show a kernel (error %d)", doing,
                        (int)result);
    /* Less than one CTA per SM if there are fewer tiles. */
    *is_main = kernel->gridDimX <= (unsigned)cudnn->sms && kernel->gridDimY == 1 &&
               kernel->gridDimZ == 1 &&
               kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ == MAIN_KERNEL_THREADS;
    return 0;
}

int erg_grid_limit(const struct erg_cudnn *cudnn, const struct erg_grid_mark *mark,
                   cudaStream_t stream, int ctas, int *full, struct erg_error *err)
{
    struct erg_grid_mark ends, visit = {0};
    if (erg_grid_mark(&ends, stream, err) != 0)
        return -1;
    for (size_t i = 0; i < ends.count; i++)
        if (!holds(mark, ends.nodes[i]))
            visit.nodes[visit.count++] = ends.nodes[i];

    cudaGraphNode_t main_node = NULL;
    CUDA_KERNEL_NODE_PARAMS main_kernel = {0}, kernel = {0};
    size_t found = 0;
    for (size_t i = 0; i < visit.count; i++) { /* count grows in the loop */
        bool is_main;
        if (read_kernel(cudnn, visit.nodes[i], &is_main, &kernel, err) != 0 ||
            add_dependencies(&visit, mark, visit.nodes[i], err) != 0)
            return -1;
        if (!is_main || kernel.gridDimX < main_kernel.gridDimX)
            continue;
        found = kernel.gridDimX == main_kernel.gridDimX ? found + 1 : 1;
        main_node = visit.nodes[i];
        main_kernel = kernel;
    }
    if (found != 1)
        return erg_fail(err, ERG_NO_DEVICE,
                        "%s: %zu of %zu captured nodes are a kernel of %d threads with one CTA per "
                        "SM, expected one; this cuDNN or GPU cannot limit attention",
                        doing, found, visit.count, MAIN_KERNEL_THREADS);
    *full = (int)main_kernel.gridDimX;
    if (ctas >= *full)
        return 0;
    main_kernel.gridDimX = (unsigned)ctas;
    CUresult result = cudnn->set_kernel_params(main_node, &main_kernel);
    if (result != CUDA_SUCCESS)
        return erg_fail(err, ERG_FAILED, "%s: the driver refuses a grid of %d CTAs (error %d)",
                        doing, ctas, (int)result);
    return 0;
}
