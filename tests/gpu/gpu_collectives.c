/*
 * Collectives against sums on the host, bit for bit: odd sizes and offsets, every budget, repeated,
 * in CUDA graphs, beside computation, two at once, in groups; and what happens when a rank does not
 * come or dies.
 */
#include "gpu_ranks.h"

#include "device/cuda/kernels.h"

#include <cuda_runtime_api.h>
#include <signal.h>

enum {
    ROOM = 24 << 20, /* bytes of a buffer */
    GUARD = 64,      /* elements beside a part that must keep what they held */
};

static const char *const method_names[] = {"ours", "library"};

struct bench {
    struct gpu_world *world;
    struct erg_collective *collective;
    struct erg_collective_buffer buffers[2];
    struct CUstream_st *stream;
    int first, ranks, rank; /* of the group */
    uint64_t seed;
    const char *name;
};

static size_t bytes_of(enum erg_collective_type type)
{
    return type == ERG_COLLECTIVE_BF16 ? 2 : 4;
}

/* What rank `rank` holds at element i: magnitudes differ so much that the order of a sum shows. */
static float value_of(const struct bench *b, enum erg_collective_type type, int rank, size_t i)
{
    uint64_t bits = erg_hash_u64(b->seed * 16 + (uint64_t)rank, i);
    float value = ldexpf((float)(int32_t)(bits >> 32), -31 - (int)(bits % 12));
    return type == ERG_COLLECTIVE_BF16 ? erg_bf16_float(erg_bf16_round(value)) : value;
}

static float sum_at(const struct bench *b, enum erg_collective_type type, size_t i)
{
    float sum = 0;
    for (int rank = 0; rank < b->ranks; rank++)
        sum += value_of(b, type, rank, i);
    return sum;
}

static void put(void *values, enum erg_collective_type type, size_t i, float value)
{
    if (type == ERG_COLLECTIVE_BF16)
        ((erg_bf16 *)values)[i] = erg_bf16_round(value);
    else
        ((float *)values)[i] = value;
}

/* Into a buffer from element `offset` on: this rank's values where `mine` says so, else poison. */
static void fill(const struct bench *b, int buffer, enum erg_collective_type type, size_t offset,
                 size_t count, size_t mine_begin, size_t mine_end)
{
    size_t total = offset + count + GUARD, bytes = total * bytes_of(type);
    void *values = erg_xmalloc(bytes);
    memset(values, 0xff, bytes);
    for (size_t i = mine_begin; i < mine_end; i++)
        put(values, type, offset + i, value_of(b, type, b->rank, i));
    gpu_ok(erg_cuda_copy(b->buffers[buffer].memory, values, bytes, NULL, &gpu_error));
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    free(values);
}

/* Compares what the buffer holds with `expected`, which has offset + count + GUARD elements. */
static void compare(const struct bench *b, int buffer, enum erg_collective_type type, size_t offset,
                    size_t count, const void *expected, const char *what, int sms)
{
    size_t each = bytes_of(type), bytes = (offset + count + GUARD) * each;
    unsigned char *actual = gpu_download(b->buffers[buffer].memory, bytes);
    if (memcmp(actual, expected, bytes) != 0) {
        size_t bad = 0, first = 0;
        for (size_t i = bytes / each; i-- > 0;)
            if (memcmp(actual + i * each, (const char *)expected + i * each, each) != 0)
                bad++, first = i;
        printf("FAILED %s %s %s, %zu elements from %zu on, %d SMs: %zu differ, the first at %zu: "
               "%.9g, expected %.9g\n",
               b->name, what, each == 2 ? "bf16" : "float", count, offset, sms, bad, first,
               gpu_read(actual, first, each == 2), gpu_read(expected, first, each == 2));
        gpu_failures++;
    }
    free(actual);
}

static void *poisoned(enum erg_collective_type type, size_t total)
{
    void *values = erg_xmalloc(total * bytes_of(type));
    memset(values, 0xff, total * bytes_of(type));
    return values;
}

