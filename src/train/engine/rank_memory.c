/* What training takes of a rank's device. */
#include "train/engine/rank_memory.h"

#include "base/memory.h"
#include "train/engine/trainer_internal.h"

#include <stdlib.h>
#include <string.h>

const char *const erg_rank_item_names[ERG_RANK_ITEMS] = {
    [ERG_RANK_WEIGHTS] = "weights",     [ERG_RANK_GRADIENTS] = "gradients",
    [ERG_RANK_OPTIMIZER] = "optimizer", [ERG_RANK_ACTIVATIONS] = "activations",
    [ERG_RANK_MESSAGES] = "messages",   [ERG_RANK_INPUTS] = "inputs",
};

static void add(struct erg_rank_memory *memory, enum erg_rank_item item, const char *name,
                size_t bytes)
{
    memory->items[item] += bytes;
    memory->bytes += bytes;
    for (size_t i = 0; i < memory->count; i++)
        if (memory->buffers[i].item == item && strcmp(memory->buffers[i].name, name) == 0) {
            memory->buffers[i].bytes += bytes;
            return;
        }
    if (bytes > 0)
        ERG_PUSH(memory, buffers, (struct erg_rank_buffers){name, item, bytes});
}

/* The name of a buffer of weights or their gradients is that of the item. */
static enum erg_rank_item item_of(const char *name)
{
    for (int item = ERG_RANK_WEIGHTS; item <= ERG_RANK_GRADIENTS; item++)
        if (strcmp(name, erg_rank_item_names[item]) == 0)
            return (enum erg_rank_item)item;
    return ERG_RANK_ACTIVATIONS;
}

static int add_stage(struct erg_rank_memory *memory, const struct erg_stage_options *options,
                     struct erg_error *err)
{
    struct erg_stage_memory stage;
    int result = erg_stage_memory(&stage, options, err);
    for (size_t i = 0; i < stage.count && result == 0; i++) {
        size_t end = i + 1 < stage.count ? stage.items[i + 1].offset : stage.bytes;
        const char *name = stage.items[i].name;
        add(memory, item_of(name), name, end - stage.items[i].offset);
    }
    erg_stage_memory_release(&stage);
    return result;
}

static int add_optimizer(struct erg_rank_memory *memory, const struct erg_stage_options *options,
                         struct erg_error *err)
{
    struct erg_weights weights;
    struct erg_weight_spans spans;
    size_t bytes = 0;
    erg_weights_init(&weights, &options->weights);
    erg_weight_spans_init(&spans, &weights, &options->weights);
    int result = erg_optimizer_memory(&bytes, options->backend, &weights, &spans, err);
    erg_weight_spans_release(&spans);
    erg_weights_release(&weights);
    add(memory, ERG_RANK_OPTIMIZER, erg_rank_item_names[ERG_RANK_OPTIMIZER], bytes);
    return result;
}

int erg_rank_memory_init(struct erg_rank_memory *memory, const struct erg_job *job,
                         struct erg_backend *backend, int rank, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    struct erg_trainer trainer = {
        .options = {.backend = backend}, .job = job, .training = job->training};
    *memory = (struct erg_rank_memory){0};
    erg_ranks_place(&trainer.ranks, layout, rank);
    if (erg_pass_list_init(&trainer.list, layout, trainer.ranks.stage, err) != 0)
        return -1;
    struct erg_stage_options options = erg_trainer_share(&trainer);
    size_t rows = (size_t)(layout->microbatch * layout->sequence / layout->context) /
                  (options.sequence_parallel ? (size_t)layout->tensor : 1);
    size_t message = rows * (size_t)job->model->hidden * backend->element_bytes;
    int result = add_stage(memory, &options, err) || add_optimizer(memory, &options, err) ? -1 : 0;
    add(memory, ERG_RANK_MESSAGES, erg_rank_item_names[ERG_RANK_MESSAGES],
        erg_pass_list_message_bytes(&trainer.list, message));
    add(memory, ERG_RANK_INPUTS, erg_rank_item_names[ERG_RANK_INPUTS],
        erg_trainer_input_bytes(layout));
    free(trainer.chunks);
    erg_pass_list_release(&trainer.list);
    return result;
}

void erg_rank_memory_release(struct erg_rank_memory *memory)
{
    free(memory->buffers);
    *memory = (struct erg_rank_memory){0};
}
