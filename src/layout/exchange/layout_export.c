/* Exports of layouts: the parts common to all software, and the dispatch. */
#include "layout/exchange/export_internal.h"

#include <stdio.h>

bool erg_export_is_even(const struct erg_layout *layout)
{
    long chunks = layout->pipeline * layout->virtual_stages;
    for (long i = 1; layout->chunk_layers && i < chunks; i++)
        if (layout->chunk_layers[i] != layout->chunk_layers[0])
            return false;
    return true;
}

/* The least mode that recomputes all that either mode does. */
static enum erg_recompute both(enum erg_recompute a, enum erg_recompute b)
{
    if (erg_recompute_is_within(a, b))
        return b;
    return erg_recompute_is_within(b, a) ? a : ERG_RECOMPUTE_BALANCED;
}

enum erg_recompute erg_export_recompute(struct erg_text *out, const struct erg_layout *layout,
                                        const char *software)
{
    enum erg_recompute most = erg_layout_recompute(layout, 0);
    bool differ = false;
    for (long s = 1; s < layout->pipeline; s++) {
        enum erg_recompute recompute = erg_layout_recompute(layout, s);
        differ |= recompute != most;
        most = both(most, recompute);
    }
    if (!differ)
        return most;
    erg_text_add(out, "# Planned for the stages, in order:");
    for (long s = 0; s < layout->pipeline; s++)
        erg_text_printf(out, " %s", erg_recompute_name(erg_layout_recompute(layout, s)));
    erg_text_printf(out, ".\n# %s recomputes the same on all of them: here %s.\n", software,
                    erg_recompute_name(most));
    return most;
}

bool erg_export_offload(struct erg_text *out, const struct erg_layout *layout)
{
    bool any = false, differ = false;
    for (long s = 0; s < layout->pipeline; s++) {
        any |= erg_layout_offload(layout, s) > 0;
        differ |= erg_layout_offload(layout, s) != erg_layout_offload(layout, 0);
    }
    if (!any)
        return false;
    erg_text_add(out, "# NOT THE SAME: share of the activations planned for host memory:");
    for (long s = 0; s < (differ ? layout->pipeline : 1); s++)
        erg_text_printf(out, " %.4g", erg_layout_offload(layout, s));
    erg_text_add(out, differ ? " (by stage).\n" : ".\n");
    return true;
}

static void add_heading(struct erg_text *out, const struct erg_model *model,
                        const struct erg_layout *layout)
{
    char experts[64] = "", shards[48] = "";
    if (erg_layout_experts(layout) > 1)
        snprintf(experts, sizeof experts, "experts over %ld ranks, ", layout->expert);
    if (erg_layout_is_sharded(layout))
        snprintf(shards, sizeof shards, " (FSDP over %ld)", layout->fsdp);
    erg_text_printf(
        out,
        "# %s on %ld GPU%s, planned by ergon.\n"
        "# Tensor %ld x context %ld x pipeline %ld x data %ld%s, %s%ld virtual stage%s, %ld "
        "microbatch%s of %ld x %ld tokens.\n",
        model->name, erg_layout_gpus(layout), erg_plural((size_t)erg_layout_gpus(layout)),
        layout->tensor, layout->context, layout->pipeline, layout->data, shards, experts,
        layout->virtual_stages, erg_plural((size_t)layout->virtual_stages), layout->microbatches,
        layout->microbatches == 1 ? "" : "es", layout->microbatch, layout->sequence);
}

void erg_layout_export(struct erg_text *out, enum erg_export_format format,
                       const struct erg_model *model, const struct erg_layout *layout)
{
    add_heading(out, model, layout);
    switch (format) {
    case ERG_EXPORT_MEGATRON:
        erg_export_megatron(out, model, layout);
        break;
    case ERG_EXPORT_TORCHTITAN:
        erg_export_torchtitan(out, model, layout);
        break;
    }
}
