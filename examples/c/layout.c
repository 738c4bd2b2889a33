/*
 * The fastest ways to spread a job over so many GPUs: layout JOB.yaml GPUS
 *
 *     cc layout.c $(pkg-config --cflags --libs ergon) -o layout && ./layout job.yaml 64
 */
#include <ergon/layout.h>
#include <stdio.h>

static int print(const struct erg_layouts *layouts, struct erg_error *err)
{
    for (size_t i = 0; i < erg_layouts_count(layouts); i++) {
        struct erg_layouts_row row = {.size = sizeof row};
        if (erg_layouts_row(layouts, i, &row, err) != 0)
            return -1;
        printf("%-24s %8.4f s %10.1f J %6.1f %% of peak %8.2f GiB, recompute %s\n", row.name,
               row.time_s, row.energy_j, 100 * row.mfu, row.peak_bytes / 0x1p30, row.recompute);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_job *job;
    struct erg_layouts *layouts;
    struct erg_layouts_options options = {.size = sizeof options, .top = 5};
    if (argc != 3) {
        fprintf(stderr, "usage: layout JOB.yaml GPUS\n");
        return 2;
    }
    options.gpus = argv[2];
    if (erg_job_open(&job, argv[1], &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    int status = erg_layouts_find(&layouts, job, &options, &err);
    if (status == 0) {
        status = print(layouts, &err);
        erg_layouts_free(layouts);
    }
    if (status != 0)
        fprintf(stderr, "%s\n", err.message);
    erg_job_free(job);
    return status ? (int)err.status : 0;
}
