/*
 * Collectives against their SM budget, beside NCCL with as many CTAs: the sums of tensor ranks, and
 * the exchange of context ranks, of 4 sequences with 8 heads of keys and values beside 24 of
 * queries (for NCCL with the copies that it needs). Bus bandwidth in GB/s, which is the bytes that
 * each GPU must receive over NVLink, whatever the method, by the time. For an all-reduce of S bytes
 * on n GPUs that is 2 (n - 1) / n S, for a gather or scatter (n - 1) / n S. Each number is the
 * median of ROUNDS batches; all data is put back before each batch.
 */
#include "gpu_ranks.h"

enum { ROUNDS = 7, BATCH = 10, WARM_UP = 3 };

enum what { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER };

struct bench {
    struct gpu_world *world;
    struct erg_collective *collective;
    struct erg_collective_buffer buffers[2];
    struct CUstream_st *stream;
    struct CUevent_st *start, *end;
    void *values;   /* to put back */
    erg_bf16 *rows; /* of queries, keys and values */
    size_t bytes;   /* of a buffer */
};

enum { SEQUENCES = 4, QUERIES = 24 * 128, KEYS = 8 * 128, ROW = QUERIES + 2 * KEYS };

/* Keys and values, each of the low and of the high chunks. */
static void fill_exchange(const struct bench *b, size_t count, struct erg_collective_shards *parts)
{
    size_t ranks = (size_t)b->world->env.world;
    size_t rows = count / 2 / SEQUENCES / 2 / ranks / KEYS; /* of a chunk */
    for (size_t i = 0; i < 4; i++) {
        size_t which = i / 2, high = i % 2;
        parts[i] = (struct erg_collective_shards){
            .buffer = &b->buffers[0],
            .offset = which * count / 2 + high * ranks * rows * KEYS,
            .count = rows * KEYS,
            .pieces = SEQUENCES,
            .stride = 2 * ranks * rows * KEYS,
            .descending = high,
            .local = {b->rows + high * rows * ROW + QUERIES + which * KEYS, KEYS, ROW},
            .local_rows = 2 * rows,
        };
    }
}

static void call(struct bench *b, enum what what, size_t bytes, int sms)
{
    size_t count = bytes / 2;
    struct erg_collective_part whole = {&b->buffers[0], 0, count, 0};
    struct erg_collective_shards parts[4];
    fill_exchange(b, count, parts);
    if (what == ALL_REDUCE)
        gpu_ok(erg_collective_all_reduce(b->collective, ERG_COLLECTIVE_BF16, &whole, sms, b->stream,
                                         &gpu_error));
    else
        gpu_ok((what == ALL_GATHER ? erg_collective_all_gather : erg_collective_reduce_scatter)(
            b->collective, ERG_COLLECTIVE_BF16, parts, 4, sms, b->stream, &gpu_error));
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* GB/s; the same on all ranks up to noise. */
static double measure(struct bench *b, enum what what, size_t bytes, int sms)
{
    double ms[ROUNDS], ranks = b->world->env.world;
    gpu_ok(erg_collective_prepare(b->collective, sms, &gpu_error));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++)
            gpu_ok(erg_cuda_copy(b->buffers[i].memory, b->values, b->bytes, b->stream, &gpu_error));
        for (int i = 0; i < WARM_UP; i++)
            call(b, what, bytes, sms);
        gpu_ok(erg_cuda_event_record(b->start, b->stream, &gpu_error));
        for (int i = 0; i < BATCH; i++)
            call(b, what, bytes, sms);
        gpu_ok(erg_cuda_event_record(b->end, b->stream, &gpu_error));
        gpu_ok(erg_collective_wait(b->collective, b->stream, &gpu_error));
        gpu_ok(erg_cuda_event_ms(&ms[round], b->start, b->end, &gpu_error));
    }
    qsort(ms, ROUNDS, sizeof *ms, compare_doubles);
    double passes = what == ALL_REDUCE ? 2 : 1;
    return passes * (ranks - 1) / ranks * (double)bytes / (ms[ROUNDS / 2] / BATCH * 1e-3) * 1e-9;
}

