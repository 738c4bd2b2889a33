/* Jobs of the plan server: their ranks, waiting requests, and the answers. */
#include "hooks/plan_server_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "hooks/programme.h"
#include "io/file.h"
#include "io/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the fit of the plan ---- */

/* Checks that plan and job have the same number of stages, and of GPUs for each stage. */
static int check_degrees(const struct erg_plan_server *server, const struct server_job *job,
                         struct erg_error *err)
{
    const struct erg_plan *plan = server->plan;
    const struct erg_layout *layout = &plan->layout;
    const size_t stages = plan->schedule.pipeline.stages;
    if ((size_t)job->pp != stages)
        return erg_fail(err, ERG_USAGE,
                        "the plan '%s' has a pipeline of %zu stage%s, but the job's pp_degree is "
                        "%ld",
                        server->options.plan, stages, erg_plural(stages), job->pp);
    /* A plan from a stage profile does not contain the number of GPUs of a stage. */
    if (plan->model && job->tp != layout->tensor * layout->context)
        return erg_fail(err, ERG_USAGE,
                        "the plan '%s' has tensor %ld x context %ld, but the job's tp_degree is "
                        "%ld, expected their product",
                        server->options.plan, layout->tensor, layout->context, job->tp);
    return 0;
}

static int check_rank(const struct erg_plan_server *server, const struct server_job *job,
                      size_t rank, struct erg_error *err)
{
    const struct server_rank *own = &job->ranks[rank];
    if (own->pp >= server->plan->schedule.pipeline.stages ||
        erg_programme_check(server->plan, own->pp, &job->kinds[own->kind].clocks, err) == 0)
        return 0;
    return erg_fail_context(err, "rank %zu", rank);
}

static void check_job(const struct erg_plan_server *server, struct server_job *job)
{
    job->trouble.status = ERG_OK;
    if (check_degrees(server, job, &job->trouble) != 0)
        return;
    for (long i = 0; i < job->world; i++)
        if (job->ranks[i].registered && check_rank(server, job, (size_t)i, &job->trouble) != 0)
            return;
}

/* ---- schedules ---- */

/* As `ergon show` lists the stage. */
static void answer_schedule(const struct erg_plan_server *server, const struct server_job *job,
                            size_t rank, struct erg_plan_question *question)
{
    const struct erg_plan *plan = server->plan;
    const struct erg_plan_point *point = &plan->methods[server->method].points[server->point];
    const struct server_rank *own = &job->ranks[rank];
    const struct erg_clock_list *clocks = &job->kinds[own->kind].clocks;
    const size_t first = own->pp * plan->schedule.per_stage;
    struct erg_text *out = &question->answer;
    erg_text_printf(out, "{\"rank\":%zu,\"frequencies\":[", rank);
    for (size_t i = first; i < first + plan->schedule.per_stage; i++) {
        const int planned_mhz = erg_plan_option(plan, point, i)->clock_mhz;
        const bool forward = plan->schedule.instructions[i].direction == ERG_FORWARD;
        erg_text_printf(out, "%s[\"%s\",%d]", i > first ? "," : "",
                        forward ? "forward" : "backward", erg_programme_clock(clocks, planned_mhz));
    }
    erg_text_add(out, "]}");
    question->status = 200;
}

/* Answers with the schedule, or with the reason why there is none. */
static void answer_rank(const struct erg_plan_server *server, const struct server_job *job,
                        size_t rank, struct erg_plan_question *question)
{
    if (job->trouble.status != ERG_OK)
        erg_plan_server_fail(question, 400, job->trouble.message);
    else
        answer_schedule(server, job, rank, question);
}

/* ---- waiting ---- */

/* Queues an answered question for the caller. */
static void put_answered(struct erg_plan_server *server, struct erg_plan_question *question)
{
    question->next = NULL;
    if (server->last)
        server->last->next = question;
    else
        server->first = question;
    server->last = question;
}

static struct erg_plan_question *stop_waiting(struct server_job *job, size_t rank)
{
    struct erg_plan_question *question = job->ranks[rank].waiting;
    job->ranks[rank].waiting = NULL;
    job->waiting -= question != NULL;
    return question;
}

