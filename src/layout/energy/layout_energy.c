/* The energy of a layout: stages and the iteration. */
#include "layout/energy/layout_energy.h"

#include <math.h>

const char *erg_layout_energy_item_name(enum erg_layout_energy_item item)
{
    static const char *const names[ERG_LAYOUT_ENERGY_ITEMS] = {
        [ERG_LAYOUT_ENERGY_LINEAR] = "linear",       [ERG_LAYOUT_ENERGY_ATTENTION] = "attention",
        [ERG_LAYOUT_ENERGY_MEMORY] = "memory",       [ERG_LAYOUT_ENERGY_WIRES] = "wires",
        [ERG_LAYOUT_ENERGY_RECOMPUTE] = "recompute", [ERG_LAYOUT_ENERGY_OFFLOAD] = "offload",
        [ERG_LAYOUT_ENERGY_HEAD] = "head",           [ERG_LAYOUT_ENERGY_GRADIENTS] = "gradients",
        [ERG_LAYOUT_ENERGY_OPTIMIZER] = "optimizer", [ERG_LAYOUT_ENERGY_ACTIVE] = "active",
        [ERG_LAYOUT_ENERGY_STATIC] = "static",       [ERG_LAYOUT_ENERGY_WAITING] = "waiting",
    };
    return names[item];
}

/* ---- stages ---- */

/* The next stage that differs from this one. */
static long next_stage(const struct erg_layout_energy_place *place, const struct erg_layout *layout,
                       long stage)
{
    bool equal = !layout->chunk_layers && !layout->stage_recompute && !layout->stage_offload;
    return stage + (equal ? erg_time_alike(place->time, layout, stage) : 1);
}

static void add_pass(struct erg_pass_cost *sum, const struct erg_pass_cost *pass, double times)
{
    sum->time_s += times * pass->time_s;
    sum->total_j += times * pass->total_j;
    for (int i = 0; i <= ERG_LAYOUT_ENERGY_STATIC; i++)
        sum->items[i] += times * pass->items[i];
}

/* A recomputed forward pass: the energy of its FLOPs and bytes counts in another item. */
static void add_again(struct erg_pass_cost *sum, const struct erg_pass_cost *forward, double times)
{
    sum->time_s += times * forward->time_s;
    sum->total_j += times * forward->total_j;
    sum->items[ERG_LAYOUT_ENERGY_ACTIVE] += times * forward->items[ERG_LAYOUT_ENERGY_ACTIVE];
    sum->items[ERG_LAYOUT_ENERGY_STATIC] += times * forward->items[ERG_LAYOUT_ENERGY_STATIC];
    for (int i = ERG_LAYOUT_ENERGY_LINEAR; i <= ERG_LAYOUT_ENERGY_WIRES; i++)
        sum->items[ERG_LAYOUT_ENERGY_RECOMPUTE] += times * forward->items[i];
}

/* Adds work at static and active power only. */
static void add_busy(struct erg_pass_cost *sum, const struct erg_layout_costs *costs, double time_s)
{
    sum->time_s += time_s;
    sum->items[ERG_LAYOUT_ENERGY_ACTIVE] += costs->active_w * time_s;
    sum->items[ERG_LAYOUT_ENERGY_STATIC] += costs->static_w * time_s;
    sum->total_j += (costs->active_w + costs->static_w) * time_s;
}

struct erg_pass_cost erg_layout_copy_cost(const struct erg_layout_energy_request *request,
                                          const struct erg_time_parts *parts,
                                          const struct erg_layout_costs *costs, long layers,
                                          enum erg_recompute recompute, double offload)
{
    const struct erg_engine *engine = request->time.engine;
    struct erg_pass_cost cost = {0};
    double copy_s = (double)layers * offload * parts->copy_s[recompute];
    double copy_j = copy_s * erg_time_copy_rate(&request->time) * costs->hbm_byte_j;
    add_busy(&cost, costs, engine->offload_interference * copy_s);
    cost.items[ERG_LAYOUT_ENERGY_OFFLOAD] = copy_j;
    cost.total_j += copy_j;
    return cost;
}

