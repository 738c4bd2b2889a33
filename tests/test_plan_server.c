/* The plan server without sockets: what trainers ask, who waits, what each is answered. */
#include "perseus.h"

#include "base/memory.h"
#include "hooks/plan_server.h"

#include <sys/stat.h>

#define DAY_NS (INT64_C(24) * 3600 * 1000000000)
#define CLOCKS "\"available_frequencies\":[1500,1400,1250,345]"
static const int clocks[] = {345, 1250, 1400, 1500, 0};

static struct erg_plan_server *serve(const char *plan, const char *record)
{
    static char paths[2][160];
    snprintf(paths[0], sizeof paths[0], "%s", in_folder(plan));
    snprintf(paths[1], sizeof paths[1], "%s", in_folder(record ? record : ""));
    const struct erg_plan_server_options options = {.plan = paths[0],
                                                    .record = record ? paths[1] : NULL};
    struct erg_plan_server *server;
    struct erg_error err = {0};
    assert_ok(erg_plan_server_open(&server, &options, &err), &err);
    return server;
}

/* ---- questions ---- */

struct asked {
    struct erg_plan_question question;
    char method[8], path[512], rank[16];
    char *body;
};

static struct asked *ask_at(struct erg_plan_server *server, const char *method, const char *path,
                            const char *rank, const char *body, int64_t now_ns)
{
    struct asked *asked = erg_xcalloc(1, sizeof *asked);
    snprintf(asked->method, sizeof asked->method, "%s", method);
    snprintf(asked->path, sizeof asked->path, "%s", path);
    snprintf(asked->rank, sizeof asked->rank, "%s", rank ? rank : "");
    asked->body = erg_xstrdup(body);
    asked->question = (struct erg_plan_question){.method = asked->method,
                                                 .path = asked->path,
                                                 .rank = rank ? asked->rank : NULL,
                                                 .body = asked->body,
                                                 .body_bytes = strlen(body)};
    erg_plan_server_ask(server, &asked->question, now_ns);
    return asked;
}

static void forget(struct asked *asked)
{
    erg_text_release(&asked->question.answer);
    free(asked->body);
    free(asked);
}

static void check_answer(struct asked *asked, unsigned status, const char *part)
{
    const struct erg_plan_question *question = &asked->question;
    const char *answer = question->answer.data ? question->answer.data : "";
    if (question->status != status || !strstr(answer, part))
        fail_msg("%s %s %s: %u %s, expected %u with \"%s\"", asked->method, asked->path,
                 asked->body, question->status, answer, status, part);
    json_t *root = json_loads(answer, JSON_DECODE_ANY, NULL);
    assert_non_null(root);
    json_decref(root);
    forget(asked);
}

static void check(struct erg_plan_server *server, const char *method, const char *path,
                  const char *body, unsigned status, const char *part)
{
    check_answer(ask_at(server, method, path, NULL, body, 0), status, part);
}

/* Its name; to be freed. */
static char *register_job_at(struct erg_plan_server *server, int pp, int dp, const char *metadata,
                             int64_t now_ns)
{
    struct erg_text body = {0};
    erg_text_printf(&body,
                    "{\"job_id\":\"\",\"pp_degree\":%d,\"dp_degree\":%d,\"tp_degree\":1,"
                    "\"world_size\":%d,\"job_metadata\":%s}",
                    pp, dp, pp * dp, metadata);
    struct asked *asked = ask_at(server, "POST", "/register_job", NULL, body.data, now_ns);
    assert_int_equal(asked->question.status, 200);
    char *name = erg_xstrdup(asked->question.answer.data + 1);
    name[strlen(name) - 1] = '\0';
    forget(asked);
    erg_text_release(&body);
    return name;
}

static const char *path_of(const char *what, const char *job)
{
    static char path[512];
    snprintf(path, sizeof path, "/%s/%s", what, job);
    return path;
}

/* Ranks of a pipeline lie one after the other. */
static struct asked *register_rank(struct erg_plan_server *server, const char *job, int rank,
                                   const char *clock_list)
{
    struct erg_text body = {0};
    erg_text_printf(&body, "{\"rank\":%d,\"dp_rank\":%d,\"pp_rank\":%d,\"tp_rank\":0,%s}", rank,
                    rank / 2, rank % 2, clock_list);
    struct asked *asked = ask_at(server, "POST", path_of("register_rank", job), NULL, body.data, 0);
    erg_text_release(&body);
    return asked;
}

