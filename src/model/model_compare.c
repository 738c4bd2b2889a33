/* Whether two configs mean the same computation. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

static const char *scaling_name(enum erg_rope_scaling scaling)
{
    static const char *const names[] = {
        [ERG_ROPE_PLAIN] = "default", [ERG_ROPE_LINEAR] = "linear", [ERG_ROPE_LLAMA3] = "llama3",
        [ERG_ROPE_YARN] = "yarn",     [ERG_ROPE_OTHER] = "another",
    };
    return names[scaling];
}

static bool texts_differ(struct erg_model_difference *difference, const char *key,
                         const char *found, const char *wanted, bool of_weights)
{
    if (strcmp(found, wanted) == 0)
        return false;
    difference->key = key;
    difference->of_weights = of_weights;
    snprintf(difference->found, sizeof difference->found, "%s", found);
    snprintf(difference->wanted, sizeof difference->wanted, "%s", wanted);
    return true;
}

static bool numbers_differ(struct erg_model_difference *difference, const char *key, double found,
                           double wanted, bool of_weights)
{
    char texts[2][sizeof difference->found];
    snprintf(texts[0], sizeof texts[0], "%.15g", found);
    snprintf(texts[1], sizeof texts[1], "%.15g", wanted);
    return texts_differ(difference, key, texts[0], texts[1], of_weights);
}

static bool answers_differ(struct erg_model_difference *difference, const char *key, bool found,
                           bool wanted)
{
    return texts_differ(difference, key, found ? "true" : "false", wanted ? "true" : "false", true);
}

/* The set of tensors, and the meaning of their rows and columns. */
static bool weights_differ(struct erg_model_difference *difference, const struct erg_model *found,
                           const struct erg_model *wanted)
{
    const bool gpt2 = wanted->learned_positions;
    if (found->layer_norm != wanted->layer_norm ||
        found->learned_positions != wanted->learned_positions || found->gated != wanted->gated ||
        found->qk_norm != wanted->qk_norm ||
        (found->qkv_bias != wanted->qkv_bias && found->projection_bias == wanted->projection_bias))
        return texts_differ(difference, "architectures", found->architecture, wanted->architecture,
                            true);
    return answers_differ(difference, "attention_bias", found->projection_bias,
                          wanted->projection_bias) ||
           answers_differ(difference, "mlp_bias", found->mlp_bias, wanted->mlp_bias) ||
           answers_differ(difference, "tie_word_embeddings", found->tied, wanted->tied) ||
           numbers_differ(difference, gpt2 ? "n_head" : "num_attention_heads", (double)found->heads,
                          (double)wanted->heads, true) ||
           numbers_differ(difference, "num_key_value_heads", (double)found->kv_heads,
                          (double)wanted->kv_heads, true) ||
           numbers_differ(difference, "head_dim", (double)found->head_dim, (double)wanted->head_dim,
                          true) ||
           numbers_differ(difference, "num_experts", (double)found->experts.count,
                          (double)wanted->experts.count, true) ||
           numbers_differ(difference, "kv_lora_rank", (double)found->latent.keys,
                          (double)wanted->latent.keys, true);
}

static bool positions_differ(struct erg_model_difference *difference, const struct erg_model *found,
                             const struct erg_model *wanted)
{
    const struct erg_rope *there = &found->rope, *own = &wanted->rope;
    if (wanted->learned_positions)
        return false;
    if (numbers_differ(difference, "rope_theta", found->rope_theta, wanted->rope_theta, false) ||
        numbers_differ(difference, "partial_rotary_factor", there->rotated_share,
                       own->rotated_share, false) ||
        texts_differ(difference, "rope_scaling.rope_type", scaling_name(there->scaling),
                     scaling_name(own->scaling), false) ||
        numbers_differ(difference, "rope_scaling.factor", there->factor, own->factor, false))
        return true;
    return own->scaling == ERG_ROPE_LLAMA3 &&
           (numbers_differ(difference, "rope_scaling.original_max_position_embeddings",
                           (double)there->positions, (double)own->positions, false) ||
            numbers_differ(difference, "rope_scaling.low_freq_factor", there->low, own->low,
                           false) ||
            numbers_differ(difference, "rope_scaling.high_freq_factor", there->high, own->high,
                           false));
}

/* A window that no sequence is longer than hides nothing. */
static double window_of(const struct erg_model *model, long sequence)
{
    return model->window && model->window < sequence ? (double)model->window : 0;
}

bool erg_model_differs(struct erg_model_difference *difference, const struct erg_model *found,
                       const struct erg_model *wanted, long sequence)
{
    *difference = (struct erg_model_difference){0};
    return weights_differ(difference, found, wanted) ||
           numbers_differ(difference, wanted->layer_norm ? "layer_norm_epsilon" : "rms_norm_eps",
                          found->norm_eps, wanted->norm_eps, false) ||
           (!wanted->gated &&
            texts_differ(difference, "activation_function", found->gelu_exact ? "gelu" : "gelu_new",
                         wanted->gelu_exact ? "gelu" : "gelu_new", false)) ||
           numbers_differ(difference, "sliding_window", window_of(found, sequence),
                          window_of(wanted, sequence), false) ||
           texts_differ(difference, "scale_attn_weights", found->own_scores ? "another" : "true",
                        wanted->own_scores ? "another" : "true", false) ||
           positions_differ(difference, found, wanted);
}
