/* The passes of every emulated GPU: time, clock and energy. */
#include "characterize/emulate_internal.h"

#include "device/emulated/power.h"

#include <math.h>

/* A clock within half a hardware step of the requested one counts as the requested one. */
static double slack_mhz(const struct erg_gpu *gpu)
{
    return gpu->clock_step_mhz > 0 ? 0.5 * gpu->clock_step_mhz : 1;
}

/* The costs of all passes at a clock and temperature. `hot`: scratch space for that GPU. */
static void costs_at(const struct emulation *emulation, const struct emulated_rank *gpu,
                     double clock_mhz, double temperature_c, struct erg_gpu *hot,
                     struct erg_layout_costs *costs)
{
    struct erg_layout_energy_request request = emulation->request;
    struct erg_layout_work work = emulation->work;
    *hot = emulation->gpu;
    hot->static_power_w = erg_static_power(&emulation->gpu, temperature_c);
    hot->power_cap_w = gpu->cap_w;
    request.gpu = hot;
    erg_layout_work_recap(&work, &request);
    erg_layout_costs_at(costs, &request, &work, clock_mhz);
    if (gpu->fault_mhz > 0)
        erg_layout_costs_at(costs, &request, &work, gpu->fault_mhz);
}

static double wanted_mhz(const struct emulated_rank *gpu)
{
    return fmin(gpu->request_mhz, gpu->heat_mhz);
}

/* Some passes of one kind on one GPU, as a part of a pass of its chunk. */
static void add_part(struct emulated_pass *pass, const struct emulation *emulation,
                     const struct emulated_rank *gpu, enum erg_layout_pass kind, double times,
                     double exposed_s)
{
    const struct erg_pass_cost *cost = &gpu->costs.passes[kind];
    const struct erg_pass_work *work = &emulation->work.passes[kind];
    const double time_s = times * cost->time_s, slack = slack_mhz(&emulation->gpu);
    const double granted = cost->clock_mhz;
    pass->part_s[kind] += time_s;
    pass->clock_mhz += time_s * granted; /* a sum, to be divided */
    if (gpu->fault_mhz > 0)
        ; /* neither limit applies */
    else if (granted < wanted_mhz(gpu) - slack)
        pass->cap_s += time_s;
    else if (granted < gpu->request_mhz - slack)
        pass->heat_s += time_s;
    pass->exposed_s += times * exposed_s;
    pass->memory_j += times * gpu->costs.hbm_byte_j *
                      (work->bytes[0] + work->bytes[1] + work->bytes[2] +
                       emulation->gpu.comm_hbm_per_wire * work->wire_bytes);
}

void erg_emulation_find_embedding(struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    const struct erg_engine *engine = &emulation->engine;
    struct erg_model model = emulation->model; /* with the padded vocabulary */
    struct erg_model_shape shape = erg_time_shape(engine, layout);
    shape.sequence_parallel = engine->sequence_parallel && !erg_layout_is_sharded(layout);
    model.vocab = erg_layout_vocabulary(&emulation->model, layout->tensor);
    for (int backward = 0; backward < 2; backward++) {
        struct emulated_embedding *embedding = &emulation->embedding[backward];
        struct erg_model_ops ops;
        (backward ? erg_model_embedding_backward : erg_model_embedding_forward)(&ops, &model,
                                                                                &shape);
        *embedding = (struct emulated_embedding){.exchange = ERG_COMM_NONE};
        for (size_t i = 0; i < ops.count; i++) {
            const struct erg_model_op *op = &ops.items[i];
            for (int k = 0; k < op->work_count; k++) {
                embedding->bytes += op->work[k].bytes;
                embedding->kernels += op->work[k].kernels;
            }
            if (!op->comm)
                continue;
            embedding->exchange = op->communication.kind;
            embedding->wire_bytes += op->communication.wire_bytes;
            embedding->exchange_s += engine->collective_latency_s +
                                     op->communication.wire_bytes /
                                         erg_time_group_bandwidth(&emulation->request.time, 1,
                                                                  layout->tensor, emulation->gpus);
        }
        embedding->memory_s =
            embedding->bytes / (engine->memory_efficiency * emulation->machine.memory_bandwidth);
    }
}