/* Answers all waiting requests if there is an answer. */
static void settle(struct erg_plan_server *server, struct server_job *job)
{
    if (job->trouble.status == ERG_OK && job->registered < (size_t)job->world)
        return;
    for (long i = 0; job->waiting && i < job->world; i++) {
        struct erg_plan_question *question = stop_waiting(job, (size_t)i);
        if (question) {
            answer_rank(server, job, (size_t)i, question);
            put_answered(server, question);
        }
    }
}

void erg_server_job_recheck(struct erg_plan_server *server, struct server_job *job)
{
    check_job(server, job);
    settle(server, job);
}

void erg_plan_server_forget(struct erg_plan_server *server, struct erg_plan_question *question)
{
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++)
        for (long i = 0; server->jobs[j] && server->jobs[j]->waiting && i < server->jobs[j]->world;
             i++)
            if (server->jobs[j]->ranks[i].waiting == question) {
                (void)stop_waiting(server->jobs[j], (size_t)i);
                return;
            }
}

/* ---- jobs ---- */

struct server_job *erg_server_job_find(struct erg_plan_server *server, const char *id)
{
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++)
        if (server->jobs[j] && strcmp(server->jobs[j]->id, id) == 0)
            return server->jobs[j];
    return NULL;
}

void erg_server_job_turn_away(struct erg_plan_server *server, struct server_job *job,
                              unsigned status, const char *detail)
{
    for (long i = 0; job->waiting && i < job->world; i++) {
        struct erg_plan_question *question = stop_waiting(job, (size_t)i);
        if (question) {
            erg_plan_server_fail(question, status, detail);
            put_answered(server, question);
        }
    }
}

void erg_server_job_drop(struct erg_plan_server *server, struct server_job *job)
{
    erg_server_job_turn_away(server, job, 404,
                             "the job is unknown, expected ranks that register within 7 days");
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++)
        if (server->jobs[j] == job)
            server->jobs[j] = NULL;
    for (size_t k = 0; k < SERVER_KINDS; k++)
        erg_clock_list_release(&job->kinds[k].clocks);
    free(job->ranks);
    free(job->places);
    free(job);
}

/*
 * A slot for a job: a free one, or that of the job without waiting requests that has been idle
 * longest.
 */
static struct server_job **find_place(struct erg_plan_server *server)
{
    struct server_job **idle = NULL;
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++) {
        struct server_job **place = &server->jobs[j];
        if (!*place)
            return place;
        if (!(*place)->waiting && (!idle || (*place)->asked_ns < (*idle)->asked_ns))
            idle = place;
    }
    if (idle) {
        erg_log(ERG_LOG_INFO, "the job %s is dropped to make room for another one", (*idle)->id);
        erg_server_job_drop(server, *idle);
    }
    return idle;
}

/* "2026-01-01-00-00-00+dp2+pp2+tp1+ergon+meta", in UTC. It is part of paths and file names: special
 * characters become "-". */
static void name_job(struct erg_plan_server *server, struct server_job *job, const char *metadata)
{
    char base[SERVER_ID_BYTES - 16], date[32];
    const time_t now = time(NULL);
    server->in_second = now == server->named ? server->in_second + 1 : 1;
    server->named = now;
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%d-%H-%M-%S", &utc);
    snprintf(base, sizeof base, "%s+dp%ld+pp%ld+tp%ld+ergon%s%s", date, job->dp, job->pp, job->tp,
             metadata ? "+" : "", metadata ? metadata : "");
    for (char *at = base; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("+-._=", *at))
            *at = '-';
    /* Names of dropped jobs are not used again. */
    for (unsigned same = server->in_second;; same++) {
        snprintf(job->id, sizeof job->id, "%s", base);
        if (same > 1)
            snprintf(job->id, sizeof job->id, "%s+%u", base, same);
        if (!erg_server_job_find(server, job->id))
            return;
    }
}

static void free_new(struct server_job *job)
{
    free(job->ranks);
    free(job->places);
    free(job);
}

