/* Prepares an emulated point: machine, engine, ranks and their places, memory. */
#include "characterize/emulate_internal.h"

#include "base/memory.h"
#include "device/emulated/power.h"
#include "layout/memory/stage_memory.h"
#include "model/lora.h"
#include "thermal/slots.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the machine ---- */

/*
 * A tensor group's overlapped collective is sent in as many pieces as there are ranks, each during
 * the product that needs or produces it: the first or the last piece is exposed.
 */
static void take_overlap(struct erg_engine *engine, const struct erg_study_point *point)
{
    const double pieces = (double)point->layout.tensor;
    if (!(point->overlap & ERG_STUDY_OVERLAP_TENSOR))
        return;
    engine->tensor_forward /= pieces;
    engine->tensor_backward /= pieces;
    engine->tensor_forward_context /= pieces;
    engine->tensor_backward_context /= pieces;
}

/* Adapters at the linear layers in the point's list, "qkv,proj". */
static int take_adapters(struct erg_model *model, const struct erg_study_point *point,
                         struct erg_error *err)
{
    const char *rest = point->lora_targets;
    *model = *point->model;
    if (point->lora_rank == 0)
        return 0;
    model->lora = (struct erg_lora){.rank = point->lora_rank};
    while (rest && *rest) {
        const size_t length = strcspn(rest, ",");
        int target = 0;
        while (erg_lora_target_names[target] &&
               (strlen(erg_lora_target_names[target]) != length ||
                strncmp(erg_lora_target_names[target], rest, length) != 0))
            target++;
        if (!erg_lora_target_names[target])
            return erg_fail(err, ERG_FAILED,
                            "LoRA target '%.*s' is not supported; expected qkv, proj, fc1 or fc2",
                            (int)length, rest);
        model->lora.targets |= 1u << target;
        rest += length + (rest[length] == ',');
    }
    return 0;
}

/* Uses the chassis, with the point's inlet temperature. */
static void take_chassis(struct emulation *emulation, const struct erg_study_point *point)
{
    const struct erg_chassis *chassis = point->machine->chassis;
    emulation->heated = chassis != NULL;
    if (!chassis)
        return;
    emulation->chassis = *chassis;
    if (!isnan(point->inlet_c))
        emulation->chassis.inlet_c = point->inlet_c;
    emulation->k_per_w =
        erg_xcalloc((size_t)chassis->gpus * chassis->gpus, sizeof *emulation->k_per_w);
    erg_thermal_matrix(&emulation->chassis, 1, emulation->k_per_w);
}

static int check_machine(const struct emulation *emulation, struct erg_error *err)
{
    if (emulation->heated && emulation->chassis.gpus != (unsigned)emulation->node_gpus)
        return erg_fail(
            err, ERG_FAILED,
            "the chassis %s has %u GPUs and a node of the cluster %ld; expected equal numbers",
            emulation->chassis.name, emulation->chassis.gpus, emulation->node_gpus);
    return erg_time_machine_check(&emulation->machine, emulation->gpus, err) != 0 ||
                   erg_layout_check(&emulation->layout, &emulation->model, err) != 0
               ? -1
               : 0;
}

/* ---- ranks and places ---- */

/* Slots of a node, the coolest first: the air of rear slots has passed front ones. */
static void list_slots(const struct emulation *emulation, long *slots)
{
    long count = 0;
    for (int position = ERG_SLOT_FRONT; position <= ERG_SLOT_REAR; position++)
        for (long slot = 0; slot < emulation->node_gpus; slot++)
            if (emulation->chassis.slots[slot].position == (enum erg_slot_position)position)
                slots[count++] = slot;
}

/*
 * Early stages get the coolest slots of all nodes. Consecutive stages are in neighbouring nodes,
 * back and forth, so that the last stage of one row of slots and the first of the next share a
 * node. A stage stays together, since its replicas exchange gradients. A stage that fills a node
 * has slots of both kinds.
 */
static void place_cold_first(struct emulation *emulation)
{
    const long ranks = emulation->ranks;
    long *slots = erg_xcalloc((size_t)emulation->node_gpus, sizeof *slots);
    list_slots(emulation, slots);
    for (long stage = 0; stage < emulation->layout.pipeline; stage++) {
        const long row = stage / emulation->nodes, i = stage % emulation->nodes;
        assert((row + 1) * ranks <= emulation->node_gpus);
        const long node = row % 2 ? emulation->nodes - 1 - i : i;
        for (long k = 0; k < ranks; k++)
            emulation->places[stage * ranks + k] =
                node * emulation->node_gpus + slots[row * ranks + k];
    }
    free(slots);
}

