/* Sweeps: the jobs that were not served in some points, each listed once. */
#include "cluster/sweep/sweep_internal.h"

#include "base/memory.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

static const struct erg_sweep_inputs *inputs_of(const struct erg_sweep *sweep, unsigned cluster,
                                                unsigned trace)
{
    return &sweep->inputs[(size_t)cluster * sweep->traces_count + trace];
}

static int compare_lines(const void *a, const void *b)
{
    const struct erg_trace_job *x = a, *y = b;
    return (x->line > y->line) - (x->line < y->line);
}

/* Jobs drawn by a seed have the lines of the jobs that they copy. */
static int find_job(const struct erg_job_trace *trace, const json_t *line)
{
    const struct erg_trace_job key = {.line = (size_t)json_integer_value(line)};
    const struct erg_trace_job *job =
        bsearch(&key, trace->jobs, trace->count, sizeof *trace->jobs, compare_lines);
    return job ? (int)(job - trace->jobs) : -1;
}

static int find_fate(const json_t *name)
{
    const char *text = json_string_value(name);
    int fate = ERG_UNSERVED_FATES;
    while (fate-- > 0)
        if (text && !strcmp(erg_unserved_names[fate], text))
            break;
    return fate;
}

void erg_sweep_unserved_read(struct sweep_unserved *list, const struct erg_sweep *sweep,
                             const struct erg_sweep_point *point, const json_t *summary)
{
    const struct erg_job_trace *trace = inputs_of(sweep, point->cluster, point->trace)->trace;
    const json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(summary, "unserved"), i, entry)
    {
        struct sweep_unserved_job job = {.cluster = point->cluster,
                                         .trace = point->trace,
                                         .cap = point->cap,
                                         .policy = point->policy,
                                         .job = find_job(trace, json_object_get(entry, "line")),
                                         .fate = find_fate(json_object_get(entry, "fate"))};
        if (job.job >= 0 && job.fate >= 0)
            ERG_PUSH(list, items, job);
    }
}

static int compare_jobs(const void *a, const void *b)
{
    const struct sweep_unserved_job *x = a, *y = b;
    const long keys[][2] = {{x->cluster, y->cluster}, {x->cap, y->cap},       {x->trace, y->trace},
                            {x->job, y->job},         {x->policy, y->policy}, {x->fate, y->fate}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

void erg_sweep_unserved_settle(struct sweep_unserved *list)
{
    size_t kept = 0;
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, compare_jobs);
    for (size_t i = 0; i < list->count; i++)
        if (i == 0 || compare_jobs(&list->items[i], &list->items[kept - 1]) != 0)
            list->items[kept++] = list->items[i];
    list->count = kept;
}

static json_t *job_document(const struct sweep_unserved_job *job, const struct erg_sweep *sweep)
{
    const struct erg_sweep_inputs *inputs = inputs_of(sweep, job->cluster, job->trace);
    const struct erg_trace_job *request = &inputs->trace->jobs[job->job];
    const char *policy = sweep->policies[job->policy];
    struct erg_text message = {0};
    erg_unserved_text(&message, &(struct erg_unserved){job->job, (enum erg_unserved_fate)job->fate},
                      inputs->trace, inputs->fleet, policy);
    json_t *document = erg_json_pack("{s:s, s:s, s:s, s:I, s:s, s:s}", "policy", policy, "trace",
                                     sweep->traces[job->trace], "job", request->id, "line",
                                     (json_int_t)request->line, "fate",
                                     erg_unserved_names[job->fate], "message", message.data);
    erg_text_release(&message);
    return document;
}

json_t *erg_sweep_unserved_document(const struct sweep_unserved *list,
                                    const struct erg_sweep *sweep,
                                    const struct erg_sweep_point *group)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct sweep_unserved_job *job = &list->items[i];
        if (job->cluster == group->cluster && job->cap == group->cap &&
            (sweep->pool_traces || job->trace == group->trace))
            json_array_append_new(array, job_document(job, sweep));
    }
    return array;
}
