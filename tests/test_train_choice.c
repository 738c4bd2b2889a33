/*
 * When a device is asked to choose how it runs products: when a trainer is opened, once for each
 * product that the rank launches, rank after rank; never by a dry run or a question of memory, nor
 * where all runs are to have the same bits. The device is the host with a table that counts.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "rank_world.h"
#include "train_job.h"
#include "train_world.h"

#include "device/host/host.h"
#include "train/engine/rank_memory.h"
#include "train/run/run_memory.h"
#include "train/run/run_preview.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { WORLD = 4, MOST_PRODUCTS = 64, PRODUCTS_OF_A_LAYER = 12, PRODUCTS_OF_A_HEAD = 3 };

/* What the ranks of a run see of each other. */
static struct shared {
    atomic_int choosing, latest; /* ranks at it; the last one that was */
    atomic_int chosen[WORLD];    /* products */
} * shared;

static int own_rank;
static int failing_rank = -1;

/* ---- a table that counts ---- */

struct products {
    struct erg_kernel items[MOST_PRODUCTS];
    size_t count;
};
static struct products chosen, launched;
static const struct erg_backend_table *host_table;

static bool has(const struct products *products, const struct erg_kernel *kernel)
{
    for (size_t i = 0; i < products->count; i++) {
        const struct erg_kernel *other = &products->items[i];
        if (other->kind == kernel->kind && other->linear.tokens == kernel->linear.tokens &&
            other->linear.inputs == kernel->linear.inputs &&
            other->linear.outputs == kernel->linear.outputs)
            return true;
    }
    return false;
}

static bool is_linear(const struct erg_kernel *kernel)
{
    return kernel->kind == ERG_KERNEL_LINEAR || kernel->kind == ERG_KERNEL_LINEAR_INPUT_GRADIENT ||
           kernel->kind == ERG_KERNEL_LINEAR_WEIGHT_GRADIENT;
}

static void keep(struct products *products, const struct erg_kernel *kernel)
{
    assert_true(is_linear(kernel) && !has(products, kernel));
    assert_true(products->count < MOST_PRODUCTS);
    products->items[products->count++] = *kernel;
}

static int counting_choose(struct erg_backend *backend, const struct erg_kernel *kernel,
                           struct erg_error *err)
{
    (void)backend;
    assert_int_equal(atomic_fetch_add(&shared->choosing, 1), 0);
    assert_true(atomic_exchange(&shared->latest, own_rank) <= own_rank);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* others would come */
    keep(&chosen, kernel);
    atomic_fetch_add(&shared->chosen[own_rank], 1);
    atomic_fetch_sub(&shared->choosing, 1);
    return own_rank == failing_rank ? erg_fail(err, ERG_FAILED, "no product is to be found") : 0;
}

static int counting_launch(struct erg_backend *backend, const struct erg_kernel *kernel,
                           void *scratch, struct erg_stream *stream, struct erg_error *err)
{
    if (is_linear(kernel) && !has(&launched, kernel))
        keep(&launched, kernel);
    return host_table->launch(backend, kernel, scratch, stream, err);
}

/* ---- a rank ---- */

struct rank {
    struct erg_job *job;
    struct erg_backend *backend;
    struct erg_trainer_options options;
};

/* On four ranks there are two stages of two tensor ranks, of which the last has the head. */
static void open_rank(struct rank *rank, const struct erg_launch_environment *env,
                      struct erg_rendezvous *rendezvous, const char *keys)
{
    static struct erg_backend_table table;
    struct erg_text text = {0};
    struct erg_error err;
    const int world = env ? env->world : 1, degree = world == WORLD ? 2 : 1;
    own_rank = env ? env->rank : 0;
    chosen.count = launched.count = 0;
    erg_text_printf(&text,
                    "model: model\n"
                    "cluster: {nodes: 1, gpus_per_node: %d, gpu: A100-SXM4-40GB}\n"
                    "tensor: %d\npipeline: %d\n"
                    "microbatch_size: 2\nmicrobatches: 2\nsequence: 16\n"
                    "train:\n  data: [{file: tokens.bin}]\n"
                    "  updates: 10\n  learning_rate: 0.002\n%s",
                    world, degree, degree, keys);
    assert_ok(erg_job_parse(&rank->job, in_folder("job.yaml"), text.data, text.count, NULL, &err),
              &err);
    erg_text_release(&text);
    struct erg_host_options host = {.float32 = true, .rendezvous = rendezvous};
    assert_ok(erg_host_open(&rank->backend, &host, &err), &err);
    host_table = rank->backend->table;
    table = *host_table;
    table.choose = counting_choose;
    table.launch = counting_launch;
    rank->backend->table = &table;
    rank->options = (struct erg_trainer_options){.backend = rank->backend,
                                                 .job = rank->job,
                                                 .rank = own_rank,
                                                 .world = world,
                                                 .local_rank = own_rank,
                                                 .rendezvous = rendezvous};
}

