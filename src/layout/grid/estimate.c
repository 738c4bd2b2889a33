/* Iteration time of a plan from shapes, limits and a network; the fastest plan. */
#include "layout/grid/estimate.h"

#include <math.h>

enum {
    BACKWARD_PASSES = 3, /* the forward pass again, and the gradients of inputs and of weights */
    BACKWARD_WEIGHT_PASSES = 5, /* two reads; the gradient written, and added to its sum */
    UPDATE_WEIGHT_PASSES = 7,   /* weights, gradient, two moments; writes all except gradients */
    WEIGHT_TENSORS = 4,         /* weights, gradients, two moments */
    EXCHANGE_PASSES = 2 /* communication of a backward pass: recomputation, and the mirror image */
};

static bool is_power_of_two(long value)
{
    return value > 0 && (value & (value - 1)) == 0;
}

int erg_estimate_setting_init(struct erg_estimate_setting *setting,
                              const struct erg_estimate_request *request, struct erg_error *err)
{
    const struct erg_allocation *allocation = &request->allocation;
    *setting = (struct erg_estimate_setting){
        .request = *request, .microbatch = (double)request->batch / ERG_GRID_MICROBATCHES};
    if (!is_power_of_two(allocation->nodes) || !is_power_of_two(allocation->gpus_per_node) ||
        allocation->nodes * allocation->gpus_per_node > ERG_GRID_MAX_STAGES)
        return erg_fail(err, ERG_FAILED,
                        "estimate of %s: expected nodes and GPUs per node that are powers of two "
                        "with a product of at most %d, got %ld x %ld",
                        request->name, ERG_GRID_MAX_STAGES, allocation->nodes,
                        allocation->gpus_per_node);
    if (request->batch < ERG_GRID_MICROBATCHES)
        return erg_fail(err, ERG_FAILED,
                        "estimate of %s: expected a batch of at least %d samples, one of each "
                        "microbatch, got %ld",
                        request->name, ERG_GRID_MICROBATCHES, request->batch);
    setting->layer_count = erg_grid_cut_layers(request->ops, setting->layers, ERG_GRID_MAX_STAGES);
    return 0;
}

static long gpus_of(const struct erg_estimate_setting *setting)
{
    return setting->request.allocation.nodes * setting->request.allocation.gpus_per_node;
}

double erg_estimate_forward_s(const struct erg_estimate_setting *setting,
                              const struct erg_grid_layer *layer, struct erg_shape shape)
{
    const struct erg_estimate_request *request = &setting->request;
    const struct erg_estimate_constants *c = &request->constants;
    double share = setting->microbatch / (double)(shape.data * shape.tensor);
    double convolution = layer->convolution_flops * share +
                         layer->flops_per_row * c->convolution_rows / (double)shape.tensor;
    double alone_s = layer->matmul_flops * share / (c->matmul_efficiency * request->flops) +
                     convolution / (c->convolution_efficiency * request->flops) +
                     layer->traffic * share * request->element_bytes /
                         (c->memory_efficiency * request->memory_bandwidth) +
                     (double)layer->op_count * c->kernel_s;
    return alone_s * pow(fmax((double)gpus_of(setting) / 2, 1), c->scaling_loss);
}

/* The time in which every microbatch, of any size, reads or writes the weights. */
static double weight_passes_s(const struct erg_estimate_setting *setting, double weights,
                              int passes)
{
    const struct erg_estimate_request *request = &setting->request;
    return passes * weights * request->element_bytes /
           (request->constants.memory_efficiency * request->memory_bandwidth);
}

/* Adds the time of `count` operations on `elements` elements in total. */
static int add_collective(const struct erg_estimate_setting *setting, enum erg_grid_collective op,
                          struct erg_comm_group group, double elements, double count,
                          double *seconds, struct erg_error *err)
{
    const struct erg_grid_network *network = &setting->request.network;
    double each_s = 0;
    if (group.size < 2 || !(count > 0))
        return 0;
    double words = elements / count * setting->request.element_bytes / sizeof(float);
    if (network->time(network->context, &setting->request.allocation, op, group, words, &each_s,
                      err) != 0)
        return -1;
    *seconds += count * each_s;
    return 0;
}

struct stage_place {
    struct erg_shape shape;
    long first_gpu;
    bool shares_experts;
};

/* Weights on one GPU of a stage. */
static double weights_of(const struct erg_grid_layer *stage, const struct stage_place *place)
{
    double experts = stage->expert_weights;
    if (place->shares_experts)
        experts /= (double)place->shape.data;
    return (stage->weights + experts) / (double)place->shape.tensor;
}

