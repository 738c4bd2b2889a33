/* Finds the best algorithm for each product of a decoder. */
#include "base/log.h"
#include "device/cuda/decoder_internal.h"

struct tuned_product {
    const char *name;
    size_t inputs, outputs;
    const void *x, *weight;
    void *y;   /* forward */
    void *d_y; /* backward */
    void *d_x;
    float *d_weight;
};

static int tune(struct erg_decoder *decoder, const struct tuned_product *p, enum erg_gemm_kind kind,
                size_t tokens, int sms, struct CUstream_st *stream, struct erg_error *err)
{
    struct erg_gemm_shape shape = {kind, tokens, p->inputs, p->outputs};
    const void *a = kind == ERG_GEMM_INPUT_GRADIENT ? p->d_y : p->x;
    const void *b = kind == ERG_GEMM_WEIGHT_GRADIENT ? p->d_y : p->weight;
    void *c = kind == ERG_GEMM_FORWARD          ? p->y
              : kind == ERG_GEMM_INPUT_GRADIENT ? p->d_x
                                                : (void *)p->d_weight;
    struct erg_gemm_timing timing;
    if (erg_gemm_tune(decoder->options.gemm, &shape, a, b, NULL, c, sms, decoder->gemm_workspace,
                      stream, &timing, err))
        return erg_fail_context(err, "tuning the product %s", p->name);
    static const char *const kinds[] = {"forward", "input gradient", "weight gradient"};
    erg_log(ERG_LOG_DEBUG, "%s %s, %zu tokens, %d SMs: answer %zu of %zu, %.3f ms, the first %.3f",
            p->name, kinds[kind], tokens, sms, timing.best + 1, timing.answers, timing.best_ms,
            timing.first_ms);
    return 0;
}

int erg_decoder_tune(struct erg_decoder *decoder, int sms, struct CUstream_st *stream,
                     struct erg_error *err)
{
    const struct decoder_layer *layer = &decoder->layers[0];
    const struct decoder_activations *act = &layer->act;
    const struct decoder_vocabulary *v = &decoder->vocabulary;
    erg_bf16 *const *w = layer->weights;
    float *const *g = layer->gradients;
    erg_bf16 *const *reduce = decoder->reduce;
    size_t h = decoder->hidden, head = ERG_WEIGHT_HEAD - ERG_WEIGHTS;
    const struct tuned_product products[] = {
        {"qkv", h, decoder->qkv_row, act->n_a, w[ERG_WEIGHT_QKV], act->qkv, decoder->d_qkv,
         reduce[DECODER_REDUCE_A], g[ERG_WEIGHT_QKV]},
        {"proj", decoder->attn_row, h, act->attn, w[ERG_WEIGHT_PROJ], reduce[DECODER_REDUCE_A],
         decoder->d_mid, decoder->d_attn, g[ERG_WEIGHT_PROJ]},
        {"fc1", h, 2 * decoder->ffn, act->n_m, w[ERG_WEIGHT_FC1], act->gate_up, decoder->d_gate_up,
         reduce[DECODER_REDUCE_M], g[ERG_WEIGHT_FC1]},
        {"fc2", decoder->ffn, h, act->act, w[ERG_WEIGHT_FC2], reduce[DECODER_REDUCE_M],
         decoder->d_output, decoder->d_act, g[ERG_WEIGHT_FC2]},
        {"head", h, v->ids, v->n_final, v->weights[head], v->logits, v->logits,
         reduce[DECODER_REDUCE_A], v->gradients[head]},
    };
    size_t count = sizeof products / sizeof *products - !decoder->options.head;
    for (size_t i = 0; i < count; i++)
        for (int kind = ERG_GEMM_FORWARD; kind <= ERG_GEMM_WEIGHT_GRADIENT; kind++)
            /* Halves run next to a collective; the whole microbatch and the head never do. */
            for (int half = 0; half <= (decoder->options.sequences % 2 == 0 && i < 4); half++)
                for (int bounded = 0; bounded <= half; bounded++)
                    if (tune(decoder, &products[i], (enum erg_gemm_kind)kind,
                             decoder->tokens >> half, bounded ? sms : 0, stream, err))
                        return -1;
    return 0;
}
