/* Arguments of Megatron-LM. */
#include "layout/exchange/export_internal.h"

#include <math.h>

/*
 * The layers of every chunk in model order, as one letter each: embedding E, layers t, loss L.
 * Megatron-LM also reads t*4, but the shell expands an unquoted star.
 */
static void add_pipeline_layout(struct erg_text *out, const struct erg_layout *layout)
{
    long chunks = layout->pipeline * layout->virtual_stages;
    erg_text_add(out, "--pipeline-model-parallel-layout E");
    for (long i = 0; i < chunks; i++) {
        if (i)
            erg_text_add(out, "|");
        for (long j = 0; j < layout->chunk_layers[i]; j++)
            erg_text_add(out, "t");
    }
    erg_text_add(out, "L\n");
}

/* Megatron-FSDP, with replicas if not all data ranks share the weights. */
static void add_sharding(struct erg_text *out, const struct erg_layout *layout)
{
    const long replicas = layout->data * layout->context / layout->fsdp;
    erg_text_add(out, "--use-megatron-fsdp\n"
                      "--data-parallel-sharding-strategy optim_grads_params\n");
    if (replicas > 1)
        erg_text_printf(out,
                        "--num-distributed-optimizer-instances %ld\n"
                        "--outer-dp-sharding-strategy no_shard\n",
                        replicas);
    erg_text_add(out, "--grad-reduce-in-bf16\n"
                      "--no-gradient-accumulation-fusion\n"
                      "--init-model-with-meta-device\n"
                      "--ckpt-format fsdp_dtensor\n");
}

static void add_parallelism(struct erg_text *out, const struct erg_model *model,
                            const struct erg_layout *layout)
{
    erg_text_printf(out,
                    "# Parallelism. The data degree follows from the number of processes.\n"
                    "--tensor-model-parallel-size %ld\n",
                    layout->tensor);
    if (layout->tensor > 1 && !erg_layout_is_sharded(layout))
        erg_text_add(out, "--sequence-parallel\n");
    erg_text_printf(out, "--context-parallel-size %ld\n", layout->context);
    if (layout->context > 1)
        erg_text_add(out, "--cp-comm-type all_gather\n");
    erg_export_megatron_degrees(out, model, layout);
    erg_text_printf(out, "--pipeline-model-parallel-size %ld\n", layout->pipeline);
    if (!erg_export_is_even(layout))
        add_pipeline_layout(out, layout);
    else if (layout->virtual_stages > 1)
        erg_text_printf(out, "--num-layers-per-virtual-pipeline-stage %ld\n",
                        erg_layout_chunk_layers(layout, model->layers, 0, 0));
    if (erg_layout_is_sharded(layout))
        add_sharding(out, layout);
    erg_text_printf(out,
                    "--use-distributed-optimizer\n"
                    "--micro-batch-size %ld\n"
                    "--global-batch-size %ld\n"
                    "--seq-length %ld\n",
                    layout->microbatch, erg_layout_batch(layout), layout->sequence);
}

static void add_biases(struct erg_text *out, const struct erg_model *model)
{
    if (model->qkv_bias && model->projection_bias && model->mlp_bias)
        return;
    if (model->projection_bias || model->mlp_bias)
        erg_text_printf(out,
                        "# NOT THE SAME: the model has biases on%s%s%s; Megatron-LM can have them "
                        "on all products,\n# on none, or on those of QKV alone.\n",
                        model->qkv_bias ? " QKV" : "",
                        model->projection_bias ? " the attention's output" : "",
                        model->mlp_bias ? " the MLP" : "");
    erg_text_add(out, "--disable-bias-linear\n");
    if (model->qkv_bias)
        erg_text_add(out, "--add-qkv-bias\n");
}

static void add_shape(struct erg_text *out, const struct erg_model *model)
{
    erg_text_printf(out,
                    "--num-layers %ld\n"
                    "--hidden-size %ld\n"
                    "--ffn-hidden-size %ld\n"
                    "--num-attention-heads %ld\n",
                    model->layers, model->hidden, model->ffn, model->heads);
    if (model->kv_heads != model->heads)
        erg_text_printf(out,
                        "--group-query-attention\n"
                        "--num-query-groups %ld\n",
                        model->kv_heads);
    erg_text_printf(out, "--kv-channels %ld\n", model->head_dim);
    if (model->qk_norm)
        erg_text_add(out, "--qk-layernorm\n");
    if (model->gated)
        erg_text_add(out, "--swiglu\n");
    add_biases(out, model);
    erg_text_printf(out,
                    "--normalization %s\n"
                    "--norm-epsilon %g\n",
                    model->layer_norm ? "LayerNorm" : "RMSNorm", model->norm_eps);
}

