/* Energy of a simulated run, and the power cap that lowers its clock. */
#include "device/emulated/emulated_internal.h"

#include <math.h>

double erg_voltage(double knee_mhz, double slope_per_ghz, double slope_low_per_ghz,
                   double clock_mhz)
{
    double above_ghz = (clock_mhz - knee_mhz) * 1e-3;
    return 1 + (above_ghz > 0 ? slope_per_ghz : slope_low_per_ghz) * above_ghz;
}

double erg_static_power(const struct erg_gpu *gpu, double temperature_c)
{
    return gpu->static_power_w * (1 + gpu->leak_per_k * (temperature_c - gpu->reference_c));
}

static double sim_energy(const struct erg_gpu *gpu, const struct erg_sim *sim, double static_w,
                         double clock_mhz)
{
    double volt = erg_voltage(gpu->voltage_knee_mhz, gpu->voltage_slope_per_ghz,
                              gpu->voltage_slope_low_per_ghz, clock_mhz);
    double clock_ratio = clock_mhz / gpu->clock_max_mhz;
    double core = gpu->active_power_w * clock_ratio * sim->active_s +
                  gpu->energy_per_flop_j * sim->flops +
                  gpu->spin_power_w * clock_ratio * sim->spin_sm_s;
    double highest = erg_voltage(gpu->voltage_knee_mhz, gpu->voltage_slope_per_ghz,
                                 gpu->voltage_slope_low_per_ghz, gpu->clock_max_mhz);
    double byte_j = gpu->energy_per_hbm_byte_j *
                    (1 + gpu->hbm_voltage_share * (volt * volt / (highest * highest) - 1));
    return static_w * sim->time_s + volt * volt * core + byte_j * sim->hbm_bytes +
           gpu->energy_per_wire_byte_j * sim->wire_bytes;
}

static double over_cap(const struct erg_cap *cap, double clock_mhz)
{
    double time_s, energy_j;
    cap->evaluate(cap->context, clock_mhz, &time_s, &energy_j);
    return energy_j / time_s - cap->power_w;
}

/*
 * The clock at which the mean power equals the cap, within [0.4, 1.25] of the request, by the
 * Illinois variant of the false position: it keeps the bracket and needs a third of the
 * evaluations of a bisection.
 */
static double cap_clock(const struct erg_cap *cap, double request_mhz)
{
    double low = 0.4 * request_mhz, high = 1.25 * request_mhz;
    double over_low = over_cap(cap, low), over_high = over_cap(cap, high);
    if (over_low >= 0)
        return low;
    if (over_high <= 0)
        return high;
    int side = 0;
    for (int round = 0; round < 60 && high - low > 1e-4; round++) {
        double middle = (low * over_high - high * over_low) / (over_high - over_low);
        if (!(middle > low && middle < high))
            middle = 0.5 * (low + high);
        double over = over_cap(cap, middle);
        if (fabs(over) < 1e-7 * cap->power_w)
            return middle;
        if (over < 0) {
            low = middle;
            over_low = over;
            if (side < 0)
                over_high *= 0.5;
            side = -1;
        } else {
            high = middle;
            over_high = over;
            if (side > 0)
                over_low *= 0.5;
            side = 1;
        }
    }
    return 0.5 * (low + high);
}

static double softplus(double x)
{
    return x > 40 ? x : log1p(exp(x));
}

void erg_cap_run(const struct erg_cap *cap, double clock_mhz, struct erg_emulated_result *out)
{
    double time_s, energy_j;
    cap->evaluate(cap->context, clock_mhz, &time_s, &energy_j);
    double effective = clock_mhz, throttle = 0;
    if (energy_j > 0.85 * cap->power_w * time_s) {
        double excess = (clock_mhz - cap_clock(cap, clock_mhz)) / cap->softness_mhz;
        effective = clock_mhz - cap->softness_mhz * softplus(excess);
        throttle = 1 / (1 + exp(-excess));
        cap->evaluate(cap->context, effective, &time_s, &energy_j);
        /* The regulator dithers: 1/f and f v^2 are convex, so the mean of both rises (Jensen). */
        double spread = cap->dither_mhz / effective;
        double jensen = throttle * spread * spread;
        double dynamic_j = energy_j - cap->static_w * time_s;
        time_s *= 1 + jensen;
        energy_j = cap->static_w * time_s + dynamic_j * (1 + 3 * jensen);
    }
    out->time_s = time_s;
    out->energy_j = energy_j;
    out->power_w = time_s > 0 ? energy_j / time_s : 0;
    out->clock_effective_mhz = effective;
    out->throttle = throttle;
}

struct group {
    const struct erg_gpu *gpu;
    const struct erg_stack *stack;
    const struct erg_step *steps;
    size_t count;
    double static_w;
    struct erg_sim *sim; /* of the last evaluation */
};

static void evaluate_group(const void *context, double clock_mhz, double *time_s, double *energy_j)
{
    const struct group *group = context;
    erg_sim_run(group->gpu, group->stack, group->steps, group->count, clock_mhz, group->sim, NULL);
    *time_s = group->sim->time_s;
    *energy_j = sim_energy(group->gpu, group->sim, group->static_w, clock_mhz);
}

void erg_emulated_evaluate(const struct erg_gpu *gpu, const struct erg_stack *stack,
                           const struct erg_step *steps, size_t count, double clock_mhz,
                           double temperature_c, struct erg_emulated_result *out)
{
    struct erg_sim sim;
    struct group group = {gpu, stack, steps, count, erg_static_power(gpu, temperature_c), &sim};
    struct erg_cap cap = {.power_w = gpu->power_cap_w,
                          .softness_mhz = gpu->cap_softness_mhz,
                          .dither_mhz = gpu->cap_dither_mhz,
                          .static_w = group.static_w,
                          .evaluate = evaluate_group,
                          .context = &group};
    erg_cap_run(&cap, clock_mhz, out);
    out->exposed_s = sim.exposed_s;
}
