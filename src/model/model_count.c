/* Whether a model can be split, and its parameters and FLOPs as a whole. */
#include "model/model.h"

static int check_divides(const struct erg_model *model, const char *what, long count, long tensor,
                         struct erg_error *err)
{
    if (count % tensor == 0)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "the %ld %s of %s cannot be divided among a tensor degree of %ld", count, what,
                    model->name, tensor);
}

int erg_model_check_tensor(const struct erg_model *model, long tensor, struct erg_error *err)
{
    if (tensor < 1)
        return erg_fail(err, ERG_FAILED, "expected a tensor degree of at least 1, got %ld", tensor);
    if (check_divides(model, "attention heads", model->heads, tensor, err) != 0)
        return -1;
    /* With fewer groups than GPUs, each is held by as many GPUs as share its queries. */
    if (tensor % model->kv_heads != 0 &&
        check_divides(model, "KV groups", model->kv_heads, tensor, err) != 0)
        return -1;
    if (check_divides(model, "FFN channels", model->ffn, tensor, err) != 0)
        return -1;
    if (model->vocab % tensor != 0)
        return erg_fail(err, ERG_FAILED,
                        "the vocabulary of %s has %ld words, which cannot be divided among a "
                        "tensor degree of %ld; pad it, for example to %ld",
                        model->name, model->vocab, tensor,
                        erg_model_padded_vocabulary(model, tensor));
    return 0;
}

long erg_model_local_kv_heads(const struct erg_model *model, long tensor)
{
    return model->kv_heads < tensor ? 1 : model->kv_heads / tensor;
}

long erg_model_padded_vocabulary(const struct erg_model *model, long tensor)
{
    long step = 128 * tensor;
    if (model->vocab_is_padded && model->vocab % tensor == 0)
        return model->vocab;
    return (model->vocab + step - 1) / step * step;
}

int erg_model_check_sequence(const struct erg_model *model, long context, long sequence,
                             struct erg_error *err)
{
    if (context < 1)
        return erg_fail(err, ERG_FAILED, "expected a context degree of at least 1, got %ld",
                        context);
    if (sequence < 1)
        return erg_fail(err, ERG_FAILED, "expected a sequence of at least 1 token, got %ld",
                        sequence);
    if (context > 1 && sequence % (2 * context) != 0)
        return erg_fail(err, ERG_FAILED,
                        "a sequence of %ld tokens cannot be cut into the %ld equal chunks of a "
                        "context degree of %ld",
                        sequence, 2 * context, context);
    if (model->learned_positions && sequence > model->max_positions)
        return erg_fail(err, ERG_FAILED,
                        "a sequence of %ld tokens is longer than the %ld positions that %s has",
                        sequence, model->max_positions, model->name);
    if (model->window && sequence > model->window)
        return erg_fail(err, ERG_FAILED,
                        "a sequence of %ld tokens is longer than the window of %ld in which the "
                        "attention of %s is full, and partial attention has no cost model",
                        sequence, model->window, model->name);
    return 0;
}

double erg_model_trained_parameters(const struct erg_model *model)
{
    struct erg_model own = *model;
    own.vocab = erg_model_words(model);
    return erg_model_parameters(&own);
}

double erg_model_parameters(const struct erg_model *model)
{
    const struct erg_model_shape whole = {.tensor = 1, .context = 1, .sequences = 1, .sequence = 1};
    struct erg_model_ops layer, embedding, head;
    erg_model_layer_forward(&layer, model, &whole);
    erg_model_embedding_forward(&embedding, model, &whole);
    erg_model_head_forward(&head, model, &whole);
    double total = 0;
    for (size_t i = 0; i < layer.count; i++)
        total += layer.items[i].adapter ? 0 : (double)model->layers * layer.items[i].params;
    for (size_t i = 0; i < embedding.count; i++)
        total += embedding.items[i].params;
    for (size_t i = 0; i < head.count; i++) {
        if (!(model->tied && head.items[i].id == ERG_MODEL_HEAD))
            total += head.items[i].params;
    }
    return total;
}

struct erg_model_flops erg_model_forward_flops(const struct erg_model *model, double tokens,
                                               double sequence)
{
    double h = (double)model->hidden, d = (double)model->head_dim;
    double queries = (double)model->heads * d, keys = (double)model->kv_heads * d;
    double mlp = (model->gated ? 3 : 2) * h * (double)model->ffn;
    double layers = (double)model->layers;
    return (struct erg_model_flops){
        .linear = 2 * tokens * layers * (h * (queries + 2 * keys) + queries * h + mlp),
        .head = 2 * tokens * h * (double)model->vocab,
        .attention = 4 * sequence * queries * layers * tokens,
    };
}
