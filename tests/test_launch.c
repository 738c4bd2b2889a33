/*
 * launch/: starting ranks and watching over them, the rendezvous. Which rank a process is has a
 * test of its own, test_launch_environment. The ranks of the tests are this program itself, started
 * as "test_launch rank SCENARIO".
 */
#include "launch/proof_internal.h"
#include "launch/rendezvous.h"
#include "launch/wire_internal.h"
#include "launcher_variables.h"
#include "program.h"
#include "side_by_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Long enough for a loaded machine under a sanitizer; failures are not waited for this long. */
static const double patience_s = 60;

/* ---- what the ranks do ---- */

static int talk(struct erg_rendezvous *r, const struct erg_launch_environment *env,
                struct erg_error *err)
{
    enum { ROUNDS = 40, LARGE = 300001 };
    unsigned char *mine = malloc(LARGE), *all = malloc((size_t)LARGE * (size_t)env->world);
    int wrong = 0, result = 0;
    for (int round = 0; round < ROUNDS && result == 0; round++) {
        size_t count = round == 7 ? LARGE : (size_t)(round * 3);
        memset(mine, env->rank + round, LARGE);
        result = erg_rendezvous_all_gather(r, mine, count, all, patience_s, err);
        for (size_t i = 0; i < count * (size_t)env->world; i++)
            wrong += all[i] != (unsigned char)(i / count + (size_t)round);
        int root = round % env->world;
        if (result == 0)
            result = erg_rendezvous_broadcast(r, root, mine, 100, patience_s, err);
        for (size_t i = 0; i < 100; i++)
            wrong += mine[i] != (unsigned char)(root + round);
        if (result == 0)
            result = erg_rendezvous_barrier(r, patience_s, err);
    }
    free(mine);
    free(all);
    return result || wrong ? -1 : 0;
}

/* What rank 1 of a scenario does before the others wait for it. */
static int misbehave(struct erg_rendezvous *r, const char *scenario, struct erg_error *err)
{
    char byte = 0, bytes[64];
    if (!strcmp(scenario, "killed"))
        raise(SIGKILL);
    if (!strcmp(scenario, "stopped"))
        raise(SIGSTOP);
    if (!strcmp(scenario, "early"))
        _exit(0);
    if (!strcmp(scenario, "leaves")) {
        erg_rendezvous_close(r);
        _exit(0);
    }
    if (!strcmp(scenario, "late"))
        pause();
    if (!strcmp(scenario, "explains")) {
        err->status = ERG_FAILED;
        snprintf(err->message, sizeof err->message, "the disk is gone");
        erg_rendezvous_explain(r, err);
        return *err->message ? 0 : -1; /* another rank says it */
    }
    if (!strcmp(scenario, "aborts"))
        erg_rendezvous_abort(r, "somebody saw it from outside");
    if (!strcmp(scenario, "disagrees"))
        return erg_rendezvous_all_gather(r, &byte, 1, bytes, patience_s, err);
    return 0;
}

/* A connection to rank 0 of somebody who knows nothing but the port. */
static int visit(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int tries = 0, fd = socket(AF_INET, SOCK_STREAM, 0);
    while (connect(fd, (struct sockaddr *)&address, sizeof address) && tries++ < 1000)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return fd;
}

static void say(int fd, const void *bytes, size_t count)
{
    if (send(fd, bytes, count, MSG_NOSIGNAL) < 0)
        perror("send");
}

/* A frame as a rank sends it, but what it announces may be wrong. */
static void say_frame(int fd, uint32_t type, uint32_t rank, uint64_t announced, const void *payload,
                      size_t bytes)
{
    struct erg_frame frame = {
        .magic = 0x32475245, .type = type, .rank = rank, .count = 2, .payload_bytes = announced};
    say(fd, &frame, sizeof frame);
    if (bytes)
        say(fd, payload, bytes);
}

static void send_garbage(const struct erg_launch_environment *env)
{
    static const char words[] = "GET / HTTP/1.1\r\nHost: a stray visitor, who is not of this "
                                "job and would like some page\r\n\r\n";
    int fd = visit(env->port);
    say(fd, words, sizeof words);
    close(fd);
}

