/*
 * What tests of the daemon begin with: a fake NVML whose settings are in a log, a daemon in a
 * process of its own with its folder and rules below /tmp, and its clients.
 */
#ifndef ERGON_TESTS_DAEMON_WORLD_H
#define ERGON_TESTS_DAEMON_WORLD_H

#include "base/clock.h"
#include "base/text.h"
#include "check.h"
#include "daemon/daemon.h"
#include "telemetry/daemon_client.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static uint32_t ttl_ms; /* of the lease that was taken last */

struct daemon_world {
    char folder[64], script[96], log[96], rules[96], audit[96], socket[96], proc[96];
    pid_t daemon;
    int per_user; /* connections; 0: as many as it takes */
    int idle_ms;  /* of the daemon's options */
};

static inline void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* "me" in rules stands for this user. */
static inline void write_rules(const struct daemon_world *world, const char *rules)
{
    struct erg_text text = {0};
    for (const char *at = rules; *at; at++)
        if (strncmp(at, "@me", 3) == 0) {
            erg_text_printf(&text, "%lu", (unsigned long)geteuid());
            at += 2;
        } else {
            erg_text_add_bytes(&text, at, 1);
        }
    erg_text_printf(&text, "\naudit: {file: %s, detail: every}\n", world->audit);
    write_file(world->rules, text.data);
    erg_text_release(&text);
    assert_int_equal(chmod(world->rules, 0600), 0);
}

#define ALL_FOR_ME                                                                                 \
    "rules:\n"                                                                                     \
    "  - {user: '@me', may: [clock, power, memory], gpus: all}\n"                                  \
    "rate: {changes_per_s: 1e5, node_changes_per_s: 1e5, burst: 1000}\n"

static inline struct daemon_world daemon_world_begin(const char *commands, const char *rules)
{
    struct daemon_world world = {.folder = "/tmp/ergon-daemon-XXXXXX"};
    assert_non_null(mkdtemp(world.folder));
    snprintf(world.script, sizeof world.script, "%s/script", world.folder);
    snprintf(world.log, sizeof world.log, "%s/log", world.folder);
    snprintf(world.rules, sizeof world.rules, "%s/rules.yaml", world.folder);
    snprintf(world.audit, sizeof world.audit, "%s/audit.jsonl", world.folder);
    snprintf(world.socket, sizeof world.socket, "%s/ergond.sock", world.folder);
    snprintf(world.proc, sizeof world.proc, "/proc");
    struct erg_text script = {0};
    erg_text_printf(&script, "gpus 8\ntail %s\nlog %s\n%s", world.folder + strlen(world.folder) - 6,
                    world.log, commands);
    write_file(world.script, script.data);
    erg_text_release(&script);
    write_rules(&world, rules);
    setenv("ERGON_NVML", ERGON_TEST_FAKE_NVML, 1);
    setenv("ERGON_FAKE_NVML", world.script, 1);
    return world;
}

static inline void daemon_world_end(const struct daemon_world *world)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", world->folder);
    assert_int_equal(system(command), 0);
    /* Claims of GPUs that nobody else has. */
    snprintf(command, sizeof command, "rm -f /run/ergon/GPU-*-%s 2>/dev/null",
             world->folder + strlen(world->folder) - 6);
    (void)!system(command);
}

