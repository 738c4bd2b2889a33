/* The closed form of an iteration: passes of a layer, stages, the pipeline. */
#include "layout/time/time.h"

#include "layout/memory/stage_memory.h"
#include "model/lora.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const char *erg_time_item_name(enum erg_time_item item)
{
    static const char *const names[ERG_TIME_ITEMS] = {
        [ERG_TIME_LINEAR] = "linear",       [ERG_TIME_ATTENTION] = "attention",
        [ERG_TIME_MEMORY] = "memory",       [ERG_TIME_TENSOR] = "tensor",
        [ERG_TIME_CONTEXT] = "context",     [ERG_TIME_OVERHEAD] = "overhead",
        [ERG_TIME_RECOMPUTE] = "recompute", [ERG_TIME_OFFLOAD] = "offload",
        [ERG_TIME_HEAD] = "head",           [ERG_TIME_PIPELINE] = "pipeline",
        [ERG_TIME_BUBBLE] = "bubble",       [ERG_TIME_UNEVEN] = "uneven",
        [ERG_TIME_GRADIENTS] = "gradients", [ERG_TIME_OPTIMIZER] = "optimizer",
        [ERG_TIME_STALLS] = "stalls",       [ERG_TIME_EXPERT] = "expert",
        [ERG_TIME_FSDP] = "fsdp",
    };
    return names[item];
}

void erg_time_machine_init(struct erg_time_machine *machine, const struct erg_gpu *gpu,
                           const struct erg_cluster *cluster)
{
    *machine = (struct erg_time_machine){
        .memory_bandwidth = gpu->memory_bandwidth,
        .link_bandwidth =
            cluster->intra_node_bandwidth > 0 ? cluster->intra_node_bandwidth : gpu->link_bandwidth,
        .network_bandwidth = cluster->inter_node_bandwidth / cluster->gpus_per_node,
        .node_gpus = cluster->gpus_per_node,
        .adapter_gpus = cluster->adapters_per_node > 0
                            ? (long)(cluster->gpus_per_node / cluster->adapters_per_node)
                            : 0,
        .host_bandwidth = cluster->host_memory_bandwidth / (2 * (double)cluster->gpus_per_node),
        .shared_bandwidth = cluster->shared_link_bandwidth,
        .board_gpus = gpu->cap_group,
        .board_bandwidth = gpu->board_link_bandwidth,
    };
}

int erg_time_machine_check(const struct erg_time_machine *machine, long gpus, struct erg_error *err)
{
    if (gpus <= machine->node_gpus || machine->network_bandwidth > 0)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "%ld GPUs are more than a node of %ld, and the network between nodes is "
                    "unknown; expected the cluster's key inter_node_bandwidth_gb_s",
                    gpus, machine->node_gpus);
}

/* A rate limited by the link that copies and messages share. */
static double within_shared(const struct erg_time_machine *machine, double rate)
{
    double shared = machine->shared_bandwidth;
    return shared > 0 && shared < rate ? shared : rate;
}

double erg_time_copy_rate(const struct erg_time_request *request)
{
    double link = request->engine->host_link_bandwidth, host = request->machine->host_bandwidth;
    return within_shared(request->machine, host > 0 && host < link ? host : link);
}

double erg_time_message_rate(const struct erg_time_request *request, bool between_nodes,
                             long senders)
{
    const struct erg_engine *engine = request->engine;
    const struct erg_time_machine *machine = request->machine;
    if (!between_nodes)
        return engine->link_efficiency * machine->link_bandwidth;
    double rate = engine->network_efficiency * machine->network_bandwidth;
    if (senders < machine->adapter_gpus)
        rate *= (double)machine->adapter_gpus / (double)senders;
    return within_shared(machine, rate);
}

double erg_time_flops_per_token(const struct erg_model *model, long sequence)
{
    struct erg_model_flops forward = erg_model_forward_flops(model, 1, (double)sequence);
    if (erg_lora_is_on(model)) /* no gradients of weights; adapters are ignored */
        return 2 * (forward.linear + forward.head) + 3 * forward.attention / 2;
    return 3 * (forward.linear + forward.head + forward.attention / 2);
}

double erg_time_mfu(const struct erg_model *model, long sequence, double tokens_per_s_gpu,
                    double peak_flops)
{
    return tokens_per_s_gpu * erg_time_flops_per_token(model, sequence) / peak_flops;
}