static void add_job(struct erg_plan_server *server, const struct job_body *body, int64_t now_ns,
                    struct erg_plan_question *question)
{
    struct server_job *job = erg_xcalloc(1, sizeof *job);
    job->pp = body->pp;
    job->dp = body->dp;
    job->tp = body->tp;
    job->world = body->world;
    job->asked_ns = now_ns;
    job->ranks = erg_xcalloc((size_t)job->world, sizeof *job->ranks);
    job->places = erg_xcalloc((size_t)job->world, sizeof *job->places);
    check_job(server, job);
    struct server_job **place = job->trouble.status == ERG_OK ? find_place(server) : NULL;
    if (!place) {
        if (job->trouble.status != ERG_OK)
            erg_plan_server_fail(question, 400, job->trouble.message);
        else
            erg_plan_server_fail(question, 503, "ranks of too many jobs are waiting");
        free_new(job);
        return;
    }
    name_job(server, job, body->metadata);
    *place = job;
    erg_log(ERG_LOG_INFO, "job %s of %ld ranks", job->id, job->world);
    erg_json_add_string(&question->answer, job->id);
    question->status = 200;
}

void erg_server_job_register(struct erg_plan_server *server, struct erg_plan_question *question,
                             int64_t now_ns)
{
    struct erg_error err;
    struct body body;
    struct job_body job;
    if (erg_body_read_job(&body, &job, question, &err) != 0)
        erg_plan_server_reject(question, "body", body.key, &err);
    else
        add_job(server, &job, now_ns, question);
    erg_body_close(&body);
}

/* ---- ranks ---- */

/* Checks that the place is within the job and not another rank's. */
static int check_place(struct body *body, const struct server_job *job,
                       const struct rank_body *rank, struct erg_error *err)
{
    const struct {
        const char *key, *degree;
        long value, count;
    } parts[] = {{"rank", "world_size", rank->rank, job->world},
                 {"dp_rank", "dp_degree", rank->dp, job->dp},
                 {"pp_rank", "pp_degree", rank->pp, job->pp},
                 {"tp_rank", "tp_degree", rank->tp, job->tp}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        body->key = parts[i].key;
        if (parts[i].value >= parts[i].count)
            return erg_json_fail(&body->place, body->key, err,
                                 "expected below the job's %s, %ld, got %ld", parts[i].degree,
                                 parts[i].count, parts[i].value);
    }
    const uint16_t there = job->places[(rank->dp * job->pp + rank->pp) * job->tp + rank->tp];
    body->key = "rank";
    if (there && there - 1 != rank->rank)
        return erg_json_fail(&body->place, body->key, err,
                             "dp_rank %ld, pp_rank %ld and tp_rank %ld are those of rank %d, which "
                             "has registered, got rank %ld",
                             rank->dp, rank->pp, rank->tp, there - 1, rank->rank);
    return 0;
}

/* The kind of GPU with these clocks, which it takes from `clocks`; SERVER_KINDS: too many kinds. */
static size_t find_kind(struct server_job *job, struct erg_clock_list *clocks)
{
    size_t spare = SERVER_KINDS;
    for (size_t k = 0; k < SERVER_KINDS; k++) {
        const struct erg_clock_list *own = &job->kinds[k].clocks;
        if (!job->kinds[k].ranks)
            spare = spare == SERVER_KINDS ? k : spare;
        else if (own->count == clocks->count &&
                 memcmp(own->clocks_mhz, clocks->clocks_mhz,
                        clocks->count * sizeof *clocks->clocks_mhz) == 0)
            return k;
    }
    if (spare < SERVER_KINDS) {
        erg_clock_list_release(&job->kinds[spare].clocks);
        job->kinds[spare].clocks = *clocks;
        *clocks = (struct erg_clock_list){0};
    }
    return spare;
}

static uint16_t *place_of(struct server_job *job, const struct server_rank *rank)
{
    return &job->places[((long)rank->dp * job->pp + rank->pp) * job->tp + rank->tp];
}

/* The first registration of a rank, or one that replaces it. */
static void put_rank(struct server_job *job, const struct rank_body *body, size_t kind)
{
    struct server_rank *rank = &job->ranks[body->rank];
    job->kinds[kind].ranks++;
    if (rank->registered) {
        job->kinds[rank->kind].ranks--;
        *place_of(job, rank) = 0;
    }
    job->registered += !rank->registered;
    rank->registered = true;
    rank->kind = (uint16_t)kind;
    rank->dp = (uint16_t)body->dp;
    rank->pp = (uint16_t)body->pp;
    rank->tp = (uint16_t)body->tp;
    *place_of(job, rank) = (uint16_t)(body->rank + 1);
}

