/* ergon serve --plan over HTTP: the bytes of Zeus' own client, ranks that wait, tokens, another
 * plan while it serves. */
#include "perseus.h"
#include "served.h"

#include <dirent.h>
#include <time.h>

#define REGISTER_JOB                                                                               \
    "{\"job_id\":\"\",\"pp_degree\":2,\"dp_degree\":%d,\"tp_degree\":1,\"world_size\":%d}"

static struct server serve_plan(void)
{
    static char plan[160];
    snprintf(plan, sizeof plan, "%s", in_folder("plan.json"));
    return start_serving((const char *[]){"--plan", plan, "--listen", "127.0.0.1:0", NULL});
}

/* ---- talking ---- */

static int say(const struct server *server, const struct erg_text *bytes)
{
    int connection = connect_to(server);
    assert_int_equal(send(connection, bytes->data, bytes->count, MSG_NOSIGNAL), bytes->count);
    return connection;
}

/* The answer, read as far as its header says, for connections that stay open. */
static struct erg_text hear(int connection)
{
    struct erg_text answer = {0};
    char block[4096];
    const char *body = NULL, *length;
    erg_text_add(&answer, "");
    for (;;) {
        ssize_t count = recv(connection, block, sizeof block, 0);
        if (count <= 0)
            break;
        erg_text_add_bytes(&answer, block, (size_t)count);
        body = strstr(answer.data, "\r\n\r\n");
        length = strstr(answer.data, "Content-Length: ");
        if (body && length && answer.data + answer.count >= body + 4 + atol(length + 16))
            break;
    }
    close(connection);
    return answer;
}

static void check_heard(int connection, const char *status, const char *body)
{
    struct erg_text answer = hear(connection);
    const char *found = strstr(answer.data, "\r\n\r\n");
    if (!found || strncmp(answer.data, status, strlen(status)) != 0 || !strstr(found, body))
        fail_msg("expected %s with \"%s\" in:\n%s", status, body, answer.data);
    erg_text_release(&answer);
}

/* A request with these headers beyond Host. */
static int request(const struct server *server, const char *line, const char *headers,
                   const char *body)
{
    struct erg_text bytes = {0};
    erg_text_printf(&bytes, "%s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%s",
                    line, headers, strlen(body), body);
    int connection = say(server, &bytes);
    erg_text_release(&bytes);
    return connection;
}

/* The job's name, to be freed. */
static char *name_of(int connection)
{
    struct erg_text answer = hear(connection);
    const char *body = strstr(answer.data, "\r\n\r\n\"");
    if (strncmp(answer.data, "HTTP/1.1 200", 12) != 0 || !body)
        fail_msg("expected the name of a job in:\n%s", answer.data);
    char *name = erg_xmemdup(body + 5, strcspn(body + 5, "\""));
    erg_text_release(&answer);
    return name;
}

static char *register_job(const struct server *server, int pipelines)
{
    char body[256];
    snprintf(body, sizeof body, REGISTER_JOB, pipelines, 2 * pipelines);
    return name_of(request(server, "POST /register_job", "", body));
}

static void register_rank(const struct server *server, const char *job, int rank,
                          const char *status)
{
    char line[256], body[256];
    snprintf(line, sizeof line, "POST /register_rank/%s", job);
    snprintf(body, sizeof body,
             "{\"rank\":%d,\"dp_rank\":%d,\"pp_rank\":%d,\"tp_rank\":0,"
             "\"available_frequencies\":[1410,1200]}",
             rank, rank / 2, rank % 2);
    check_heard(request(server, line, "", body), status, "");
}

static int ask_schedule(const struct server *server, const char *job, int rank)
{
    char line[256];
    snprintf(line, sizeof line, "GET /schedule/%s?rank=%d", job, rank);
    return request(server, line, "", "");
}

static void check_waits(int connection)
{
    char byte;
    assert_int_equal(recv(connection, &byte, 1, MSG_DONTWAIT), -1);
}

/* ---- tests ---- */

static int begin(void **state)
{
    if (commands_begin(state) != 0)
        return -1;
    make_plan("plan.json", 2, "");
    make_plan("thrifty.json", 2, "--deadline 100");
    make_plan("four.json", 4, "");
    set_world(NULL);
    return 0;
}