long erg_time_fewest_members(long node_gpus, long stride, long size, long gpus)
{
    long fewest = node_gpus + 1;
    if (node_gpus % (stride * size) == 0)
        return 0;
    if (stride * size % node_gpus == 0 && node_gpus % stride == 0)
        return node_gpus / stride; /* whole nodes, each with the same number of every group */
    for (long block = 0; block + stride * size <= gpus; block += stride * size) {
        for (long first = block; first < block + stride; first++) {
            long last = first + (size - 1) * stride, members = 1;
            if (first / node_gpus == last / node_gpus)
                continue;
            for (long rank = first + stride; rank <= last; rank += stride) {
                if (rank / node_gpus != (rank - stride) / node_gpus) {
                    fewest = members < fewest ? members : fewest;
                    members = 0;
                }
                members++;
            }
            fewest = members < fewest ? members : fewest;
        }
    }
    return fewest > node_gpus ? 0 : fewest;
}

double erg_time_link_rate(const struct erg_time_request *request, long stride, long size)
{
    const struct erg_time_machine *machine = request->machine;
    const bool on_board =
        machine->board_bandwidth > 0 && machine->board_gpus % (stride * size) == 0;
    return request->engine->link_efficiency *
           (on_board ? machine->board_bandwidth : machine->link_bandwidth);
}

double erg_time_group_bandwidth(const struct erg_time_request *request, long stride, long size,
                                long gpus)
{
    const struct erg_time_machine *machine = request->machine;
    const long members = erg_time_fewest_members(machine->node_gpus, stride, size, gpus);
    const double link = erg_time_link_rate(request, stride, size);
    if (!members)
        return link;
    return fmin(link, within_shared(machine, request->engine->network_efficiency *
                                                 machine->network_bandwidth) *
                          (double)members);
}

/* ---- a pass of a layer ---- */

double erg_time_paced(double gpu_s, double host_s, double blend)
{
    double longer = fmax(gpu_s, host_s), shorter = fmin(gpu_s, host_s);
    if (!(blend > 0) || !(shorter > 0))
        return longer;
    return longer * pow(1 + pow(shorter / longer, 1 / blend), blend);
}

static bool softmax_is_fused(const struct erg_engine *engine, long heads)
{
    return !(engine->softmax_heads >= 1) || heads % (long)engine->softmax_heads == 0;
}

double erg_time_host(const struct erg_engine *engine, long tensor, long heads)
{
    double host_s = engine->host_layer_s + engine->host_wait_s * (double)(tensor - 1);
    return softmax_is_fused(engine, heads) ? host_s : engine->unfused_host_factor * host_s;
}

double erg_time_score_bytes(const struct erg_engine *engine, long heads, bool backward)
{
    double bytes = backward ? engine->score_backward_bytes : engine->score_forward_bytes;
    return softmax_is_fused(engine, heads) ? bytes : bytes + engine->unfused_score_bytes;
}

/* The inputs of sums over an op list. */
struct pass_rates {
    const struct erg_time_request *request;
    double scores; /* of one layer's attention on this GPU */
    long heads;    /* heads of these scores, over all sequences */
    long tensor;   /* degree */
    double tensor_bandwidth, context_bandwidth;
    double tensor_exposed, context_exposed;
    bool backward;
    const struct erg_layout *layout;
    long gpus;
};

static double memory_s(const struct erg_time_request *request, double bytes)
{
    return bytes / (request->engine->memory_efficiency * request->machine->memory_bandwidth);
}

/* HBM bytes of a memory-bound op of a layer. */
static double memory_bytes(const struct pass_rates *pass, const struct erg_model_op *op)
{
    const struct erg_engine *engine = pass->request->engine;
    double bytes = 0;
    for (int i = 0; i < op->work_count; i++)
        bytes += op->work[i].bytes;
    if (op->group == ERG_GROUP_NORM && engine->sequence_parallel)
        bytes /= (double)pass->tensor;
    return op->group == ERG_GROUP_ACTIVATION ? bytes * engine->activation_factor : bytes;
}

