/*
 * A job file with another key, checked: job JOB.yaml [KEY VALUE]
 *
 *     cc job.c $(pkg-config --cflags --libs ergon) -o job && ./job job.yaml microbatches 16
 */
#include <ergon/job.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_job *job;
    struct erg_job_info info = {.size = sizeof info};
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: job JOB.yaml [KEY VALUE]\n");
        return 2;
    }
    if (erg_job_open(&job, argv[1], &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    if ((argc > 2 && erg_job_set(&job, argv[2], argv[3], &err) != 0) ||
        erg_job_info(job, &info, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        erg_job_free(job);
        return err.status;
    }
    printf("%s: %s on %d %s\n", info.name, info.model, (int)info.gpus, info.gpu);
    printf("tensor %d, context %d, pipeline %d, data %d, %d sequences of %d tokens\n",
           (int)info.tensor, (int)info.context, (int)info.pipeline, (int)info.data, (int)info.batch,
           (int)info.sequence);
    if (erg_job_check(job, &err) == 0)
        printf("it can run as it is\n");
    else
        printf("it cannot run as it is: %s\n", err.message);
    erg_job_free(job);
    return 0;
}
