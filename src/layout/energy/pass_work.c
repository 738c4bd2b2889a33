/* The work of the passes of a layer and the head, and its time at a clock. */
#include "layout/energy/layout_energy.h"

#include "device/emulated/power.h"

#include <math.h>

/* ---- work ---- */

/* Time of memory-bound kernels at a clock, over that of a clock at which the HBM sets the pace. */
static double issue_slowdown(const struct erg_gpu *gpu, double clock_mhz)
{
    return fmax(1, gpu->clock_max_mhz / (gpu->memory_issue * clock_mhz));
}

/* Adds the bytes of communication, and of work that the time model counts only by its FLOPs. */
static void count_ops(struct erg_pass_work *pass, const struct erg_model_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_model_op *op = &ops->items[i];
        double bytes = 0;
        for (int k = 0; k < op->work_count; k++)
            bytes += op->work[k].bytes;
        if (op->comm)
            pass->wire_bytes += op->communication.wire_bytes;
        else if (op->group == ERG_GROUP_LINEAR && op->id != ERG_MODEL_ROUTER)
            pass->bytes[0] += bytes; /* the router's bytes count as memory-bound */
        else if (op->group == ERG_GROUP_ATTENTION)
            pass->bytes[1] += bytes;
    }
}

/* SM-seconds of the collectives' blocks, which occupy SMs for the whole transfer, hidden or not. */
static double spin_sm_s(const struct erg_layout_energy_request *request,
                        const struct erg_model_ops *ops, const struct erg_layout *layout, long gpus)
{
    const struct erg_time_request *time = &request->time;
    const double tensor_bandwidth = erg_time_group_bandwidth(time, 1, layout->tensor, gpus);
    const double context_bandwidth =
        erg_time_group_bandwidth(time, layout->tensor, layout->context, gpus);
    double seconds = 0;
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_comm *comm = &ops->items[i].communication;
        bool reduce = comm->kind == ERG_COMM_ALLREDUCE;
        if (ops->items[i].comm && ops->items[i].id >= ERG_MODEL_ROUTER)
            seconds += erg_time_expert_exchange(time, layout, comm, gpus) +
                       time->engine->collective_latency_s;
        else if (ops->items[i].comm)
            seconds += comm->wire_bytes / (reduce ? tensor_bandwidth : context_bandwidth) +
                       request->time.engine->collective_latency_s;
    }
    return seconds * request->gpu->library_blocks;
}

/* Derives the work from the seconds of a pass of a layer in the time model. */
static void read_layer(struct erg_pass_work *pass, const struct erg_layout_energy_request *request,
                       const double *items, double expert_s, double scores, long heads, long tensor,
                       long sequence, bool backward)
{
    const struct erg_engine *engine = request->time.engine;
    const struct erg_gpu *gpu = request->gpu;
    double bandwidth = engine->memory_efficiency * request->time.machine->memory_bandwidth;
    double score_bytes = scores * erg_time_score_bytes(engine, heads, backward);
    double attention_s = items[ERG_TIME_ATTENTION] - score_bytes / bandwidth;
    double energy = backward ? gpu->attention_backward_energy : gpu->attention_forward_energy;
    double directions = backward ? 2 : 1;
    double attention_efficiency =
        backward ? engine->attention_backward_efficiency : engine->attention_efficiency;
    pass->product_s = items[ERG_TIME_LINEAR] + attention_s;
    pass->memory_s = items[ERG_TIME_MEMORY] + score_bytes / bandwidth;
    pass->fixed_s = items[ERG_TIME_TENSOR] + items[ERG_TIME_CONTEXT] + items[ERG_TIME_EXPERT] +
                    directions * engine->layer_overhead_s;
    pass->host_s = directions * erg_time_host(engine, tensor, heads);
    pass->host_blend = engine->host_blend;
    pass->flops[0] =
        (items[ERG_TIME_LINEAR] - expert_s) * engine->gemm_efficiency * engine->peak_flops +
        expert_s * engine->expert_gemm_efficiency * engine->peak_flops;
    pass->flops[1] = attention_s * attention_efficiency * engine->peak_flops * energy *
                     (1 + gpu->attention_k0 / (double)sequence);
    pass->bytes[1] += score_bytes;
    pass->bytes[2] = items[ERG_TIME_MEMORY] * bandwidth;
}

