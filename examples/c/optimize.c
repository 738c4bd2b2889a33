/*
 * A job's plan, with progress on standard error: optimize JOB.yaml FOLDER
 *
 *     cc optimize.c $(pkg-config --cflags --libs ergon) -o optimize && ./optimize job.yaml out
 */
#include <ergon/optimize.h>
#include <stdio.h>

static void progress(void *context, const char *task, size_t done, size_t total)
{
    (void)context;
    fprintf(stderr, "%s: %d of %d\n", task, (int)done, (int)total);
}

static int print(const struct erg_plan *plan, struct erg_error *err)
{
    struct erg_plan_info info = {.size = sizeof info};
    if (erg_plan_info(plan, &info, err) != 0)
        return -1;
    printf("%s: %.4f s, %.1f J an iteration\n", info.method, info.time_s, info.energy_j);
    for (size_t i = 0; i < (size_t)info.points; i++) {
        struct erg_plan_point_info point = {.size = sizeof point};
        if (erg_plan_point(plan, NULL, i, &point, err) != 0)
            return -1;
        printf("%3d %8.4f s %9.1f J %7.1f W\n", (int)i + 1, point.time_s, point.energy_j,
               point.power_w);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_job *job;
    struct erg_plan *plan;
    struct erg_watch watch = {.size = sizeof watch, .progress = progress};
    struct erg_optimize_options options = {.size = sizeof options, .watch = &watch};
    if (argc != 3) {
        fprintf(stderr, "usage: optimize JOB.yaml FOLDER\n");
        return 2;
    }
    options.folder = argv[2];
    if (erg_job_open(&job, argv[1], &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    int status = erg_optimize_job(&plan, job, &options, &err);
    if (status == 0) {
        status = print(plan, &err);
        erg_plan_free(plan);
    }
    if (status != 0)
        fprintf(stderr, "%s\n", err.message);
    erg_job_free(job);
    return status ? (int)err.status : 0;
}
