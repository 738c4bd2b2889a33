/* Bytes of every link of every GPU: published layouts, brute force over ranks, what is sent. */
#include "check.h"

#include "base/memory.h"
#include "characterize/links.h"

enum { NODE = 8 };

/* What a published engine does: bf16 gradients, norms on each rank's share of the tokens. */
static const struct erg_engine engine = {
    .fused_kernels = true, .sequence_parallel = true, .gradient_bytes = 4};

static struct erg_model *load(const char *name)
{
    struct erg_model *model;
    struct erg_error err;
    assert_ok(erg_model_load(&model, name, &err), &err);
    return model;
}

static struct erg_layout layout_of(const struct erg_model *model, const char *text, long gpus,
                                   long batch, long sequence)
{
    struct erg_layout layout = {.sequence = sequence};
    struct erg_error err;
    assert_ok(erg_layout_parse(&layout, text, model->layers, &err), &err);
    assert_ok(erg_layout_fill(&layout, gpus, batch, &err), &err);
    assert_ok(erg_layout_check(&layout, model, &err), &err);
    return layout;
}

static struct erg_links links_of(const struct erg_model *model, const struct erg_layout *layout)
{
    const struct erg_links_request request = {
        .model = model, .engine = &engine, .layout = layout, .node_gpus = NODE};
    struct erg_links links;
    erg_links_init(&links, &request);
    return links;
}

/* Mean over the GPUs of a stage, GB. */
static struct erg_link_bytes sent_gb(const struct erg_links *links, const struct erg_layout *layout,
                                     long stage, enum erg_link_kind kind)
{
    const long ranks = links->gpus / layout->pipeline;
    struct erg_link_bytes mean = {0};
    for (long rank = stage * ranks; rank < (stage + 1) * ranks; rank++) {
        mean.nvlink += links->gpu[rank].sent[kind].nvlink / 1e9 / (double)ranks;
        mean.network += links->gpu[rank].sent[kind].network / 1e9 / (double)ranks;
    }
    return mean;
}

static void published_dense_layouts(void **state)
{
    (void)state;
    const struct {
        const char *model, *layout;
        long sequence, stage;
        double tensor, pipeline_nvlink, pipeline_network, gradients_nvlink, gradients_network;
    } rows[] = {
        {"gpt3-175b", "t=8,p=4", 2048, 1, 1352.915, 0, 1.611, 0, 0},
        {"gpt3-175b", "t=4,p=8", 2048, 1, 579.821, 1.611, 1.611, 0, 0}, /* 1 hop of 2 leaves */
        {"gpt3-175b", "t=2,p=16", 2048, 1, 193.274, 6.442, 0, 0, 0},
        {"gpt3-175b", "t=2,p=16", 2048, 3, 193.274, 3.221, 3.221, 0, 0},
        {"llama-3.3-70b", "t=8,p=2", 8192, 0, 3006.477, 0, 1.074, 0, 8.557},
        {"llama-3.3-70b", "t=4,p=4", 8192, 1, 1288.490, 0, 4.295, 8.557, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct erg_model *model = load(rows[i].model);
        const struct erg_layout layout =
            layout_of(model, rows[i].layout, 32, 128, rows[i].sequence);
        struct erg_links links = links_of(model, &layout);
        const struct erg_link_bytes tensor =
            sent_gb(&links, &layout, rows[i].stage, ERG_LINK_TENSOR);
        const struct erg_link_bytes pipeline =
            sent_gb(&links, &layout, rows[i].stage, ERG_LINK_PIPELINE);
        struct erg_link_bytes gradients =
            sent_gb(&links, &layout, rows[i].stage, ERG_LINK_GRADIENTS);
        /* Every tensor rank holds norms whole; the table has its share of them. */
        const double norms =
            4 * 2 * (double)model->hidden *
            (double)erg_layout_stage_layers(&layout, model->layers, rows[i].stage) *
            (1 - 1 / (double)layout.tensor) * (double)(layout.data - 1) / (double)layout.data / 1e9;
        gradients.nvlink -= gradients.nvlink > 0 ? norms : 0;
        gradients.network -= gradients.network > 0 ? norms : 0;
        if (rows[i].stage == 0) { /* the table has those of layers alone */
            const double words = (double)erg_layout_vocabulary(model, layout.tensor);
            const double own = 4 * words * (double)model->hidden / (double)layout.tensor *
                               (double)(layout.data - 1) / (double)layout.data / 1e9;
            gradients.network -= gradients.network > 0 ? own : 0;
        }
        assert_near(tensor.nvlink, rows[i].tensor, 0.0005);
        assert_near(tensor.network, 0, 0);
        assert_near(pipeline.nvlink, rows[i].pipeline_nvlink, 0.0005);
        assert_near(pipeline.network, rows[i].pipeline_network, 0.0005);
        assert_near(gradients.nvlink, rows[i].gradients_nvlink, 0.0005);
        assert_near(gradients.network, rows[i].gradients_network, 0.0005);
        erg_links_release(&links);
        erg_model_free(model);
    }
}

/* ---- properties ---- */

static const struct {
    const char *model, *layout;
    long gpus, batch, sequence;
} spread[] = {
    {"gpt3-175b", "t=8,p=4", 32, 128, 2048},
    {"gpt3-175b", "t=4,p=8", 32, 128, 2048},
    {"gpt3-175b", "t=2,p=16", 32, 128, 2048},
    {"gpt3-175b", "p=32", 32, 128, 2048},
    {"llama-3.3-70b", "t=8,p=2", 32, 128, 8192},
    {"llama-3.3-70b", "t=2,p=8", 32, 128, 8192},
    {"llama-3.3-70b", "t=2,c=2,p=4,v=2", 64, 128, 8192},
    {"llama-3.3-70b", "t=4,p=5", 40, 128, 8192},
};

static void what_is_sent_is_received(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof spread / sizeof *spread; i++) {
        struct erg_model *model = load(spread[i].model);
        const struct erg_layout layout =
            layout_of(model, spread[i].layout, spread[i].gpus, spread[i].batch, spread[i].sequence);
        struct erg_links links = links_of(model, &layout);
        for (int kind = 0; kind < ERG_LINK_KINDS; kind++) {
            struct erg_link_bytes sent = {0}, received = {0};
            for (long rank = 0; rank < links.gpus; rank++) {
                sent.nvlink += links.gpu[rank].sent[kind].nvlink;
                sent.network += links.gpu[rank].sent[kind].network;
                received.nvlink += links.gpu[rank].received[kind].nvlink;
                received.network += links.gpu[rank].received[kind].network;
            }
            assert_close(received.nvlink, sent.nvlink, 1e-12);
            assert_close(received.network, sent.network, 1e-12);
        }
        erg_links_release(&links);
        erg_model_free(model);
    }
}

