/* ergon/job.h: a job as a program opens it, for layouts yet to be chosen, and sets its keys. */
#include "ergon/job.h"

#include "base/call.h"
#include "base/sized.h"
#include "io/file.h"
#include "io/yaml.h"
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

static const struct erg_job_overrides any_layout = {.any_layout = true};

struct job_opening {
    struct erg_job **job;
    const char *name, *text; /* NULL: read the file */
    size_t length;
};

static int open_job(void *argument, struct erg_error *err)
{
    const struct job_opening *at = argument;
    return at->text ? erg_job_parse(at->job, at->name, at->text, at->length, &any_layout, err)
                    : erg_job_load(at->job, at->name, &any_layout, err);
}

int erg_job_open(struct erg_job **job, const char *path, struct erg_error *err)
{
    struct job_opening at = {.job = job, .name = path};
    return erg_call_run(open_job, &at, NULL, err);
}

int erg_job_open_text(struct erg_job **job, const char *name, const char *text, size_t length,
                      struct erg_error *err)
{
    struct job_opening at = {job, name, text, length};
    return erg_call_run(open_job, &at, NULL, err);
}

/* ---- keys ---- */

struct setting {
    struct erg_job *old, *changed;
    const char *key, *value;
};

static int set_key(void *argument, struct erg_error *err)
{
    struct setting *at = argument;
    const struct erg_job *job = at->old;
    struct erg_yaml *yaml;
    struct erg_text text = {0};
    if (erg_yaml_open_text(&yaml, job->path, job->text, job->text_length, err) != 0)
        return -1;
    int status = erg_yaml_set(&text, yaml, at->key, at->value, err);
    if (status == 0)
        status = erg_job_parse(&at->changed, job->path, text.data, text.count, &any_layout, err);
    erg_text_release(&text);
    erg_yaml_close(yaml);
    return status;
}

int erg_job_set(struct erg_job **job, const char *key, const char *value, struct erg_error *err)
{
    struct setting at = {.old = *job, .key = key, .value = value};
    if (erg_call_run(set_key, &at, NULL, err) != 0)
        return -1;
    erg_job_free(at.old);
    *job = at.changed;
    return 0;
}

const char *erg_job_text(const struct erg_job *job)
{
    return job->text;
}

/* ---- what it is ---- */

static int check_own_layout(void *argument, struct erg_error *err)
{
    const struct erg_job *job = argument;
    struct erg_job *own;
    if (erg_job_parse(&own, job->path, job->text, job->text_length, NULL, err) != 0)
        return -1;
    const int status = erg_layout_check(&own->layout, own->model, err);
    erg_job_free(own);
    return status;
}

int erg_job_check(const struct erg_job *job, struct erg_error *err)
{
    return erg_call_run(check_own_layout, (void *)(uintptr_t)job, NULL, err);
}

int erg_job_info(const struct erg_job *job, struct erg_job_info *info, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    struct erg_job_info own = {
        .name = job->name,
        .model = job->model->name,
        .gpu = job->gpu->name,
        .stack = job->stack->name,
        .engine = job->engine ? job->engine->name : NULL,
        .recompute = erg_layout_recompute_name(layout),
        .kinds = (int64_t)job->kind_count,
        .tensor = layout->tensor,
        .context = layout->context,
        .pipeline = layout->pipeline,
        .data = layout->data,
        .virtual_stages = layout->virtual_stages,
        .microbatch_size = layout->microbatch,
        .microbatches = layout->microbatches,
        .sequence = layout->sequence,
        .batch = erg_layout_batch(layout),
        .offload = layout->offload,
        .expert = erg_layout_experts(layout),
    };
    for (size_t k = 0; k < job->kind_count; k++)
        own.gpus += erg_cluster_gpus(job->kinds[k].nodes);
    return erg_sized_give(info, &own, sizeof own, "erg_job_info", err);
}
