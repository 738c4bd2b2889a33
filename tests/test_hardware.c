/* The catalogue: every entry loads, its units are converted, wrong files are explained. */
#include "check.h"
#include "folder.h"

#include "base/memory.h"
#include "base/text.h"
#include "hardware/cluster_schema.h"
#include "hardware/hardware.h"
#include "io/file.h"

static void every_entry_loads(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_arena arena = {0};
    size_t gpus = 0, stacks = 0;
    for (const char *const *name = erg_data_names("gpus", &arena); *name; name++, gpus++) {
        struct erg_gpu *gpu;
        assert_ok(erg_gpu_load(&gpu, *name, &err), &err);
        assert_string_equal(erg_closest(gpu->name, (const char *[]){gpu->name, NULL}), gpu->name);
        assert_true(gpu->memory_bandwidth > 1e11 && gpu->memory_bandwidth < 1e14);
        assert_true(gpu->energy_per_flop_j > 1e-14 && gpu->energy_per_flop_j < 1e-11);
        erg_gpu_free(gpu);
    }
    for (const char *const *name = erg_data_names("stacks", &arena); *name; name++, stacks++) {
        struct erg_stack *stack;
        assert_ok(erg_stack_load(&stack, *name, &err), &err);
        erg_stack_free(stack);
    }
    assert_true(gpus >= 5);
    assert_true(stacks >= 2);
    erg_arena_release(&arena);
}

static void a_board_is_known_by_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *gpu, *board;
        bool same;
    } cases[] = {
        {"H200-SXM", "NVIDIA H200", true},
        {"H100-SXM", "NVIDIA H100 80GB HBM3", true},
        {"H100-SXM", "NVIDIA H200", false},
        {"H200-SXM", "NVIDIA GH200 480GB", false},
        {"H100-SXM", "NVIDIA H100 PCIe", false},
        {"H100-SXM", "NVIDIA H100 NVL", false},
        {"H100 NVL", "NVIDIA H100 NVL", true},
        {"A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", true},
        {"A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", false},
        {"A40", "NVIDIA A40", true},
        {"NVIDIA H200", "NVIDIA H200", true}, /* a file written for this very machine */
        {"mine", "NVIDIA H200", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *name = erg_xstrdup(cases[i].gpu);
        struct erg_gpu gpu = {.name = name};
        assert_int_equal(erg_gpu_is_board(&gpu, cases[i].board), cases[i].same);
        free(name);
    }
}

static void units_are_converted(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu *gpu;
    assert_ok(erg_gpu_load(&gpu, "a100-sxm4-40GB", &err), &err); /* case does not matter */
    assert_string_equal(gpu->name, "A100-SXM4-40GB");
    assert_int_equal(gpu->sms, 108);
    assert_close(gpu->memory_bandwidth, 1555e9, 1e-12);
    assert_close(gpu->memory_bytes, 40 * 0x1p30, 1e-12);
    assert_close(gpu->launch_gap_s, 6.6493e-6, 1e-12);
    assert_close(gpu->energy_per_wire_byte_j, 49.208e-12, 1e-12);
    assert_close(gpu->sensor_period_s, 0.1, 1e-12);
    assert_false(gpu->persistent_gemm);
    assert_int_equal((gpu->search_max_mhz - gpu->search_min_mhz) / gpu->search_step_mhz + 1, 18);
    erg_gpu_free(gpu);

    struct erg_stack *stack;
    assert_ok(erg_stack_load(&stack, "published-python", &err), &err);
    assert_close(stack->join_library_s, 355.31e-6, 1e-12);
    assert_close(stack->host_per_kernel_s, 127.6e-6, 1e-12);
    assert_close(stack->overhead, 0.067947, 1e-12);
    erg_stack_free(stack);
}

static const char *as_measured(const void *context, size_t member)
{
    return member == offsetof(struct erg_gpu, launch_gap_s) ? context : "else";
}

