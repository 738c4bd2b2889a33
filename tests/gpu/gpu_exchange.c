/*
 * Gathers and scatters as context ranks exchange keys and values: shards of several pieces, in
 * ascending and descending order of ranks, whose own rows lie in a wider tensor. All numbers are
 * small integers, so every order of sums gives the same bits.
 */
#include "gpu_ranks.h"

#include <cuda_runtime_api.h>

enum {
    PIECES = 3,
    ROWS = 37,   /* of a shard of a piece */
    WIDTH = 24,  /* of a row */
    STRIDE = 56, /* from one row to the next in the wider tensor */
    COLUMN = 16, /* where the row begins there */
    OFFSET = 8,  /* in the buffer */
    COUNT = ROWS * WIDTH,
};

struct bench {
    struct gpu_world *world;
    struct erg_collective *collective;
    struct erg_collective_buffer buffer;
    struct CUstream_st *stream;
    size_t rank, ranks, seed;
    size_t whole, local; /* elements: of all pieces in the buffer, of the wider tensor */
    const char *name;
};

static float value_of(const struct bench *b, size_t rank, size_t i)
{
    return (float)(int)(erg_hash_u64(b->seed * 16 + rank, i) % 17) - 8;
}

/* Each piece has all low shards in the order of ranks, then all high ones in reverse. */
static size_t piece_stride(const struct bench *b)
{
    return 2 * b->ranks * COUNT;
}

struct owner {
    size_t rank, local; /* and where it has this element in its wider tensor */
};

static struct owner owner_of(const struct bench *b, size_t i)
{
    size_t piece = i / piece_stride(b), chunk = i % piece_stride(b) / COUNT, k = i % COUNT;
    size_t high = chunk >= b->ranks, row = (2 * piece + high) * ROWS + k / WIDTH;
    return (struct owner){high ? 2 * b->ranks - 1 - chunk : chunk,
                          row * STRIDE + COLUMN + k % WIDTH};
}

static erg_bf16 *poisoned(size_t count)
{
    erg_bf16 *values = erg_xmalloc(count * sizeof *values);
    memset(values, 0xff, count * sizeof *values);
    return values;
}

static void compare(const struct bench *b, const char *what, const void *memory,
                    const erg_bf16 *expected, size_t count, int sms)
{
    erg_bf16 *actual = gpu_download(memory, count * sizeof *actual);
    size_t bad = 0, first = 0;
    for (size_t i = count; i-- > 0;)
        if (actual[i] != expected[i])
            bad++, first = i;
    if (bad) {
        printf("FAILED %s %s on %d SMs: %zu of %zu differ, the first at %zu: %g, expected %g\n",
               b->name, what, sms, bad, count, first, (double)erg_bf16_float(actual[first]),
               (double)erg_bf16_float(expected[first]));
        gpu_failures++;
    }
    free(actual);
}

static void upload(void *memory, const erg_bf16 *values, size_t count)
{
    gpu_ok(erg_cuda_copy(memory, values, count * sizeof *values, NULL, &gpu_error));
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
}

static void fill_parts(const struct bench *b, struct erg_collective_shards parts[2], void *local)
{
    for (size_t high = 0; high < 2; high++)
        parts[high] = (struct erg_collective_shards){
            .buffer = &b->buffer,
            .offset = OFFSET + high * b->ranks * COUNT,
            .count = COUNT,
            .pieces = PIECES,
            .stride = piece_stride(b),
            .descending = high,
            .local = {(erg_bf16 *)local + high * ROWS * STRIDE + COLUMN, WIDTH, STRIDE},
            .local_rows = 2 * ROWS,
        };
}

static void finish(struct bench *b)
{
    gpu_ok(erg_collective_wait(b->collective, b->stream, &gpu_error));
}

static void check_gather(struct bench *b, int sms)
{
    struct erg_collective_shards parts[2];
    erg_bf16 *local = poisoned(b->local), *buffer = poisoned(OFFSET + b->whole + OFFSET);
    void *on_local = gpu_alloc(b->local * sizeof *local);
    size_t count = OFFSET + b->whole + OFFSET;
    b->seed++;
    upload(b->buffer.memory, buffer, count);
    for (size_t i = 0; i < b->whole; i++) {
        struct owner owner = owner_of(b, i);
        erg_bf16 value = erg_bf16_round(value_of(b, owner.rank, i));
        buffer[OFFSET + i] = value;
        if (owner.rank == b->rank)
            local[owner.local] = value;
    }
    upload(on_local, local, b->local);
    fill_parts(b, parts, on_local);
    gpu_ok(erg_collective_all_gather(b->collective, ERG_COLLECTIVE_BF16, parts, 2, sms, b->stream,
                                     &gpu_error));
    finish(b);
    compare(b, "gather", b->buffer.memory, buffer, count, sms);
    compare(b, "source of a gather", on_local, local, b->local, sms);
    erg_cuda_free(on_local);
    free(local), free(buffer);
}

