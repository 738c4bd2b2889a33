/* The layouts of the published study of power and heat on its clusters: which fit, how long they
 * take, and what they draw. */
#include "memory_world.h"

#include "layout/energy/candidate.h"
#include "layout/search/layout_search.h"
#include "program.h"

#define CLUSTERS ERGON_TEST_SOURCE_DIR "/data/clusters/"

/* Nodes of a cluster file, with the engine of the study. */
struct nodes {
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct erg_engine *engine;
};

/* `gpu` NULL: that of the cluster. */
static struct nodes open_nodes(const char *cluster, const char *gpu, const char *engine)
{
    struct erg_error err;
    struct nodes nodes;
    char path[500];
    snprintf(path, sizeof path, CLUSTERS "%s.yaml", cluster);
    assert_ok(erg_cluster_load(&nodes.cluster, path, &err), &err);
    assert_ok(erg_gpu_load(&nodes.gpu, gpu ? gpu : nodes.cluster->gpu, &err), &err);
    assert_ok(erg_engine_load(&nodes.engine, engine, &err), &err);
    return nodes;
}

static void close_nodes(struct nodes *nodes)
{
    erg_cluster_free(nodes->cluster);
    erg_gpu_free(nodes->gpu);
    erg_engine_free(nodes->engine);
}

static struct erg_layout_search search_on(const struct nodes *nodes, const struct erg_model *model,
                                          long sequence)
{
    struct erg_error err;
    struct erg_layout_search search = {
        .model = model,
        .kind_count = 1,
        .gpus = erg_cluster_gpus(nodes->cluster),
        .sequence = sequence,
        .batch_least = 128,
        .batch_most = 128,
        .recomputes = ERG_RECOMPUTE_ALL,
        .equal_stages = true,
        .top = 1,
    };
    assert_ok(erg_layout_kind_init(search.kinds, nodes->cluster, nodes->gpu, nodes->engine, &err),
              &err);
    return search;
}

static struct erg_layout layout_with(long tensor, long pipeline, long microbatch,
                                     enum erg_recompute recompute)
{
    return (struct erg_layout){.tensor = tensor,
                               .context = 1,
                               .pipeline = pipeline,
                               .virtual_stages = 1,
                               .microbatch = microbatch,
                               .recompute = recompute};
}

/* ---- which fit ---- */

static bool fits(const struct erg_layout_search *search, struct erg_layout layout)
{
    struct erg_error err;
    struct erg_layout_candidate found;
    struct erg_memory_result followed;
    const bool is_found = erg_layout_evaluate(&found, search, &layout, NULL, 0, &err) == 0;
    if (!is_found)
        assert_non_null(strstr(err.message, "GiB more than the 125.1 GiB of a GPU"));
    else
        erg_layout_candidate_release(&found);
    /* Followed, it does so, too. */
    layout.sequence = search->sequence;
    assert_ok(erg_layout_fill(&layout, search->gpus, 128, &err), &err);
    const struct erg_memory_request request =
        erg_memory_request_of(search->model, &layout, search->kinds[0].engine);
    assert_ok(erg_memory_simulate(&followed, &request, &err), &err);
    assert_int_equal(is_found,
                     followed.stages[followed.worst].peak_bytes <= search->kinds[0].memory_bytes);
    erg_memory_result_release(&followed);
    return is_found;
}