/* One direction of layers of one kind. */
static void add_layers(struct erg_pass_cost *sum, const struct erg_layout_costs *costs,
                       double layers, bool dense, bool backward, enum erg_recompute recompute)
{
    const struct erg_pass_cost *passes =
        &costs->passes[erg_layout_pass_of(ERG_PASS_FORWARD, dense)];
    add_pass(sum, &passes[backward ? ERG_PASS_BACKWARD : ERG_PASS_FORWARD], layers);
    if (backward && erg_recompute_norms(recompute))
        add_pass(sum, &passes[ERG_PASS_NORMS], layers);
    if (backward && erg_recompute_activation(recompute))
        add_pass(sum, &passes[ERG_PASS_ACTIVATION], layers);
    if (backward && recompute == ERG_RECOMPUTE_FULL)
        add_again(sum, &passes[ERG_PASS_FORWARD], layers);
}

struct erg_pass_cost erg_layout_chunk_cost(const struct erg_layout_energy_request *request,
                                           const struct erg_time_parts *parts,
                                           const struct erg_layout_costs *costs, long layers,
                                           long dense, bool backward, bool head,
                                           enum erg_recompute recompute, double offload)
{
    const struct erg_pass_cost *passes = costs->passes;
    struct erg_pass_cost sum = {0};
    add_layers(&sum, costs, (double)(layers - dense), false, backward, recompute);
    if (dense > 0)
        add_layers(&sum, costs, (double)dense, true, backward, recompute);
    erg_layout_add_network(&sum, costs, (double)layers, backward,
                           backward && recompute == ERG_RECOMPUTE_FULL);
    if (offload > 0) { /* out during the forward, in again during the backward */
        const struct erg_pass_cost copy =
            erg_layout_copy_cost(request, parts, costs, layers, recompute, offload);
        add_pass(&sum, &copy, 1);
    }
    if (head)
        add_pass(&sum, &passes[ERG_PASS_HEAD], (backward ? 2 : 1) / 3.0);
    return sum;
}

/* ---- after the pipeline ---- */

double erg_layout_stage_parameters(const struct erg_time_request *request,
                                   const struct erg_time_parts *parts,
                                   const struct erg_layout *layout, long stage)
{
    const long layers = erg_layout_stage_layers(layout, request->model->layers, stage);
    const long dense = erg_layout_dense_layers(layout, request->model, stage, layers);
    const long last = layout->pipeline - 1;
    double sum = parts->layer_parameters * (double)(layers - dense) +
                 parts->dense.parameters * (double)dense;
    if (stage == 0)
        sum += parts->embedding_parameters;
    if (stage == last && (last > 0 || !request->model->tied))
        sum += parts->head_parameters;
    return sum;
}

double erg_layout_stage_experts(const struct erg_time_request *request,
                                const struct erg_time_parts *parts, const struct erg_layout *layout,
                                long stage)
{
    const long layers = erg_layout_stage_layers(layout, request->model->layers, stage);
    const long dense = erg_layout_dense_layers(layout, request->model, stage, layers);
    return parts->expert_parameters * (double)(layers - dense);
}

