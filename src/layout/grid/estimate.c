/* Iteration time of a plan from shapes, limits and communication tables; the fastest plan. */
#include "layout/grid/estimate.h"

#include <math.h>
#include <stdlib.h>

enum {
    BACKWARD_PASSES = 3, /* the forward pass again, and the gradients of inputs and of weights */
    BACKWARD_WEIGHT_PASSES = 5, /* two reads; the gradient written, and added to its sum */
    UPDATE_WEIGHT_PASSES = 7,   /* weights, gradient, two moments; all but the gradient written */
    WEIGHT_TENSORS = 4,         /* weights, gradients, two moments */
    EXCHANGE_PASSES = 2 /* communication of a backward pass: recomputation, and the mirror image */
};

/* All that stays the same from plan to plan of a job in an allocation. */
struct setting {
    const struct erg_estimate_constants *constants;
    const struct erg_grid_model *model;
    const struct erg_grid_device *device;
    const struct erg_comm_tables *tables;
    const struct erg_allocation *allocation;
    double microbatch;    /* samples */
    double element_bytes; /* of weights and activations */
    enum erg_comm_type type;
    struct erg_grid_layer layers[ERG_GRID_MAX_STAGES];
    size_t layer_count;
};

static bool is_power_of_two(long value)
{
    return value > 0 && (value & (value - 1)) == 0;
}

static int prepare(struct setting *setting, const struct erg_estimator *estimator,
                   const struct erg_comm_tables *tables, const struct erg_estimate_job *job,
                   const struct erg_allocation *allocation, struct erg_error *err)
{
    long gpus = allocation->nodes * allocation->gpus_per_node;
    *setting = (struct setting){.constants = &estimator->constants,
                                .tables = tables,
                                .allocation = allocation,
                                .microbatch = (double)job->batch / ERG_GRID_MICROBATCHES};
    if (erg_estimator_model(estimator, job->family, job->size, &setting->model, err) != 0 ||
        erg_estimator_device(estimator, allocation->gpu_type, &setting->device, err) != 0)
        return -1;
    if (!is_power_of_two(allocation->nodes) || !is_power_of_two(allocation->gpus_per_node) ||
        gpus > ERG_GRID_MAX_STAGES)
        return erg_fail(
            err, ERG_FAILED,
            "estimate of %s %s: expected nodes and GPUs per node that are powers of two "
            "with a product of at most %d, got %ld x %ld",
            job->family, job->size, ERG_GRID_MAX_STAGES, allocation->nodes,
            allocation->gpus_per_node);
    if (job->batch < ERG_GRID_MICROBATCHES)
        return erg_fail(err, ERG_FAILED,
                        "estimate of %s %s: expected a batch of at least %d samples, one of each "
                        "microbatch, got %ld",
                        job->family, job->size, ERG_GRID_MICROBATCHES, job->batch);
    setting->element_bytes = setting->model->half ? 2 : 4;
    setting->type = setting->model->half ? ERG_COMM_FP16 : ERG_COMM_FP32;
    struct erg_grid_ops ops;
    erg_grid_model_ops(setting->model, &ops);
    setting->layer_count = erg_grid_cut_layers(&ops, setting->layers, ERG_GRID_MAX_STAGES);
    free(ops.items);
    return 0;
}

struct erg_estimator erg_estimator_of(struct erg_grid_model *model, struct erg_grid_device *device,
                                      const struct erg_gpu *gpu, const struct erg_engine *engine,
                                      double memory_bytes)
{
    enum { OPS_OF_A_LAYER = 10 }; /* of a causal transformer (grid_model.c) */
    *device = (struct erg_grid_device){.type = gpu->name,
                                       .half_flops = engine->peak_flops,
                                       .full_flops = engine->peak_flops,
                                       .memory_bandwidth = gpu->memory_bandwidth,
                                       .memory_bytes = gpu->memory_bytes};
    return (struct erg_estimator){
        .constants = {.matmul_efficiency = engine->gemm_efficiency,
                      .convolution_efficiency = engine->gemm_efficiency,
                      .memory_efficiency = engine->memory_efficiency,
                      .kernel_s = engine->layer_overhead_s / OPS_OF_A_LAYER,
                      .memory_fraction = memory_bytes / gpu->memory_bytes},
        .devices = device,
        .devices_count = 1,
        .models = model,
        .models_count = 1};
}

