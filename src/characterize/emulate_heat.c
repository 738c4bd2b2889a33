/* The power of every emulated GPU over an iteration, and the resulting temperatures. */
#include "characterize/emulate_internal.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "device/emulated/power.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- power ---- */

/* Energy in J of a GPU's links for the sums of its gradients and the gathers of its weights. */
static double gradient_j(const struct emulation *emulation, const struct emulated_rank *gpu)
{
    const struct erg_layout *layout = &emulation->layout;
    const double experts =
        erg_layout_stage_experts(&emulation->request.time, &emulation->parts, layout, gpu->stage);
    return gpu->costs.wire_byte_j *
           (erg_time_gradient_bytes(&emulation->engine, layout) *
                erg_layout_stage_parameters(&emulation->request.time, &emulation->parts, layout,
                                            gpu->stage) +
            erg_time_expert_gradient_bytes(&emulation->engine, layout) * experts);
}

static double optimizer_j(const struct emulation *emulation, const struct emulated_rank *gpu)
{
    const struct erg_layout_costs *costs = &gpu->costs;
    const double rate = emulation->engine.memory_efficiency * emulation->machine.memory_bandwidth /
                        costs->memory_slowdown;
    return gpu->optimizer_s * (costs->active_w + costs->static_w + rate * costs->hbm_byte_j);
}

static void fill_kinds(const struct emulation *emulation, struct emulated_rank *gpu)
{
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    const double waiting_w = emulation->gpu.blocking_power_w +
                             erg_static_power(&emulation->gpu, gpu->busy_c) -
                             emulation->gpu.static_power_w;
    double kind_s[EMULATED_KINDS] = {0}, before_s = 0;
    for (size_t i = 0; i < lane->count; i++) {
        if (lane->items[i].pass < 0)
            kind_s[lane->items[i].kind] += lane->items[i].end_s - before_s;
        before_s = lane->items[i].end_s;
    }
    const double wires_j = gradient_j(emulation, gpu);
    const bool hidden = !(kind_s[EMULATED_GRADIENTS] > 0);
    const double optimizer = optimizer_j(emulation, gpu) + (hidden ? wires_j : 0);
    gpu->kind_w[EMULATED_WAIT] = waiting_w;
    gpu->kind_w[EMULATED_GRADIENTS] =
        waiting_w + (hidden ? 0 : wires_j / kind_s[EMULATED_GRADIENTS]);
    gpu->kind_w[EMULATED_OPTIMIZER] =
        kind_s[EMULATED_OPTIMIZER] > 0 ? optimizer / kind_s[EMULATED_OPTIMIZER] : waiting_w;
}

double erg_emulation_phase_w(const struct emulation *emulation, const struct emulated_rank *gpu,
                             const struct emulated_phase *phase)
{
    if (phase->pass < 0)
        return gpu->kind_w[phase->kind];
    assert(phase->pass < emulation->passes);
    const struct emulated_pass *pass = &gpu->passes[phase->pass];
    const double messages_j = emulation->layout.pipeline > 1 ? gpu->costs.message_j : 0;
    return (pass->energy_j + messages_j) / (pass->own_s + pass->spin_s);
}

/* Mean power of a GPU while another GPU of its board runs a pass. */
static double power_beside(const struct emulation *emulation, const struct emulated_rank *gpu,
                           const struct emulated_rank *working)
{
    const struct emulated_lane *own = erg_emulation_lane(emulation, gpu);
    const struct emulated_lane *other = erg_emulation_lane(emulation, working);
    double now_s = 0, sum_j = 0, sum_s = 0;
    for (size_t i = 0, k = 0; i < own->count && k < other->count;) {
        const double end_s = fmin(own->items[i].end_s, other->items[k].end_s);
        if (other->items[k].pass >= 0) {
            sum_j += (end_s - now_s) * erg_emulation_phase_w(emulation, gpu, &own->items[i]);
            sum_s += end_s - now_s;
        }
        now_s = end_s;
        i += own->items[i].end_s <= now_s;
        k += other->items[k].end_s <= now_s;
    }
    return sum_s > 0 ? sum_j / sum_s : gpu->power_w;
}

/* The GPUs of a board share its cap: a working GPU may draw what the others leave. */
static void share_caps(struct emulation *emulation)
{
    const long group = emulation->gpu.cap_group;
    for (long rank = 0; group > 1 && rank < emulation->gpus; rank++) {
        struct emulated_rank *gpu = &emulation->gpu_at[rank];
        double left_w = emulation->gpu.power_cap_w * (double)group;
        long others = group - 1;
        for (long i = 0; i < emulation->gpus; i++) {
            const struct emulated_rank *other = &emulation->gpu_at[i];
            if (i == rank || other->node != gpu->node || other->local / group != gpu->local / group)
                continue;
            left_w -= power_beside(emulation, other, gpu);
            others--;
        }
        left_w -= (double)others * emulation->gpu.idle_power_w;
        gpu->cap_w += 0.5 * (left_w - gpu->cap_w);
    }
}