static struct asked *ask_schedule(struct erg_plan_server *server, const char *job, int rank)
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    return ask_at(server, "GET", path_of("schedule", job), text, "", 0);
}

static void check_schedule(struct asked *asked, const char *plan, int rank, const int *list)
{
    struct erg_text expected = shown_schedule(in_folder(plan), rank, rank % 2, list);
    assert_int_equal(asked->question.status, 200);
    assert_string_equal(asked->question.answer.data, expected.data);
    erg_text_release(&expected);
    forget(asked);
}

static void check_waits(const struct asked *asked)
{
    assert_int_equal(asked->question.status, 0);
    assert_null(asked->question.answer.data);
}

/* ---- tests ---- */

static int begin(void **state)
{
    if (commands_begin(state) != 0)
        return -1;
    make_plan("plan.json", 2, "");
    make_plan("thrifty.json", 2, "--deadline 100");
    make_plan("four.json", 4, "");
    return 0;
}

/* As Zeus' client does it: register, then ask; nobody is answered before all are there. */
static void test_schedules_wait_for_all_ranks(void **state)
{
    (void)state;
    static const int order[] = {0, 2, 3, 1};
    struct erg_plan_server *server = serve("plan.json", NULL);
    char *job = register_job_at(server, 2, 2, "\"meta\"", 0);
    int year;
    assert_int_equal(sscanf(job, "%4d-%*2d-%*2d-%*2d-%*2d-%*2d+dp2+pp2", &year), 1);
    assert_string_equal(job + strlen("2026-01-01-00-00-00"), "+dp2+pp2+tp1+ergon+meta");
    struct asked *waiting[4];
    for (int i = 0; i < 4; i++) {
        waiting[order[i]] = ask_schedule(server, job, order[i]);
        check_waits(waiting[order[i]]);
        assert_null(erg_plan_server_take(server));
        check_answer(register_rank(server, job, order[i], CLOCKS), 200, "null");
    }
    for (int rank = 0; rank < 4; rank++)
        assert_ptr_equal(erg_plan_server_take(server), &waiting[rank]->question);
    assert_null(erg_plan_server_take(server));
    for (int rank = 0; rank < 4; rank++)
        check_schedule(waiting[rank], "plan.json", rank, clocks);
    check_schedule(ask_schedule(server, job, 3), "plan.json", 3, clocks); /* at once */
    free(job);
    erg_plan_server_close(server);
}