/*
 * Rank 1 sends these before it comes itself, and keeps them all open. They must neither cost rank 0
 * time (20 of them a second each would be more than the 8 s of this meeting) nor end it.
 */
static void send_strangers(const struct erg_launch_environment *env)
{
    unsigned char wrong[64] = {1, 2, 3};
    for (int i = 0; i < 20; i++) {
        say_frame(visit(env->port), ERG_FRAME_HELLO, 1, 9, "wrong job", 9);
        int fd = visit(env->port); /* claims rank 1, and proves it wrongly */
        say_frame(fd, ERG_FRAME_HELLO, 1, 16, wrong, 16);
        say_frame(fd, ERG_FRAME_PROOF, 1, 32, wrong, 32);
        say_frame(visit(env->port), ERG_FRAME_HELLO, 99, 16, wrong, 16);
        say_frame(visit(env->port), ERG_FRAME_HELLO, 1, 60ull << 30, wrong, sizeof wrong);
        say_frame(visit(env->port), ERG_FRAME_ABORT, 1, 3, "end", 3);
        visit(env->port); /* says nothing */
    }
}

static int act(const char *scenario, struct erg_error *err)
{
    struct erg_launch_environment env;
    struct erg_rendezvous *r;
    double open_s = patience_s, call_s = patience_s;
    if (erg_launch_environment_read(&env, err))
        return -1;
    if (!strcmp(scenario, "absent"))
        open_s = 3;
    if (!strcmp(scenario, "late"))
        call_s = 2;
    if (!strncmp(scenario, "at ", 3))
        snprintf(env.host, sizeof env.host, "%s", scenario + 3);
    if (env.rank == 1 && !strcmp(scenario, "absent"))
        pause();
    if (env.rank == 1 && !strcmp(scenario, "world"))
        env.world++;
    if (env.rank == 1 && !strcmp(scenario, "job"))
        env.job[0] = 'x';
    if (env.rank == 2 && !strcmp(scenario, "twice"))
        env.rank = 1;
    if (env.rank == 1 && !strcmp(scenario, "stray"))
        send_garbage(&env);
    if (!strcmp(scenario, "strangers"))
        open_s = 8;
    if (env.rank == 0 && !strcmp(scenario, "few files"))
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){24, 24});
    if (env.rank == 1 && (!strcmp(scenario, "strangers") || !strcmp(scenario, "few files")))
        send_strangers(&env);
    if (env.rank == 1 && !strcmp(scenario, "secret"))
        env.secret[0] ^= 1;
    if (env.rank == 0 && !strcmp(scenario, "closed"))
        close(env.listener);
    if (erg_rendezvous_open(&r, &env, open_s, err))
        return -1;
    int result = talk(r, &env, err);
    /* The middle one, so that there are ranks before and after it; "0 SCENARIO" is for rank 0. */
    bool first = !strncmp(scenario, "0 ", 2);
    if (result == 0 && env.rank == (first ? 0 : 1))
        result = misbehave(r, first ? scenario + 2 : scenario, err);
    if (result == 0)
        result = erg_rendezvous_barrier(r, call_s, err);
    if (result == 0)
        result = erg_rendezvous_check(r, err);
    erg_rendezvous_close(r);
    return result;
}

static int be_rank(const char *scenario)
{
    struct erg_error err = {0};
    signal(SIGTERM, SIG_IGN); /* to hear what it says of the failure before it is ended */
    int result = act(scenario, &err);
    puts(result ? err.message : "well");
    return result ? 1 : 0;
}

/* ---- running them ---- */

struct heard {
    int lines, count[8];
    char last[8][300]; /* line per rank */
};

static void hear(void *context, int rank, bool is_error, const char *text, size_t count)
{
    struct heard *heard = context;
    (void)is_error;
    heard->lines++;
    heard->count[rank]++;
    snprintf(heard->last[rank], sizeof *heard->last, "%.*s", (int)count, text);
}

static int run_ranks(int ranks, const char *scenario, struct heard *heard, struct erg_error *err)
{
    const char *command[] = {"/proc/self/exe", "rank", scenario, NULL};
    struct erg_launch_job job = {
        .ranks = ranks, .command = command, .line = hear, .context = heard};
    *heard = (struct heard){0};
    *err = (struct erg_error){0};
    return erg_launch_run(&job, err);
}