static void *expected_sum(const struct bench *b, enum erg_collective_type type, size_t offset,
                          size_t count)
{
    void *expected = poisoned(type, offset + count + GUARD);
    for (size_t i = 0; i < count; i++)
        put(expected, type, offset + i, sum_at(b, type, i));
    return expected;
}

static void finish(struct bench *b)
{
    gpu_ok(erg_collective_wait(b->collective, b->stream, &gpu_error));
}

/* ---- each collective ---- */

static void check_all_reduce(struct bench *b, enum erg_collective_type type, size_t offset,
                             size_t count, int sms)
{
    struct erg_collective_part part = {&b->buffers[0], offset, count, 0};
    b->seed++;
    fill(b, 0, type, offset, count, 0, count);
    void *expected = expected_sum(b, type, offset, count);
    gpu_ok(erg_collective_all_reduce(b->collective, type, &part, sms, b->stream, &gpu_error));
    finish(b);
    compare(b, 0, type, offset, count, expected, "all-reduce", sms);
    free(expected);
}

/* K and V of different sizes; element i of the whole is worth the same on every rank's shard. */
static void check_shards(struct bench *b, enum erg_collective_type type, size_t offset,
                         size_t count, int sms, bool gather)
{
    size_t counts[2] = {count, count / 2 + 1}, offsets[2] = {offset, offset + 3};
    struct erg_collective_shards parts[2];
    void *expected[2];
    b->seed++;
    for (int p = 0; p < 2; p++) {
        size_t each = counts[p], whole = each * (size_t)b->ranks, own = each * (size_t)b->rank;
        parts[p] = (struct erg_collective_shards){
            .buffer = &b->buffers[p], .offset = offsets[p], .count = each};
        expected[p] = poisoned(type, offsets[p] + whole + GUARD);
        if (gather)
            fill(b, p, type, offsets[p], whole, own, own + each);
        else
            fill(b, p, type, offsets[p], whole, 0, whole);
        for (size_t i = 0; i < whole; i++) {
            bool is_own = i >= own && i < own + each;
            float value = gather   ? value_of(b, type, (int)(i / each), i)
                          : is_own ? sum_at(b, type, i)
                                   : value_of(b, type, b->rank, i);
            put(expected[p], type, offsets[p] + i, value);
        }
    }
    gpu_ok((gather ? erg_collective_all_gather : erg_collective_reduce_scatter)(
        b->collective, type, parts, 2, sms, b->stream, &gpu_error));
    finish(b);
    for (int p = 0; p < 2; p++) {
        compare(b, p, type, offsets[p], counts[p] * (size_t)b->ranks, expected[p],
                gather ? "all-gather" : "reduce-scatter", sms);
        free(expected[p]);
    }
}

static void check_sizes(struct bench *b)
{
    static const size_t counts[] = {1, 7, 8, 9, 1000, 4099, 65539, 1048576};
    static const size_t offsets[] = {0, 1, 3, 8};
    static const int budgets[] = {1, 2, 3, 8, 16, 32};
    int before = gpu_failures;
    for (int type = ERG_COLLECTIVE_BF16; type <= ERG_COLLECTIVE_FLOAT; type++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++) {
                int sms = budgets[(c + o) % 6];
                check_all_reduce(b, type, offsets[o], counts[c], sms);
                check_shards(b, type, offsets[o], counts[c] / 4 + 1, sms, true);
                check_shards(b, type, offsets[o], counts[c] / 4 + 1, sms, false);
            }
    for (int s = 0; s < 6; s++)
        check_all_reduce(b, ERG_COLLECTIVE_BF16, 5, 3000001, budgets[s]);
    printf("%s %s: sizes, offsets, types and budgets\n",
           gpu_failures > before ? "FAILED" : "ok    ", b->name);
}

