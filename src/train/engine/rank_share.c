/* The part of a model that a rank of a run has. */
#include "train/engine/rank_share.h"

#include "base/memory.h"

/* The layers of a stage, chunk by chunk. */
static struct erg_layer_range *find_layers(const struct erg_layout *layout, long all, long own)
{
    const size_t count = (size_t)layout->virtual_stages;
    struct erg_layer_range *chunks = erg_xcalloc(count, sizeof *chunks);
    long first = 0;
    for (size_t i = 0; i < count; i++)
        for (long stage = 0; stage < layout->pipeline; stage++) {
            long layers = erg_layout_chunk_layers(layout, all, stage, (long)i);
            if (stage == own)
                chunks[i] = (struct erg_layer_range){first, layers};
            first += layers;
        }
    return chunks;
}

struct erg_stage_options erg_rank_share(struct erg_layer_range **chunks, const struct erg_job *job,
                                        const struct erg_ranks *ranks, struct erg_backend *backend)
{
    const struct erg_layout *layout = &job->layout;
    *chunks = find_layers(layout, job->model->layers, ranks->stage);
    return (struct erg_stage_options){
        .backend = backend,
        .weights = {.model = job->model,
                    .tensor = layout->tensor,
                    .place = ranks->tensor,
                    .chunks = *chunks,
                    .chunk_count = (size_t)layout->virtual_stages,
                    .embedding = ranks->stage == 0,
                    .head = ranks->stage == layout->pipeline - 1,
                    .ranks = layout->context * layout->data,
                    .share = ranks->context + layout->context * ranks->data},
        .sequences = layout->microbatch,
        .sequence = layout->sequence,
        .context = layout->context,
        .context_place = ranks->context,
        .sequence_parallel = erg_job_splits_stream(job),
        .room = erg_stage_room_of(layout, job->model->layers, ranks->stage),
        .recompute = erg_layout_recompute(layout, ranks->stage),
        .tensor_group = ranks->groups.tensor,
        .context_group = ranks->groups.context,
    };
}
