/* Jobs with only a submission, GPUs and a run time, as a trace. */
#include "cluster/traces/maker.h"

#include "base/memory.h"
#include "cluster/profiles_internal.h"
#include "io/csv.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All models of the profiles as workloads of an empty trace. */
static void add_workloads(struct erg_job_trace *trace, const struct erg_profiles *profiles)
{
    trace->workloads = erg_xcalloc(profiles->models.count, sizeof *trace->workloads);
    trace->workloads_count = profiles->models.count;
    for (size_t i = 0; i < profiles->models.count; i++) {
        const struct erg_profile_model *model = &profiles->models.items[i];
        trace->workloads[i] = (struct erg_trace_workload){erg_xstrdup(model->family),
                                                          erg_xstrdup(model->size), model->batch};
    }
}

int erg_trace_maker_init(struct erg_trace_maker *maker, const struct erg_fleet *fleet,
                         const char *folder, struct erg_error *err)
{
    struct erg_profiles profiles = {0};
    *maker =
        (struct erg_trace_maker){.fleet = fleet, .trace = erg_xcalloc(1, sizeof *maker->trace)};
    maker->trace->path = erg_xstrdup(folder);
    int result = erg_profiles_read(&profiles, folder, fleet, err);
    if (result == 0) {
        add_workloads(maker->trace, &profiles);
        result = erg_profiles_speeds(&maker->speeds, &profiles, fleet, maker->trace, NULL, err);
    }
    erg_profiles_release(&profiles);
    return result;
}

void erg_trace_maker_release(struct erg_trace_maker *maker)
{
    erg_speeds_free(maker->speeds);
    erg_job_trace_free(maker->trace);
}

double erg_trace_maker_iteration(const struct erg_trace_maker *maker, int workload, int type,
                                 int gpus)
{
    int shape = erg_speeds_best(maker->speeds, type, gpus);
    return shape < 0 ? INFINITY : erg_speed_at(maker->speeds, workload, shape)->iteration_s;
}

static int tenant_of(struct erg_job_trace *trace, const char *name)
{
    size_t index = 0;
    while (index < trace->tenants_count && strcmp(trace->tenants[index], name) != 0)
        index++;
    if (index == trace->tenants_count) {
        trace->tenants =
            erg_xrealloc(trace->tenants, ++trace->tenants_count, sizeof *trace->tenants);
        trace->tenants[index] = erg_xstrdup(name);
    }
    return (int)index;
}

void erg_trace_maker_add(struct erg_trace_maker *maker, const struct erg_made_job *made)
{
    struct erg_job_trace *trace = maker->trace;
    double iteration_s = erg_trace_maker_iteration(maker, made->workload, made->type, made->gpus);
    assert(isfinite(iteration_s));
    if (trace->count == maker->capacity) {
        maker->capacity = erg_grow_capacity(maker->capacity, trace->count + 1);
        trace->jobs = erg_xrealloc(trace->jobs, maker->capacity, sizeof *trace->jobs);
    }
    trace->jobs[trace->count++] = (struct erg_trace_job){
        .id = erg_xstrdup(made->id),
        .submit_s = made->submit_s,
        .deadline_s = made->deadline_s,
        .iterations = fmax(1, floor(made->duration_s / iteration_s)),
        .workload = made->workload,
        .tenant = tenant_of(trace, made->tenant),
        .type = made->type,
        .gpus = made->gpus,
        .line = made->line,
    };
}

static int compare_times(const void *a, const void *b)
{
    const struct erg_trace_job *x = a, *y = b;
    if (x->submit_s != y->submit_s)
        return x->submit_s < y->submit_s ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

void erg_trace_maker_finish(struct erg_trace_maker *maker)
{
    struct erg_job_trace *trace = maker->trace;
    if (trace->count > 0)
        qsort(trace->jobs, trace->count, sizeof *trace->jobs, compare_times);
    trace->first_submit_s = trace->count ? trace->jobs[0].submit_s : 0;
}

void erg_trace_maker_write(struct erg_text *out, const struct erg_trace_maker *maker)
{
    const struct erg_job_trace *trace = maker->trace;
    erg_text_add(out, "job_id,submit_time_s,num_iterations,model,param_num,deadline_s,"
                      "global_batch,num_gpus,gpu_type,tenant\n");
    for (size_t i = 0; i < trace->count; i++) {
        const struct erg_trace_job *job = &trace->jobs[i];
        const struct erg_trace_workload *workload = &trace->workloads[job->workload];
        erg_csv_add(out, job->id);
        erg_csv_add_double(out, job->submit_s);
        erg_csv_add_long(out, (long)job->iterations);
        erg_csv_add(out, workload->family);
        erg_csv_add(out, workload->size);
        erg_csv_add_double(out, job->deadline_s);
        erg_csv_add_long(out, workload->batch);
        erg_csv_add_long(out, job->gpus);
        erg_csv_add(out, maker->fleet->types[job->type].name);
        erg_csv_add(out, trace->tenants[job->tenant]);
        erg_csv_end_row(out);
    }
}
