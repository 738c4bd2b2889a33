/* Settings of torchtitan. */
#include "layout/exchange/export_internal.h"

/* The modules of every chunk by name, since stages have different numbers of layers. */
static void add_modules(struct erg_text *out, const struct erg_layout *layout)
{
    long chunks = layout->pipeline * layout->virtual_stages, layer = 0;
    erg_text_add(out, "module_fqns_per_model_part = [\n");
    for (long i = 0; i < chunks; i++) {
        erg_text_add(out, i == 0 ? "  [\"tok_embeddings\"" : "  [");
        for (long j = 0; j < layout->chunk_layers[i]; j++, layer++)
            erg_text_printf(out, "%s\"layers.%ld\"", i == 0 || j > 0 ? ", " : "", layer);
        erg_text_add(out, i == chunks - 1 ? ", \"norm\", \"output\"],\n" : "],\n");
    }
    erg_text_add(out, "]  # from 0.3 on with \"lm_head\" for \"output\"; later "
                      "pipeline_parallel_module_fqns_per_model_part\n");
}

static void add_pipeline(struct erg_text *out, const struct erg_model *model,
                         const struct erg_layout *layout)
{
    erg_text_printf(out, "pipeline_parallel_degree = %ld\n", layout->pipeline);
    if (layout->pipeline == 1)
        return;
    erg_text_printf(out,
                    "pipeline_parallel_schedule = \"%s\"\n"
                    "pipeline_parallel_microbatch_size = %ld  # later num_pp_microbatches = %ld\n",
                    layout->virtual_stages > 1 ? "Interleaved1F1B" : "1F1B", layout->microbatch,
                    layout->microbatches);
    if (erg_export_is_even(layout))
        erg_text_printf(out,
                        "pipeline_parallel_layers_per_stage = %ld\n"
                        "pipeline_parallel_first_stage_less_layers = 0\n"
                        "pipeline_parallel_last_stage_less_layers = 0\n",
                        erg_layout_chunk_layers(layout, model->layers, 0, 0));
    else
        add_modules(out, layout);
}

/* FSDP2 also shards over context ranks, which its degree excludes. */
static void add_sharding(struct erg_text *out, const struct erg_layout *layout)
{
    erg_text_printf(out,
                    "data_parallel_replicate_degree = %ld\n"
                    "data_parallel_shard_degree = %ld\n"
                    "fsdp_reshard_after_forward = \"always\"\n",
                    layout->data * layout->context / layout->fsdp, layout->fsdp / layout->context);
    if (layout->tensor > 1)
        erg_text_add(out, "# NOT THE SAME: in the plan every tensor rank has the whole residual "
                          "stream; torchtitan splits it\n"
                          "# over them (sequence parallelism), which takes less memory.\n");
}

static void add_parallelism(struct erg_text *out, const struct erg_model *model,
                            const struct erg_layout *layout)
{
    erg_text_printf(out,
                    "\n[parallelism]\n"
                    "tensor_parallel_degree = %ld\n"
                    "context_parallel_degree = %ld\n",
                    layout->tensor, layout->context);
    erg_export_torchtitan_degrees(out, model, layout);
    add_pipeline(out, model, layout);
    if (erg_layout_is_sharded(layout)) {
        add_sharding(out, layout);
        return;
    }
    erg_text_printf(out,
                    "data_parallel_replicate_degree = 1\n"
                    "data_parallel_shard_degree = %ld\n",
                    layout->data);
    if (layout->data * layout->context > 1)
        erg_text_add(out, "# NOT THE SAME: the plan shards the optimizer over data and context "
                          "ranks. torchtitan shards\n"
                          "# weights and gradients, too; the nearest setting keeps the weights "
                          "gathered after the forward pass.\n"
                          "fsdp_reshard_after_forward = \"never\"\n");
}

static void add_training(struct erg_text *out, const struct erg_layout *layout)
{
    /*
     * Without stages, microbatches are accumulated outside the model; with stages, the schedule
     * divides the local batch.
     */
    long local = layout->pipeline > 1 ? layout->microbatches : 1;
    erg_text_printf(
        out,
        "\n[training]\n"
        "local_batch_size = %ld\n"
        "global_batch_size = %ld\n"
        "seq_len = %ld\n"
        "# Later in tokens: num_tokens_per_microbatch_per_dp_rank = %ld, "
        "num_tokens_per_train_step = %ld,\n"
        "# max_context_length = %ld.\n"
        "mixed_precision_param = \"bfloat16\"\n"
        "%s"
        "mixed_precision_reduce = \"float32\"\n",
        local * layout->microbatch, erg_layout_batch(layout), layout->sequence,
        layout->microbatch * layout->sequence, erg_layout_batch(layout) * layout->sequence,
        layout->sequence,
        erg_layout_is_sharded(layout)
            ? "# NOT THE SAME: the plan sums gradients in bf16; torchtitan sums them in fp32.\n"
            : "");
}

static void add_memory(struct erg_text *out, const struct erg_layout *layout)
{
    erg_text_add(out, "\n[activation_checkpoint]\n");
    enum erg_recompute recompute = erg_export_recompute(out, layout, "torchtitan");
    switch (recompute) {
    case ERG_RECOMPUTE_NONE:
        erg_text_add(out, "mode = \"none\"\n");
        break;
    case ERG_RECOMPUTE_NORMS:
    case ERG_RECOMPUTE_ACTIVATION:
    case ERG_RECOMPUTE_BALANCED:
        erg_text_printf(
            out,
            "# NOT THE SAME: the plan recomputes %s; this also recomputes every second\n"
            "# matrix product.\n",
            recompute == ERG_RECOMPUTE_NORMS        ? "norms"
            : recompute == ERG_RECOMPUTE_ACTIVATION ? "the activation of the MLP"
                                                    : "norms and the activation of the MLP");
        erg_text_add(out, "mode = \"selective\"\n"
                          "selective_ac_option = \"op\"\n");
        break;
    case ERG_RECOMPUTE_FULL:
        erg_text_add(out, "mode = \"full\"\n");
        break;
    }
    if (erg_export_offload(out, layout))
        erg_text_add(out, "# torchtitan does not offload activations, so the layout may need more "
                          "memory than a GPU has.\n");
}