static void ranks_talk(void **state)
{
    (void)state;
    struct heard heard;
    struct erg_error err;
    static const char *const scenarios[] = {"talk", "stray", "at localhost", "strangers",
                                            "few files"};
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
            if (run_ranks(ranks, scenarios[i], &heard, &err))
                fail_msg("%s: %s (%s)", scenarios[i], err.message, heard.last[0]);
            for (int rank = 0; rank < ranks; rank++)
                assert_string_equal(heard.last[rank], "well");
        }
}

static void ranks_talk_over_ipv6(void **state)
{
    (void)state;
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool there = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    if (!there)
        skip();
    struct heard heard;
    struct erg_error err;
    assert_ok(run_ranks(2, "at ::1", &heard, &err), &err);
    assert_string_equal(heard.last[1], "well");
}

/* Every rank but those of `silent` says a sentence with `part` in it. */
static void check_failure(int ranks, const char *scenario, unsigned silent, const char *part,
                          int status)
{
    struct heard heard;
    struct erg_error err;
    assert_int_equal(run_ranks(ranks, scenario, &heard, &err), -1);
    if ((int)err.status != status)
        fail_msg("%s: status %d, expected %d: %s", scenario, (int)err.status, status, err.message);
    for (int rank = 0; rank < ranks; rank++)
        if (!(silent >> rank & 1) && !strstr(heard.last[rank], part))
            fail_msg("%s: rank %d said \"%s\", expected \"%s\" in it", scenario, rank,
                     heard.last[rank], part);
}

static void the_death_of_a_rank_reaches_all(void **state)
{
    (void)state;
    check_failure(2, "killed", 0x2, "rank 1 was lost: its connection closed", 137);
    check_failure(4, "killed", 0x2, "rank 1 was lost: its connection closed", 137);
    check_failure(4, "0 killed", 0x1, "rank 0 was lost: its connection closed", 137);
    check_failure(8, "early", 0x2, "rank 1 was lost: its connection closed", 1);
    check_failure(4, "leaves", 0x2, "rank 1 has left", 1);
    check_failure(3, "0 leaves", 0x1, "rank 0 has left", 1);
}

static void the_silence_of_a_rank_reaches_all(void **state)
{
    (void)state;
    check_failure(3, "stopped", 0x2, "rank 1 was lost: no sign of life", 1);
}

/* What one rank alone knows, or somebody besides its calls, is what all get. */
static void a_failure_of_one_rank_is_everybodys(void **state)
{
    (void)state;
    check_failure(4, "explains", 0x2, "rank 1: the disk is gone", 1);
    check_failure(4, "aborts", 0, "somebody saw it from outside", 1);
    check_failure(3, "0 aborts", 0, "somebody saw it from outside", 1);
}

static void absent_ranks_are_named(void **state)
{
    (void)state;
    check_failure(4, "absent", 0x2, "missing: rank 1", 1);
    check_failure(4, "late", 0x2, "missing: rank 1", 1);
    check_failure(3, "disagrees", 0, "the ranks disagree", 1);
}

static void wrong_worlds_are_refused(void **state)
{
    (void)state;
    check_failure(2, "world", 0, "rank 1 was told of a world of 3 ranks, but rank 0 of one of 2",
                  1);
    check_failure(3, "twice", 0, "two processes say that they are rank 1", 1);
    check_failure(2, "job", 0x1, "rank 0 of another job listens at this port", 1);
    check_failure(2, "secret", 0x1, "or one that was given another ERGON_JOB_SECRET", 1);
    check_failure(2, "closed", 0x2, "is closed or something else", 1);
}

static void a_port_in_use_is_an_error(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    struct erg_launch_environment env = {
        .world = 2, .host = "127.0.0.1", .port = ntohs(address.sin_port)};
    struct erg_rendezvous *r;
    struct erg_error err = {0};
    assert_fails(erg_rendezvous_open(&r, &env, patience_s, &err), &err, "already in use");
    close(fd);
}

