/*
 * Groups of the backend over peers' memory: sums, gathers, scatters and messages of one memory, in
 * place and elsewhere, at the same and at different places of the ranks' memories. All numbers are
 * small integers, so every order of sums gives the same bits.
 */
#include "gpu_ranks.h"

#include "device/cuda/cuda_group.h"

#include <string.h>

enum {
    COUNT = 4096 + 64, /* elements of a rank's part */
    AREAS = 4,         /* of all ranks' parts, in a rank's memory */
    ROUNDS = 40,
    STRIDE = (COUNT * 2 + 255) / 256 * 256, /* bytes from one buffer of messages to the other */
};

struct bench {
    struct gpu_world *world;
    struct erg_cuda_groups *groups;
    struct erg_cuda_group *all, *apart; /* one has windows that lie at other places */
    struct CUstream_st *stream, *other;
    char *memory;
    size_t bytes, rank, ranks;
    uint64_t seed;
};

static float value_of(const struct bench *b, size_t rank, size_t i)
{
    return (float)(int)(erg_hash_u64(b->seed * 64 + rank, i) % 17) - 8;
}

static void *area(const struct bench *b, size_t index)
{
    return b->memory + index * b->ranks * COUNT * sizeof(float);
}

static void put(void *values, size_t i, bool floats, float value)
{
    if (floats)
        ((float *)values)[i] = value;
    else
        ((erg_bf16 *)values)[i] = erg_bf16_round(value);
}

/* What an exchange reads on this rank: `count` elements from the rank's own row `first` on. */
static void fill(const struct bench *b, void *at, size_t count, size_t first, bool floats)
{
    const size_t size = floats ? 4 : 2;
    void *values = erg_xmalloc(count * size);
    for (size_t i = 0; i < count; i++)
        put(values, i, floats, value_of(b, b->rank, first + i));
    gpu_ok(erg_cuda_copy(at, values, count * size, b->stream, &gpu_error));
    gpu_ok(erg_cuda_stream_sync(b->stream, &gpu_error));
    free(values);
}

static void compare(const struct bench *b, const char *what, const void *at, const void *expected,
                    size_t bytes)
{
    gpu_ok(erg_cuda_groups_wait(b->groups, b->stream, &gpu_error));
    void *actual = gpu_download(at, bytes);
    if (memcmp(actual, expected, bytes) != 0) {
        printf("FAILED %s, %zu ranks, round %llu: other bits\n", what, b->ranks,
               (unsigned long long)b->seed);
        gpu_failures++;
    }
    free(actual);
    /* Nobody writes into this memory before it was compared. */
    gpu_ok(erg_rendezvous_barrier(b->world->rendezvous, 60, &gpu_error));
}

static void run(struct bench *b, struct erg_cuda_group *group, enum erg_exchange_kind kind,
                bool floats, size_t count, const void *from, void *to, int sms)
{
    struct erg_exchange exchange = {kind, floats, count, from, to, sms};
    gpu_ok(erg_rendezvous_barrier(b->world->rendezvous, 60, &gpu_error));
    gpu_ok(erg_cuda_group_exchange(b->groups, group, &exchange, b->stream, &gpu_error));
}

/* The sum over ranks of element i. */
static float sum_at(const struct bench *b, size_t i)
{
    float sum = 0;
    for (size_t r = 0; r < b->ranks; r++)
        sum += value_of(b, r, i);
    return sum;
}

static void check_collectives(struct bench *b, bool floats, bool in_place, int sms)
{
    const size_t size = floats ? 4 : 2, all = b->ranks * COUNT;
    char *own = (char *)area(b, 0) + b->rank * COUNT * size;
    void *expected = erg_xmalloc(all * size);
    b->seed++;
    for (size_t i = 0; i < all; i++)
        put(expected, i, floats, sum_at(b, i));
    fill(b, area(b, 0), all, 0, floats);
    void *to = in_place ? area(b, 0) : area(b, 1);
    run(b, b->all, ERG_EXCHANGE_ALL_REDUCE, floats, all, area(b, 0), to, sms);
    compare(b, "sum", to, expected, all * size);

    fill(b, area(b, 0), all, 0, floats);
    to = in_place ? own : area(b, 1);
    run(b, b->all, ERG_EXCHANGE_REDUCE_SCATTER, floats, COUNT, area(b, 0), to, sms);
    compare(b, "scatter", to, (char *)expected + b->rank * COUNT * size, COUNT * size);

    for (size_t i = 0; i < all; i++)
        put(expected, i, floats, value_of(b, i / COUNT, i % COUNT));
    void *from = in_place ? own : area(b, 1);
    fill(b, from, COUNT, 0, floats);
    run(b, b->all, ERG_EXCHANGE_ALL_GATHER, floats, COUNT, from, area(b, 0), sms);
    compare(b, "gather", area(b, 0), expected, all * size);
    free(expected);
}

