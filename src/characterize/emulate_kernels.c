/* Time and energy of an emulated GPU by category of kernels, computed from its passes and waits. */
#include "characterize/emulate_kernels.h"

#include "trace/kernel_record.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum erg_kernel_category erg_emulation_exchange_category(enum erg_comm_kind kind)
{
    switch (kind) {
    case ERG_COMM_ALLTOALL:
        return ERG_CATEGORY_SEND_RECV;
    case ERG_COMM_ALLREDUCE:
        return ERG_CATEGORY_ALL_REDUCE;
    case ERG_COMM_ALLGATHER_KV:
    case ERG_COMM_ALLGATHER_HIDDEN:
        return ERG_CATEGORY_ALL_GATHER;
    case ERG_COMM_REDUCESCATTER_KV:
    case ERG_COMM_REDUCESCATTER_HIDDEN:
        return ERG_CATEGORY_REDUCE_SCATTER;
    default:
        return ERG_CATEGORY_OTHER;
    }
}

/* ---- the parts of a pass ---- */

/* Seconds of an exchange, hidden or not. */
static double exchange_s(const struct emulation *emulation, const struct erg_model_op *op)
{
    const struct erg_layout *layout = &emulation->layout;
    const struct erg_time_request *time = &emulation->request.time;
    const struct erg_comm *comm = &op->communication;
    const bool keys =
        comm->kind == ERG_COMM_ALLGATHER_KV || comm->kind == ERG_COMM_REDUCESCATTER_KV;
    double own_s;
    if (op->id >= ERG_MODEL_ROUTER)
        own_s = erg_time_expert_exchange(time, layout, comm, emulation->gpus);
    else
        own_s = comm->wire_bytes / erg_time_group_bandwidth(time, keys ? layout->tensor : 1,
                                                            keys ? layout->context : layout->tensor,
                                                            emulation->gpus);
    return own_s + emulation->engine.collective_latency_s;
}

static void mix_op(struct erg_emulated_mix *mix, const struct emulation *emulation,
                   const struct erg_model_op *op)
{
    if (op->comm) {
        const enum erg_kernel_category category =
            erg_emulation_exchange_category(op->communication.kind);
        const double own_s = exchange_s(emulation, op);
        mix->comm_s[category] += own_s;
        mix->expert_s[category] += op->id >= ERG_MODEL_ROUTER ? own_s : 0;
        mix->wires[category] += op->communication.wire_bytes;
        mix->count[category]++;
        return;
    }
    for (int i = 0; i < op->work_count; i++) {
        const struct erg_op *work = &op->work[i];
        const bool product = work->kind != ERG_OP_MEMORY, norm = op->group == ERG_GROUP_NORM;
        mix->count[product ? ERG_CATEGORY_MATMUL
                   : norm  ? ERG_CATEGORY_LAYERNORM
                           : ERG_CATEGORY_MEMORY] += work->kernels;
        if (!product)
            *(norm ? &mix->norm_bytes : &mix->other_bytes) += work->bytes;
    }
}

static void mix_list(struct erg_emulated_mix *mix, const struct emulation *emulation,
                     const struct erg_model_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++)
        mix_op(mix, emulation, &ops->items[i]);
}

/* The passes of layers of one kind; `mixes`: from their forward pass on. */
static void mix_layer(struct erg_emulated_mix *mixes, const struct emulation *emulation,
                      const struct erg_model *model, const struct erg_model_shape *shape)
{
    struct erg_model_ops ops;
    erg_model_layer_forward(&ops, model, shape);
    mix_list(&mixes[ERG_PASS_FORWARD], emulation, &ops);
    erg_model_layer_backward(&ops, model, shape);
    mix_list(&mixes[ERG_PASS_BACKWARD], emulation, &ops);
    mixes[ERG_PASS_NORMS].norm_bytes = mixes[ERG_PASS_ACTIVATION].other_bytes = 1;
    mixes[ERG_PASS_NORMS].count[ERG_CATEGORY_LAYERNORM] = 2;
    mixes[ERG_PASS_ACTIVATION].count[ERG_CATEGORY_MEMORY] = 1;
}

void erg_emulation_mixes(struct erg_emulated_mix mixes[ERG_PASSES],
                         const struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    struct erg_model model = emulation->model;
    struct erg_model_shape shape = erg_time_shape(&emulation->engine, layout);
    struct erg_model_ops ops;
    memset(mixes, 0, ERG_PASSES * sizeof *mixes);
    shape.sequence_parallel = emulation->engine.sequence_parallel && !erg_layout_is_sharded(layout);
    model.vocab = erg_layout_vocabulary(&emulation->model, layout->tensor);
    mix_layer(mixes, emulation, &model, &shape);
    if (model.experts.dense_layers > 0) {
        const struct erg_model dense = erg_model_without_experts(&model);
        mix_layer(&mixes[ERG_PASS_DENSE_FORWARD], emulation, &dense, &shape);
    }
    erg_model_head_forward(&ops, &model, &shape);
    mix_list(&mixes[ERG_PASS_HEAD], emulation, &ops);
    erg_model_head_backward(&ops, &model, &shape);
    mix_list(&mixes[ERG_PASS_HEAD], emulation, &ops);
}