/* YaRN with all its parameters, whose defaults differ from those of other software. */
static void add_yarn(struct erg_text *out, const struct erg_rope *rope)
{
    erg_text_printf(
        out,
        "# An older Megatron-LM that refuses the arguments of YaRN does not support this model.\n"
        "--rotary-scaling-factor %.10g\n"
        "--yarn-original-max-position-embeddings %ld\n"
        "--yarn-beta-fast %.10g\n"
        "--yarn-beta-slow %.10g\n"
        "--mscale %.10g\n"
        "--mscale-all-dim %.10g\n"
        "--%syarn-correction-range-round-to-int\n"
        "--no-rope-fusion\n",
        rope->factor, rope->positions, rope->fast, rope->slow, rope->mscale[0], rope->mscale[1],
        rope->whole_range ? "" : "no-");
}

/* With Llama 3's parameters; Megatron-LM has all of them built in except the factor. */
static void add_llama3(struct erg_text *out, const struct erg_rope *rope)
{
    if (rope->low != 1 || rope->high != 4 || rope->positions != 8192)
        erg_text_printf(out,
                        "# NOT THE SAME: the model's rotary frequencies are scaled with "
                        "low_freq_factor %.10g, high_freq_factor\n"
                        "# %.10g and %ld original positions; Megatron-LM has 1, 4 and 8192 built "
                        "in. That changes neither\n"
                        "# time nor memory.\n",
                        rope->low, rope->high, rope->positions);
    erg_text_printf(out,
                    "--use-rope-scaling\n"
                    "--rope-scaling-factor %.10g\n",
                    rope->factor);
}

static void add_rotary(struct erg_text *out, const struct erg_model *model)
{
    static const char cannot[] = "# NOT THE SAME: the model's rotary frequencies are scaled in a "
                                 "way that Megatron-LM's arguments cannot\n"
                                 "# express%s. That changes neither time nor memory.\n";
    const struct erg_rope *rope = &model->rope;
    erg_text_printf(out,
                    "--position-embedding-type %s\n"
                    "--rotary-base %.0f\n",
                    rope->scaling == ERG_ROPE_YARN ? "yarn" : "rope", model->rope_theta);
    if (rope->rotated_share > 0 && rope->rotated_share < 1)
        erg_text_printf(out, "--rotary-percent %.10g\n", rope->rotated_share);
    switch (rope->scaling) {
    case ERG_ROPE_PLAIN:
        break;
    case ERG_ROPE_LINEAR:
        if (rope->factor == floor(rope->factor) && rope->factor < 1e9)
            erg_text_printf(out, "--rotary-seq-len-interpolation-factor %.0f\n", rope->factor);
        else
            erg_text_printf(out, cannot, ": by a factor that is not a whole number");
        break;
    case ERG_ROPE_LLAMA3:
        add_llama3(out, rope);
        break;
    case ERG_ROPE_YARN:
        add_yarn(out, rope);
        break;
    case ERG_ROPE_OTHER:
        erg_text_printf(out, cannot, "");
        break;
    }
    if (rope->queries_scaled)
        erg_text_add(out, "# NOT THE SAME: the model also scales queries by their position.\n");
}

/* The padding of a vocabulary divided by the tensor degree, with which this vocabulary stays
 * unchanged. */
static long padding_of(long vocabulary, long tensor)
{
    long padding = 128;
    while (vocabulary % (padding * tensor) != 0)
        padding /= 2;
    return padding;
}

