/* libFuzzer: any bytes as a request to the plan server, of whose job one rank has registered. It is
 * answered with JSON, or waits. */
#include "base/memory.h"
#include "hooks/plan_server.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#define DAY_NS (INT64_C(24) * 3600 * 1000000000)

static struct erg_plan_server *shared_server(void)
{
    static struct erg_plan_server *server;
    const struct erg_plan_server_options options = {.plan = ERGON_TEST_SOURCE_DIR
                                                    "/tests/data/plan_sample.json"};
    struct erg_error err;
    if (!server && erg_plan_server_open(&server, &options, &err) != 0)
        abort();
    return server;
}

static void ask(struct erg_plan_server *server, struct erg_plan_question *question)
{
    erg_plan_server_ask(server, question, 0);
    if (!question->status) {
        if (strcmp(question->method, "GET") != 0)
            abort();
        erg_plan_server_forget(server, question);
        return;
    }
    json_t *answer =
        json_loadb(question->answer.data, question->answer.count, JSON_DECODE_ANY, NULL);
    if (!answer || question->status < 200 || question->status > 499)
        abort();
    json_decref(answer);
}

static struct erg_plan_question post(const char *path, const char *body, size_t bytes)
{
    return (struct erg_plan_question){
        .method = "POST", .path = path, .body = body, .body_bytes = bytes};
}

/* The path of something about a job; to be freed. */
static char *register_job(struct erg_plan_server *server, const char *what)
{
    static const char body[] =
        "{\"pp_degree\":2,\"dp_degree\":2,\"tp_degree\":8,\"world_size\":32}";
    static const char rank[] = "{\"rank\":5,\"dp_rank\":0,\"pp_rank\":1,\"tp_rank\":0,"
                               "\"available_frequencies\":[1410]}";
    struct erg_plan_question question = post("/register_job", body, sizeof body - 1);
    struct erg_text path = {0}, first = {0};
    ask(server, &question);
    if (question.status != 200)
        abort();
    const size_t count = question.answer.count - 2;
    erg_text_printf(&path, "%s/%.*s", what, (int)count, question.answer.data + 1);
    erg_text_printf(&first, "/register_rank/%.*s", (int)count, question.answer.data + 1);
    erg_text_release(&question.answer);
    question = post(first.data, rank, sizeof rank - 1);
    ask(server, &question);
    if (question.status != 200)
        abort();
    erg_text_release(&question.answer);
    erg_text_release(&first);
    return path.data;
}

/* "METHOD /WHAT/JOB?rank=RANK ...", whose job becomes the one that is there. */
static void ask_line(struct erg_plan_server *server, char *line, const char *body, size_t bytes)
{
    char *method = strtok_r(line, " ", &line), *path = strtok_r(line, " ", &line);
    if (!method || !path)
        return;
    char *query = strchr(path, '?'), *job = strchr(path + 1, '/');
    if (query)
        *query++ = '\0';
    struct erg_plan_question question = post(path, body, bytes);
    question.method = method;
    question.rank = query && strncmp(query, "rank=", 5) == 0 ? query + 5 : NULL;
    char *full = NULL;
    if (job && job < path + strlen(path)) {
        *job = '\0';
        question.path = full = register_job(server, path);
    }
    ask(server, &question);
    erg_text_release(&question.answer);
    free(full);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_plan_server *server = shared_server();
    char *text = erg_xmemdup((const char *)data, size);
    char *end = strstr(text, "\r\n"), *body = strstr(text, "\r\n\r\n");
    const char *from = body ? body + 4 : text + size;
    if (end)
        *end = '\0';
    /* A copy without slack, so that reading past the end of a body is seen. */
    const size_t bytes = (size_t)(text + size - from);
    char *copy = erg_xmalloc(bytes ? bytes : 1);
    memcpy(copy, from, bytes);
    ask_line(server, text, copy, bytes);
    erg_plan_server_tick(server, 8 * DAY_NS);
    if (erg_plan_server_take(server))
        abort();
    free(copy);
    free(text);
    return 0;
}
