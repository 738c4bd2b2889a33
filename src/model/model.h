/*
 * Models: a decoder-only transformer and the costs of its operations. Its layers may have a mixture
 * of experts instead of the FFN; each token passes a few of the experts.
 *
 * A model comes from a Hugging Face config.json; of a multimodal one, only the text model is used
 * (its key text_config). Costs are per GPU, in bf16, with tensor degree t (heads, KV groups, FFN
 * and vocabulary split), context degree c (sequence split, keys and values gathered) and one
 * microbatch or nanobatch of `sequences` sequences. In the formulas below T are the local tokens
 * (sequences x sequence / c), h the hidden size, Q = (heads + 2 KV groups) d / t, R = (heads + KV
 * groups) d / t, O = heads d / t, F = FFN / t, V the vocabulary. Norms and residual adds have T
 * tokens, under sequence parallelism T / t.
 *
 * Operation order, communication and partition groups: as published for Kareus. Byte and kernel
 * counts: the calibration of the emulated GPUs depends on exactly these, so a change here changes
 * every calibrated constant. LayerNorm costs like RMSNorm, biases are part of their GEMM, and a
 * plain activation reads and writes one width F where SwiGLU reads two.
 */
#ifndef ERG_MODEL_H
#define ERG_MODEL_H

#include "device/work.h"
#include "ergon/error.h"
#include "ergon/model.h"

#include <stdbool.h>
#include <stddef.h>

/* How rotary frequencies are scaled for longer sequences, which changes neither time nor memory. */
enum erg_rope_scaling {
    ERG_ROPE_PLAIN,
    ERG_ROPE_LINEAR, /* all by the same factor */
    ERG_ROPE_LLAMA3, /* only low frequencies are scaled */
    ERG_ROPE_YARN,
    ERG_ROPE_OTHER, /* in an unsupported way */
};

struct erg_rope {
    enum erg_rope_scaling scaling;
    double factor;        /* 0 with ERG_ROPE_PLAIN and ERG_ROPE_OTHER */
    long positions;       /* before scaling; of Llama 3 and YaRN */
    double low, high;     /* Llama 3's low_freq_factor and high_freq_factor */
    double fast, slow;    /* YaRN's beta_fast and beta_slow */
    double mscale[2];     /* YaRN scales queries and keys by f(mscale[0]) / f(mscale[1]), f(a) = 0.1
                           * a ln(factor) + 1 */
    bool whole_range;     /* YaRN's range of frequencies is rounded to whole ones */
    bool queries_scaled;  /* queries are scaled by their position, too (llama_4_scaling_beta) */
    double rotated_share; /* of the channels of a head */
};

/* A mixture of experts in place of the FFN. */
struct erg_experts {
    long count;        /* experts of a layer; 0: the model is dense */
    long chosen;       /* experts that each token chooses */
    long ffn;          /* width of one */
    long shared_ffn;   /* total width of the experts that all tokens use; 0: none */
    long dense_layers; /* layers that have the plain FFN instead, of width `ffn` of the model */
    bool dense_first;  /* they are the first ones */
    bool router_bias;  /* the router adds a number for each expert to its product */
    /* The weights of a router's choices, which change neither time nor memory. */
    bool sigmoid;               /* scores are sigmoids; else a softmax over all experts */
    bool renormalised;          /* the scores of the chosen experts are scaled to a sum of 1 */
    double scale;               /* factor on that sum */
    long groups, chosen_groups; /* tokens choose experts of chosen_groups of the groups; 1 and 1: of
                                 * all */
    double balance_loss; /* weight of the loss term that balances the load; 0: none, or unknown */
};

/* Attention whose queries, keys and values come from short rows (multi-head latent attention). Keys
 * have a part without position for each head, and a part with position that all heads share. */
struct erg_latent {
    long queries;        /* width of the short row of queries; 0: they come from the stream */
    long keys;           /* of keys and values; 0: the attention is not of this kind */
    long plain, rotated; /* channels of queries and keys of a head, without position and with it */
    long values;         /* channels of values of a head */
};

/* Linears to which LoRA may add products (model/lora.h). */
enum erg_lora_target { ERG_LORA_QKV, ERG_LORA_PROJ, ERG_LORA_FC1, ERG_LORA_FC2, ERG_LORA_TARGETS };

struct erg_lora {
    long rank;        /* 0: none, all weights are trained */
    unsigned targets; /* bits 1 << enum erg_lora_target */
};

