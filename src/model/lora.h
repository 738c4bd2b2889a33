/*
 * LoRA (Hu et al., 2021): some linears of each layer get a product down to a small rank and one up
 * again; only these are trained. All other weights are frozen: they have no gradients and no
 * optimizer state, so a linear's backward pass is only the product for its input, and tensors that
 * only the gradient of a frozen weight needs are not kept. Tensor ranks have an equal share of both
 * products' parameters and FLOPs.
 *
 * Left out: the tensor between the two products, rank / hidden of a hidden tensor, and its exchange
 * between tensor ranks; the saved sum of gradients of norms' weights.
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

/* Parameters of all adapters of one layer, over all tensor ranks. */
double erg_lora_layer_parameters(const struct erg_model *model);

/* Changes an op list for LoRA, if the model has it; `layer`: of a layer, which has adapters. */
void erg_lora_apply(struct erg_model_ops *ops, const struct erg_model *model,
                    const struct erg_model_shape *shape, bool layer, bool backward);

/* The parameters of these ops that are trained. */
double erg_lora_trained(const struct erg_model_ops *ops, const struct erg_model *model);

#endif