static double product_s(const struct pass_rates *pass, const struct erg_model_op *op)
{
    const struct erg_engine *engine = pass->request->engine;
    double flops = 0;
    for (int i = 0; i < op->work_count; i++)
        flops += op->work[i].flops;
    return flops / ((op->of_experts ? engine->expert_gemm_efficiency : engine->gemm_efficiency) *
                    engine->peak_flops);
}

/*
 * An attention that keeps all scores computes the masked half, too: two products forward and four
 * backward; the backward pass of a fused kernel has a fifth.
 */
static double attention_s(const struct pass_rates *pass, const struct erg_model_op *op)
{
    const struct erg_engine *engine = pass->request->engine;
    double bytes = erg_time_score_bytes(engine, pass->heads, pass->backward);
    double flops = op->work[0].flops;
    if (bytes > 0)
        flops *= pass->backward ? 2 * 2 / 2.5 : 2;
    double efficiency =
        pass->backward ? engine->attention_backward_efficiency : engine->attention_efficiency;
    return flops / (efficiency * engine->peak_flops) +
           memory_s(pass->request, bytes * pass->scores);
}

static double collective_s(const struct pass_rates *pass, const struct erg_comm *comm)
{
    bool reduce = comm->kind == ERG_COMM_ALLREDUCE;
    double bandwidth = reduce ? pass->tensor_bandwidth : pass->context_bandwidth;
    double exposed = reduce ? pass->tensor_exposed : pass->context_exposed;
    return exposed * (comm->wire_bytes / bandwidth + pass->request->engine->collective_latency_s);
}

static bool is_of_experts(const struct erg_model_op *op)
{
    return op->id >= ERG_MODEL_DISPATCH && op->id <= ERG_MODEL_COMBINE;
}

static void add_collective(double *items, const struct pass_rates *pass,
                           const struct erg_model_op *op)
{
    const struct erg_engine *engine = pass->request->engine;
    const struct erg_comm *comm = &op->communication;
    if (is_of_experts(op))
        items[ERG_TIME_EXPERT] +=
            engine->expert_exposed *
            (erg_time_expert_exchange(pass->request, pass->layout, comm, pass->gpus) +
             engine->collective_latency_s);
    else
        items[comm->kind == ERG_COMM_ALLREDUCE ? ERG_TIME_TENSOR : ERG_TIME_CONTEXT] +=
            collective_s(pass, comm);
}

/* Adds up one pass of one layer; returns its sum. */
static double sum_pass(double *items, double *expert_s, const struct pass_rates *pass,
                       const struct erg_model_ops *ops)
{
    const struct erg_engine *engine = pass->request->engine;
    double passes = pass->backward ? 2 : 1, sum = 0;
    *expert_s = 0;
    memset(items, 0, (ERG_TIME_OVERHEAD + 1) * sizeof *items);
    for (size_t i = 0; i < ops->count; i++) {
        const struct erg_model_op *op = &ops->items[i];
        if (op->comm)
            add_collective(items, pass, op);
        else if (op->group == ERG_GROUP_LINEAR)
            items[ERG_TIME_LINEAR] += product_s(pass, op);
        else if (op->group == ERG_GROUP_ATTENTION)
            items[ERG_TIME_ATTENTION] += attention_s(pass, op);
        else
            items[ERG_TIME_MEMORY] += memory_s(pass->request, memory_bytes(pass, op));
        if (op->of_experts && op->group == ERG_GROUP_LINEAR)
            *expert_s += product_s(pass, op);
        if (op->id == ERG_MODEL_ROUTER) /* has so few columns that its bytes count, too */
            items[ERG_TIME_MEMORY] += memory_s(pass->request, memory_bytes(pass, op));
    }
    items[ERG_TIME_OVERHEAD] = passes * engine->layer_overhead_s;
    for (int i = 0; i <= ERG_TIME_OVERHEAD; i++)
        sum += items[i];
    double host_s = passes * erg_time_host(engine, pass->tensor, pass->heads);
    double paced_s = erg_time_paced(sum, host_s, engine->host_blend);
    items[ERG_TIME_OVERHEAD] += paced_s - sum;
    return paced_s;
}