/* Every hop of every microbatch one by one, between the ranks' nodes; a hop crosses as
 * erg_layout_leaves_node() says of whole stages. */
static void messages_by_brute_force(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof spread / sizeof *spread; i++) {
        struct erg_model *model = load(spread[i].model);
        const struct erg_layout layout =
            layout_of(model, spread[i].layout, spread[i].gpus, spread[i].batch, spread[i].sequence);
        struct erg_links links = links_of(model, &layout);
        const long ranks = links.gpus / layout.pipeline;
        const long chunks = layout.pipeline * layout.virtual_stages;
        const double bytes = 2.0 * (double)(layout.microbatch * layout.sequence * model->hidden) /
                             (double)(layout.tensor * layout.context);
        struct erg_link_bytes *sent = erg_xcalloc((size_t)links.gpus, sizeof *sent);
        for (long rank = 0; rank < links.gpus; rank++)
            for (long microbatch = 0; microbatch < layout.microbatches; microbatch++)
                for (long own = rank / ranks; own < chunks; own += layout.pipeline)
                    for (long way = -1; way <= 1; way += 2) {
                        const long other = own + way;
                        if (other < 0 || other >= chunks)
                            continue;
                        const long peer = other % layout.pipeline * ranks + rank % ranks;
                        const bool leaves = rank / NODE != peer / NODE;
                        *(leaves ? &sent[rank].network : &sent[rank].nvlink) += bytes;
                        assert_true(!leaves || erg_layout_leaves_node(ranks, NODE, rank / ranks,
                                                                      peer / ranks));
                    }
        for (long rank = 0; rank < links.gpus; rank++) {
            assert_close(links.gpu[rank].sent[ERG_LINK_PIPELINE].nvlink, sent[rank].nvlink, 1e-12);
            assert_close(links.gpu[rank].sent[ERG_LINK_PIPELINE].network, sent[rank].network,
                         1e-12);
        }
        free(sent);
        erg_links_release(&links);
        erg_model_free(model);
    }
}

/* Ranks that are elsewhere: stages that would fill nodes lie across them. */
static void places_decide_what_leaves_a_node(void **state)
{
    (void)state;
    struct erg_model *model = load("llama-3.3-70b");
    const struct erg_layout layout = layout_of(model, "t=4,p=4", 32, 128, 8192);
    long places[32];
    for (long rank = 0; rank < 32; rank++) { /* replica 0 on nodes 0 and 1, replica 1 on 2 and 3 */
        const long stage = rank / 8, replica = rank / 4 % 2;
        places[rank] = replica * 16 + stage * 4 + rank % 4;
    }
    const struct erg_links_request request = {
        .model = model, .engine = &engine, .layout = &layout, .node_gpus = NODE, .places = places};
    struct erg_links links;
    erg_links_init(&links, &request);
    assert_near(sent_gb(&links, &layout, 1, ERG_LINK_GRADIENTS).nvlink, 0, 0);
    assert_near(sent_gb(&links, &layout, 1, ERG_LINK_GRADIENTS).network, 8.5575, 0.0005);
    assert_near(sent_gb(&links, &layout, 1, ERG_LINK_PIPELINE).nvlink, 4.295 / 2, 0.0005);
    assert_near(sent_gb(&links, &layout, 1, ERG_LINK_PIPELINE).network, 4.295 / 2, 0.0005);
    erg_links_release(&links);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_dense_layouts),
        cmocka_unit_test(what_is_sent_is_received),
        cmocka_unit_test(messages_by_brute_force),
        cmocka_unit_test(places_decide_what_leaves_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
