/* The memory that training uses on a rank's device. */
#include "train/engine/rank_memory.h"

#include "base/memory.h"
#include "train/engine/rank_buffers.h"
#include "train/engine/rank_share.h"

#include <assert.h>
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
        ERG_PUSH(memory, buffers, (struct erg_rank_part){name, item, bytes});
}

static enum erg_rank_item item_of(enum erg_static_buffer buffer)
{
    switch (buffer) {
    case ERG_STATIC_VALUES:
        return ERG_RANK_WEIGHTS;
    case ERG_STATIC_GRADIENTS:
        return ERG_RANK_GRADIENTS;
    case ERG_STATIC_STATE:
    case ERG_STATIC_OPTIMIZER_SCALARS:
    case ERG_STATIC_OPTIMIZER_SCRATCH:
        return ERG_RANK_OPTIMIZER;
    case ERG_STATIC_SENT_OUTPUT:
    case ERG_STATIC_SENT_GRADIENT:
    case ERG_STATIC_RECEIVED_GRADIENT:
        return ERG_RANK_MESSAGES;
    case ERG_STATIC_STEP_SCALARS:
    case ERG_STATIC_TOKENS:
        return ERG_RANK_INPUTS;
    default:
        return ERG_RANK_ACTIVATIONS;
    }
}

/* Adds the buffers of the table with their bytes, in the order of the items. */
static void add_buffers(struct erg_rank_memory *memory, const struct erg_static_memory *table)
{
    for (int item = 0; item < ERG_RANK_ITEMS; item++)
        for (int i = 0; i < ERG_STATIC_BUFFERS; i++) {
            const enum erg_static_buffer buffer = (enum erg_static_buffer)i;
            if (item_of(buffer) == (enum erg_rank_item)item)
                add(memory, (enum erg_rank_item)item, erg_static_name(buffer),
                    table->counts[table->sets[buffer]] * erg_static_place(table, buffer));
        }
    assert(memory->bytes == table->total);
}

int erg_rank_memory_init(struct erg_rank_memory *memory, const struct erg_job *job,
                         struct erg_backend *backend, int rank, struct erg_error *err)
{
    struct erg_ranks ranks;
    struct erg_layer_range *chunks;
    struct erg_static_memory table;
    *memory = (struct erg_rank_memory){0};
    erg_ranks_place(&ranks, &job->layout, rank);
    const struct erg_stage_options options = erg_rank_share(&chunks, job, &ranks, backend);
    int result = erg_rank_buffers_init(&table, NULL, &options, &job->layout, ranks.stage,
                                       job->training->offload_least_bytes, err);
    if (result == 0)
        add_buffers(memory, &table);
    memory->host_bytes = result == 0 ? table.host_bytes : 0;
    free(chunks);
    return result;
}

void erg_rank_memory_release(struct erg_rank_memory *memory)
{
    free(memory->buffers);
    *memory = (struct erg_rank_memory){0};
}
