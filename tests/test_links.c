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

/* Mean over all GPUs of a layout of one kind, GB. */
static struct erg_link_bytes all_gb(const struct erg_links *links, enum erg_link_kind kind)
{
    const struct erg_layout one = {.pipeline = 1};
    return sent_gb(links, &one, 0, kind);
}

static void published_mixtures(void **state)
{
    (void)state;
    const struct {
        const char *model, *layout;
        double tensor, expert_tensor, all_nvlink, all_network, pipeline;
        double gradients, leaving; /* of layers; the share that leaves a node */
        double expert_gradients;
    } rows[] = {
        {"mixtral-8x22b", "e=8,p=4", 0, 0, 78.920, 0, 1.611, 4.319, 0, 0},
        {"mixtral-8x22b", "e=8,t=2,p=2", 56.371, 90.194, 33.823, 45.097, 0.403, 4.319, 0.25, 0},
        {"mixtral-8x22b", "e=8,t=4", 169.114, 270.583, 11.274, 67.646, 0, 4.319, 0.5, 0},
        {"mixtral-8x7b", "e=8", 0, 0, 30.065, 0, 0, 5.206, 0.125, 16.911},
        {"mixtral-8x7b", "e=4,t=2", 21.475, 34.360, 25.770, 0, 0, 2.519, 0.25, 16.911},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct erg_model *model = load(rows[i].model);
        const struct erg_layout layout = layout_of(model, rows[i].layout, 32, 128, 4096);
        struct erg_links links = links_of(model, &layout);
        const double group = (double)layout.data, tensor = (double)layout.tensor;
        const double h = (double)model->hidden;
        const long stage = layout.pipeline > 2 ? 1 : 0;
        struct erg_link_bytes gradients = sent_gb(&links, &layout, stage, ERG_LINK_GRADIENTS);
        /* The table has no embedding and no head, and of norms and the router a tensor rank's
         * share, though each holds them whole. */
        const double held = (double)erg_layout_stage_layers(&layout, model->layers, stage);
        const double whole = held * (2 * h + h * (double)model->experts.count) * (1 - 1 / tensor);
        const double words = (double)erg_layout_vocabulary(model, layout.tensor) * h / tensor;
        const double ends =
            stage > 0 ? 0 : words * (layout.pipeline == 1 ? 2 : 1) + (layout.pipeline == 1 ? h : 0);
        const double own = 4 * (group - 1) / group * (whole + ends) / 1e9;
        assert_near(all_gb(&links, ERG_LINK_TENSOR).nvlink, rows[i].tensor, 0.0005);
        assert_near(all_gb(&links, ERG_LINK_EXPERT_TENSOR).nvlink, rows[i].expert_tensor, 0.0005);
        assert_near(all_gb(&links, ERG_LINK_ALL_TO_ALL).nvlink, rows[i].all_nvlink, 0.0005);
        assert_near(all_gb(&links, ERG_LINK_ALL_TO_ALL).network, rows[i].all_network, 0.0005);
        assert_near(sent_gb(&links, &layout, stage, ERG_LINK_PIPELINE).network, rows[i].pipeline,
                    0.0005);
        assert_near(gradients.nvlink + gradients.network - own, rows[i].gradients, 0.0015);
        assert_close(gradients.network, rows[i].leaving * (gradients.nvlink + gradients.network),
                     1e-9);
        assert_near(all_gb(&links, ERG_LINK_EXPERT_GRADIENTS).network, rows[i].expert_gradients,
                    0.0005);
        erg_links_release(&links);
        erg_model_free(model);
    }
}

/* All parameters, three times a microbatch; tensor ranks hold norms, biases and positions whole.
 * The norm before a tied head is not counted with either. */
static void published_shards(void **state)
{
    (void)state;
    struct erg_model *model = load("gpt3-175b");
    for (long microbatch = 1; microbatch <= 4; microbatch *= 4) {
        struct erg_layout layout = layout_of(model, "t=8,fsdp=4", 32, 128, 2048);
        layout.microbatch = microbatch;
        layout.microbatches = 32 / microbatch;
        layout.recompute = ERG_RECOMPUTE_FULL;
        struct erg_links links = links_of(model, &layout);
        const double all = 3 * 2 * 0.75 * (double)layout.microbatches / 8;
        assert_near(all * erg_model_parameters(model) / 1e9, microbatch == 1 ? 3142.88 : 785.72,
                    0.01);
        const double h = (double)model->hidden;
        const double whole = (double)model->max_positions * h + 96 * 6 * h;
        const double padding = (double)(erg_layout_vocabulary(model, 8) - model->vocab) * h;
        assert_close(all_gb(&links, ERG_LINK_FSDP).network,
                     all * (erg_model_parameters(model) - 2 * h + 7 * whole + padding) / 1e9, 1e-9);
        assert_near(all_gb(&links, ERG_LINK_TENSOR).nvlink, 1623.498, 0.0005);
        assert_near(all_gb(&links, ERG_LINK_GRADIENTS).network, 0, 0);
        erg_links_release(&links);
    }
    erg_model_free(model);
}

/* Each rank's rows one destination after the other, and whose node that is. */
static void rows_of_experts_by_brute_force(void **state)
{
    (void)state;
    struct erg_model *model = load("mixtral-8x22b");
    const struct erg_layout layout = layout_of(model, "e=4,t=4", 32, 128, 4096);
    struct erg_links links = links_of(model, &layout);
    const long m = layout.microbatches, h = model->hidden;
    const double rows = 4096.0 / 4 * 2; /* two experts a token, on four tensor ranks */
    for (long rank = 0; rank < 32; rank++) {
        struct erg_link_bytes sent = {0};
        for (long peer = 0; peer < 32; peer++) {
            const bool same = rank / 16 == peer / 16 && rank % 4 == peer % 4; /* t x e = 16 */
            const double bytes = rows / 4 * (double)h * 2 * 4 * 56 * (double)m;
            if (same && peer != rank)
                *(rank / NODE == peer / NODE ? &sent.nvlink : &sent.network) += bytes;
        }
        assert_close(links.gpu[rank].sent[ERG_LINK_ALL_TO_ALL].nvlink, sent.nvlink, 1e-12);
        assert_close(links.gpu[rank].sent[ERG_LINK_ALL_TO_ALL].network, sent.network, 1e-12);
    }
    erg_links_release(&links);
    erg_model_free(model);
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
    {"gpt3-175b", "t=8,fsdp=4", 32, 128, 2048},
    {"mixtral-8x22b", "e=8,t=2,p=2", 32, 128, 4096},
    {"mixtral-8x7b", "e=4,t=2", 32, 128, 4096},
};

static void sent_bytes_are_received(void **state)
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
static void places_determine_the_bytes_that_leave_a_node(void **state)
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
        cmocka_unit_test(published_mixtures),
        cmocka_unit_test(published_shards),
        cmocka_unit_test(rows_of_experts_by_brute_force),
        cmocka_unit_test(sent_bytes_are_received),
        cmocka_unit_test(messages_by_brute_force),
        cmocka_unit_test(places_determine_the_bytes_that_leave_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
