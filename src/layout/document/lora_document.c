/* The adapters that a job trains on frozen weights, as JSON and for people. */
#include "layout/document/memory_document.h"

#include "io/json.h"
#include "model/lora.h"

static double parameters_of(const struct erg_model *model)
{
    return (double)model->layers * erg_lora_layer_parameters(model);
}

void erg_lora_add_document(json_t *document, const struct erg_model *model)
{
    json_t *targets = json_array();
    for (int i = 0; i < ERG_LORA_TARGETS; i++)
        if (model->lora.targets & 1u << i)
            json_array_append_new(targets, erg_json_new_string(erg_lora_target_names[i]));
    if (erg_lora_is_on(model))
        json_object_set_new(document, "lora",
                            erg_json_pack("{s:I, s:O, s:f}", "rank", (json_int_t)model->lora.rank,
                                          "targets", targets, "parameters", parameters_of(model)));
    json_decref(targets);
}

void erg_lora_add_line(struct erg_text *out, const struct erg_model *model)
{
    const char *between = " ";
    if (!erg_lora_is_on(model))
        return;
    erg_text_printf(out, "all weights are frozen; training LoRA of rank %ld for", model->lora.rank);
    for (int i = 0; i < ERG_LORA_TARGETS; i++)
        if (model->lora.targets & 1u << i) {
            erg_text_printf(out, "%s%s", between, erg_lora_target_names[i]);
            between = ", ";
        }
    erg_text_printf(out, ", %.0f parameters\n", parameters_of(model));
}
