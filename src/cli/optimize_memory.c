/* The warning of ergon optimize for a job whose stages do not fit into memory. */
#include "cli/optimize_memory.h"

#include "base/log.h"
#include "job/layout.h"
#include "layout/memory/stage_memory.h"

static const struct erg_gpu *gpu_of_stage(const struct erg_job *job, long stage)
{
    return job->kind_count == 1 ? job->gpu : job->kinds[job->stage_kind[stage]].gpu;
}

static double usable_bytes(const struct erg_gpu *gpu)
{
    return ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes;
}

static void warn(const struct erg_job *job, const char *path,
                 const struct erg_memory_result *result)
{
    double most = 0;
    long worst = -1;
    for (long s = 0; s < result->count; s++) {
        double excess = result->stages[s].peak_bytes - usable_bytes(gpu_of_stage(job, s));
        if (excess > most) {
            most = excess;
            worst = s;
        }
    }
    if (worst < 0)
        return;
    const struct erg_gpu *gpu = gpu_of_stage(job, worst);
    erg_log(ERG_LOG_WARNING,
            "this will not fit into memory: stage %ld needs %.2f GiB, and a %s has %.2f GiB for "
            "it; \"ergon memory %s\" says what would help",
            worst, result->stages[worst].peak_bytes / 0x1p30, gpu->name, usable_bytes(gpu) / 0x1p30,
            path);
}

void erg_optimize_warn_of_memory(const struct erg_job *job, const char *path)
{
    struct erg_memory_result result = {0};
    struct erg_error err = {0};
    const struct erg_memory_request request = {.model = job->model, .layout = &job->layout};
    /* A layout that the memory model does not know is planned all the same. */
    if (erg_layout_check(&job->layout, job->model, &err) == 0 &&
        erg_memory_simulate(&result, &request, &err) == 0)
        warn(job, path, &result);
    else
        erg_log(ERG_LOG_INFO, "whether this fits into memory is not known: %s", err.message);
    erg_memory_result_release(&result);
}
