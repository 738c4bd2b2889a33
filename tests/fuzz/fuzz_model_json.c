/* libFuzzer: any bytes as a model's config.json; costs of whatever is accepted must be finite. */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_model *model;
    if (erg_model_parse(&model, "config.json", (const char *)data, size, &err) != 0)
        return 0;
    const struct erg_model_shape shape = {
        .tensor = 1, .context = 1, .sequences = 2, .sequence = 1024};
    struct erg_model_ops ops;
    erg_model_layer_forward(&ops, model, &shape);
    erg_model_layer_backward(&ops, model, &shape);
    for (size_t i = 0; i < ops.count; i++) {
        for (int j = 0; j < ops.items[i].work_count; j++) {
            if (!isfinite(ops.items[i].work[j].bytes) || !isfinite(ops.items[i].work[j].flops))
                abort();
        }
    }
    if (!(erg_model_parameters(model) > 0))
        abort();
    (void)erg_model_check_tensor(model, 8, &err);
    erg_model_free(model);
    return 0;
}