/* Of a port that somebody else has, ranks believe nothing. */
static void an_impostor_is_not_rank_0(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    struct erg_launch_environment env = {.rank = 1,
                                         .world = 2,
                                         .host = "127.0.0.1",
                                         .port = ntohs(address.sin_port),
                                         .job = "j",
                                         .secret = "0123456789abcdef"};
    static const struct {
        uint32_t type;
        uint64_t bytes;
        const char *part;
    } answers[] = {{ERG_FRAME_WELCOME, 0, "something that is not rank 0"},
                   {ERG_FRAME_ABORT, 5, "something that is not rank 0"},
                   {ERG_FRAME_CHALLENGE, 48, "rank 0 of another job listens"},
                   {ERG_FRAME_CHALLENGE, 47, "something that is not rank 0"},
                   {ERG_FRAME_RESULT, 60ull << 30, "something that is not rank 0"}};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        pid_t impostor = fork();
        if (impostor == 0) {
            static const char payload[64] = "\033[2J";
            int fd = accept(listener, NULL, NULL);
            say_frame(fd, answers[i].type, 0, answers[i].bytes, payload,
                      answers[i].bytes < 64 ? (size_t)answers[i].bytes : 64);
            pause();
        }
        struct erg_rendezvous *r;
        struct erg_error err = {0};
        assert_fails(erg_rendezvous_open(&r, &env, patience_s, &err), &err, answers[i].part);
        kill(impostor, SIGKILL);
        waitpid(impostor, NULL, 0);
    }
    close(listener);
}

static void proofs_are_those_of_the_standard(void **state)
{
    (void)state;
    /* RFC 4231, test cases 1, 2 and 6, and a message whose padding needs a block of its own. */
    char key20[21], key131[132], long_text[120];
    memset(key20, 0x0b, 20);
    memset(key131, 0xaa, 131);
    memset(long_text, 'x', sizeof long_text);
    key20[20] = key131[131] = 0;
    const struct {
        const char *key, *text;
        unsigned char begin[4];
    } cases[] = {{key20, "Hi There", {0xb0, 0x34, 0x4c, 0x61}},
                 {"Jefe", "what do ya want for nothing?", {0x5b, 0xdc, 0xc1, 0x46}},
                 {key131,
                  "Test Using Larger Than Block-Size Key - Hash Key First",
                  {0x60, 0xe4, 0x31, 0x59}}};
    unsigned char proof[ERG_PROOF_BYTES], other[ERG_PROOF_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        erg_proof_make(proof, cases[i].key, cases[i].text, strlen(cases[i].text));
        assert_memory_equal(proof, cases[i].begin, 4);
    }
    erg_proof_make(proof, "k", long_text, sizeof long_text);
    static const unsigned char known[4] = {0x07, 0x56, 0x7c, 0xab};
    assert_memory_equal(proof, known, 4);
    memcpy(other, proof, sizeof other);
    assert_true(erg_proof_equal(proof, other));
    other[31] ^= 1;
    assert_false(erg_proof_equal(proof, other));
}

/* ---- the launcher ---- */

static int run_shell(int ranks, const char *script, double timeout_s, struct heard *heard,
                     struct erg_error *err)
{
    const char *command[] = {"sh", "-c", script, NULL};
    struct erg_launch_job job = {
        .ranks = ranks, .command = command, .timeout_s = timeout_s, .line = hear, .context = heard};
    *heard = (struct heard){0};
    *err = (struct erg_error){0};
    return erg_launch_run(&job, err);
}

static void the_first_failure_is_the_exit_status(void **state)
{
    (void)state;
    struct heard heard;
    struct erg_error err;
    assert_ok(run_shell(4, "exit 0", 0, &heard, &err), &err);
    assert_fails(run_shell(4, "[ $ERGON_RANK = 2 ] && exit 7; sleep 1000", 0, &heard, &err), &err,
                 "rank 2 exited with status 7 after");
    assert_int_equal(err.status, 7);
    assert_fails(run_shell(4, "[ $ERGON_RANK = 2 ] && kill -SEGV $$; sleep 1000", 0, &heard, &err),
                 &err, "rank 2 was killed by signal 11");
    assert_int_equal(err.status, 139);
    /* Ranks that refuse to end, with children that do. */
    assert_fails(run_shell(2, "[ $ERGON_RANK = 1 ] && exit 5; trap '' TERM; sleep 1000; sleep 1000",
                           0, &heard, &err),
                 &err, "rank 1 exited with status 5");
    assert_int_equal(err.status, 5);
    assert_fails(run_shell(2, "sleep 1000", 0.2, &heard, &err), &err, "timeout of 0.2 s");
    assert_int_equal(err.status, 124);
    /* A death by signal is the cause even where a survivor's exit is seen first. */
    assert_fails(run_shell(2,
                           "trap '' TERM; [ $ERGON_RANK = 0 ] && sleep 0.5 && exit 1; "
                           "sleep 1; kill -KILL $$",
                           0, &heard, &err),
                 &err, "rank 1 was killed by signal 9");
    assert_int_equal(err.status, 137);
}

