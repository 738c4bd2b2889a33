/*
 * Decoder: layers of a transformer on one GPU, optionally with the embedding before and the head
 * and the loss after them: their weights, gradients, activations and operations, identified by the
 * codes of op lists (device/work.h). Measuring and training run the same operations on the same
 * buffers.
 *
 * Tokens are rows, sequence after sequence. A nanobatch is a range of sequences of the microbatch,
 * so its rows are a contiguous part of every buffer; sequential and nanobatched execution of ops
 * can be mixed.
 *
 * Tensor parallelism: this rank holds its share of the heads and of the FFN. Tensors that the ranks
 * must sum (outputs of proj and fc2, input gradients of qkv and fc1) are written directly into two
 * buffers that all ranks can access: REDUCE_A for the attention half of a layer, REDUCE_M for the
 * MLP half, in both directions.
 *
 * Context parallelism: this rank holds the tokens of its two chunks of each sequence
 * (ops/context.h). Keys and values of all ranks are gathered before each attention, forward and
 * backward, into a buffer that all layers share; their gradients are scattered after it. Attention
 * runs once for each chunk, in sequence on the compute stream.
 *
 * The backward pass adds to a weight's gradient. All operations are queued on a stream and may be
 * captured into CUDA graphs; all compute operations of one decoder belong on one stream.
 */
#ifndef ERG_CUDA_DECODER_H
#define ERG_CUDA_DECODER_H

#include "device/cuda/attention.h"
#include "device/cuda/gemm.h"
#include "device/cuda/mesh.h"
#include "device/work.h"
#include "model/model.h"
#include "ops/bf16.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_decoder;

struct erg_decoder_options {
    const struct erg_cuda *cuda; /* these outlive the decoder */
    struct erg_cudnn *cudnn;
    struct erg_gemm *gemm;
    const struct erg_model *model;
    /* NULL for a single rank. Communication marked `library` uses the mesh's libraries. */
    const struct erg_mesh *mesh;
    int layers, sequences, sequence; /* sequences of the microbatch, tokens of each on all ranks */
    bool embedding, head; /* the first stage has the embedding, the last stage the head */
    /*
     * Keeps the input of every layer, and the other activations of one layer only: a layer's
     * forward runs again before its backward.
     */
    bool replay;
    /*
     * For measurements: layers act as in the middle of a model. Instead of the embedding's output
     * they read a separate stream, several times as large as the values that a layer adds to it. So
     * tokens stay different even if a layer runs many times on its own output; similar tokens draw
     * less power (data/profiles/h200/README.md).
     */
    bool middle;
    uint64_t seed; /* of weights and data, equal on all ranks */
};

/*
 * A world call with several ranks (device/cuda/collective.h). Weights are normal with standard
 * deviation 0.02, those of norms 1. ERG_INFEASIBLE if the GPU's memory is too small, and for a
 * model with operations that the GPU's kernels lack (LayerNorm, GELU, biases, learned positions).
 */
int erg_decoder_open(struct erg_decoder **decoder, const struct erg_decoder_options *options,
                     struct erg_error *err);
int erg_decoder_close(struct erg_decoder *decoder, struct erg_error *err); /* a world call, too */

/* How an op runs. `sms`: the SMs that a concurrent collective leaves free; 0: all. */
struct erg_decoder_launch {
    struct CUstream_st *stream;
    int sms;
};

/*
 * Queues one op of layer `layer` on the sequences [first, first + code->sequences). The residual
 * add of BDA_M, which closes the previous layer, belongs to the layer that it opens; after the last
 * layer it belongs to that one.
 */
int erg_decoder_op(struct erg_decoder *decoder, size_t layer, const struct erg_op_code *code,
                   int first, const struct erg_decoder_launch *launch, struct erg_error *err);

/*
 * true: from now on the backward of attention gives the same bits in every run; it is slower, uses
 * all SMs, and needs memory for all scores of a layer. false: it sums by atomics, the default.
 * ERG_NO_DEVICE if cuDNN has no such kernel for this GPU.
 */
