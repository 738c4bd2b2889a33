/* libFuzzer: any bytes as a job file. What is accepted must add up. */
#include "job/job.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_job *job;
    if (erg_job_parse(&job, "job.yaml", (const char *)data, size, NULL, &err) != 0)
        return 0;
    long layers = 0;
    for (int i = 0; i < job->layout.pipeline * job->layout.virtual_stages; i++)
        layers += erg_job_chunk_layers(job, (size_t)i);
    if (layers != job->model->layers || job->layout.sequence < 1 || job->layout.microbatches < 1)
        abort();
    erg_job_free(job);
    return 0;
}
