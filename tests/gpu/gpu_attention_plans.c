/*
 * The plans of attention and their budget of SMs: grids that must lose no tile, in a capture and
 * outside, plans that must be the fused kernels, plan files, one workspace per stream.
 */
#include "attention_problem.h"
#include "base/log.h"
#include "base/text.h"
#include "io/file.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <unistd.h>

/* Back to NaN everywhere that a pass writes. */
static void forget(struct problem *p, struct CUstream_st *stream)
{
    gpu_ok(erg_cuda_fill(p->on.o, 0xff, p->o_count * sizeof(erg_bf16), stream, &gpu_error));
    gpu_ok(erg_cuda_fill(p->on.stats, 0xff, p->rows * sizeof(float), stream, &gpu_error));
    gpu_ok(erg_cuda_fill(p->on_grad, 0xff, p->in_count * sizeof(erg_bf16), stream, &gpu_error));
    gpu_ok(erg_cuda_fill(p->on_workspace, 0xff, erg_attention_backward_bytes(p->attention), stream,
                         &gpu_error));
}

/* The bits of a forward pass. */
struct bits {
    erg_bf16 *o;
    float *stats;
};

static struct bits read_bits(const struct problem *p)
{
    return (struct bits){gpu_download(p->on.o, p->o_count * sizeof(erg_bf16)),
                         gpu_download(p->on.stats, p->rows * sizeof(float))};
}

static void check_bits(const char *what, const struct problem *p, const struct bits *want)
{
    struct bits got = read_bits(p);
    bool same = memcmp(got.o, want->o, p->o_count * sizeof(erg_bf16)) == 0 &&
                memcmp(got.stats, want->stats, p->rows * sizeof(float)) == 0;
    printf("%s %s: O and stats bit for bit\n", same ? "ok    " : "FAILED", what);
    gpu_failures += !same;
    free(got.o), free(got.stats);
}

/* All gradients at once, against those of another run. */
static void check_gradients(const char *what, const struct problem *p, const erg_bf16 *want)
{
    erg_bf16 *got = gpu_download(p->on_grad, p->in_count * sizeof *got);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < p->in_count; i++) {
        double w = erg_bf16_float(want[i]), off = erg_bf16_float(got[i]) - w;
        difference += off * off;
        norm += w * w;
    }
    judge(what, sqrt(difference / norm), 1e-4);
    free(got);
}

static void check_grids(struct erg_cudnn *cudnn)
{
    static const int grids[] = {128, 116, 108, 64};
    struct erg_attention_shape shape = erg_attention_packed(4, 32, 8, 128, 1024);
    struct problem p;
    problem_init(&p, cudnn, &shape, 11);
    gpu_ok(erg_attention_verify(p.attention, &p.on, p.on_workspace, NULL, &gpu_error));
    forget(&p, NULL);
    forward(&p, 0, NULL);
    backward(&p, 0, NULL);
    struct bits want = read_bits(&p);
    erg_bf16 *grad = gpu_download(p.on_grad, p.in_count * sizeof *grad);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char what[64];
        forget(&p, NULL);
        forward(&p, grids[i], NULL);
        backward(&p, grids[i], NULL);
        snprintf(what, sizeof what, "%d CTAs", grids[i]);
        check_bits(what, &p, &want);
        check_gradients(what, &p, grad);
    }
    if (erg_attention_forward(p.attention, &p.on, p.on_workspace, 10000, NULL, &gpu_error) == 0 ||
        erg_attention_forward(p.attention, &p.on, at(p.on_workspace, 1), 0, NULL, &gpu_error) ==
            0) {
        printf("FAILED 10000 CTAs or a workspace that is not aligned were accepted\n");
        gpu_failures++;
    }
    free(want.o), free(want.stats), free(grad);
    problem_release(&p);
}

