/* The plan server: dispatches requests and holds the current plan. */
#include "hooks/plan_server_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "ergon/ergon.h"
#include "hooks/programme.h"
#include "io/file.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- the plan ---- */

/* The attributes of a file that change when another file takes its name, or when it is written
 * to. */
static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int check_plan(const struct erg_plan_server *server, const struct erg_plan *plan,
                      enum erg_method *method, size_t *point, struct erg_error *err)
{
    const struct erg_programme_input input = {.number = server->options.number};
    if (erg_programme_choose(plan, &input, method, point, err) != 0)
        return -1;
    for (size_t stage = 0; stage < plan->schedule.pipeline.stages; stage++)
        if (erg_programme_check(plan, stage, NULL, err) != 0)
            return -1;
    return 0;
}

static int load_plan(struct erg_plan_server *server, struct erg_error *err)
{
    struct erg_plan *plan;
    enum erg_method method;
    size_t point;
    if (stat(server->options.plan, &server->file) !=
        0) /* before the read, so that a newer file is loaded again */
        server->file = (struct stat){0};
    if (erg_plan_load(&plan, server->options.plan, err) != 0)
        return -1;
    if (check_plan(server, plan, &method, &point, err) != 0) {
        erg_plan_free(plan);
        return erg_fail_context(err, "serving the plan '%s'", server->options.plan);
    }
    erg_plan_free(server->plan);
    server->plan = plan;
    server->method = method;
    server->point = point;
    return 0;
}

static void reload_plan(struct erg_plan_server *server)
{
    struct stat now;
    struct erg_error err;
    if (stat(server->options.plan, &now) != 0 || is_same_file(&now, &server->file))
        return;
    if (load_plan(server, &err) != 0) {
        erg_log(ERG_LOG_WARNING, "%s; the previous plan stays in use", err.message);
        return;
    }
    erg_log(ERG_LOG_INFO, "the plan '%s' has changed: now using point %zu of %s",
            server->options.plan, server->point + 1, erg_method_name(server->method));
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++)
        if (server->jobs[j])
            erg_server_job_recheck(server, server->jobs[j]);
}

/* ---- open and close ---- */

int erg_plan_server_open(struct erg_plan_server **out,
                         const struct erg_plan_server_options *options, struct erg_error *err)
{
    struct erg_plan_server *server = erg_xcalloc(1, sizeof *server);
    server->options = *options;
    if (load_plan(server, err) || (options->record && erg_dir_make(options->record, err))) {
        erg_plan_server_close(server);
        return -1;
    }
    *out = server;
    return 0;
}

void erg_plan_server_end(struct erg_plan_server *server)
{
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++)
        if (server->jobs[j])
            erg_server_job_turn_away(server, server->jobs[j], 503, "the server ends");
}

void erg_plan_server_close(struct erg_plan_server *server)
{
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++)
        if (server->jobs[j])
            erg_server_job_drop(server, server->jobs[j]);
    erg_plan_free(server->plan);
    free(server);
}

void erg_plan_server_tick(struct erg_plan_server *server, int64_t now_ns)
{
    reload_plan(server);
    for (size_t j = 0; j < ERG_PLAN_SERVER_JOBS; j++) {
        struct server_job *job = server->jobs[j];
        if (job && now_ns - job->asked_ns > ERG_PLAN_SERVER_IDLE_S * INT64_C(1000000000))
            erg_server_job_drop(server, job);
    }
}

/* ---- answers ---- */

void erg_plan_server_fail(struct erg_plan_question *question, unsigned status, const char *detail)
{
    question->status = status;
    erg_text_add(&question->answer, "{\"detail\":");
    erg_json_add_string(&question->answer, detail);
    erg_text_add(&question->answer, "}");
}

void erg_plan_server_reject(struct erg_plan_question *question, const char *where, const char *key,
                            const struct erg_error *err)
{
    struct erg_text *out = &question->answer;
    question->status = 422;
    erg_text_printf(out, "{\"detail\":[{\"loc\":[\"%s\"", where);
    if (key[0])
        erg_text_printf(out, ",\"%s\"", key);
    erg_text_add(out, "],\"msg\":");
    erg_json_add_string(out, err->message);
    erg_text_add(out, ",\"type\":\"value_error\"}]}");
}

struct erg_plan_question *erg_plan_server_take(struct erg_plan_server *server)
{
    struct erg_plan_question *question = server->first;
    if (!question)
        return NULL;
    server->first = question->next;
    if (!server->first)
        server->last = NULL;
    return question;
}

/* ---- requests ---- */

static void answer_info(struct erg_plan_question *question)
{
    json_t *root = erg_json_pack("{s:s, s:s}", "server", "ergon", "version", erg_version());
    char *text = erg_json_text(root);
    erg_text_add(&question->answer, text);
    question->status = 200;
    free(text);
    json_decref(root);
}

/* The rest of a path after "/NAME/"; NULL: another path. */
static const char *behind(const char *path, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(path, name, length) == 0 && path[length] == '/' ? path + length + 1 : NULL;
}

typedef void ask_job(struct erg_plan_server *server, struct server_job *job,
                     struct erg_plan_question *question);

static const struct route {
    const char *name, *method;
    ask_job *ask;
} routes[] = {
    {"/register_rank", "POST", erg_server_rank_register},
    {"/schedule", "GET", erg_server_rank_schedule},
    {"/result", "POST", erg_server_rank_result},
};

static void ask_route(struct erg_plan_server *server, const struct route *route, const char *id,
                      struct erg_plan_question *question, int64_t now_ns)
{
    struct server_job *job = erg_server_job_find(server, id);
    if (!job) {
        struct erg_error err;
        (void)erg_fail(&err, ERG_USAGE, "there is no job '%.200s', expected one from /register_job",
                       id);
        erg_plan_server_fail(question, 404, err.message);
        return;
    }
    job->asked_ns = now_ns;
    route->ask(server, job, question);
}

/* Whether the method fits the route; answers the question if not. */
static bool is_method(struct erg_plan_question *question, const char *method)
{
    if (strcmp(question->method, method) == 0)
        return true;
    question->allow = method;
    erg_plan_server_fail(question, 405, "expected one of the methods in the header Allow");
    return false;
}

void erg_plan_server_ask(struct erg_plan_server *server, struct erg_plan_question *question,
                         int64_t now_ns)
{
    if (strcmp(question->path, "/info") == 0) {
        if (is_method(question, "GET"))
            answer_info(question);
        return;
    }
    if (strcmp(question->path, "/register_job") == 0) {
        if (is_method(question, "POST"))
            erg_server_job_register(server, question, now_ns);
        return;
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *id = behind(question->path, routes[i].name);
        if (!id)
            continue;
        if (is_method(question, routes[i].method))
            ask_route(server, &routes[i], id, question, now_ns);
        return;
    }
    erg_plan_server_fail(question, 404,
                         "not found, expected /register_job, /register_rank/JOB, "
                         "/schedule/JOB?rank=R, /result/JOB or /info");
}
