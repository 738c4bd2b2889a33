/* The time model of layouts: published formulas, MFU, the network rule, host and GPU. */
#include "time_world.h"

/*
 * The published formulas, term by term. Bytes of memory-bound kernels are those of our op list:
 * 12U + 6F forward and 12U + 10F backward without grouped keys, where 10U + 6F and 16U + 10F are
 * published; the head's final norm (10U) is not in the published head. Published messages all run
 * between nodes; here the last stage, which is the slowest, sends `within` of its 2 v within one,
 * and all stages together `all_within` of theirs.
 */
static void published_formulas(struct erg_time *time, const struct erg_model *model,
                               const struct erg_layout *layout, long node_members, double a_layer,
                               long within, long all_within)
{
    double h = (double)model->hidden, f = (double)model->ffn, L = (double)model->layers;
    double hk = (double)(model->kv_heads * model->head_dim), s = (double)layout->sequence;
    double t = (double)layout->tensor, c = (double)layout->context, p = (double)layout->pipeline;
    double m = (double)layout->microbatches, v = (double)layout->virtual_stages;
    double D = (double)(layout->context * layout->data), S = s / c;
    double X = 989.4e12, H = 0.8 * 3.35e12, Bn = 200e9;
    double U = 2 * S * h / t, F = 2 * S * f / t, K = 4 * S * hk / t;
    double Vp = 128 * t * ceil(32005 / (128 * t));
    double lin = 2 * (2 * h * h + 2 * h * hk + 3 * h * f) * S / t, att = 2 * s * h * S / t;
    double rope = 4 * S * (h + hk) / t, y = K * (c - 1) / Bn;
    bool grouped = hk < h;
    double tensor = 1.122 * 2 * (2 * S * h) * (t - 1) / t / Bn;
    double bytes_f = 8 * U + rope + 6 * F, bytes_b = 8 * U + rope + 10 * F;
    double forward = lin / (0.594 * X) + att / (0.35 * X) + tensor + (grouped ? y : 0.5 * y) +
                     bytes_f / H + 333e-6;
    double offload = layout->offload * a_layer / 64e9;
    double l = L / p, *items = time->items;
    memset(time, 0, sizeof *time);
    items[ERG_TIME_LINEAR] = l * 3 * lin / (0.594 * X);
    items[ERG_TIME_ATTENTION] = l * 3.5 * att / (0.35 * X);
    items[ERG_TIME_MEMORY] = l * (bytes_f + bytes_b) / H;
    items[ERG_TIME_TENSOR] = l * tensor;
    items[ERG_TIME_CONTEXT] = l * (grouped ? 3 * y : 1.5 * y);
    items[ERG_TIME_OVERHEAD] = l * 3 * 333e-6;
    items[ERG_TIME_RECOMPUTE] = layout->recompute == ERG_RECOMPUTE_FULL ? l * forward
                                : layout->recompute == ERG_RECOMPUTE_BALANCED
                                    ? l * (4 * U + 6 * F) / H
                                    : 0;
    items[ERG_TIME_OFFLOAD] = l * 0.04 * 2 * offload;
    double stage = 0;
    for (int i = 0; i < ERG_TIME_HEAD; i++)
        stage += items[i];
    items[ERG_TIME_HEAD] =
        6 * h * Vp * S / t / (0.594 * X) + 30 * S * Vp / t / H + (4 + 6) * S * h / t / H;
    double sooner = 0.351 * (U / 12.5e9 - U / Bn), others = (double)(all_within - within);
    double message = 0.351 * v * 2 * U / 12.5e9;
    items[ERG_TIME_PIPELINE] = message - (double)within * sooner;
    items[ERG_TIME_BUBBLE] = ((p - 1) * (stage + message) - others * sooner) / v / m;
    for (int i = 0; i <= ERG_TIME_BUBBLE; i++)
        items[i] *= m;
    double P = l * ((2 * h * h + 2 * h * hk + 3 * h * f) / t + 2 * h) + Vp * h / t + h;
    double bandwidth = node_members ? 12.5e9 * (double)node_members : Bn;
    items[ERG_TIME_GRADIENTS] = 1.188 * 6 * P * (D - 1) / D / bandwidth;
    items[ERG_TIME_OPTIMIZER] = (24 * P + 28 * P / D) / H;
    items[ERG_TIME_STALLS] = fmax(0, L * (offload - forward));
    for (int i = 0; i < ERG_TIME_ITEMS; i++)
        time->total += items[i];
}

