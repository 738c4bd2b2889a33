/* The estimator: operations and layers of small models counted by hand, times worked out from
 * limits and tables with round numbers, and what it says when it cannot. */
#include "check.h"
#include "estimator.h"

#define SMALL_TRANSFORMER                                                                          \
    "{family: t, size: s, half_precision: true, layers: 1, hidden: 4, heads: 2, sequence: 8, "     \
    "vocabulary: 16, ffn_factor: 4}"

static const char estimator_text[] =
    "constants:\n"
    "  matmul_efficiency: 0.5\n  convolution_efficiency: 0.25\n  memory_efficiency: 1\n"
    "  convolution_rows: 100\n  scaling_loss: 0.5\n  kernel_us: 1\n"
    "memory_fraction: 0.5\n"
    "devices:\n"
    "  - {type: x, half_tflops: 0.02, full_tflops: 0.01, memory_bandwidth_gb_s: 1, memory_mib: 2}\n"
    "models:\n"
    "  - " SMALL_TRANSFORMER "\n"
    "  - {family: t, size: huge, half_precision: true, layers: 1, hidden: 4000, heads: 2, "
    "sequence: 8, vocabulary: 16, ffn_factor: 4}\n";

static const char tables_text[] =
    "gpu_type,num_nodes,gpus_per_node,infiniband,op,group_size,hosts_crossed,elements,time_s\n"
    "x,1,2,0,send,2,1,16,0.5\n"
    "x,1,2,0,all-reduce,2,1,16,0.001\n"
    "x,1,2,0,all-reduce,2,1,128,0.004\n"
    "x,1,4,0,all-reduce,4,1,128,0.006\n";

static void write_file(char *path, const char *text)
{
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
}

struct world {
    struct estimator *estimator;
    struct comm_tables *tables;
};

static int open_world(void **state)
{
    static struct world world;
    char estimator_path[] = "/tmp/ergon-estimator-XXXXXX", tables_path[] = "/tmp/ergon-comm-XXXXXX";
    struct erg_error err;
    write_file(estimator_path, estimator_text);
    write_file(tables_path, tables_text);
    assert_ok(estimator_load(&world.estimator, estimator_path, &err), &err);
    assert_ok(comm_tables_load(&world.tables, tables_path, &err), &err);
    unlink(estimator_path);
    unlink(tables_path);
    *state = &world;
    return 0;
}

static int close_world(void **state)
{
    struct world *world = *state;
    estimator_free(world->estimator);
    comm_tables_free(world->tables);
    return 0;
}

/* FLOPs, traffic and weights of the small transformer, s h = 32:
 * embedding 96 elements, 64 weights; norm 64; QKV 768 FLOPs, 128, 48; scores 512, 64 + 128;
 * softmax 2 x 64 x 3; values 512, 192; projection 256, 64, 16; residual 96; norm 64;
 * 2 x (1024, 160, 64) with 256 between; residual 96; head 1024 FLOPs, 160; loss 8 x 16 x 3. */
static const double small_flops = 768 + 512 + 512 + 256 + 2048 + 1024;
static const double small_traffic =
    96 + 64 + 128 + 192 + 384 + 192 + 64 + 96 + 64 + 320 + 256 + 96 + 544;
static const double small_weights = 64 + 48 + 16 + 128;
static const double small_ops = 15;

static void test_operations_of_a_transformer(void **state)
{
    struct world *world = *state;
    struct erg_grid_ops ops;
    struct erg_grid_layer layers[3];
    family_ops(&world->estimator->models[0], &ops);
    assert_int_equal(ops.count, small_ops);
    assert_int_equal(erg_grid_cut_layers(&ops, layers, 1), 1);
    assert_near(layers[0].matmul_flops, small_flops, 0);
    assert_near(layers[0].traffic, small_traffic, 0);
    assert_near(layers[0].weights, small_weights, 0);
    assert_near(layers[0].reduced, 64, 0); /* after the projection and the second linear */
    assert_near(layers[0].reductions, 2, 0);
    /* Two blocks: attention (2048 FLOPs) with the embedding, and the rest. */
    assert_int_equal(erg_grid_cut_layers(&ops, layers, 3), 2);
    assert_near(layers[0].matmul_flops, 2048, 0);
    assert_near(layers[0].weights, 64 + 48 + 16, 0);
    assert_near(layers[0].output, 32, 0);
    assert_near(layers[1].input, 32, 0);
    struct erg_grid_layer both = erg_grid_join_layers(layers, 0, 2);
    assert_near(both.traffic, small_traffic, 0);
    assert_near(both.output, 8 * 16, 0);
    free(ops.items);
}

static const char catalogue[] = ERGON_TEST_SOURCE_DIR "/research/estimator.yaml";

static double weights_of(const char *family, const char *size, double *flops)
{
    struct estimator *estimator;
    const struct family_model *model;
    struct erg_grid_ops ops;
    struct erg_grid_layer layer;
    struct erg_error err;
    assert_ok(estimator_load(&estimator, catalogue, &err), &err);
    assert_ok(estimator_model(estimator, family, size, &model, &err), &err);
    family_ops(model, &ops);
    erg_grid_cut_layers(&ops, &layer, 1);
    free(ops.items);
    estimator_free(estimator);
    *flops = layer.matmul_flops + layer.convolution_flops;
    return layer.weights + layer.expert_weights;
}