static double sum_of(const double values[ERG_CATEGORIES])
{
    double sum = 0;
    for (int i = 0; i < ERG_CATEGORIES; i++)
        sum += values[i];
    return sum;
}

static double issue_slowdown(const struct erg_gpu *gpu, double clock_mhz)
{
    return fmax(1, gpu->clock_max_mhz / (gpu->memory_issue * clock_mhz));
}

/* Exposed time of a pass's exchanges: those of experts, or the others. */
static double exposed_exchanges(const struct emulation *emulation, enum erg_layout_pass kind,
                                bool of_experts)
{
    const struct erg_time_parts *parts = &emulation->parts;
    const double *const of_passes[ERG_PASSES] = {
        [ERG_PASS_FORWARD] = parts->forward,
        [ERG_PASS_BACKWARD] = parts->backward,
        [ERG_PASS_DENSE_FORWARD] = parts->dense.forward,
        [ERG_PASS_DENSE_BACKWARD] = parts->dense.backward,
    };
    const double *items = of_passes[kind];
    if (kind == ERG_PASS_HEAD)
        return of_experts ? 0 : parts->head[ERG_TIME_TENSOR];
    if (!items)
        return 0;
    return of_experts ? items[ERG_TIME_EXPERT] : items[ERG_TIME_TENSOR] + items[ERG_TIME_CONTEXT];
}

void erg_emulation_split(struct erg_emulated_split *split, const struct emulation *emulation,
                         const struct emulated_rank *gpu, enum erg_layout_pass kind,
                         const struct erg_emulated_mix *mix)
{
    const struct erg_pass_work *work = &emulation->work.passes[kind];
    const struct erg_pass_cost *cost = &gpu->costs.passes[kind];
    const double bytes = mix->norm_bytes + mix->other_bytes;
    const double product_s = work->product_s * work->rates_mhz / cost->clock_mhz;
    const double memory_s = work->memory_s * issue_slowdown(&emulation->gpu, cost->clock_mhz) /
                            issue_slowdown(&emulation->gpu, work->rates_mhz);
    const double experts_s = sum_of(mix->expert_s), others_s = sum_of(mix->comm_s) - experts_s;
    const double experts = experts_s > 0 ? exposed_exchanges(emulation, kind, true) / experts_s : 0;
    const double others = others_s > 0 ? exposed_exchanges(emulation, kind, false) / others_s : 0;
    const double comm_s = experts * experts_s + others * others_s;
    const double known_s = product_s + memory_s + comm_s;
    const double fit = known_s > cost->time_s ? cost->time_s / known_s : 1;
    const double norms = bytes > 0 ? mix->norm_bytes / bytes : 0;
    assert(cost->time_s >= 0 && cost->clock_mhz > 0);
    *split = (struct erg_emulated_split){
        .product_s = fit * product_s,
        .memory_s = fit * memory_s * (1 - norms),
        .norms_s = fit * memory_s * norms,
        .all_comm_s = fit * comm_s,
        .idle_s = cost->time_s - fit * known_s,
    };
    for (int i = 0; i < ERG_CATEGORIES; i++)
        split->comm_s[i] =
            fit * (experts * mix->expert_s[i] + others * (mix->comm_s[i] - mix->expert_s[i]));
}

