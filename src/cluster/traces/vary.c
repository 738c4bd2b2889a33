/* Traces like another one: at another load, or resampled. */
#include "cluster/traces/vary.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>

/* ---- copying ---- */

static char **copy_texts(char *const *texts, size_t count)
{
    char **copies = erg_xcalloc(count, sizeof *copies);
    for (size_t i = 0; i < count; i++)
        copies[i] = erg_xstrdup(texts[i]);
    return copies;
}

/* All but the jobs. */
static struct erg_job_trace *copy_frame(const struct erg_job_trace *trace)
{
    struct erg_job_trace *copy = erg_xcalloc(1, sizeof *copy);
    *copy = *trace;
    copy->path = erg_xstrdup(trace->path);
    copy->jobs = erg_xcalloc(trace->count, sizeof *copy->jobs);
    copy->workloads = erg_xcalloc(trace->workloads_count, sizeof *copy->workloads);
    for (size_t i = 0; i < trace->workloads_count; i++) {
        const struct erg_trace_workload *workload = &trace->workloads[i];
        copy->workloads[i] = (struct erg_trace_workload){
            erg_xstrdup(workload->family), erg_xstrdup(workload->size), workload->batch};
    }
    copy->tenants = copy_texts(trace->tenants, trace->tenants_count);
    return copy;
}

/* ---- the bootstrap ---- */

struct arrival {
    size_t job;
    double submit_s, gap_s; /* since the submission before it */
};

static int compare_arrivals(const void *a, const void *b)
{
    const struct arrival *x = a, *y = b;
    if (x->submit_s != y->submit_s)
        return x->submit_s < y->submit_s ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

/* Gaps in the order of submission. The first job has no gap before it and gets the mean gap. */
static struct arrival *read_arrivals(const struct erg_job_trace *trace)
{
    size_t count = trace->count;
    struct arrival *arrivals = erg_xcalloc(count, sizeof *arrivals);
    for (size_t i = 0; i < count; i++)
        arrivals[i] = (struct arrival){i, trace->jobs[i].submit_s, 0};
    qsort(arrivals, count, sizeof *arrivals, compare_arrivals);
    for (size_t i = 1; i < count; i++)
        arrivals[i].gap_s = arrivals[i].submit_s - arrivals[i - 1].submit_s;
    if (count > 1)
        arrivals[0].gap_s =
            (arrivals[count - 1].submit_s - arrivals[0].submit_s) / (double)(count - 1);
    return arrivals;
}

static void resample(struct erg_job_trace *copy, const struct erg_job_trace *trace, uint64_t seed)
{
    struct arrival *arrivals = read_arrivals(trace);
    double run_jobs = ceil(cbrt((double)trace->count)), now_s = trace->first_submit_s;
    struct erg_rng rng;
    erg_rng_seed(&rng, seed);
    size_t at = erg_rng_below(&rng, trace->count);
    for (size_t i = 0; i < trace->count; i++) {
        if (i > 0) {
            bool ends = erg_rng_uniform(&rng) * run_jobs < 1;
            at = ends ? erg_rng_below(&rng, trace->count) : (at + 1) % trace->count;
            now_s += arrivals[at].gap_s;
        }
        const struct erg_trace_job *job = &trace->jobs[arrivals[at].job];
        struct erg_text id = {0};
        erg_text_printf(&id, "%s@%zu", job->id, i + 1);
        copy->jobs[i] = *job;
        copy->jobs[i].id = id.data;
        copy->jobs[i].submit_s = now_s;
        copy->jobs[i].deadline_s = now_s + (job->deadline_s - job->submit_s);
    }
    copy->inversions = 0;
    free(arrivals);
}

/* ---- the load ---- */

static void set_load(struct erg_job_trace *trace, double load)
{
    for (size_t i = 0; i < trace->count; i++) {
        struct erg_trace_job *job = &trace->jobs[i];
        double slack_s = job->deadline_s - job->submit_s;
        job->submit_s = trace->first_submit_s + (job->submit_s - trace->first_submit_s) / load;
        job->deadline_s = job->submit_s + slack_s;
    }
}

struct erg_job_trace *erg_job_trace_vary(const struct erg_job_trace *trace,
                                         const struct erg_trace_variation *variation)
{
    struct erg_job_trace *copy = copy_frame(trace);
    if (variation->resample) {
        resample(copy, trace, variation->seed);
    } else {
        for (size_t i = 0; i < trace->count; i++) {
            copy->jobs[i] = trace->jobs[i];
            copy->jobs[i].id = erg_xstrdup(trace->jobs[i].id);
        }
    }
    set_load(copy, variation->load);
    return copy;
}
