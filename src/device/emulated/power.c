/* Energy of a simulated run, and the power cap that lowers its clock. */
#include "device/emulated/emulated_internal.h"

#include <math.h>

double erg_gpu_voltage(const struct erg_gpu *gpu, double clock_mhz)
{
    double above_ghz = (clock_mhz - gpu->voltage_knee_mhz) * 1e-3;
    return 1 + (above_ghz > 0 ? gpu->voltage_slope_per_ghz : gpu->voltage_slope_low_per_ghz) *
                   above_ghz;
}

double erg_hbm_byte_energy(const struct erg_gpu *gpu, double voltage)
{
    double highest = erg_gpu_voltage(gpu, gpu->clock_max_mhz);
    return gpu->energy_per_hbm_byte_j *
           (1 + gpu->hbm_voltage_share * (voltage * voltage / (highest * highest) - 1));
}

double erg_static_power(const struct erg_gpu *gpu, double temperature_c)
{
    return gpu->static_power_w * (1 + gpu->leak_per_k * (temperature_c - gpu->reference_c));
}

static double sim_energy(const struct erg_gpu *gpu, const struct erg_sim *sim, double static_w,
                         double clock_mhz)
{
    double volt = erg_gpu_voltage(gpu, clock_mhz);
    double clock_ratio = clock_mhz / gpu->clock_max_mhz;
    double core = gpu->active_power_w * clock_ratio * sim->active_s +
                  gpu->energy_per_flop_j * sim->flops +
                  gpu->spin_power_w * clock_ratio * sim->spin_sm_s;
    return static_w * sim->time_s + volt * volt * core +
           erg_hbm_byte_energy(gpu, volt) * sim->hbm_bytes +
           gpu->energy_per_wire_byte_j * sim->wire_bytes;
}

static double over_cap(const struct erg_cap *cap, double clock_mhz)
{
    double time_s, energy_j;
    cap->evaluate(cap->context, clock_mhz, &time_s, &energy_j);
    return energy_j / time_s - cap->power_w;
}

/* Uses the Illinois variant of the false position method, which keeps the bracket and needs a third
 * of the evaluations of a bisection. */
double erg_cap_clock(const struct erg_cap *cap, double low, double high)
{
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

struct erg_regulation erg_cap_regulate(const struct erg_cap *cap, double request_mhz,
                                       double cap_mhz)
{
    double excess = (request_mhz - cap_mhz) / cap->softness_mhz;
    struct erg_regulation regulation = {.throttle = 1 / (1 + exp(-excess))};
    regulation.clock_mhz = request_mhz - cap->softness_mhz * softplus(excess);
    double spread = cap->dither_mhz / regulation.clock_mhz;
    regulation.dither = regulation.throttle * spread * spread;
    return regulation;
}

/* Runs work at a requested clock under a cap. Fills all of *out except exposed_s. */
static void cap_run(const struct erg_cap *cap, double clock_mhz, struct erg_emulated_result *out)
{
    double time_s, energy_j;
    struct erg_regulation regulation = {.clock_mhz = clock_mhz};
    cap->evaluate(cap->context, clock_mhz, &time_s, &energy_j);
    if (energy_j > 0.85 * cap->power_w * time_s) {
        double low = 0.4 * clock_mhz, high = 1.25 * clock_mhz;
        regulation = erg_cap_regulate(cap, clock_mhz, erg_cap_clock(cap, low, high));
        cap->evaluate(cap->context, regulation.clock_mhz, &time_s, &energy_j);
        double dynamic_j = energy_j - cap->static_w * time_s;
        time_s *= 1 + regulation.dither;
        energy_j = cap->static_w * time_s + dynamic_j * (1 + 3 * regulation.dither);
    }
    out->time_s = time_s;
    out->energy_j = energy_j;
    out->power_w = time_s > 0 ? energy_j / time_s : 0;
    out->clock_effective_mhz = regulation.clock_mhz;
    out->throttle = regulation.throttle;
}

struct step_group {
    const struct erg_gpu *gpu;
    const struct erg_stack *stack;
    const struct erg_step *steps;
    size_t count;
    double static_w;
    struct erg_sim *sim; /* of the last evaluation */
};

static void evaluate_group(const void *context, double clock_mhz, double *time_s, double *energy_j)
{
    const struct step_group *group = context;
    erg_sim_run(group->gpu, group->stack, group->steps, group->count, clock_mhz, group->sim, NULL);
    *time_s = group->sim->time_s;
    *energy_j = sim_energy(group->gpu, group->sim, group->static_w, clock_mhz);
}

void erg_emulated_evaluate(const struct erg_gpu *gpu, const struct erg_stack *stack,
                           const struct erg_step *steps, size_t count, double clock_mhz,
                           double temperature_c, struct erg_emulated_result *out)
{
    struct erg_sim sim;
    struct step_group group = {gpu, stack, steps, count, erg_static_power(gpu, temperature_c),
                               &sim};
    struct erg_cap cap = {.power_w = gpu->power_cap_w,
                          .softness_mhz = gpu->cap_softness_mhz,
                          .dither_mhz = gpu->cap_dither_mhz,
                          .static_w = group.static_w,
                          .evaluate = evaluate_group,
                          .context = &group};
    cap_run(&cap, clock_mhz, out);
    out->exposed_s = sim.exposed_s;
}
