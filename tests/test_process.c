/*
 * What surrounds a run: closed descriptors, signals, limits, the variables of launchers, FIFOs, and
 * bytes that a terminal would obey.
 */
#include "folder.h"
#include "io/file.h"
#include "program.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUICKSTART "'" ERGON_TEST_SOURCE_DIR "/examples/quickstart.yaml'"

/* "optimize QUICKSTART -o FOLDER/name", with what stands before and behind in the shell's line. */
static void check_optimize(const char *name, const char *behind, int exit_code, const char *part)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "optimize " QUICKSTART " -o %s %s", in_folder(name), behind);
    check_program(line.data, exit_code, part);
    erg_text_release(&line);
}

static bool exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static void set_variables(const char *text, bool set)
{
    char copy[512], *rest = copy, *pair;
    snprintf(copy, sizeof copy, "%s", text);
    while ((pair = strtok_r(rest, " ", &rest)) != NULL) {
        char *equals = strchr(pair, '=');
        *equals = 0;
        if (set)
            setenv(pair, equals + 1, 1);
        else
            unsetenv(pair);
    }
}

/* Emulated GPUs are planned for whatever other launchers say of ranks. */
static void launchers_do_not_stop_an_emulated_run(void **state)
{
    (void)state;
    static const char *const environments[] = {
        "RANK=0 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=23456",
        "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=m MASTER_PORT=23456",
        "RANK=7 WORLD_SIZE=2 LOCAL_RANK=x",
        "SLURM_JOB_ID=5 SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_TASKS=1 "
        "SLURM_PROCID=0 SLURM_LOCALID=0",
        "SLURM_JOB_ID=5 SLURM_STEP_ID=-6 SLURM_STEP_NODELIST=n[1-2] SLURM_NTASKS=2 "
        "SLURM_PROCID=1 SLURM_LOCALID=0",
        "ERGON_WORLD_SIZE=3",
    };
    for (size_t i = 0; i < sizeof environments / sizeof *environments; i++) {
        char name[16], plan[32];
        snprintf(name, sizeof name, "env%zu", i);
        snprintf(plan, sizeof plan, "env%zu/plan.json", i);
        set_variables(environments[i], true);
        check_optimize(name, "-q 2>&1", 0, "selected: ergon");
        set_variables(environments[i], false);
        assert_true(exists(plan));
    }
    struct erg_text line = {0};
    erg_text_printf(&line, "optimize " QUICKSTART " -o %s", in_folder("two"));
    assert_int_equal(count_of_two_ranks(line.data, "selected: ergon"), 1);
    assert_int_equal(count_of_two_ranks(line.data, "rank 1 leaves the result to rank 0"), 1);
    erg_text_release(&line);
}

static void closed_descriptors_are_no_files(void **state)
{
    (void)state;
    /* Without standard error, a message would land in the first file that is opened. */
    check_optimize("closed", "<&- 2>&-", 0, "selected: ergon");
    check_optimize("closed", "-vv 2>&- | tail -1", 0, "trace.json");
    check_program("memory " QUICKSTART " 2>&1 >&-", 1, "Writing the result to standard output");
    check_program("run -n 2 -- echo hi <&- 2>&-", 0, "[1] hi");
    check_program("run -n 2 -- sh -c 'echo hi >&2' <&- >&- 2>&-", 0, "");
    char *text;
    size_t length;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("closed/plan.json"), 0, &text, &length, &err), &err);
    assert_int_equal(text[0], '{');
    assert_null(strstr(text, "ergon:"));
    free(text);
}

static void signals_have_their_status(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int status;
    } signals[] = {{"INT", 130}, {"TERM", 143}, {"HUP", 129}};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        char tail[200], name[16];
        snprintf(name, sizeof name, "signal%zu", i);
        /* The signal comes once the store is there; the search of all points takes longer. */
        snprintf(tail, sizeof tail,
                 "--method ergon 2>&1 & until [ -s %s/profile.db ]; do sleep 0.01; done; "
                 "kill -%s $!; wait $!",
                 in_folder(name), signals[i].name);
        check_optimize(name, tail, signals[i].status, "ergon: interrupted");
    }
}

/* The terminal closes: what was started by nohup goes on, and everything else ends in order. */
static void nohup_is_respected(void **state)
{
    (void)state;
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "--version >/dev/null; trap '' HUP; '%s' optimize " QUICKSTART " -o %s 2>&1 & "
                    "until [ -s %s/profile.db ]; do sleep 0.01; done; kill -HUP $!; wait $!",
                    ERGON_TEST_PROGRAM, in_folder("nohup"), in_folder("nohup"));
    check_program(line.data, 0, "selected: ergon");
    erg_text_release(&line);
}

static void a_file_beyond_its_limit_is_an_error(void **state)
{
    (void)state;
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "layout " QUICKSTART
                    " --help >/dev/null; ulimit -f 8; '%s' optimize " QUICKSTART " -o %s 2>&1",
                    ERGON_TEST_PROGRAM, in_folder("large"));
    check_program(line.data, 1, "File too large");
    erg_text_release(&line);
}