/* The work and the time of the stages of a place, without waits for stages of other places. */
static double add_tail(struct erg_layout_tail *tail, double *stalls_s, double *busy_s,
                       const struct erg_layout_energy_place *place, const struct erg_layout *layout)
{
    const struct erg_time_request *time = &place->request->time;
    const struct erg_engine *engine = time->engine;
    const struct erg_time_parts *parts = place->time->parts;
    const struct erg_layout_costs *costs = place->costs;
    const double bytes = erg_time_optimizer_bytes(engine, layout);
    const double expert_bytes = erg_time_expert_optimizer_bytes(engine, layout);
    const double byte_s =
        costs->memory_slowdown / (engine->memory_efficiency * time->machine->memory_bandwidth);
    double end_s = 0, sum = 0, experts = 0;
    for (long stage = place->time->first, next; stage < place->time->end; stage = next) {
        next = next_stage(place, layout, stage);
        double own = erg_layout_stage_parameters(time, parts, layout, stage);
        enum erg_recompute recompute = erg_layout_recompute(layout, stage);
        double copy_s = erg_layout_offload(layout, stage) * parts->copy_s[recompute];
        double backward_s =
            erg_layout_chunk_cost(place->request, parts, costs, 1, 0, true, false, recompute, 0)
                .time_s;
        *stalls_s = fmax(*stalls_s, (double)layout->microbatches * parts->ends_s[recompute]);
        const double own_experts = erg_layout_stage_experts(time, parts, layout, stage);
        end_s =
            fmax(end_s, own * place->time->gradient_s + own * bytes * byte_s +
                            own_experts * (place->time->expert_gradient_s + expert_bytes * byte_s));
        sum += own * (double)(next - stage);
        experts += own_experts * (double)(next - stage);
        *stalls_s = fmax(*stalls_s,
                         erg_time_copy_stalls(place->time, layout, stage, copy_s,
                                              costs->passes[ERG_PASS_FORWARD].time_s, backward_s));
    }
    double wire_bytes = erg_time_gradient_bytes(engine, layout);
    double replicas = (double)erg_layout_gpus(layout) / (double)layout->pipeline;
    const double expert_wire_bytes = erg_time_expert_gradient_bytes(engine, layout);
    *busy_s =
        (sum * bytes + experts * expert_bytes) * byte_s; /* summed over one GPU of each stage */
    tail->items[ERG_LAYOUT_ENERGY_GRADIENTS] +=
        replicas * costs->wire_byte_j * sum * wire_bytes +
        replicas * costs->wire_byte_j * experts * expert_wire_bytes;
    tail->items[ERG_LAYOUT_ENERGY_WIRES] +=
        replicas * costs->wire_byte_j * (double)layout->microbatches * costs->network.ends_bytes;
    tail->items[ERG_LAYOUT_ENERGY_OPTIMIZER] +=
        replicas * costs->hbm_byte_j * sum * bytes +
        replicas * costs->hbm_byte_j * experts * expert_bytes;
    tail->items[ERG_LAYOUT_ENERGY_ACTIVE] += replicas * costs->active_w * *busy_s;
    tail->items[ERG_LAYOUT_ENERGY_STATIC] += replicas * costs->static_w * *busy_s;
    return end_s;
}

void erg_layout_tail(struct erg_layout_tail *tail, const struct erg_layout_energy_place *places,
                     size_t count, const struct erg_layout *layout)
{
    double replicas = (double)erg_layout_gpus(layout) / (double)layout->pipeline;
    double stalls_s = 0, end_s = 0, waiting_w = 0, busy_j = 0;
    struct erg_time_place own[ERG_LAYOUT_MOST_KINDS];
    *tail = (struct erg_layout_tail){0};
    for (size_t i = 0; i < count; i++) {
        const struct erg_time_place *time = places[i].time;
        double busy_s, blocking_w = places[i].request->gpu->blocking_power_w;
        end_s = fmax(end_s, add_tail(tail, &stalls_s, &busy_s, &places[i], layout));
        own[i] = *time;
        waiting_w += blocking_w * (double)(time->end - time->first);
        busy_j += blocking_w * busy_s;
    }
    tail->time_s = erg_time_passage(own, count, layout) + stalls_s + end_s;
    tail->items[ERG_LAYOUT_ENERGY_WAITING] = replicas * (waiting_w * tail->time_s - busy_j);
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++)
        tail->total_j += tail->items[i];
}

/* ---- the iteration ---- */