/* The first stage looks up words, and sums the gradients of their rows. */
static void add_embedding(struct emulated_pass *pass, const struct emulation *emulation,
                          const struct emulated_rank *gpu, bool backward)
{
    const struct emulated_embedding *embedding = &emulation->embedding[backward];
    const struct erg_layout_costs *costs = &gpu->costs;
    pass->embedding_s = costs->memory_slowdown * embedding->memory_s + embedding->exchange_s;
    pass->embedding_j = (costs->static_w + costs->active_w) * pass->embedding_s +
                        costs->hbm_byte_j * embedding->bytes +
                        costs->wire_byte_j * embedding->wire_bytes;
    pass->own_s += pass->embedding_s;
    pass->energy_j += pass->embedding_j;
    pass->memory_j += costs->hbm_byte_j *
                      (embedding->bytes + emulation->gpu.comm_hbm_per_wire * embedding->wire_bytes);
    pass->exposed_s += embedding->exchange_s;
}

/* With FSDP: the wait of a microbatch for the network at its start and end. */
static void add_ends(struct emulated_pass *pass, const struct emulation *emulation,
                     const struct emulated_rank *gpu, enum erg_recompute recompute)
{
    const double ends_s = emulation->parts.ends_s[recompute];
    pass->own_s += ends_s;
    pass->wait_s += ends_s;
    pass->energy_j += ends_s * emulation->gpu.blocking_power_w +
                      gpu->costs.wire_byte_j * gpu->costs.network.ends_bytes;
    pass->exposed_s += pass->wait_s;
}

static double exposed(const double *items)
{
    return items[ERG_TIME_TENSOR] + items[ERG_TIME_CONTEXT] + items[ERG_TIME_EXPERT];
}

/* The parts of a pass that are layers of one kind. */
static void add_layers(struct emulated_pass *pass, const struct emulation *emulation,
                       const struct emulated_rank *gpu, long layers, bool dense, bool backward,
                       enum erg_recompute recompute)
{
    const struct erg_time_parts *parts = &emulation->parts;
    const double *forward = dense ? parts->dense.forward : parts->forward;
    const double *items = dense ? parts->dense.backward : parts->backward;
    const double times = (double)layers;
    if (!backward || recompute == ERG_RECOMPUTE_FULL)
        add_part(pass, emulation, gpu, erg_layout_pass_of(ERG_PASS_FORWARD, dense), times,
                 exposed(forward));
    if (backward)
        add_part(pass, emulation, gpu, erg_layout_pass_of(ERG_PASS_BACKWARD, dense), times,
                 exposed(items));
    if (backward && erg_recompute_norms(recompute))
        add_part(pass, emulation, gpu, erg_layout_pass_of(ERG_PASS_NORMS, dense), times, 0);
    if (backward && erg_recompute_activation(recompute))
        add_part(pass, emulation, gpu, erg_layout_pass_of(ERG_PASS_ACTIVATION, dense), times, 0);
}

static void run_pass(struct emulated_pass *pass, const struct emulation *emulation,
                     const struct emulated_rank *gpu,
                     const struct erg_layout_energy_request *request, long chunk, bool backward)
{
    const struct erg_layout *layout = &emulation->layout;
    const struct erg_time_parts *parts = &emulation->parts;
    const long layers = erg_layout_chunk_layers(layout, emulation->model.layers, gpu->stage, chunk);
    const enum erg_recompute recompute = erg_layout_recompute(layout, gpu->stage);
    const bool head = gpu->stage == layout->pipeline - 1 && chunk == layout->virtual_stages - 1;
    const long dense = erg_layout_dense_layers(layout, &emulation->model, gpu->stage, layers);
    const double heads = head ? (backward ? 2 : 1) / 3.0 : 0;
    const struct erg_pass_cost cost =
        erg_layout_chunk_cost(request, parts, &gpu->costs, layers, dense, backward, head, recompute,
                              erg_layout_offload(layout, gpu->stage));
    double time_s = 0; /* time of the passes of layers and head */
    *pass = (struct emulated_pass){
        .own_s = cost.time_s, .energy_j = cost.total_j, .wait_s = cost.wait_s};
    add_layers(pass, emulation, gpu, layers - dense, false, backward, recompute);
    if (dense > 0)
        add_layers(pass, emulation, gpu, dense, true, backward, recompute);
    if (head)
        add_part(pass, emulation, gpu, ERG_PASS_HEAD, heads, parts->head[ERG_TIME_TENSOR]);
    pass->head_s = heads * gpu->costs.passes[ERG_PASS_HEAD].time_s;
    for (int i = 0; i < ERG_PASSES; i++)
        time_s += pass->part_s[i];
    pass->clock_mhz /= time_s;
    if (gpu->stage == 0 && chunk == 0)
        add_embedding(pass, emulation, gpu, backward);
    if (backward)
        add_ends(pass, emulation, gpu, recompute);
}

