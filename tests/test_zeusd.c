/*
 * zeusd's routes at the daemon's second socket, as a client that opens a connection per request
 * asks them: what they answer, whose leases they are, and what ends these.
 */
#include "daemon_world.h"
#include "program.h"

#include <sys/socket.h>
#include <sys/un.h>

#define RULES                                                                                      \
    "rules:\n"                                                                                     \
    "  - {user: '@me', may: [clock, power], gpus: all, clock_mhz: [600, 1980]}\n"                  \
    "rate: {changes_per_s: 1e5, node_changes_per_s: 1e5, burst: 1000}\n"                           \
    "lease: {ttl_s: 0.2}\n"

static char zeusd_path[96];

/* ---- a client ---- */

struct http {
    int status; /* 0: there was no answer */
    char body[4096];
};

static struct http ask(const char *method, const char *what)
{
    struct http answer = {0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[8192];
    size_t count = 0;
    ssize_t got;
    const int file = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, zeusd_path, sizeof zeusd_path);
    if (connect(file, (struct sockaddr *)&address, sizeof address) != 0) {
        close(file);
        return answer;
    }
    snprintf(text, sizeof text,
             "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
             method, what);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    while ((got = read(file, text + count, sizeof text - 1 - count)) > 0)
        count += (size_t)got;
    text[count] = '\0';
    close(file);
    const char *body = strstr(text, "\r\n\r\n");
    if (body && sscanf(text, "HTTP/1.1 %d", &answer.status) == 1)
        snprintf(answer.body, sizeof answer.body, "%s", body + 4);
    return answer;
}

static void check(const char *method, const char *what, int status, const char *part)
{
    const struct http answer = ask(method, what);
    if (answer.status != status || !strstr(answer.body, part))
        fail_msg("%s %s: status %d, expected %d with \"%s\" in:\n%s", method, what, answer.status,
                 status, part, answer.body);
}

/* Sets a clock of GPU 0, says the status of HTTP, and lives on. */
static pid_t start_client(int mhz, int *status)
{
    int told[2];
    fflush(NULL);
    assert_int_equal(pipe(told), 0);
    const pid_t client = fork();
    if (client == 0) {
        char what[200];
        snprintf(
            what, sizeof what,
            "/gpu/set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=%d&max_clock_mhz=%d&block=true",
            mhz, mhz);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int said = ask("POST", what).status;
        (void)!write(told[1], &said, sizeof said);
        erg_sleep_ns(60000000000);
        _exit(0);
    }
    assert_int_equal(read(told[0], status, sizeof *status), (ssize_t)sizeof *status);
    close(told[0]);
    close(told[1]);
    return client;
}

static void end_client(pid_t client)
{
    kill(client, SIGKILL);
    assert_int_equal(waitpid(client, NULL, 0), client);
}

/* ---- the daemon ---- */

