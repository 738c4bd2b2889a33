/* The job log of Philly, which is JSON. Its fields: import.h. */
#include "cluster/traces/log_internal.h"

#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The GPUs of all machines of an attempt; missing lists are empty. */
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

/* Times are on the machines' clocks, on the Pacific coast. */
static int read_time(const struct erg_json_place *place, const char *key, double least_s,
                     double *seconds, struct erg_error *err)
{
    const char *text;
    if (erg_json_string(place, key, &text, err) != 0)
        return -1;
    if (erg_log_time_pacific(text, least_s, seconds))
        return 0;
    return erg_json_fail(place, key, err, "expected a time such as 2017-10-07 01:12:09, got '%s'",
                         text);
}

/* Adds an attempt to the run of its job. `least_s` is the end of the last one. */
static int read_attempt(const struct erg_json_place *attempt, bool last, double *least_s,
                        struct erg_log_job *job, struct erg_error *err)
{
    double start_s, end_s;
    if (!has_time(attempt->object, "start_time"))
        return 0;
    if (read_time(attempt, "start_time", *least_s, &start_s, err) != 0)
        return -1;
    if (last && !has_time(attempt->object, "end_time")) {
        job->fate = ERG_LOG_STILL_RAN;
        return 0;
    }
    if (read_time(attempt, "end_time", start_s, &end_s, err) != 0)
        return -1;
    if (end_s < start_s)
        return erg_json_fail(attempt, "end_time", err, "expected no time before the start");
    job->duration_s += end_s - start_s;
    *least_s = end_s;
    return 0;
}

/* An invalid attempt does not count. */
static int read_attempts(struct erg_log *log, const struct erg_json_place *place, double least_s,
                         struct erg_log_job *job, struct erg_error *err)
{
    const json_t *attempts;
    struct erg_error why;
    if (erg_json_array(place, "attempts", &attempts, err) != 0)
        return -1;
    job->duration_s = 0;
    for (size_t i = 0, count = json_array_size(attempts); i < count; i++) {
        struct erg_json_place attempt;
        int result = erg_json_enter_item(&attempt, place, "attempts", i, &why);
        if (result == 0) {
            job->gpus = fmax(job->gpus, (double)count_gpus(attempt.object));
            result = read_attempt(&attempt, i + 1 == count, &least_s, job, &why);
        }
        if (result != 0) {
            job->has_wrong_part = true;
            erg_log_note_wrong(log, &why);
        }
    }
    return 0;
}

static int read_entry(struct erg_log *log, const json_t *entry, struct erg_log_job *job,
                      struct erg_error *err)
{
    char name[512];
    struct erg_json_place place;
    const char *id, *tenant;
    double submit_s = -INFINITY;
    snprintf(name, sizeof name, "%s: entry %zu", log->path, job->line);
    if (erg_json_root(&place, entry, name, err) != 0 ||
        erg_json_string(&place, "jobid", &id, err) != 0)
        return -1;
    job->id = erg_arena_strdup(&log->texts, id);
    if (erg_json_string(&place, "vc", &tenant, err) != 0 ||
        (has_time(entry, "submitted_time") &&
         read_time(&place, "submitted_time", submit_s, &submit_s, err) != 0) ||
        read_attempts(log, &place, submit_s, job, err) != 0)
        return -1;
    job->tenant = erg_arena_strdup(&log->texts, tenant);
    erg_log_judge(job);
    if (job->fate == ERG_LOG_NEVER_RAN && job->has_wrong_part)
        job->fate = ERG_LOG_WRONG;
    if (job->fate == ERG_LOG_RAN && isinf(submit_s))
        return read_time(&place, "submitted_time", 0, &submit_s, err); /* reports the missing key */
    job->submit_s = submit_s;
    return 0;
}

int erg_log_read_philly(struct erg_log *log, const char *text, size_t length, struct erg_error *err)
{
    json_t *root;
    struct erg_error why;
    if (erg_json_parse(&root, log->path, text, length, err) != 0)
        return -1;
    int result = 0;
    if (!json_is_array(root))
        result = erg_fail(err, ERG_FAILED, "%s: expected an array of jobs, as in Philly's log",
                          log->path);
    for (size_t i = 0; i < json_array_size(root); i++) {
        struct erg_log_job job = erg_log_job(i + 1);
        if (read_entry(log, json_array_get(root, i), &job, &why) != 0) {
            job.fate = ERG_LOG_WRONG;
            erg_log_note_wrong(log, &why);
        }
        ERG_PUSH(log, items, job);
    }
    json_decref(root);
    erg_log_settle(log, false);
    return result;
}
