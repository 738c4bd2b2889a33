/* ergon/memory.h: the memory of a job, asked and answered as by the command. */
#include "ergon/memory.h"

#include "api/door.h"
#include "api/memory_query.h"
#include "base/call.h"
#include "base/sized.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>

struct erg_memory {
    struct erg_arena arena;
    struct erg_memory_input input;
    struct erg_memory_asked asked;
    const char *change;
    char *json; /* NULL until it is asked for */
};

struct memory_finding {
    const struct erg_job *job;
    struct erg_memory_options options;
    struct erg_memory *memory;
};

int erg_memory_input_take(struct erg_memory_input *input, const struct erg_memory_options *options,
                          struct erg_error *err)
{
    *input = (struct erg_memory_input){
        .sequence = ERG_NOT_GIVEN,
        .layout = options->layout,
        .solve = options->solve_offload,
        .recompute = -1,
        .copies = options->layer_copies != 0,
        .offload = NAN,
        .per_stage = options->per_stage != 0,
    };
    return erg_door_number(&input->gpus, "gpus", options->gpus, 10000000, err) != 0 ||
                   erg_door_number(&input->batch, "batch", options->batch, ERG_JOB_MOST_BATCH,
                                   err) != 0 ||
                   erg_door_choice(&input->accounting, "accounting", options->accounting,
                                   ERG_WORDS_ACCOUNTING, err) != 0
               ? -1
               : 0;
}

static int make_input(struct erg_memory *memory, const struct memory_finding *at,
                      struct erg_error *err)
{
    struct erg_arena *arena = &memory->arena;
    struct erg_memory_input *input = &memory->input;
    if (erg_memory_input_take(input, &at->options, err) != 0)
        return -1;
    input->path = erg_arena_strdup(arena, at->job->path);
    input->text = erg_arena_strdup(arena, at->job->text);
    input->length = at->job->text_length;
    input->layout = erg_door_copy(arena, input->layout);
    input->solve = erg_door_copy(arena, input->solve);
    return 0;
}

static int find(void *argument, struct erg_error *err)
{
    struct memory_finding *at = argument;
    struct erg_memory *memory = at->memory = erg_xcalloc(1, sizeof *memory);
    struct erg_error unfit = {0};
    if (make_input(memory, at, err) != 0 ||
        erg_memory_ask(&memory->asked, &memory->input, err) != 0) {
        erg_memory_free(memory);
        return -1;
    }
    erg_memory_say_unfit(&memory->asked.answer, false, &unfit);
    memory->change = erg_arena_strdup(&memory->arena, unfit.message);
    return 0;
}

int erg_memory_find(struct erg_memory **memory, const struct erg_job *job,
                    const struct erg_memory_options *options, struct erg_error *err)
{
    struct memory_finding at = {.job = job};
    if (erg_sized_take(&at.options, sizeof at.options, options, "erg_memory_options", err) != 0 ||
        erg_call_run(find, &at, at.options.watch, err) != 0)
        return -1;
    *memory = at.memory;
    return 0;
}

void erg_memory_free(struct erg_memory *memory)
{
    if (!memory)
        return;
    erg_memory_asked_release(&memory->asked);
    erg_arena_release(&memory->arena);
    free(memory->json);
    free(memory);
}

/* ---- the answer ---- */

int erg_memory_info(const struct erg_memory *memory, struct erg_memory_info *info,
                    struct erg_error *err)
{
    const struct erg_memory_answer *answer = &memory->asked.answer;
    const struct erg_layout *layout = answer->request.layout;
    const struct erg_memory_info own = {
        .fits = answer->fits,
        .host_fits = answer->host_fits,
        .stages = answer->result->count,
        .binding_stage = answer->binding,
        .tensor = layout->tensor,
        .context = layout->context,
        .pipeline = layout->pipeline,
        .data = layout->data,
        .virtual_stages = layout->virtual_stages,
        .fsdp = erg_layout_shards(layout),
        .microbatch_size = layout->microbatch,
        .microbatches = layout->microbatches,
        .sequence = layout->sequence,
        .recompute = erg_layout_recompute_name(layout),
        .offload = layout->offload,
        .expert = erg_layout_experts(layout),
        .change = memory->change,
    };
    return erg_sized_give(info, &own, sizeof own, "erg_memory_info", err);
}

int erg_memory_stage(const struct erg_memory *memory, size_t stage,
                     struct erg_memory_stage_info *info, struct erg_error *err)
{
    const struct erg_memory_answer *answer = &memory->asked.answer;
    const long index = (long)stage;
    if (stage >= (size_t)answer->result->count)
        return erg_fail(err, ERG_USAGE, "stage %zu of %ld; expected one from 0 to %ld", stage,
                        answer->result->count, answer->result->count - 1);
    const struct erg_memory_stage *worst = &answer->result->stages[stage];
    struct erg_memory_stage_info own = {
        .gpu = erg_memory_answer_gpu(answer, index)->name,
        .peak_bytes = worst->peak_bytes,
        .gpu_bytes = answer->rooms[stage].gpu_bytes,
        .weights_bytes = worst->items[ERG_MEMORY_WEIGHTS],
        .gradients_bytes = worst->items[ERG_MEMORY_GRADIENTS],
        .optimizer_bytes = worst->items[ERG_MEMORY_OPTIMIZER],
        .activations_bytes = worst->items[ERG_MEMORY_ACTIVATIONS],
        .host_bytes = worst->host_bytes,
        .offload = worst->offload,
        .layers =
            erg_layout_stage_layers(answer->request.layout, answer->request.model->layers, index),
    };
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        if (i != ERG_MEMORY_WEIGHTS && i != ERG_MEMORY_GRADIENTS && i != ERG_MEMORY_OPTIMIZER &&
            i != ERG_MEMORY_ACTIVATIONS)
            own.other_bytes += worst->items[i];
    return erg_sized_give(info, &own, sizeof own, "erg_memory_stage_info", err);
}

const char *erg_memory_json(struct erg_memory *memory)
{
    if (!memory->json)
        memory->json = erg_door_json(erg_memory_document(&memory->asked.answer));
    return memory->json;
}

int erg_memory_write_page(const struct erg_memory *memory, const char *path, struct erg_error *err)
{
    json_t *document = erg_memory_document(&memory->asked.answer);
    const int status = erg_report_memory_write(path, document, err);
    json_decref(document);
    return status;
}