/* Ranks that exit with 85 or 130 stop, and let the others do the same. */
static void stops_are_not_failures(void **state)
{
    (void)state;
    static const char both[] = "trap 'echo ended' TERM; [ $ERGON_RANK = 0 ] || sleep 0.5; "
                               "echo stopped; exit %d";
    char script[128];
    struct heard heard;
    struct erg_error err;
    for (int status = 85; status <= 130; status += 45) {
        snprintf(script, sizeof script, both, status);
        assert_fails(run_shell(3, script, 0, &heard, &err), &err, "rank 0 stopped with status");
        assert_int_equal(err.status, status);
        for (int rank = 0; rank < 3; rank++)
            assert_string_equal(heard.last[rank], "stopped");
        assert_int_equal(heard.lines, 3);
    }
    /* A failure counts for more, whenever it is seen, and ends the rest. */
    assert_fails(run_shell(3,
                           "[ $ERGON_RANK = 0 ] && exit 85; [ $ERGON_RANK = 2 ] && sleep 1000; "
                           "sleep 0.3; exit 7",
                           0, &heard, &err),
                 &err, "rank 1 exited with status 7");
    assert_int_equal(err.status, 7);
    assert_fails(
        run_shell(2, "[ $ERGON_RANK = 0 ] && exit 85; sleep 0.3; kill -KILL $$", 0, &heard, &err),
        &err, "rank 1 was killed by signal 9");
    assert_int_equal(err.status, 137);
    /* What does not stop is ended. */
    const char *command[] = {"sh", "-c", "[ $ERGON_RANK = 0 ] && exit 85; sleep 1000", NULL};
    struct erg_launch_job job = {
        .ranks = 2, .command = command, .stop_s = 0.3, .line = hear, .context = &heard};
    assert_fails(erg_launch_run(&job, &err), &err, "rank 0 stopped with status 85 after");
    assert_non_null(strstr(err.message, "; the other ranks were ended"));
    assert_int_equal(err.status, 85);
}

/* A job's folder is handed down to the ranks, any other name is not. */
static void the_folder_of_the_job_is_handed_down(void **state)
{
    (void)state;
    struct heard heard;
    struct erg_error err;
    setenv("ERGON_JOB", "/jobs/a folder", 1);
    assert_string_equal(erg_launch_job_folder(), "/jobs/a folder");
    assert_ok(run_shell(2, "echo \"$ERGON_JOB\"", 0, &heard, &err), &err);
    assert_string_equal(heard.last[1], "/jobs/a folder");
    setenv("ERGON_JOB", "of another launcher", 1);
    assert_null(erg_launch_job_folder());
    assert_ok(run_shell(2, "echo \"$ERGON_JOB\"", 0, &heard, &err), &err);
    assert_null(strstr(heard.last[1], "launcher"));
    unsetenv("ERGON_JOB");
}

static void a_command_that_cannot_be_run_is_an_error(void **state)
{
    (void)state;
    const char *command[] = {"no-such-command-anywhere", NULL};
    struct heard heard = {0};
    struct erg_launch_job job = {.ranks = 3, .command = command, .line = hear, .context = &heard};
    struct erg_error err = {0};
    assert_fails(erg_launch_run(&job, &err), &err, "cannot run \"no-such-command-anywhere\"");
    assert_int_equal(err.status, 127);
    command[0] = "/etc/passwd";
    assert_fails(erg_launch_run(&job, &err), &err, "Permission denied");
    assert_int_equal(err.status, 126);
    /* A folder of PATH that cannot be searched hides nothing that is nowhere. */
    assert_int_equal(erg_launch_command_error("no-such-command-anywhere", EACCES), ENOENT);
    assert_int_equal(erg_launch_command_error("sh", EACCES), EACCES);
    assert_int_equal(erg_launch_command_error("/etc/passwd", EACCES), EACCES);
    assert_int_equal(erg_launch_command_error("no-such-command-anywhere", ENOEXEC), ENOEXEC);
}