static void read_head(struct erg_pass_work *pass, const struct erg_time_request *time,
                      const struct erg_time_parts *parts, long tensor)
{
    const struct erg_engine *engine = time->engine;
    double efficiency = tensor == 1 ? engine->whole_head_efficiency : 1;
    pass->product_s = parts->head[ERG_TIME_LINEAR];
    pass->memory_s = parts->head[ERG_TIME_MEMORY];
    pass->fixed_s = parts->head[ERG_TIME_TENSOR];
    pass->host_s = engine->host_head_s;
    pass->host_blend = engine->host_blend;
    pass->flops[0] = pass->product_s * efficiency * engine->gemm_efficiency * engine->peak_flops;
    pass->bytes[2] = pass->memory_s * engine->memory_efficiency * time->machine->memory_bandwidth;
}

/* ---- time and energy of a pass at a clock ---- */

/* `rates_mhz` 0: at the clock at which the seconds hold. */
static double pass_time(const struct erg_gpu *gpu, const struct erg_pass_work *pass,
                        double clock_mhz)
{
    double product = 1, memory = 1;
    if (pass->rates_mhz > 0) {
        product = pass->rates_mhz / clock_mhz;
        memory = issue_slowdown(gpu, clock_mhz) / issue_slowdown(gpu, pass->rates_mhz);
    }
    return erg_time_paced(product * pass->product_s + memory * pass->memory_s + pass->fixed_s,
                          pass->host_s, pass->host_blend);
}

static double active_power(const struct erg_gpu *gpu, double clock_mhz)
{
    double voltage = erg_gpu_voltage(gpu, clock_mhz);
    return voltage * voltage * gpu->active_power_w * clock_mhz / gpu->clock_max_mhz;
}

/* J of a pass that takes `time_s`, without the effect of the regulator's dithering. */
static void pass_energy(double *items, const struct erg_gpu *gpu, const struct erg_pass_work *pass,
                        double clock_mhz, double time_s)
{
    double voltage = erg_gpu_voltage(gpu, clock_mhz), squared = voltage * voltage;
    double byte_j = erg_hbm_byte_energy(gpu, voltage), flop_j = squared * gpu->energy_per_flop_j;
    items[ERG_LAYOUT_ENERGY_LINEAR] = flop_j * pass->flops[0] + byte_j * pass->bytes[0];
    items[ERG_LAYOUT_ENERGY_ATTENTION] = flop_j * pass->flops[1] + byte_j * pass->bytes[1];
    items[ERG_LAYOUT_ENERGY_MEMORY] = byte_j * pass->bytes[2];
    items[ERG_LAYOUT_ENERGY_WIRES] =
        (gpu->energy_per_wire_byte_j + gpu->comm_hbm_per_wire * byte_j) * pass->wire_bytes;
    items[ERG_LAYOUT_ENERGY_ACTIVE] =
        active_power(gpu, clock_mhz) * time_s +
        squared * gpu->spin_power_w * clock_mhz / gpu->clock_max_mhz * pass->spin_sm_s;
    items[ERG_LAYOUT_ENERGY_STATIC] = gpu->static_power_w * time_s;
}

struct pass_at {
    const struct erg_gpu *gpu;
    const struct erg_pass_work *pass;
};

static void evaluate_pass(const void *context, double clock_mhz, double *time_s, double *energy_j)
{
    const struct pass_at *at = context;
    double items[ERG_LAYOUT_ENERGY_STATIC + 1] = {0};
    *time_s = pass_time(at->gpu, at->pass, clock_mhz);
    *energy_j = 0;
    pass_energy(items, at->gpu, at->pass, clock_mhz, *time_s);
    for (int i = 0; i <= ERG_LAYOUT_ENERGY_STATIC; i++)
        *energy_j += items[i];
}

static struct erg_cap board_cap(const struct erg_gpu *gpu)
{
    return (struct erg_cap){.power_w = gpu->power_cap_w,
                            .softness_mhz = gpu->cap_softness_mhz,
                            .dither_mhz = gpu->cap_dither_mhz,
                            .static_w = gpu->static_power_w};
}