static int time_stage(const struct erg_estimate_setting *setting,
                      const struct erg_grid_layer *stage, const struct stage_place *place,
                      struct erg_stage_time *time, struct erg_error *err)
{
    struct erg_shape shape = place->shape;
    long per_node = setting->request.allocation.gpus_per_node;
    double samples = setting->microbatch / (double)shape.data, weights = weights_of(stage, place);
    struct erg_comm_group tensor, data;
    tensor = erg_comm_group_of(place->first_gpu, 1, shape.tensor, per_node);
    data = erg_comm_group_of(place->first_gpu, shape.tensor, shape.data, per_node);
    *time = (struct erg_stage_time){.forward_s = erg_estimate_forward_s(setting, stage, shape)};
    time->backward_s = BACKWARD_PASSES * time->forward_s +
                       weight_passes_s(setting, weights, BACKWARD_WEIGHT_PASSES);
    time->forward_s += weight_passes_s(setting, weights, 1);
    if (add_collective(setting, ERG_ALL_REDUCE, tensor, stage->reduced * samples, stage->reductions,
                       &time->forward_intra_s, err) != 0)
        return -1;
    if (place->shares_experts && add_collective(setting, ERG_ALL_TO_ALL, data,
                                                stage->exchanged * samples / (double)shape.tensor,
                                                stage->exchanges, &time->forward_intra_s, err) != 0)
        return -1;
    time->backward_intra_s = EXCHANGE_PASSES * time->forward_intra_s;
    double synchronised = place->shares_experts ? stage->weights / (double)shape.tensor : weights;
    if (add_collective(setting, ERG_ALL_REDUCE, data, synchronised, synchronised > 0,
                       &time->gradient_sync_s, err) != 0)
        return -1;
    time->apply_s = weight_passes_s(setting, weights, UPDATE_WEIGHT_PASSES);
    return 0;
}

/*
 * From a stage to the next: GPUs send in parallel, each like the last of one to the first of the
 * next.
 */
static int time_send(const struct erg_estimate_setting *setting, const struct erg_grid_layer *stage,
                     const long *first_gpu, const long *sizes, double *seconds,
                     struct erg_error *err)
{
    long last = first_gpu[0] + sizes[0] - 1;
    struct erg_comm_group pair =
        erg_comm_group_of(last, first_gpu[1] - last, 2, setting->request.allocation.gpus_per_node);
    double links = (double)(sizes[0] < sizes[1] ? sizes[0] : sizes[1]);
    return add_collective(setting, ERG_SEND, pair, stage->output * setting->microbatch / links, 1,
                          seconds, err);
}

static double memory_of(const struct erg_estimate_setting *setting,
                        const struct erg_grid_plan *plan, size_t stage,
                        const struct stage_place *place)
{
    const struct erg_grid_layer *layers = setting->layers;
    struct erg_grid_layer all =
        erg_grid_join_layers(layers, plan->first[stage], plan->first[stage + 1]);
    double samples = setting->microbatch / (double)place->shape.data, inputs = 0, largest = 0;
    for (size_t i = plan->first[stage]; i < plan->first[stage + 1]; i++) {
        inputs += layers[i].input;
        largest = fmax(largest, layers[i].activations);
    }
    double in_flight = (double)(plan->stages - stage);
    return setting->request.element_bytes *
           (WEIGHT_TENSORS * weights_of(&all, place) +
            fmin(in_flight, ERG_GRID_MICROBATCHES) * inputs * samples +
            largest * samples / (double)place->shape.tensor);
}

int erg_estimate_plan(const struct erg_estimate_setting *setting, const struct erg_grid_plan *plan,
                      bool shares_experts, struct erg_grid_estimate *estimate,
                      struct erg_error *err)
{
    if (plan->first[plan->stages] != setting->layer_count)
        return erg_fail(err, ERG_FAILED,
                        "estimate of %s: expected a plan of its %zu layers, got one of %zu",
                        setting->request.name, setting->layer_count, plan->first[plan->stages]);
    struct erg_stage_time times[ERG_GRID_MAX_STAGES];
    struct stage_place place = {.shares_experts = shares_experts};
    *estimate = (struct erg_grid_estimate){.plan = *plan, .shared_experts = shares_experts};
    long sizes[ERG_GRID_MAX_STAGES], first_gpu[ERG_GRID_MAX_STAGES];
    for (size_t i = 0; i < plan->stages; i++)
        sizes[i] = plan->shapes[i].data * plan->shapes[i].tensor;
    erg_grid_place(sizes, plan->stages, setting->request.allocation.gpus_per_node, first_gpu);
    double send_s = 0;
    for (size_t i = 0; i < plan->stages; i++) {
        struct erg_grid_layer stage =
            erg_grid_join_layers(setting->layers, plan->first[i], plan->first[i + 1]);
        place.shape = plan->shapes[i];
        place.first_gpu = first_gpu[i];
        if (time_stage(setting, &stage, &place, &times[i], err) != 0)
            return -1;
        times[i].backward_send_s = send_s; /* the same bytes return */
        if (i + 1 < plan->stages) {
            send_s = 0;
            if (time_send(setting, &stage, &first_gpu[i], &sizes[i], &send_s, err) != 0)
                return -1;
            times[i].forward_send_s = send_s;
        }
        estimate->memory_bytes = fmax(estimate->memory_bytes, memory_of(setting, plan, i, &place));
    }
    erg_grid_time(times, plan->stages, ERG_GRID_MICROBATCHES, &estimate->time);
    estimate->fits = estimate->memory_bytes <= setting->request.memory_bytes;
    return 0;
}

