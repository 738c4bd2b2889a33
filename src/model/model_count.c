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

/* Whether any layer has it. */
static bool has_plain_ffn(const struct erg_model *model)
{
    return model->experts.count == 0 || model->experts.dense_layers > 0;
}

int erg_model_check_experts(const struct erg_model *model, long expert, struct erg_error *err)
{
    if (expert < 1)
        return erg_fail(err, ERG_FAILED, "expected an expert degree of at least 1, got %ld",
                        expert);
    if (expert > 1 && model->experts.count == 0)
        return erg_fail(err, ERG_FAILED,
                        "%s has no experts to be spread over an expert degree of %ld", model->name,
                        expert);
    if (expert == 1 || model->experts.count % expert == 0)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "the %ld experts of %s cannot be divided among an expert degree of %ld",
                    model->experts.count, model->name, expert);
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
    if (has_plain_ffn(model) && check_divides(model, "FFN channels", model->ffn, tensor, err) != 0)
        return -1;
    if (check_divides(model, "channels of an expert", model->experts.ffn, tensor, err) != 0)
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
        return erg_fail(
            err, ERG_FAILED,
            "a sequence of %ld tokens is longer than the window of %ld in which the attention of "
            "%s is full, and the cost of partial attention is not modelled",
            sequence, model->window, model->name);
    return 0;
}

double erg_model_trained_parameters(const struct erg_model *model)
{
    struct erg_model own = *model;
    own.vocab = erg_model_words(model);
    return erg_model_parameters(&own);
}

/* Parameters of one layer: of all its experts, or of those of one token. */
static double layer_parameters(const struct erg_model *model, bool active)
{
    const struct erg_model_shape whole = {.tensor = 1, .context = 1, .sequences = 1, .sequence = 1};
    const struct erg_experts *experts = &model->experts;
    struct erg_model_ops layer;
    double total = 0;
    erg_model_layer_forward(&layer, model, &whole);
    for (size_t i = 0; i < layer.count; i++) {
        double params = layer.items[i].adapter ? 0 : layer.items[i].params;
        if (active && layer.items[i].of_experts)
            params = params / (double)experts->count * (double)experts->chosen;
        total += params;
    }
    return total;
}

static double count_parameters(const struct erg_model *model, bool active)
{
    const struct erg_model_shape whole = {.tensor = 1, .context = 1, .sequences = 1, .sequence = 1};
    const struct erg_model dense = erg_model_without_experts(model);
    const long dense_layers = model->experts.dense_layers;
    struct erg_model_ops embedding, head;
    erg_model_embedding_forward(&embedding, model, &whole);
    erg_model_head_forward(&head, model, &whole);
    double total = (double)(model->layers - dense_layers) * layer_parameters(model, active);
    if (dense_layers > 0)
        total += (double)dense_layers * layer_parameters(&dense, active);
    for (size_t i = 0; i < embedding.count; i++)
        total += embedding.items[i].params;
    for (size_t i = 0; i < head.count; i++) {
        if (!(model->tied && head.items[i].id == ERG_MODEL_HEAD))
            total += head.items[i].params;
    }
    return total;
}

double erg_model_parameters(const struct erg_model *model)
{
    return count_parameters(model, false);
}

double erg_model_active_parameters(const struct erg_model *model)
{
    return count_parameters(model, true);
}

/* Weights of the products of the attention in a layer. */
static double attention_weights(const struct erg_model *model)
{
    const struct erg_latent *latent = &model->latent;
    double h = (double)model->hidden, d = (double)model->head_dim;
    double queries = (double)model->heads * d, keys = (double)model->kv_heads * d;
    if (!latent->keys)
        return h * (queries + 2 * keys) + queries * h;
    const double up = (double)(model->heads * (latent->plain + latent->values));
    const double values = (double)(model->heads * latent->values);
    const double to_queries =
        latent->queries ? (double)latent->queries * (h + queries) : h * queries;
    return to_queries + h * (double)(latent->keys + latent->rotated) + (double)latent->keys * up +
           values * h;
}

static double linear_flops(const struct erg_model *model, double tokens)
{
    const struct erg_experts *experts = &model->experts;
    const double h = (double)model->hidden, products = model->gated ? 3 : 2;
    const double attention = attention_weights(model), layers = (double)model->layers;
    const double mlp = products * h * (double)model->ffn;
    if (!experts->count)
        return 2 * tokens * layers * (attention + mlp);
    const double width = (double)(experts->chosen * experts->ffn + experts->shared_ffn);
    const double routed = products * h * width + h * (double)experts->count;
    const double dense = (double)experts->dense_layers;
    return 2 * tokens * (layers * attention + dense * mlp + (layers - dense) * routed);
}

struct erg_model_flops erg_model_forward_flops(const struct erg_model *model, double tokens,
                                               double sequence)
{
    const double h = (double)model->hidden, layers = (double)model->layers;
    double scored = (double)model->heads * (double)model->head_dim;
    double valued = (double)erg_model_attention_width(model);
    return (struct erg_model_flops){
        .linear = linear_flops(model, tokens),
        .head = 2 * tokens * h * (double)model->vocab,
        .attention = 2 * sequence * (scored + valued) * layers * tokens,
    };
}