static void written_files_are_read_back(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu *gpu, *again;
    char path[128], *text;
    snprintf(path, sizeof path, "%s/written.yaml", folder);
    for (int i = 0; i < 2; i++) { /* without and with a persistent product */
        assert_ok(erg_gpu_load(&gpu, i ? "a40" : "h200-sxm", &err), &err);
        gpu->launch_gap_s = 3.25e-6;
        assert_ok(
            erg_gpu_write(gpu, path, "first line\nsecond line", as_measured, "measured", &err),
            &err);
        assert_ok(erg_gpu_load(&again, path, &err), &err);
        assert_true(erg_gpu_fingerprint(gpu) == erg_gpu_fingerprint(again));
        assert_string_equal(gpu->confidence, again->confidence);
        assert_int_equal(gpu->gemm_tile_n, again->gemm_tile_n);
        assert_int_equal(gpu->search_min_mhz, again->search_min_mhz);
        /* Stated for a boost clock below the highest, or what the SMs do at that. */
        assert_close(again->stated_flops, i ? erg_gpu_peak_flops(gpu) : 989.4e12, 1e-5);
        erg_gpu_free(again);
        erg_gpu_free(gpu);
    }
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "# first line\n# second line\n"));
    assert_non_null(strstr(text, "  launch_gap_us: 3.25"));
    assert_non_null(strstr(text, "# measured\n"));
    free(text);
    unlink(path);
}

static void numbers_are_moved_into_their_range(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu *gpu;
    assert_ok(erg_gpu_load(&gpu, "h200-sxm", &err), &err);
    uint64_t before = erg_gpu_fingerprint(gpu);
    erg_gpu_clamp(gpu);
    assert_true(erg_gpu_fingerprint(gpu) == before);
    gpu->comm_contention = 1.5;
    gpu->launch_gap_s = -1e-6;
    gpu->memory_efficiency = 2;
    erg_gpu_clamp(gpu);
    assert_near(gpu->comm_contention, 0.99, 1e-12);
    assert_near(gpu->launch_gap_s, 0, 0);
    assert_near(gpu->memory_efficiency, 1.5, 1e-12);
    erg_gpu_free(gpu);
}

static void drivers_names_find_their_gpu(void **state)
{
    (void)state;
    struct erg_arena arena = {0};
    assert_string_equal(erg_gpu_catalogue_name("NVIDIA A100-SXM4-80GB", &arena), "a100-sxm4-80gb");
    assert_string_equal(erg_gpu_catalogue_name("NVIDIA H100 80GB HBM3", &arena), "h100-sxm");
    assert_string_equal(erg_gpu_catalogue_name("NVIDIA A40", &arena), "a40");
    assert_string_equal(erg_gpu_catalogue_name("NVIDIA H200", &arena), "h200-sxm");
    assert_null(erg_gpu_catalogue_name("NVIDIA A4000 SXM4 80GB", &arena));
    /* As nvidia-smi names them. */
    static const char *const drivers[][2] = {
        {"NVIDIA H100 80GB HBM3", "H100-SXM"},
        {"nvidia a100-sxm4-80gb", "A100-SXM4-80GB"},
        {"NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"},
        {"NVIDIA A40", "A40"},
        {"NVIDIA H200", "H200-SXM"},
        {"NVIDIA H800", "H800-SXM-80GB"},
        {"H100-SXM", "H100-SXM"},
    };
    struct erg_error err;
    struct erg_gpu *gpu;
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        assert_ok(erg_gpu_load(&gpu, drivers[i][0], &err), &err);
        assert_string_equal(gpu->name, drivers[i][1]);
        erg_gpu_free(gpu);
    }
    assert_fails(erg_gpu_load(&gpu, "NVIDIA H100 NVL", &err), &err, "unknown GPU");
    assert_null(erg_gpu_catalogue_name("", &arena));
    erg_arena_release(&arena);
}