/* A window begins in area 2, 256 bytes further on each rank than on the one before. */
static char *window_of(const struct bench *b)
{
    return (char *)area(b, 2) + b->rank * 256;
}

static void check_window(struct bench *b)
{
    float *expected = erg_xmalloc(COUNT * sizeof *expected);
    b->seed++;
    for (size_t i = 0; i < COUNT; i++)
        expected[i] = sum_at(b, i);
    fill(b, window_of(b), COUNT, 0, true);
    run(b, b->apart, ERG_EXCHANGE_ALL_REDUCE, true, COUNT, window_of(b), window_of(b), 0);
    compare(b, "sum of a window", window_of(b), expected, COUNT * sizeof *expected);
    free(expected);
}

/* Each of two ranks sends on one stream and receives on another; the buffers take turns. */
static void check_messages(struct bench *b, size_t turn)
{
    erg_bf16 *expected = erg_xmalloc(COUNT * sizeof *expected);
    const size_t count = 8 * (1 + erg_hash_u64(b->seed, 3) % (COUNT / 8));
    b->seed++;
    for (size_t i = 0; i < count; i++)
        expected[i] = erg_bf16_round(value_of(b, !b->rank, i));
    char *from = window_of(b) + turn % 2 * STRIDE;
    fill(b, from, count, 0, false);
    struct erg_exchange send = {ERG_EXCHANGE_SEND, false, count, from, NULL, 0};
    gpu_ok(erg_cuda_group_exchange(b->groups, b->apart, &send, b->other, &gpu_error));
    struct erg_exchange receive = {ERG_EXCHANGE_RECEIVE, false, count, NULL, area(b, 1), 0};
    gpu_ok(erg_cuda_group_exchange(b->groups, b->apart, &receive, b->stream, &gpu_error));
    compare(b, "message", area(b, 1), expected, count * sizeof *expected);
    gpu_ok(erg_cuda_groups_wait(b->groups, b->other, &gpu_error));
    free(expected);
}

static void open_bench(struct bench *b)
{
    b->bytes = AREAS * b->ranks * COUNT * sizeof(float) + 256 * b->ranks;
    b->memory = gpu_alloc(b->bytes);
    gpu_ok(erg_cuda_stream_new(&b->stream, true, &gpu_error));
    gpu_ok(erg_cuda_stream_new(&b->other, true, &gpu_error));
    b->groups = erg_cuda_groups_new(b->world->rendezvous);
    struct erg_cuda_group *none;
    erg_cuda_group_new(b->groups, &b->all, b->world->ranks, b->ranks);
    /* The first two ranks are in none of this call. */
    erg_cuda_group_new(b->groups, &none, b->world->ranks + 2, b->rank > 1 ? b->ranks - 2 : 0);
    erg_cuda_group_new(b->groups, &b->apart, b->world->ranks, b->ranks);
    erg_cuda_group_window(b->apart, window_of(b), STRIDE);
    gpu_ok(erg_cuda_groups_connect(b->groups, b->memory, b->bytes, 7, &gpu_error));
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
    struct bench b = {
        .world = &world, .rank = (size_t)world.env.rank, .ranks = (size_t)world.env.world};
    open_bench(&b);
    for (int i = 0; i < 8; i++)
        check_collectives(&b, i & 1, i & 2, i & 4 ? 3 : 0);
    check_window(&b);
    for (size_t i = 0; i < ROUNDS && b.ranks == 2; i++)
        check_messages(&b, i);
    printf("%s groups of %zu ranks\n", gpu_failures ? "FAILED" : "ok    ", b.ranks);
    erg_cuda_groups_disconnect(b.groups);
    erg_cuda_groups_free(b.groups);
    erg_cuda_free(b.memory);
    erg_rendezvous_close(world.rendezvous);
    return gpu_result();
}