struct erg_model {
    char *name;   /* the config's _name_or_path, else where it was loaded from; control
                   * characters are written out */
    char *path;   /* of the config.json; NULL: it came from memory */
    char *config; /* the text of the config.json when it was read */
    size_t config_length;
    char *architecture; /* "LlamaForCausalLM" */
    long layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    long window; /* of sliding-window attention, tokens; 0 = every token sees all before it */
    double norm_eps;
    double initializer_range; /* deviation of initial weights; 0: missing in the config */
    double rope_theta;        /* 0 with learned positions */
    struct erg_rope rope;
    struct erg_experts experts;
    struct erg_latent latent; /* `head_dim` is that of queries and keys then */
    bool gated;               /* SwiGLU: two widths into the activation; else GELU */
    bool gelu_exact;          /* GELU by erf; else its form with tanh */
    bool layer_norm;          /* LayerNorm with bias; else RMSNorm */
    bool learned_positions;   /* else rotary */
    bool qkv_bias;            /* on the fused QKV linear */
    bool projection_bias;     /* on the attention's output linear */
    bool mlp_bias;            /* on both linears of the MLP */
    bool qk_norm;             /* RMSNorm per head on queries and keys */
    bool own_scores;          /* attention scores are unscaled, or also scaled by the layer's
                               * number */
    bool tied;                /* the head shares the embedding's weights */
    bool vocab_is_padded;     /* `vocab` was given as the padded size */
    long words;               /* words of `vocab` that tokens can be; 0: all */
    struct erg_lora lora;     /* of a job, not of the config */
};

/* The number of words that tokens can be; the other rows are padding. */
static inline long erg_model_words(const struct erg_model *model)
{
    return model->words ? model->words : model->vocab;
}

/*
 * Loads a model by the path of a config.json, of a folder that holds one, or by a catalogue name
 * (data/models/NAME/config.json). erg_model_parse(): from memory; `name` stands for the file.
 */
int erg_model_load(struct erg_model **model, const char *name, struct erg_error *err);
int erg_model_parse(struct erg_model **model, const char *name, const char *text, size_t length,
                    struct erg_error *err);

/* Channels of an attention's output of all heads. */
static inline long erg_model_attention_width(const struct erg_model *model)
{
    return model->heads * (model->latent.keys ? model->latent.values : model->head_dim);
}

/* The same model whose layers all have the plain FFN. It shares the texts. */
static inline struct erg_model erg_model_without_experts(const struct erg_model *model)
{
    struct erg_model dense = *model;
    dense.experts = (struct erg_experts){0};
    return dense;
}

/* Fails if the experts cannot be split over `expert` ranks; the ERG_FAILED message names the
 * obstacle. */
int erg_model_check_experts(const struct erg_model *model, long expert, struct erg_error *err);

/* The first difference between the computations of two models, apart from sizes. */
struct erg_model_difference {
    const char *key; /* of a config.json */
    char found[64], wanted[64];
    bool of_weights; /* the weights of one are none of the other */
};

/* Returns true, and fills *difference, if the computations differ; `wanted` is trained on sequences
 * of `sequence` tokens. */
bool erg_model_differs(struct erg_model_difference *difference, const struct erg_model *found,
                       const struct erg_model *wanted, long sequence);

/*
 * Fails if the model cannot be split like this: heads, KV groups, FFN and vocabulary over `tensor`
 * GPUs, where several GPUs hold the same group if there are fewer groups than GPUs; a sequence of
 * `sequence` tokens over `context` GPUs in 2c chunks (causal balance), within the learned positions
 * and the window in which attention is full.
 */
int erg_model_check_tensor(const struct erg_model *model, long tensor, struct erg_error *err);
int erg_model_check_sequence(const struct erg_model *model, long context, long sequence,
                             struct erg_error *err);
/* KV groups on each of `tensor` GPUs, at least 1. */
long erg_model_local_kv_heads(const struct erg_model *model, long tensor);
/* Rows of the embedding and the head: the vocabulary padded to a multiple of 128 x tensor, or the
 * given padded size if `tensor` divides it. */
long erg_model_padded_vocabulary(const struct erg_model *model, long tensor);