static void check_scatter(struct bench *b, int sms)
{
    struct erg_collective_shards parts[2];
    erg_bf16 *local = poisoned(b->local), *buffer = poisoned(OFFSET + b->whole);
    void *on_local = gpu_alloc(b->local * sizeof *local); /* of poison */
    b->seed++;
    for (size_t i = 0; i < b->whole; i++) {
        struct owner owner = owner_of(b, i);
        float sum = 0;
        for (size_t rank = 0; rank < b->ranks; rank++)
            sum += value_of(b, rank, i);
        buffer[OFFSET + i] = erg_bf16_round(value_of(b, b->rank, i));
        if (owner.rank == b->rank)
            local[owner.local] = erg_bf16_round(sum);
    }
    upload(b->buffer.memory, buffer, OFFSET + b->whole);
    fill_parts(b, parts, on_local);
    gpu_ok(erg_collective_reduce_scatter(b->collective, ERG_COLLECTIVE_BF16, parts, 2, sms,
                                         b->stream, &gpu_error));
    finish(b);
    compare(b, "scatter", on_local, local, b->local, sms);
    erg_cuda_free(on_local);
    free(local), free(buffer);
}

static void check_method(struct gpu_world *world, enum erg_collective_method method)
{
    bool library = method == ERG_COLLECTIVE_LIBRARY;
    struct bench b = {.world = world,
                      .collective = gpu_connect(world, 0, world->env.world, method, 30),
                      .rank = (size_t)world->env.rank,
                      .ranks = (size_t)world->env.world,
                      .name = library ? "library" : "ours"};
    static const int budgets[] = {1, 2, 3, 7, 16, 32};
    int before = gpu_failures;
    b.whole = PIECES * piece_stride(&b);
    b.local = (size_t)PIECES * 2 * ROWS * STRIDE;
    gpu_ok(erg_cuda_stream_new(&b.stream, true, &gpu_error));
    gpu_ok(erg_collective_buffer_init(&b.buffer, b.collective,
                                      (OFFSET + b.whole + OFFSET) * sizeof(erg_bf16), &gpu_error));
    gpu_ok(erg_collective_prepare(b.collective, library ? 0 : 1, &gpu_error));
    for (size_t i = 0; i < (library ? 1 : sizeof budgets / sizeof *budgets); i++) {
        check_gather(&b, library ? 0 : budgets[i]);
        check_scatter(&b, library ? 0 : budgets[i]);
    }
    printf("%s %s, %d ranks: exchange of rows\n", gpu_failures > before ? "FAILED" : "ok    ",
           b.name, world->env.world);
    gpu_ok(erg_collective_buffer_release(&b.buffer, b.collective, &gpu_error));
    erg_collective_close(b.collective);
    erg_cuda_stream_free(b.stream);
}

static void check_refusals(struct gpu_world *world)
{
    struct erg_collective *c = gpu_connect(world, 0, world->env.world, ERG_COLLECTIVE_PEER, 30);
    struct erg_collective_buffer buffer;
    gpu_ok(erg_collective_buffer_init(&buffer, c, 4096, &gpu_error));
    struct erg_collective_shards odd = {.buffer = &buffer, .count = 12, .pieces = 2, .stride = 100};
    struct erg_collective_shards long_one = {
        .buffer = &buffer, .count = 8, .pieces = 3, .stride = 1024};
    bool refused =
        erg_collective_all_gather(c, ERG_COLLECTIVE_BF16, &odd, 1, 4, NULL, &gpu_error) &&
        erg_collective_all_gather(c, ERG_COLLECTIVE_BF16, &long_one, 1, 4, NULL, &gpu_error);
    printf("%s pieces that are not vectors, or too long\n", refused ? "ok    " : "FAILED");
    gpu_failures += !refused;
    gpu_ok(erg_collective_buffer_release(&buffer, c, &gpu_error));
    erg_collective_close(c);
}

int main(void)
{
    struct gpu_world world;
    int gpus = 0;
    if (!gpu_is_rank(&world)) { /* also with ranks that share a GPU */
        if (erg_cuda_count(&gpus, &gpu_error) || gpus == 0) {
            printf("skipped: no GPU here (%s)\n", gpu_error.message);
            return GPU_SKIPPED;
        }
        int status = gpu_run_ranks(2, NULL);
        return gpu_run_ranks(4, NULL) || status;
    }
    gpu_meet(&world);
    gpu_ok(erg_cuda_count(&gpus, &gpu_error));
    check_method(&world, ERG_COLLECTIVE_PEER);
    if (gpus >= world.env.world)
        check_method(&world, ERG_COLLECTIVE_LIBRARY);
    check_refusals(&world);
    erg_rendezvous_close(world.rendezvous);
    return gpu_result();
}
