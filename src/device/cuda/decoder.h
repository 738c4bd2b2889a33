/*
 * Decoder: layers of a transformer on one GPU, optionally with the embedding before and the head
 * and the loss after them: their weights, gradients, activations and operations, named by the codes
 * that op lists carry (device/work.h). Measuring and training run the same operations on the same
 * buffers.
 *
 * Tokens are rows, sequence after sequence. A nanobatch is a range of sequences of the
 * microbatch, so its rows are a piece of every buffer: sequential and nanobatched execution of any
 * op may follow each other.
 *
 * Tensor parallelism: this rank holds its share of the heads and of the FFN. Tensors that the ranks
 * have to add up (outputs of proj and fc2, input gradients of qkv and fc1) are written directly
 * into two buffers that all ranks reach: REDUCE_A for the attention half of a layer, REDUCE_M for
 * the MLP half, in both directions.
 *
 * Context parallelism: this rank holds the tokens of its two chunks of each sequence
 * (ops/context.h). Keys and values of all ranks are gathered before each attention, forward and
 * backward, into a buffer that all layers share, and the gradients of all are scattered after it.
 * Attention runs once for each chunk, one after the other on the stream of computation.
 *
 * The backward pass adds to a weight's gradient. All operations are queued on a stream and may be
 * captured into CUDA graphs; those of one decoder that compute belong on one stream.
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
    /* NULL for a single rank. Communication marked `library` runs by the mesh's libraries. */
    const struct erg_mesh *mesh;
    int layers, sequences, sequence; /* sequences of the microbatch, tokens of each on all ranks */
    bool embedding, head;            /* the first stage has the one, the last stage the other */
    /* Keep the input of every layer, and the other activations of one layer only: before its
     * backward a layer's forward is run again. */
    bool replay;
    /* Layers are those of the middle of a model: they read a stream of their own, several times as
     * large as the values that a layer adds to it, instead of the embedding's output. So tokens
     * stay different even if a layer runs many times on its own output. For measurements: tokens
     * that have become alike draw less power (data/profiles/h200/README.md). */
    bool middle;
    uint64_t seed; /* of weights and data, equal on all ranks */
};

/*
 * A world call when there are several ranks (device/cuda/collective.h). Weights are normal with
 * standard deviation 0.02, those of norms 1. ERG_INFEASIBLE when the GPU's memory does not suffice,
 * and for a model with operations that the GPU's kernels lack (LayerNorm, GELU, biases, learned
 * positions).
 */
int erg_decoder_open(struct erg_decoder **decoder, const struct erg_decoder_options *options,
                     struct erg_error *err);
int erg_decoder_close(struct erg_decoder *decoder, struct erg_error *err); /* a world call, too */

/* The place of an op. `sms`: the SMs that a concurrent collective leaves free; 0 = all. */
struct erg_decoder_launch {
    struct CUstream_st *stream;
    int sms;
};

/*
 * Queues one op of layer `layer` on the sequences [first, first + code->sequences). Ops that close
 * the layer before (the residual add of BDA_M) belong to the layer that they open; alone, after the
 * last layer, to that one.
 */
int erg_decoder_op(struct erg_decoder *decoder, size_t layer, const struct erg_op_code *code,
                   int first, const struct erg_decoder_launch *launch, struct erg_error *err);

/*
 * From now on the backward of attention, which else sums by atomics, gives the same bits in every
 * run; it is then slower, takes all SMs, and needs memory for all scores of a layer. False: by
 * atomics again. ERG_NO_DEVICE when cuDNN has no such kernel for this GPU.
 */
int erg_decoder_repeat(struct erg_decoder *decoder, bool repeatable, struct erg_error *err);

/*
 * Queues a communication of the sequences [first, first + comm->sequences) on `sms` SMs. `layer` is
 * that of the op before it.
 */
int erg_decoder_comm(struct erg_decoder *decoder, size_t layer, const struct erg_comm *comm,
                     int first, int sms, struct CUstream_st *stream, struct erg_error *err);

/*
 * Checks what SM budgets rely on, once, when buffers hold data: that attention gives the same bits
 * on fewer SMs (device/cuda/attention.h). Blocks, and spoils what attention writes.
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
 * The data of a step, [tokens] each, from host memory: ids of the tokens (with an embedding), and
 * of those that should come next (with a head; negative: not counted). Each loss pass adds to a sum
 * on the GPU, the mean over the microbatch (of context ranks: this one's share of it):
 * erg_decoder_ends.loss.
 */
int erg_decoder_set_tokens(struct erg_decoder *decoder, const int32_t *ids, const int32_t *targets,
                           struct CUstream_st *stream, struct erg_error *err);

/*
 * Times the products of the layers and the head on this GPU, for the whole microbatch and for half
 * of it, with all SMs and with `sms` of them, and keeps the fastest algorithms: once, when buffers
 * hold data. Blocks, for some ten seconds; weight gradients are spoilt, so clear them afterwards.
 */
int erg_decoder_tune(struct erg_decoder *decoder, int sms, struct CUstream_st *stream,
                     struct erg_error *err);

/*
 * Queues one forward and one backward of the microbatch through everything, op by op, with the
 * communication in between. Later measurements of single ops then find the tensors that training
 * would have left, and no kernel is loaded during a capture.
 */
int erg_decoder_pass(struct erg_decoder *decoder, struct CUstream_st *stream,
                     struct erg_error *err);

int erg_decoder_layers(const struct erg_decoder *decoder);

/* A weight of a layer and its gradient, on the GPU. */
struct erg_decoder_tensor {
    const char *name;
    erg_bf16 *weight;
    float *gradient;
    size_t count; /* 0 where the model lacks this weight */
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
    /* Not of a layer: erg_decoder_tensor() with any. */
    ERG_WEIGHT_EMBEDDING = ERG_WEIGHTS,
    ERG_WEIGHT_NORM_FINAL,
    ERG_WEIGHT_HEAD, /* the embedding itself where the model ties them and both are here */
    ERG_ALL_WEIGHTS,
};

struct erg_decoder_tensor erg_decoder_tensor(const struct erg_decoder *decoder, size_t layer,
                                             enum erg_decoder_weight weight);
int erg_decoder_clear_gradients(struct erg_decoder *decoder, struct CUstream_st *stream,
                                struct erg_error *err);

#endif
