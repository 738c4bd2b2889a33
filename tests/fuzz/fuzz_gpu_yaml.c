/* libFuzzer: any bytes as the file of a GPU, a software stack, a training engine, a cluster, a
 * chassis or a fleet. */
#define _GNU_SOURCE /* memfd_create */

#include "cluster/fleet.h"
#include "hardware/engine.h"
#include "hardware/hardware.h"
#include "thermal/thermal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check_gpu(const struct erg_gpu *gpu)
{
    if (gpu->sms < 1 || gpu->clock_min_mhz > gpu->clock_max_mhz || gpu->search_step_mhz < 1 ||
        !isfinite(gpu->static_power_w) || !(gpu->power_cap_w > 0))
        abort();
}

/* What loads can be computed with. */
static void check_chassis(const struct erg_chassis *chassis)
{
    struct erg_thermal_state state;
    double power_w[ERG_CHASSIS_GPUS], temperature_c[ERG_CHASSIS_GPUS];
    for (unsigned g = 0; g < ERG_CHASSIS_GPUS; g++)
        power_w[g] = 500;
    if (chassis->gpus < 1 || chassis->gpus > ERG_CHASSIS_GPUS)
        abort();
    erg_thermal_steady(chassis, power_w, temperature_c);
    erg_thermal_begin(&state, chassis, NULL);
    erg_thermal_step(&state, power_w, 1);
    for (unsigned g = 0; g < chassis->gpus; g++)
        if (!isfinite(temperature_c[g]) || !isfinite(state.die_c[g]))
            abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static int file = -1;
    static char path[64];
    struct erg_error err;
    struct erg_gpu *gpu;
    struct erg_stack *stack;
    struct erg_engine *engine;
    struct erg_cluster *cluster;
    struct erg_chassis *chassis;
    struct erg_fleet *fleet;
    if (file < 0) {
        file = memfd_create("fuzz.yaml", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    if (erg_gpu_load(&gpu, path, &err) == 0) {
        check_gpu(gpu);
        (void)erg_gpu_fingerprint(gpu);
        erg_gpu_free(gpu);
    }
    if (erg_stack_load(&stack, path, &err) == 0) {
        (void)erg_stack_fingerprint(stack);
        erg_stack_free(stack);
    }
    if (erg_engine_load(&engine, path, &err) == 0) {
        if (!(engine->peak_flops > 0) || !(engine->gemm_efficiency > 0))
            abort();
        erg_engine_free(engine);
    }
    if (erg_cluster_load(&cluster, path, &err) == 0) {
        if (cluster->nodes < 1 || cluster->gpus_per_node < 1)
            abort();
        erg_cluster_free(cluster);
    }
    if (erg_chassis_load(&chassis, path, &err) == 0) {
        check_chassis(chassis);
        (void)erg_chassis_fingerprint(chassis);
        erg_chassis_free(chassis);
    }
    if (erg_fleet_load(&fleet, path, &err) == 0) {
        if (fleet->nodes < 1 || fleet->gpus < fleet->nodes ||
            fleet->types[0].points[0].slowdown != 1 ||
            !(fleet->types[0].off_power_w <= fleet->types[0].idle_power_w))
            abort();
        erg_fleet_free(fleet);
    }
    return 0;
}
