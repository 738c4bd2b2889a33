/*
 * The command: as a service manager starts it, with a socket that it passes and a watchdog; grants
 * and what is shown; its usage.
 */
#include "daemon_world.h"
#include "program.h"

#include <fcntl.h>
#include <jansson.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

/* Runs the program with the world's files; %s behind "daemon". */
static struct program_result run_daemon(const struct daemon_world *world, const char *what)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "daemon %s --config '%s' --folder '%s' 2>&1", what, world->rules,
                    world->folder);
    struct program_result result = run_program(line.data);
    erg_text_release(&line);
    return result;
}

static void check_daemon(const struct daemon_world *world, const char *what, int code,
                         const char *part)
{
    struct program_result result = run_daemon(world, what);
    if (result.exit_code != code || !strstr(result.out.data, part))
        fail_msg("ergon daemon %s: exit code %d, expected %d with \"%s\" in:\n%s", what,
                 result.exit_code, code, part, result.out.data);
    erg_text_release(&result.out);
}

static int listen_at(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    int file = socket(AF_UNIX, type, 0);
    assert_true(file > 3);
    assert_int_equal(bind(file, (struct sockaddr *)&address, sizeof address), 0);
    if (type == SOCK_SEQPACKET)
        assert_int_equal(listen(file, 10), 0);
    return file;
}

/* Sends to a socket of datagrams until it takes no more. */
static void fill(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    int file = socket(AF_UNIX, SOCK_DGRAM, 0);
    ssize_t sent = 0;
    for (int i = 0; i < 100000 && sent >= 0; i++)
        sent = sendto(file, "filled", 6, MSG_DONTWAIT, (struct sockaddr *)&address, sizeof address);
    assert_true(sent < 0 && errno == EAGAIN);
    close(file);
}

static bool hears(int notices, const char *part)
{
    char text[256];
    for (int i = 0; i < 100; i++) {
        ssize_t count = recv(notices, text, sizeof text - 1, 0);
        if (count <= 0)
            return false;
        text[count] = '\0';
        if (strstr(text, part))
            return true;
    }
    return false;
}