/* The kernels of 384 threads in a captured graph and their grids. */
static size_t read_grids(cudaGraph_t graph, unsigned grids[], size_t capacity)
{
    void *entry = NULL;
    enum cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuGraphKernelNodeGetParams", &entry, 12000, cudaEnableDefault,
                                     &result);
    CUresult (*get_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *) = NULL;
    memcpy(&get_params, &entry, sizeof entry);
    cudaGraphNode_t nodes[128];
    size_t count = sizeof nodes / sizeof *nodes, found = 0;
    if (!get_params || cudaGraphGetNodes(graph, nodes, &count) != cudaSuccess)
        return 0;
    for (size_t i = 0; i < count; i++) {
        enum cudaGraphNodeType type;
        CUDA_KERNEL_NODE_PARAMS kernel;
        if (cudaGraphNodeGetType(nodes[i], &type) == cudaSuccess &&
            type == cudaGraphNodeTypeKernel && get_params(nodes[i], &kernel) == CUDA_SUCCESS &&
            kernel.blockDimX == 384 && found < capacity)
            grids[found++] = kernel.gridDimX;
    }
    return found;
}

static size_t times(const unsigned *grids, size_t count, int grid)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += grids[i] == (unsigned)grid;
    return n;
}

/*
 * A longer capture, as of a partition: each call gets its own budget, at whatever place it has,
 * and without a budget there is one CTA per SM (a plan made from device properties had 18).
 */
static void check_capture(struct erg_cudnn *cudnn, int sms)
{
    struct erg_attention_shape shape = erg_attention_packed(2, 32, 8, 128, 2048);
    struct problem p;
    struct CUstream_st *stream;
    cudaGraph_t graph;
    cudaGraphExec_t launch;
    problem_init(&p, cudnn, &shape, 13);
    gpu_ok(erg_cuda_stream_new(&stream, false, &gpu_error));
    forward(&p, 0, NULL);
    backward(&p, 0, NULL);
    struct bits want = read_bits(&p);
    erg_bf16 *grad = gpu_download(p.on_grad, p.in_count * sizeof *grad);

    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        exit(1);
    forward(&p, 64, stream);
    forget(&p, stream);
    forward(&p, 116, stream);
    backward(&p, 108, stream);
    forward(&p, 0, stream);
    backward(&p, 0, stream);
    forward(&p, 100, stream);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess ||
        cudaGraphInstantiate(&launch, graph, 0) != cudaSuccess) {
        printf("FAILED the captured calls make no graph\n");
        exit(1);
    }
    unsigned grids[16];
    size_t count = read_grids(graph, grids, 16);
    bool right = times(grids, count, 64) == 1 && times(grids, count, 116) == 1 &&
                 times(grids, count, 108) == 1 && times(grids, count, 100) == 1 &&
                 times(grids, count, sms) == 2;
    printf("%s captured grids:", right ? "ok    " : "FAILED");
    for (size_t i = 0; i < count; i++)
        printf(" %u", grids[i]);
    printf("\n");
    gpu_failures += !right;
    for (int i = 0; i < 3; i++)
        if (cudaGraphLaunch(launch, stream) != cudaSuccess)
            exit(1);
    gpu_ok(erg_cuda_stream_sync(stream, &gpu_error));
    check_bits("launched three times", &p, &want);
    check_gradients("launched three times, gradients", &p, grad);
    cudaGraphExecDestroy(launch);
    cudaGraphDestroy(graph);
    erg_cuda_stream_free(stream);
    free(want.o), free(want.stats), free(grad);
    problem_release(&p);
}

/* Two streams at once, each with its own workspace. */
static void check_two_streams(struct erg_cudnn *cudnn)
{
    struct erg_attention_shape shape = erg_attention_packed(2, 24, 8, 128, 1024);
    struct problem p[2];
    struct bits want[2];
    struct CUstream_st *streams[2];
    for (int i = 0; i < 2; i++) {
        problem_init(&p[i], cudnn, &shape, 17 + (uint64_t)i);
        gpu_ok(erg_cuda_stream_new(&streams[i], false, &gpu_error));
        forward(&p[i], 0, NULL);
        want[i] = read_bits(&p[i]);
        forget(&p[i], NULL);
    }
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 2; i++)
            gpu_ok(erg_attention_forward(p[0].attention, &p[i].on, p[i].on_workspace, 64,
                                         streams[i], &gpu_error));
    for (int i = 0; i < 2; i++) {
        gpu_ok(erg_cuda_stream_sync(streams[i], &gpu_error));
        check_bits("one of two streams", &p[i], &want[i]);
        erg_cuda_stream_free(streams[i]);
        free(want[i].o), free(want[i].stats);
        problem_release(&p[i]);
    }
}

