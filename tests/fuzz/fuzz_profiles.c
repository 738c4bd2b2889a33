/* libFuzzer: any bytes as prof_optimal.csv. What runs has a time and points that slow it down. */
#include "cluster/profiles_internal.h"
#include "shared_maker.h"

static void check_speed(const struct erg_speed *speed)
{
    if (!erg_speed_feasible(speed))
        return;
    if (!(speed->iteration_s > 0) || isinf(speed->iteration_s) || speed->points_count < 1 ||
        speed->points[0].slowdown != 1)
        abort();
    for (int i = 1; i < speed->points_count; i++)
        if (!(speed->points[i].slowdown >= speed->points[i - 1].slowdown))
            abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_trace_workload workload = {.batch = 128};
    char family[] = "Llama-3.2-1B", parameters[] = "1.24B";
    workload.family = family;
    workload.size = parameters;
    const struct erg_job_trace trace = {.workloads = &workload, .workloads_count = 1};
    struct erg_profiles profiles = {0};
    struct erg_speeds *speeds;
    struct erg_error err;
    if (erg_profiles_parse(&profiles, "fuzz", (const char *)data, size, shared_fleet(), &err) ==
            0 &&
        erg_profiles_speeds(&speeds, &profiles, shared_fleet(), &trace, NULL, &err) == 0) {
        for (int shape = 0; shape < speeds->shapes_count; shape++)
            check_speed(erg_speed_at(speeds, 0, shape));
        erg_speeds_free(speeds);
    }
    erg_profiles_release(&profiles);
    return 0;
}