static void test_invalid_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *body, *part;
    } jobs[] = {
        {"", "\"loc\":[\"body\"]"},
        {"[]", "\"loc\":[\"body\"]"},
        {"{\"pp_degree\":2", "not valid JSON"},
        {"{\"pp_degree\":2}", "\"loc\":[\"body\",\"dp_degree\"]"},
        {"{\"pp_degree\":2,\"dp_degree\":\"1\",\"tp_degree\":1,\"world_size\":2}", "dp_degree"},
        {"{\"pp_degree\":2,\"dp_degree\":0,\"tp_degree\":1,\"world_size\":0}", "dp_degree"},
        {"{\"pp_degree\":2,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":4}",
         "\"loc\":[\"body\",\"world_size\"],\"msg\":\"body: key 'world_size': expected pp_degree x "
         "dp_degree x tp_degree, 2 x 1 x 1 = 2, got 4\",\"type\":\"value_error\""},
        {"{\"pp_degree\":2,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":2,\"job_id\":\"x\"}",
         "\"loc\":[\"body\",\"job_id\"]"},
        {"{\"pp_degree\":2,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":2,\"job_metadata\":7}",
         "\"loc\":[\"body\",\"job_metadata\"]"},
        {"{\"pp_degree\":2,\"dp_degree\":16384,\"tp_degree\":1,\"world_size\":32768}",
         "world_size"},
    };
    static const struct {
        const char *body, *part;
    } ranks[] = {
        {"{\"rank\":4,\"dp_rank\":0,\"pp_rank\":0,\"tp_rank\":0," CLOCKS "}", "\"rank\""},
        {"{\"rank\":-1,\"dp_rank\":0,\"pp_rank\":0,\"tp_rank\":0," CLOCKS "}", "\"rank\""},
        {"{\"rank\":1,\"dp_rank\":2,\"pp_rank\":0,\"tp_rank\":0," CLOCKS "}", "\"dp_rank\""},
        {"{\"rank\":1,\"dp_rank\":0,\"pp_rank\":2,\"tp_rank\":0," CLOCKS "}", "\"pp_rank\""},
        {"{\"rank\":1,\"dp_rank\":0,\"pp_rank\":0,\"tp_rank\":1," CLOCKS "}", "\"tp_rank\""},
        {"{\"rank\":1,\"dp_rank\":0,\"pp_rank\":0,\"tp_rank\":0," CLOCKS "}",
         "are those of rank 0"},
        {"{\"rank\":1,\"dp_rank\":0,\"pp_rank\":1,\"tp_rank\":0}", "available_frequencies"},
        {"{\"rank\":1,\"dp_rank\":0,\"pp_rank\":1,\"tp_rank\":0,\"available_frequencies\":[]}",
         "expected 1 to 1000 clocks"},
        {"{\"rank\":1,\"dp_rank\":0,\"pp_rank\":1,\"tp_rank\":0,\"available_frequencies\":[1,0]}",
         "item 1"},
        {"{\"rank\":1,\"dp_rank\":0,\"pp_rank\":1,\"tp_rank\":0,\"available_frequencies\":[1.5]}",
         "item 0"},
    };
    static const struct {
        const char *body, *part;
    } results[] = {
        {"{\"rank\":0,\"iter_time\":[1]}", "iter_energy"},
        {"{\"rank\":1,\"iter_time\":[1],\"iter_energy\":[2]}", "a rank that has registered"},
        {"{\"rank\":0,\"iter_time\":[-1],\"iter_energy\":[2]}", "iter_time"},
        {"{\"rank\":0,\"iter_time\":[1],\"iter_energy\":[\"2\"]}", "iter_energy"},
        {"{\"rank\":0,\"iter_time\":[1],\"iter_energy\":[2],\"time_breakdown\":{\"forward\":[1]}}",
         "time_breakdown"},
        {"{\"rank\":0,\"iter_time\":[1],\"iter_energy\":[2],\"energy_breakdown\":[]}",
         "energy_breakdown"},
    };
    struct erg_plan_server *server = serve("plan.json", NULL);
    char *job = register_job_at(server, 2, 2, "null", 0);
    check_answer(register_rank(server, job, 0, CLOCKS), 200, "null");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        check(server, "POST", "/register_job", jobs[i].body, 422, jobs[i].part);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        check(server, "POST", path_of("register_rank", job), ranks[i].body, 422, ranks[i].part);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        check(server, "POST", path_of("result", job), results[i].body, 422, results[i].part);
    static const char *const numbers[] = {NULL, "", "x", "-1", "4", "1.5"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        check_answer(ask_at(server, "GET", path_of("schedule", job), numbers[i], "", 0), 422,
                     "\"loc\":[\"query\",\"rank\"]");
    free(job);
    erg_plan_server_close(server);
}

static void test_paths(void **state)
{
    (void)state;
    struct erg_plan_server *server = serve("plan.json", NULL);
    check(server, "GET", "/info", "", 200, "\"version\"");
    check(server, "POST", "/info", "", 405, "Allow");
    check(server, "GET", "/register_job", "", 405, "Allow");
    check(server, "GET", "/", "", 404, "/register_rank/JOB");
    check(server, "GET", "/schedule", "", 404, "expected /register_job");
    check(server, "POST", "/register_rank/unknown+job", "{}", 404, "no job 'unknown+job'");
    check(server, "POST", "/result/unknown", "{}", 404, "no job 'unknown'");
    check_answer(ask_at(server, "GET", "/schedule/unknown", "0", "", 0), 404, "no job 'unknown'");
    char *job = register_job_at(server, 2, 1, "\"a/b?c \\u00e9\"", 0);
    assert_string_equal(job + strlen("2026-01-01-00-00-00"), "+dp1+pp2+tp1+ergon+a-b-c---");
    char *same = register_job_at(server, 2, 1, "\"a/b?c \\u00e9\"", 0);
    assert_string_not_equal(job, same);
    check(server, "GET", path_of("register_rank", job), "", 405, "Allow");
    check(server, "POST", path_of("schedule", job), "", 405, "Allow");
    free(job);
    free(same);
    erg_plan_server_close(server);
}