/* Forward computation of one microbatch on one GPU of a stage. */
static double forward_s(const struct setting *setting, const struct erg_grid_layer *layer,
                        struct erg_shape shape)
{
    const struct erg_estimate_constants *c = setting->constants;
    const struct erg_grid_device *device = setting->device;
    double share = setting->microbatch / (double)(shape.data * shape.tensor);
    double flops_s = setting->model->half ? device->half_flops : device->full_flops;
    double convolution = layer->convolution_flops * share +
                         layer->flops_per_row * c->convolution_rows / (double)shape.tensor;
    double gpus = (double)(setting->allocation->nodes * setting->allocation->gpus_per_node);
    double alone_s = layer->matmul_flops * share / (c->matmul_efficiency * flops_s) +
                     convolution / (c->convolution_efficiency * flops_s) +
                     layer->traffic * share * setting->element_bytes /
                         (c->memory_efficiency * device->memory_bandwidth) +
                     (double)layer->op_count * c->kernel_s;
    return alone_s * pow(fmax(gpus / 2, 1), c->scaling_loss);
}

/* Every microbatch reads or writes the weights so often, whatever its size. */
static double weight_passes_s(const struct setting *setting, double weights, int passes)
{
    return passes * weights * setting->element_bytes /
           (setting->constants->memory_efficiency * setting->device->memory_bandwidth);
}

/* Adds the time of `count` operations on `elements` together. */
static int add_collective(const struct setting *setting, enum erg_collective op,
                          struct erg_comm_group group, double elements, double count,
                          double *seconds, struct erg_error *err)
{
    struct erg_comm_curve curve;
    if (group.size < 2 || !(count > 0))
        return 0;
    if (erg_comm_tables_find(setting->tables, setting->allocation, op, group, &curve, err) != 0)
        return -1;
    *seconds += count * erg_comm_time(&curve, erg_comm_elements(elements / count, setting->type));
    return 0;
}

struct stage_place {
    struct erg_shape shape;
    long first_gpu;
    bool shares_experts;
};

/* Weights that one GPU of a stage has. */
static double weights_of(const struct erg_grid_layer *stage, const struct stage_place *place)
{
    double experts = stage->expert_weights;
    if (place->shares_experts)
        experts /= (double)place->shape.data;
    return (stage->weights + experts) / (double)place->shape.tensor;
}

static int time_stage(const struct setting *setting, const struct erg_grid_layer *stage,
                      const struct stage_place *place, struct erg_stage_time *time,
                      struct erg_error *err)
{
    struct erg_shape shape = place->shape;
    long per_node = setting->allocation->gpus_per_node;
    double samples = setting->microbatch / (double)shape.data, weights = weights_of(stage, place);
    struct erg_comm_group tensor, data;
    tensor = erg_comm_group_of(place->first_gpu, 1, shape.tensor, per_node);
    data = erg_comm_group_of(place->first_gpu, shape.tensor, shape.data, per_node);
    *time = (struct erg_stage_time){.forward_s = forward_s(setting, stage, shape)};
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

/* From a stage to the next: GPUs send side by side, as the last of one to the first of the next. */
static int time_send(const struct setting *setting, const struct erg_grid_layer *stage,
                     const long *first_gpu, const long *sizes, double *seconds,
                     struct erg_error *err)
{
    long last = first_gpu[0] + sizes[0] - 1;
    struct erg_comm_group pair =
        erg_comm_group_of(last, first_gpu[1] - last, 2, setting->allocation->gpus_per_node);
    double links = (double)(sizes[0] < sizes[1] ? sizes[0] : sizes[1]);
    return add_collective(setting, ERG_SEND, pair, stage->output * setting->microbatch / links, 1,
                          seconds, err);
}

static double memory_of(const struct setting *setting, const struct erg_grid_plan *plan,
                        size_t stage, const struct stage_place *place)
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
    return setting->element_bytes * (WEIGHT_TENSORS * weights_of(&all, place) +
                                     fmin(in_flight, ERG_GRID_MICROBATCHES) * inputs * samples +
                                     largest * samples / (double)place->shape.tensor);
}