static bool can_move(const struct emulation *emulation)
{
    return emulation->heated && emulation->ranks < emulation->node_gpus &&
           emulation->node_gpus % emulation->ranks == 0 &&
           emulation->gpus == emulation->nodes * emulation->node_gpus;
}

/* A GPU for the search of slots: both passes of a layer, at the reference clock of their rates. */
static struct erg_slots_gpu slots_gpu(const struct emulation *emulation)
{
    const struct erg_gpu *gpu = &emulation->gpu;
    const struct erg_pass_work *passes = emulation->work.passes;
    double bytes_j = 0, dynamic_j = 0, time_s = 0;
    for (int i = ERG_PASS_FORWARD; i <= ERG_PASS_BACKWARD; i++) {
        const struct erg_pass_work *pass = &passes[i];
        const double volt = erg_gpu_voltage(gpu, pass->rates_mhz);
        const double byte_j = erg_hbm_byte_energy(gpu, volt);
        const double own_s = pass->product_s + pass->memory_s + pass->fixed_s;
        bytes_j +=
            byte_j * (pass->bytes[0] + pass->bytes[1] + pass->bytes[2]) +
            (gpu->energy_per_wire_byte_j + gpu->comm_hbm_per_wire * byte_j) * pass->wire_bytes;
        dynamic_j += volt * volt *
                     (gpu->energy_per_flop_j * (pass->flops[0] + pass->flops[1]) +
                      pass->rates_mhz / gpu->clock_max_mhz *
                          (gpu->active_power_w * own_s + gpu->spin_power_w * pass->spin_sm_s));
        time_s += own_s;
    }
    return (struct erg_slots_gpu){
        .lowest_mhz = gpu->clock_min_mhz,
        .highest_mhz = gpu->clock_max_mhz,
        .reference_mhz = passes[ERG_PASS_BACKWARD].rates_mhz,
        .static_w = gpu->static_power_w,
        .leak_per_k = gpu->leak_per_k,
        .reference_c = gpu->reference_c,
        .other_w = bytes_j / time_s,
        .dynamic_w = dynamic_j / time_s,
        .waiting_w = gpu->blocking_power_w,
        .voltage_knee_mhz = gpu->voltage_knee_mhz,
        .voltage_slope_per_ghz = gpu->voltage_slope_per_ghz,
        .cap_w = gpu->power_cap_w,
    };
}

/* In each node, the groups get the slots that make the iteration shortest. */
static int place_by_search(struct emulation *emulation, struct erg_error *err)
{
    const struct erg_layout *layout = &emulation->layout;
    const struct erg_pass_work *passes = emulation->work.passes;
    const long size = layout->tensor * layout->context, groups = emulation->node_gpus / size;
    int layers[ERG_CHASSIS_GPUS];
    double more_s[ERG_CHASSIS_GPUS];
    struct erg_slots_request request = {
        .chassis = &emulation->chassis,
        .gpu = slots_gpu(emulation),
        .groups = (int)groups,
        .layers = layers,
        .more_s = more_s,
        .microbatches = (int)layout->microbatches,
        .stages = (int)layout->pipeline,
        .goal = ERG_SLOTS_TIME,
    };
    double dense_s = 0;
    for (int i = ERG_PASS_FORWARD; i <= ERG_PASS_BACKWARD; i++) {
        const struct erg_pass_work *dense = &passes[erg_layout_pass_of(i, true)];
        request.compute_s += passes[i].product_s;
        request.fixed_s += passes[i].memory_s + passes[i].fixed_s;
        dense_s += dense->product_s + dense->memory_s + dense->fixed_s;
    }
    const double layer_s = request.compute_s + request.fixed_s;
    for (long node = 0; node < emulation->nodes; node++) {
        struct erg_slots_found found;
        long taken[ERG_CHASSIS_GPUS] = {0};
        for (long i = 0; i < groups; i++) {
            const long stage = (node * groups + i) * size / emulation->ranks;
            layers[i] = (int)erg_layout_stage_layers(layout, emulation->model.layers, stage);
            more_s[i] =
                (stage == layout->pipeline - 1 ? emulation->parts.head_s : 0) +
                (double)erg_layout_dense_layers(layout, &emulation->model, stage, layers[i]) *
                    (dense_s - layer_s);
        }
        if (erg_slots_place(&request, &found, err) != 0)
            return -1;
        for (long slot = 0; slot < emulation->node_gpus; slot++) {
            const int group = found.best.group[slot];
            assert(group >= 0 && group < groups && taken[group] < size);
            emulation->places[(node * groups + group) * size + taken[group]++] =
                node * emulation->node_gpus + slot;
        }
    }
    return 0;
}