static void count_searches(void *context, enum erg_log_level level, const char *text)
{
    (void)level;
    if (strstr(text, "looking for a new plan"))
        ++*(int *)context;
}

/* Changes one byte in the middle of every plan, or removes them. */
static int damage_plans(const char *folder, bool remove_them)
{
    DIR *listing = opendir(folder);
    struct dirent *entry;
    int files = 0;
    while (listing && (entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        struct erg_text path = {0};
        erg_text_printf(&path, "%s/%s", folder, entry->d_name);
        char *text;
        size_t length;
        gpu_ok(erg_file_read(path.data, 0, &text, &length, &gpu_error));
        text[length / 2] ^= 1;
        if (remove_them)
            unlink(path.data);
        else
            gpu_ok(erg_file_write(path.data, text, length, &gpu_error));
        files++;
        free(text);
        erg_text_release(&path);
    }
    if (listing)
        closedir(listing);
    return files;
}

static void check_plan_files(const struct erg_cuda *cuda)
{
    static const char *const rounds[] = {"new plan", "plan from its file",
                                         "plan after its file was damaged"};
    static const int searches_expected[] = {2, 0, 2};
    struct erg_attention_shape shape = erg_attention_packed(1, 16, 8, 128, 512);
    char folder[] = "/tmp/ergon-plans-XXXXXX";
    struct bits want = {0};
    int searches = 0;
    if (!mkdtemp(folder))
        exit(1);
    erg_log_set_sink(&(struct erg_log_sink){.message = count_searches, .context = &searches});
    for (int round = 0; round < 3; round++) {
        struct erg_cudnn *cudnn = open_cudnn(cuda, folder);
        struct problem p;
        searches = 0;
        problem_init(&p, cudnn, &shape, 19);
        forward(&p, 0, NULL);
        if (round == 0)
            want = read_bits(&p);
        check_bits(rounds[round], &p, &want);
        if (searches != searches_expected[round]) {
            printf("FAILED %s: %d plans were looked for, expected %d\n", rounds[round], searches,
                   searches_expected[round]);
            gpu_failures++;
        }
        problem_release(&p);
        erg_cudnn_close(cudnn);
        if (round == 1 && damage_plans(folder, false) != 2) {
            printf("FAILED the folder of plans does not hold two files\n");
            gpu_failures++;
        }
    }
    erg_log_set_sink(NULL);
    damage_plans(folder, true);
    rmdir(folder);
    free(want.o), free(want.stats);
}

static void check_refusals(struct erg_cudnn *cudnn)
{
    struct erg_attention *attention;
    struct erg_attention_shape heads = erg_attention_packed(1, 10, 4, 128, 256);
    struct erg_attention_shape stride = erg_attention_packed(1, 8, 8, 128, 256);
    struct erg_attention_shape last = chunk(1, 8, 8, 512, 256, ERG_MASK_CAUSAL_LAST);
    stride.o.token += 4;
    const struct erg_attention_shape *shapes[] = {&heads, &stride, &last};
    for (size_t i = 0; i < 3; i++)
        if (erg_attention_new(&attention, cudnn, shapes[i], &gpu_error) == 0) {
            printf("FAILED shape %zu that makes no sense was accepted\n", i);
            gpu_failures++;
        }
}

int main(void)
{
    struct erg_cuda cuda = gpu_open();
    struct erg_cudnn *cudnn = open_cudnn(&cuda, "");
    check_refusals(cudnn);
    check_plan_files(&cuda);
    if (cuda.capability == 90) { /* the kernels that take a budget */
        check_grids(cudnn);
        check_capture(cudnn, cuda.sms);
        check_two_streams(cudnn);
    }
    erg_cudnn_close(cudnn);
    return gpu_result();
}