/* Models are as large as they are called, and a known network has the FLOPs it is known for. */
static void test_catalogue_models(void **state)
{
    (void)state;
    static const struct {
        const char *family, *size;
        double weights;
    } known[] = {{"bert", "760M", 760e6},        {"bert", "6.7B", 6.7e9},
                 {"bert", "39B", 39e9},          {"moe", "690M", 690e6},
                 {"moe", "10B", 10e9},           {"moe", "70B", 70e9},
                 {"wide_resnet", "500M", 500e6}, {"wide_resnet", "4B", 4e9},
                 {"wide_resnet", "6.8B", 6.8e9}, {"wide_resnet", "13B", 13e9}};
    double flops;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_close(weights_of(known[i].family, known[i].size, &flops), known[i].weights, 0.07);
    /* 12 h^2 a layer and V h once: 2 x 1024 x (24 x 12 x 1536^2 + 51200 x 1536) in products of
     * weights, 2 x 2 x 1024^2 x 1536 a layer in attention. */
    weights_of("bert", "760M", &flops);
    assert_near(
        flops,
        2.0 * 1024 * (24.0 * 12 * 1536 * 1536 + 51200.0 * 1536) + 24.0 * 4 * 1024 * 1024 * 1536, 1);
    /* The plain network of 50 layers (64 channels, width 1) has 4.09 GMAC at 224 x 224; its
     * weights without biases and norms are 25.5 million with 1000 classes. */
    long blocks[] = {3, 4, 6, 3};
    struct family_model plain = {.blocks = blocks,
                                 .blocks_count = 4,
                                 .channels = 64,
                                 .width_factor = 1,
                                 .image = 224,
                                 .classes = 1000};
    struct erg_grid_ops ops;
    struct erg_grid_layer layer;
    family_ops(&plain, &ops);
    erg_grid_cut_layers(&ops, &layer, 1);
    free(ops.items);
    assert_close(layer.convolution_flops + layer.matmul_flops, 2 * 4.09e9, 0.005);
    assert_close(layer.weights, 25.5e6, 0.002);
}

static void test_splits_evenly(void **state)
{
    (void)state;
    const double weights[] = {4, 1, 1, 1, 1, 4};
    size_t first[4];
    erg_grid_split(weights, 6, 3, first); /* 4, 4, 4 */
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], 1);
    assert_int_equal(first[2], 5);
    assert_int_equal(first[3], 6);
    erg_grid_split(weights, 6, 1, first);
    assert_int_equal(first[1], 6);
}

static void test_one_gpu(void **state)
{
    struct world *world = *state;
    const struct estimator_job job = {"t", "s", 32}; /* microbatches of 2 */
    const struct erg_allocation one = {"x", 1, 1, false};
    struct erg_grid_estimate estimate;
    struct erg_error err;
    assert_ok(estimator_fastest(world->estimator, world->tables, &job, &one, &estimate, &err),
              &err);
    /* 0.5 x 20 GFLOP/s and 1 GB/s, 2 bytes an element. */
    double pass = 2 * small_flops / 10e9 + 2 * small_traffic * 2 / 1e9 + small_ops * 1e-6;
    double weights = small_weights * 2 / 1e9;
    assert_close(estimate.time.total_s,
                 16 * (pass + weights + 3 * pass + 5 * weights) + 7 * weights, 1e-12);
    assert_near(estimate.time.intra_s, 0, 0);
    assert_int_equal(estimate.plan.stages, 1);
    /* Four tensors of weights; of two samples what the second block gets, and all outputs of that
     * block, which has more: 32 + 128 + 128 + 32 + 32 + 128 + 128. */
    assert_near(estimate.memory_bytes, 2 * (4 * small_weights + 2 * (32 + 608)), 0);
}

static void test_two_gpus(void **state)
{
    struct world *world = *state;
    const struct estimator_job job = {"t", "s", 16};
    const struct erg_allocation two = {"x", 1, 2, false};
    struct erg_grid_plan tensor = {1, {0, 2}, {{1, 2}}};
    struct erg_grid_plan stages = {2, {0, 1, 2}, {{1, 1}, {1, 1}}};
    struct erg_grid_estimate estimate;
    struct erg_error err;
    assert_ok(estimator_plan(world->estimator, world->tables, &job, &two, &tensor, false, &estimate,
                             &err),
              &err);
    /* Two sums of 32 elements in 2 bytes: 16 of fp32, 1 ms each; twice that in backward. */
    assert_close(estimate.time.intra_s, 16 * (2 * 1e-3 + 2 * 2 * 1e-3), 1e-12);
    /* One send of 32 elements: 0.5 s, of each microbatch both ways; the other stage sends nothing
     * on: 15 x 0.5 + 0.5, twice. */
    assert_ok(estimator_plan(world->estimator, world->tables, &job, &two, &stages, false, &estimate,
                             &err),
              &err);
    assert_close(estimate.time.inter_s, 2 * 16 * 0.5, 1e-12);
    /* Replicas of half a sample are none, so the fastest plan is one stage of two GPUs. */
    assert_ok(estimator_fastest(world->estimator, world->tables, &job, &two, &estimate, &err),
              &err);
    assert_int_equal(estimate.plan.stages, 1);
    assert_int_equal(estimate.plan.shapes[0].tensor, 2);
    struct erg_text text = {0};
    erg_grid_plan_text(&estimate.plan, &text);
    assert_string_equal(text.data, "0_1::1_2");
    erg_text_release(&text);
    /* Two samples a microbatch: replicas, whose gradients are 128 elements of fp32: 4 ms. */
    const struct estimator_job larger = {"t", "s", 32};
    assert_ok(estimator_fastest(world->estimator, world->tables, &larger, &two, &estimate, &err),
              &err);
    assert_int_equal(estimate.plan.shapes[0].data, 2);
    assert_close(estimate.time.intra_s, 4e-3, 1e-12);
}

