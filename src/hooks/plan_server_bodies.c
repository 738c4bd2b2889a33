/* Bodies of requests to the plan server: valid JSON, or a sentence that names the invalid key. */
#include "hooks/plan_server_internal.h"

#include "base/memory.h"
#include "base/statistics.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

static int open_body(struct body *body, const struct erg_plan_question *question,
                     struct erg_error *err)
{
    *body = (struct body){.key = ""};
    if (erg_json_open(&body->place, &body->root, "body", question->body, question->body_bytes,
                      err) != 0)
        return -1;
    body->place.text = NULL; /* clients write one line, so line numbers are useless */
    return 0;
}

void erg_body_close(struct body *body)
{
    json_decref(body->root);
}

static int read_long(struct body *body, const char *key, long least, long most, long *value,
                     struct erg_error *err)
{
    body->key = key;
    return erg_json_long(&body->place, key, least, most, value, err);
}

/* A text; NULL if it is missing, null or "". */
static int read_text(struct body *body, const char *key, const char **value, struct erg_error *err)
{
    body->key = key;
    *value = NULL;
    if (erg_json_has(&body->place, key) && erg_json_string(&body->place, key, value, err) != 0)
        return -1;
    if (*value && !**value)
        *value = NULL;
    return 0;
}

/* ---- a job ---- */

static int check_job(struct body *body, const struct job_body *job, const char *id,
                     struct erg_error *err)
{
    body->key = "world_size";
    if (job->pp * job->dp * job->tp != job->world)
        return erg_json_fail(&body->place, body->key, err,
                             "expected pp_degree x dp_degree x tp_degree, %ld x %ld x %ld = %ld, "
                             "got %ld",
                             job->pp, job->dp, job->tp, job->pp * job->dp * job->tp, job->world);
    body->key = "job_id";
    if (id)
        return erg_json_fail(&body->place, body->key, err,
                             "expected \"\": the server chooses the name of a job");
    body->key = "job_metadata";
    if (job->metadata && strlen(job->metadata) > SERVER_METADATA_BYTES)
        return erg_json_fail(&body->place, body->key, err, "expected at most %d bytes, got %zu",
                             SERVER_METADATA_BYTES, strlen(job->metadata));
    return 0;
}

int erg_body_read_job(struct body *body, struct job_body *job,
                      const struct erg_plan_question *question, struct erg_error *err)
{
    const long most = ERG_PLAN_SERVER_RANKS;
    const char *id;
    if (open_body(body, question, err) || read_text(body, "job_id", &id, err) ||
        read_long(body, "pp_degree", 1, most, &job->pp, err) ||
        read_long(body, "dp_degree", 1, most, &job->dp, err) ||
        read_long(body, "tp_degree", 1, most, &job->tp, err) ||
        read_long(body, "world_size", 1, most, &job->world, err) ||
        read_text(body, "job_metadata", &job->metadata, err))
        return -1;
    return check_job(body, job, id, err);
}

/* ---- a rank ---- */

static int read_clocks(struct body *body, struct erg_clock_list *clocks, struct erg_error *err)
{
    const json_t *list, *item;
    size_t i;
    body->key = "available_frequencies";
    if (erg_json_array(&body->place, body->key, &list, err) != 0)
        return -1;
    const size_t count = json_array_size(list);
    if (count < 1 || count > SERVER_CLOCKS)
        return erg_json_fail(&body->place, body->key, err, "expected 1 to %d clocks, got %zu",
                             SERVER_CLOCKS, count);
    clocks->clocks_mhz = erg_xcalloc(count, sizeof *clocks->clocks_mhz);
    clocks->count = count;
    json_array_foreach(list, i, item)
    {
        const json_int_t clock_mhz = json_integer_value(item);
        if (!json_is_integer(item) || clock_mhz < 1 || clock_mhz > 100000) {
            erg_clock_list_release(clocks);
            *clocks = (struct erg_clock_list){0};
            return erg_json_fail(&body->place, body->key, err,
                                 "item %zu: expected a clock of 1 to 100000 MHz as a whole number",
                                 i);
        }
        clocks->clocks_mhz[i] = (int)clock_mhz;
    }
    qsort(clocks->clocks_mhz, count, sizeof *clocks->clocks_mhz, erg_compare_ints);
    return 0;
}

int erg_body_read_rank(struct body *body, struct rank_body *rank,
                       const struct erg_plan_question *question, struct erg_error *err)
{
    const long most = ERG_PLAN_SERVER_RANKS - 1;
    *rank = (struct rank_body){0};
    return open_body(body, question, err) || read_long(body, "rank", 0, most, &rank->rank, err) ||
                   read_long(body, "dp_rank", 0, most, &rank->dp, err) ||
                   read_long(body, "pp_rank", 0, most, &rank->pp, err) ||
                   read_long(body, "tp_rank", 0, most, &rank->tp, err) ||
                   read_clocks(body, &rank->clocks, err)
               ? -1
               : 0;
}

/* ---- a result ---- */

static bool are_numbers(const json_t *list)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) if (!json_is_number(item) ||
                                          !(json_number_value(item) >= 0)) return false;
    return json_is_array(list);
}

static int check_numbers(struct body *body, const char *key, struct erg_error *err)
{
    const json_t *list;
    body->key = key;
    if (erg_json_array(&body->place, key, &list, err) != 0)
        return -1;
    return are_numbers(list)
               ? 0
               : erg_json_fail(&body->place, key, err, "expected a list of numbers of at least 0");
}

static bool are_lists_of_numbers(const json_t *list)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) if (!are_numbers(item)) return false;
    return json_is_array(list);
}

/* {"forward": [[s, …], …], …}, or nothing. */
static int check_breakdown(struct body *body, const char *key, struct erg_error *err)
{
    struct erg_json_place inner;
    const json_t *item;
    void *at;
    body->key = key;
    if (!erg_json_has(&body->place, key))
        return 0;
    if (erg_json_enter(&inner, &body->place, key, err) != 0)
        return -1;
    for (at = json_object_iter((json_t *)(uintptr_t)inner.object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)inner.object, at)) {
        item = json_object_iter_value(at);
        if (!are_lists_of_numbers(item))
            return erg_json_fail(&body->place, key, err,
                                 "expected for each name a list of lists of numbers of at least 0");
    }
    return 0;
}

int erg_body_read_result(struct body *body, long *rank, const struct erg_plan_question *question,
                         struct erg_error *err)
{
    return open_body(body, question, err) ||
                   read_long(body, "rank", 0, ERG_PLAN_SERVER_RANKS - 1, rank, err) ||
                   check_numbers(body, "iter_time", err) ||
                   check_numbers(body, "iter_energy", err) ||
                   check_breakdown(body, "time_breakdown", err) ||
                   check_breakdown(body, "energy_breakdown", err)
               ? -1
               : 0;
}