/* The model's features other than its shape, after commas. */
static void add_traits(struct erg_text *out, const struct erg_model *model)
{
    const struct {
        bool has;
        const char *name;
    } traits[] = {
        {model->qk_norm, "norms of queries and keys"},
        {model->layer_norm, "LayerNorm"},
        {model->learned_positions, "learned positions"},
        {!model->gated, "GELU without a gate"},
        {model->qkv_bias || model->projection_bias || model->mlp_bias, "biases"},
        {model->tied, "tied embeddings"},
    };
    const char *between = "#   ";
    for (size_t i = 0; i < sizeof traits / sizeof *traits; i++) {
        if (!traits[i].has)
            continue;
        erg_text_printf(out, "%s%s", between, traits[i].name);
        between = ", ";
    }
    if (*between == ',')
        erg_text_add(out, "\n");
}

/* Features that few or no models of torchtitan have. */
static void add_rotary(struct erg_text *out, const struct erg_model *model)
{
    const struct erg_rope *rope = &model->rope;
    if (rope->scaling == ERG_ROPE_LINEAR)
        erg_text_printf(out,
                        "# NOT THE SAME: rotary frequencies are all scaled by a factor of %.10g "
                        "(linear), which must be\n"
                        "# added there. That changes neither time nor memory.\n",
                        rope->factor);
    if (rope->scaling == ERG_ROPE_YARN)
        erg_text_printf(out,
                        "# NOT THE SAME: rotary frequencies are scaled by YaRN, which 0.2 supports "
                        "only in deepseek_v3; later versions\n"
                        "# set it as scaling \"yarn\", rope_factor %.10g, original_seq_len %ld, "
                        "beta_fast %.10g, beta_slow %.10g.\n",
                        rope->factor, rope->positions, rope->fast, rope->slow);
    if (rope->scaling == ERG_ROPE_OTHER)
        erg_text_add(out, "# NOT THE SAME: rotary frequencies are scaled in a way that must be "
                          "added there. That changes neither\n"
                          "# time nor memory.\n");
    if (rope->rotated_share > 0 && rope->rotated_share < 1)
        erg_text_printf(out,
                        "# NOT THE SAME: a share of %.10g of each head's channels is rotated; "
                        "torchtitan rotates all.\n",
                        rope->rotated_share);
    if (rope->queries_scaled)
        erg_text_add(out, "# NOT THE SAME: the model also scales queries by their position.\n");
}

/*
 * Models are Python objects in torchtitan, so comments give the shape to the author of the model.
 */
static void add_model(struct erg_text *out, const struct erg_model *model,
                      const struct erg_layout *layout)
{
    erg_text_printf(out,
                    "#\n"
                    "# The model is set by name and flavor. The plan is for one with\n"
                    "#   n_layers %ld, dim %ld, n_heads %ld, n_kv_heads %ld, heads of %ld, an MLP "
                    "of %ld,\n"
                    "#   vocab_size %ld (of %ld words), norm_eps %g",
                    model->layers, model->hidden, model->heads, model->kv_heads, model->head_dim,
                    model->ffn, erg_layout_vocabulary(model, layout->tensor), model->vocab,
                    model->norm_eps);
    if (!model->learned_positions)
        erg_text_printf(out, ", rope_theta %.0f", model->rope_theta);
    if (model->rope.scaling == ERG_ROPE_LLAMA3)
        erg_text_printf(out,
                        ",\n#   scaling_factor %.10g, low_freq_factor %.10g, high_freq_factor "
                        "%.10g, original_max_position_embeddings %ld",
                        model->rope.factor, model->rope.low, model->rope.high,
                        model->rope.positions);
    erg_text_add(out, "\n");
    add_traits(out, model);
    erg_export_torchtitan_experts(out, model);
    if (!model->learned_positions)
        add_rotary(out, model);
    if (model->kv_heads < layout->tensor)
        erg_text_printf(
            out,
            "# NOT THE SAME: in the plan each of %ld KV heads is on several of %ld tensor "
            "ranks; torchtitan\n"
            "# splits KV heads over ranks and refuses this.\n",
            model->kv_heads, layout->tensor);
    if (model->tied && layout->pipeline > 1)
        erg_text_add(out,
                     "# NOT THE SAME: torchtitan refuses tied embeddings with pipeline stages. "
                     "ergon plans untied ones with\n"
                     "# \"tie_word_embeddings\": false in the model's config.json.\n");
    if (model->layer_norm || model->learned_positions || !model->gated)
        erg_text_add(out,
                     "# NOT THE SAME: torchtitan has no such model; it must be added there.\n");
}

void erg_export_torchtitan(struct erg_text *out, const struct erg_model *model,
                           const struct erg_layout *layout)
{
    erg_text_add(
        out, "#\n"
             "# Sections for the --job.config_file of torchtitan 0.2. From 0.3 on configurations "
             "are Python: the same\n"
             "# keys are used there, or are options such as --parallelism.tensor_parallel_degree, "
             "except for\n"
             "# activation checkpointing and where a comment says so.\n");
    add_model(out, model, layout);
    add_parallelism(out, model, layout);
    add_training(out, layout);
    add_memory(out, layout);
}