/* The later registration of a rank counts, and nobody waits for ever. */
static void test_a_rank_twice(void **state)
{
    (void)state;
    static const int others[] = {1300, 1450, 0};
    struct erg_plan_server *server = serve("plan.json", NULL);
    char *job = register_job_at(server, 2, 1, "null", 0);
    check_answer(register_rank(server, job, 0, CLOCKS), 200, "null");
    check_answer(register_rank(server, job, 0, "\"available_frequencies\":[1300,1450]"), 200,
                 "null");
    struct asked *before = ask_schedule(server, job, 0), *after = ask_schedule(server, job, 0);
    assert_ptr_equal(erg_plan_server_take(server), &before->question);
    check_answer(before, 400, "asked again");
    check_waits(after);
    /* Whoever hangs up is no longer asked for. */
    struct asked *gone = ask_schedule(server, job, 1);
    check_waits(gone);
    erg_plan_server_forget(server, &gone->question);
    forget(gone);
    check_answer(register_rank(server, job, 1, CLOCKS), 200, "null");
    assert_ptr_equal(erg_plan_server_take(server), &after->question);
    assert_null(erg_plan_server_take(server));
    check_schedule(after, "plan.json", 0, others);
    free(job);
    erg_plan_server_close(server);
}

static void test_a_plan_that_does_not_fit(void **state)
{
    (void)state;
    struct erg_plan_server *server = serve("plan.json", NULL);
    check(server, "POST", "/register_job",
          "{\"pp_degree\":4,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":4}", 400,
          "has a pipeline of 2 stages, but the job's pp_degree is 4");
    char *job = register_job_at(server, 2, 2, "null", 0);
    check_answer(register_rank(server, job, 0, CLOCKS), 200, "null");
    struct asked *first = ask_schedule(server, job, 0), *second = ask_schedule(server, job, 3);
    check_waits(first);
    /* A GPU without the plan's clocks: all that wait are told at once. */
    check_answer(register_rank(server, job, 1, "\"available_frequencies\":[1200,345]"), 400,
                 "rank 1: the clocks of stage 1: the plan, which is for GPU of the profile, has "
                 "clocks up to 1410 MHz, but the highest of this GPU is 1200 MHz");
    assert_ptr_equal(erg_plan_server_take(server), &first->question);
    assert_ptr_equal(erg_plan_server_take(server), &second->question);
    assert_null(erg_plan_server_take(server));
    check_answer(first, 400, "{\"detail\":\"rank 1: the clocks of stage 1");
    check_answer(second, 400, "{\"detail\":\"rank 1: the clocks of stage 1");
    check_answer(register_rank(server, job, 2, CLOCKS), 200, "null");
    check_answer(ask_schedule(server, job, 2), 400, "rank 1");
    /* Registered again with other clocks, it no longer stands in the way. */
    check_answer(register_rank(server, job, 1, CLOCKS), 200, "null");
    first = ask_schedule(server, job, 2);
    check_waits(first);
    check_answer(register_rank(server, job, 3, CLOCKS), 200, "null");
    assert_ptr_equal(erg_plan_server_take(server), &first->question);
    check_schedule(first, "plan.json", 2, clocks);
    free(job);
    erg_plan_server_close(server);
    /* A plan that knows how many GPUs share a stage, and plans without clocks. */
    shell("cp '" ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json' @/sample.json");
    server = serve("sample.json", NULL);
    check(server, "POST", "/register_job",
          "{\"pp_degree\":2,\"dp_degree\":1,\"tp_degree\":4,\"world_size\":8}", 400,
          "has tensor 8 x context 1, but the job's tp_degree is 4");
    check(server, "POST", "/register_job",
          "{\"pp_degree\":2,\"dp_degree\":1,\"tp_degree\":8,\"world_size\":16}", 200, "+tp8+");
    erg_plan_server_close(server);
}