void erg_estimate_try(const struct erg_estimate_setting *setting, const struct erg_grid_plan *plan,
                      bool shares_experts, struct erg_estimate_best *best)
{
    struct erg_grid_estimate estimate;
    if (erg_estimate_plan(setting, plan, shares_experts, &estimate, &best->missing) != 0)
        return;
    if (!estimate.fits)
        best->least_bytes =
            best->priced ? fmin(best->least_bytes, estimate.memory_bytes) : estimate.memory_bytes;
    else if (!best->found || estimate.time.total_s < best->best.time.total_s) {
        best->best = estimate;
        best->found = true;
    }
    best->priced = true;
}

int erg_estimate_take(const struct erg_estimate_setting *setting,
                      const struct erg_estimate_best *best, struct erg_grid_estimate *estimate,
                      struct erg_error *err)
{
    const struct erg_estimate_request *request = &setting->request;
    if (best->found) {
        *estimate = best->best;
        return 0;
    }
    if (!best->priced)
        return erg_fail(err, ERG_FAILED, "estimate of %s: %s", request->name,
                        best->missing.message);
    return erg_fail(err, ERG_INFEASIBLE,
                    "%s does not fit on %ld x %ld %s: the smallest plan needs %.1f GiB per GPU, "
                    "and a job may have %.1f",
                    request->name, request->allocation.nodes, request->allocation.gpus_per_node,
                    request->allocation.gpu_type, best->least_bytes / 0x1p30,
                    request->memory_bytes / 0x1p30);
}

/* The grid with that number of stages; release its layers. */
static void grid_of(const struct erg_estimate_setting *setting, struct erg_planner_layers *layers,
                    size_t stages, struct erg_grid_problem *problem)
{
    const struct erg_estimate_request *request = &setting->request;
    const struct erg_roofline roofline = {request->flops / 1e9, request->memory_bandwidth / 1e9};
    erg_planner_layers_init(layers, request->ops, setting->layers, setting->layer_count,
                            request->element_bytes, setting->microbatch);
    erg_grid_problem_init(problem, layers, &roofline, request->skew, gpus_of(setting), stages);
}

int erg_estimate_grid(const struct erg_estimate_setting *setting, size_t stages,
                      struct erg_grid_estimates *estimates, struct erg_error *err)
{
    struct erg_planner_layers layers;
    struct erg_grid_problem problem;
    struct erg_grid_plan plan;
    struct erg_grid_plan_set set = {.count = 0};
    estimates->set_count = 0;
    if (stages > setting->layer_count)
        return erg_fail(err, ERG_INFEASIBLE, "grid of %zu stages: %s has %zu pipeline layers",
                        stages, setting->request.name, setting->layer_count);
    grid_of(setting, &layers, stages, &problem);
    int status = erg_grid_plan(&problem, &plan, err) ||
                 erg_grid_plan_set(&problem, &setting->request.network,
                                   &setting->request.allocation, &set, err) ||
                 erg_estimate_plan(setting, &plan, false, &estimates->plan, err);
    for (size_t i = 0; i < set.count && !status; i++)
        status = erg_estimate_plan(setting, &set.items[i].plan, false, &estimates->set[i], err);
    if (!status)
        estimates->set_count = set.count;
    erg_planner_layers_release(&layers);
    return status ? -1 : 0;
}

int erg_estimate_proxy(const struct erg_estimate_setting *setting,
                       struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct erg_estimate_best best = {0};
    for (size_t stages = 1; (long)stages <= gpus_of(setting) && stages <= setting->layer_count;
         stages *= 2) {
        struct erg_planner_layers layers;
        struct erg_grid_problem problem;
        struct erg_grid_plan plan;
        grid_of(setting, &layers, stages, &problem);
        if (erg_grid_plan(&problem, &plan, &best.missing) == 0)
            erg_estimate_try(setting, &plan, false, &best);
        erg_planner_layers_release(&layers);
    }
    return erg_estimate_take(setting, &best, estimate, err);
}