int erg_decoder_repeat(struct erg_decoder *decoder, bool repeatable, struct erg_error *err);

/*
 * Queues a communication of the sequences [first, first + comm->sequences) on `sms` SMs. `layer`:
 * that of the previous op.
 */
int erg_decoder_comm(struct erg_decoder *decoder, size_t layer, const struct erg_comm *comm,
                     int first, int sms, struct CUstream_st *stream, struct erg_error *err);

/*
 * Checks once, when buffers hold data, what SM budgets rely on: attention gives the same bits on
 * fewer SMs (device/cuda/attention.h). Blocks, and overwrites attention's outputs.
 */
int erg_decoder_verify(struct erg_decoder *decoder, struct CUstream_st *stream,
                       struct erg_error *err);

/*
 * Tensors, for tests and for the work before and after the layers: input and output of the decoder
 * [tokens, hidden], and their gradients. The caller fills input and output_gradient. Here and below
 * `tokens` are those of this rank, sequence after sequence.
 */
struct erg_decoder_ends {
    erg_bf16 *input, *output, *output_gradient, *input_gradient;
    float *loss; /* one number; NULL without a head */
    size_t tokens, hidden;
};
struct erg_decoder_ends erg_decoder_ends(const struct erg_decoder *decoder);

/*
 * The data of a step, [tokens] each, from host memory: ids of the tokens (with an embedding) and of
 * the next tokens (with a head; negative: not counted). Each loss pass adds to a sum on the GPU,
 * the mean over the microbatch (of context ranks: this one's share of it): erg_decoder_ends.loss.
 */
int erg_decoder_set_tokens(struct erg_decoder *decoder, const int32_t *ids, const int32_t *targets,
                           struct CUstream_st *stream, struct erg_error *err);

/*
 * Times the products of the layers and the head on this GPU, for the whole microbatch and for half
 * of it, with all SMs and with `sms` of them, and keeps the fastest algorithms. Call it once, when
 * buffers hold data. Blocks for some ten seconds; clear the weight gradients afterwards.
 */
int erg_decoder_tune(struct erg_decoder *decoder, int sms, struct CUstream_st *stream,
                     struct erg_error *err);

/*
 * Queues one forward and one backward of the microbatch through everything, op by op, with the
 * communication in between. So later measurements of single ops find the same tensors as in
 * training, and no kernel is loaded during a capture.
 */
int erg_decoder_pass(struct erg_decoder *decoder, struct CUstream_st *stream,
                     struct erg_error *err);

int erg_decoder_layers(const struct erg_decoder *decoder);

/* A weight of a layer and its gradient, on the GPU. */
struct erg_decoder_tensor {
    const char *name;
    erg_bf16 *weight;
    float *gradient;
    size_t count; /* 0: the model lacks this weight */
};

/* The weights of a layer; shapes are [outputs, inputs]. */
enum erg_decoder_weight {
    ERG_WEIGHT_NORM_A,
    ERG_WEIGHT_QKV,
    ERG_WEIGHT_Q_NORM,
    ERG_WEIGHT_K_NORM,
    ERG_WEIGHT_PROJ,
    ERG_WEIGHT_NORM_M,
    ERG_WEIGHT_FC1, /* gate, then up */
    ERG_WEIGHT_FC2,
    ERG_WEIGHTS,
    /* Not of a layer: erg_decoder_tensor() with any layer. */
    ERG_WEIGHT_EMBEDDING = ERG_WEIGHTS,
    ERG_WEIGHT_NORM_FINAL,
    ERG_WEIGHT_HEAD, /* the embedding itself if the model ties them and this stage has both */
    ERG_ALL_WEIGHTS,
};

struct erg_decoder_tensor erg_decoder_tensor(const struct erg_decoder *decoder, size_t layer,
                                             enum erg_decoder_weight weight);
int erg_decoder_clear_gradients(struct erg_decoder *decoder, struct CUstream_st *stream,
                                struct erg_error *err);

#endif
