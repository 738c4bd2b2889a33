/* Exports of layouts: what all formats begin with, and which format is which. */
#include "layout/exchange/export_internal.h"

static void add_heading(struct erg_text *out, const struct erg_model *model,
                        const struct erg_layout *layout)
{
    erg_text_printf(
        out,
        "# %s on %ld GPU%s, planned by ergon.\n"
        "# Tensor %ld x context %ld x pipeline %ld x data %ld, %ld virtual stage%s, %ld "
        "microbatch%s of %ld x %ld tokens.\n",
        model->name, erg_layout_gpus(layout), erg_plural((size_t)erg_layout_gpus(layout)),
        layout->tensor, layout->context, layout->pipeline, layout->data, layout->virtual_stages,
        erg_plural((size_t)layout->virtual_stages), layout->microbatches,
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