static void out_of_memory_is_one_sentence(void **state)
{
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* they reserve terabytes themselves */
#endif
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "--version >/dev/null; ulimit -v 350000; '%s' plan '%s' -b 90000000 2>&1",
                    ERGON_TEST_PROGRAM, ERGON_TEST_SOURCE_DIR "/examples/kwai/llama2-7b.yaml");
    struct program_result result = run_program(line.data);
    if (result.exit_code == 134 || result.exit_code < 0 || !strstr(result.out.data, "ergon: "))
        fail_msg("exit code %d: %s", result.exit_code, result.out.data);
    erg_text_release(&result.out);
    erg_text_release(&line);
}

static void a_fifo_is_not_waited_for(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    static const char *const commands[] = {"show", "memory", "export -f csv"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char arguments[300];
        snprintf(arguments, sizeof arguments, "%s %s 2>&1", commands[i], in_folder("fifo"));
        check_program(arguments, 1, "this is a FIFO, expected a file");
    }
    struct erg_error err = {0};
    char *text;
    assert_fails(erg_file_read(in_folder("fifo"), 0, &text, NULL, &err), &err, "this is a FIFO");
    check_program("memory /dev/stdin <" QUICKSTART " 2>&1 | head -c 100; cat " QUICKSTART
                  " | '" ERGON_TEST_PROGRAM "' memory /dev/stdin 2>&1",
                  0, "GiB");
}

static void names_do_not_move_the_cursor(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shown;
    } names[] = {
        {"a\033]0;x\007b", "a\\x1b]0;x\\x07b"},
        {"a\rb\x7f", "a\\x0db\\x7f"},
        {"a\nergon: b", "a\\x0aergon: b"}, /* nor make lines of their own */
        {"caf\xc3\xa9\xe4\xb8\x80\xf0\x9f\x98\x80", "caf\xc3\xa9\xe4\xb8\x80\xf0\x9f\x98\x80"},
        {"a\xc2\x9b"
         "2J",
         "a\\x9b2J"}, /* a control character in two bytes */
        {"a\x9b"
         "2J\xe4\xb8",
         "a\\x9b2J\xe4\xb8"}, /* and in one */
        {"a\xe0\x9b"
         "2J\xff\x9b\x9b",
         "a\xe0\\x9b2J\xff\\x9b\\x9b"}, /* that no character goes on with */
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "memory '%s.yaml' 2>&1", names[i].name);
        check_program(arguments, 1, names[i].shown);
    }
    struct erg_text job = {0};
    erg_text_printf(&job,
                    "sed 's/^name:.*/name: \"x\\\\e[2Jy\"/' " QUICKSTART " >%s; "
                    "grep -q '^name' %s || sed -i '1i name: \"x\\\\e[2Jy\"' %s",
                    in_folder("job.yaml"), in_folder("job.yaml"), in_folder("job.yaml"));
    assert_int_equal(system(job.data), 0);
    job.count = 0;
    erg_text_printf(&job, "memory %s 2>&1", in_folder("job.yaml"));
    struct program_result result = run_program(job.data);
    assert_null(strchr(result.out.data, '\033'));
    erg_text_release(&result.out);
    erg_text_release(&job);
    check_program("run -n 1 --plain -- printf '\\033[1m\\n'", 0, "\033[1m"); /* as it is */
}

/* Temporary files of killed runs go; those of others who write at this moment stay. */
static void abandoned_files_are_removed(void **state)
{
    (void)state;
    struct erg_error err;
    static const char *const stay[] = {"f.txt.12.x.tmp", "f.txt.12.3.tmp.bak", "g.txt.12.3.tmp",
                                       "f.txt.tmp", "f.txt.7.7.tmp"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        assert_ok(erg_file_write(in_folder(stay[i]), "x", 1, &err), &err);
    int held = open(in_folder("f.txt.7.7.tmp"), O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_ok(erg_file_write(in_folder("left"), "x", 1, &err), &err);
    assert_int_equal(rename(in_folder("left"), in_folder("f.txt.99999999.0.tmp")), 0);
    assert_ok(erg_file_write(in_folder("f.txt"), "x", 1, &err), &err);
    assert_false(exists("f.txt.99999999.0.tmp"));
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        assert_true(exists(stay[i]));
    close(held);
    assert_ok(erg_file_write(in_folder("f.txt"), "x", 1, &err), &err);
    assert_false(exists("f.txt.7.7.tmp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_do_not_stop_an_emulated_run),
        cmocka_unit_test(closed_descriptors_are_no_files),
        cmocka_unit_test(signals_have_their_status),
        cmocka_unit_test(nohup_is_respected),
        cmocka_unit_test(a_file_beyond_its_limit_is_an_error),
        cmocka_unit_test(out_of_memory_is_one_sentence),
        cmocka_unit_test(a_fifo_is_not_waited_for),
        cmocka_unit_test(names_do_not_move_the_cursor),
        cmocka_unit_test(abandoned_files_are_removed),
    };
    return cmocka_run_group_tests_name("process", tests, make_folder, remove_folder);
}
