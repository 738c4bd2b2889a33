/* Functions that the exports to other software share. */
#ifndef ERG_LAYOUT_EXCHANGE_EXPORT_INTERNAL_H
#define ERG_LAYOUT_EXCHANGE_EXPORT_INTERNAL_H

#include "layout/exchange/export.h"

void erg_export_megatron(struct erg_text *out, const struct erg_model *model,
                         const struct erg_layout *layout);
void erg_export_torchtitan(struct erg_text *out, const struct erg_model *model,
                           const struct erg_layout *layout);

/* Whether all chunks have the same number of layers. */
bool erg_export_is_even(const struct erg_layout *layout);

/*
 * The recomputation of all stages if they cannot differ: the most that any stage has, so that each
 * fits into the planned memory. Writes a comment if the plan's stages differ.
 */
enum erg_recompute erg_export_recompute(struct erg_text *out, const struct erg_layout *layout,
                                        const char *software);

/* Writes a comment on planned offloading; false without a comment if there is none. */
bool erg_export_offload(struct erg_text *out, const struct erg_layout *layout);

/* ---- mixtures of experts (export_experts.c); these write nothing for other models ---- */

void erg_export_megatron_degrees(struct erg_text *out, const struct erg_model *model,
                                 const struct erg_layout *layout);
void erg_export_megatron_experts(struct erg_text *out, const struct erg_model *model,
                                 const struct erg_layout *layout);
void erg_export_megatron_latent(struct erg_text *out, const struct erg_model *model);
/* False, without output, if the arguments of a dense model are enough. */
bool erg_export_megatron_recompute(struct erg_text *out, const struct erg_model *model,
                                   enum erg_recompute recompute);
void erg_export_torchtitan_degrees(struct erg_text *out, const struct erg_model *model,
                                   const struct erg_layout *layout);
void erg_export_torchtitan_experts(struct erg_text *out, const struct erg_model *model);

#endif