/* In the order in which four ranks sent them. */
static void test_the_bytes_of_zeus(void **state)
{
    (void)state;
    static const int order[] = {0, 2, 3, 1};
    struct server server = serve_plan();
    struct erg_text bytes = recorded("register_job", NULL);
    char *job = name_of(say(&server, &bytes)), name[32];
    erg_text_release(&bytes);
    assert_non_null(strstr(job, "+dp2+pp2+tp1+ergon+meta"));
    int waiting[4];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "schedule_%d", order[i]);
        bytes = recorded(name, job);
        waiting[order[i]] = say(&server, &bytes);
        erg_text_release(&bytes);
        snprintf(name, sizeof name, "register_rank_%d", order[i]);
        bytes = recorded(name, job);
        for (int k = 0; k <= i && i < 3; k++)
            check_waits(waiting[order[k]]);
        check_heard(say(&server, &bytes), "HTTP/1.1 200", "null");
        erg_text_release(&bytes);
    }
    for (int rank = 0; rank < 4; rank++) {
        struct erg_text expected = shown_schedule(in_folder("plan.json"), rank, rank % 2, NULL);
        check_heard(waiting[rank], "HTTP/1.1 200", expected.data);
        erg_text_release(&expected);
    }
    /* Asked with an unknown job, as recorded. */
    bytes = recorded("schedule_0", NULL);
    check_heard(say(&server, &bytes), "HTTP/1.1 404", "there is no job '" RECORDED_JOB "'");
    erg_text_release(&bytes);
    free(job);
    stop_serving(&server);
}

/* More ranks wait than there may be other connections. */
static void test_many_waiting_ranks(void **state)
{
    (void)state;
    enum { RANKS = 600 };
    struct server server = serve_plan();
    char *job = register_job(&server, RANKS / 2);
    int waiting[RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        waiting[rank] = ask_schedule(&server, job, rank);
    for (int rank = 0; rank < RANKS; rank++)
        register_rank(&server, job, rank, "HTTP/1.1 200");
    struct erg_text expected = {0};
    for (int rank = 0; rank < RANKS; rank++) {
        expected.count = 0;
        erg_text_printf(&expected, "{\"rank\":%d,\"frequencies\":[[\"forward\",", rank);
        check_heard(waiting[rank], "HTTP/1.1 200", expected.data);
    }
    erg_text_release(&expected);
    free(job);
    stop_serving(&server);
}

static int files_of(const struct server *server)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)server->pid);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    int count = 0;
    while (readdir(listing))
        count++;
    closedir(listing);
    return count;
}