static void unknown_names_list_the_catalogue(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    assert_fails(erg_gpu_load(&gpu, "H200-SXN", &err), &err, "did you mean 'h200-sxm'");
    assert_fails(erg_gpu_load(&gpu, "TPU", &err), &err, "a100-sxm4-40gb, a100-sxm4-80gb, a40");
    assert_fails(erg_gpu_load(&gpu, "/nowhere/gpu.yaml", &err), &err, "/nowhere/gpu.yaml");
    assert_fails(erg_stack_load(&stack, "torch", &err), &err, "ergon, published-python");
}

/* The H200 file with one line replaced, as a file of its own. */
static const char *edited(const char *line_start, const char *replacement)
{
    static char path[256];
    struct erg_error err;
    struct erg_text out = {0};
    char *text, *source = erg_data_find("gpus", "h200-sxm");
    assert_non_null(source);
    assert_ok(erg_file_read(source, ERG_FILE_SMALL_BYTES, &text, NULL, &err), &err);
    char *at = strstr(text, line_start);
    assert_non_null(at);
    erg_text_add_bytes(&out, text, (size_t)(at - text));
    erg_text_add(&out, replacement);
    erg_text_add(&out, strchr(at, '\n'));
    snprintf(path, sizeof path, "%s/gpu.yaml", folder);
    assert_ok(erg_file_write(path, out.data, out.count, &err), &err);
    erg_text_release(&out);
    free(text);
    free(source);
    return path;
}

static void wrong_gpu_files_are_explained(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu *gpu;
    assert_fails(erg_gpu_load(&gpu, edited("  sms:", "  sms: many"), &err), &err,
                 "key 'datasheet.sms': expected a whole number, got 'many'");
    assert_fails(erg_gpu_load(&gpu, edited("  gemm_k0:", "  gem_k0: 64"), &err), &err,
                 "did you mean 'gemm_k0'");
    assert_fails(erg_gpu_load(&gpu, edited("  cap_w:", ""), &err), &err,
                 "the key 'power.cap_w' is missing");
    assert_fails(erg_gpu_load(&gpu, edited("  cap_w:", "  cap_w: 1"), &err), &err,
                 "key 'power.cap_w': no clock is low enough");
    assert_fails(erg_gpu_load(&gpu, edited("  flop_pj:", "  flop_pj: -1"), &err), &err,
                 "key 'power.flop_pj': expected a number from 0 to 1000, got -1");
    assert_fails(erg_gpu_load(&gpu, edited("  max_mhz:", "  max_mhz: 2500"), &err), &err,
                 "key 'search_clocks.max_mhz'");
    assert_fails(erg_gpu_load(&gpu, edited("  step_mhz:", "  step_mhz: 20"), &err), &err,
                 "multiple of the 15 MHz");
    assert_fails(erg_gpu_load(&gpu, edited("  leak_per_k:", "  leak_per_k: 0.1"), &err), &err,
                 "run away");
    assert_fails(erg_gpu_load(&gpu,
                              edited("  board_power_w:", "  board_power_w: 400\n"
                                                         "  board_link_bandwidth_gb_s: 900"),
                              &err),
                 &err, "expected it with a cap_group of at least 2");
    assert_ok(erg_gpu_load(&gpu, edited("  idle_w:", "  idle_w: 70"), &err), &err);
    assert_close(gpu->idle_power_w, 70, 0);
    erg_gpu_free(gpu);
    unlink(edited("  sms:", ""));
}

static int load_cluster(struct erg_cluster **cluster, const char *text, struct erg_error *err)
{
    char path[256];
    snprintf(path, sizeof path, "%s/cluster.yaml", folder);
    assert_ok(erg_file_write(path, text, strlen(text), err), err);
    int result = erg_cluster_load(cluster, path, err);
    unlink(path);
    return result;
}

static double cluster_adapters(const char *key)
{
    struct erg_error err;
    struct erg_cluster *cluster;
    char text[200];
    snprintf(text, sizeof text, "nodes: 1\ngpus_per_node: 8\ngpu: A40\n%s", key);
    assert_ok(load_cluster(&cluster, text, &err), &err);
    const double adapters = cluster->adapters_per_node;
    erg_cluster_free(cluster);
    return adapters;
}