static void add_rank(struct erg_plan_server *server, struct server_job *job,
                     const struct rank_body *body, size_t kind, struct erg_plan_question *question)
{
    struct erg_error err;
    put_rank(job, body, kind);
    if (job->trouble.status != ERG_OK)
        check_job(server, job); /* the reason may have been this rank */
    else
        (void)check_rank(server, job, (size_t)body->rank, &job->trouble);
    if (check_degrees(server, job, &err) || check_rank(server, job, (size_t)body->rank, &err)) {
        erg_plan_server_fail(question, 400, err.message);
    } else {
        erg_text_add(&question->answer, "null");
        question->status = 200;
    }
    settle(server, job);
}

void erg_server_rank_register(struct erg_plan_server *server, struct server_job *job,
                              struct erg_plan_question *question)
{
    struct erg_error err;
    struct body body;
    struct rank_body rank;
    int result =
        erg_body_read_rank(&body, &rank, question, &err) || check_place(&body, job, &rank, &err);
    const size_t kind = result ? SERVER_KINDS : find_kind(job, &rank.clocks);
    if (!result && kind == SERVER_KINDS) {
        body.key = "available_frequencies";
        result = erg_json_fail(&body.place, body.key, &err,
                               "expected the clocks of one of at most %d kinds of GPU in a job",
                               SERVER_KINDS);
    }
    if (result)
        erg_plan_server_reject(question, "body", body.key, &err);
    else
        add_rank(server, job, &rank, kind, question);
    erg_clock_list_release(&rank.clocks);
    erg_body_close(&body);
}

void erg_server_rank_schedule(struct erg_plan_server *server, struct server_job *job,
                              struct erg_plan_question *question)
{
    struct erg_error err;
    long rank;
    if (!question->rank || !erg_parse_long(question->rank, &rank) || rank < 0 ||
        rank >= job->world) {
        (void)erg_fail(&err, ERG_USAGE, "query: key 'rank': expected 0 to %ld, got %s",
                       job->world - 1, question->rank ? question->rank : "none");
        erg_plan_server_reject(question, "query", "rank", &err);
        return;
    }
    if (job->trouble.status != ERG_OK || job->registered == (size_t)job->world) {
        answer_rank(server, job, (size_t)rank, question);
        return;
    }
    struct erg_plan_question *before = stop_waiting(job, (size_t)rank);
    if (before) {
        erg_plan_server_fail(before, 400,
                             "the same rank asked again; the newer request gets the answer");
        put_answered(server, before);
    }
    job->ranks[rank].waiting = question;
    job->waiting++;
}

/* ---- results ---- */

/* Writes DIR/JOB/rank-R-N.json: rank R's Nth result, with its place. */
static int record(const struct erg_plan_server *server, const struct server_job *job, long rank,
                  json_t *result, struct erg_error *err)
{
    const struct server_rank *own = &job->ranks[rank];
    struct erg_text path = {0};
    char now[32];
    erg_utc_now(now, sizeof now);
    erg_text_printf(&path, "%s/%s", server->options.record, job->id);
    int status = erg_dir_make(path.data, err);
    if (status == 0) {
        json_t *root =
            erg_json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:O}", "job", job->id, "received_utc",
                          now, "rank", (json_int_t)rank, "dp_rank", own->dp, "pp_rank", own->pp,
                          "tp_rank", own->tp, "result", result);
        erg_text_printf(&path, "/rank-%ld-%u.json", rank, (unsigned)own->results + 1);
        status = erg_json_write(path.data, root, err);
        json_decref(root);
    }
    erg_text_release(&path);
    return status;
}

void erg_server_rank_result(struct erg_plan_server *server, struct server_job *job,
                            struct erg_plan_question *question)
{
    struct erg_error err;
    struct body body;
    long rank;
    int status = erg_body_read_result(&body, &rank, question, &err);
    if (!status && (rank >= job->world || !job->ranks[rank].registered)) {
        body.key = "rank";
        status = erg_json_fail(&body.place, body.key, &err,
                               "expected a rank that has registered, got %ld", rank);
    }
    if (status) {
        erg_plan_server_reject(question, "body", body.key, &err);
    } else if (server->options.record && record(server, job, rank, body.root, &err) != 0) {
        erg_log(ERG_LOG_WARNING, "%s", err.message);
        erg_plan_server_fail(question, 500, "the result could not be stored");
    } else {
        job->ranks[rank].results++;
        erg_text_add(&question->answer, "null");
        question->status = 200;
    }
    erg_body_close(&body);
}