static void await_files(const struct server *server, int count)
{
    for (int tries = 0; tries < 2000 && files_of(server) != count; tries++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    assert_int_equal(files_of(server), count);
}

/* Whoever hangs up while it waits leaves nothing behind; whoever waits at the end is let go. */
static void test_clients_that_hang_up(void **state)
{
    (void)state;
    struct server server = serve_plan();
    const int files = files_of(&server);
    char *job = register_job(&server, 1), byte;
    await_files(&server, files);
    for (int i = 0; i < 2; i++) {
        int connection = ask_schedule(&server, job, i);
        await_files(&server, files + 1);
        check_waits(connection);
        close(connection);
        await_files(&server, files);
    }
    int last = ask_schedule(&server, job, 0);
    register_rank(&server, job, 0, "HTTP/1.1 200");
    check_waits(last);
    stop_serving(&server);
    while (recv(last, &byte, 1, 0) > 0) /* perhaps why */
        ;
    close(last);
    free(job);
}

static void test_another_plan_while_ranks_wait(void **state)
{
    (void)state;
    shell("cp @/plan.json @/now.json");
    char plan[160];
    snprintf(plan, sizeof plan, "%s", in_folder("now.json"));
    struct server server =
        start_serving((const char *[]){"--plan", plan, "--listen", "127.0.0.1:0", NULL});
    char *job = register_job(&server, 1);
    int waiting = ask_schedule(&server, job, 0);
    register_rank(&server, job, 0, "HTTP/1.1 200");
    shell("cp @/four.json @/other && mv @/other @/now.json");
    check_heard(waiting, "HTTP/1.1 400",
                "has a pipeline of 4 stages, but the job's pp_degree is 2");
    shell("cp @/thrifty.json @/other && mv @/other @/now.json");
    register_rank(&server, job, 1, "HTTP/1.1");
    struct erg_text expected = shown_schedule(in_folder("thrifty.json"), 1, 1, NULL);
    struct erg_text answer = {0};
    for (int tries = 0; tries < 200 && !(answer.data && strstr(answer.data, expected.data));
         tries++) {
        erg_text_release(&answer);
        answer = hear(ask_schedule(&server, job, 1));
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    assert_non_null(strstr(answer.data, expected.data));
    erg_text_release(&answer);
    erg_text_release(&expected);
    free(job);
    stop_serving(&server);
}

static void test_requests_that_are_refused(void **state)
{
    (void)state;
    struct server server = serve_plan();
    struct erg_text body = {0};
    for (int i = 0; i < 1 << 16; i++)
        erg_text_add(&body, "0123456789abcdef ");
    check_heard(request(&server, "POST /register_job", "", body.data), "HTTP/1.1 413", "1 MiB");
    erg_text_release(&body);
    check_heard(request(&server, "POST /register_job", "", "{}"), "HTTP/1.1 422",
                "\"loc\":[\"body\",");
    check_heard(request(&server, "GET /register_job", "", ""), "HTTP/1.1 405", "detail");
    check_heard(request(&server, "GET /metrics", "", ""), "HTTP/1.1 404", "detail"); /* no GPUs */
    check_heard(request(&server, "GET /info", "", ""), "HTTP/1.1 200", "version");
    stop_serving(&server);
}

static void test_metrics_stay_with_a_plan(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct server server = serve_plan();
    check_heard(request(&server, "GET /metrics", "", ""), "HTTP/1.1 200", "ergon_build_info");
    check_heard(request(&server, "POST /metrics", "", ""), "HTTP/1.1 405", "GET or HEAD");
    check_heard(request(&server, "GET /info", "", ""), "HTTP/1.1 200", "version");
    stop_serving(&server);
    set_world(NULL);
}

static void test_tokens(void **state)
{
    (void)state;
    char plan[160], token[160];
    snprintf(plan, sizeof plan, "%s", in_folder("plan.json"));
    snprintf(token, sizeof token, "%s", in_folder("token"));
    write_text("token", "0123456789abcdef\n");
    struct server server = start_serving(
        (const char *[]){"--plan", plan, "--listen", "0.0.0.0:0", "--token", token, NULL});
    static const char *const wrong[] = {"",
                                        "Authorization: Bearer 0123456789abcdeF\r\n",
                                        "Authorization: Bearer\r\n",
                                        "Authorization: Bearer 0123456789abcdef0\r\n",
                                        "Authorization: Bearer 0123456789abcde\r\n",
                                        "Authorization: Basic ZXJnb246d3Jvbmc=\r\n",
                                        "Authorization: Basic !\r\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_heard(request(&server, "GET /info", wrong[i], ""), "HTTP/1.1 401", "token");
    check_heard(request(&server, "GET /info", "Authorization: Bearer 0123456789abcdef\r\n", ""),
                "HTTP/1.1 200", "version");
    /* As http://ergon:0123456789abcdef@HOST in a server_url. */
    check_heard(request(&server, "GET /info",
                        "Authorization: Basic ZXJnb246MDEyMzQ1Njc4OWFiY2RlZg==\r\n", ""),
                "HTTP/1.1 200", "version");
    stop_serving(&server);
    struct erg_text line = with_folder("serve --plan @/plan.json --listen 0.0.0.0:0 2>&1");
    check_program(line.data, 2,
                  "--plan is served at 0.0.0.0:0, which other machines can reach; "
                  "expected --token FILE");
    erg_text_release(&line);
    line = with_folder("serve --plan @/plan.json --listen '[::]:0' 2>&1");
    check_program(line.data, 2, "expected --token FILE");
    erg_text_release(&line);
    write_text("token", "short\n");
    line = with_folder("serve --plan @/plan.json --token @/token 2>&1");
    check_program(line.data, 1, "expected at least 16 letters");
    erg_text_release(&line);
}

static void test_machines_without_gpus(void **state)
{
    (void)state;
    check_program("serve --record x 2>&1", 2, "expected --plan");
    check_program("serve --point 2 2>&1", 2, "expected --plan");
    struct erg_text line = with_folder("serve --plan @/plan.json --gpus 0 2>&1");
    check_program(line.data, 4, "looking for NVIDIA GPUs");
    erg_text_release(&line);
    line = with_folder("serve --plan @/profile.csv 2>&1");
    check_program(line.data, 1, "profile.csv");
    erg_text_release(&line);
    line = with_folder("serve --plan @/plan.json --point 99 2>&1");
    check_program(line.data, 2, "got 99");
    erg_text_release(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bytes_of_zeus),
        cmocka_unit_test(test_many_waiting_ranks),
        cmocka_unit_test(test_clients_that_hang_up),
        cmocka_unit_test(test_another_plan_while_ranks_wait),
        cmocka_unit_test(test_requests_that_are_refused),
        cmocka_unit_test(test_metrics_stay_with_a_plan),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_machines_without_gpus),
    };
    return cmocka_run_group_tests(tests, begin, remove_folder);
}