static double cap_clock(const struct erg_pass_work *pass, const struct erg_gpu *gpu)
{
    const struct pass_at at = {gpu, pass};
    struct erg_cap cap = board_cap(gpu);
    cap.evaluate = evaluate_pass;
    cap.context = &at;
    return erg_cap_clock(&cap, 0.4 * gpu->clock_max_mhz, 1.25 * gpu->clock_max_mhz);
}

void erg_layout_work_recap(struct erg_layout_work *work,
                           const struct erg_layout_energy_request *request)
{
    for (int i = 0; i < work->pass_count; i++)
        work->passes[i].cap_mhz = cap_clock(&work->passes[i], request->gpu);
}

/* Finds the clock at which the cap acts and, with measured rates, the clock at which they hold. */
void erg_layout_find_clocks(struct erg_pass_work *pass,
                            const struct erg_layout_energy_request *request)
{
    const struct erg_gpu *gpu = request->gpu;
    const struct erg_cap cap = board_cap(gpu);
    pass->rates_mhz = request->rates_mhz;
    pass->rates_dither = 0;
    pass->cap_mhz = cap_clock(pass, gpu);
    if (pass->rates_mhz > 0)
        return;
    struct erg_regulation regulation = erg_cap_regulate(&cap, gpu->clock_max_mhz, pass->cap_mhz);
    pass->rates_mhz = regulation.clock_mhz;
    pass->rates_dither = regulation.dither;
}

/* Seconds of the time model for a layer of one kind, by direction and by recomputation. */
struct layer_seconds {
    const double *items[2], *expert_s, *recompute_s;
};

/* The passes of layers of one kind; `passes`: from their forward pass on. */
static void fill_layer(struct erg_pass_work *passes,
                       const struct erg_layout_energy_request *request,
                       const struct erg_model *model, const struct layer_seconds *seconds,
                       const struct erg_layout *layout, long gpus)
{
    const struct erg_time_request *time = &request->time;
    const long tensor = layout->tensor, microbatch = layout->microbatch;
    const long sequence = layout->sequence;
    const struct erg_model_shape shape = erg_time_shape(time->engine, layout);
    const double scores = (double)microbatch * (double)sequence * (double)sequence *
                          (double)model->heads / (double)(tensor * layout->context);
    const double bandwidth = time->engine->memory_efficiency * time->machine->memory_bandwidth;
    struct erg_model_ops ops;
    for (int backward = 0; backward < 2; backward++) {
        struct erg_pass_work *layer = &passes[backward ? ERG_PASS_BACKWARD : ERG_PASS_FORWARD];
        (backward ? erg_model_layer_backward : erg_model_layer_forward)(&ops, model, &shape);
        count_ops(layer, &ops);
        layer->spin_sm_s = spin_sm_s(request, &ops, layout, gpus);
        read_layer(layer, request, seconds->items[backward], seconds->expert_s[backward], scores,
                   microbatch * model->heads / tensor, tensor, sequence, backward);
    }
    passes[ERG_PASS_NORMS].memory_s = seconds->recompute_s[ERG_RECOMPUTE_NORMS];
    passes[ERG_PASS_ACTIVATION].memory_s = seconds->recompute_s[ERG_RECOMPUTE_ACTIVATION];
    for (int i = ERG_PASS_NORMS; i <= ERG_PASS_ACTIVATION; i++)
        passes[i].bytes[2] = passes[i].memory_s * bandwidth;
}

