/* The two GPUs of the golden rows and the stacks, until the catalogue can be loaded. */
#ifndef ERGON_TESTS_GPU_LITERALS_H
#define ERGON_TESTS_GPU_LITERALS_H

#include "hardware/hardware.h"

static inline struct erg_gpu a100_40(void)
{
    static char name[] = "A100";
    return (struct erg_gpu){
        .name = name,
        .sms = 108,
        .clock_max_mhz = 1410,
        .clock_min_mhz = 210,
        .clock_step_mhz = 15,
        .flops_per_sm_clock = 2048,
        .memory_bandwidth = 1555e9,
        .link_bandwidth = 300e9,
        .board_power_w = 400,
        .memory_bytes = 40 * 0x1p30,
        .search_max_mhz = 1410,
        .search_min_mhz = 900,
        .search_step_mhz = 30,
        .gemm_efficiency = 0.79331,
        .gemm_k0 = 179.63,
        .wave_weight = 0.54493,
        .attention_forward = 0.39703,
        .attention_backward = 0.33338,
        .memory_efficiency = 0.69018,
        .memory_issue = 1.119,
        .launch_gap_s = 6.6493e-6,
        .head_gemm_factor = 0.64802,
        .comm_sm_rate = 39.921e9,
        .comm_link_factor = 0.70957,
        .comm_latency_s = 15e-6,
        .comm_blend = 3,
        .comm_clock_power = 0.47746,
        .comm_contention = 0.12548,
        .comm_sm_share = 0.41595,
        .comm_hbm_per_wire = 1.2,
        .persistent_gemm = 0,
        .static_power_w = 60,
        .active_power_w = 69.95,
        .energy_per_flop_j = 1.0212e-12,
        .energy_per_hbm_byte_j = 32.107e-12,
        .energy_per_wire_byte_j = 49.208e-12,
        .spin_power_w = 0.99216,
        .voltage_knee_mhz = 1175.2,
        .voltage_slope_per_ghz = 0.93029,
        .voltage_slope_low_per_ghz = 0.09,
        .power_cap_w = 394,
        .cap_softness_mhz = 16,
        .cap_dither_mhz = 30,
        .blocking_power_w = 85,
        .idle_power_w = 50,
        .thermal_resistance_k_per_w = 0.08,
        .thermal_time_s = 2,
        .ambient_c = 28,
        .reference_c = 55,
        .leak_per_k = 0.012,
        .sensor_period_s = 0.1,
    };
}

static inline struct erg_gpu h200(void)
{
    static char name[] = "H200";
    return (struct erg_gpu){
        .name = name,
        .sms = 132,
        .clock_max_mhz = 1980,
        .clock_min_mhz = 345,
        .clock_step_mhz = 15,
        .flops_per_sm_clock = 4096,
        .memory_bandwidth = 4800e9,
        .link_bandwidth = 450e9,
        .board_power_w = 700,
        .memory_bytes = 141e9,
        .search_max_mhz = 1980,
        .search_min_mhz = 1200,
        .search_step_mhz = 30,
        .gemm_efficiency = 0.71829,
        .gemm_k0 = 64,
        .wave_weight = 0.5,
        .attention_forward = 0.5,
        .attention_backward = 0.4,
        .memory_efficiency = 0.99834,
        .memory_issue = 1.3,
        .launch_gap_s = 2.8477e-6,
        .head_gemm_factor = 1,
        .comm_sm_rate = 25.067e9,
        .comm_link_factor = 0.81204,
        .comm_latency_s = 30.927e-6,
        .comm_blend = 3.5968,
        .comm_clock_power = 0,
        .comm_contention = 0.3394,
        .comm_sm_share = 1.8117,
        .comm_hbm_per_wire = 1.7213,
        .persistent_gemm = 1,
        .static_power_w = 120,
        .active_power_w = 20.086,
        .energy_per_flop_j = 0.62983e-12,
        .energy_per_hbm_byte_j = 35.828e-12,
        .energy_per_wire_byte_j = 286.3e-12,
        .spin_power_w = 0.24572,
        .voltage_knee_mhz = 1200,
        .voltage_slope_per_ghz = 0.42879,
        .voltage_slope_low_per_ghz = 0,
        .power_cap_w = 693.75,
        .cap_softness_mhz = 15,
        .cap_dither_mhz = 20,
        .blocking_power_w = 125,
        .idle_power_w = 79,
        .thermal_resistance_k_per_w = 0.052,
        .thermal_time_s = 3,
        .ambient_c = 28,
        .reference_c = 64,
        .leak_per_k = 0.012,
        .sensor_period_s = 0.092,
    };
}

static inline struct erg_gpu a100_80(void)
{
    static char name[] = "A100-80";
    return (struct erg_gpu){.name = name,
                            .clock_max_mhz = 1410,
                            .cap_dither_mhz = 30,
                            .curve = {60, 1108, 1.031, 0.075, 475, 15.4}};
}

static inline struct erg_gpu a40(void)
{
    static char name[] = "A40";
    return (struct erg_gpu){.name = name,
                            .clock_max_mhz = 1740,
                            .cap_dither_mhz = 30,
                            .curve = {40, 1137, 0.571, 0.123, 290.6, 37.9}};
}

static inline struct erg_stack published_stack(void)
{
    static char name[] = "published-python";
    return (struct erg_stack){.name = name,
                              .join_grid_s = 270.74e-6,
                              .join_library_s = 355.31e-6,
                              .host_per_kernel_s = 127.6e-6,
                              .library_link_factor = 0.85975,
                              .library_sm_share = 0.97152,
                              .library_blocks = 32,
                              .kv_exchange_factor = 2.6019,
                              .overhead = 0.067947};
}

static inline struct erg_stack plain_stack(void)
{
    static char name[] = "plain";
    return (struct erg_stack){.name = name, .library_blocks = 32};
}

#endif
