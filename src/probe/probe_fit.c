/* Constants of the emulated GPU that explain what was measured. */
#include "probe/probe.h"

#include "base/least_squares.h"
#include "base/log.h"
#include "device/emulated/emulated.h"

#include <math.h>
#include <stdio.h>

/*
 * How far the truth may be from the start, as the standard deviation of a constant's logarithm:
 * wide where a GPU's file only guesses. A file that has 0 of something leaves no factor to find, so
 * there the start is a guess of ours.
 */
#define FROM(field, log_sd, guess)                                                                 \
    {                                                                                              \
#field, offsetof(struct erg_gpu, field), log_sd, guess                                     \
    }
#define CONSTANT(field, log_sd) FROM(field, log_sd, 0)
static const struct constant {
    const char *name;
    size_t offset;
    double log_sd, guess;
} constants[] = {
    CONSTANT(gemm_efficiency, 0.3),
    CONSTANT(gemm_k0, 0.7),
    CONSTANT(wave_weight, 0.7),
    FROM(gemm_slack, 0.5, 1.0 / 16), /* a library has many sizes of tiles */
    CONSTANT(attention_forward, 0.3),
    CONSTANT(attention_backward, 0.3),
    FROM(attention_k0, 1.0, 300),
    FROM(attention_backward_k0, 1.0, 300),
    FROM(attention_tail, 0.5, 0.5), /* half a tile where their order is left to chance */
    CONSTANT(attention_diagonal, 0.3),
    FROM(attention_softmax, 0.7, 0.3), /* not hidden, exponentials would be a third */
    FROM(attention_backward_softmax, 0.7, 0.3),
    CONSTANT(memory_efficiency, 0.3),
    CONSTANT(memory_issue, 0.3),
    CONSTANT(launch_gap_s, 0.3),
    CONSTANT(comm_sm_rate, 0.7),
    CONSTANT(comm_rank_power, 0.1), /* calibrate.c: measured */
    CONSTANT(comm_gather, 0.3),
    CONSTANT(comm_scatter, 0.3),
    CONSTANT(comm_link_factor, 0.15),
    CONSTANT(comm_latency_s, 0.7),
    CONSTANT(comm_blend, 0.5),
    CONSTANT(comm_contention, 1.0),
    CONSTANT(comm_sm_share, 0.5),
    FROM(comm_missed_sms, 1.0, 8), /* as many as GPCs */
    CONSTANT(comm_hbm_per_wire, 0.3),
    CONSTANT(library_link_factor, 0.15),
    CONSTANT(library_sm_share, 0.5),
    CONSTANT(static_power_w, 0.1),
    CONSTANT(active_power_w, 1.0),
    CONSTANT(energy_per_flop_j, 0.5),
    CONSTANT(attention_forward_energy, 0.3),
    CONSTANT(attention_backward_energy, 0.3),
    CONSTANT(energy_per_hbm_byte_j, 0.5),
    FROM(hbm_voltage_share, 0.5, 0.5),
    CONSTANT(energy_per_wire_byte_j, 0.7),
    CONSTANT(spin_power_w, 1.0),
    CONSTANT(voltage_slope_per_ghz, 0.3),
    CONSTANT(power_cap_w, 0.03),
    CONSTANT(leak_per_k, 0.7),
};
enum { CONSTANTS = sizeof constants / sizeof *constants };
_Static_assert((int)CONSTANTS <= (int)ERG_PROBE_MOST_CONSTANTS, "the report has room for all");

/* The relative error of the model; the reading's own error is added. */
static const double mixed_sd = 0.01, single_sd = 0.03, clock_sd = 0.03;

static const int rounds = 40;
static const double unseen = 1e-9; /* the logarithm of a constant that no row depends on */

struct fit_problem {
    const struct erg_gpu *gpu;
    const struct erg_stack *stack;
    const struct erg_probe_observation *observations;
    size_t count;
};

static double *member(struct erg_gpu *gpu, size_t constant)
{
    return (double *)(void *)((char *)gpu + constants[constant].offset);
}

static void scale(const struct erg_gpu *gpu, const double *log_ratios, struct erg_gpu *out)
{
    *out = *gpu;
    for (size_t i = 0; i < CONSTANTS; i++)
        *member(out, i) *= exp(log_ratios[i]);
    erg_gpu_clamp(out); /* shares beyond 1 make no sense, and a file would not hold them */
}

