/* Loads of layers: roofline of their heavy operations, and fractions of the GPUs. */
#include "layout/grid/grid_plan.h"

#include <assert.h>
#include <math.h>

/* Operations below both have a negligible intensity: memory limits them. */
#define SMALL_GFLOP 0.1
#define SMALL_GB 0.1

static struct erg_planner_layer planner_layer(const struct erg_grid_ops *ops,
                                              const struct erg_grid_layer *layer, double bytes,
                                              double samples, struct erg_arena *arena)
{
    enum { DIRECTIONS = 4 }; /* forward, again for the backward pass, two gradients */
    struct erg_planner_layer result = {
        .ops = erg_arena_alloc(arena, DIRECTIONS * layer->op_count * sizeof *result.ops),
        .weight_bytes = (layer->weights + layer->expert_weights) * bytes};
    for (size_t i = 0; i < layer->op_count; i++) {
        const struct erg_grid_op *op = &ops->items[layer->first_op + i];
        if (op->kind == ERG_GRID_ELEMENTWISE)
            continue;
        double weights = op->weights + op->expert_weights;
        double input = (op->traffic - op->output) * samples, output = op->output * samples;
        /* A product of two activations has two gradients of inputs. */
        double second = weights > 0 ? weights : input / 2;
        double first = weights > 0 ? input : input / 2;
        struct erg_heavy_op heavy = {op->flops * samples, (input + output + weights) * bytes,
                                     output * bytes};
        const double outputs[DIRECTIONS] = {output, output, first, second};
        for (int k = 0; k < DIRECTIONS; k++) {
            heavy.output_bytes = outputs[k] * bytes;
            result.ops[result.op_count++] = heavy;
        }
    }
    return result;
}

void erg_planner_layers_init(struct erg_planner_layers *layers, const struct erg_grid_ops *ops,
                             const struct erg_grid_layer *cut, size_t count, double element_bytes,
                             double samples)
{
    *layers = (struct erg_planner_layers){.count = count, .samples = samples};
    layers->items = erg_arena_alloc(&layers->arena, count * sizeof *layers->items);
    for (size_t i = 0; i < count; i++)
        layers->items[i] = planner_layer(ops, &cut[i], element_bytes, samples, &layers->arena);
}

void erg_planner_layers_release(struct erg_planner_layers *layers)
{
    erg_arena_release(&layers->arena);
    *layers = (struct erg_planner_layers){0};
}

static double op_load_s(const struct erg_heavy_op *op, const struct erg_roofline *roofline)
{
    double gflop = op->flops / 0x1p30, gb = op->bytes / 0x1p30;
    if (gflop <= SMALL_GFLOP && gb <= SMALL_GB)
        return gb / roofline->bandwidth_gb_s;
    return gflop / fmin(roofline->peak_gflops, gflop / gb * roofline->bandwidth_gb_s);
}

/* Rounds to the published planner's number of decimals: exactly, without a rounded product. */
static double decimals(double value, long double scale)
{
    return (double)(rintl((long double)value * scale) / scale);
}

void erg_grid_problem_init(struct erg_grid_problem *problem,
                           const struct erg_planner_layers *layers,
                           const struct erg_roofline *roofline, double skew, long gpus,
                           size_t stages)
{
    assert(layers->count <= ERG_GRID_MAX_STAGES && stages <= ERG_GRID_MAX_STAGES);
    double sum = 0;
    *problem = (struct erg_grid_problem){.layers = layers, .gpus = gpus, .stages = stages};
    for (size_t i = 0; i < layers->count; i++) {
        for (size_t k = 0; k < layers->items[i].op_count; k++)
            problem->loads[i] += op_load_s(&layers->items[i].ops[k], roofline);
        problem->loads[i] *= 1 + (double)i * skew;
        sum += problem->loads[i];
    }
    for (size_t i = 0; i < layers->count; i++)
        problem->fractions[i] = decimals((double)gpus * problem->loads[i] / sum, 1000);
}