/* ---- repeated, in graphs, beside other work ---- */

struct stash {
    void *values; /* this rank's, on the GPU */
    void *expected;
    size_t count, bytes;
};

static struct stash make_stash(struct bench *b, size_t count)
{
    struct stash stash = {.count = count, .bytes = (count + GUARD) * 2};
    b->seed++;
    fill(b, 0, ERG_COLLECTIVE_BF16, 0, count, 0, count);
    stash.values = gpu_alloc(stash.bytes);
    gpu_ok(erg_cuda_copy(stash.values, b->buffers[0].memory, stash.bytes, NULL, &gpu_error));
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    stash.expected = expected_sum(b, ERG_COLLECTIVE_BF16, 0, count);
    return stash;
}

static void free_stash(struct stash *stash)
{
    erg_cuda_free(stash->values);
    free(stash->expected);
}

/* Puts back the values and sums them. No peer touches them before it has met this rank in the call,
 * and none does after. */
static void again(struct bench *b, const struct stash *stash, int buffer, int sms)
{
    struct erg_collective_part part = {&b->buffers[buffer], 0, stash->count, 0};
    gpu_ok(erg_cuda_copy(b->buffers[buffer].memory, stash->values, stash->bytes, b->stream,
                         &gpu_error));
    gpu_ok(erg_collective_all_reduce(b->collective, ERG_COLLECTIVE_BF16, &part, sms, b->stream,
                                     &gpu_error));
}

static void check_repeats(struct bench *b)
{
    static const int budgets[] = {4, 32, 1, 7, 16};
    struct stash stash = make_stash(b, 100003);
    int before = gpu_failures;
    for (int i = 0; i < 300; i++)
        again(b, &stash, 0, budgets[i % 5]);
    finish(b);
    compare(b, 0, ERG_COLLECTIVE_BF16, 0, stash.count, stash.expected, "300 calls in a row", 0);

    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < 5; i++)
        again(b, &stash, 0, budgets[i]);
    cudaError_t status = cudaStreamEndCapture(b->stream, &graph);
    if (status == cudaSuccess)
        status = cudaGraphInstantiate(&run, graph, 0);
    if (status != cudaSuccess) {
        printf("FAILED %s in a graph: %s\n", b->name, cudaGetErrorString(status));
        exit(1);
    }
    for (int i = 0; i < 40; i++) {
        cudaGraphLaunch(run, b->stream);
        if (i % 4 == 0)
            again(b, &stash, 0, 9); /* calls outside of graphs between them */
    }
    finish(b);
    compare(b, 0, ERG_COLLECTIVE_BF16, 0, stash.count, stash.expected, "40 replays of a graph", 0);
    cudaGraphExecDestroy(run);
    cudaGraphDestroy(graph);
    free_stash(&stash);
    printf("%s %s: repeated, and in graphs\n", gpu_failures > before ? "FAILED" : "ok    ",
           b->name);
}