void erg_emulation_run_power(struct emulation *emulation)
{
    for (long rank = 0; rank < emulation->gpus; rank++) {
        struct emulated_rank *gpu = &emulation->gpu_at[rank];
        const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
        double sum_j = 0, memory_j = 0, before_s = 0;
        fill_kinds(emulation, gpu);
        for (size_t i = 0; i < lane->count; i++) {
            const struct emulated_phase *phase = &lane->items[i];
            sum_j += erg_emulation_phase_w(emulation, gpu, phase) * (phase->end_s - before_s);
            memory_j += phase->pass < 0 ? 0 : gpu->passes[phase->pass].memory_j;
            before_s = phase->end_s;
        }
        assert(emulation->time_s > 0 && sum_j >= 0);
        gpu->power_w = sum_j / emulation->time_s;
        gpu->hbm_w = memory_j / emulation->time_s;
    }
    share_caps(emulation);
}

/* ---- heat ---- */

/* The thermal resistance of a GPU's die in K per W, and its time constant. */
static void die_of(const struct emulation *emulation, const struct emulated_rank *gpu,
                   double *k_per_w, double *time_s)
{
    *k_per_w = emulation->heated ? emulation->chassis.slots[gpu->local].die_k_per_w
                                 : emulation->gpu.thermal_resistance_k_per_w;
    *time_s = emulation->heated ? emulation->chassis.die_time_s : emulation->gpu.thermal_time_s;
}

double erg_emulation_ripple(const struct emulation *emulation, const struct emulated_rank *gpu,
                            double *ripple_k)
{
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    double k_per_w, time_s, at_k = 0, busy_ks = 0, busy_s = 0;
    assert(emulation->time_s > 0);
    die_of(emulation, gpu, &k_per_w, &time_s);
    /* The first pass computes the ripple that an iteration makes from zero; the second starts with
     * the ripple at the iteration's end. */
    for (int way = 0; way < 2; way++) {
        double before_s = 0;
        for (size_t i = 0; i < lane->count; i++) {
            const struct emulated_phase *phase = &lane->items[i];
            const double dt_s = phase->end_s - before_s, left = exp(-dt_s / time_s);
            const double settled_k =
                k_per_w * (erg_emulation_phase_w(emulation, gpu, phase) - gpu->power_w);
            if (way && phase->pass >= 0) {
                busy_ks += settled_k * dt_s + (at_k - settled_k) * time_s * (1 - left);
                busy_s += dt_s;
            }
            at_k = settled_k + (at_k - settled_k) * left;
            if (way && ripple_k)
                ripple_k[i] = at_k;
            before_s = phase->end_s;
        }
        if (!way)
            at_k /= 1 - exp(-emulation->time_s / time_s);
    }
    return busy_s > 0 ? busy_ks / busy_s : 0;
}

/* Returns true if heat limits a clock now, or would at the resulting temperature. */
static double limit_clock(const struct emulation *emulation, const struct emulated_rank *gpu,
                          double temperature_c)
{
    const struct erg_heat_limit *limit = &emulation->chassis.limit;
    const unsigned gpus = emulation->chassis.gpus;
    assert(gpu->local >= 0 && (unsigned)gpu->local < gpus);
    const double own = emulation->k_per_w[(unsigned)gpu->local * gpus + (unsigned)gpu->local];
    const struct emulated_load context = {emulation, gpu};
    const struct erg_thermal_load load = {
        .power = erg_emulation_load,
        .context = &context,
        .request_mhz = gpu->request_mhz,
        .lowest_mhz = emulation->gpu.clock_min_mhz,
        .cap_w = INFINITY, /* passes respect the cap themselves */
    };
    struct erg_thermal_point point;
    if (limit->law == ERG_HEAT_HOLD && temperature_c < limit->hold_c && isinf(gpu->heat_mhz))
        return INFINITY;
    erg_thermal_limit(limit, &load, temperature_c - own * gpu->power_w, own, &point);
    return point.cause == ERG_CLOCK_HEAT ? point.clock_mhz : INFINITY;
}

/* Moves a clock towards the limit of heat. If the limit ends, the clock first rises to the one
 * without it. To end the limit at once would shorten the iteration, and the limit could return in
 * the next round. */
static void move_limit(struct emulated_rank *gpu, double heat_mhz, double damping)
{
    if (isinf(gpu->heat_mhz)) {
        gpu->heat_mhz = heat_mhz;
    } else if (isinf(heat_mhz)) {
        gpu->heat_mhz += damping * (gpu->free_mhz - gpu->heat_mhz);
        if (gpu->heat_mhz > gpu->free_mhz - 1)
            gpu->heat_mhz = INFINITY;
    } else {
        gpu->heat_mhz += damping * (heat_mhz - gpu->heat_mhz);
    }
}

