/* Exports the masters of all ranks as a model. */
#include "train/checkpoint/checkpoint_internal.h"

#include "base/memory.h"
#include "train/files/model_file.h"

#include <stdlib.h>

/* Rank 0 assembles the pieces. */
static int write_model(const char *folder, const char *pieces, const struct erg_job *job, bool bf16,
                       struct erg_error *err)
{
    struct erg_layer_range layers = {0, job->model->layers};
    struct erg_weights_request request = erg_weights_whole(job->model, &layers);
    struct erg_checkpoint_manifest *manifest;
    struct erg_weights weights;
    struct erg_weight_spans spans;
    if (erg_checkpoint_read_manifest(pieces, &manifest, err) != 0)
        return -1;
    erg_weights_init(&weights, &request);
    erg_weight_spans_init(&spans, &weights, &request);
    float *masters = erg_xcalloc(weights.state, sizeof *masters);
    struct erg_checkpoint_state state = {.weights = &weights, .spans = &spans, .master = masters};
    int result = erg_checkpoint_read_pieces(pieces, manifest, &state, 1, err) ||
                         erg_model_file_write(folder, masters, &spans, job->model, bf16,
                                              ERG_MODEL_FILE_BYTES, err)
                     ? -1
                     : 0;
    free(masters);
    erg_weight_spans_release(&spans);
    erg_weights_release(&weights);
    erg_checkpoint_manifest_free(manifest);
    return result;
}

int erg_checkpoint_export(const char *folder, const struct erg_job *job,
                          const struct erg_checkpoint_state *state, bool bf16,
                          struct erg_error *err)
{
    struct erg_checkpoint_place nowhere = {0};
    char *pieces;
    int result = erg_checkpoint_temporary(&pieces, folder, state, err) ||
                         erg_checkpoint_write_folder(pieces, job, &nowhere, state, 1, err)
                     ? -1
                     : 0;
    if (state->rank == 0) {
        if (result == 0)
            result = write_model(folder, pieces, job, bf16, err);
        erg_checkpoint_remove(pieces);
    }
    free(pieces);
    return erg_rendezvous_agree(state->rendezvous, result, err);
}