/* Four GPUs of one node, a sample each: sqrt 2 times the computation of one GPU, but its weights.
 */
static void test_scaling_loss(void **state)
{
    struct world *world = *state;
    const struct estimator_job job = {"t", "s", 64};
    const struct erg_allocation four = {"x", 1, 4, false};
    const struct erg_grid_plan plan = {1, {0, 2}, {{4, 1}}};
    struct erg_grid_estimate estimate;
    struct erg_error err;
    assert_ok(
        estimator_plan(world->estimator, world->tables, &job, &four, &plan, false, &estimate, &err),
        &err);
    double pass = small_flops / 10e9 + small_traffic * 2 / 1e9 + small_ops * 1e-6;
    double weights = small_weights * 2 / 1e9;
    assert_close(estimate.time.compute_s, 16 * (4 * sqrt(2) * pass + 6 * weights) + 7 * weights,
                 1e-12);
}

static void test_unknown_results(void **state)
{
    struct world *world = *state;
    struct estimator_job job = {"t", "huge", 16};
    struct erg_allocation gpus = {"x", 1, 2, false};
    struct erg_grid_estimate estimate;
    struct erg_error err;
    assert_fails(estimator_fastest(world->estimator, world->tables, &job, &gpus, &estimate, &err),
                 &err, "t huge does not fit on 1 x 2 x");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    job.size = "s";
    const struct erg_grid_plan three = {1, {0, 3}, {{1, 2}}};
    assert_fails(estimator_plan(world->estimator, world->tables, &job, &gpus, &three, false,
                                &estimate, &err),
                 &err, "expected a plan of its 2 layers, got one of 3");
    gpus.nodes = 2;
    assert_fails(estimator_fastest(world->estimator, world->tables, &job, &gpus, &estimate, &err),
                 &err, "was measured in 2 x 2 x");
    gpus.nodes = 3;
    assert_fails(estimator_fastest(world->estimator, world->tables, &job, &gpus, &estimate, &err),
                 &err, "powers of two");
    job.batch = 8;
    gpus.nodes = 1;
    assert_fails(estimator_fastest(world->estimator, world->tables, &job, &gpus, &estimate, &err),
                 &err, "expected a batch of at least 16 samples");
    job.family = "u";
    assert_fails(estimator_fastest(world->estimator, world->tables, &job, &gpus, &estimate, &err),
                 &err, "does not know the model u s, but t s, t huge");
    job.family = "t";
    gpus.gpu_type = "y";
    assert_fails(estimator_fastest(world->estimator, world->tables, &job, &gpus, &estimate, &err),
                 &err, "does not know the GPU type y, but x");
}

static void check_refused(const char *text, const char *part)
{
    char path[] = "/tmp/ergon-estimator-XXXXXX";
    struct estimator *estimator;
    struct erg_error err;
    write_file(path, text);
    assert_fails(estimator_load(&estimator, path, &err), &err, part);
    unlink(path);
}

static void test_refuses_wrong_files(void **state)
{
    (void)state;
    char text[sizeof estimator_text];
    memcpy(text, estimator_text, sizeof text);
    memcpy(strstr(text, "ffn_factor: 4"), "ffn_factor: 0", 13);
    check_refused(text, "key 'models[0]': expected either layers, hidden");
    memcpy(text, estimator_text, sizeof text);
    memcpy(strstr(text, "matmul_efficiency: 0.5"), "matmul_efficiency: 1.5", 22);
    check_refused(text, "constants.matmul_efficiency");
    struct estimator *estimator;
    struct erg_error err;
    assert_fails(estimator_load(&estimator, "nobody.yaml", &err), &err, "nobody.yaml");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations_of_a_transformer),
        cmocka_unit_test(test_catalogue_models),
        cmocka_unit_test(test_splits_evenly),
        cmocka_unit_test(test_one_gpu),
        cmocka_unit_test(test_two_gpus),
        cmocka_unit_test(test_scaling_loss),
        cmocka_unit_test(test_unknown_results),
        cmocka_unit_test(test_refuses_wrong_files),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