struct erg_model_shape {
    long tensor, context; /* degrees, 1 = not split */
    long sequences;       /* of the microbatch or nanobatch */
    long sequence;        /* tokens of one sequence, over all context ranks */
    /* Properties of the GPU; 0 stands for 128, 128 and 1. */
    long tile_m, tile_n;     /* GEMM output tile: 128 x 128 on Ampere, 128 x 256 on Hopper */
    double head_gemm_factor; /* FLOPs of the head's GEMMs count this much (erg_gpu) */
    /* The stream and its norms are split over the rows of tensor ranks. Each gathers the input of a
     * half of the layer, and the sums of halves are scattered. With tensor 1 it changes nothing. */
    bool sequence_parallel;
    /* Memory-bound neighbours are one kernel (erg_stack): a norm with the residual add before it,
     * in backward with the sum of the two gradients; the rotary embedding in place with the
     * per-head norm; the loss in one pass over the logits. Else the counts of the published stack,
     * one kernel or more for each. */
    bool fused_kernels;
    /* Outputs of norms, of the activation, are dropped in the forward pass; backward makes each
     * again before the linear whose input it is. */
    bool norms_again, activation_again;
    /* For a mixture of experts: the degree over which experts are split (0 means 1), and the rows
     * that an expert takes from each source rank, as a multiple of its even share, padded with
     * empty rows and truncated; 0: each takes its even share, nothing is dropped. */
    long expert;
    double capacity;
    bool grouped; /* one kernel for the products of all experts of a GPU */
};

/*
 * Rows of a mixture of experts in a microbatch, on a GPU of t tensor and e expert ranks. A tensor
 * rank routes its share of the tokens, T / t: a row for every expert that a token chose. Rows go to
 * the ranks of their experts (all-to-all over e), where those of all tensor ranks are gathered,
 * since each has a share of the width of every expert.
 */
struct erg_model_rows {
    double own;    /* tokens that this rank routes (T_l) */
    double sent;   /* rows that it sends, including those to itself (A) */
    double expert; /* rows of one expert on its rank (e t C) */
    double held;   /* experts of a rank (E / e) */
};
struct erg_model_rows erg_model_expert_rows(const struct erg_model *model,
                                            const struct erg_model_shape *shape);

enum erg_model_op_id {
    ERG_MODEL_FORK_A, /* residual fork before the attention; backward adds the two gradients */
    ERG_MODEL_NORM_A,
    ERG_MODEL_QKV,
    ERG_MODEL_QKV_POST, /* split of QKV, and the per-head norm where there is one */
    ERG_MODEL_ROPE,
    ERG_MODEL_GATHER_KV,
    ERG_MODEL_ATTENTION,
    ERG_MODEL_SCATTER_KV,
    ERG_MODEL_PROJ,
    ERG_MODEL_REDUCE_A, /* AllReduce of the attention half (forward: output, backward: input), or
                         * ReduceScatter under sequence parallelism */
    ERG_MODEL_BDA_A,    /* bias, dropout, residual add */
    ERG_MODEL_FORK_M,
    ERG_MODEL_NORM_M,
    ERG_MODEL_FC1,
    ERG_MODEL_ACTIVATION, /* SwiGLU or GELU */
    ERG_MODEL_FC2,
    ERG_MODEL_REDUCE_M,
    ERG_MODEL_BDA_M,
    /* Outside the layers. */
    ERG_MODEL_EMBEDDING,
    ERG_MODEL_REDUCE_EMBEDDING,
    ERG_MODEL_NORM_FINAL,
    ERG_MODEL_HEAD,
    ERG_MODEL_REDUCE_HEAD,
    ERG_MODEL_LOSS,
    /* Sequence parallelism: AllGather of the input of a half of the layer. Forward that is the
     * norm's output, backward the gradient of the half's output and once more the norm's output,
     * for the gradients of weights. */
    ERG_MODEL_GATHER_A,
    ERG_MODEL_GATHER_M,
    ERG_MODEL_GATHER_EMBEDDING,
    ERG_MODEL_GATHER_HEAD,
    /* Mixture of experts, in place of FC1, ACTIVATION, FC2; those are of shared experts then. */
    ERG_MODEL_ROUTER,   /* product, softmax, choice of the experts */
    ERG_MODEL_PERMUTE,  /* rows in the order of their experts */
    ERG_MODEL_DISPATCH, /* all-to-all to the ranks of the experts */
    ERG_MODEL_GATHER_E, /* AllGather of the rows of all tensor ranks */
    ERG_MODEL_FC1_E,
    ERG_MODEL_ACTIVATION_E,
    ERG_MODEL_FC2_E,
    ERG_MODEL_SCATTER_E, /* ReduceScatter of the tensor ranks' terms of the sums */
    ERG_MODEL_COMBINE,   /* all-to-all back */
    ERG_MODEL_UNPERMUTE, /* weighted sums of the outputs of a token's experts */
    /* Latent attention, in place of QKV. */
    ERG_MODEL_Q_DOWN,
    ERG_MODEL_KV_DOWN,
    ERG_MODEL_NORM_LATENT, /* of both short rows */
    ERG_MODEL_Q_UP,
    ERG_MODEL_KV_UP,
};

