/*
 * Models: a transformer from its Hugging Face config.json, with its parameters and FLOPs.
 *
 *     struct erg_model *model;
 *     struct erg_model_info info = {.size = sizeof info};
 *     if (erg_model_open(&model, "llama-3.2-3b", &err) || erg_model_info(model, &info, &err)) ...
 *     erg_model_free(model);
 *
 * Decoder-only models are supported: Llama, Mistral, Qwen 2 and 3, Phi-3, GPT-2 and models that
 * compute the same; with a mixture of experts Mixtral, Qwen 3 MoE, DeepSeek V2 and V3; and the text
 * part of models that also see or hear. A model does not change, so several threads may use it at
 * once.
 */
#ifndef ERGON_MODEL_H
#define ERGON_MODEL_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_model;

/*
 * The path of a config.json, of a folder that holds one, or a name of the catalogue (data/models).
 * erg_model_open_text() reads from memory; `name` stands for the file in messages. The message of
 * ERG_FAILED names the key that is missing or not supported.
 */
int erg_model_open(struct erg_model **model, const char *name, struct erg_error *err);
int erg_model_open_text(struct erg_model **model, const char *name, const char *text, size_t length,
                        struct erg_error *err);
void erg_model_free(struct erg_model *model); /* NULL is fine */

/* Texts live as long as the model. */
struct erg_model_info {
    size_t size;
    const char *name, *architecture; /* as in the config: "LlamaForCausalLM" */
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn;
    int64_t vocabulary;        /* rows of the embedding, with the config's padding */
    int64_t most_positions;    /* tokens of a sequence; 0: no bound */
    int64_t window;            /* of attention, tokens; 0: every token sees all tokens before it */
    double parameters;         /* a head that shares the embedding's weights counts once */
    double trained_parameters; /* without rows of padding */
    int32_t tied;              /* 1: the head shares the embedding's weights */
    int32_t gated;             /* 1: SwiGLU, else GELU */
    /* A mixture of experts: the experts of a layer, how many of them each token uses, and the width
     * of one; all three 0: the model is dense. */
    int32_t chosen_experts;
    int64_t experts, expert_ffn;
    int64_t shared_ffn;       /* width of the experts that every token uses, together */
    int64_t dense_layers;     /* layers with an FFN of width `ffn` without experts */
    double active_parameters; /* parameters that a token uses */
};
int erg_model_info(const struct erg_model *model, struct erg_model_info *info,
                   struct erg_error *err);

/*
 * FLOPs of one pass over `tokens` tokens in sequences of `sequence` tokens, all GPUs together.
 * Attention is counted without the causal mask. Training costs three times the forward pass; full
 * recomputation adds the linear layers and attention once more.
 */
struct erg_model_work {
    size_t size;
    double linear_flops, head_flops, attention_flops; /* of the forward pass */
    double training_flops, recomputing_flops;         /* of an iteration; with full recomputation */
};
int erg_model_work(const struct erg_model *model, double tokens, double sequence,
                   struct erg_model_work *work, struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