static int predict(const struct erg_gpu *gpu, const struct erg_stack *stack,
                   const struct erg_probe_observation *seen, struct erg_emulated_result *result,
                   struct erg_error *err)
{
    if (seen->step_count)
        return erg_emulated_run_at(gpu, stack, seen->steps, seen->step_count, gpu->clock_max_mhz,
                                   seen->temperature_c, result, err);
    /* At rest: nothing but static power. */
    double leak = gpu->leak_per_k * (seen->temperature_c - gpu->reference_c);
    *result = (struct erg_emulated_result){
        .time_s = seen->time_s,
        .energy_j = gpu->static_power_w * (1 + leak) * seen->time_s,
        .clock_effective_mhz = seen->clock_mhz,
    };
    return 0;
}

static int residuals_of(void *context, const double *log_ratios, double *residuals,
                        struct erg_error *err)
{
    const struct fit_problem *problem = context;
    struct erg_gpu gpu;
    scale(problem->gpu, log_ratios, &gpu);
    for (size_t i = 0; i < problem->count; i++) {
        const struct erg_probe_observation *seen = &problem->observations[i];
        struct erg_emulated_result result;
        if (predict(&gpu, problem->stack, seen, &result, err))
            return -1;
        double sd = seen->mixed ? mixed_sd : single_sd;
        residuals[3 * i] = log(result.time_s / seen->time_s) / hypot(sd, seen->time_error);
        residuals[3 * i + 1] =
            log(result.energy_j / seen->energy_j) / hypot(sd, seen->energy_error);
        residuals[3 * i + 2] = log(result.clock_effective_mhz / seen->clock_mhz) / clock_sd;
    }
    return 0;
}

static int judge(struct erg_probe_fit *fit, const struct fit_problem *problem,
                 struct erg_error *err)
{
    fit->observations = problem->count;
    for (size_t i = 0; i < problem->count; i++) {
        const struct erg_probe_observation *seen = &problem->observations[i];
        struct erg_emulated_result result;
        if (predict(&fit->gpu, problem->stack, seen, &result, err))
            return -1;
        erg_log(ERG_LOG_DEBUG,
                "%s %s: fitted %+.1f %% in time, %+.1f %% in energy, %+.1f %% in clock",
                seen->shape, seen->name, 100 * (result.time_s / seen->time_s - 1),
                100 * (result.energy_j / seen->energy_j - 1),
                100 * (result.clock_effective_mhz / seen->clock_mhz - 1));
        fit->time_error += fabs(result.time_s / seen->time_s - 1) / (double)problem->count;
        fit->energy_error += fabs(result.energy_j / seen->energy_j - 1) / (double)problem->count;
    }
    return 0;
}

int erg_probe_fit(struct erg_probe_fit *fit, const struct erg_gpu *gpu,
                  const struct erg_stack *stack, const struct erg_probe_observation *observations,
                  size_t count, struct erg_error *err)
{
    struct erg_gpu start = *gpu;
    struct fit_problem problem = {&start, stack, observations, count};
    double log_ratios[CONSTANTS] = {0}, sd[CONSTANTS];
    for (size_t i = 0; i < CONSTANTS; i++) {
        sd[i] = constants[i].log_sd;
        if (*member(&start, i) == 0)
            *member(&start, i) = constants[i].guess;
    }
    if (erg_least_squares(residuals_of, &problem, CONSTANTS, sd, 3 * count, rounds, log_ratios,
                          err))
        return erg_fail_context(err, "fitting the constants of %s", gpu->name);
    *fit = (struct erg_probe_fit){.count = CONSTANTS};
    scale(&start, log_ratios, &fit->gpu);
    start = *gpu;
    for (size_t i = 0; i < CONSTANTS; i++) {
        bool seen = fabs(log_ratios[i]) > unseen;
        if (!seen)
            *member(&fit->gpu, i) = *member(&start, i);
        double before = *member(&start, i), after = *member(&fit->gpu, i);
        fit->constants[i].name = constants[i].name;
        fit->constants[i].member = constants[i].offset;
        fit->constants[i].before = before;
        fit->constants[i].after = after;
        fit->constants[i].seen = seen;
        fit->constants[i].origin = seen ? "fitted" : "not seen";
        if (seen && before > 0)
            snprintf(fit->constants[i].note, sizeof fit->constants[i].note,
                     "fitted; %.3g times that of %s", after / before, gpu->name);
        else if (seen)
            snprintf(fit->constants[i].note, sizeof fit->constants[i].note, "fitted; %s has none",
                     gpu->name);
    }
    return judge(fit, &problem, err);
}
