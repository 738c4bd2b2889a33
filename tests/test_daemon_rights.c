/*
 * Who may what (H9): the rules for a table of processes, GPUs and values; jobs from control groups;
 * processes that are not what their number says. The rest asks a daemon as other users, where this
 * one may become them.
 */
#define _DEFAULT_SOURCE /* setgroups, syscall */
#include "daemon/daemon_rules.h"
#include "daemon_world.h"

#include "launch/slurm_cgroup.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

static const char rules[] =
    "rules:\n"
    "  - {group: '500', may: [clock, power], gpus: '0,1,2,3', clock_mhz: [600, 1980], "
    "power_w: [400, 700]}\n"
    "  - {slurm: granted, may: [clock, power], gpus: job, power_w: [300, 650]}\n"
    "  - {user: '1001', may: [clock], gpus: GPU-g0000006}\n"
    "  - {user: '1002', may: [memory], gpus: all}\n"
    "  - {group: '501', may: [power], gpus: '7'}\n"
    "  - {user: '1001', may: [clock, power, memory], gpus: '6,7'}\n";

/* Job 10 of user 1000 has GPUs 4 and 5, job 11 of the same user GPU 6, job 12 of 1003 GPU 7. */
static const struct erg_daemon_grant grants[ERG_DAEMON_GRANTS] = {
    {10, 1000, 0x30}, {11, 1000, 0x40}, {12, 1003, 0x80}};

/* All of them ask for `value` (MHz or W) of a knob; `may`: as the rules say. */
static const struct {
    uint32_t uid, group, job;
    size_t gpu;
    enum erg_knob knob;
    int value;
    bool may;
} cases[] = {
    /* a member of the group: its GPUs and bounds */
    {2000, 500, 0, 0, ERG_KNOB_CLOCK, 600, true},
    {2000, 500, 0, 3, ERG_KNOB_CLOCK, 1980, true},
    {2000, 500, 0, 3, ERG_KNOB_CLOCK, 585, false},
    {2000, 500, 0, 4, ERG_KNOB_CLOCK, 900, false},
    {2000, 500, 0, 1, ERG_KNOB_POWER, 400, true},
    {2000, 500, 0, 1, ERG_KNOB_POWER, 399, false},
    {2000, 500, 0, 1, ERG_KNOB_MEMORY, 3201, false},
    {2000, 499, 0, 0, ERG_KNOB_CLOCK, 900, false},
    /* a job: its own GPUs only, and only for its own user */
    {1000, 100, 10, 4, ERG_KNOB_CLOCK, 345, true},
    {1000, 100, 10, 5, ERG_KNOB_POWER, 300, true},
    {1000, 100, 10, 5, ERG_KNOB_POWER, 651, false},
    {1000, 100, 10, 6, ERG_KNOB_CLOCK, 900, false}, /* of another job of the same user */
    {1000, 100, 11, 6, ERG_KNOB_CLOCK, 900, true},
    {1000, 100, 11, 4, ERG_KNOB_CLOCK, 900, false},
    {1000, 100, 12, 7, ERG_KNOB_CLOCK, 900, false}, /* of another user */
    {1000, 100, 13, 4, ERG_KNOB_CLOCK, 900, false}, /* granted to nobody */
    {1000, 100, 0, 4, ERG_KNOB_CLOCK, 900, false},  /* of no job */
    {1003, 100, 12, 7, ERG_KNOB_POWER, 650, true},
    {1003, 100, 10, 4, ERG_KNOB_CLOCK, 900, false},
    /* a member of the group in a job has both, the group's bounds where both fit */
    {1000, 500, 10, 4, ERG_KNOB_POWER, 300, true},
    {1000, 500, 10, 0, ERG_KNOB_POWER, 300, false},
    /* the first rule that fits wins, whatever a later one allows */
    {1001, 100, 0, 6, ERG_KNOB_CLOCK, 900, true},
    {1001, 100, 0, 6, ERG_KNOB_POWER, 500, false},
    {1001, 100, 0, 7, ERG_KNOB_POWER, 500, true},
    {1001, 501, 0, 7, ERG_KNOB_CLOCK, 900, false},
    {1002, 100, 0, 2, ERG_KNOB_MEMORY, 3201, true},
    {1002, 100, 0, 2, ERG_KNOB_CLOCK, 900, false},
    {1002, 500, 0, 2, ERG_KNOB_MEMORY, 3201, false},
    /* root has what a rule gives it, and who has no name here nothing */
    {0, 0, 0, 0, ERG_KNOB_CLOCK, 900, false},
    {65534, 65534, 0, 7, ERG_KNOB_POWER, 500, false},
};

