/*
 * Layouts as settings of other training software, so that a plan can run there unchanged.
 *
 * Megatron-LM: arguments of pretrain_gpt.py, one per line; names as of megatron-core 0.16.
 * torchtitan: sections of its TOML file, as of 0.2. Later versions are configured in Python, and
 * the same sections and keys are options of their command line.
 *
 * Both contain only settings that follow from model and layout: no data, tokenizer, learning rate
 * or length of the training. If the other software cannot run the plan exactly, a comment (lines
 * that start with "#") explains it, and the setting is the nearest supported one. Neither has
 * settings for GPU clocks.
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