/* The norms and activations that a mode recomputes. */
static double again_s(const struct pass_rates *pass, const struct erg_model_ops *forward,
                      enum erg_recompute recompute)
{
    const struct erg_model *model = pass->request->model;
    double bytes = 0;
    for (size_t i = 0; i < forward->count; i++) {
        enum erg_model_op_id id = forward->items[i].id;
        bool norm = (id == ERG_MODEL_NORM_A && erg_lora_needs_input(model, ERG_LORA_QKV)) ||
                    (id == ERG_MODEL_NORM_M && erg_lora_needs_input(model, ERG_LORA_FC1));
        bool activation = id == ERG_MODEL_ACTIVATION &&
                          (model->gated || erg_lora_needs_input(model, ERG_LORA_FC2));
        if ((norm && erg_recompute_norms(recompute)) ||
            ((activation || id == ERG_MODEL_ACTIVATION_E) && erg_recompute_activation(recompute)))
            bytes += memory_bytes(pass, &forward->items[i]);
    }
    return memory_s(pass->request, bytes);
}

/* Fills the items of the head, both directions; returns its time. */
static double head_s(double *items, const struct pass_rates *pass, const struct erg_model *model,
                     const struct erg_model_shape *shape)
{
    const struct erg_engine *engine = pass->request->engine;
    double logits = (double)(shape->sequences * shape->sequence) * (double)model->vocab /
                    (double)(shape->tensor * shape->context);
    double efficiency = shape->tensor == 1 ? engine->whole_head_efficiency : 1;
    memset(items, 0, (ERG_TIME_TENSOR + 1) * sizeof *items);
    for (int direction = 0; direction < 2; direction++) {
        struct erg_model_ops ops;
        (direction ? erg_model_head_backward : erg_model_head_forward)(&ops, model, shape);
        for (size_t i = 0; i < ops.count; i++) {
            const struct erg_model_op *op = &ops.items[i];
            if (op->comm)
                items[ERG_TIME_TENSOR] += collective_s(pass, &op->communication);
            else if (op->group == ERG_GROUP_LINEAR)
                items[ERG_TIME_LINEAR] += product_s(pass, op) / efficiency;
            else if (op->id != ERG_MODEL_LOSS || !(engine->loss_bytes > 0))
                items[ERG_TIME_MEMORY] += memory_s(pass->request, memory_bytes(pass, op));
        }
    }
    items[ERG_TIME_MEMORY] += memory_s(pass->request, engine->loss_bytes * logits);
    return erg_time_paced(items[ERG_TIME_LINEAR] + items[ERG_TIME_MEMORY] + items[ERG_TIME_TENSOR],
                          engine->host_head_s, engine->host_blend);
}

/* Trained parameters of experts, or of everything else. */
static double trained(const struct erg_model_ops *ops, const struct erg_model *model,
                      bool of_experts)
{
    double sum = 0;
    for (size_t i = 0; i < ops->count; i++)
        if (ops->items[i].of_experts == of_experts &&
            (!erg_lora_is_on(model) || ops->items[i].adapter))
            sum += ops->items[i].params;
    return sum;
}

/* The share of a copy's rate that a message between nodes takes during its transfer. */
static double taken_from_copies(const struct erg_time_request *request, double rate)
{
    double shared = request->machine->shared_bandwidth, copy = erg_time_copy_rate(request);
    double left = shared - rate;
    return shared > 0 && copy > 0 && left < copy ? 1 - left / copy : 0;
}

struct erg_time_hop erg_time_hop_of(const struct erg_time_request *request, double bytes,
                                    bool between_nodes, long senders)
{
    const double rate = erg_time_message_rate(request, between_nodes, senders);
    const double taken = between_nodes ? taken_from_copies(request, rate) : 0;
    const double time_s = bytes / rate;
    return (struct erg_time_hop){time_s, taken > 0 ? time_s * taken : 0};
}

struct erg_model_shape erg_time_shape(const struct erg_engine *engine,
                                      const struct erg_layout *layout)
{
    return (struct erg_model_shape){
        .tensor = layout->tensor,
        .context = layout->context,
        .sequences = layout->microbatch,
        .sequence = layout->sequence,
        .fused_kernels = engine->fused_kernels,
        .expert = layout->expert,
        .capacity = layout->expert_capacity,
        .grouped = engine->grouped_gemm,
    };
}

