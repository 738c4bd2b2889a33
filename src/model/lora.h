/*
 * LoRA (Hu et al., 2021): beside some linears of each layer a product down to a small rank and one
 * up again, which alone are trained. All other weights are frozen: they have no gradients and no
 * optimizer state, so a linear's backward pass is the product for its input alone, and what only
 * the gradient of a frozen weight would need is not kept. Tensor ranks have an equal share of both
 * products' parameters and FLOPs.
 *
 * Left out: what lies between the two products, rank / hidden of a hidden tensor, and its exchange
 * between tensor ranks; that gradients of norms' weights are not summed.
 */
#ifndef ERG_MODEL_LORA_H
#define ERG_MODEL_LORA_H

#include "model/model.h"

extern const char *const erg_lora_target_names[ERG_LORA_TARGETS + 1]; /* ends with NULL */

static inline bool erg_lora_is_on(const struct erg_model *model)
{
    return model->lora.rank > 0;
}

/* Whether the gradient of a weight needs this linear's input. True without LoRA. */
bool erg_lora_needs_input(const struct erg_model *model, enum erg_lora_target target);

/* Of one layer, over all tensor ranks: of one adapter, 0 where there is none, and of all. */
double erg_lora_parameters(const struct erg_model *model, enum erg_lora_target target);
double erg_lora_layer_parameters(const struct erg_model *model);

/* An op list as it is with LoRA, if the model has it; `layer`: of a layer, which has adapters. */
void erg_lora_apply(struct erg_model_ops *ops, const struct erg_model *model,
                    const struct erg_model_shape *shape, bool layer, bool backward);

/* The parameters of these ops that are trained. */
double erg_lora_trained(const struct erg_model_ops *ops, const struct erg_model *model);

#endif
