/* ergon/model.h: models as a program opens them, and what it asks of them. */
#include "ergon/model.h"

#include "base/call.h"
#include "base/sized.h"
#include "model/model.h"

struct model_opening {
    struct erg_model **model;
    const char *name, *text; /* NULL: read the file */
    size_t length;
};

static int open_model(void *argument, struct erg_error *err)
{
    const struct model_opening *at = argument;
    return at->text ? erg_model_parse(at->model, at->name, at->text, at->length, err)
                    : erg_model_load(at->model, at->name, err);
}

int erg_model_open(struct erg_model **model, const char *name, struct erg_error *err)
{
    struct model_opening at = {.model = model, .name = name};
    return erg_call_run(open_model, &at, NULL, err);
}

int erg_model_open_text(struct erg_model **model, const char *name, const char *text, size_t length,
                        struct erg_error *err)
{
    struct model_opening at = {model, name, text, length};
    return erg_call_run(open_model, &at, NULL, err);
}

int erg_model_info(const struct erg_model *model, struct erg_model_info *info,
                   struct erg_error *err)
{
    const struct erg_model_info own = {
        .name = model->name,
        .architecture = model->architecture,
        .layers = model->layers,
        .hidden = model->hidden,
        .heads = model->heads,
        .kv_heads = model->kv_heads,
        .head_dim = model->head_dim,
        .ffn = model->ffn,
        .vocabulary = model->vocab,
        .most_positions = model->max_positions,
        .window = model->window,
        .parameters = erg_model_parameters(model),
        .chosen_experts = (int32_t)model->experts.chosen,
        .experts = model->experts.count,
        .expert_ffn = model->experts.ffn,
        .shared_ffn = model->experts.shared_ffn,
        .dense_layers = model->experts.dense_layers,
        .active_parameters = erg_model_active_parameters(model),
        .trained_parameters = erg_model_trained_parameters(model),
        .tied = model->tied,
        .gated = model->gated,
    };
    return erg_sized_give(info, &own, sizeof own, "erg_model_info", err);
}

int erg_model_work(const struct erg_model *model, double tokens, double sequence,
                   struct erg_model_work *work, struct erg_error *err)
{
    if (!(tokens > 0 && sequence > 0 && sequence <= tokens))
        return erg_fail(err, ERG_USAGE,
                        "%.10g tokens in sequences of %.10g; expected one sequence of a token at "
                        "least",
                        tokens, sequence);
    const struct erg_model_flops forward = erg_model_forward_flops(model, tokens, sequence);
    const double again = forward.linear + forward.attention;
    const double training = 3 * (again + forward.head);
    const struct erg_model_work own = {
        .linear_flops = forward.linear,
        .head_flops = forward.head,
        .attention_flops = forward.attention,
        .training_flops = training,
        .recomputing_flops = training + again,
    };
    return erg_sized_give(work, &own, sizeof own, "erg_model_work", err);
}