/* A layer without experts, of a model whose other layers have them. */
static void fill_dense(struct erg_time_dense *dense, const struct erg_time_request *request,
                       const struct erg_layout *layout, long gpus)
{
    const struct erg_model model = erg_model_without_experts(request->model);
    const struct erg_time_request own = {&model, request->engine, request->machine};
    struct erg_time_parts parts;
    erg_time_parts_unsharded(&parts, &own, layout, gpus);
    memcpy(dense->forward, parts.forward, sizeof dense->forward);
    memcpy(dense->backward, parts.backward, sizeof dense->backward);
    memcpy(dense->recompute_s, parts.recompute_s, sizeof dense->recompute_s);
    dense->forward_s = parts.forward_s;
    dense->backward_s = parts.backward_s;
    dense->parameters = parts.layer_parameters;
}

void erg_time_parts_unsharded(struct erg_time_parts *parts, const struct erg_time_request *request,
                              const struct erg_layout *layout, long gpus)
{
    const struct erg_engine *engine = request->engine;
    const long tensor = layout->tensor, context = layout->context;
    const long microbatch = layout->microbatch, sequence = layout->sequence;
    struct erg_model model = *request->model; /* with the padded vocabulary */
    *parts = (struct erg_time_parts){0};
    model.vocab = erg_layout_vocabulary(request->model, tensor);
    const struct erg_model_shape shape = erg_time_shape(engine, layout);
    bool grouped = model.kv_heads < model.heads;
    struct pass_rates pass = {
        .request = request,
        .scores = (double)microbatch * (double)sequence * (double)sequence * (double)model.heads /
                  (double)(tensor * context),
        .heads = microbatch * model.heads / tensor,
        .tensor = tensor,
        .tensor_bandwidth = erg_time_group_bandwidth(request, 1, tensor, gpus),
        .context_bandwidth = erg_time_group_bandwidth(request, tensor, context, gpus),
        .tensor_exposed = context > 1 ? engine->tensor_forward_context : engine->tensor_forward,
        .context_exposed = grouped ? engine->context_exposed_grouped : engine->context_exposed,
        .layout = layout,
        .gpus = gpus,
    };
    struct erg_model_ops ops;
    erg_model_layer_forward(&ops, &model, &shape);
    parts->forward_s = sum_pass(parts->forward, &parts->expert_s[0], &pass, &ops);
    parts->layer_parameters = trained(&ops, &model, false);
    parts->expert_parameters = trained(&ops, &model, true);
    for (int recompute = 0; recompute < ERG_RECOMPUTE_FULL; recompute++)
        parts->recompute_s[recompute] = again_s(&pass, &ops, (enum erg_recompute)recompute);
    parts->recompute_s[ERG_RECOMPUTE_FULL] = parts->forward_s;
    erg_model_embedding_forward(&ops, &model, &shape);
    parts->embedding_parameters = trained(&ops, &model, false);
    erg_model_head_forward(&ops, &model, &shape);
    parts->head_parameters = trained(&ops, &model, false);
    pass.backward = true;
    pass.tensor_exposed = context > 1 ? engine->tensor_backward_context : engine->tensor_backward;
    erg_model_layer_backward(&ops, &model, &shape);
    parts->backward_s = sum_pass(parts->backward, &parts->expert_s[1], &pass, &ops);
    parts->head_s = head_s(parts->head, &pass, &model, &shape);
    struct erg_memory_sizes sizes;
    erg_memory_sizes_of(&sizes, &model, layout);
    for (int recompute = 0; recompute < ERG_RECOMPUTES; recompute++)
        parts->copy_s[recompute] = engine->host_link_bandwidth > 0
                                       ? (double)sizes.kept[recompute] / erg_time_copy_rate(request)
                                       : 0;
    parts->hop_bytes = (double)sizes.hidden;
    for (int between = 0; between < 2; between++)
        parts->hops[between] = erg_time_hop_of(request, parts->hop_bytes, between, gpus);
    if (model.experts.dense_layers > 0)
        fill_dense(&parts->dense, request, layout, gpus);
}

/* ---- stages and the iteration ---- */

