/* job/: stages on several kinds of GPU, read, checked and written. */
#include "check.h"

#include "base/text.h"
#include "job/job.h"

/* Three stages of four GPUs, two of them on A100s. */
#define MIXED                                                                                      \
    "model: llama-3.2-3b\n"                                                                        \
    "cluster:\n"                                                                                   \
    "  nodes: 2\n"                                                                                 \
    "  gpus_per_node: 4\n"                                                                         \
    "  gpu: A100-SXM4-80GB\n"                                                                      \
    "  inter_node_bandwidth_gb_s: 50\n"                                                            \
    "  more_nodes:\n"                                                                              \
    "    - nodes: 1\n"                                                                             \
    "      gpus_per_node: 4\n"                                                                     \
    "      gpu: H800-SXM-80GB\n"                                                                   \
    "      intra_node_bandwidth_gb_s: 160\n"                                                       \
    "      inter_node_bandwidth_gb_s: 100\n"                                                       \
    "tensor: 4\n"                                                                                  \
    "pipeline: 3\n"                                                                                \
    "stage_gpus: [A100-SXM4-80GB, h800-sxm-80gb, A100-SXM4-80GB]\n"                                \
    "microbatch_size: 8\n"                                                                         \
    "microbatches: 8\n"                                                                            \
    "sequence: 4096\n"

/* MIXED with a part replaced. */
static int parse_mixed(struct erg_job **job, const char *part, const char *replacement,
                       const struct erg_job_overrides *overrides, struct erg_error *err)
{
    const char *at = strstr(MIXED, part);
    struct erg_text text = {0};
    assert_non_null(at);
    erg_text_add_bytes(&text, MIXED, (size_t)(at - MIXED));
    erg_text_add(&text, replacement);
    erg_text_add(&text, at + strlen(part));
    int result = erg_job_parse(job, "job.yaml", text.data, text.count, overrides, err);
    erg_text_release(&text);
    return result;
}

static void stages_lie_on_gpus_of_several_kinds(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job;
    assert_ok(parse_mixed(&job, "", "", NULL, &err), &err);
    assert_int_equal(job->kind_count, 2);
    assert_ptr_equal(job->gpu, job->kinds[0].gpu);
    assert_string_equal(job->kinds[1].gpu->name, "H800-SXM-80GB");
    assert_near(job->kinds[1].gpu->link_bandwidth, 160e9, 0);
    assert_int_equal(job->kinds[1].nodes->gpus_per_node, 4);
    for (size_t s = 0; s < 3; s++)
        assert_int_equal(job->stage_kind[s], s == 1);
    erg_job_free(job);
    /* Where a layout is yet to be chosen, its stages may lie anywhere. */
    const struct erg_job_overrides any = {.any_layout = true};
    assert_ok(parse_mixed(&job, "stage_gpus: [A100-SXM4-80GB, h800-sxm-80gb, A100-SXM4-80GB]\n", "",
                          &any, &err),
              &err);
    erg_job_free(job);
}

