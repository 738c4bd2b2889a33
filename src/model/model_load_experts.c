/* Mixtures of experts and multi-head latent attention in configs. */
#include "model/model_internal.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { MAX_EXPERTS = 100000, MAX_WIDTH = 10000000 };

static int read_chosen(struct erg_model *model, const struct erg_json_place *place,
                       struct erg_error *err)
{
    struct erg_experts *experts = &model->experts;
    experts->groups = experts->chosen_groups = 1;
    experts->scale = 1;
    return erg_json_long(place, "num_experts_per_tok", 1, experts->count, &experts->chosen, err) ||
                   optional_double(place, "router_aux_loss_coef", 0, INFINITY,
                                   &experts->balance_loss, err)
               ? -1
               : 0;
}

int erg_model_read_mixtral(struct erg_model *model, const struct erg_json_place *place,
                           struct erg_error *err)
{
    struct erg_experts *experts = &model->experts;
    if (erg_json_long(place, "num_local_experts", 1, MAX_EXPERTS, &experts->count, err) ||
        read_chosen(model, place, err))
        return -1;
    experts->ffn = model->ffn;
    experts->renormalised = true;
    return 0;
}

/* Layers listed in `mlp_only_layers`, or whose number is not a multiple of the step, are dense. */
static int count_dense_layers(struct erg_model *model, const struct erg_json_place *place,
                              struct erg_error *err)
{
    struct erg_experts *experts = &model->experts;
    static const char key[] = "mlp_only_layers";
    const json_t *named = NULL;
    long step = 1, first = 0;
    if (optional_long(place, "decoder_sparse_step", model->layers, &step, err) ||
        (erg_json_has(place, key) && erg_json_array(place, key, &named, err)))
        return -1;
    for (size_t i = 0; i < json_array_size(named); i++) {
        const json_t *item = json_array_get(named, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) >= model->layers)
            return erg_json_fail(place, key, err, "expected layers from 0 to %ld",
                                 model->layers - 1);
    }
    for (long layer = 0; layer < model->layers; layer++) {
        bool dense = (layer + 1) % step != 0;
        for (size_t i = 0; i < json_array_size(named); i++)
            dense |= json_integer_value(json_array_get(named, i)) == layer;
        experts->dense_layers += dense;
        first += dense && first == layer;
    }
    experts->dense_first = first == experts->dense_layers;
    return 0;
}

/* All layers are dense: no experts. */
static void drop_unused(struct erg_model *model)
{
    if (model->experts.dense_layers == model->layers)
        model->experts = (struct erg_experts){0};
}

int erg_model_read_qwen_moe(struct erg_model *model, const struct erg_json_place *place,
                            struct erg_error *err)
{
    struct erg_experts *experts = &model->experts;
    if (erg_json_long(place, "num_experts", 0, MAX_EXPERTS, &experts->count, err))
        return -1;
    if (experts->count == 0)
        return 0;
    if (read_chosen(model, place, err) ||
        erg_json_long(place, "moe_intermediate_size", 1, MAX_WIDTH, &experts->ffn, err) ||
        optional_bool(place, "norm_topk_prob", &experts->renormalised, err) ||
        count_dense_layers(model, place, err))
        return -1;
    drop_unused(model);
    return 0;
}

static int read_latent(struct erg_model *model, const struct erg_json_place *place,
                       struct erg_error *err)
{
    struct erg_latent *latent = &model->latent;
    if (optional_long(place, "q_lora_rank", MAX_WIDTH, &latent->queries, err) ||
        erg_json_long(place, "kv_lora_rank", 1, MAX_WIDTH, &latent->keys, err) ||
        erg_json_long(place, "qk_nope_head_dim", 1, MAX_WIDTH, &latent->plain, err) ||
        erg_json_long(place, "qk_rope_head_dim", 1, MAX_WIDTH, &latent->rotated, err) ||
        erg_json_long(place, "v_head_dim", 1, MAX_WIDTH, &latent->values, err))
        return -1;
    model->head_dim = latent->plain + latent->rotated;
    model->kv_heads = model->heads;
    return 0;
}

/* Scores of version 3 are sigmoids, and its router has a number of each expert that evens out
 * loads. */
static int read_scores(struct erg_model *model, const struct erg_json_place *place,
                       struct erg_error *err)
{
    struct erg_experts *experts = &model->experts;
    const bool third = !strcmp(model->architecture, "DeepseekV3ForCausalLM");
    const char *scores = third ? "sigmoid" : "softmax", *method = third ? "noaux_tc" : "greedy";
    experts->renormalised = third;
    if ((erg_json_has(place, "scoring_func") &&
         erg_json_string(place, "scoring_func", &scores, err)) ||
        (erg_json_has(place, "topk_method") && erg_json_string(place, "topk_method", &method, err)))
        return -1;
    experts->sigmoid = !strcmp(scores, "sigmoid");
    experts->router_bias = !strcmp(method, "noaux_tc");
    return 0;
}

int erg_model_read_deepseek(struct erg_model *model, const struct erg_json_place *place,
                            struct erg_error *err)
{
    struct erg_experts *experts = &model->experts;
    long shared = 0, every = 1;
    if (read_latent(model, place, err))
        return -1;
    if (!erg_json_has(place, "n_routed_experts"))
        return 0;
    if (erg_json_long(place, "n_routed_experts", 1, MAX_EXPERTS, &experts->count, err) ||
        read_chosen(model, place, err) || read_scores(model, place, err) ||
        erg_json_long(place, "moe_intermediate_size", 1, MAX_WIDTH, &experts->ffn, err) ||
        optional_long(place, "n_shared_experts", MAX_EXPERTS, &shared, err) ||
        optional_long(place, "moe_layer_freq", LONG_MAX, &every, err) ||
        optional_long(place, "n_group", experts->count, &experts->groups, err) ||
        optional_long(place, "topk_group", experts->groups, &experts->chosen_groups, err) ||
        optional_double(place, "routed_scaling_factor", 0, INFINITY, &experts->scale, err) ||
        optional_bool(place, "norm_topk_prob", &experts->renormalised, err) ||
        optional_double(place, "aux_loss_alpha", 0, INFINITY, &experts->balance_loss, err) ||
        (erg_json_has(place, "first_k_dense_replace") &&
         erg_json_long(place, "first_k_dense_replace", 0, model->layers, &experts->dense_layers,
                       err)))
        return -1;
    if (every != 1)
        return erg_json_fail(place, "moe_layer_freq", err,
                             "expected 1, the only supported value, got %ld", every);
    experts->shared_ffn = shared * experts->ffn;
    experts->dense_first = true;
    drop_unused(model);
    return 0;
}