static void test_another_plan_while_it_serves(void **state)
{
    (void)state;
    shell("cp @/plan.json @/now.json");
    struct erg_plan_server *server = serve("now.json", NULL);
    char *job = register_job_at(server, 2, 1, "null", 0);
    check_answer(register_rank(server, job, 0, CLOCKS), 200, "null");
    check_answer(register_rank(server, job, 1, CLOCKS), 200, "null");
    check_schedule(ask_schedule(server, job, 1), "plan.json", 1, clocks);
    shell("cp @/thrifty.json @/other && mv @/other @/now.json");
    check_schedule(ask_schedule(server, job, 1), "plan.json", 1, clocks); /* not looked at yet */
    erg_plan_server_tick(server, 0);
    check_schedule(ask_schedule(server, job, 1), "thrifty.json", 1, clocks);
    /* What is no plan, and a file that is gone, change nothing. */
    shell("echo '{}' > @/other && mv @/other @/now.json");
    erg_plan_server_tick(server, 0);
    check_schedule(ask_schedule(server, job, 1), "thrifty.json", 1, clocks);
    shell("rm @/now.json");
    erg_plan_server_tick(server, 0);
    check_schedule(ask_schedule(server, job, 0), "thrifty.json", 0, clocks);
    /* Who waits is told that the new plan does not fit; a later one that does mends it. */
    char *waits = register_job_at(server, 2, 1, "null", 0);
    struct asked *asked = ask_schedule(server, waits, 0);
    check_waits(asked);
    shell("cp @/four.json @/now.json");
    erg_plan_server_tick(server, 0);
    assert_ptr_equal(erg_plan_server_take(server), &asked->question);
    check_answer(asked, 400, "has a pipeline of 4 stages, but the job's pp_degree is 2");
    check_answer(ask_schedule(server, job, 0), 400, "has a pipeline of 4 stages");
    check_answer(register_rank(server, waits, 0, CLOCKS), 400, "has a pipeline of 4 stages");
    shell("cp @/plan.json @/other && mv @/other @/now.json");
    erg_plan_server_tick(server, 0);
    check_schedule(ask_schedule(server, job, 0), "plan.json", 0, clocks);
    free(job);
    free(waits);
    erg_plan_server_close(server);
}

static void test_limits(void **state)
{
    (void)state;
    struct erg_plan_server *server = serve("plan.json", NULL);
    char *jobs[ERG_PLAN_SERVER_JOBS + 1];
    for (int i = 0; i < ERG_PLAN_SERVER_JOBS; i++)
        jobs[i] = register_job_at(server, 2, 1, "null", i);
    /* One too many takes the place of the one that is idle longest and has nobody waiting. */
    struct asked *first = ask_schedule(server, jobs[0], 0);
    check_waits(first);
    jobs[ERG_PLAN_SERVER_JOBS] = register_job_at(server, 2, 1, "null", 100);
    check_answer(ask_schedule(server, jobs[1], 0), 404, "no job");
    struct asked *others[ERG_PLAN_SERVER_JOBS + 1];
    for (int i = 2; i <= ERG_PLAN_SERVER_JOBS; i++)
        check_waits(others[i] = ask_schedule(server, jobs[i], 0));
    check(server, "POST", "/register_job",
          "{\"pp_degree\":2,\"dp_degree\":1,\"tp_degree\":1,\"world_size\":2}", 503, "are waiting");
    /* Seven days without a request end a job. */
    erg_plan_server_tick(server, 7 * DAY_NS);
    assert_null(erg_plan_server_take(server));
    erg_plan_server_tick(server, 7 * DAY_NS + 1);
    assert_ptr_equal(erg_plan_server_take(server), &first->question);
    check_answer(first, 404, "is unknown");
    for (int i = 2; i <= ERG_PLAN_SERVER_JOBS; i++) {
        assert_ptr_equal(erg_plan_server_take(server),
                         &others[i == 2 ? ERG_PLAN_SERVER_JOBS : i - 1]->question);
        check_answer(others[i == 2 ? ERG_PLAN_SERVER_JOBS : i - 1], 404, "is unknown");
    }
    for (int i = 0; i <= ERG_PLAN_SERVER_JOBS; i++)
        free(jobs[i]);
    erg_plan_server_close(server);
}