static struct daemon_world begin(const char *commands)
{
    struct daemon_world world = daemon_world_begin(commands, RULES);
    snprintf(zeusd_path, sizeof zeusd_path, "%s/zeusd.sock", world.folder);
    fflush(NULL);
    world.daemon = fork();
    if (world.daemon == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(ERGON_TEST_PROGRAM, ERGON_TEST_PROGRAM, "daemon", "--config", world.rules, "--folder",
              world.folder, "--zeusd", zeusd_path, "-q", (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 6000 && ask("GET", "/time").status != 200; i++)
        erg_sleep_ns(2000000);
    return world;
}

static void end(struct daemon_world *world)
{
    stop_daemon(world);
    assert_int_equal(access(zeusd_path, F_OK), -1);
    daemon_world_end(world);
}

/* ---- tests ---- */

static void existing_values_can_be_read(void **state)
{
    (void)state;
    struct daemon_world world = begin("gpu * power 0=300\n");
    check("GET", "/time", 200, "{\"timestamp_ms\":1");
    check("GET", "/discover", 200,
          "{\"gpus\":[{\"id\":0,\"name\":\"NVIDIA Fake H200\",\"pci_address\":\"00000000:1b:00.0\","
          "\"cumulative_energy_available\":true},{\"id\":1,");
    check("GET", "/discover", 200,
          "],\"cpus\":[],\"enabled_api_groups\":[\"gpu-control\",\"gpu-read\"],"
          "\"auth_required\":false}");
    check("GET", "/gpu/get_power?gpu_ids=0,2", 200, "\"power_mw\":{\"0\":300000,\"2\":300000}}");
    check("GET", "/gpu/get_power", 200, ",\"7\":300000}}");
    check("GET", "/gpu/get_cumulative_energy?gpu_ids=1", 200, "{\"1\":{\"energy_mj\":");
    check("GET", "/gpu/get_power_limit?gpu_ids=1", 200, "{\"1\":{\"power_limit_mw\":700000}}");
    check("GET", "/gpu/get_power_limit_constraints?gpu_ids=1", 200,
          "{\"1\":{\"min_power_limit_mw\":200000,\"max_power_limit_mw\":700000}}");
    check("GET", "/gpu/get_persistence_mode?gpu_ids=0", 200, "{\"0\":{\"enabled\":false}}");
    check("GET", "/gpu/get_cumulative_energy", 400, "lacks a key; expected gpu_ids");
    check("GET", "/gpu/get_power?gpu_ids=8", 400, "gpu_ids=8: ");
    check("GET", "/gpu/get_power?gpus=1", 400, "has an unknown key \\\"gpus\\\"");
    check("GET", "/cpu/get_power", 404, "unknown route");
    check("GET", "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=300000", 404, "unknown route");
    check("PUT", "/time", 405, "GET or POST");
    end(&world);
}

static void leases_last_as_long_as_the_process(void **state)
{
    (void)state;
    struct daemon_world world = begin("");
    int status;
    const pid_t first = start_client(1200, &status);
    assert_int_equal(status, 200);
    assert_int_equal(setting_of(&world, 0, 's').high, 1200);
    erg_sleep_ns(500000000); /* its connection has ended, and silence ends other leases */
    assert_int_equal(setting_of(&world, 0, 's').high, 1200);
    const pid_t second = start_client(900, &status);
    assert_int_equal(status, 403);
    end_client(second);
    check("POST", "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true", 403, "is held by user");
    assert_int_equal(setting_of(&world, 0, 's').high, 1200);
    char whose[40];
    snprintf(whose, sizeof whose, "\"pid\":%ld,", (long)first);
    assert_int_equal(audit_lines(&world, "\"event\":\"lease\"", whose, 1), 1);
    end_client(first);
    await_setting(&world, 0, 's', 0);
    assert_int_equal(audit_lines(&world, "its process has ended", whose, 1), 1);
    const pid_t third = start_client(900, &status);
    assert_int_equal(status, 200);
    stop_daemon(&world);
    assert_int_equal(setting_of(&world, 0, 's').high, 0);
    end_client(third);
    daemon_world_end(&world);
}

static void a_reset_gives_back(void **state)
{
    (void)state;
    struct daemon_world world = begin("gpu * limit 650\n");
    int status;
    check("POST", "/gpu/set_gpu_locked_clocks?gpu_ids=0,1&min_clock_mhz=900&max_clock_mhz=1200",
          200, "");
    assert_true(setting_of(&world, 1, 's').low == 900 && setting_of(&world, 1, 's').high == 1200);
    check("POST", "/gpu/set_power_limit?gpu_ids=1&power_limit_mw=400000&block=false", 200, "");
    await_setting(&world, 1, 'l', 400000);
    check("GET", "/gpu/get_power_limit?gpu_ids=1", 200, "400000");
    check("POST", "/gpu/reset_locked_clocks?gpu_ids=0,1&block=true", 200, "");
    assert_int_equal(setting_of(&world, 0, 's').high, 0);
    const pid_t other = start_client(900, &status);
    assert_int_equal(status, 200);
    end_client(other);
    assert_int_equal(setting_of(&world, 1, 'l').high, 400000); /* this process's still */
    end(&world);
}

static void refusals_say_why(void **state)
{
    (void)state;
    struct daemon_world world = begin("gpu 1 fail SetGpuLockedClocks 999 0 1000\n");
    static const struct {
        const char *what;
        int status;
        const char *said;
    } cases[] = {
        {"set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=345&max_clock_mhz=345", 400,
         "345 to 345 MHz: expected 600 to 1980 MHz"},
        {"set_gpu_locked_clocks?gpu_ids=0,1&min_clock_mhz=900&max_clock_mhz=900", 500,
         "{\"errors\":{\"1\":\""},
        {"set_gpu_locked_clocks?gpu_ids=0&max_clock_mhz=900", 400, "lacks a key"},
        {"set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=-1&max_clock_mhz=9", 400, "a number"},
        {"set_mem_locked_clocks?gpu_ids=0&min_clock_mhz=3201&max_clock_mhz=3201", 403, "no rule"},
        {"set_power_limit?gpu_ids=2&power_limit_mw=900000", 400, "expected 200000 to 700000 mW"},
        {"set_power_limit?gpu_ids=2&power_limit_mw=300000&block=1", 400, "true or false"},
        {"set_persistence_mode?gpu_ids=0&enabled=true", 403, "standing.persistence"},
        {"set_persistence_mode?gpu_ids=0&enabled=false", 200, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[200];
        snprintf(what, sizeof what, "/gpu/%s", cases[i].what);
        check("POST", what, cases[i].status, cases[i].said);
    }
    /* What was refused is nobody's. */
    struct erg_daemon_client *other = connect_client(&world);
    take_lease(other, 2, ERG_KNOB_POWER);
    take_lease(other, 1, ERG_KNOB_CLOCK);
    erg_daemon_disconnect(other);
    end(&world);
}

/* One user's connections leave room for others'. */
static void many_connections_are_cut_off(void **state)
{
    (void)state;
    struct daemon_world world = begin("");
    int files[300];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, zeusd_path, sizeof zeusd_path);
    for (int i = 0; i < 300; i++) {
        files[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(files[i], (struct sockaddr *)&address, sizeof address);
    }
    if (geteuid() != 0)
        check("GET", "/time", 0, ""); /* cut off, too */
    for (int i = 0; i < 300; i++)
        close(files[i]);
    int status = 0;
    for (int i = 0; i < 5000 && status != 200; i++, erg_sleep_ns(2000000))
        status = ask("GET", "/time").status;
    assert_int_equal(status, 200);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(existing_values_can_be_read),
        cmocka_unit_test(leases_last_as_long_as_the_process),
        cmocka_unit_test(a_reset_gives_back),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(many_connections_are_cut_off),
    };
    return cmocka_run_group_tests_name("zeusd", tests, NULL, NULL);
}