static int time_plan(const struct setting *setting, const struct erg_grid_plan *plan,
                     bool shares_experts, struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct erg_stage_time times[ERG_GRID_MAX_STAGES];
    struct stage_place place = {.shares_experts = shares_experts};
    *estimate = (struct erg_grid_estimate){.plan = *plan, .shared_experts = shares_experts};
    long sizes[ERG_GRID_MAX_STAGES], first_gpu[ERG_GRID_MAX_STAGES];
    for (size_t i = 0; i < plan->stages; i++)
        sizes[i] = plan->shapes[i].data * plan->shapes[i].tensor;
    erg_grid_place(sizes, plan->stages, setting->allocation->gpus_per_node, first_gpu);
    double send_s = 0;
    for (size_t i = 0; i < plan->stages; i++) {
        struct erg_grid_layer stage =
            erg_grid_join_layers(setting->layers, plan->first[i], plan->first[i + 1]);
        place.shape = plan->shapes[i];
        place.first_gpu = first_gpu[i];
        if (time_stage(setting, &stage, &place, &times[i], err) != 0)
            return -1;
        times[i].backward_send_s = send_s; /* what came forward goes back */
        if (i + 1 < plan->stages) {
            send_s = 0;
            if (time_send(setting, &stage, &first_gpu[i], &sizes[i], &send_s, err) != 0)
                return -1;
            times[i].forward_send_s = send_s;
        }
        estimate->memory_bytes = fmax(estimate->memory_bytes, memory_of(setting, plan, i, &place));
    }
    erg_grid_time(times, plan->stages, ERG_GRID_MICROBATCHES, &estimate->time);
    estimate->fits = estimate->memory_bytes <=
                     setting->constants->memory_fraction * setting->device->memory_bytes;
    return 0;
}

int erg_estimate_plan(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                      const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                      const struct erg_grid_plan *plan, bool shared_experts,
                      struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct setting setting;
    if (prepare(&setting, estimator, tables, job, allocation, err) != 0)
        return -1;
    if (plan->first[plan->stages] != setting.layer_count)
        return erg_fail(err, ERG_FAILED,
                        "estimate of %s %s: expected a plan of its %zu layers, got one of %zu",
                        job->family, job->size, setting.layer_count, plan->first[plan->stages]);
    return time_plan(&setting, plan, shared_experts, estimate, err);
}

/* All stages in one shape, layers balanced by their forward time. */
static void make_plan(const struct setting *setting, size_t stages, struct erg_shape shape,
                      struct erg_grid_plan *plan)
{
    double forward[ERG_GRID_MAX_STAGES];
    for (size_t i = 0; i < setting->layer_count; i++)
        forward[i] = forward_s(setting, &setting->layers[i], shape);
    *plan = (struct erg_grid_plan){.stages = stages};
    erg_grid_split(forward, setting->layer_count, stages, plan->first);
    for (size_t i = 0; i < stages; i++)
        plan->shapes[i] = shape;
}

/* The best so far, and why there is none. */
struct plan_search {
    struct erg_grid_estimate best;
    bool found, priced;
    double least_bytes;       /* of plans that do not fit */
    struct erg_error missing; /* what the tables did not have */
};

static void try_plan(const struct setting *setting, const struct erg_grid_plan *plan,
                     bool shares_experts, struct plan_search *search)
{
    struct erg_grid_estimate estimate;
    if (time_plan(setting, plan, shares_experts, &estimate, &search->missing) != 0)
        return;
    search->priced = true;
    if (!estimate.fits)
        search->least_bytes = fmin(search->least_bytes, estimate.memory_bytes);
    else if (!search->found || estimate.time.total_s < search->best.time.total_s) {
        search->best = estimate;
        search->found = true;
    }
}

/* The best plan, or why there is none. */
static int finish(const struct setting *setting, const struct plan_search *search,
                  const struct erg_estimate_job *job, struct erg_grid_estimate *estimate,
                  struct erg_error *err)
{
    const struct erg_allocation *allocation = setting->allocation;
    if (search->found) {
        *estimate = search->best;
        return 0;
    }
    if (!search->priced)
        return erg_fail(err, ERG_FAILED, "estimate of %s %s: %s", job->family, job->size,
                        search->missing.message);
    return erg_fail(
        err, ERG_INFEASIBLE,
        "%s %s does not fit on %ld x %ld %s: the smallest plan needs %.1f GiB of a GPU, "
        "and a job may have %.1f",
        job->family, job->size, allocation->nodes, allocation->gpus_per_node, allocation->gpu_type,
        search->least_bytes / 0x1p30,
        setting->constants->memory_fraction * setting->device->memory_bytes / 0x1p30);
}