static bool may(const struct erg_daemon_config *config, size_t i)
{
    struct erg_daemon_peer peer = {.uid = cases[i].uid,
                                   .groups = {100, cases[i].group},
                                   .group_count = 2,
                                   .job = cases[i].job};
    const struct erg_daemon_rule *rule = erg_daemon_rule_of(config, grants, &peer, cases[i].gpu);
    int64_t value = cases[i].value * (cases[i].knob == ERG_KNOB_POWER ? 1000 : 1);
    return rule && rule->may >> cases[i].knob & 1 && value >= rule->least[cases[i].knob] &&
           value <= rule->most[cases[i].knob];
}

static void test_the_table(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", rules);
    struct erg_daemon_config config;
    struct erg_gpus *gpus;
    struct erg_error err;
    assert_int_equal(sizeof cases / sizeof *cases, 30);
    assert_ok(erg_gpus_open(&gpus, "all", &err), &err);
    assert_ok(erg_daemon_config_load(&config, world.rules, gpus, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (may(&config, i) != cases[i].may)
            fail_msg("case %zu of the table: expected %s", i, cases[i].may ? "a right" : "none");
    erg_daemon_config_release(&config);
    erg_gpus_close(gpus);
    daemon_world_end(&world);
}

static void test_jobs(void **state)
{
    (void)state;
    static const struct {
        const char *cgroup;
        uint32_t job;
    } texts[] = {
        {"0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", 12},
        {"0::/system.slice/node7_slurmstepd.scope/job_4294967295/step_batch\n", 4294967295},
        {"0::/slurmstepd.scope/job_3\n", 3},
        {"9:name=systemd:/\n4:memory:/slurm/uid_1000/job_55/step_0\n", 55},
        {"4:devices:/slurm_node7/uid_1000/job_56\n0::/\n", 56},
        {"0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_12\n", 0},
        {"0::/system.slice/mine.service/slurmstepd.scope/job_12\n", 0},
        {"0::/system.slice/slurmstepd.scope/other/job_12\n", 0},
        {"0::/system.slice/job_12\n", 0},
        {"0::/system.slice/slurmstepd.scope/job_\n", 0},
        {"0::/system.slice/slurmstepd.scope/job_12x\n", 0},
        {"0::/system.slice/slurmstepd.scope/job_99999999999\n", 0},
        {"4:memory:/docker/slurm/uid_1000/job_55\n", 0},
        {"4:memory:/slurm/job_55\n", 0},
        {"", 0},
        {"no colons at all\n", 0},
        {"0::", 0},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (erg_slurm_job_of(texts[i].cgroup) != texts[i].job)
            fail_msg("job of \"%s\" is %u, expected %u", texts[i].cgroup,
                     (unsigned)erg_slurm_job_of(texts[i].cgroup), (unsigned)texts[i].job);
}

/* The file of a number says nothing of a process that has ended, whose number may be another's. */
static void test_jobs_of_the_dead(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", rules);
    char path[160];
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    assert_true(pidfd >= 0);
    snprintf(path, sizeof path, "%s/%ld", world.folder, (long)child);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/%ld/cgroup", world.folder, (long)child);
    write_file(path, "0::/system.slice/slurmstepd.scope/job_12/step_0\n");
    assert_int_equal(erg_daemon_job_of_process(world.folder, child, pidfd), 12);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(erg_daemon_job_of_process(world.folder, child, pidfd), 0);
    close(pidfd);
    daemon_world_end(&world);
}

static void test_start_times(void **state)
{
    (void)state;
    const char stat[] = "7 (a) b (x) ) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 500 1 1";
    double start_s = 500.0 / (double)sysconf(_SC_CLK_TCK);
    assert_true(erg_daemon_had_begun(stat, start_s + 0.01));
    assert_false(erg_daemon_had_begun(stat, start_s - 0.01)); /* a number that was used again */
    assert_false(erg_daemon_had_begun("7 (a) S 1 7", 1e9));
    assert_false(erg_daemon_had_begun("", 1e9));
}

/* ---- asking a daemon ---- */

static int connect_raw(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(file >= 0);
    return connect(file, (struct sockaddr *)&address, sizeof address) == 0 ? file : -1;
}

/* The process that connected has ended, and a child of its speaks with its socket. */
static void test_absent_gpus(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    int ends[2];
    char answer = 0;
    assert_int_equal(pipe(ends), 0);
    start_daemon(&world);
    kill(world.daemon, SIGSTOP); /* accepts only when the process is gone */
    fflush(NULL);
    pid_t connects = fork();
    if (connects == 0) {
        int file = connect_raw(world.socket);
        if (fork() != 0)
            _exit(0);
        char packet[ERG_WIRE_MOST];
        struct erg_wire_writer writer;
        struct erg_wire_head head;
        struct erg_wire_reader body;
        struct erg_wire_request request = {.type = ERG_WIRE_LEASE, .knob = ERG_KNOB_CLOCK};
        erg_wire_write_request(&writer, &request);
        ssize_t sent = send(file, writer.bytes, writer.count, MSG_NOSIGNAL);
        ssize_t got = sent > 0 ? recv(file, packet, sizeof packet, 0) : -1;
        bool refused = got <= 0 || (erg_wire_read_head(&head, &body, packet, (size_t)got) &&
                                    head.status == ERG_WIRE_BUSY);
        (void)!write(ends[1], refused ? "R" : "A", 1);
        _exit(0);
    }
    waitpid(connects, NULL, 0);
    erg_sleep_ns(20000000);
    kill(world.daemon, SIGCONT);
    assert_int_equal(read(ends[0], &answer, 1), 1);
    assert_int_equal(answer, 'R');
    close(ends[0]);
    close(ends[1]);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* As another user, in a process of its own: 'y' where it gets the lease, 'n' where it is denied. */
static char ask_as(const struct daemon_world *world, uid_t uid, gid_t group, uint32_t gpu,
                   enum erg_knob knob)
{
    int ends[2];
    char answer = '?';
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t asks = fork();
    if (asks == 0) {
        struct erg_daemon_client *client;
        struct erg_wire_hello hello;
        struct erg_error err;
        uint64_t lease;
        gid_t groups[] = {group};
        if (setgroups(1, groups) != 0 || setgid(100) != 0 || setuid(uid) != 0 ||
            erg_daemon_connect(&client, world->socket, &hello, &err) != 0) {
            fprintf(stderr, "%s\n", err.message);
            _exit(1);
        }
        bool lent = erg_daemon_take_lease(client, gpu, knob, &lease, &ttl_ms, &err) == 0;
        (void)!write(ends[1], lent ? "y" : strstr(err.message, "no rule lets user") ? "n" : "?", 1);
        _exit(0);
    }
    close(ends[1]);
    (void)!read(ends[0], &answer, 1);
    close(ends[0]);
    waitpid(asks, NULL, 0);
    return answer;
}

static void test_other_users(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("[  NOTE  ] skipped: only root can ask as other users\n");
        skip();
    }
    struct daemon_world world = daemon_world_begin("", rules);
    assert_int_equal(chmod(world.folder, 0755), 0);
    start_daemon(&world);
    assert_int_equal(ask_as(&world, 2000, 500, 0, ERG_KNOB_CLOCK), 'y');
    assert_int_equal(ask_as(&world, 2000, 500, 4, ERG_KNOB_CLOCK), 'n');
    assert_int_equal(ask_as(&world, 2000, 499, 0, ERG_KNOB_CLOCK), 'n');
    assert_int_equal(ask_as(&world, 1001, 499, 6, ERG_KNOB_CLOCK), 'y');
    assert_int_equal(ask_as(&world, 1001, 499, 6, ERG_KNOB_POWER), 'n');
    assert_int_equal(ask_as(&world, 1000, 499, 4, ERG_KNOB_CLOCK), 'n');
    assert_int_equal(audit_lines(&world, "\"event\":\"refused\",\"uid\":1000", "", 1), 1);
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* Root of a container is a user without rights outside of it. */
static void test_root_of_a_container(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("[  NOTE  ] skipped: only root can be another user first\n");
        skip();
    }
    struct daemon_world world =
        daemon_world_begin("", "rules:\n"
                               "  - {user: '0', may: [clock], gpus: all}\n");
    int ends[2];
    char answer = '?';
    assert_int_equal(chmod(world.folder, 0755), 0);
    assert_int_equal(pipe(ends), 0);
    start_daemon(&world);
    assert_int_equal(ask_as(&world, 0, 0, 0, ERG_KNOB_CLOCK), 'y');
    fflush(NULL);
    pid_t asks = fork();
    if (asks == 0) {
        enum { NEW_USER = 0x10000000 }; /* CLONE_NEWUSER */
        if (setgid(100) != 0 || setuid(1000) != 0 || syscall(SYS_unshare, NEW_USER) != 0) {
            (void)!write(ends[1], "s", 1);
            _exit(0);
        }
        FILE *map = fopen("/proc/self/uid_map", "w");
        if (map) {
            fprintf(map, "0 1000 1\n");
            fclose(map);
        }
        int file = connect_raw(world.socket); /* to it the daemon's user is not root */
        char packet[ERG_WIRE_MOST];
        struct erg_wire_writer writer;
        struct erg_wire_head head = {0};
        struct erg_wire_reader body;
        struct erg_wire_request request = {.type = ERG_WIRE_LEASE, .knob = ERG_KNOB_CLOCK};
        erg_wire_write_request(&writer, &request);
        (void)!send(file, writer.bytes, writer.count, MSG_NOSIGNAL);
        ssize_t got = recv(file, packet, sizeof packet, 0);
        bool denied = got > 0 && erg_wire_read_head(&head, &body, packet, (size_t)got) &&
                      head.status == ERG_WIRE_DENIED;
        (void)!write(ends[1], denied ? "n" : "y", 1);
        _exit(0);
    }
    (void)!read(ends[0], &answer, 1);
    waitpid(asks, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    if (answer == 's')
        print_message("[  NOTE  ] no user name spaces here\n");
    else
        assert_int_equal(answer, 'n');
    stop_daemon(&world);
    daemon_world_end(&world);
}

/* Grants are root's; of other users only the daemon's own one, for tests. */
static void test_grants_of_others(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("[  NOTE  ] skipped: only root can ask as other users\n");
        skip();
    }
    struct daemon_world world = daemon_world_begin("", rules);
    assert_int_equal(chmod(world.folder, 0755), 0);
    start_daemon(&world);
    fflush(NULL);
    pid_t asks = fork();
    if (asks == 0) {
        struct erg_daemon_client *client;
        struct erg_wire_hello hello;
        struct erg_error err;
        struct erg_wire_request request = {
            .type = ERG_WIRE_GRANT, .job = 5, .uid = 1000, .gpus = 1};
        if (setgid(100) != 0 || setuid(1000) != 0 ||
            erg_daemon_connect(&client, world.socket, &hello, &err) != 0)
            _exit(1);
        _exit(erg_daemon_exchange(client, &request, NULL, &err) == 0 ||
              !strstr(err.message, "only root may make"));
    }
    int status;
    waitpid(asks, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    stop_daemon(&world);
    daemon_world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table),           cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_jobs_of_the_dead),    cmocka_unit_test(test_start_times),
        cmocka_unit_test(test_absent_gpus),         cmocka_unit_test(test_other_users),
        cmocka_unit_test(test_root_of_a_container), cmocka_unit_test(test_grants_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
