/* Reports of jobs, measurements, and the stored state of measurements and policies. */
#include "cluster/schedule/scheduler_internal.h"

#include <math.h>
#include <string.h>

/* ---- progress ---- */

static bool is_sane(const struct erg_scheduler *scheduler, const struct erg_progress_report *report)
{
    return report->at_s <= scheduler->now_s && report->iteration >= 0 && report->checkpoint >= 0 &&
           report->checkpoint <= report->iteration && report->due_s >= 0;
}

/* A new speed of a job that reports: applies to its account at once, and to its workload as the
 * mean of all. */
static void believe(struct erg_scheduler *scheduler, int id, double iteration_s)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    int workload = job->request->workload, point = erg_scheduler_point(scheduler, id);
    struct erg_speeds *speeds = scheduler->live->speeds;
    if (erg_speeds_measure(speeds, workload, job->shape, point, iteration_s, 1))
        scheduler->course->stale = true;
    scheduler->works[id].iteration_s =
        erg_speeds_clip(speeds, workload, job->shape, point, iteration_s);
}

void erg_scheduler_report(struct erg_scheduler *scheduler, int id,
                          const struct erg_progress_report *report)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    struct erg_work *work = &scheduler->works[id];
    if (!is_sane(scheduler, report))
        return;
    if (job->state != ERG_JOB_RUNNING) {
        work->remaining = work->saved = fmax(0, work->iterations - report->checkpoint);
        return;
    }
    if (report->at_s < work->since_s || (work->reported && report->at_s < work->reported_s))
        return;
    work->remaining = fmax(0, work->iterations - report->iteration);
    work->saved = fmax(0, work->iterations - report->checkpoint);
    work->saved_s = work->reported_s = report->at_s;
    work->resume_s = fmin(work->resume_s, report->at_s);
    work->due_s = report->at_s + report->due_s;
    work->reported = true;
    if (report->iteration_s > 0 && !isinf(report->iteration_s))
        believe(scheduler, id, report->iteration_s);
}

void erg_scheduler_restarted(struct erg_scheduler *scheduler, int id, double took_s)
{
    const struct erg_cluster_job *job = &scheduler->jobs[id];
    struct erg_restart_times *restarts = scheduler->restarts;
    if (job->state != ERG_JOB_RUNNING || !(took_s >= 0) || isinf(took_s))
        return;
    bool first = job->reconfigurations == 1;
    int type = scheduler->speeds->shapes[job->shape].type;
    struct erg_time_sum *sums[] = {first ? &restarts->starts[type] : &restarts->again[type],
                                   first ? NULL : &restarts->of_jobs[id]};
    for (int i = 0; i < 2 && sums[i]; i++) {
        sums[i]->sum_s += took_s;
        sums[i]->count++;
    }
    scheduler->works[id].resume_s = fmin(scheduler->works[id].resume_s, scheduler->now_s);
}

void erg_scheduler_measured(struct erg_scheduler *scheduler, int workload, int shape, int point,
                            double iteration_s, double count)
{
    if (erg_speeds_measure(scheduler->live->speeds, workload, shape, point, iteration_s, count))
        scheduler->course->stale = true;
}

/* ---- stored state ---- */

static json_t *pack_times(const struct erg_time_sum *times)
{
    return erg_json_pack("{s:f,s:I}", "sum_s", times->sum_s, "count", (json_int_t)times->count);
}

static void read_times(const json_t *saved, struct erg_time_sum *times)
{
    double sum_s = json_number_value(json_object_get(saved, "sum_s"));
    long count = (long)json_integer_value(json_object_get(saved, "count"));
    if (sum_s >= 0 && count > 0)
        *times = (struct erg_time_sum){sum_s, count};
}

json_t *erg_scheduler_save(const struct erg_scheduler *scheduler)
{
    const struct erg_policy *policy = scheduler->policy;
    const struct erg_restart_times *restarts = scheduler->restarts;
    json_t *told = json_array(), *jobs = json_object(), *types = json_object();
    for (size_t i = 0; i < scheduler->jobs_count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[i];
        if (job->told && (job->state == ERG_JOB_WAITING || job->state == ERG_JOB_RUNNING))
            json_array_append_new(told, erg_json_new_string(job->request->id));
        if (restarts->of_jobs[i].count > 0 && job->state != ERG_JOB_ENDED)
            json_object_set_new(jobs, job->request->id, pack_times(&restarts->of_jobs[i]));
    }
    for (unsigned t = 0; t < scheduler->fleet->types_count; t++)
        json_object_set_new(types, scheduler->fleet->types[t].name,
                            erg_json_pack("{s:o,s:o}", "starts", pack_times(&restarts->starts[t]),
                                          "again", pack_times(&restarts->again[t])));
    return erg_json_pack("{s:s,s:o,s:o,s:o,s:o}", "policy", policy->name, "told", told, "restarts",
                         jobs, "types", types, "state",
                         policy->save && scheduler->course->opened
                             ? policy->save(scheduler->policy_state, scheduler)
                             : json_null());
}

static void load_restarts(struct erg_scheduler *scheduler, const json_t *saved)
{
    const json_t *jobs = json_object_get(saved, "restarts");
    const json_t *types = json_object_get(saved, "types");
    for (size_t i = 0; i < scheduler->jobs_count; i++)
        read_times(json_object_get(jobs, scheduler->jobs[i].request->id),
                   &scheduler->restarts->of_jobs[i]);
    for (unsigned t = 0; t < scheduler->fleet->types_count; t++) {
        const json_t *type = json_object_get(types, scheduler->fleet->types[t].name);
        read_times(json_object_get(type, "starts"), &scheduler->restarts->starts[t]);
        read_times(json_object_get(type, "again"), &scheduler->restarts->again[t]);
    }
}

/* Jobs that were reported to the policy do not arrive again. */
static void recognize(struct erg_scheduler *scheduler, const json_t *told)
{
    struct erg_job_ids *arrived = &scheduler->course->arrived;
    struct erg_name_table names = {0};
    size_t kept = 0;
    for (size_t i = 0; i < json_array_size(told); i++) {
        const char *name = json_string_value(json_array_get(told, i));
        if (name)
            erg_name_add(&names, name);
    }
    for (size_t i = 0; i < arrived->count; i++) {
        struct erg_cluster_job *job = &scheduler->jobs[arrived->items[i]];
        job->told = erg_name_find(&names, job->request->id) < names.count;
        if (!job->told)
            arrived->items[kept++] = job->id;
    }
    arrived->count = kept;
    erg_name_table_release(&names);
}

void erg_scheduler_load(struct erg_scheduler *scheduler, const json_t *saved)
{
    const struct erg_policy *policy = scheduler->policy;
    const char *name = json_string_value(json_object_get(saved, "policy"));
    const json_t *state = json_object_get(saved, "state");
    load_restarts(scheduler, saved);
    if (!name || strcmp(name, policy->name) != 0)
        return;
    recognize(scheduler, json_object_get(saved, "told"));
    scheduler->course->stale = true;
    erg_course_open(scheduler);
    if (policy->load && !json_is_null(state))
        policy->load(scheduler->policy_state, scheduler, state);
}
