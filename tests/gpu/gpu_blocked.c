/*
 * The first GPU of a device waits for the other in a collective while that one's host keeps it
 * back, and what it draws meanwhile can be measured.
 */
#include "decoder_mesh.h"
#include "device/profiler.h"
#include "device/real.h"

static void report(bool good, const char *what)
{
    printf("%s %s\n", good ? "ok    " : "FAILED", what);
    gpu_failures += !good;
}

static void check_stagger(struct erg_device *device, const struct erg_step *step)
{
    const int64_t delay_ns = 500000000;
    struct erg_device_span first, other;
    erg_device_begin(device, 1);
    gpu_ok(erg_device_stagger(device, step, 1, delay_ns, &gpu_error));
    gpu_ok(erg_device_sync(device, &gpu_error));
    gpu_ok(erg_device_span(device, 0, 0, &first, &gpu_error));
    gpu_ok(erg_device_span(device, 0, 1, &other, &gpu_error));
    printf("GPU 0 ran for %.1f ms, GPU 1 began %.1f ms after it and ran for %.1f ms\n",
           1e-6 * (double)(first.end_ns - first.start_ns),
           1e-6 * (double)(other.start_ns - first.start_ns),
           1e-6 * (double)(other.end_ns - other.start_ns));
    report(other.start_ns - first.start_ns > delay_ns / 2, "the other GPU begins later");
    report(first.end_ns > other.start_ns, "the first one waits for it");
}

static void check_power(struct erg_device *device, const struct erg_step *step)
{
    struct erg_profile_options options = erg_profile_options_default();
    struct erg_measurement rest, waiting;
    options.window_s = 0.6;
    gpu_ok(erg_profile_rest(device, step, 1, 0.2, &options, 1, &rest, &gpu_error));
    gpu_ok(erg_profile_waiting(device, step, 1, &options, 1, &waiting, &gpu_error));
    printf("at rest %.1f W at %.0f MHz, waiting %.1f W at %.0f MHz\n", rest.energy_j,
           rest.clock_mhz, waiting.energy_j, waiting.clock_mhz);
    /* One block that spins is little beside a GPU at work. */
    report(waiting.energy_j > 0.8 * rest.energy_j && waiting.energy_j < 3 * rest.energy_j,
           "waiting draws about what rest does");
}

int main(void)
{
    struct gpu_world world;
    if (!gpu_is_rank(&world)) {
        gpu_rank_count(); /* leaves where there are no two */
        return gpu_run_ranks(2, NULL);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct erg_real_request request = {
        .model = &test_model,
        .tensor = 2,
        .context = 1,
        .layers = 1,
        .sequences = SEQUENCES,
        .sequence = SEQUENCE,
        .seed = 1,
    };
    struct erg_workload_request workload_request = {
        .model = &test_model,
        .gpu = &test_gpu,
        .stack = &test_stack,
        .tensor = 2,
        .context = 1,
        .microbatch_size = SEQUENCES,
        .sequence = SEQUENCE,
    };
    struct erg_workload workload;
    struct erg_real *real;
    gpu_ok(erg_workload_build(&workload, &workload_request, &gpu_error));
    gpu_ok(erg_real_open(&real, &request, &gpu_error));
    struct erg_device *device = erg_real_device(real);
    if (device) { /* rank 0 */
        struct erg_step step = erg_partition_step(&workload.partitions[0], 0, 1);
        check_stagger(device, &step);
        check_power(device, &step);
    }
    erg_real_close(real);
    erg_workload_release(&workload);
    return gpu_result();
}
