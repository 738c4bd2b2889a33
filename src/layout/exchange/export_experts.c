/* Mixtures of experts and grouped attention in exports to other software. */
#include "layout/exchange/export_internal.h"

/* ---- Megatron-LM ---- */

void erg_export_megatron_degrees(struct erg_text *out, const struct erg_model *model,
                                 const struct erg_layout *layout)
{
    if (!model->experts.count)
        return;
    erg_text_printf(out,
                    "--expert-model-parallel-size %ld\n"
                    "--expert-tensor-parallel-size %ld\n",
                    erg_layout_experts(layout), layout->tensor);
}

static void add_router(struct erg_text *out, const struct erg_experts *experts)
{
    if (experts->sigmoid)
        erg_text_add(out, "--moe-router-score-function sigmoid\n");
    else if (!experts->renormalised)
        erg_text_add(out, "--moe-router-pre-softmax\n");
    if (experts->sigmoid && !experts->renormalised)
        erg_text_add(out, "# NOT THE SAME: the scores of the chosen experts are not normalised to "
                          "1; Megatron-LM normalises\n# sigmoids. That changes neither time nor "
                          "memory.\n");
    if (experts->scale != 1)
        erg_text_printf(out, "--moe-router-topk-scaling-factor %.10g\n", experts->scale);
    if (experts->groups > 1)
        erg_text_printf(out,
                        "--moe-router-num-groups %ld\n"
                        "--moe-router-group-topk %ld\n",
                        experts->groups, experts->chosen_groups);
    if (experts->router_bias)
        erg_text_add(out, "--moe-router-enable-expert-bias\n");
    if (experts->balance_loss > 0)
        erg_text_printf(out,
                        "--moe-router-load-balancing-type aux_loss\n"
                        "--moe-aux-loss-coeff %.10g\n",
                        experts->balance_loss);
    else
        erg_text_add(out, "--moe-router-load-balancing-type none\n");
}

void erg_export_megatron_experts(struct erg_text *out, const struct erg_model *model,
                                 const struct erg_layout *layout)
{
    const struct erg_experts *experts = &model->experts;
    if (!experts->count)
        return;
    erg_text_printf(out,
                    "# The experts of a GPU run one after the other; with --moe-grouped-gemm they "
                    "are one kernel.\n"
                    "--num-experts %ld\n"
                    "--moe-ffn-hidden-size %ld\n"
                    "--moe-router-topk %ld\n"
                    "--moe-token-dispatcher-type alltoall\n",
                    experts->count, experts->ffn, experts->chosen);
    if (experts->dense_layers > 0)
        erg_text_printf(out, "--moe-layer-freq ([0]*%ld+[1]*%ld)\n", experts->dense_layers,
                        model->layers - experts->dense_layers);
    if (experts->shared_ffn > 0)
        erg_text_printf(out, "--moe-shared-expert-intermediate-size %ld\n", experts->shared_ffn);
    add_router(out, experts);
    if (layout->expert_capacity > 0)
        erg_text_printf(out,
                        "--moe-expert-capacity-factor %.10g\n"
                        "--moe-pad-expert-input-to-capacity\n",
                        layout->expert_capacity);
}

void erg_export_megatron_latent(struct erg_text *out, const struct erg_model *model)
{
    const struct erg_latent *latent = &model->latent;
    if (!latent->keys)
        return;
    erg_text_add(out, "--multi-latent-attention\n");
    if (latent->queries > 0)
        erg_text_printf(out, "--q-lora-rank %ld\n", latent->queries);
    erg_text_printf(out,
                    "--kv-lora-rank %ld\n"
                    "--qk-head-dim %ld\n"
                    "--qk-pos-emb-head-dim %ld\n"
                    "--v-head-dim %ld\n"
                    "--qk-layernorm\n",
                    latent->keys, latent->plain, latent->rotated, latent->values);
}

/* Megatron-LM can recompute the activation of experts alone, unlike that of a plain MLP. */
bool erg_export_megatron_recompute(struct erg_text *out, const struct erg_model *model,
                                   enum erg_recompute recompute)
{
    if (!model->experts.count || !erg_recompute_activation(recompute))
        return false;
    if (model->experts.shared_ffn > 0)
        erg_text_add(out, "# NOT THE SAME: the activation of shared experts is not recomputed.\n");
    if (erg_recompute_norms(recompute))
        erg_text_add(out, "# NOT THE SAME where Transformer Engine has fused a norm into the "
                          "product after it: that is not recomputed.\n");
    erg_text_printf(out,
                    "--recompute-granularity selective\n"
                    "--recompute-modules %smoe_act\n",
                    erg_recompute_norms(recompute) ? "layernorm " : "");
    return true;
}

/* ---- torchtitan ---- */

void erg_export_torchtitan_degrees(struct erg_text *out, const struct erg_model *model,
                                   const struct erg_layout *layout)
{
    const long expert = erg_layout_experts(layout);
    if (!model->experts.count)
        return;
    erg_text_printf(out, "expert_parallel_degree = %ld\n", expert);
    if (layout->tensor > 1)
        erg_text_printf(out, "expert_tensor_parallel_degree = %ld\n", layout->tensor);
    if (layout->tensor > 1 && expert == 1)
        erg_text_add(out, "# NOT THE SAME: where experts are not spread, torchtitan ignores the "
                          "degree above.\n");
    if (layout->expert_capacity > 0)
        erg_text_printf(out,
                        "# NOT THE SAME: in the plan an expert takes %.4g times its even share of "
                        "a rank's rows, padded\n"
                        "# and truncated; torchtitan takes all rows.\n",
                        layout->expert_capacity);
}

void erg_export_torchtitan_experts(struct erg_text *out, const struct erg_model *model)
{
    const struct erg_experts *experts = &model->experts;
    const struct erg_latent *latent = &model->latent;
    if (experts->count)
        erg_text_printf(out,
                        "#   experts of %ld: num_experts %ld, num_shared_experts %ld, top_k %ld, "
                        "score_func \"%s\", route_norm %s,\n"
                        "#   route_scale %.10g\n",
                        experts->ffn, experts->count, experts->shared_ffn / experts->ffn,
                        experts->chosen, experts->sigmoid ? "sigmoid" : "softmax",
                        experts->renormalised ? "true" : "false", experts->scale);
    if (experts->dense_layers > 0)
        erg_text_printf(out, "#   n_dense_layers %ld\n", experts->dense_layers);
    if (experts->groups > 1)
        erg_text_printf(out,
                        "# NOT THE SAME in 0.2: experts are chosen from %ld of %ld groups; "
                        "torchtitan chooses from all.\n",
                        experts->chosen_groups, experts->groups);
    if (latent->keys)
        erg_text_printf(out,
                        "#   attention of deepseek_v3: q_lora_rank %ld, kv_lora_rank %ld, "
                        "qk_nope_head_dim %ld,\n"
                        "#   qk_rope_head_dim %ld, v_head_dim %ld\n",
                        latent->queries, latent->keys, latent->plain, latent->rotated,
                        latent->values);
}