/* Adds the time and energy of `times` passes of one kind. */
static void add_passes(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                       const struct emulated_rank *gpu, enum erg_layout_pass kind,
                       const struct erg_emulated_mix *mix, double times)
{
    const struct erg_pass_work *work = &emulation->work.passes[kind];
    const struct erg_pass_cost *cost = &gpu->costs.passes[kind];
    struct erg_emulated_kernel *category = kernels->category;
    const double all_comm_s = sum_of(mix->comm_s), wires = sum_of(mix->wires);
    struct erg_emulated_split split;
    erg_emulation_split(&split, emulation, gpu, kind, mix);
    const double all_memory_s = split.memory_s + split.norms_s;
    const double product_s = split.product_s;
    /* Energy by FLOPs and bytes; the rest is proportional to time. */
    const double *items = cost->items;
    const double wires_j = wires > 0 ? gpu->costs.wire_byte_j * wires : 0;
    double named_j = items[ERG_LAYOUT_ENERGY_LINEAR] + items[ERG_LAYOUT_ENERGY_ATTENTION] +
                     items[ERG_LAYOUT_ENERGY_HEAD];
    double memory_j = items[ERG_LAYOUT_ENERGY_MEMORY] + items[ERG_LAYOUT_ENERGY_RECOMPUTE];
    double comm_j = items[ERG_LAYOUT_ENERGY_WIRES];
    if (kind == ERG_PASS_HEAD) { /* it has one item */
        memory_j = fmin(gpu->costs.hbm_byte_j * work->bytes[2], named_j);
        comm_j = fmin(wires_j, named_j - memory_j);
        named_j -= memory_j + comm_j;
    }
    assert(cost->time_s > 0);
    const double power_w = (cost->total_j - named_j - memory_j - comm_j) / cost->time_s;
    category[ERG_CATEGORY_MATMUL].summed_s += times * product_s;
    category[ERG_CATEGORY_MATMUL].exposed_s += times * product_s;
    category[ERG_CATEGORY_MATMUL].energy_j += times * (named_j + power_w * product_s);
    for (int norm = 0; norm < 2; norm++) {
        struct erg_emulated_kernel *own =
            &category[norm ? ERG_CATEGORY_LAYERNORM : ERG_CATEGORY_MEMORY];
        const double own_s = norm ? split.norms_s : split.memory_s;
        own->summed_s += times * own_s;
        own->exposed_s += times * own_s;
        own->energy_j += all_memory_s > 0 ? times * own_s * (memory_j / all_memory_s + power_w) : 0;
    }
    for (int i = 0; i < ERG_CATEGORIES; i++) {
        const double share = all_comm_s > 0 ? mix->comm_s[i] / all_comm_s : 0;
        category[i].summed_s += times * mix->comm_s[i];
        category[i].exposed_s += times * split.comm_s[i];
        category[i].energy_j += times * (share * comm_j + power_w * split.comm_s[i]);
        category[i].count += times * mix->count[i];
    }
    kernels->idle_s += times * split.idle_s;
    kernels->idle_j += times * power_w * split.idle_s;
    if (!(all_comm_s > 0))
        kernels->idle_j += times * comm_j;
    if (!(all_memory_s > 0))
        kernels->idle_j += times * memory_j;
}

/* ---- the waits of a GPU ---- */

static void add_wait(struct erg_emulated_kernel *category, double wait_s, double transfer_s,
                     double energy_j)
{
    category->summed_s += wait_s + transfer_s;
    category->exposed_s += wait_s + transfer_s;
    category->wait_s += wait_s;
    category->energy_j += energy_j;
}

/* Waits in the exchanges of a pass for a slower rank of its group, and with FSDP for the
 * network. */
static void add_spins(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                      const struct emulated_rank *gpu,
                      const struct erg_emulated_mix mixes[ERG_PASSES])
{
    const double microbatches = (double)emulation->layout.microbatches;
    const struct erg_time_shards *shards = &emulation->parts.shards;
    for (long i = 0; i < emulation->passes; i++) {
        const struct emulated_pass *pass = &gpu->passes[i];
        const bool backward = i % 2;
        const struct erg_emulated_mix *mix = &mixes[erg_emulation_spinning_pass(pass, backward)];
        const double all_s = sum_of(mix->comm_s), spin_s = microbatches * pass->spin_s;
        for (int k = 0; all_s > 0 && k < ERG_CATEGORIES; k++)
            add_wait(&kernels->category[k], spin_s * mix->comm_s[k] / all_s, 0,
                     spin_s * gpu->spin_w * mix->comm_s[k] / all_s);
        if (!(all_s > 0)) {
            kernels->idle_s += spin_s;
            kernels->idle_j += spin_s * gpu->spin_w;
        }
        const double scatter = backward ? shards->layer_scatter_s : 0;
        const double network_s = shards->layer_gather_s + scatter;
        double parts_j = 0;
        for (int k = 0; k < ERG_PASSES; k++)
            parts_j += pass->part_s[k] > 0 ? pass->part_s[k] / gpu->costs.passes[k].time_s *
                                                 gpu->costs.passes[k].total_j
                                           : 0;
        if (!(network_s > 0))
            continue;
        const double layers = (double)emulation->model.layers;
        const double rest_j =
            pass->energy_j - pass->embedding_j - pass->spin_s * gpu->spin_w - parts_j;
        for (int k = 0; k < 2; k++) {
            struct erg_emulated_kernel *category =
                &kernels->category[k ? ERG_CATEGORY_REDUCE_SCATTER : ERG_CATEGORY_ALL_GATHER];
            const double own_s = k ? scatter : shards->layer_gather_s, share = own_s / network_s;
            add_wait(category, 0, microbatches * share * pass->wait_s,
                     microbatches * share * rest_j);
            /* The time of exchanges includes the part that overlaps with compute. */
            category->summed_s += microbatches * fmax(layers * own_s - share * pass->wait_s, 0);
            category->count += own_s > 0 ? microbatches * layers : 0;
        }
    }
}