/* Scripts that are started with torchrun otherwise find all they read; nothing of a launcher that
 * this one runs under is left. */
static void ranks_find_the_variables_of_torchrun(void **state)
{
    (void)state;
    struct heard heard;
    struct erg_error err;
    set_environment("RANK=6 LOCAL_RANK=2 WORLD_SIZE=8 MASTER_ADDR=n1 MASTER_PORT=1 "
                    "TORCHELASTIC_USE_AGENT_STORE=True RANKS=kept");
    assert_ok(run_shell(3,
                        "[ $MASTER_PORT -gt 0 ] && [ $MASTER_PORT != $ERGON_PORT ] && echo $RANK "
                        "$LOCAL_RANK $WORLD_SIZE "
                        "$LOCAL_WORLD_SIZE $MASTER_ADDR \"$TORCHELASTIC_USE_AGENT_STORE\" $RANKS "
                        "$(env | grep -c ^RANK=)",
                        0, &heard, &err),
              &err);
    assert_string_equal(heard.last[0], "0 0 3 3 127.0.0.1  kept 1");
    assert_string_equal(heard.last[2], "2 2 3 3 127.0.0.1  kept 1");
    unsetenv("RANKS");
    clear_environment();
}

/* Nobody else can listen at the port of rank 0, even before rank 0 runs. */
static void the_port_is_taken_before_ranks_start(void **state)
{
    (void)state;
    struct heard heard;
    struct erg_error err;
    assert_ok(run_shell(2,
                        "[ $ERGON_RANK = 1 ] && exit; "
                        "grep -q \"0100007F:$(printf %04X $ERGON_PORT) 00000000:0000 0A\" "
                        "/proc/net/tcp && [ ${#ERGON_JOB_SECRET} = 32 ] && "
                        "[ -e /proc/self/fd/$ERGON_LISTENER ] && echo ready",
                        0, &heard, &err),
              &err);
    assert_string_equal(heard.last[0], "ready");
}

static void signals_are_passed_on(void **state)
{
    (void)state;
    struct heard heard;
    struct erg_error err;
    /* Rank 1 asks the launcher once all have set their traps. */
    char folder[] = "/tmp/ergon-launch-XXXXXX", script[512];
    assert_non_null(mkdtemp(folder));
    snprintf(script, sizeof script,
             "exec 2>/dev/null; trap 'echo heard; exit 0' USR1; : >%s/$ERGON_RANK; "
             "if [ $ERGON_RANK = 1 ]; then "
             "until [ -e %s/0 ] && [ -e %s/2 ]; do sleep 0.01; done; kill -USR1 $PPID; fi; "
             "while :; do sleep 0.01; done",
             folder, folder, folder);
    assert_ok(run_shell(3, script, 0, &heard, &err), &err);
    for (int rank = 0; rank < 3; rank++)
        assert_string_equal(heard.last[rank], "heard");
    /* A second SIGINT kills ranks that ignore the first. */
    snprintf(script, sizeof script,
             "trap '' INT; : >%s/ready$ERGON_RANK; [ $ERGON_RANK = 0 ] && "
             "until [ -e %s/ready1 ]; do sleep 0.01; done && "
             "while :; do kill -INT $PPID; sleep 0.05; done; sleep 1000; sleep 1000",
             folder, folder);
    assert_fails(run_shell(2, script, 0, &heard, &err), &err, "was killed by signal 9");
    assert_int_equal(err.status, 137);
    char clean[128];
    snprintf(clean, sizeof clean, "rm -r '%s'", folder);
    assert_int_equal(system(clean), 0);
}

static void ignore_line(void *context, int rank, bool is_error, const char *text, size_t count)
{
    (void)context, (void)rank, (void)is_error, (void)text, (void)count;
}