static void test_a_service(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    char notify[128], number[24];
    struct timeval patience = {.tv_sec = 60};
    struct erg_error err;
    int spare = open("/dev/null", O_RDONLY); /* so that no socket is descriptor 3 */
    snprintf(notify, sizeof notify, "%s/notify", world.folder);
    int notices = listen_at(notify, SOCK_DGRAM);
    int listener = listen_at(world.socket, SOCK_SEQPACKET);
    setsockopt(notices, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    fflush(NULL);
    world.daemon = fork();
    if (world.daemon == 0) {
        dup2(listener, 3);
        snprintf(number, sizeof number, "%ld", (long)getpid());
        setenv("LISTEN_PID", number, 1);
        setenv("LISTEN_FDS", "1", 1);
        setenv("NOTIFY_SOCKET", notify, 1);
        setenv("WATCHDOG_USEC", "300000", 1);
        execl(ERGON_TEST_PROGRAM, "ergon", "daemon", "--config", world.rules, "--folder",
              world.folder, "--socket", "/nonexistent/not-used", (char *)NULL);
        _exit(127);
    }
    /* Who connects before it is there waits. */
    struct erg_daemon_client *client = connect_client(&world);
    assert_true(hears(notices, "READY=1"));
    assert_true(hears(notices, "WATCHDOG=1"));
    assert_true(hears(notices, "WATCHDOG=1"));
    fill(notify); /* a manager that reads nothing for a while stops no daemon */
    erg_sleep_ns(300000000);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    assert_ok(change_knob(client, lease, ERG_WIRE_CLOCK, 900, 900, NULL, &err), &err);
    kill(world.daemon, SIGTERM);
    assert_true(hears(notices, "STOPPING=1"));
    erg_daemon_disconnect(client);
    stop_daemon(&world);
    assert_int_equal(setting_of(&world, 0, 's').high, 0);
    assert_int_equal(access(world.socket, F_OK), 0); /* is the service manager's */
    close(listener);
    close(notices);
    close(spare);
    daemon_world_end(&world);
}

/* With --json: the same ranges and rights, by name. */
static void check_show_document(const struct daemon_world *world)
{
    struct program_result result = run_daemon(world, "show --json");
    assert_int_equal(result.exit_code, 0);
    json_t *document = json_loads(result.out.data, 0, NULL);
    const json_t *gpus = json_object_get(document, "gpus");
    assert_int_equal(json_array_size(gpus), 8);
    const json_t *knob;
    size_t index;
    int found = 0;
    json_array_foreach(json_object_get(json_array_get(gpus, 0), "knobs"), index, knob)
    {
        if (strcmp(json_string_value(json_object_get(knob, "knob")), "power") != 0)
            continue;
        assert_int_equal(json_integer_value(json_object_get(knob, "least")), 400000); /* mW */
        assert_int_equal(json_integer_value(json_object_get(knob, "most")), 650000);
        assert_true(json_is_true(json_object_get(knob, "allowed")));
        assert_true(json_is_null(json_object_get(knob, "held_by_uid")));
        found++;
    }
    assert_int_equal(found, 1);
    json_decref(document);
    erg_text_release(&result.out);
}

static void test_grants_in_show(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin(
        "", "rules:\n  - {user: '@me', may: [clock, power], gpus: '0', power_w: [400, 650]}\n");
    struct erg_error err;
    start_daemon(&world);
    check_daemon(&world, "show", 0, "power     400 to    650 W    allowed\n");
    check_daemon(&world, "show", 0, "GPU 7  GPU-h0000007");
    check_show_document(&world);
    struct erg_daemon_client *client = connect_client(&world);
    uint64_t lease = take_lease(client, 0, ERG_KNOB_CLOCK);
    struct erg_text held = {0};
    erg_text_printf(&held, "clock     345 to   1980 MHz  allowed, held by user %lu\n",
                    (unsigned long)geteuid());
    check_daemon(&world, "show", 0, held.data);
    erg_text_release(&held);
    assert_ok(ask_for(client, ERG_WIRE_KEEP, lease, &err), &err);
    erg_daemon_disconnect(client);
    check_daemon(&world, "grant --job 7 --uid 1000 --gpus 0,2", 0, "");
    check_daemon(&world, "grant --job 8 --uid 1000 --gpus all", 0, "");
    check_daemon(&world, "revoke --job 7", 0, "");
    check_daemon(&world, "revoke --job 7", 0, ""); /* an epilog may run twice */
    assert_int_equal(audit_lines(&world, "\"event\":\"grant\"", "\"gpus\":\"5\"", 1), 1);
    assert_int_equal(audit_lines(&world, "\"event\":\"grant\"", "\"gpus\":\"ff\"", 1), 1);
    assert_int_equal(audit_lines(&world, "\"event\":\"revoke\"", "", 2), 2);
    check_daemon(&world, "grant --job 7 --uid 1000 --gpus 8", 2,
                 "there is no GPU 8, expected 0 to 7");
    check_daemon(&world, "grant --job 7 --gpus 1", 2, "needs --job, --uid and --gpus");
    check_daemon(&world, "revoke", 2, "needs --job");
    check_daemon(&world, "grunt", 2, "grant, revoke or show");
    const char *const silent[] = {"grant --job 9 --uid 1000 --gpus 1", "revoke --job 8", ""};
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        char line[80];
        snprintf(line, sizeof line, "%s --json", silent[i]);
        check_daemon(&world, line, 2, "--json was given without show");
    }
    assert_int_equal(audit_lines(&world, "\"event\":\"grant\"", "", 2), 2); /* and no more */
    check_daemon(&world, "--restore", 1, "another daemon holds it");
    check_daemon(&world, "", 1, "another daemon holds it");
    stop_daemon(&world);
    check_daemon(&world, "show", 4, "connecting to the daemon");
    daemon_world_end(&world);
}

/* The rules that are shipped, with every key in them. */
static void test_the_example(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    struct erg_text command = {0};
    erg_text_printf(&command,
                    "sed -e 's|/var/log/ergon|%s|' -e 's/gpu-power/root/; s/alice/root/' "
                    "-e 's/GPU-8f3a/GPU-a0000000/' '%s/examples/daemon/ergond.yaml' >'%s'",
                    world.folder, ERGON_TEST_SOURCE_DIR, world.rules);
    assert_int_equal(system(command.data), 0);
    start_daemon(&world);
    assert_int_equal(audit_lines(&world, "\"event\":\"start\"", "\"rules\":3", 1), 1);
    stop_daemon(&world);
    erg_text_release(&command);
    daemon_world_end(&world);
}

static void test_no_gpus(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin("", ALL_FOR_ME);
    setenv("ERGON_NVML", "/nonexistent/libnvidia-ml.so", 1);
    check_daemon(&world, "", 4, "looking for NVIDIA GPUs");
    daemon_world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_service),
        cmocka_unit_test(test_grants_in_show),
        cmocka_unit_test(test_the_example),
        cmocka_unit_test(test_no_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