static void stages_and_gpus_have_to_match(void **state)
{
    (void)state;
    static const struct {
        const char *part, *replacement, *message;
    } cases[] = {
        {"h800-sxm-80gb", "H100-SXM",
         "job.yaml:15: key 'stage_gpus[1]': no nodes of the cluster have the GPU 'H100-SXM'; "
         "expected A100-SXM4-80GB or H800-SXM-80GB"},
        {"h800-sxm-80gb, ", "",
         "job.yaml:15: key 'stage_gpus': expected 3 entries, one for each stage, got 2"},
        {"h800-sxm-80gb", "A100-SXM4-80GB",
         "job.yaml:3: key 'cluster.nodes': there are 8 A100-SXM4-80GB (2 nodes x 4), but tensor 4 "
         "x "
         "context 1 x data 1 x 3 stages on them makes 12"},
        {"[A100-SXM4-80GB, h", "[h800-sxm-80gb, h",
         "job.yaml:3: key 'cluster.nodes': there are 8 A100-SXM4-80GB (2 nodes x 4), but tensor 4 "
         "x "
         "context 1 x data 1 x 1 stage on them makes 4"},
        {"- nodes: 1", "- nodes: 2",
         "job.yaml:8: key 'cluster.more_nodes[0].nodes': there are 8 H800-SXM-80GB (2 nodes x 4), "
         "but tensor 4 x context 1 x data 1 x 1 stage on them makes 4"},
        {"- nodes: 1\n      gpus_per_node: 4", "- nodes: 2\n      gpus_per_node: 2",
         "job.yaml:9: key 'cluster.more_nodes[0].gpus_per_node': tensor 4 x context 1 makes groups "
         "of 4 GPUs, which do not fill nodes of 2 evenly"},
        {"stage_gpus: [A100-SXM4-80GB, h800-sxm-80gb, A100-SXM4-80GB]\n", "",
         "job.yaml:8: key 'cluster.more_nodes': the nodes are of several kinds; expected the key "
         "'stage_gpus'"},
        {"gpu: H800-SXM-80GB", "gpu: A100-SXM4-80GB",
         "job.yaml:10: key 'cluster.more_nodes[0].gpu': other nodes have A100-SXM4-80GB, too"},
        {"gpu: H800-SXM-80GB", "gpu: H801-SXM-80GB",
         "job.yaml:10: key 'cluster.more_nodes[0].gpu': "},
        {"gpu: H800-SXM-80GB", "gpu: H800-SXM-80GB\n      chassis: hgx-8-ear",
         "job.yaml:11: key 'cluster.more_nodes[0].chassis': unknown chassis 'hgx-8-ear'"},
        {"gpu: A100-SXM4-80GB\n", "gpu: A100-SXM4-80GB\n  chassis: hgx-8-air\n",
         "job.yaml:6: key 'cluster.chassis': expected a chassis of the 4 GPUs of a node, hgx-8-air "
         "has 8 slots"},
        {"gpu: H800-SXM-80GB", "gpu: H800-SXM-80GB\n      engine: megatronn",
         "job.yaml:11: key 'cluster.more_nodes[0].engine': "},
        {"tensor: 4", "engine: megatron-kwai-a100\noffload: 0.2\ntensor: 4",
         "job.yaml:14: key 'offload': the cost of copies to host memory depends on the engine"},
        {"  more_nodes:\n    - nodes: 1\n      gpus_per_node: 4\n      gpu: H800-SXM-80GB\n      "
         "intra_node_bandwidth_gb_s: 160\n      inter_node_bandwidth_gb_s: 100\n",
         "", "job.yaml:9: key 'stage_gpus': all nodes of the cluster are of one kind"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err = {0};
        struct erg_job *job;
        int result = parse_mixed(&job, cases[i].part, cases[i].replacement, NULL, &err);
        if (result == 0 || !strstr(err.message, cases[i].message))
            fail_msg("case %zu said \"%s\", expected \"%s\"", i, result ? err.message : "nothing",
                     cases[i].message);
    }
}

/* Nodes stay as they are, and the last one may have GPUs that are not used; kinds without stages
 * are left out, and what trains on the first that is left is the job's engine. */
static void layouts_are_written_with_their_kinds(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job, *again;
    const struct erg_job_overrides any = {.any_layout = true};
    const char *const gpus[] = {"A100-SXM4-80GB", "H800-SXM-80GB"};
    const size_t both[] = {1, 0, 0, 0}, one[] = {1, 1, 1, 1};
    const struct erg_layout spread = {.tensor = 2,
                                      .context = 1,
                                      .pipeline = 4,
                                      .data = 1,
                                      .virtual_stages = 1,
                                      .microbatch = 2,
                                      .microbatches = 8,
                                      .sequence = 4096};
    struct erg_job_change change = {
        .layout = &spread, .vocabulary = 128256, .stage_kind = both, .kind_gpus = gpus};
    assert_ok(parse_mixed(&job, "gpu: H800-SXM-80GB",
                          "gpu: H800-SXM-80GB\n      engine: megatron-kwai-h800", &any, &err),
              &err);
    for (int i = 0; i < 2; i++) {
        struct erg_text text = {0};
        change.stage_kind = i ? one : both;
        erg_job_write(&text, job, &change);
        assert_ok(erg_job_parse(&again, "again.yaml", text.data, text.count, NULL, &err), &err);
        assert_int_equal(again->kind_count, i ? 1 : 2);
        assert_string_equal(again->gpu->name, gpus[i]);
        assert_near(again->kinds[0].nodes->inter_node_bandwidth, i ? 100e9 : 50e9, 0);
        if (i) {
            assert_int_equal(again->cluster.nodes, 2);
            assert_int_equal(erg_cluster_gpus(&again->cluster), 8);
            assert_string_equal(again->engine->name, "megatron-kwai-h800");
        } else {
            assert_int_equal(again->cluster.nodes, 2);
            assert_int_equal(again->cluster.gpus_per_node, 4);
            assert_int_equal(erg_cluster_gpus(&again->cluster), 6);
            assert_int_equal(again->kinds[1].nodes->nodes, 1);
            assert_int_equal(again->kinds[1].nodes->gpus_per_node, 4);
            assert_int_equal(erg_cluster_gpus(again->kinds[1].nodes), 2);
            assert_null(again->engine);
            assert_string_equal(again->kinds[1].engine->name, "megatron-kwai-h800");
            for (size_t s = 0; s < 4; s++)
                assert_int_equal(again->stage_kind[s], both[s]);
        }
        erg_job_free(again);
        erg_text_release(&text);
    }
    erg_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_lie_on_gpus_of_several_kinds),
        cmocka_unit_test(stages_and_gpus_have_to_match),
        cmocka_unit_test(layouts_are_written_with_their_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