/* Adds the work of `dense` layers without experts and `count` others for one microbatch. */
static void add_layers(double *items, const struct erg_time_request *request,
                       const struct erg_time_parts *parts, double count, double dense,
                       enum erg_recompute recompute, double offload)
{
    for (int i = 0; i <= ERG_TIME_OVERHEAD; i++)
        items[i] += count * (parts->forward[i] + parts->backward[i]);
    items[ERG_TIME_FSDP] += parts->ends_s[recompute];
    items[ERG_TIME_RECOMPUTE] += count * parts->recompute_s[recompute];
    items[ERG_TIME_OFFLOAD] +=
        count * request->engine->offload_interference * 2 * offload * parts->copy_s[recompute];
    for (int i = 0; i <= ERG_TIME_OVERHEAD && dense > 0; i++)
        items[i] += dense * (parts->dense.forward[i] + parts->dense.backward[i]);
    items[ERG_TIME_RECOMPUTE] += dense * parts->dense.recompute_s[recompute];
}

void erg_time_stage_init(struct erg_time_stage *cost, const struct erg_time_place *place,
                         const struct erg_layout *layout, long stage)
{
    const struct erg_time_request *request = place->request;
    const struct erg_time_parts *parts = place->parts;
    const long last = layout->pipeline - 1;
    enum erg_recompute recompute = erg_layout_recompute(layout, stage);
    double offload = erg_layout_offload(layout, stage), extra = 0;
    double end_s = place->gradient_s + place->optimizer_s;
    if (stage == 0)
        extra += parts->embedding_parameters;
    if (stage == last && (last > 0 || !request->model->tied))
        extra += parts->head_parameters;
    cost->layer_s = parts->forward_s + parts->backward_s + parts->recompute_s[recompute] +
                    request->engine->offload_interference * 2 * offload * parts->copy_s[recompute];
    cost->message_s = erg_time_message(place, layout, stage);
    cost->fixed_s =
        cost->message_s + (stage == last ? parts->head_s : 0) + parts->ends_s[recompute];
    cost->expert_gradient_s = parts->expert_parameters * place->expert_gradient_s;
    cost->expert_once_s =
        cost->expert_gradient_s + parts->expert_parameters * place->expert_optimizer_s;
    cost->layer_once_s = parts->layer_parameters * end_s + cost->expert_once_s;
    cost->fixed_once_s = extra * end_s;
    const long layers = erg_layout_stage_layers(layout, request->model->layers, stage);
    cost->dense = erg_layout_dense_layers(layout, request->model, stage, layers);
    if (cost->dense == 0)
        return;
    const struct erg_time_dense *dense = &parts->dense;
    const double dense_s = dense->forward_s + dense->backward_s + dense->recompute_s[recompute];
    cost->fixed_s += (double)cost->dense * (dense_s - cost->layer_s);
    cost->fixed_once_s += (double)cost->dense * (dense->parameters * end_s - cost->layer_once_s);
}

/*
 * The waits of a chunk's two passes if layers are copied one by one, as in ergon's own training
 * (memory/static_copies.c): a copy out must end within the pass of the next layer, which is a
 * backward one after the last, and a copy in within the backward pass of the layer before it, or,
 * for the first, within that and a forward pass. In the chunk that turns around at the head the
 * last two layers stay.
 */
static double layer_stalls(double layers, bool turns, double copy_s, double forward_s,
                           double backward_s)
{
    const double out_s = fmax(copy_s - forward_s, 0), in_s = fmax(copy_s - backward_s, 0);
    if (turns)
        return fmax(layers - 2, 0) * (out_s + in_s);
    return (layers - 1) * (out_s + in_s) + in_s + fmax(copy_s - backward_s - layers * forward_s, 0);
}

double erg_time_copy_stalls(const struct erg_time_place *place, const struct erg_layout *layout,
                            long stage, double copy_s, double forward_s, double backward_s)
{
    if (copy_s <= 0)
        return 0;
    double chunks = (double)(layout->pipeline * layout->virtual_stages);
    double layers = (double)place->request->model->layers / chunks; /* of one */
    long pairs = layout->microbatches * layout->virtual_stages + layout->pipeline - 1;
    if (place->request->engine->static_memory) {
        const double turns = stage == layout->pipeline - 1 ? (double)layout->microbatches : 0;
        return turns * layer_stalls(layers, true, copy_s, forward_s, backward_s) +
               ((double)pairs - turns) * layer_stalls(layers, false, copy_s, forward_s, backward_s);
    }
    double sent_s = erg_time_hop_after(place, layout, stage).copy_s;
    double back_s = erg_time_hop_before(place, layout, stage).copy_s;
    double filling = layout->virtual_stages > 1 ? layers * (copy_s - forward_s) + sent_s : 0;
    double steady = layers * (copy_s - forward_s - backward_s) + sent_s + back_s;
    return chunks * fmax(filling, 0) + (double)pairs * fmax(steady, 0);
}

