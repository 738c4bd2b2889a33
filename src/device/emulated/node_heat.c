/* The hottest GPU of a chassis, for devices that have one temperature. */
#include "device/emulated/device_internal.h"

struct erg_node_heat erg_node_heat(const struct erg_chassis *chassis, const struct erg_gpu *gpu)
{
    double power_w[ERG_CHASSIS_GPUS], temperature_c[ERG_CHASSIS_GPUS];
    double k_per_w[ERG_CHASSIS_GPUS * ERG_CHASSIS_GPUS], resistance = 0, delayed = 0;
    unsigned hottest = 0;
    if (!chassis)
        return (struct erg_node_heat){.limit = NULL};
    for (unsigned g = 0; g < chassis->gpus; g++)
        power_w[g] = gpu->power_cap_w;
    const double fan_speed = erg_thermal_steady(chassis, power_w, temperature_c);
    for (unsigned g = 1; g < chassis->gpus; g++)
        if (temperature_c[g] > temperature_c[hottest])
            hottest = g;
    erg_thermal_matrix(chassis, fan_speed, k_per_w);
    for (unsigned g = 0; g < chassis->gpus; g++) {
        const double rise = k_per_w[hottest * chassis->gpus + g];
        const bool same = chassis->slots[g].sink == chassis->slots[hottest].sink;
        resistance += rise;
        /* Heat in the air has already passed another heat sink. */
        delayed += (same ? 1 : 2) * (rise - (g == hottest ? chassis->slots[g].die_k_per_w : 0));
    }
    const double die_k_per_w = chassis->slots[hottest].die_k_per_w;
    struct erg_node_heat node = {
        .limit = &chassis->limit,
        .die_k_per_w = die_k_per_w,
        .sink_k_per_w = resistance - die_k_per_w,
        .die_j_per_k = chassis->die_time_s / die_k_per_w,
        .sink_j_per_k = chassis->sink_time_s * delayed / pow(resistance - die_k_per_w, 2),
        .air_c = temperature_c[hottest] - resistance * gpu->power_cap_w,
    };
    double soaking_w = gpu->power_cap_w;
    if (chassis->limit.law == ERG_HEAT_HOLD)
        soaking_w = fmin(soaking_w, (chassis->limit.hold_c - node.air_c) / resistance);
    soaking_w = fmax(soaking_w, 0);
    node.soaked_sink_c = node.air_c + node.sink_k_per_w * soaking_w;
    node.soaked_die_c = node.soaked_sink_c + node.die_k_per_w * soaking_w;
    return node;
}