static void close_rank(struct rank *rank)
{
    rank->backend->table->close(rank->backend);
    erg_job_free(rank->job);
}

/* Opens a trainer and takes a step. */
static void train(struct rank *rank)
{
    struct erg_error err;
    struct erg_trainer *trainer;
    struct erg_train_step step;
    assert_ok(erg_trainer_open(&trainer, &rank->options, &err), &err);
    assert_ok(erg_trainer_step(trainer, 0, &step, &err), &err);
    erg_trainer_close(trainer);
}

static void assert_chose_what_it_launched(void)
{
    assert_int_equal(chosen.count, launched.count);
    for (size_t i = 0; i < launched.count; i++)
        assert_true(has(&chosen, &launched.items[i]));
}

/* ---- tests ---- */

static void a_trainer_chooses_each_product_once(void **state)
{
    (void)state;
    struct rank rank;
    *shared = (struct shared){0};
    open_rank(&rank, NULL, NULL, "");
    train(&rank);
    assert_int_equal(chosen.count, PRODUCTS_OF_A_LAYER + PRODUCTS_OF_A_HEAD);
    assert_chose_what_it_launched();
    close_rank(&rank);
}

static void equal_bits_need_fixed_algorithms(void **state)
{
    (void)state;
    struct rank rank;
    open_rank(&rank, NULL, NULL, "  deterministic: true\n");
    train(&rank);
    assert_int_equal(chosen.count, 0);
    assert_true(launched.count > 0);
    close_rank(&rank);
}

static void questions_choose_nothing(void **state)
{
    (void)state;
    struct rank rank;
    struct erg_error err;
    struct erg_run_preview preview;
    struct erg_rank_memory memory;
    size_t most[ERG_RANK_ITEMS];
    open_rank(&rank, NULL, NULL, "");
    assert_ok(erg_run_preview_init(&preview, rank.job, rank.backend, "random", "float32", 10, &err),
              &err);
    erg_run_preview_release(&preview);
    assert_ok(erg_rank_memory_init(&memory, rank.job, rank.backend, 0, &err), &err);
    erg_rank_memory_release(&memory);
    const struct erg_run_memory_request request = {rank.job, rank.backend, 0, 1, NULL};
    assert_ok(erg_run_memory_check(&request, most, &err), &err);
    assert_ok(erg_trainer_check(&rank.options, &err), &err);
    assert_int_equal(chosen.count, 0);
    assert_int_equal(launched.count, 0);
    close_rank(&rank);
}

static void train_rank(const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    open_rank(&rank, env, rendezvous, "");
    train(&rank);
    assert_chose_what_it_launched();
    close_rank(&rank);
}

static void ranks_choose_in_turns(void **state)
{
    (void)state;
    *shared = (struct shared){0};
    run_ranks(WORLD, train_rank);
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(shared->chosen[rank],
                         PRODUCTS_OF_A_LAYER + (rank < 2 ? 0 : PRODUCTS_OF_A_HEAD));
}

static void fail_rank(const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous)
{
    struct rank rank;
    struct erg_error err;
    struct erg_trainer *trainer;
    open_rank(&rank, env, rendezvous, "");
    assert_int_equal(erg_trainer_open(&trainer, &rank.options, &err), -1);
    assert_int_equal(err.status, ERG_FAILED);
    assert_string_equal(err.message, env->rank ? "" : "no product is to be found");
    close_rank(&rank);
}

static void a_failure_on_one_rank_ends_all(void **state)
{
    (void)state;
    *shared = (struct shared){0};
    failing_rank = 1;
    run_ranks(WORLD, fail_rank);
    failing_rank = -1;
    assert_int_equal(shared->chosen[0], PRODUCTS_OF_A_LAYER);
    assert_int_equal(shared->chosen[1], 1);
    assert_int_equal(shared->chosen[2] + shared->chosen[3], 0);
}

static int make(void **state)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : make_job(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_chooses_each_product_once),
        cmocka_unit_test(equal_bits_need_fixed_algorithms),
        cmocka_unit_test(questions_choose_nothing),
        cmocka_unit_test(ranks_choose_in_turns),
        cmocka_unit_test(a_failure_on_one_rank_ends_all),
    };
    return cmocka_run_group_tests(tests, make, remove_folder);
}