/* Neighbours of one group share a launch slot when they are memory-bound. */
enum erg_model_group {
    ERG_GROUP_NORM,       /* fork, bias-dropout-add, norms */
    ERG_GROUP_ROPE,       /* QKV split and rotary embedding */
    ERG_GROUP_ACTIVATION, /* of the MLP */
    ERG_GROUP_LINEAR,
    ERG_GROUP_ATTENTION,
    ERG_GROUP_COMM,
    ERG_GROUP_EMBEDDING, /* embedding and loss */
    ERG_GROUP_ROWS,      /* reordering of rows for a mixture of experts */
};
const char *erg_model_group_name(enum erg_model_group group); /* "norm", "linear", "attn", … */

struct erg_model_op {
    enum erg_model_op_id id;
    const char *name; /* "qkv", "ar", … */
    enum erg_model_group group;
    bool comm;
    struct erg_comm communication; /* when comm */
    struct erg_op work[2];         /* for the device; a linear's backward is two GEMMs: input
                                    * gradient, then weight gradient, or the other way round where
                                    * its input is gathered into the place of the input gradient */
    int work_count;                /* 0 for communication and for the forward fork */
    double saved_bytes;            /* forward: activations kept for the backward pass */
    double params;                 /* on this GPU; the same in forward and backward */
    bool of_experts;               /* params are those of experts: other ranks hold others */
    bool adapter;                  /* of LoRA, added to the linear of this id */
};

enum { ERG_MODEL_MAX_OPS = 48 };

struct erg_model_ops {
    struct erg_model_op items[ERG_MODEL_MAX_OPS];
    size_t count;
};

/* One transformer layer, in execution order. AllReduce only if t > 1, KV exchange only if c > 1.
 * Under sequence parallelism a ReduceScatter and an AllGather instead of each AllReduce. */
void erg_model_layer_forward(struct erg_model_ops *ops, const struct erg_model *model,
                             const struct erg_model_shape *shape);
void erg_model_layer_backward(struct erg_model_ops *ops, const struct erg_model *model,
                              const struct erg_model_shape *shape);

/* The operations that the first stage adds: the token embedding. */
void erg_model_embedding_forward(struct erg_model_ops *ops, const struct erg_model *model,
                                 const struct erg_model_shape *shape);
void erg_model_embedding_backward(struct erg_model_ops *ops, const struct erg_model *model,
                                  const struct erg_model_shape *shape);

/*
 * The operations that the last stage adds: final norm, LM head, loss. The parameters of a tied head
 * are those of the copy that a last stage holds when it is not also the first.
 */
void erg_model_head_forward(struct erg_model_ops *ops, const struct erg_model *model,
                            const struct erg_model_shape *shape);
void erg_model_head_backward(struct erg_model_ops *ops, const struct erg_model *model,
                             const struct erg_model_shape *shape);

/* Parameters of the whole model; a tied head counts once, and adapters of LoRA do not. */
double erg_model_parameters(const struct erg_model *model);
/* Parameters that a token uses, with only its chosen experts and the shared ones. */
double erg_model_active_parameters(const struct erg_model *model);
/* Those that are trained: without the rows of padding. */
double erg_model_trained_parameters(const struct erg_model *model);

/*
 * FLOPs of the forward pass over `tokens` tokens in sequences of `sequence`, all GPUs together.
 * Attention is counted without the causal mask, as in Kareus' published TFLOP/s. Only the experts
 * that the tokens choose and the router's product count. A training iteration costs three times
 * their sum, and full recomputation adds linear and attention once more.
 */
struct erg_model_flops {
    double linear, head, attention;
};
struct erg_model_flops erg_model_forward_flops(const struct erg_model *model, double tokens,
                                               double sequence);

#endif