static void the_published_formulas_fall_out(void **state)
{
    (void)state;
    struct erg_model *models[] = {
        llama("65B", PUBLISHED_WORDS, 80, 8192, 22016, 64, 64),
        llama("175B", PUBLISHED_WORDS, 96, 12288, 32768, 96, 96),
        llama("70B", PUBLISHED_WORDS, 80, 8192, 28672, 64, 8),
    };
    struct erg_engine engine = published_engine();
    /* Rows of the published table, with other ratios; what a layer keeps without its log-sum-exp
     * (`u`, `k` and `f` times U, K and F); fewest ranks of a gradient group in any node. */
    static const struct {
        int model;
        struct erg_layout layout;
        double u, k, f;
        long members, within, all_within;
    } cases[] = {
        {0,
         {2, 1, 8, 16, 5, 1, 16, 4096, .recompute = ERG_RECOMPUTE_NONE, .offload = 0.355},
         6,
         1,
         4,
         4,
         0,
         0},
        {0,
         {2, 1, 4, 7, 10, 1, 36, 4096, .recompute = ERG_RECOMPUTE_BALANCED, .offload = 0.945},
         4,
         1,
         2,
         1,
         0,
         0},
        {1, {4, 1, 8, 5, 6, 1, 48, 4096, .recompute = ERG_RECOMPUTE_BALANCED}, 4, 1, 2, 1, 0, 0},
        {1, {2, 2, 16, 4, 6, 1, 64, 8192, .recompute = ERG_RECOMPUTE_FULL}, 1, 0, 0, 4, 0, 0},
        {2, {2, 4, 8, 4, 5, 1, 64, 8192, .recompute = ERG_RECOMPUTE_NONE}, 6, 1, 4, 4, 0, 0},
        {2,
         {2, 1, 8, 2, 5, 1, 136, 8192, .recompute = ERG_RECOMPUTE_BALANCED, .offload = 0.858},
         4,
         1,
         2,
         0, /* two stages a node: the last one's inputs and gradients, and what stands for outputs
             */
         6,
         42},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct erg_model *model = models[cases[i].model];
        const struct erg_layout *layout = &cases[i].layout;
        const struct erg_time_request request = {model, &engine, &h800};
        double local = (double)layout->sequence / (double)layout->context;
        double tokens = 2 * local / (double)layout->tensor;
        double sequences = 2 * tokens; /* log-sum-exp: 4 bytes a token and head */
        double lse = layout->recompute == ERG_RECOMPUTE_FULL ? 0 : sequences * (double)model->heads;
        double kept = cases[i].u * tokens * (double)model->hidden +
                      cases[i].k * 2 * tokens * (double)(model->kv_heads * model->head_dim) +
                      cases[i].f * tokens * (double)model->ffn + lse;
        struct erg_time time, expected;
        erg_time_layout(&time, &request, layout);
        published_formulas(&expected, model, layout, cases[i].members, kept, cases[i].within,
                           cases[i].all_within);
        for (int item = 0; item < ERG_TIME_ITEMS; item++)
            if (!(fabs(time.items[item] - expected.items[item]) <= 1e-9 * expected.total))
                fail_msg("case %zu, %s: %.12g, expected %.12g", i, erg_time_item_name(item),
                         time.items[item], expected.items[item]);
        assert_close(time.total, expected.total, 1e-9);
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        erg_model_free(models[i]);
}

static void mfu_is_as_stated(void **state)
{
    (void)state;
    struct erg_model *small = llama("7B", PUBLISHED_WORDS, 32, 4096, 11008, 32, 32);
    struct erg_model *large = llama("175B", PUBLISHED_WORDS, 96, 12288, 32768, 96, 96);
    const struct {
        const struct erg_model *model;
        long sequence;
        double peak, rate, stated;
    } cases[] = {
        {small, 12288, 312e12, 3016, 47.7}, {small, 12288, 312e12, 3803, 60.1},
        {small, 12288, 312e12, 2847, 45.0}, {small, 12288, 989e12, 6639, 33.1},
        {small, 12288, 989e12, 8273, 41.2}, {small, 12288, 989e12, 6138, 30.6},
        {large, 8192, 989e12, 299, 33.4},   {large, 8192, 989e12, 387, 43.2},
        {large, 8192, 989e12, 278, 31.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_near(
            100 * erg_time_mfu(cases[i].model, cases[i].sequence, cases[i].rate, cases[i].peak),
            cases[i].stated, 0.06);
    assert_close(erg_time_flops_per_token(small, 12288), 4.931e10, 1e-3);
    erg_model_free(small);
    erg_model_free(large);
}

static void a_ring_runs_at_its_fewest_ranks_of_a_node(void **state)
{
    (void)state;
    struct erg_engine engine = published_engine();
    const struct erg_time_request request = {NULL, &engine, &h800};
    static const struct {
        long stride, size, gpus;
        double expected;
    } cases[] = {
        {1, 8, 64, 200e9},        /* a node */
        {1, 1, 64, 200e9},        /* nothing travels */
        {8, 4, 64, 12.5e9},       /* one rank of each node */
        {4, 4, 64, 2 * 12.5e9},   /* two */
        {1, 16, 64, 8 * 12.5e9},  /* all of two nodes */
        {1, 32, 64, 8 * 12.5e9},  /* all of four */
        {2, 7, 56, 1 * 12.5e9},   /* 14 ranks from 14 on: one in the second node */
        {4, 5, 40, 1 * 12.5e9},   /* 0, 4 | 8, 12 | 16 */
        {2, 16, 256, 4 * 12.5e9}, /* aligned */
        {3, 2, 6, 200e9},         /* within one node */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_close(
            erg_time_group_bandwidth(&request, cases[i].stride, cases[i].size, cases[i].gpus),
            cases[i].expected, 1e-12);
    engine.network_efficiency = 0.5;
    assert_close(erg_time_group_bandwidth(&request, 1, 16, 64), 4 * 12.5e9, 1e-12);
}

/* ---- what small layers and old software pay ---- */

static void the_host_sets_a_floor(void **state)
{
    (void)state;
    struct erg_model *model = llama("7B", PUBLISHED_WORDS, 32, 4096, 11008, 32, 32);
    struct erg_engine engine = published_engine();
    const struct erg_time_request request = {model, &engine, &h800};
    struct erg_time_parts free_host, bound;
    erg_time_parts_of(
        &free_host, &request,
        &(struct erg_layout){.tensor = 4, .context = 1, .microbatch = 1, .sequence = 1024}, 8);
    engine.host_layer_s = 5e-3;
    engine.host_wait_s = 1e-4;
    engine.host_head_s = 0.1;
    erg_time_parts_of(
        &bound, &request,
        &(struct erg_layout){.tensor = 4, .context = 1, .microbatch = 1, .sequence = 1024}, 8);
    assert_true(free_host.forward_s < 5e-3);
    assert_close(bound.forward_s, 5.3e-3, 1e-12);
    assert_close(bound.backward_s, 10.6e-3, 1e-12);
    assert_close(bound.recompute_s[ERG_RECOMPUTE_FULL], 5.3e-3, 1e-12);
    assert_close(bound.head_s, 0.1, 1e-12);
    assert_close(bound.forward[ERG_TIME_LINEAR], free_host.forward[ERG_TIME_LINEAR], 1e-12);
    erg_model_free(model);
}

/* Where host and GPU take about as long, each waits for the other now and then. */
static void host_and_gpu_wait_for_each_other(void **state)
{
    (void)state;
    assert_near(erg_time_paced(3, 4, 0), 4, 0);
    assert_near(erg_time_paced(4, 0, 0.5), 4, 0);
    assert_near(erg_time_paced(0, 0, 0.5), 0, 0);
    assert_close(erg_time_paced(3, 4, 0.5), 5, 1e-12);
    assert_close(erg_time_paced(4, 3, 0.5), 5, 1e-12);
    assert_close(erg_time_paced(3, 4, 1), 7, 1e-12);
    struct erg_model *model = llama("7B", PUBLISHED_WORDS, 32, 4096, 11008, 32, 32);
    struct erg_engine engine = published_engine();
    const struct erg_time_request request = {model, &engine, &h800};
    struct erg_time_parts alone, paced;
    erg_time_parts_of(
        &alone, &request,
        &(struct erg_layout){.tensor = 4, .context = 1, .microbatch = 1, .sequence = 1024}, 8);
    engine.host_layer_s = alone.forward_s;
    engine.host_head_s = alone.head_s;
    engine.host_blend = 0.5;
    erg_time_parts_of(
        &paced, &request,
        &(struct erg_layout){.tensor = 4, .context = 1, .microbatch = 1, .sequence = 1024}, 8);
    assert_close(paced.forward_s, sqrt(2) * alone.forward_s, 1e-12);
    assert_close(paced.head_s, sqrt(2) * alone.head_s, 1e-12);
    assert_close(paced.forward[ERG_TIME_OVERHEAD] - alone.forward[ERG_TIME_OVERHEAD],
                 paced.forward_s - alone.forward_s, 1e-12);
    erg_model_free(model);
}

/* A kernel that takes heads by fours is of no use to six of them. */
static void a_softmax_that_is_not_fused_costs_more(void **state)
{
    (void)state;
    struct erg_model *model = llama("7B", PUBLISHED_WORDS, 32, 4096, 11008, 32, 32);
    struct erg_engine engine = published_engine();
    const struct erg_time_request request = {model, &engine, &h800};
    struct erg_time_parts fused[2], unfused[2];
    engine.score_forward_bytes = 13;
    engine.score_backward_bytes = 19;
    engine.host_layer_s = 1;
    for (int i = 0; i < 2; i++) /* 2 heads, then 4 */
        erg_time_parts_of(
            &fused[i], &request,
            &(struct erg_layout){.tensor = 16, .context = 1, .microbatch = i + 1, .sequence = 2048},
            16);
    engine.softmax_heads = 4;
    engine.unfused_score_bytes = 34;
    engine.unfused_host_factor = 1.25;
    for (int i = 0; i < 2; i++)
        erg_time_parts_of(
            &unfused[i], &request,
            &(struct erg_layout){.tensor = 16, .context = 1, .microbatch = i + 1, .sequence = 2048},
            16);
    double more = 34 * 2 * 2048. * 2048. / (0.8 * 3.35e12);
    assert_close(unfused[0].forward_s, 1.25, 1e-12);
    assert_close(unfused[0].backward_s, 2.5, 1e-12);
    assert_close(unfused[0].forward[ERG_TIME_ATTENTION],
                 fused[0].forward[ERG_TIME_ATTENTION] + more, 1e-12);
    assert_close(unfused[0].backward[ERG_TIME_ATTENTION],
                 fused[0].backward[ERG_TIME_ATTENTION] + more, 1e-12);
    assert_memory_equal(&unfused[1], &fused[1], sizeof fused[1]);
    erg_model_free(model);
}

static void kept_scores_cost_bytes_and_masked_products(void **state)
{
    (void)state;
    struct erg_model *model = llama("7B", PUBLISHED_WORDS, 32, 4096, 11008, 32, 32);
    struct erg_engine engine = published_engine();
    const struct erg_time_request request = {model, &engine, &h800};
    struct erg_time_parts fused, kept;
    erg_time_parts_of(
        &fused, &request,
        &(struct erg_layout){.tensor = 2, .context = 1, .microbatch = 3, .sequence = 2048}, 8);
    engine.score_forward_bytes = 13;
    engine.score_backward_bytes = 19;
    erg_time_parts_of(
        &kept, &request,
        &(struct erg_layout){.tensor = 2, .context = 1, .microbatch = 3, .sequence = 2048}, 8);
    double bytes = 3 * 16 * 2048. * 2048. / (0.8 * 3.35e12);
    double fused_forward = fused.forward[ERG_TIME_ATTENTION];
    assert_close(kept.forward[ERG_TIME_ATTENTION], 2 * fused_forward + 13 * bytes, 1e-12);
    assert_close(kept.backward[ERG_TIME_ATTENTION], 4 * fused_forward + 19 * bytes, 1e-12);
    erg_model_free(model);
}

/* All GPUs of a node copy both ways at once: host memory may take less than their links. */
static void copies_share_the_host_memory(void **state)
{
    (void)state;
    struct erg_model *model = llama("7B", PUBLISHED_WORDS, 32, 4096, 11008, 32, 32);
    const struct erg_engine engine = published_engine();
    const struct erg_cluster cluster = {
        .nodes = 1, .gpus_per_node = 8, .host_memory_bandwidth = 400e9};
    const struct erg_gpu gpu = {.memory_bandwidth = 3.35e12, .link_bandwidth = 200e9};
    struct erg_time_machine machine;
    struct erg_time_parts at_link, shared;
    erg_time_parts_of(
        &at_link, &(struct erg_time_request){model, &engine, &h800},
        &(struct erg_layout){.tensor = 1, .context = 1, .microbatch = 1, .sequence = 4096}, 4);
    erg_time_machine_init(&machine, &gpu, &cluster);
    erg_time_parts_of(
        &shared, &(struct erg_time_request){model, &engine, &machine},
        &(struct erg_layout){.tensor = 1, .context = 1, .microbatch = 1, .sequence = 4096}, 4);
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++)
        assert_close(shared.copy_s[recompute], at_link.copy_s[recompute] * 64 / 25, 1e-12);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_formulas_fall_out),
        cmocka_unit_test(mfu_is_as_stated),
        cmocka_unit_test(a_ring_runs_at_its_fewest_ranks_of_a_node),
        cmocka_unit_test(the_host_sets_a_floor),
        cmocka_unit_test(host_and_gpu_wait_for_each_other),
        cmocka_unit_test(a_softmax_that_is_not_fused_costs_more),
        cmocka_unit_test(kept_scores_cost_bytes_and_masked_products),
        cmocka_unit_test(copies_share_the_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