/* Process numbers that the ranks leave in files of a folder. */
static pid_t read_pid(const char *folder, int rank)
{
    char path[128];
    long pid = 0;
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    for (int tries = 0; pid == 0 && tries < 6000; tries++) {
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%ld", &pid) != 1)
            pid = 0;
        if (file)
            fclose(file);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_true(pid > 1);
    return (pid_t)pid;
}

/* Nothing is left of a launcher that is killed: neither ranks nor what they started. */
static void a_killed_launcher_takes_all_with_it(void **state)
{
    (void)state;
    char folder[] = "/tmp/ergon-launch-XXXXXX", script[256];
    assert_non_null(mkdtemp(folder));
    snprintf(script, sizeof script,
             "sleep 60 & echo $! >%s/new$$; mv %s/new$$ %s/$ERGON_RANK; wait", folder, folder,
             folder);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* orphans end here */
    pid_t launcher = fork();
    if (launcher == 0) {
        struct erg_error err;
        const char *command[] = {"sh", "-c", script, NULL};
        erg_launch_run(
            &(struct erg_launch_job){.ranks = 2, .command = command, .line = ignore_line}, &err);
        _exit(0);
    }
    pid_t started[2] = {read_pid(folder, 0), read_pid(folder, 1)};
    kill(launcher, SIGKILL);
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, 0)) > 0)
        if (pid == started[0] || pid == started[1])
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int rank = 0; rank < 2; rank++) /* its shell may have awaited it before its own end */
        assert_int_equal(kill(started[rank], 0), -1);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    char clean[128];
    snprintf(clean, sizeof clean, "rm -r '%s'", folder);
    assert_int_equal(system(clean), 0);
}

static void all_output_arrives(void **state)
{
    (void)state;
    struct heard heard;
    struct erg_error err;
    assert_ok(run_shell(4, "seq 20000; echo bad >&2; printf 'no end'", 0, &heard, &err), &err);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(heard.count[rank], 20002);
    /* A line too long for a buffer comes in pieces. */
    assert_ok(run_shell(1, "head -c 200000 /dev/zero | tr '\\0' x", 0, &heard, &err), &err);
    assert_in_range(heard.lines, 2, 4);
}

static void the_command_line(void **state)
{
    (void)state;
    check_program("run -n 2 -- sh -c 'echo $ERGON_RANK of $ERGON_WORLD_SIZE' | sort", 0,
                  "[0] 0 of 2\n[1] 1 of 2\n");
    check_program("run -n 1 --plain -- echo hello", 0, "hello\n");
    check_program("run -n 2 -- sh -c 'exit 9' 2>&1", 9, "exited with status 9");
    check_program("run -n 2 --timeout 0.2 -- sleep 100 2>&1", 124, "timeout of 0.2 s");
    check_program("run -n 0 -- true 2>&1", 2, "--ranks");
    check_program("run -- true 2>&1", 2, "needs the option --ranks");
    check_program("run -n 2 2>&1", 2, "needs -- CMD");
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "rank"))
        return be_rank(argv[2]);
    clear_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_talk),
        cmocka_unit_test(ranks_talk_over_ipv6),
        cmocka_unit_test(the_death_of_a_rank_reaches_all),
        cmocka_unit_test(the_silence_of_a_rank_reaches_all),
        cmocka_unit_test(a_failure_of_one_rank_is_everybodys),
        cmocka_unit_test(absent_ranks_are_named),
        cmocka_unit_test(wrong_worlds_are_refused),
        cmocka_unit_test(a_port_in_use_is_an_error),
        cmocka_unit_test(an_impostor_is_not_rank_0),
        cmocka_unit_test(proofs_are_those_of_the_standard),
        cmocka_unit_test(the_port_is_taken_before_ranks_start),
        cmocka_unit_test(the_first_failure_is_the_exit_status),
        cmocka_unit_test(stops_are_not_failures),
        cmocka_unit_test(the_folder_of_the_job_is_handed_down),
        cmocka_unit_test(a_command_that_cannot_be_run_is_an_error),
        cmocka_unit_test(ranks_find_the_variables_of_torchrun),
        cmocka_unit_test(signals_are_passed_on),
        cmocka_unit_test(a_killed_launcher_takes_all_with_it),
        cmocka_unit_test(all_output_arrives),
        cmocka_unit_test(the_command_line),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
