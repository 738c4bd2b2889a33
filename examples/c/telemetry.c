/*
 * Measures what this program's GPUs use in two seconds, on all GPUs that CUDA would see.
 *
 *     cc telemetry.c $(pkg-config --cflags --libs ergon) -o telemetry && ./telemetry
 *
 * It is C++ as well: c++ -x c++ telemetry.c ...
 */
#include <ergon/ergon.h>
#include <stdio.h>
#include <unistd.h>

static void work(void)
{
    sleep(2); /* yours; wait here until the GPU has finished it */
}

int main(void)
{
    struct erg_error err;
    struct erg_meter *meter;
    struct erg_window_result result;
    result.size = sizeof result;
    if (erg_meter_open(&meter, NULL, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    struct erg_window *window = erg_window_begin(meter);
    work();
    if (erg_window_end(window, &result, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }

    printf("%.3f s, %.1f +- %.1f J\n", result.time_s, result.energy_j, result.uncertainty_j);
    for (size_t i = 0; i < result.gpus; i++) {
        const struct erg_window_gpu *gpu = &result.gpu[i];
        printf("GPU %d: %.1f +- %.1f J, mean %.0f W, peak %.0f W, %.0f C, %.2f s throttled\n",
               (int)i, gpu->energy_j, gpu->uncertainty_j, gpu->power_mean_w, gpu->power_peak_w,
               gpu->temperature_end_c, gpu->throttled_power_s + gpu->throttled_thermal_s);
    }
    erg_meter_close(meter);
    return 0;
}