static void add_model(struct erg_text *out, const struct erg_model *model,
                      const struct erg_layout *layout)
{
    long positions =
        model->max_positions > layout->sequence ? model->max_positions : layout->sequence;
    erg_text_add(out, "# Model. Dropout is off: no masks are kept.\n");
    add_shape(out, model);
    erg_export_megatron_latent(out, model);
    erg_export_megatron_experts(out, model, layout);
    erg_text_printf(out, "--max-position-embeddings %ld\n", positions);
    if (model->learned_positions)
        erg_text_add(out, "--position-embedding-type learned_absolute\n");
    else
        add_rotary(out, model);
    const long vocabulary = erg_layout_vocabulary(model, layout->tensor);
    erg_text_printf(out,
                    "# Padded to %ld words. A tokenizer with another vocabulary overrules "
                    "--vocab-size.\n"
                    "--vocab-size %ld\n"
                    "--make-vocab-size-divisible-by %ld\n",
                    vocabulary, model->vocab, padding_of(vocabulary, layout->tensor));
    if (!model->tied)
        erg_text_add(out, "--untie-embeddings-and-output-weights\n");
    erg_text_add(out, "--attention-dropout 0\n"
                      "--hidden-dropout 0\n"
                      "--bf16\n");
}

static void add_recompute(struct erg_text *out, enum erg_recompute recompute)
{
    switch (recompute) {
    case ERG_RECOMPUTE_NONE:
        erg_text_add(out, "# Nothing is recomputed.\n");
        break;
    case ERG_RECOMPUTE_NORMS:
        erg_text_add(out,
                     "# NOT THE SAME where Transformer Engine has fused a norm into the product "
                     "after it: that is not recomputed.\n"
                     "--recompute-granularity selective\n"
                     "--recompute-modules layernorm\n");
        break;
    case ERG_RECOMPUTE_ACTIVATION:
        erg_text_add(out, "# NOT THE SAME: the plan recomputes the MLP's activation, which "
                          "Megatron-LM can do only in mixtures\n"
                          "# of experts; this also recomputes its products.\n"
                          "--recompute-granularity selective\n"
                          "--recompute-modules mlp\n");
        break;
    case ERG_RECOMPUTE_BALANCED:
        erg_text_add(out,
                     "# NOT THE SAME: the plan recomputes norms and the MLP's activation. "
                     "Megatron-LM recomputes norms that\n"
                     "# Transformer Engine has not fused into the product after them, and the "
                     "activation in mixtures of\n"
                     "# experts only. If memory does not suffice, 'mlp' as a second module also "
                     "recomputes products.\n"
                     "--recompute-granularity selective\n"
                     "--recompute-modules layernorm\n");
        break;
    case ERG_RECOMPUTE_FULL:
        erg_text_add(out, "--recompute-granularity full\n"
                          "--recompute-method uniform\n"
                          "--recompute-num-layers 1\n");
        break;
    }
}

static void add_memory(struct erg_text *out, const struct erg_model *model,
                       const struct erg_layout *layout)
{
    erg_text_add(out, "# Memory.\n");
    const enum erg_recompute recompute = erg_export_recompute(out, layout, "Megatron-LM");
    if (!erg_export_megatron_recompute(out, model, recompute))
        add_recompute(out, recompute);
    if (erg_export_offload(out, layout))
        erg_text_add(out,
                     "# Megatron-LM offloads no share. --fine-grained-activation-offloading moves "
                     "the whole inputs of\n"
                     "# the modules in --offload-modules; --cpu-offloading-num-layers is refused "
                     "with pipeline stages.\n"
                     "# Without either the layout may need more memory than a GPU has.\n");
}

void erg_export_megatron(struct erg_text *out, const struct erg_model *model,
                         const struct erg_layout *layout)
{
    erg_text_add(out, "#\n"
                      "# Arguments of Megatron-LM's pretrain_gpt.py: $(grep -v '^#' FILE) and "
                      "those of your data,\n"
                      "# tokenizer and optimizer.\n");
    if (erg_layout_is_sharded(layout))
        erg_text_add(out, "# CUDA_DEVICE_MAX_CONNECTIONS has to be unset in the environment.\n");
    else if (layout->tensor > 1 || layout->context > 1)
        erg_text_add(out, "# GPUs before Blackwell need CUDA_DEVICE_MAX_CONNECTIONS=1 in the "
                          "environment.\n");
    add_parallelism(out, model, layout);
    add_model(out, model, layout);
    add_memory(out, model, layout);
}
