/*
 * Layouts in the words of other training software, so that a plan can be run there as it is.
 *
 * Megatron-LM: arguments of pretrain_gpt.py, one a line; names as of megatron-core 0.16.
 * torchtitan: sections of its TOML file, as of 0.2. Later versions are configured in Python, and
 * the same sections and keys are options of their command line.
 *
 * Both hold what follows from model and layout alone: no data, tokenizer, learning rate or length
 * of the training. What the other software cannot do as planned is said in a comment (lines that
 * start with "#"), with the nearest that it can do as the setting. Neither has a word for GPU
 * clocks.
 */
#ifndef ERG_LAYOUT_EXCHANGE_EXPORT_H
#define ERG_LAYOUT_EXCHANGE_EXPORT_H

#include "base/text.h"
#include "job/layout.h"

enum erg_export_format { ERG_EXPORT_MEGATRON, ERG_EXPORT_TORCHTITAN };

/* Appends to `out`. The layout must have passed erg_layout_check(), its batch is its own. */
void erg_layout_export(struct erg_text *out, enum erg_export_format format,
                       const struct erg_model *model, const struct erg_layout *layout);

#endif