/* What the process of a daemon does; its exit code is the status of its failure. */
static inline int be_daemon(const struct daemon_world *world, int per_user)
{
    struct erg_daemon_options options = {.config = world->rules,
                                         .folder = world->folder,
                                         .proc = world->proc,
                                         .per_user = per_user,
                                         .idle_ms = world->idle_ms};
    struct erg_error err;
    if (erg_daemon_run(&options, &err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return (int)err.status;
}

/* Starts one and waits until it lets clients in. */
static inline void start_daemon(struct daemon_world *world)
{
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    struct erg_error err;
    fflush(NULL);
    world->daemon = fork();
    if (world->daemon == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves none behind */
        _exit(be_daemon(world, world->per_user ? world->per_user : 1000));
    }
    for (int i = 0; i < 6000; i++) {
        if (erg_daemon_connect(&client, world->socket, &hello, &err) == 0) {
            erg_daemon_disconnect(client);
            return;
        }
        assert_int_equal(waitpid(world->daemon, NULL, WNOHANG), 0);
        erg_sleep_ns(2000000);
    }
    fail_msg("the daemon does not listen: %s", err.message);
}

static inline void stop_daemon(struct daemon_world *world)
{
    int status;
    kill(world->daemon, SIGTERM);
    assert_int_equal(waitpid(world->daemon, &status, 0), world->daemon);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    world->daemon = 0;
}

static inline struct erg_daemon_client *connect_client(const struct daemon_world *world)
{
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    struct erg_error err;
    assert_ok(erg_daemon_connect(&client, world->socket, &hello, &err), &err);
    return client;
}

static inline uint64_t take_lease(struct erg_daemon_client *client, uint32_t gpu,
                                  enum erg_knob knob)
{
    struct erg_error err;
    uint64_t lease = 0;
    assert_ok(erg_daemon_take_lease(client, gpu, knob, &lease, &ttl_ms, &err), &err);
    return lease;
}

/* One request; the answer's change in *change where that is not NULL. */
static inline int change_knob(struct erg_daemon_client *client, uint64_t lease, unsigned type,
                              uint32_t low, uint32_t high, struct erg_wire_change *change,
                              struct erg_error *err)
{
    struct erg_wire_request request = {
        .type = type, .lease = lease, .low = low, .high = high, .flags = ERG_WIRE_WAIT};
    struct erg_wire_reader body;
    int result = erg_daemon_exchange(client, &request, &body, err);
    if (result == 0 && change)
        assert_true(erg_wire_read_change(change, &body));
    return result;
}

static inline int ask_for(struct erg_daemon_client *client, unsigned type, uint64_t lease,
                          struct erg_error *err)
{
    struct erg_wire_request request = {.type = type, .lease = lease};
    return erg_daemon_exchange(client, &request, NULL, err);
}

/* The latest setting of a GPU: kinds are 's' (clock), 'l' (limit), 'm' (memory). */
struct setting {
    int lines;
    unsigned low, high; /* 0: not locked, or never set */
    long long at_ns;
};

static inline struct setting setting_of(const struct daemon_world *world, unsigned gpu, char kind)
{
    struct setting found = {0};
    FILE *file = fopen(world->log, "r");
    char text[128], what[16];
    while (file && fgets(text, sizeof text, file)) {
        unsigned index, low, high;
        long long at_ns;
        if (sscanf(text, "%*d %15s %u %u %u %lld", what, &index, &low, &high, &at_ns) != 5 ||
            index != gpu || (what[0] == 'r' ? 's' : what[0]) != kind)
            continue;
        found = (struct setting){found.lines + 1, low, high, at_ns};
    }
    if (file)
        fclose(file);
    return found;
}

/* Waits up to 20 s for the latest setting to be that; returns when it was made. */
static inline long long await_setting(const struct daemon_world *world, unsigned gpu, char kind,
                                      unsigned high)
{
    struct setting found = {0};
    for (int i = 0; i < 10000; i++) {
        found = setting_of(world, gpu, kind);
        if (found.high == high)
            return found.at_ns;
        erg_sleep_ns(2000000);
    }
    fail_msg("GPU %u: setting '%c' is %u, expected %u", gpu, kind, found.high, high);
    return 0;
}

/* Lines of the audit with all of up to two parts, waited for up to 5 s until there are `least`. */
static inline int audit_lines(const struct daemon_world *world, const char *a, const char *b,
                              int least)
{
    int count = 0;
    for (int i = 0; i < 500; i++, erg_sleep_ns(10000000)) {
        FILE *file = fopen(world->audit, "r");
        char text[2048];
        count = 0;
        while (file && fgets(text, sizeof text, file))
            count += strstr(text, a) && strstr(text, b);
        if (file)
            fclose(file);
        if (count >= least)
            break;
    }
    return count;
}

#endif
