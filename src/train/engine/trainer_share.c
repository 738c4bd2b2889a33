/* Which part of a model a rank of a trainer has. */
#include "train/engine/trainer_internal.h"

#include "base/memory.h"

/* Which layers this rank has, and of what else. */
static void request_weights(struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    const struct erg_ranks *ranks = &trainer->ranks;
    long all = trainer->job->model->layers;
    size_t chunks = (size_t)layout->virtual_stages, at = 0;
    trainer->chunks = erg_xcalloc(chunks, sizeof *trainer->chunks);
    long first = 0;
    for (long chunk = 0; at < chunks; chunk++)
        for (long stage = 0; stage < layout->pipeline; stage++) {
            long count = erg_layout_chunk_layers(layout, all, stage, chunk);
            if (stage == ranks->stage)
                trainer->chunks[at++] = (struct erg_layer_range){first, count};
            first += count;
        }
    trainer->request =
        (struct erg_weights_request){.model = trainer->job->model,
                                     .tensor = layout->tensor,
                                     .place = ranks->tensor,
                                     .chunks = trainer->chunks,
                                     .chunk_count = chunks,
                                     .embedding = ranks->stage == 0,
                                     .head = ranks->stage == layout->pipeline - 1,
                                     .ranks = layout->context * layout->data,
                                     .share = ranks->context + layout->context * ranks->data};
}

struct erg_stage_options erg_trainer_share(struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    request_weights(trainer);
    return (struct erg_stage_options){
        .backend = trainer->options.backend,
        .weights = trainer->request,
        .sequences = layout->microbatch,
        .sequence = layout->sequence,
        .context = layout->context,
        .context_place = trainer->ranks.context,
        .sequence_parallel = trainer->training->sequence_parallel && layout->tensor > 1,
        .room = erg_stage_room_of(layout, trainer->job->model->layers, trainer->ranks.stage),
        .recompute = erg_layout_recompute(layout, trainer->ranks.stage),
        .tensor_group = trainer->ranks.groups.tensor,
        .context_group = trainer->ranks.groups.context,
    };
}