/* Work of the first stage in addition to its layers. */
static void add_embedding(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                          const struct emulated_rank *gpu)
{
    const double microbatches = (double)emulation->layout.microbatches;
    for (int backward = 0; gpu->stage == 0 && backward < 2; backward++) {
        const struct emulated_embedding *embedding = &emulation->embedding[backward];
        const struct emulated_pass *pass = &gpu->passes[backward];
        const double wires_j = gpu->costs.wire_byte_j * embedding->wire_bytes;
        const double bytes_j = gpu->costs.hbm_byte_j * embedding->bytes;
        const double power_w = (pass->embedding_j - wires_j - bytes_j) / pass->embedding_s;
        const double memory_s = pass->embedding_s - embedding->exchange_s;
        struct erg_emulated_kernel *memory = &kernels->category[ERG_CATEGORY_MEMORY];
        add_wait(memory, 0, microbatches * memory_s, microbatches * (bytes_j + power_w * memory_s));
        memory->count += microbatches * embedding->kernels;
        if (!(embedding->exchange_s > 0))
            continue;
        struct erg_emulated_kernel *exchange =
            &kernels->category[erg_emulation_exchange_category(embedding->exchange)];
        add_wait(exchange, 0, microbatches * embedding->exchange_s,
                 microbatches * (wires_j + power_w * embedding->exchange_s));
        exchange->count += microbatches;
    }
}

/* Messages that a pass of a chunk receives and sends. */
static double messages(const struct emulation *emulation, const struct emulated_rank *gpu,
                       long chunk)
{
    const long stages = emulation->layout.pipeline, own = chunk * stages + gpu->stage;
    return stages > 1 ? (own > 0) + (own + 1 < stages * emulation->layout.virtual_stages) : 0;
}

/* Messages of other stages, sums of gradients, the optimizer. */
static void add_phases(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                       const struct emulated_rank *gpu)
{
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    const bool stages = emulation->layout.pipeline > 1;
    const double sum_s = emulation->gradient_s[gpu->stage];
    const double gather_s = emulation->gather_s[gpu->stage];
    const double gathers = sum_s + gather_s > 0 ? gather_s / (sum_s + gather_s) : 0;
    struct erg_emulated_kernel *category = kernels->category;
    double before_s = 0;
    for (size_t i = 0; i < lane->count; i++) {
        const struct emulated_phase *phase = &lane->items[i];
        const double time_s = phase->end_s - before_s;
        const double energy_j = time_s * erg_emulation_phase_w(emulation, gpu, phase);
        before_s = phase->end_s;
        if (phase->pass >= 0) {
            category[ERG_CATEGORY_SEND_RECV].energy_j += stages ? gpu->costs.message_j : 0;
            category[ERG_CATEGORY_SEND_RECV].count += messages(emulation, gpu, phase->pass / 2);
        } else if (phase->kind == EMULATED_OPTIMIZER) {
            add_wait(&category[ERG_CATEGORY_MEMORY], 0, time_s, energy_j);
            category[ERG_CATEGORY_MEMORY].count++;
        } else if (phase->kind == EMULATED_GRADIENTS) {
            add_wait(&category[ERG_CATEGORY_REDUCE_SCATTER], 0, (1 - gathers) * time_s,
                     (1 - gathers) * energy_j);
            add_wait(&category[ERG_CATEGORY_ALL_GATHER], 0, gathers * time_s, gathers * energy_j);
        } else if (stages) {
            add_wait(&category[ERG_CATEGORY_SEND_RECV], time_s - phase->message_s, phase->message_s,
                     energy_j);
        } else {
            kernels->idle_s += time_s;
            kernels->idle_j += energy_j;
        }
    }
}

void erg_emulation_kernels(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                           const struct emulated_rank *gpu)
{
    struct erg_emulated_mix mixes[ERG_PASSES];
    const double microbatches = (double)emulation->layout.microbatches;
    *kernels = (struct erg_emulated_kernels){0};
    erg_emulation_mixes(mixes, emulation);
    for (int kind = 0; kind < ERG_PASSES; kind++) {
        double times = 0;
        for (long i = 0; i < emulation->passes; i++)
            times += gpu->passes[i].part_s[kind];
        if (times > 0)
            add_passes(kernels, emulation, gpu, (enum erg_layout_pass)kind, &mixes[kind],
                       microbatches * times / gpu->costs.passes[kind].time_s);
    }
    add_spins(kernels, emulation, gpu, mixes);
    add_embedding(kernels, emulation, gpu);
    add_phases(kernels, emulation, gpu);
}
