/*
 * What each stage of a job needs, and what would make it fit: memory JOB.yaml
 *
 *     cc memory.c $(pkg-config --cflags --libs ergon) -o memory && ./memory job.yaml
 */
#include <ergon/memory.h>
#include <stdio.h>

static int print(const struct erg_memory *memory, struct erg_error *err)
{
    struct erg_memory_info info = {.size = sizeof info};
    if (erg_memory_info(memory, &info, err) != 0)
        return -1;
    for (size_t i = 0; i < (size_t)info.stages; i++) {
        struct erg_memory_stage_info stage = {.size = sizeof stage};
        if (erg_memory_stage(memory, i, &stage, err) != 0)
            return -1;
        printf("stage %d: %d layers, %.2f of %.2f GiB, %.2f of them activations\n", (int)i,
               (int)stage.layers, stage.peak_bytes / 0x1p30, stage.gpu_bytes / 0x1p30,
               stage.activations_bytes / 0x1p30);
    }
    printf("%s\n", info.fits && info.host_fits ? "it fits" : info.change);
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_job *job;
    struct erg_memory *memory;
    if (argc != 2) {
        fprintf(stderr, "usage: memory JOB.yaml\n");
        return 2;
    }
    if (erg_job_open(&job, argv[1], &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    int status = erg_memory_find(&memory, job, NULL, &err);
    if (status == 0) {
        status = print(memory, &err);
        erg_memory_free(memory);
    }
    if (status != 0)
        fprintf(stderr, "%s\n", err.message);
    erg_job_free(job);
    return status ? (int)err.status : 0;
}
