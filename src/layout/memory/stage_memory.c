/* Names of the items of a stage's memory, and checks of requests. */
#include "layout/memory/stage_memory.h"

#include "model/lora.h"

const char *erg_memory_item_name(enum erg_memory_item item)
{
    static const char *const names[ERG_MEMORY_ITEMS] = {
        [ERG_MEMORY_WEIGHTS] = "weights",
        [ERG_MEMORY_GRADIENTS] = "gradients",
        [ERG_MEMORY_OPTIMIZER] = "optimizer",
        [ERG_MEMORY_ACTIVATIONS] = "activations",
        [ERG_MEMORY_OFFLOAD] = "offload_buffers",
        [ERG_MEMORY_ROPE] = "rope_tables",
        [ERG_MEMORY_WORKSPACE] = "workspace",
        [ERG_MEMORY_GATHER] = "gather_buffer",
        [ERG_MEMORY_HEAD] = "head",
        [ERG_MEMORY_PIPELINE] = "pipeline",
        [ERG_MEMORY_TRANSIENT] = "transient",
        [ERG_MEMORY_ROUNDING] = "rounding",
    };
    return names[item];
}

enum erg_memory_item erg_memory_largest(const struct erg_memory_stage *stage)
{
    enum erg_memory_item largest = ERG_MEMORY_WEIGHTS;
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        if (stage->items[i] > stage->items[largest])
            largest = (enum erg_memory_item)i;
    return largest;
}

const char *erg_memory_unsharded(enum erg_memory_item item)
{
    return item == ERG_MEMORY_WEIGHTS || item == ERG_MEMORY_GRADIENTS
               ? ", which data parallel ranks do not shard (fsdp=N does)"
               : "";
}

const char *const erg_memory_accounting_names[] = {
    [ERG_MEMORY_ARENA] = "arena",
    [ERG_MEMORY_FRAMEWORK] = "framework",
    [ERG_MEMORY_STATIC] = "static",
    NULL,
};

struct erg_memory_request erg_memory_request_of(const struct erg_model *model,
                                                const struct erg_layout *layout,
                                                const struct erg_engine *engine)
{
    const bool is_static = engine && engine->static_memory;
    return (struct erg_memory_request){
        .model = model,
        .layout = layout,
        .accounting = is_static ? ERG_MEMORY_STATIC : ERG_MEMORY_ARENA,
        .sequence_parallel = is_static && engine->sequence_parallel,
        .least_moved = is_static ? engine->offload_least_bytes : ERG_OFFLOAD_LEAST_BYTES,
        .fsdp_bytes = engine ? engine->fsdp_bytes : 0,
    };
}

int erg_memory_check(const struct erg_memory_request *request, struct erg_error *err)
{
    const struct erg_layout *layout = request->layout;
    const struct erg_model *model = request->model;
    if (erg_layout_is_sharded(layout) && request->accounting == ERG_MEMORY_STATIC)
        return erg_fail(err, ERG_FAILED,
                        "ergon's own training does not shard weights and gradients, got fsdp %ld; "
                        "expected another engine, or no fsdp",
                        layout->fsdp);
    if (erg_lora_is_on(request->model) && request->accounting == ERG_MEMORY_STATIC)
        return erg_fail(err, ERG_FAILED,
                        "ergon's own training trains no adapters (LoRA); expected another engine, "
                        "or no lora");
    if (erg_layout_is_sharded(layout) && request->accounting == ERG_MEMORY_FRAMEWORK)
        return erg_fail(err, ERG_FAILED,
                        "the caching allocator is not simulated with FSDP, got fsdp %ld; expected "
                        "the accounting arena",
                        layout->fsdp);
    if (request->accounting == ERG_MEMORY_STATIC && (model->experts.count || model->latent.keys))
        return erg_fail(err, ERG_FAILED,
                        "%s has %s, which ergon's own training does not run; expected another "
                        "engine, such as nemo-hopper",
                        model->name,
                        model->experts.count ? "a mixture of experts" : "a latent attention");
    for (long stage = 0; stage < layout->pipeline && model->experts.count; stage++)
        if (erg_layout_offload(layout, stage) > 0)
            return erg_fail(err, ERG_FAILED,
                            "offloading activations of a mixture of experts is not modelled, and "
                            "%s has one",
                            model->name);
    for (long stage = 0; stage < layout->pipeline && !erg_memory_can_offload(request); stage++)
        if (erg_layout_offload(layout, stage) > 0)
            return erg_fail(err, ERG_FAILED,
                            "offloading hides its copies behind the microbatches of other stages "
                            "and needs at least 3 pipeline stages, got %ld",
                            layout->pipeline);
    return 0;
}
