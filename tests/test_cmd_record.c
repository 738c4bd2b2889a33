/* ergon record and ergon export over the fake NVML. */
#include "commands.h"
#include "json_file.h"
#include "side_by_side.h"

#include "io/csv.h"
#include "io/file.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

/* Bytes of a recording that is more than its header. */
enum { HAS_SAMPLES = 4096 };

static void check(int exit_code, const char *part, const char *format, const char *file)
{
    struct erg_text arguments = {0};
    char *copy = erg_xstrdup(format), *at = strchr(copy, '%');
    *at = '\0';
    erg_text_printf(&arguments, "%s%s%s", copy, file, at + 1);
    check_program(arguments.data, exit_code, part);
    free(copy);
    erg_text_release(&arguments);
}

static long column(const struct erg_csv *csv, size_t row, const char *name)
{
    size_t at;
    long value;
    struct erg_error err;
    assert_ok(erg_csv_require(csv, name, &at, &err), &err);
    assert_ok(erg_csv_long(csv, row, at, &value, &err), &err);
    return value;
}

/* The number of rows, after a look at the power and energy of each GPU. */
static size_t check_csv(const char *path)
{
    struct erg_csv *csv;
    struct erg_error err;
    assert_ok(erg_csv_load(&csv, path, &err), &err);
    size_t rows = erg_csv_rows(csv), first[2], last[2], seen[2] = {0};
    for (size_t row = 0; row < rows; row++) {
        long gpu = column(csv, row, "local_idx");
        assert_int_equal(column(csv, row, "power_inst_mw"), gpu ? 250000 : 100000);
        if (!seen[gpu]++)
            first[gpu] = row;
        last[gpu] = row;
    }
    for (size_t gpu = 0; gpu < 2; gpu++) {
        assert_true(seen[gpu] > 1);
        double time_s = 1e-9 * (double)(column(csv, last[gpu], "t_mono_ns") -
                                        column(csv, first[gpu], "t_mono_ns"));
        double reads_s =
            1e-9 * (double)(column(csv, first[gpu], "read_ns") + column(csv, last[gpu], "read_ns"));
        double energy_j = 1e-3 * (double)(column(csv, last[gpu], "energy_mj") -
                                          column(csv, first[gpu], "energy_mj"));
        /* A counter that moves every 50 ms, at some moment of the two reads. */
        double power_w = gpu ? 250 : 100;
        assert_near(energy_j, power_w * time_s, power_w * (0.05 + reads_s) + 0.001);
        assert_true(energy_j > 0);
    }
    erg_csv_free(csv);
    return rows;
}

static void test_a_command_is_recorded(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct erg_text arguments = {0};
    /* The command goes on until samples are in the file, however busy the machine is. */
    erg_text_printf(&arguments,
                    "record -i 20 -o %s -- sh -c \"while [ \\$(wc -c <%s) -lt %d ]; do sleep 0.1; "
                    "done; echo command\\'s output; exit 5\"",
                    in_folder("a.rec"), in_folder("a.rec"), HAS_SAMPLES);
    check_program(arguments.data, 5, "command's output\n");
    check(1, "", "record -o % -- true 2>&1", in_folder("a.rec")); /* exists */
    arguments.count = 0;
    erg_text_printf(&arguments, "export %s --format csv -o %s", in_folder("a.rec"),
                    in_folder("a.csv"));
    check_program(arguments.data, 0, "");
    size_t rows = check_csv(in_folder("a.csv"));
    assert_true(rows >= 20);
    check(0, "\"power_inst_mw\":250000", "export % -f jsonl", in_folder("a.rec"));
    arguments.count = 0;
    erg_text_printf(&arguments, "export %s --format chrome -o %s", in_folder("a.rec"),
                    in_folder("a.json"));
    check_program(arguments.data, 0, "");
    json_t *trace;
    struct erg_error err;
    assert_ok(load_json(&trace, in_folder("a.json"), &err), &err);
    assert_true(json_array_size(json_object_get(trace, "traceEvents")) > rows);
    json_decref(trace);
    erg_text_release(&arguments);
}