int erg_estimate_job(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                     const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                     struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct setting setting;
    if (prepare(&setting, estimator, tables, job, allocation, err) != 0)
        return -1;
    struct plan_search search = {.least_bytes = INFINITY};
    long gpus = allocation->nodes * allocation->gpus_per_node;
    for (long stages = 1; stages <= gpus && (size_t)stages <= setting.layer_count; stages *= 2) {
        long of_stage = gpus / stages;
        for (long data = 1; data <= of_stage && (double)data <= setting.microbatch; data *= 2) {
            struct erg_grid_plan plan;
            make_plan(&setting, (size_t)stages, (struct erg_shape){data, of_stage / data}, &plan);
            try_plan(&setting, &plan, false, &search);
            if (setting.model->experts > 0 && data > 1)
                try_plan(&setting, &plan, true, &search);
        }
    }
    return finish(&setting, &search, job, estimate, err);
}

/* The grid of so many stages; release its layers. */
static void grid_of(const struct setting *setting, struct erg_planner_layers *layers, size_t stages,
                    struct erg_grid_problem *problem)
{
    const struct erg_grid_device *device = setting->device;
    const struct erg_roofline roofline = {
        (setting->model->half ? device->half_flops : device->full_flops) / 1e9,
        device->memory_bandwidth / 1e9};
    long gpus = setting->allocation->nodes * setting->allocation->gpus_per_node;
    erg_planner_layers_init(layers, setting->model, setting->microbatch);
    erg_grid_problem_init(problem, layers, &roofline, erg_planner_skew(setting->model, gpus), gpus,
                          stages);
}

int erg_estimate_grid(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                      const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                      size_t stages, struct erg_grid_estimates *estimates, struct erg_error *err)
{
    struct setting setting;
    struct erg_planner_layers layers;
    struct erg_grid_problem problem;
    struct erg_grid_plan plan;
    struct erg_grid_plan_set set = {.count = 0};
    estimates->set_count = 0;
    if (prepare(&setting, estimator, tables, job, allocation, err) != 0)
        return -1;
    if (stages > setting.layer_count)
        return erg_fail(err, ERG_INFEASIBLE, "grid of %zu stages: %s %s has %zu pipeline layers",
                        stages, job->family, job->size, setting.layer_count);
    grid_of(&setting, &layers, stages, &problem);
    int status = erg_grid_plan(&problem, &plan, err) ||
                 erg_grid_plan_set(&problem, tables, allocation, &set, err) ||
                 time_plan(&setting, &plan, false, &estimates->plan, err);
    for (size_t i = 0; i < set.count && !status; i++)
        status = time_plan(&setting, &set.items[i].plan, false, &estimates->set[i], err);
    if (!status)
        estimates->set_count = set.count;
    erg_planner_layers_release(&layers);
    return status ? -1 : 0;
}

int erg_estimate_proxy(const struct erg_estimator *estimator, const struct erg_comm_tables *tables,
                       const struct erg_estimate_job *job, const struct erg_allocation *allocation,
                       struct erg_grid_estimate *estimate, struct erg_error *err)
{
    struct setting setting;
    if (prepare(&setting, estimator, tables, job, allocation, err) != 0)
        return -1;
    struct plan_search search = {.least_bytes = INFINITY};
    long gpus = allocation->nodes * allocation->gpus_per_node;
    for (long stages = 1; stages <= gpus && (size_t)stages <= setting.layer_count; stages *= 2) {
        struct erg_planner_layers layers;
        struct erg_grid_problem problem;
        struct erg_grid_plan plan;
        grid_of(&setting, &layers, (size_t)stages, &problem);
        if (erg_grid_plan(&problem, &plan, &search.missing) == 0)
            try_plan(&setting, &plan, false, &search);
        erg_planner_layers_release(&layers);
    }
    return finish(&setting, &search, job, estimate, err);
}