static void clusters_are_checked(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_cluster *cluster;
    assert_ok(load_cluster(&cluster,
                           "nodes: 2\ngpus_per_node: 8\ngpu: A40\n"
                           "inter_node_bandwidth_gb_s: 50\ninter_node_latency_us: 20\n"
                           "shared_link_bandwidth_gb_s: 25\n",
                           &err),
              &err);
    assert_int_equal(cluster->nodes * cluster->gpus_per_node, 16);
    assert_string_equal(cluster->gpu, "A40");
    assert_close(cluster->inter_node_bandwidth, 50e9, 1e-12);
    assert_close(cluster->inter_node_latency_s, 20e-6, 1e-12);
    assert_near(cluster->intra_node_bandwidth, 0, 0);
    assert_close(cluster->shared_link_bandwidth, 25e9, 1e-12);
    erg_cluster_free(cluster);
    assert_near(cluster_adapters("adapters_per_node: 2\n"), 2, 0);
    assert_near(cluster_adapters(""), 0, 0);
    assert_fails(load_cluster(&cluster,
                              "nodes: 1\ngpus_per_node: 8\ngpu: A40\nadapters_per_node: 3\n", &err),
                 &err,
                 "cluster.yaml:4: key 'adapters_per_node': expected a number that divides the 8 "
                 "GPUs of a node, got 3");
    assert_fails(load_cluster(&cluster, "nodes: 1\ngpus_per_node: 8\ngpu: A41\n", &err), &err,
                 "cluster.yaml:3: key 'gpu': unknown GPU 'A41'");
    assert_fails(load_cluster(&cluster, "nodes: 2\ngpus_per_node: 8\ngpu: A40\n", &err), &err,
                 "cluster.yaml:1: key 'nodes': 2 nodes need the key 'inter_node_bandwidth_gb_s'");
    assert_fails(load_cluster(&cluster, "nodes: 0\ngpus_per_node: 8\ngpu: A40\n", &err), &err,
                 "key 'nodes': expected a number from 1");
    assert_fails(load_cluster(&cluster, "nodes: 1\ngpus_per_node: 8\n", &err), &err,
                 "the key 'gpu' is missing");
}

/* Nodes of another kind beside the first. */
static void clusters_may_be_mixed(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_cluster *cluster;
    assert_ok(load_cluster(&cluster,
                           "nodes: 1\ngpus_per_node: 8\ngpu: A40\ninter_node_bandwidth_gb_s: 25\n"
                           "more_nodes:\n  - nodes: 2\n    gpus_per_node: 4\n    gpu: H100-SXM\n"
                           "    engine: megatron-a100\n    inter_node_bandwidth_gb_s: 50\n"
                           "    host_memory_gib: 2\n",
                           &err),
              &err);
    assert_int_equal(cluster->more_count, 1);
    const struct erg_cluster *more = &cluster->more[0];
    assert_int_equal(more->nodes * more->gpus_per_node, 8);
    assert_string_equal(more->gpu, "H100-SXM");
    assert_string_equal(more->engine, "megatron-a100");
    assert_close(more->inter_node_bandwidth, 50e9, 1e-12);
    assert_close(more->host_memory_bytes, 0x1p31, 1e-12);
    erg_cluster_free(cluster);
    assert_fails(load_cluster(&cluster,
                              "nodes: 1\ngpus_per_node: 8\ngpu: A40\n"
                              "inter_node_bandwidth_gb_s: 25\nmore_nodes:\n  - nodes: 1\n"
                              "    gpus_per_node: 4\n    gpu: A40\n",
                              &err),
                 &err,
                 "cluster.yaml:6: key 'more_nodes[0].nodes': several kinds of nodes need the key");
    assert_fails(load_cluster(&cluster,
                              "nodes: 1\ngpus_per_node: 8\ngpu: A40\n"
                              "inter_node_bandwidth_gb_s: 25\nmore_nodes:\n  - nodes: 0\n"
                              "    gpus_per_node: 4\n    gpu: A40\n",
                              &err),
                 &err, "key 'more_nodes[0].nodes': expected a number from 1");
}