static struct bench open_bench(struct gpu_world *world, enum erg_collective_method method)
{
    struct bench b = {.world = world,
                      .collective = gpu_connect(world, 0, world->env.world, method, 30),
                      .bytes = 104857600};
    struct erg_rng rng;
    gpu_ok(erg_cuda_stream_new(&b.stream, true, &gpu_error));
    gpu_ok(erg_cuda_event_new(&b.start, true, &gpu_error));
    gpu_ok(erg_cuda_event_new(&b.end, true, &gpu_error));
    for (int i = 0; i < 2; i++)
        gpu_ok(erg_collective_buffer_init(&b.buffers[i], b.collective, b.bytes, &gpu_error));
    erg_rng_seed(&rng, (uint64_t)world->env.rank);
    erg_bf16 *values = gpu_random(&rng, b.bytes / 2 / 64, 1e-4);
    b.values = gpu_alloc(b.bytes);
    for (size_t i = 0; i < 64; i++)
        gpu_ok(erg_cuda_copy((char *)b.values + i * (b.bytes / 64), values, b.bytes / 64, NULL,
                             &gpu_error));
    /* Local rows hold half of what is in the buffer of two ranks, beside as many of queries. */
    b.rows = gpu_alloc(b.bytes / 2 / (2 * KEYS) * ROW);
    gpu_ok(erg_cuda_fill(b.rows, 0, b.bytes / 2 / (2 * KEYS) * ROW, NULL, &gpu_error));
    gpu_ok(erg_cuda_stream_sync(NULL, &gpu_error));
    free(values);
    return b;
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < 2; i++)
        gpu_ok(erg_collective_buffer_release(&b->buffers[i], b->collective, &gpu_error));
    erg_collective_close(b->collective);
    erg_cuda_event_free(b->start), erg_cuda_event_free(b->end);
    erg_cuda_stream_free(b->stream);
    erg_cuda_free(b->values);
    erg_cuda_free(b->rows);
}

static bool has_library(struct gpu_world *world)
{
    struct erg_collective_options options = {.env = &world->env,
                                             .rendezvous = world->rendezvous,
                                             .ranks = world->ranks,
                                             .rank_count = world->env.world,
                                             .method = ERG_COLLECTIVE_LIBRARY};
    struct erg_collective *collective;
    if (erg_collective_open(&collective, &options, &gpu_error)) {
        if (world->env.rank == 0)
            printf("no comparison: %s\n", gpu_error.message);
        return false;
    }
    erg_collective_close(collective);
    return true;
}

int main(void)
{
    static const struct {
        const char *name;
        enum what what;
        size_t bytes;
    } rows[] = {
        {"all-reduce, 100 MB", ALL_REDUCE, 100000000},
        {"all-reduce, 25 MB", ALL_REDUCE, 25000000},
        {"all-reduce, 1 MB", ALL_REDUCE, 1048576},
        {"gather K and V, 105 MB", ALL_GATHER, 104857600},
        {"scatter K and V, 105 MB", REDUCE_SCATTER, 104857600},
    };
    static const char *const names[] = {"ours", "NCCL"};
    static const int budgets[] = {1, 2, 4, 8, 12, 16, 24, 32};
    struct gpu_world world;
    /* Its sums inside the switch would be another comparison, and need multicast. */
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (!gpu_is_rank(&world))
        return gpu_run_ranks(gpu_rank_count(), NULL);
    gpu_meet(&world);
    bool use[] = {true, has_library(&world)};
    bool prints = world.env.rank == 0;
    if (prints) {
        printf("bus bandwidth in GB/s, bf16\n%-24s %-7s", "SMs", "");
        for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
            printf("%7d", budgets[i]);
        printf("\n");
    }
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int method = ERG_COLLECTIVE_PEER; method <= ERG_COLLECTIVE_LIBRARY; method++) {
            if (!use[method])
                continue;
            struct bench b = open_bench(&world, (enum erg_collective_method)method);
            if (prints)
                printf("%-24s %-7s", rows[r].name, names[method]);
            for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
                double rate = measure(&b, rows[r].what, rows[r].bytes, budgets[i]);
                if (prints)
                    printf("%7.1f", rate);
            }
            if (prints)
                printf("\n");
            close_bench(&b);
        }
    erg_rendezvous_close(world.rendezvous);
    return 0;
}
