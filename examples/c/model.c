/*
 * What a model is, and what a step of training costs: model [NAME or config.json]
 *
 *     cc model.c $(pkg-config --cflags --libs ergon) -o model && ./model llama-3.2-3b
 */
#include <ergon/model.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_model *model;
    struct erg_model_info info = {.size = sizeof info};
    struct erg_model_work work = {.size = sizeof work};
    const double sequences = 64, sequence = 4096;
    if (erg_model_open(&model, argc > 1 ? argv[1] : "llama-3.2-3b", &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    if (erg_model_info(model, &info, &err) != 0 ||
        erg_model_work(model, sequences * sequence, sequence, &work, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        erg_model_free(model);
        return err.status;
    }
    printf("%s: %.2f billion parameters in %d layers\n", info.architecture, info.parameters / 1e9,
           (int)info.layers);
    printf("a step of %.0f sequences: %.3f PFLOP\n", sequences, work.training_flops / 1e15);
    printf("  of the forward pass %.1f %% in linear layers, %.1f %% in attention\n",
           300 * work.linear_flops / work.training_flops,
           300 * work.attention_flops / work.training_flops);
    erg_model_free(model);
    return 0;
}
