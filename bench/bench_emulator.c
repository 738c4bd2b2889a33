/* Rates on one core, for a partition of five to six ops with a communication: full runs of the
 * exact emulator model, unthrottled and throttled (targets: 200,000 and 20,000), and whole
 * measurements by the profiler on eight emulated GPUs with noise, heat and sensors (target: 1,000).
 */
#include "base/clock.h"
#include "device/emulated/emulated.h"
#include "device/profiler.h"
#include "golden_ops.h"

#include <stdio.h>

static void measure_runs(const char *name, const struct erg_gpu *gpu, const struct erg_stack *stack,
                         const struct erg_op *ops, size_t count, int clock_mhz, double target)
{
    struct erg_step step = {
        .task = {ops, count, {.kind = ERG_COMM_ALLREDUCE, .wire_bytes = 176160768, .group = 8}}};
    double start_s = erg_cpu_seconds(), elapsed_s = 0, sum = 0;
    size_t runs = 0;
    while (elapsed_s < 0.5) {
        for (int i = 0; i < 1000; i++, runs++) {
            struct erg_emulated_result result;
            step.launch = (struct erg_launch){runs % (count + 1), 1 + (int)(runs % 30)};
            if (erg_emulated_run(gpu, stack, &step, 1, clock_mhz, &result, NULL) == 0)
                sum += result.time_s;
        }
        elapsed_s = erg_cpu_seconds() - start_s;
    }
    double rate = (double)runs / elapsed_s;
    printf("%-22s %10.0f runs/s  (%.2f us each, target %.0f: x%.1f; mean %.3f ms)\n", name, rate,
           1e6 / rate, target, rate / target, 1e3 * sum / (double)runs);
}

static void measure_profiles(const char *name, const struct erg_gpu *gpu,
                             const struct erg_stack *stack, const struct erg_op *ops, size_t count,
                             int clock_mhz, double target)
{
    struct erg_error err;
    struct erg_device *device;
    struct erg_emulated_options emulated = erg_emulated_options_default();
    struct erg_profile_options options = erg_profile_options_default();
    struct erg_step step = {
        .task = {ops, count, {.kind = ERG_COMM_ALLREDUCE, .wire_bytes = 176160768, .group = 8}},
        .launch = {1, 6}};
    if (erg_emulated_open(&device, gpu, stack, &emulated, &err) != 0)
        return;
    double start_s = erg_cpu_seconds(), elapsed_s = 0, virtual_s = 0;
    uint64_t runs = 0;
    while (elapsed_s < 0.5) {
        struct erg_measurement result;
        if (erg_profile(device, &step, 1, clock_mhz, &options, runs++, &result, &err) == 0)
            virtual_s += result.device_s;
        elapsed_s = erg_cpu_seconds() - start_s;
    }
    double rate = (double)runs / elapsed_s;
    printf("%-22s %10.0f profiles/s (%.0f us each, target %.0f: x%.1f; %.1f s of virtual time)\n",
           name, rate, 1e6 / rate, target, rate / target, virtual_s / (double)runs);
    erg_device_close(device);
}

int main(void)
{
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_error err;
    if (erg_gpu_load(&gpu, "A100-SXM4-40GB", &err) != 0 ||
        erg_stack_load(&stack, "published-python", &err) != 0) {
        fprintf(stderr, "bench_emulator: %s\n", err.message);
        return 1;
    }
    measure_runs("attention, 1200 MHz", gpu, stack, forward_attention, 5, 1200, 200e3);
    measure_runs("MLP backward, 1410 MHz", gpu, stack, backward_mlp, 6, 1410, 20e3);
    measure_profiles("attention, 1200 MHz", gpu, stack, forward_attention, 5, 1200, 1000);
    measure_profiles("MLP backward, 1410 MHz", gpu, stack, backward_mlp, 6, 1410, 1000);
    erg_gpu_free(gpu);
    erg_stack_free(stack);
    return 0;
}
