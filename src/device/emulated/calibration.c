/* The constants that a search may fit to its own measurements. */
#include "device/emulated/emulated.h"

#include <math.h>

#define GPU(field, log_sd)                                                                         \
    {                                                                                              \
#field, offsetof(struct erg_gpu, field), 0, log_sd                                         \
    }
#define STACK(field, log_sd)                                                                       \
    {                                                                                              \
#field, offsetof(struct erg_stack, field), 1, log_sd                                       \
    }

static const struct erg_calibratable calibratables[] = {
    GPU(gemm_efficiency, 0.15),       GPU(gemm_k0, 0.15),
    GPU(wave_weight, 0.15),           GPU(attention_forward, 0.15),
    GPU(attention_backward, 0.15),    GPU(memory_efficiency, 0.15),
    GPU(memory_issue, 0.15),          GPU(launch_gap_s, 0.15),
    GPU(comm_sm_rate, 0.15),          GPU(comm_link_factor, 0.15),
    GPU(comm_clock_power, 0.15),      GPU(comm_contention, 0.15),
    GPU(comm_sm_share, 0.15),         GPU(comm_hbm_per_wire, 0.15),
    STACK(join_grid_s, 0.15),         GPU(static_power_w, 0.15),
    GPU(active_power_w, 0.15),        GPU(energy_per_flop_j, 0.15),
    GPU(energy_per_hbm_byte_j, 0.15), GPU(energy_per_wire_byte_j, 0.15),
    GPU(spin_power_w, 0.15),          GPU(voltage_knee_mhz, 0.05), /* knee 5 %, cap 3 % */
    GPU(voltage_slope_per_ghz, 0.15), GPU(voltage_slope_low_per_ghz, 0.15),
    GPU(power_cap_w, 0.03),
};

const struct erg_calibratable *erg_emulated_calibratables(size_t *count)
{
    *count = sizeof calibratables / sizeof *calibratables;
    return calibratables;
}

/* `value` scaled like a constant that went from `before` to `after`. */
static double scaled_like(double value, double before, double after)
{
    return before > 0 ? value * (after / before) : value;
}

void erg_emulated_calibrate(const struct erg_gpu *gpu, const struct erg_stack *stack,
                            const double *log_ratio, struct erg_gpu *gpu_out,
                            struct erg_stack *stack_out)
{
    *gpu_out = *gpu;
    *stack_out = *stack;
    for (size_t i = 0; i < sizeof calibratables / sizeof *calibratables; i++) {
        char *owner = calibratables[i].in_stack ? (char *)stack_out : (char *)gpu_out;
        double *constant = (double *)(void *)(owner + calibratables[i].offset);
        *constant *= exp(log_ratio[i]);
    }
    /* A library's collective uses the same links, SMs and peers as our own kernel. */
    double link = gpu_out->comm_link_factor / gpu->comm_link_factor;
    gpu_out->library_link_factor *= link;
    stack_out->library_link_factor *= link;
    gpu_out->library_sm_share =
        scaled_like(gpu->library_sm_share, gpu->comm_sm_share, gpu_out->comm_sm_share);
    stack_out->library_sm_share =
        scaled_like(stack->library_sm_share, gpu->comm_sm_share, gpu_out->comm_sm_share);
    stack_out->join_library_s =
        scaled_like(stack->join_library_s, stack->join_grid_s, stack_out->join_grid_s);
}
