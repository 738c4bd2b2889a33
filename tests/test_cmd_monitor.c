/* ergon monitor: once for scripts, and live on a terminal that it must leave as it was. */
#define _XOPEN_SOURCE 700 /* terminals */
#define _DEFAULT_SOURCE   /* TIOCSWINSZ */
#include "commands.h"
#include "side_by_side.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static void test_once(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check_program("monitor --once", 0, "1 NVIDIA Fake H200  250 W  700 W");
    check_program("monitor --once", 0,
                  "largest over mean of the GPUs: power 1.43, clock 1.00, temperature 1.00\n");
    json_t *root = run_json("monitor --once --json", 0);
    assert_close(number_at(root, "imbalance.power"), 250 / 175.0, 1e-3);
    assert_near(number_at(root, "imbalance.clock"), 1, 1e-9);
    assert_near(number_at(root, "imbalance.temperature"), 1, 1e-9);
    json_decref(root);
    root = run_json("monitor --once --json --gpus 1", 0);
    assert_true(json_is_null(json_at(root, "imbalance.power")));
    assert_int_equal(json_array_size(json_at(root, "gpus")), 1);
    assert_int_equal(number_at(root, "gpus.0.index"), 1);
    assert_near(number_at(root, "gpus.0.power_inst_mw"), 250e3, 1);
    assert_near(number_at(root, "gpus.0.temp_gpu_c"), 61, 0);
    assert_close(number_at(root, "gpus.0.rates.nvlink_tx_bytes_per_s"), 100e9, 0.05);
    assert_true(json_is_null(json_at(root, "gpus.0.power_mem_mw")));
    json_decref(root);
    set_world("gpus 2\ngpu * power 0=100\ngpu 0 reasons 24 0 1000\ngpu 1 lost 0.2\n");
    root = run_json("monitor --json", 0);
    assert_string_equal(text_at(root, "gpus.0.reasons.0"), "sw_thermal_slowdown");
    assert_string_equal(text_at(root, "gpus.0.reasons.1"), "sw_power_cap");
    assert_true(json_is_true(json_at(root, "gpus.1.lost")));
    assert_true(json_is_null(json_at(root, "gpus.1.power_inst_mw")));
    json_decref(root);
    check_program("monitor </dev/null 2>&1", 2, "needs a terminal");
    set_world(NULL);
    check_program("monitor --once 2>&1", 4, "looking for NVIDIA GPUs");
}

/* ---- a terminal ---- */

struct session {
    int terminal, inside; /* both ends; the inner one stays open so that its state can be seen */
    pid_t pid;
    struct termios before;
    struct erg_text out;
};

static void begin(struct session *session, int rows, int columns)
{
    *session = (struct session){.terminal = posix_openpt(O_RDWR | O_NOCTTY)};
    if (session->terminal < 0 || grantpt(session->terminal) || unlockpt(session->terminal))
        skip();
    session->inside = open(ptsname(session->terminal), O_RDWR | O_NOCTTY);
    assert_true(session->inside >= 0);
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(session->inside, TIOCSWINSZ, &size), 0);
    assert_int_equal(tcgetattr(session->inside, &session->before), 0);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1); /* the picture is ASCII */
    session->pid = fork();
    if (session->pid == 0) {
        setsid();
        for (int fd = 0; fd < 3; fd++)
            dup2(session->inside, fd);
        execl(ERGON_TEST_PROGRAM, "ergon", "monitor", "--interval", "100", (char *)NULL);
        _exit(99);
    }
}

/* Reads what is shown until a part of it has come `times` times. */
static void read_until(struct session *session, const char *part, int times)
{
    for (int tries = 0; tries < 2000; tries++) {
        struct pollfd ready = {.fd = session->terminal, .events = POLLIN};
        if (poll(&ready, 1, 10) > 0) {
            char block[4096];
            ssize_t count = read(session->terminal, block, sizeof block);
            if (count > 0)
                erg_text_add_bytes(&session->out, block, (size_t)count);
        }
        int found = 0;
        for (const char *at = session->out.data; at && (at = strstr(at, part)); at++)
            found++;
        if (found >= times)
            return;
    }
    fail_msg("\"%s\" did not appear in:\n%s", part, session->out.data ? session->out.data : "");
}

/* The program has ended in this way, and the terminal is as before. */
static void check_end(struct session *session, int exit_code, int signal)
{
    static const char leaves[] = "\033[?1049l"; /* the alternate screen of xterm */
    struct termios after;
    int status;
    read_until(session, leaves, 1);
    assert_int_equal(waitpid(session->pid, &status, 0), session->pid);
    assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, signal);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 0, exit_code);
    assert_int_equal(tcgetattr(session->inside, &after), 0);
    assert_int_equal(after.c_lflag, session->before.c_lflag);
    assert_int_equal(after.c_iflag, session->before.c_iflag);
    close(session->terminal);
    close(session->inside);
    erg_text_release(&session->out);
}

static void test_live(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct session session;
    begin(&session, 24, 80);
    read_until(&session, "q quits", 1);
    read_until(&session, "1980 MHz", 2);
    read_until(&session, "250/700 W", 1);
    struct termios during;
    assert_int_equal(tcgetattr(session.inside, &during), 0);
    assert_int_not_equal(during.c_lflag, session.before.c_lflag);
    /* A phone held upright: the key's hint goes, the picture is drawn anew. */
    session.out.count = 0;
    struct winsize size = {.ws_row = 12, .ws_col = 40};
    assert_int_equal(ioctl(session.inside, TIOCSWINSZ, &size), 0);
    kill(session.pid, SIGWINCH);
    read_until(&session, "250/700 W", 1);
    assert_int_equal(write(session.terminal, "q", 1), 1);
    check_end(&session, 0, 0);
}

static void test_the_terminal_is_given_back(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGABRT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct session session;
        bool asked = signals[i] == SIGTERM || signals[i] == SIGINT; /* to end, not to crash */
        begin(&session, 24, 80);
        read_until(&session, "250/700 W", 1);
        kill(session.pid, signals[i]);
        check_end(&session, 0, asked ? 0 : signals[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_the_terminal_is_given_back),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, commands_begin, remove_folder);
}