void erg_layout_work_unsharded(struct erg_layout_work *work,
                               const struct erg_layout_energy_request *request,
                               const struct erg_time_parts *parts, const struct erg_layout *layout,
                               long gpus)
{
    const struct erg_time_request *time = &request->time;
    const long tensor = layout->tensor;
    struct erg_model model = *time->model; /* with the padded vocabulary */
    model.vocab = erg_layout_vocabulary(time->model, tensor);
    const struct erg_model_shape shape = erg_time_shape(time->engine, layout);
    const struct layer_seconds layer = {
        {parts->forward, parts->backward}, parts->expert_s, parts->recompute_s};
    struct erg_model_ops ops;
    struct erg_pass_work *head = &work->passes[ERG_PASS_HEAD];
    const bool two_kinds = model.experts.dense_layers > 0;
    *work = (struct erg_layout_work){.pass_count = two_kinds ? ERG_PASSES : ERG_PASS_DENSE_FORWARD};
    fill_layer(work->passes, request, &model, &layer, layout, gpus);
    if (two_kinds) {
        static const double no_experts_s[2] = {0};
        const struct erg_model plain = erg_model_without_experts(&model);
        const struct erg_time_dense *dense = &parts->dense;
        const struct layer_seconds seconds = {
            {dense->forward, dense->backward}, no_experts_s, dense->recompute_s};
        fill_layer(&work->passes[ERG_PASS_DENSE_FORWARD], request, &plain, &seconds, layout, gpus);
    }
    for (int backward = 0; backward < 2; backward++) {
        (backward ? erg_model_head_backward : erg_model_head_forward)(&ops, &model, &shape);
        count_ops(head, &ops);
        head->spin_sm_s += spin_sm_s(request, &ops, layout, gpus);
    }
    read_head(head, time, parts, tensor);
    for (int i = 0; i < work->pass_count; i++)
        erg_layout_find_clocks(&work->passes[i], request);
    work->message_bytes = 2 * (double)layout->microbatch * (double)layout->sequence *
                          (double)model.hidden / (double)(tensor * layout->context);
}

/* ---- costs ---- */

void erg_layout_costs_at(struct erg_layout_costs *costs,
                         const struct erg_layout_energy_request *request,
                         const struct erg_layout_work *work, double clock_mhz)
{
    const struct erg_gpu *gpu = request->gpu;
    const struct erg_cap cap = board_cap(gpu);
    double highest = gpu->clock_max_mhz;
    clock_mhz = clock_mhz > 0 ? clock_mhz : highest;
    *costs = (struct erg_layout_costs){0};
    for (int i = 0; i < work->pass_count; i++) {
        const struct erg_pass_work *pass = &work->passes[i];
        struct erg_pass_cost *cost = &costs->passes[i];
        struct erg_regulation regulation = erg_cap_regulate(&cap, clock_mhz, pass->cap_mhz);
        /* Measured seconds include the dithering. */
        double dither = (1 + regulation.dither) / (1 + pass->rates_dither);
        double time_s = pass_time(gpu, pass, regulation.clock_mhz);
        pass_energy(cost->items, gpu, pass, regulation.clock_mhz, time_s);
        cost->time_s = time_s * dither;
        cost->clock_mhz = regulation.clock_mhz;
        for (int k = 0; k < ERG_LAYOUT_ENERGY_STATIC; k++)
            cost->items[k] *= 1 + 3 * (dither - 1);
        cost->items[ERG_LAYOUT_ENERGY_STATIC] *= dither;
    }
    struct erg_pass_cost *head = &costs->passes[ERG_PASS_HEAD];
    for (int dense = 0; dense < 2; dense++)
        for (int i = ERG_PASS_NORMS; i <= ERG_PASS_ACTIVATION; i++) {
            double *items = costs->passes[erg_layout_pass_of(i, dense)].items;
            items[ERG_LAYOUT_ENERGY_RECOMPUTE] = items[ERG_LAYOUT_ENERGY_MEMORY];
            items[ERG_LAYOUT_ENERGY_MEMORY] = 0;
        }
    for (int k = ERG_LAYOUT_ENERGY_LINEAR; k <= ERG_LAYOUT_ENERGY_WIRES; k++) {
        head->items[ERG_LAYOUT_ENERGY_HEAD] += head->items[k];
        head->items[k] = 0;
    }
    for (int i = 0; i < work->pass_count; i++)
        for (int k = 0; k <= ERG_LAYOUT_ENERGY_STATIC; k++)
            costs->passes[i].total_j += costs->passes[i].items[k];
    costs->hbm_byte_j = erg_hbm_byte_energy(gpu, erg_gpu_voltage(gpu, clock_mhz));
    costs->wire_byte_j = gpu->energy_per_wire_byte_j + gpu->comm_hbm_per_wire * costs->hbm_byte_j;
    costs->message_j = costs->wire_byte_j * work->message_bytes;
    costs->memory_slowdown = issue_slowdown(gpu, clock_mhz) / issue_slowdown(gpu, highest);
    costs->active_w = active_power(gpu, clock_mhz);
    costs->static_w = gpu->static_power_w;
    erg_layout_network_costs(costs, gpu, work, clock_mhz);
}
