/* The job log of Philly, which is JSON. What is read of it: import.h. */
#include "cluster/traces/log_internal.h"

#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The GPUs of all machines of an attempt; lists that are not there are empty. */
static size_t count_gpus(const json_t *attempt)
{
    const json_t *machine;
    size_t i, count = 0;
    json_array_foreach(json_object_get(attempt, "detail"), i, machine) count +=
        json_array_size(json_object_get(machine, "gpus"));
    return count;
}

/* False where the key is missing, null or, as in the log, "None". */
static bool has_time(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && *text && strcmp(text, "None") != 0;
}

static int read_time(const struct erg_json_place *place, const char *key, double *seconds,
                     struct erg_error *err)
{
    const char *text;
    if (erg_json_string(place, key, &text, err) != 0)
        return -1;
    if (erg_log_time(text, seconds))
        return 0;
    return erg_json_fail(place, key, err, "expected a time such as 2017-10-07 01:12:09, got '%s'",
                         text);
}

static int read_attempts(const struct erg_json_place *place, struct erg_log_job *job,
                         struct erg_error *err)
{
    const json_t *attempts;
    if (erg_json_array(place, "attempts", &attempts, err) != 0)
        return -1;
    for (size_t i = 0; i < json_array_size(attempts); i++) {
        struct erg_json_place attempt;
        double start_s, end_s;
        if (erg_json_enter_item(&attempt, place, "attempts", i, err) != 0)
            return -1;
        job->gpus = fmax(job->gpus, (double)count_gpus(attempt.object));
        if (!has_time(attempt.object, "start_time") || !has_time(attempt.object, "end_time"))
            continue;
        if (read_time(&attempt, "start_time", &start_s, err) != 0 ||
            read_time(&attempt, "end_time", &end_s, err) != 0)
            return -1;
        if (end_s < start_s)
            return erg_json_fail(&attempt, "end_time", err, "expected no time before the start");
        job->duration_s += end_s - start_s;
    }
    return 0;
}

static int read_job(struct erg_log *log, const json_t *entry, size_t index, struct erg_error *err)
{
    char name[512];
    struct erg_json_place place;
    struct erg_log_job job = {.type = "",
                              .model = "",
                              .size = "",
                              .iterations = NAN,
                              .deadline_s = INFINITY,
                              .line = index + 1};
    const char *id, *tenant;
    snprintf(name, sizeof name, "%s: entry %zu", log->path, index + 1);
    if (erg_json_root(&place, entry, name, err) != 0 ||
        erg_json_string(&place, "jobid", &id, err) != 0 ||
        erg_json_string(&place, "vc", &tenant, err) != 0 || read_attempts(&place, &job, err) != 0)
        return -1;
    if (job.gpus == 0) {
        log->without_gpus++;
        return 0;
    }
    if (job.duration_s == 0 || !has_time(entry, "submitted_time")) {
        log->without_time++;
        return 0;
    }
    if (read_time(&place, "submitted_time", &job.submit_s, err) != 0)
        return -1;
    job.id = erg_arena_strdup(&log->texts, id);
    job.tenant = erg_arena_strdup(&log->texts, tenant);
    ERG_PUSH(log, items, job);
    return 0;
}

int erg_log_read_philly(struct erg_log *log, const char *text, size_t length, struct erg_error *err)
{
    json_t *root;
    if (erg_json_parse(&root, log->path, text, length, err) != 0)
        return -1;
    int result = 0;
    if (!json_is_array(root))
        result = erg_fail(err, ERG_FAILED, "%s: expected an array of jobs, as in Philly's log",
                          log->path);
    for (size_t i = 0; i < json_array_size(root) && result == 0; i++)
        result = read_job(log, json_array_get(root, i), i, err);
    json_decref(root);
    return result;
}