/* Records until samples are in the file, then Ctrl-C: the exit code. */
static int interrupt_recording(const char *file, const char *duration)
{
    const char *arguments[] = {"ergon",  "record", "-o", file, duration ? "-d" : NULL,
                               duration, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execv(ERGON_TEST_PROGRAM, (char *const *)(uintptr_t)arguments);
        _exit(99);
    }
    struct stat info = {0};
    int status;
    while (stat(file, &info) != 0 || info.st_size < HAS_SAMPLES) {
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    kill(pid, SIGINT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_how_a_recording_ends(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check(0, "largest over mean of the GPUs, over time: power 1.43, clock 1.00, temperature 1.00\n",
          "record -v --duration 1 -o % 2>&1", in_folder("uneven.rec"));
    check(0, "samples of 1 GPU", "record -v --gpus 1 --duration 1 -o % 2>&1", in_folder("b.rec"));
    check(0, "\"local_idx\":1", "export % -f jsonl", in_folder("b.rec"));
    /* Ctrl-C is how a recording without an end is ended; one with an end was to go on. */
    assert_int_equal(interrupt_recording(in_folder("c.rec"), NULL), 0);
    check(0, "\"power_inst_mw\":", "export % -f jsonl", in_folder("c.rec"));
    assert_int_equal(interrupt_recording(in_folder("d.rec"), "3600"), 130);
    check(0, "\"power_inst_mw\":", "export % -f jsonl", in_folder("d.rec"));
}

/* A writer that was killed leaves a torn chunk: what is whole is exported, and that is said. */
static void test_a_torn_end(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct stat info;
    check(0, "", "record --duration 1 -o %", in_folder("f.rec"));
    assert_int_equal(stat(in_folder("f.rec"), &info), 0);
    assert_int_equal(truncate(in_folder("f.rec"), info.st_size - 5), 0);
    check(0, "bytes that are not a whole chunk", "export % -f csv 2>&1", in_folder("f.rec"));
    /* Without the chunk that ends it, of 12 bytes: nothing is torn, but something may be missing.
     */
    assert_int_equal(truncate(in_folder("f.rec"), info.st_size - 12), 0);
    check(0, "has no end", "export % -f csv 2>&1", in_folder("f.rec"));
}

/* A GPU that hangs to the end leaves a gap, and is named. */
static void test_a_hanging_gpu(void **state)
{
    (void)state;
    set_world(QUIET_WORLD "gpu 1 hang GetTotalEnergyConsumption 0.3 3600\n");
    check(0, "GPU 1 has not answered for the last", "record --duration 3 -o % 2>&1",
          in_folder("h.rec"));
}

/* Standard output may be a file that holds something: all formats write behind it. */
static void test_standard_output_is_appended_to(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check(0, "", "record --duration 0.3 -o %", in_folder("g.rec"));
    static const char *const formats[] = {"csv", "jsonl", "chrome"};
    for (size_t i = 0; i < 3; i++) {
        struct erg_text command = {0};
        struct erg_error err = {0};
        char *text;
        erg_text_printf(&command, "echo before >%s; '%s' export %s -f %s >>%s", in_folder("g.out"),
                        ERGON_TEST_PROGRAM, in_folder("g.rec"), formats[i], in_folder("g.out"));
        assert_int_equal(system(command.data), 0);
        assert_ok(erg_file_read(in_folder("g.out"), 0, &text, NULL, &err), &err);
        assert_memory_equal(text, "before\n", 7);
        assert_non_null(strstr(text, "power"));
        free(text);
        erg_text_release(&command);
    }
    check(1, "writing standard output", "export % -f chrome 2>&1 >/dev/full", in_folder("g.rec"));
    check(1, "writing standard output", "export % -f csv 2>&1 >/dev/full", in_folder("g.rec"));
}

/* The thread sanitizer's own start needs files that are larger than the limits of these tests. */
static void skip_under_tsan(void)
{
#ifdef __SANITIZE_THREAD__
    print_message(
        "skipped: the thread sanitizer does not start under a limit on the size of files\n");
    skip();
#endif
}

/* That a disk is full is told while the command runs: this one goes on until it was told. */
static void test_a_full_disk(void **state)
{
    (void)state;
    skip_under_tsan();
    set_world(QUIET_WORLD);
    struct erg_text command = {0};
    const char *log = in_folder("full.log");
    /* As on a full disk, no file becomes larger than 8 KiB. */
    erg_text_printf(&command,
                    "trap '' XFSZ; ulimit -f 16; '%s' record -i 5 -o %s -- sh -c 'until "
                    "grep -q \"recording stops, the command continues\" %s; do sleep 0.1; "
                    "done' 2>%s",
                    ERGON_TEST_PROGRAM, in_folder("full.rec"), log, log);
    int status = system(command.data);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    erg_text_release(&command);
}

static void test_usage(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check_program("record 2>&1", 2, "needs the option --output");
    check_program("record -o /tmp/x -d 1 -- true 2>&1", 2, "--duration and a command");
    check_program("export 2>&1", 2, "needs FILE");
    check_program("export /dev/null 2>&1", 2, "needs the option --format");
    check_program("export /nonexistent -f csv 2>&1", 1, "/nonexistent");
    check_program("export /dev/null -f csv 2>&1", 1, "/dev/null");
    set_world(NULL);
    check(4, "looking for NVIDIA GPUs", "record -o % -- true 2>&1", in_folder("e.rec"));
    assert_int_not_equal(access(in_folder("e.rec"), F_OK), 0);
}

/* Descriptors 0 to 2 never become a file of ours, into which messages would go. */
static void closed_streams_spoil_nothing(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    char arguments[512];
    snprintf(arguments, sizeof arguments, "record -o %s -d 1 <&- >&- 2>&-",
             in_folder("closed.rec"));
    check_program(arguments, 0, "");
    snprintf(arguments, sizeof arguments, "export %s -f csv 2>&1", in_folder("closed.rec"));
    struct program_result result = run_program(arguments);
    assert_int_equal(result.exit_code, 0);
    assert_null(strstr(result.out.data, "not a whole chunk"));
    erg_text_release(&result.out);
}

/* A limit on the sizes of files is an error like a full disk, not the end of the program. */
static void a_limit_on_sizes_is_a_sentence(void **state)
{
    (void)state;
    skip_under_tsan();
    char command[512];
    snprintf(command, sizeof command,
             "sh -c 'ulimit -f 1; exec \"$0\" optimize \"$1\" -o \"$2\"' '%s' "
             "'%s/examples/quickstart.yaml' %s 2>&1",
             ERGON_TEST_PROGRAM, ERGON_TEST_SOURCE_DIR, in_folder("limited"));
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char said[4096];
    size_t count = fread(said, 1, sizeof said - 1, pipe);
    said[count] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_non_null(strstr(said, "ergon: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_streams_spoil_nothing),
        cmocka_unit_test(a_limit_on_sizes_is_a_sentence),
        cmocka_unit_test(test_a_command_is_recorded),
        cmocka_unit_test(test_how_a_recording_ends),
        cmocka_unit_test(test_a_full_disk),
        cmocka_unit_test(test_a_torn_end),
        cmocka_unit_test(test_a_hanging_gpu),
        cmocka_unit_test(test_standard_output_is_appended_to),
        cmocka_unit_test(test_usage),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, commands_begin, remove_folder);
}