/* The blocks of a collective occupy the SMs of a GPU that spins, and compute nothing. */
static double spin_power(const struct erg_gpu *hot, double clock_mhz)
{
    const double voltage = erg_gpu_voltage(hot, clock_mhz);
    return hot->static_power_w + voltage * voltage * clock_mhz / hot->clock_max_mhz *
                                     hot->spin_power_w * hot->library_blocks;
}

static void run_gpu(struct emulation *emulation, struct emulated_rank *gpu)
{
    struct erg_layout_energy_request request = emulation->request;
    struct erg_gpu hot;
    costs_at(emulation, gpu, wanted_mhz(gpu), gpu->busy_c, &hot, &gpu->costs);
    request.gpu = &hot;
    for (long i = 0; i < emulation->passes; i++)
        run_pass(&gpu->passes[i], emulation, gpu, &request, i / 2, i % 2);
    gpu->spin_w = spin_power(&hot, gpu->passes[0].clock_mhz);
    if (!isinf(gpu->heat_mhz))
        return;
    gpu->free_mhz = 0;
    for (long i = 0; i < emulation->passes; i++)
        gpu->free_mhz = fmax(gpu->free_mhz, gpu->passes[i].clock_mhz);
}

/* Ranks that exchange in every layer wait for the slowest of them. */
static void meet(struct emulation *emulation, long set, long stage)
{
    const long members = emulation->coupled * emulation->ranks / emulation->layout.data;
    struct emulated_rank *gpus = &emulation->gpu_at[stage * emulation->ranks + set * members];
    const struct erg_pipeline *pipeline = &emulation->schedule.pipeline;
    double *pass_s = emulation->pass_s + set * emulation->layout.pipeline * emulation->passes;
    for (long i = 0; i < emulation->passes; i++) {
        const struct erg_instruction instruction = {.stage = (uint32_t)stage,
                                                    .chunk = (uint32_t)(i / 2),
                                                    .direction = (enum erg_direction)(i % 2)};
        double longest_s = 0;
        for (long k = 0; k < members; k++)
            longest_s = fmax(longest_s, gpus[k].passes[i].own_s);
        for (long k = 0; k < members; k++) {
            struct emulated_pass *pass = &gpus[k].passes[i];
            pass->spin_s = longest_s - pass->own_s;
            pass->energy_j += pass->spin_s * gpus[k].spin_w;
        }
        pass_s[erg_table_index(pipeline, &instruction)] = longest_s;
    }
}

void erg_emulation_run_passes(struct emulation *emulation)
{
    for (long rank = 0; rank < emulation->gpus; rank++)
        run_gpu(emulation, &emulation->gpu_at[rank]);
    for (long set = 0; set < emulation->sets; set++)
        for (long stage = 0; stage < emulation->layout.pipeline; stage++)
            meet(emulation, set, stage);
}

void erg_emulation_load(const void *context, double clock_mhz, double temperature_c, double *busy_w,
                        double *mean_w)
{
    const struct emulated_load *load = context;
    const struct emulation *emulation = load->emulation;
    struct erg_layout_energy_request request = emulation->request;
    struct emulated_rank gpu = *load->gpu;
    struct erg_gpu hot;
    double busy_s = 0, busy_j = 0;
    const double microbatches = (double)emulation->layout.microbatches;
    costs_at(emulation, &gpu, clock_mhz, temperature_c, &hot, &gpu.costs);
    request.gpu = &hot;
    for (long i = 0; i < emulation->passes; i++) {
        struct emulated_pass pass;
        run_pass(&pass, emulation, &gpu, &request, i / 2, i % 2);
        busy_s += microbatches * pass.own_s;
        busy_j += microbatches * pass.energy_j;
    }
    const double rest_s = fmax(emulation->time_s - busy_s, 0);
    const double blocking_w =
        emulation->gpu.blocking_power_w + hot.static_power_w - emulation->gpu.static_power_w;
    *busy_w = busy_j / busy_s;
    *mean_w = (busy_j + rest_s * blocking_w) / (busy_s + rest_s);
}
