#include "model/model.h"

int erg_model_check_tensor(const struct erg_model *model, long tensor, struct erg_error *err)
{
    const struct {
        const char *what;
        long count;
    } parts[] = {
        {"attention heads", model->heads},
        {"KV groups", model->kv_heads},
        {"FFN channels", model->ffn},
    };
    if (tensor < 1)
        return erg_fail(err, ERG_FAILED, "expected a tensor degree of at least 1, got %ld", tensor);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].count % tensor != 0)
            return erg_fail(err, ERG_FAILED,
                            "the %ld %s of %s cannot be divided among a tensor degree of %ld",
                            parts[i].count, parts[i].what, model->name, tensor);
    }
    if (model->vocab % tensor != 0)
        return erg_fail(err, ERG_FAILED,
                        "the vocabulary of %s has %ld words, which cannot be divided among a "
                        "tensor degree of %ld; pad it, for example to %ld",
                        model->name, model->vocab, tensor,
                        erg_model_padded_vocabulary(model, tensor));
    return 0;
}

long erg_model_padded_vocabulary(const struct erg_model *model, long tensor)
{
    long step = 128 * tensor;
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

double erg_model_parameters(const struct erg_model *model)
{
    const struct erg_model_shape whole = {.tensor = 1, .context = 1, .sequences = 1, .sequence = 1};
    struct erg_model_ops layer, embedding, head;
    erg_model_layer_forward(&layer, model, &whole);
    erg_model_embedding_forward(&embedding, model, &whole);
    erg_model_head_forward(&head, model, &whole);
    double total = 0;
    for (size_t i = 0; i < layer.count; i++)
        total += (double)model->layers * layer.items[i].params;
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