double erg_time_stalls(const struct erg_time_place *place, const struct erg_layout *layout,
                       long stage, enum erg_recompute recompute, double offload)
{
    const struct erg_time_parts *parts = place->parts;
    return erg_time_copy_stalls(place, layout, stage, offload * parts->copy_s[recompute],
                                parts->forward_s,
                                parts->backward_s + parts->recompute_s[recompute]);
}

/* The next stage that may take longer than `stage`: with equal chunks all stages of a place with
 * the same messages, including its first one, take the same time. */
static long next_stage(const struct erg_time_place *place, const struct erg_layout *layout,
                       long stage)
{
    bool equal = !layout->chunk_layers && !layout->stage_recompute && !layout->stage_offload &&
                 !place->request->model->experts.dense_layers;
    if (equal && place->level && stage < place->end - 1)
        return place->end - 1;
    return equal ? stage + erg_time_alike(place, layout, stage) : stage + 1;
}

void erg_time_compose_places(struct erg_time *time, const struct erg_time_place *places,
                             size_t count, const struct erg_layout *layout)
{
    const long last = layout->pipeline - 1, layers = places->request->model->layers;
    const struct erg_time_place *place = places, *pace = places;
    struct erg_time_stage cost, slowest = {0};
    double *items = time->items, longest = 0, sum = 0, once = 0;
    long slowest_stage = 0;
    *time = (struct erg_time){0};
    for (long stage = 0, next; stage <= last; stage = next) {
        if (stage == place->end)
            place++;
        double held = (double)erg_layout_stage_layers(layout, layers, stage);
        erg_time_stage_init(&cost, place, layout, stage);
        double own = held * cost.layer_s + cost.fixed_s;
        double own_once = held * cost.layer_once_s + cost.fixed_once_s;
        next = next_stage(place, layout, stage);
        sum += own * (double)(next - stage);
        if (own >= longest) {
            longest = own;
            slowest = cost;
            slowest_stage = stage;
            pace = place;
        }
        if (own_once > once) {
            once = own_once;
            const double routed = held - (double)cost.dense;
            items[ERG_TIME_GRADIENTS] = (once - routed * cost.expert_once_s) * place->gradient_s /
                                            (place->gradient_s + place->optimizer_s) +
                                        routed * cost.expert_gradient_s;
            items[ERG_TIME_OPTIMIZER] = once - items[ERG_TIME_GRADIENTS];
        }
        double wait = erg_time_stalls(place, layout, stage, erg_layout_recompute(layout, stage),
                                      erg_layout_offload(layout, stage));
        items[ERG_TIME_STALLS] = fmax(items[ERG_TIME_STALLS], wait);
    }
    assert(place == &places[count - 1]);
    add_layers(items, pace->request, pace->parts,
               (double)(erg_layout_stage_layers(layout, layers, slowest_stage) - slowest.dense),
               (double)slowest.dense, erg_layout_recompute(layout, slowest_stage),
               erg_layout_offload(layout, slowest_stage));
    items[ERG_TIME_HEAD] = slowest_stage == last ? pace->parts->head_s : 0;
    items[ERG_TIME_PIPELINE] = slowest.message_s;
    for (int i = 0; i <= ERG_TIME_PIPELINE; i++)
        items[i] *= (double)layout->microbatches;
    items[ERG_TIME_BUBBLE] =
        (sum - longest) / (double)layout->virtual_stages + erg_time_passage(places, count, layout);
    for (int i = 0; i < ERG_TIME_ITEMS; i++)
        time->total += items[i];
}

void erg_time_layout(struct erg_time *time, const struct erg_time_request *request,
                     const struct erg_layout *layout)
{
    long gpus = erg_layout_gpus(layout);
    struct erg_time_parts parts;
    erg_time_parts_of(&parts, request, layout, gpus);
    double bandwidth = erg_time_group_bandwidth(request, erg_time_gradient_stride(layout),
                                                erg_time_gradient_ranks(layout), gpus);
    struct erg_time_place place;
    erg_time_place_init(&place, request, &parts, layout, bandwidth);
    erg_time_compose_places(time, &place, 1, layout);
}