/* As many ranks as there may be; at the server's end those that wait are answered. */
static void test_many_ranks(void **state)
{
    (void)state;
    struct erg_plan_server *server = serve("plan.json", NULL);
    char *job = register_job_at(server, 2, ERG_PLAN_SERVER_RANKS / 2, "null", 0);
    for (int rank = 1; rank < ERG_PLAN_SERVER_RANKS; rank++)
        check_answer(register_rank(server, job, rank, CLOCKS), 200, "null");
    struct asked *last = ask_schedule(server, job, ERG_PLAN_SERVER_RANKS - 1);
    check_waits(last);
    erg_plan_server_end(server);
    assert_ptr_equal(erg_plan_server_take(server), &last->question);
    check_answer(last, 503, "the server ends");
    check_answer(register_rank(server, job, 0, CLOCKS), 200, "null");
    check_schedule(ask_schedule(server, job, ERG_PLAN_SERVER_RANKS - 1), "plan.json",
                   ERG_PLAN_SERVER_RANKS - 1, clocks);
    /* A job has so many kinds of GPUs, and no more. */
    for (int kind = 0; kind < 64; kind++) {
        char list[64];
        snprintf(list, sizeof list, "\"available_frequencies\":[%d]", 2000 + kind);
        check_answer(register_rank(server, job, kind, list), kind < 63 ? 200 : 422,
                     kind < 63 ? "null" : "at most 64 kinds of GPU");
    }
    free(job);
    erg_plan_server_close(server);
}

static void test_results_are_recorded(void **state)
{
    (void)state;
    static const char body[] =
        "{\"rank\":1,\"iter_time\":[0.25,0.5],\"iter_energy\":[100,200],"
        "\"time_breakdown\":{\"forward\":[[0.1],[0.2]]},\"energy_breakdown\":{}}";
    struct erg_plan_server *server = serve("plan.json", "results/all");
    char *job = register_job_at(server, 2, 1, "null", 0);
    struct erg_text path = {0};
    struct erg_error err;
    check_answer(register_rank(server, job, 1, CLOCKS), 200, "null");
    check(server, "POST", path_of("result", job), body, 200, "null");
    check(server, "POST", path_of("result", job), body, 200, "null");
    for (int i = 1; i <= 2; i++) {
        char *text;
        size_t length;
        json_t *root;
        path.count = 0;
        erg_text_printf(&path, "%s/%s/rank-1-%d.json", in_folder("results/all"), job, i);
        assert_ok(erg_file_read(path.data, 0, &text, &length, &err), &err);
        assert_ok(erg_json_parse(&root, path.data, text, length, &err), &err);
        assert_string_equal(text_at(root, "job"), job);
        assert_near(number_at(root, "pp_rank"), 1, 0);
        assert_near(number_at(root, "result.iter_energy.1"), 200, 0);
        assert_near(number_at(root, "result.time_breakdown.forward.1.0"), 0.2, 0);
        json_decref(root);
        free(text);
    }
    erg_text_release(&path);
    free(job);
    erg_plan_server_close(server);
}

static void test_plans_that_are_refused(void **state)
{
    (void)state;
    struct erg_plan_server *server;
    struct erg_error err;
    struct erg_plan_server_options options = {.plan = in_folder("absent.json")};
    assert_fails(erg_plan_server_open(&server, &options, &err), &err, "absent.json");
    options.plan = in_folder("plan.json");
    options.number = 1001;
    assert_fails(erg_plan_server_open(&server, &options, &err), &err, "got 1001");
    options.number = 0;
    options.record = in_folder("plan.json");
    assert_fails(erg_plan_server_open(&server, &options, &err), &err, "plan.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules_wait_for_all_ranks),
        cmocka_unit_test(test_invalid_bodies),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_a_rank_twice),
        cmocka_unit_test(test_a_plan_that_does_not_fit),
        cmocka_unit_test(test_another_plan_while_it_serves),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_results_are_recorded),
        cmocka_unit_test(test_plans_that_are_refused),
    };
    return cmocka_run_group_tests(tests, begin, remove_folder);
}