/* Returns true if nodes are full, and contain several whole groups each. */
static bool can_search(const struct emulation *emulation)
{
    const long size = emulation->layout.tensor * emulation->layout.context;
    return emulation->heated && size < emulation->node_gpus && emulation->node_gpus % size == 0 &&
           emulation->gpus == emulation->nodes * emulation->node_gpus;
}

static int fill_places(struct emulation *emulation, struct erg_error *err)
{
    for (long rank = 0; rank < emulation->gpus; rank++)
        emulation->places[rank] = rank;
    if (emulation->point->placement == ERG_STUDY_COLD_FIRST && can_move(emulation))
        place_cold_first(emulation);
    if (emulation->point->placement == ERG_STUDY_SEARCH && can_search(emulation))
        return place_by_search(emulation, err);
    return 0;
}

static void fill_gpus(struct emulation *emulation)
{
    const struct erg_study_point *point = emulation->point;
    const struct erg_layout *layout = &emulation->layout;
    const double highest = emulation->gpu.clock_max_mhz;
    for (long rank = 0; rank < emulation->gpus; rank++) {
        struct emulated_rank *gpu = &emulation->gpu_at[rank];
        gpu->tensor = rank % layout->tensor;
        gpu->context = rank / layout->tensor % layout->context;
        gpu->data = rank / (layout->tensor * layout->context) % layout->data;
        gpu->stage = rank / emulation->ranks;
        gpu->node = emulation->places[rank] / emulation->node_gpus;
        gpu->local = emulation->places[rank] % emulation->node_gpus;
        assert(gpu->node < emulation->nodes && gpu->stage < emulation->layout.pipeline);
        gpu->request_mhz = point->clock_mhz > 0 ? fmin(point->clock_mhz, highest) : highest;
        gpu->heat_mhz = INFINITY;
        gpu->cap_w = emulation->gpu.power_cap_w;
        gpu->mean_c = gpu->busy_c = emulation->gpu.reference_c;
        gpu->passes =
            erg_arena_alloc(emulation->arena, (size_t)emulation->passes * sizeof *gpu->passes);
    }
}

/* ---- memory ---- */

static const double gib = 1024.0 * 1024 * 1024;

static void add_items(struct erg_study_result *result, const struct erg_memory_stage *stage,
                      struct erg_arena *arena)
{
    struct erg_result_items *items = &result->memory_bytes;
    items->items = erg_arena_alloc(arena, ERG_MEMORY_ITEMS * sizeof *items->items);
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        items->items[items->count++] = (struct erg_result_item){
            erg_memory_item_name((enum erg_memory_item)i), stage->items[i]};
}

/* Returns true if every stage fits; otherwise describes the stage that does not. */
static bool fits(const struct emulation *emulation, struct erg_study_result *result)
{
    const struct erg_layout *layout = &emulation->layout;
    const struct erg_memory_request request =
        erg_memory_request_of(&emulation->model, layout, &emulation->engine);
    const double budget = ERG_MEMORY_USABLE_SHARE * emulation->gpu.memory_bytes;
    struct erg_memory_stage worst = {0};
    struct erg_memory_sizes sizes;
    long at = 0;
    erg_memory_sizes_of(&sizes, &emulation->model, layout);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct erg_memory_stage own;
        erg_memory_closed(&own, &request, &sizes, stage);
        if (own.peak_bytes > worst.peak_bytes) {
            worst = own;
            at = stage;
        }
    }
    add_items(result, &worst, emulation->arena);
    if (worst.peak_bytes <= budget)
        return true;
    const enum erg_memory_item largest = erg_memory_largest(&worst);
    result->status = ERG_RESULT_MEMORY;
    result->message =
        erg_arena_printf(emulation->arena,
                         "stage %ld needs %.1f GiB, %.1f GiB more than the %.1f GiB for tensors; "
                         "its largest item is %s, %.1f GiB",
                         at, worst.peak_bytes / gib, (worst.peak_bytes - budget) / gib,
                         budget / gib, erg_memory_item_name(largest), worst.items[largest] / gib);
    return false;
}

/* ---- the whole setup ---- */