/* A cluster inside another file: messages carry the path of the key there. */
struct job {
    struct erg_cluster cluster;
};

static void clusters_can_be_embedded(void **state)
{
    (void)state;
    const cyaml_schema_field_t fields[] = {
        CYAML_FIELD_MAPPING("cluster", CYAML_FLAG_DEFAULT, struct job, cluster, erg_cluster_fields),
        CYAML_FIELD_END,
    };
    const cyaml_schema_value_t schema = {
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct job, fields),
    };
    const char *text = "cluster:\n  nodes: 1\n  gpus_per_node: 2000\n  gpu: A40\n";
    struct erg_error err;
    struct erg_yaml *yaml;
    void *value;
    assert_ok(erg_yaml_open_text(&yaml, "job.yaml", text, strlen(text), &err), &err);
    assert_ok(erg_yaml_read(yaml, &schema, &value, &err), &err);
    struct job *job = value;
    assert_fails(erg_cluster_finish(&job->cluster, yaml, "cluster", &err), &err,
                 "job.yaml:3: key 'cluster.gpus_per_node'");
    job->cluster.gpus_per_node = 8;
    assert_ok(erg_cluster_finish(&job->cluster, yaml, "cluster", &err), &err);
    erg_yaml_free(&schema, value);
    erg_yaml_close(yaml);
}

static void example_clusters_load(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    char *path = erg_data_find("clusters", "2x8-a100-sxm4-40gb");
    assert_non_null(path);
    assert_ok(erg_cluster_load(&cluster, path, &err), &err);
    assert_ok(erg_gpu_load(&gpu, cluster->gpu, &err), &err);
    erg_gpu_free(gpu);
    erg_cluster_free(cluster);
    free(path);
}

/* An H200's constants with an H100's datasheet; an A100 is of another architecture. */
static void a_gpu_takes_the_datasheet_of_another(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_gpu *h200, *h100, *a100;
    assert_ok(erg_gpu_load(&h200, "H200-SXM", &err), &err);
    assert_ok(erg_gpu_load(&h100, "H100-SXM", &err), &err);
    assert_ok(erg_gpu_load(&a100, "A100-SXM4-40GB", &err), &err);
    double flop_j = h200->energy_per_flop_j, cap_w = h200->power_cap_w;
    h100->board_power_w = 350;
    h100->clock_max_mhz = 1755;
    assert_ok(erg_gpu_take_datasheet(h200, h100, &err), &err);
    assert_near(h200->memory_bandwidth, 3350e9, 0);
    assert_near(h200->memory_bytes, 80 * 0x1p30, 0);
    assert_int_equal(h200->clock_max_mhz, 1755);
    assert_near(h200->power_cap_w, cap_w / 2, 1e-9);
    assert_near(h200->energy_per_flop_j, flop_j, 0);
    assert_string_equal(h200->name, "H200-SXM");
    assert_fails(erg_gpu_take_datasheet(a100, h100, &err), &err,
                 "taking the constants of A100-SXM4-40GB for H100-SXM: its SMs do 2048 FLOP per "
                 "clock, those of H100-SXM 4096; expected GPUs of one architecture");
    assert_int_equal(a100->sms, 108);
    erg_gpu_free(h200);
    erg_gpu_free(h100);
    erg_gpu_free(a100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_takes_the_datasheet_of_another),
        cmocka_unit_test(every_entry_loads),
        cmocka_unit_test(a_board_is_known_by_its_name),
        cmocka_unit_test(units_are_converted),
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(numbers_are_moved_into_their_range),
        cmocka_unit_test(drivers_names_find_their_gpu),
        cmocka_unit_test(unknown_names_list_the_catalogue),
        cmocka_unit_test(wrong_gpu_files_are_explained),
        cmocka_unit_test(clusters_are_checked),
        cmocka_unit_test(clusters_may_be_mixed),
        cmocka_unit_test(clusters_can_be_embedded),
        cmocka_unit_test(example_clusters_load),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