/* A kernel that fills all SMs runs on another stream all the while. */
static void check_beside(struct bench *b)
{
    enum { TOKENS = 16384, WIDTH = 8192 };
    size_t bytes = (size_t)TOKENS * WIDTH * sizeof(erg_bf16);
    struct stash stash = make_stash(b, 2000003);
    struct CUstream_st *compute;
    int before = gpu_failures;
    struct erg_rng rng;
    erg_rng_seed(&rng, 5);
    erg_bf16 *gate_up = gpu_random(&rng, (size_t)TOKENS * WIDTH * 2 / 64, 1);
    char *in = gpu_alloc(2 * bytes), *out = gpu_alloc(bytes);
    for (size_t i = 0; i < 64; i++)
        gpu_ok(erg_cuda_copy(in + i * (2 * bytes / 64), gate_up, 2 * bytes / 64, NULL, &gpu_error));
    gpu_ok(
        erg_cuda_swiglu_forward(TOKENS, WIDTH, (erg_bf16 *)in, (erg_bf16 *)out, NULL, &gpu_error));
    void *alone = gpu_download(out, bytes);
    gpu_ok(erg_cuda_stream_new(&compute, false, &gpu_error));
    for (int i = 0; i < 100; i++) {
        gpu_ok(erg_cuda_swiglu_forward(TOKENS, WIDTH, (erg_bf16 *)in, (erg_bf16 *)out, compute,
                                       &gpu_error));
        again(b, &stash, 0, 1 + i % 32);
    }
    finish(b);
    gpu_ok(erg_cuda_stream_sync(compute, &gpu_error));
    compare(b, 0, ERG_COLLECTIVE_BF16, 0, stash.count, stash.expected, "beside computation", 0);
    void *beside = gpu_download(out, bytes);
    if (memcmp(alone, beside, bytes) != 0) {
        printf("FAILED %s: computation beside it gave other results\n", b->name);
        gpu_failures++;
    }
    free(alone), free(beside), free(gate_up);
    erg_cuda_free(in), erg_cuda_free(out);
    erg_cuda_stream_free(compute);
    free_stash(&stash);
    printf("%s %s: beside computation\n", gpu_failures > before ? "FAILED" : "ok    ", b->name);
}

/* Two groups of the same ranks on two streams, at once. */
static void check_two(struct bench *b)
{
    struct bench other = *b;
    struct stash stash = make_stash(b, 500009);
    int before = gpu_failures;
    other.collective = gpu_connect(b->world, b->first, b->ranks, ERG_COLLECTIVE_PEER, 30);
    gpu_ok(erg_cuda_stream_new(&other.stream, true, &gpu_error));
    for (int i = 0; i < 100; i++) {
        again(b, &stash, 0, 1 + i % 16);
        again(&other, &stash, 1, 1 + (i * 7) % 16);
    }
    finish(b);
    finish(&other);
    for (int buffer = 0; buffer < 2; buffer++)
        compare(b, buffer, ERG_COLLECTIVE_BF16, 0, stash.count, stash.expected, "two at once", 0);
    erg_cuda_stream_free(other.stream);
    erg_collective_close(other.collective);
    free_stash(&stash);
    printf("%s %s: two at once\n", gpu_failures > before ? "FAILED" : "ok    ", b->name);
}

/* ---- all of it ---- */

static struct bench open_bench(struct gpu_world *world, int first, int ranks,
                               enum erg_collective_method method)
{
    struct bench b = {.world = world,
                      .collective = gpu_connect(world, first, ranks, method, 30),
                      .first = first,
                      .ranks = ranks,
                      .rank = world->env.rank - first,
                      .name = method_names[method]};
    gpu_ok(erg_cuda_stream_new(&b.stream, true, &gpu_error));
    for (int i = 0; i < 2; i++)
        gpu_ok(erg_collective_buffer_init(&b.buffers[i], b.collective, ROOM, &gpu_error));
    return b;
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < 2; i++)
        gpu_ok(erg_collective_buffer_release(&b->buffers[i], b->collective, &gpu_error));
    erg_collective_close(b->collective);
    erg_cuda_stream_free(b->stream);
}

static void check_method(struct gpu_world *world, enum erg_collective_method method)
{
    struct bench b = open_bench(world, 0, world->env.world, method);
    check_sizes(&b);
    check_repeats(&b);
    check_beside(&b);
    check_two(&b);
    close_bench(&b);
    for (int ranks = 2; ranks < world->env.world; ranks *= 2) {
        b = open_bench(world, world->env.rank / ranks * ranks, ranks, method);
        check_sizes(&b);
        close_bench(&b);
    }
}

