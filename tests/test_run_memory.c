/*
 * A run that does not fit says the smallest change with which it would: the change of ergon memory,
 * by what the backend of the run takes, to the byte.
 */
#include "train_job.h"

#include "device/host/host.h"
#include "train/run/run_memory.h"

static struct erg_backend *backend;
static struct erg_backend_table table;
static size_t free_bytes;

static int memory_free(struct erg_backend *asked, size_t *bytes, struct erg_error *err)
{
    (void)asked;
    (void)err;
    *bytes = free_bytes;
    return 0;
}

/* A job on a node of so many GPUs. */
static struct erg_job *parse(const char *keys, int gpus)
{
    static const char base[] = "model: model\n"
                               "sequence: 16\n"
                               "train:\n"
                               "  data: [{file: tokens.bin}]\n"
                               "  updates: 12\n"
                               "  learning_rate: 0.01\n"
                               "  offload_least_bytes: 0\n";
    struct erg_text text = {0};
    struct erg_error err;
    struct erg_job *job;
    erg_text_printf(&text, "cluster: {nodes: 1, gpus_per_node: %d, gpu: A100-SXM4-40GB}\n%s%s",
                    gpus, keys, base);
    assert_ok(erg_job_parse(&job, in_folder("job.yaml"), text.data, text.count, NULL, &err), &err);
    erg_text_release(&text);
    return job;
}

/* The bytes that the largest rank takes with other keys. */
static size_t bytes_with(const char *keys, int gpus)
{
    struct erg_job *job = parse(keys, gpus);
    const size_t bytes = erg_run_memory_of(job, backend, &job->layout);
    assert_true(bytes > 0);
    erg_job_free(job);
    return bytes;
}

/* With so much memory the run is refused, and the sentence ends with `change`. */
static void refuses(const char *keys, int gpus, size_t bytes, const char *change)
{
    struct erg_job *job = parse(keys, gpus);
    const struct erg_run_memory_request request = {job, backend, 0, 1, NULL};
    size_t most[ERG_RANK_ITEMS];
    struct erg_error err;
    free_bytes = bytes;
    assert_fails(erg_run_memory_check(&request, most, &err), &err, change);
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_job_free(job);
}

#define BATCH(b, m) "microbatch_size: " b "\nmicrobatches: " m "\n"

static void on_one_gpu(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job = parse(BATCH("4", "4"), 1);
    const struct erg_run_memory_request request = {job, backend, 0, 1, NULL};
    size_t most[ERG_RANK_ITEMS];
    const size_t none = bytes_with(BATCH("4", "4"), 1);
    free_bytes = none;
    assert_ok(erg_run_memory_check(&request, most, &err), &err);
    erg_job_free(job);
    /* The least recomputation that is enough, then smaller microbatches: the largest of these. */
    refuses(BATCH("4", "4"), 1, none - 1, "; with recompute norms it would take ");
    refuses(BATCH("4", "4"), 1, bytes_with("recompute: balanced\n" BATCH("4", "4"), 1),
            "; with recompute balanced it would take ");
    refuses(BATCH("4", "4"), 1, bytes_with(BATCH("2", "8"), 1),
            "; with microbatch_size 2, microbatches 8 it would take ");
    refuses(BATCH("6", "2"), 1, bytes_with(BATCH("4", "3"), 1),
            "; with microbatch_size 4, microbatches 3 it would take ");
}

#define LEAST "recompute: full\noffload: 1\n"

static void on_more_gpus(void **state)
{
    (void)state;
    const size_t two = bytes_with("tensor: 2\n" LEAST BATCH("1", "16"), 2);
    assert_true(two < bytes_with(LEAST BATCH("1", "16"), 1));
    assert_true(two < bytes_with("data: 2\n" LEAST BATCH("1", "8"), 2));
    /* Data ranks are given up before there are more GPUs. */
    refuses("data: 2\n" LEAST BATCH("1", "8"), 2, two,
            "; with tensor 2, data 1, microbatches 16 it would take ");
    refuses(LEAST BATCH("1", "16"), 1, bytes_with("pipeline: 2\n" LEAST BATCH("1", "16"), 2),
            "; with pipeline 2, on 2 ranks, it would take ");
    refuses(LEAST BATCH("1", "16"), 1, 1000,
            "; no more recomputation, offloading, smaller microbatch or larger degree is enough");
    refuses("pipeline: 2\nlayers: [1, 1]\n" LEAST BATCH("1", "16"), 2, 1000,
            "; no more recomputation, offloading or smaller microbatch is enough");
}

/* Where ranks share the host's memory, neither offloading nor more ranks help. */
static void on_the_host(void **state)
{
    (void)state;
    const char keys[] = "recompute: full\n" BATCH("1", "16");
    backend->shares_memory = true;
    refuses(keys, 1, bytes_with(keys, 1) - 1,
            "; no more recomputation or smaller microbatch is enough");
    backend->shares_memory = false;
}

static int open_all(void **state)
{
    const struct erg_host_options options = {.float32 = true};
    struct erg_error err;
    if (make_job(state) != 0 || erg_host_open(&backend, &options, &err) != 0)
        return -1;
    table = *backend->table;
    table.memory_free = memory_free;
    backend->table = &table;
    backend->shares_memory = false;
    return 0;
}

static int close_all(void **state)
{
    backend->table->close(backend);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_gpu),
        cmocka_unit_test(on_more_gpus),
        cmocka_unit_test(on_the_host),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