/* The GPUs of a node that the point uses. */
static void take_powers(const struct emulation *emulation, long node, double *power_w)
{
    assert(emulation->node_gpus <= ERG_CHASSIS_GPUS);
    for (long i = 0; i < emulation->node_gpus; i++)
        power_w[i] = emulation->gpu.idle_power_w;
    for (long rank = 0; rank < emulation->gpus; rank++)
        if (emulation->gpu_at[rank].node == node)
            power_w[emulation->gpu_at[rank].local] = emulation->gpu_at[rank].power_w;
}

/* Steady temperatures of all GPUs, in their nodes. */
static void steady(const struct emulation *emulation, double *temperature_c)
{
    double power_w[ERG_CHASSIS_GPUS], node_c[ERG_CHASSIS_GPUS];
    for (long node = 0; node < emulation->nodes; node++) {
        take_powers(emulation, node, power_w);
        erg_thermal_steady(&emulation->chassis, power_w, node_c);
        for (long rank = 0; rank < emulation->gpus; rank++)
            if (emulation->gpu_at[rank].node == node)
                temperature_c[rank] = node_c[emulation->gpu_at[rank].local];
    }
}

/* ---- from a cold start ---- */

/* One iteration at the temperatures of its beginning. */
static void warm_iteration(struct emulation *emulation, struct erg_thermal_state *states)
{
    double power_w[ERG_CHASSIS_GPUS];
    for (long rank = 0; rank < emulation->gpus; rank++) {
        struct emulated_rank *gpu = &emulation->gpu_at[rank];
        gpu->mean_c = gpu->busy_c = states[gpu->node].die_c[gpu->local];
        if (emulation->time_s > 0)
            move_limit(gpu, limit_clock(emulation, gpu, gpu->mean_c), 0.5);
    }
    erg_emulation_run_passes(emulation);
    erg_emulation_run_schedule(emulation);
    erg_emulation_run_power(emulation);
    assert(emulation->time_s > 0); /* otherwise the warm-up would never end */
    for (long node = 0; node < emulation->nodes; node++) {
        take_powers(emulation, node, power_w);
        erg_thermal_step(&states[node], power_w, emulation->time_s);
    }
}

static double note_moment(struct emulation *emulation, double begin_s)
{
    struct erg_result_moment moment = {.begin_s = begin_s, .time_s = emulation->time_s};
    for (long rank = 0; rank < emulation->gpus; rank++) {
        const struct emulated_rank *gpu = &emulation->gpu_at[rank];
        moment.power_w += gpu->power_w / (double)emulation->gpus;
        moment.temperature_c += gpu->mean_c / (double)emulation->gpus;
        moment.peak_temperature_c = fmax(moment.peak_temperature_c, gpu->mean_c);
    }
    ERG_PUSH(&emulation->course, items, moment);
    return begin_s + emulation->time_s;
}

int erg_emulation_warm_up(struct emulation *emulation, double until_s, struct erg_error *err)
{
    const long most = emulation->point->measuring->settle_most_iterations;
    double power_w[ERG_CHASSIS_GPUS], now_s = 0;
    if (!emulation->heated)
        return erg_fail(err, ERG_FAILED,
                        "a cold start needs a chassis; expected the key chassis in the cluster");
    struct erg_thermal_state *states =
        erg_arena_alloc(emulation->arena, (size_t)emulation->nodes * sizeof *states);
    for (long node = 0; node < emulation->nodes; node++) {
        for (long i = 0; i < emulation->node_gpus; i++)
            power_w[i] = emulation->gpu.idle_power_w;
        erg_thermal_begin(&states[node], &emulation->chassis, power_w);
    }
    for (long i = 0; now_s < until_s && (most <= 0 || i < most); i++) {
        if (erg_interrupt_check(err) != 0)
            return -1;
        warm_iteration(emulation, states);
        now_s = note_moment(emulation, now_s);
    }
    return 0;
}

/* ---- the steady state ---- */

double erg_emulation_run_heat(struct emulation *emulation, double damping)
{
    double *temperature_c =
        erg_arena_alloc(emulation->arena, (size_t)emulation->gpus * sizeof *temperature_c);
    double most_k = 0;
    if (emulation->heated)
        steady(emulation, temperature_c);
    for (long rank = 0; rank < emulation->gpus; rank++) {
        struct emulated_rank *gpu = &emulation->gpu_at[rank];
        if (!emulation->heated)
            temperature_c[rank] =
                emulation->gpu.ambient_c + emulation->gpu.thermal_resistance_k_per_w * gpu->power_w;
        most_k = fmax(most_k, fabs(temperature_c[rank] - gpu->mean_c));
        if (emulation->heated)
            move_limit(gpu, limit_clock(emulation, gpu, temperature_c[rank]), damping);
        gpu->mean_c += damping * (temperature_c[rank] - gpu->mean_c);
        gpu->busy_c = gpu->mean_c + erg_emulation_ripple(emulation, gpu, NULL);
    }
    return most_k;
}