/* One GPU of each stage; returns the pipeline's time with its wait `uneven_s`. */
static double add_pipeline(double *items, const struct erg_layout_energy_place *places,
                           size_t count, const struct erg_layout *layout, double uneven_s)
{
    long last = layout->pipeline - 1;
    double chunks = (double)layout->virtual_stages, microbatches = (double)layout->microbatches;
    double sum_s = 0, longest_s = 0, waiting_w = 0, busy_j = 0, message_j = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_layout_energy_place *place = &places[i];
        const struct erg_layout_energy_request *request = place->request;
        double busy_s = 0;
        for (long stage = place->time->first, next; stage < place->time->end; stage = next) {
            next = next_stage(place, layout, stage);
            const struct erg_model *model = request->time.model;
            const long layers = erg_layout_stage_layers(layout, model->layers, stage);
            const long dense = erg_layout_dense_layers(layout, model, stage, layers);
            double alike = (double)(next - stage);
            double stage_s = erg_time_message(place->time, layout, stage);
            for (int backward = 0; backward < 2; backward++) {
                struct erg_pass_cost cost = erg_layout_chunk_cost(
                    request, place->time->parts, place->costs, layers, dense, backward,
                    stage == last, erg_layout_recompute(layout, stage),
                    erg_layout_offload(layout, stage));
                stage_s += cost.time_s;
                busy_s += alike * microbatches * (cost.time_s - cost.wait_s);
                for (int k = 0; k <= ERG_LAYOUT_ENERGY_STATIC; k++)
                    items[k] += alike * microbatches * cost.items[k];
            }
            sum_s += alike * stage_s;
            longest_s = fmax(longest_s, stage_s);
        }
        message_j = fmax(message_j, place->costs->message_j);
        waiting_w +=
            request->gpu->blocking_power_w * (double)(place->time->end - place->time->first);
        busy_j += request->gpu->blocking_power_w * busy_s;
    }
    double boundaries = (double)layout->pipeline * chunks - 1;
    items[ERG_LAYOUT_ENERGY_WIRES] += 2 * boundaries * microbatches * message_j;
    double time_s = microbatches * longest_s + (sum_s - longest_s) / chunks + uneven_s;
    items[ERG_LAYOUT_ENERGY_WAITING] += waiting_w * time_s - busy_j;
    return time_s;
}

void erg_layout_energy_compose(struct erg_layout_energy *energy,
                               const struct erg_layout_energy_place *places, size_t count,
                               const struct erg_layout *layout, double uneven_s)
{
    long gpus = erg_layout_gpus(layout);
    double replicas = (double)gpus / (double)layout->pipeline;
    struct erg_layout_tail tail;
    *energy = (struct erg_layout_energy){.clock_mhz = INFINITY};
    energy->time_s = add_pipeline(energy->items, places, count, layout, uneven_s);
    erg_layout_tail(&tail, places, count, layout);
    energy->time_s += tail.time_s;
    for (int i = 0; i < ERG_LAYOUT_ENERGY_ITEMS; i++) {
        energy->items[i] = replicas * energy->items[i] + tail.items[i];
        energy->total_j += energy->items[i];
    }
    energy->gpu_power_w = energy->total_j / energy->time_s / (double)gpus;
    energy->power_w = energy->total_j / energy->time_s;
    for (size_t i = 0; i < count; i++) {
        const struct erg_pass_cost *passes = places[i].costs->passes;
        const int kinds = places[i].request->time.model->experts.dense_layers > 0 ? 2 : 1;
        for (int dense = 0; dense < kinds; dense++)
            for (int pass = ERG_PASS_FORWARD; pass <= ERG_PASS_BACKWARD; pass++)
                energy->clock_mhz =
                    fmin(energy->clock_mhz, passes[erg_layout_pass_of(pass, dense)].clock_mhz);
    }
}

void erg_layout_energy_whole(struct erg_layout_energy *energy,
                             const struct erg_layout_energy_request *request,
                             const struct erg_layout *layout)
{
    const struct erg_time_request *time = &request->time;
    const long gpus = erg_layout_gpus(layout);
    struct erg_time_parts parts;
    struct erg_time_place place;
    struct erg_layout_work work;
    struct erg_layout_costs costs;
    erg_time_parts_of(&parts, time, layout, gpus);
    erg_time_place_init(&place, time, &parts, layout,
                        erg_time_group_bandwidth(time, erg_time_gradient_stride(layout),
                                                 erg_time_gradient_ranks(layout), gpus));
    erg_layout_work_of(&work, request, &parts, layout, gpus);
    erg_layout_costs_at(&costs, request, &work, 0);
    const struct erg_layout_energy_place on = {request, &place, &costs};
    erg_layout_energy_compose(energy, &on, 1, layout, 0);
}