/* Its sums have their own order: close, not equal. */
static void check_library(struct gpu_world *world)
{
    enum { COUNT = 1000003 };
    struct erg_collective_options options = {.env = &world->env,
                                             .rendezvous = world->rendezvous,
                                             .ranks = world->ranks,
                                             .rank_count = world->env.world,
                                             .method = ERG_COLLECTIVE_LIBRARY};
    struct erg_collective *collective;
    if (erg_collective_open(&collective, &options, &gpu_error)) {
        printf("note: %s\n", gpu_error.message);
        return;
    }
    erg_collective_close(collective);
    struct bench b = open_bench(world, 0, world->env.world, ERG_COLLECTIVE_LIBRARY);
    struct erg_collective_part part = {&b.buffers[0], 0, COUNT, 0};
    float *expected = expected_sum(&b, ERG_COLLECTIVE_FLOAT, 0, COUNT);
    fill(&b, 0, ERG_COLLECTIVE_FLOAT, 0, COUNT, 0, COUNT);
    gpu_ok(erg_collective_prepare(b.collective, 4, &gpu_error));
    gpu_ok(erg_collective_all_reduce(b.collective, ERG_COLLECTIVE_FLOAT, &part, 4, b.stream,
                                     &gpu_error));
    finish(&b);
    gpu_near_float("all-reduce by the library", b.buffers[0].memory, expected, COUNT, 1e-5);
    free(expected);
    close_bench(&b);
}

/* All but the last rank call; it does not. */
static void check_absence(struct gpu_world *world)
{
    struct bench b = open_bench(world, 0, world->env.world, ERG_COLLECTIVE_PEER);
    struct erg_collective *impatient =
        gpu_connect(world, 0, world->env.world, ERG_COLLECTIVE_PEER, 0.5);
    struct erg_collective_part part = {&b.buffers[0], 0, 1000, 0};
    if (b.rank < b.ranks - 1) {
        gpu_ok(erg_collective_all_reduce(impatient, ERG_COLLECTIVE_BF16, &part, 4, b.stream,
                                         &gpu_error));
        int failed = erg_collective_wait(impatient, b.stream, &gpu_error);
        bool named = failed && strstr(gpu_error.message, "did not reach collective call 0");
        printf("%s a rank that does not come: %s\n", named ? "ok    " : "FAILED",
               failed ? gpu_error.message : "nobody noticed");
        gpu_failures += !named;
    }
    gpu_ok(erg_rendezvous_barrier(world->rendezvous, 30, &gpu_error));
    erg_collective_close(impatient);
    close_bench(&b);
}

/* The last rank dies while the others wait for it on their GPUs. */
static void die(struct gpu_world *world)
{
    struct bench b = open_bench(world, 0, world->env.world, ERG_COLLECTIVE_PEER);
    struct erg_collective_part part = {&b.buffers[0], 0, 1000, 0};
    signal(SIGTERM, SIG_IGN); /* to say what was seen before being ended */
    if (b.rank == b.ranks - 1)
        raise(SIGKILL);
    gpu_ok(erg_collective_all_reduce(b.collective, ERG_COLLECTIVE_BF16, &part, 4, b.stream,
                                     &gpu_error));
    int failed = erg_collective_wait(b.collective, b.stream, &gpu_error);
    printf("%s a rank that dies: %s\n", failed ? "ok    " : "FAILED",
           failed ? gpu_error.message : "nobody noticed");
    exit(1);
}

int main(int argc, char **argv)
{
    struct gpu_world world;
    (void)argv;
    if (!gpu_is_rank(&world)) {
        int ranks = gpu_rank_count(), status = gpu_run_ranks(ranks, NULL);
        if (status == 0 && gpu_run_ranks(ranks, "dies") != 128 + SIGKILL) {
            printf("FAILED a rank that dies: the cause was another\n");
            status = 1;
        }
        return status;
    }
    gpu_meet(&world);
    if (argc > 1)
        die(&world);
    check_method(&world, ERG_COLLECTIVE_PEER);
    check_library(&world);
    check_absence(&world);
    erg_rendezvous_close(world.rendezvous);
    return gpu_result();
}