/* Microbatches of 1, 2, 4 and 8 sequences on 32 H200, 128 in all. */
static void map_of_memory(void **state)
{
    (void)state;
    struct nodes nodes = open_nodes("charllm-h200", "H200-SXM", "megatron-h800");
    const struct {
        const char *model;
        long sequence, tensor, pipeline;
        const char *plain, *recomputed; /* 1: it fits */
    } rows[] = {
        {"gpt3-175b", 2048, 2, 16, "0000", "1111"},
        {"gpt3-175b", 2048, 4, 8, "1000", "1111"},
        {"gpt3-175b", 2048, 8, 4, "1100", "1111"},
        {"gpt3-175b", 2048, 1, 32, "0000", "1110"},
        {"llama-3.3-70b", 8192, 8, 2, "1100", "1111"},
        {"llama-3.3-70b", 8192, 4, 4, "1000", "1111"},
        {"llama-3.3-70b", 8192, 2, 8, "0000", "1111"},
        {"llama-3.3-70b", 8192, 1, 16, "0000", "1110"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct erg_model *model = load_model(rows[i].model, 0);
        const struct erg_layout_search search = search_on(&nodes, model, rows[i].sequence);
        char found[2][5] = {"", ""};
        for (int full = 0; full < 2; full++)
            for (int k = 0; k < 4; k++)
                found[full][k] =
                    fits(&search, layout_with(rows[i].tensor, rows[i].pipeline, 1 << k,
                                              full ? ERG_RECOMPUTE_FULL : ERG_RECOMPUTE_NONE))
                        ? '1'
                        : '0';
        assert_string_equal(found[0], rows[i].plain);
        assert_string_equal(found[1], rows[i].recomputed);
        erg_model_free(model);
    }
    close_nodes(&nodes);
}

/* Of the same map some places as commands say it. */
static void map_by_commands(void **state)
{
    (void)state;
    char folder[] = "/tmp/ergon-study-XXXXXX", job[100], command[900];
    assert_non_null(mkdtemp(folder));
    snprintf(job, sizeof job, "%s/job.yaml", folder);
    FILE *file = fopen(job, "w");
    assert_non_null(file);
    fprintf(file, "model: gpt3-175b\ncluster: {nodes: 4, gpus_per_node: 8, gpu: H200-SXM,\n"
                  "  inter_node_bandwidth_gb_s: 12.5, adapters_per_node: 1}\n"
                  "engine: megatron-h800\ntensor: 8\ndata: 4\nfsdp: 4\nmicrobatch_size: 1\n"
                  "microbatches: 32\nsequence: 2048\nrecompute: full\n");
    fclose(file);
    const struct {
        const char *arguments;
        int exit_code;
        const char *part;
    } calls[] = {
        {"memory %s 2>&1", 0, "weights over 4 ranks (FSDP)"},
        {"memory %s -l t=8,p=4 -r none 2>&1", 0, "It fits"},
        {"memory %s -l t=8,p=4,b=4 -r none 2>&1", 3, "activations"},
        {"layout %s -l t=2,p=16 -r none 2>&1", 3, "GiB more than the 125.1 GiB of a GPU"},
        {"layout %s -l t=8,fsdp=4 -r full 2>&1", 0, "t=8,c=1,p=1,l=96,b=1,fsdp=4"},
        {"layout %s -l t=8,fsdp=4 -r full 2>&1", 0, "\nfsdp  "},
        {"layout %s -l t=8,p=2,fsdp=2 2>&1", 3, "fsdp 2 shards the layers of one stage"},
        {"layout %s -l t=8,fsdp=4 --export job", 0, "\nfsdp: 4\n"},
        {"optimize %s 2>&1", 2, "ergon optimize does not shard weights"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const char *name = strstr(calls[i].arguments, "%s");
        snprintf(command, sizeof command, "%.*s'%s'%s", (int)(name - calls[i].arguments),
                 calls[i].arguments, job, name + 2);
        check_program(command, calls[i].exit_code, calls[i].part);
    }
    file = fopen(job, "a");
    assert_non_null(file);
    fputs("lora: {rank: 32, targets: [qkv]}\n", file);
    fclose(file);
    snprintf(command, sizeof command, "memory '%s'", job);
    check_program(command, 0,
                  "\nall weights are frozen; training LoRA of rank 32 for qkv, 150994944 "
                  "parameters\n");
    snprintf(command, sizeof command, "layout '%s' -l t=8,p=4 -r full --json", job);
    check_program(command, 0, "\"parameters\": 150994944");
    snprintf(command, sizeof command, "optimize '%s' 2>&1", job);
    check_program(command, 2, "key 'lora': ergon optimize trains all weights, not adapters");
    unlink(job);
    rmdir(folder);
}

/* ---- time and energy ---- */

struct point {
    double time_s, energy_j, gpu_power_w;
};

/* As if each GPU had its share of the network, or with the one adapter of a node. */
static struct point point_of(const struct nodes *nodes, const char *name, long sequence,
                             long tensor, long pipeline, long microbatch, bool shares)
{
    struct erg_error err;
    struct erg_model *model = load_model(name, 0);
    struct erg_layout_search search = search_on(nodes, model, sequence);
    const struct erg_layout layout = layout_with(tensor, pipeline, microbatch, ERG_RECOMPUTE_FULL);
    struct erg_layout_candidate found;
    struct erg_layout_energy energy;
    if (shares)
        search.kinds[0].machine.adapter_gpus = 0;
    assert_ok(erg_layout_evaluate(&found, &search, &layout, NULL, 0, &err), &err);
    erg_layout_candidate_energy(&energy, &search, &found);
    erg_layout_candidate_release(&found);
    erg_model_free(model);
    return (struct point){energy.time_s, energy.total_j, energy.gpu_power_w};
}

/* With microbatches of 1, 2, 4 and 8 sequences GPT-3 takes longer on 16 stages, of which each waits
 * longer for the first, and on 4 stages GPUs draw less. */
static void microbatches(void **state)
{
    (void)state;
    struct nodes nodes = open_nodes("charllm-h200", "H200-SXM", "megatron-h800");
    const double seconds[] = {26.8, 28.9, 33.8, 43.9}, watts[] = {629, 631, 616, 579};
    double efficiency = INFINITY;
    for (int i = 0; i < 4; i++) {
        const struct point deep = point_of(&nodes, "gpt3-175b", 2048, 2, 16, 1 << i, true);
        const struct point one = point_of(&nodes, "gpt3-175b", 2048, 2, 16, 1 << i, false);
        const struct point wide = point_of(&nodes, "gpt3-175b", 2048, 8, 4, 1 << i, true);
        assert_near(deep.time_s, seconds[i], 0.05);
        assert_true(one.time_s < deep.time_s && one.time_s > 0.94 * deep.time_s);
        assert_near(wide.gpu_power_w, watts[i], 1);
        const double own = 128 / deep.time_s / (deep.energy_j / 1e6); /* samples / (s MJ) */
        assert_true(own < efficiency);
        efficiency = own;
    }
    close_nodes(&nodes);
}

/* Twice as many H100s take half to two thirds of the time, and more energy for a token. */
static void other_gpus(void **state)
{
    (void)state;
    struct nodes h200 = open_nodes("charllm-h200", "H200-SXM", "megatron-h800");
    struct nodes h100 = open_nodes("charllm-h100", "H100-SXM", "megatron-h800");
    const long degrees[][2] = {{8, 2}, {4, 4}, {2, 8}};
    double least[2] = {INFINITY, INFINITY}, most[2] = {0, 0};
    for (size_t i = 0; i < 3; i++) {
        const struct point few =
            point_of(&h200, "llama-3.3-70b", 8192, degrees[i][0], degrees[i][1], 1, true);
        const struct point many =
            point_of(&h100, "llama-3.3-70b", 8192, degrees[i][0], 2 * degrees[i][1], 1, true);
        assert_true(many.time_s / few.time_s > 0.5 && many.time_s / few.time_s < 0.65);
        least[0] = fmin(least[0], few.time_s);
        most[0] = fmax(most[0], few.time_s);
        least[1] = fmin(least[1], many.time_s);
        most[1] = fmax(most[1], many.time_s);
    }
    assert_near(most[0], 57.0, 0.05);
    assert_near(least[1], 27.6, 0.05);
    assert_near(most[1], 30.8, 0.05);
    const struct point own = point_of(&h200, "gpt3-175b", 2048, 2, 16, 1, true);
    const struct point other = point_of(&h100, "gpt3-175b", 2048, 2, 32, 1, true);
    assert_near(own.energy_j / 1e3, 508, 1);
    assert_near(other.energy_j / 1e3, 530, 1);
    close_nodes(&h200);
    close_nodes(&h100);
}

/* The dies of MI250s share the cap of their board, and models of 30 billion parameters fit. */
static void dies(void **state)
{
    (void)state;
    struct erg_error err;
    struct nodes nodes = open_nodes("charllm-mi250", NULL, "megatron-mi250");
    struct erg_model *model = load_model("llama3-30b", 0);
    const struct erg_layout_search search = search_on(&nodes, model, 2048);
    const struct erg_layout layout = layout_with(4, 4, 1, ERG_RECOMPUTE_FULL);
    struct erg_layout_candidate found;
    assert_int_equal(nodes.gpu->cap_group, 2);
    assert_close(erg_gpu_peak_flops(nodes.gpu), 181.05e12, 1e-4);
    assert_near(nodes.gpu->power_cap_w * nodes.gpu->cap_group, 500, 0);
    assert_near(nodes.gpu->board_link_bandwidth, 200e9, 0);
    assert_non_null(strstr(nodes.gpu->confidence, "nothing was measured"));
    assert_non_null(strstr(model->name, "assumed"));
    assert_near(erg_model_parameters(model), 29843380736.0, 0);
    assert_ok(erg_layout_evaluate(&found, &search, &layout, NULL, 0, &err), &err);
    assert_true(found.peak_bytes < 0.9 * 64 * 0x1p30);
    const struct point point = point_of(&nodes, "llama3-30b", 2048, 4, 4, 1, false);
    assert_true(point.gpu_power_w > nodes.gpu->static_power_w && point.gpu_power_w < 250);
    erg_layout_candidate_release(&found);
    erg_model_free(model);
    model = load_model("gpt3-175b", 0);
    const struct erg_layout_search large = search_on(&nodes, model, 2048);
    const struct erg_layout deep = layout_with(4, 8, 1, ERG_RECOMPUTE_FULL);
    assert_fails(erg_layout_evaluate(&found, &large, &deep, NULL, 0, &err), &err,
                 "more than the 57.6 GiB of a GPU");
    erg_model_free(model);
    close_nodes(&nodes);
}

/* The two dies of a board have 200 GB/s, others 50: tensor groups of two ranks use that, larger
 * ones and pairs of ranks that are two apart do not. */
static void twins_have_their_own_link(void **state)
{
    (void)state;
    struct nodes nodes = open_nodes("charllm-mi250", NULL, "megatron-mi250");
    struct erg_model *model = load_model("llama3-30b", 0);
    struct erg_layout_search search = search_on(&nodes, model, 2048);
    const struct erg_time_machine *machine = &search.kinds[0].machine;
    const struct erg_time_request request = {model, nodes.engine, machine};
    const double reached = nodes.engine->link_efficiency;
    assert_close(erg_time_group_bandwidth(&request, 1, 2, 32), reached * 200e9, 1e-12);
    assert_close(erg_time_group_bandwidth(&request, 1, 4, 32), reached * 50e9, 1e-12);
    assert_close(erg_time_group_bandwidth(&request, 2, 2, 32), reached * 50e9, 1e-12);
    /* All exposed, a forward pass sums 2 x 2048 x hidden x 2 bytes, half of them sent twice. */
    struct erg_time_parts parts[2];
    for (int twins = 0; twins < 2; twins++) {
        struct erg_layout layout = layout_with(2, 4, 1, ERG_RECOMPUTE_FULL);
        layout.sequence = 2048;
        layout.data = 4;
        search.kinds[0].machine.board_bandwidth = twins ? 200e9 : 0;
        erg_time_parts_of(&parts[twins], &request, &layout, 32);
    }
    const double latency_s = 2 * nodes.engine->collective_latency_s;
    const double exposed = nodes.engine->tensor_forward;
    assert_close((parts[1].forward[ERG_TIME_TENSOR] / exposed - latency_s) * 4,
                 parts[0].forward[ERG_TIME_TENSOR] / exposed - latency_s, 1e-9);
    assert_close(parts[1].forward[ERG_TIME_TENSOR] / exposed - latency_s,
                 2 * 2048 * (double)model->hidden * 2 / (reached * 200e9), 1e-9);
    erg_model_free(model);
    close_nodes(&nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_of_memory), cmocka_unit_test(map_by_commands),
        cmocka_unit_test(microbatches),  cmocka_unit_test(other_gpus),
        cmocka_unit_test(dies),          cmocka_unit_test(twins_have_their_own_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