static void allocate(struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    const size_t stages = (size_t)layout->pipeline, sets = (size_t)emulation->sets;
    emulation->places = erg_xcalloc((size_t)emulation->gpus, sizeof *emulation->places);
    emulation->gpu_at = erg_xcalloc((size_t)emulation->gpus, sizeof *emulation->gpu_at);
    emulation->pass_s =
        erg_xcalloc(sets * stages * (size_t)emulation->passes, sizeof *emulation->pass_s);
    emulation->end_s = erg_xcalloc(sets * emulation->schedule.count, sizeof *emulation->end_s);
    emulation->hops = erg_xcalloc((size_t)layout->data * 2 * stages, sizeof *emulation->hops);
    emulation->lanes = erg_xcalloc(sets * stages, sizeof *emulation->lanes);
    emulation->gradient_s = erg_xcalloc(2 * stages, sizeof *emulation->gradient_s);
    emulation->gather_s = emulation->gradient_s + stages;
}

/* Energy model: passes at the reference clocks of the engine's rates. */
static void prepare_work(struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    const struct erg_study_point *point = emulation->point;
    erg_time_parts_of(&emulation->parts, &emulation->request.time, layout, emulation->gpus);
    erg_layout_work_of(&emulation->work, &emulation->request, &emulation->parts, layout,
                       emulation->gpus);
    erg_emulation_find_embedding(emulation);
    if (point->power_w > 0) /* the regulator keeps the mean slightly below the limit */
        emulation->gpu.power_cap_w *= point->power_w / emulation->gpu.board_power_w;
}

int erg_emulation_init(struct emulation *emulation, const struct erg_study_point *point,
                       struct erg_study_result *result, bool *does_fit, struct erg_arena *arena,
                       struct erg_error *err)
{
    const struct erg_cluster *cluster = point->machine->cluster;
    *emulation = (struct emulation){
        .point = point,
        .arena = arena,
        .layout = point->layout,
        .engine = *point->machine->engine,
        .gpu = *point->machine->gpu,
        .node_gpus = cluster->gpus_per_node,
        .coupled = 1,
    };
    struct erg_layout *layout = &emulation->layout;
    *does_fit = false;
    if (take_adapters(&emulation->model, point, err) != 0)
        return -1;
    if (erg_layout_is_sharded(layout))
        emulation->coupled = erg_layout_shards(layout) / layout->context;
    else
        emulation->coupled = erg_layout_experts(layout);
    take_overlap(&emulation->engine, point);
    take_chassis(emulation, point);
    erg_time_machine_init(&emulation->machine, &emulation->gpu, cluster);
    emulation->request = (struct erg_layout_energy_request){
        .time = {&emulation->model, &emulation->engine, &emulation->machine},
        .gpu = &emulation->gpu};
    emulation->gpus = erg_layout_gpus(layout);
    emulation->nodes = (emulation->gpus + emulation->node_gpus - 1) / emulation->node_gpus;
    emulation->ranks = emulation->gpus / layout->pipeline;
    emulation->passes = 2 * layout->virtual_stages;
    result->gpus = emulation->gpus;
    result->nodes = emulation->nodes;
    result->node_gpus = emulation->node_gpus;
    if (check_machine(emulation, err) != 0)
        return -1;
    emulation->sets = layout->data / emulation->coupled;
    assert(emulation->sets > 0 && emulation->sets * emulation->coupled == layout->data);
    if (!fits(emulation, result))
        return 0;
    const struct erg_pipeline pipeline = {.stages = (size_t)layout->pipeline,
                                          .microbatches = (size_t)layout->microbatches,
                                          .chunks = (size_t)layout->virtual_stages};
    assert(emulation->ranks * layout->pipeline == emulation->gpus);
    if (erg_schedule_init(&emulation->schedule, &pipeline, err) != 0)
        return -1;
    allocate(emulation);
    prepare_work(emulation);
    if (fill_places(emulation, err) != 0)
        return -1;
    fill_gpus(emulation);
    *does_fit = true;
    return 0;
}

void erg_emulation_release(struct emulation *emulation)
{
    const long lanes = emulation->lanes ? emulation->sets * emulation->layout.pipeline : 0;
    for (long i = 0; i < lanes; i++)
        free(emulation->lanes[i].items);
    free(emulation->lanes);
    free(emulation->places);
    free(emulation->gpu_at);
    free(emulation->pass_s);
    free(emulation->end_s);
    free(emulation->hops);
    free(emulation->gradient_s);
    free(emulation->k_per_w);
    free(emulation->course.items);
    if (emulation->schedule.count)
        erg_schedule_release(&emulation->schedule);
}
