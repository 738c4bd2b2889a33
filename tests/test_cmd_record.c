/* ergon record and ergon export over the fake NVML. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "commands.h"

#include "io/csv.h"

#include <signal.h>

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

/* The number of rows, after a look at the power and energy of each GPU. */
static size_t check_csv(const char *path)
{
    struct erg_csv *csv;
    struct erg_error err;
    size_t energy, power, gpu;
    assert_ok(erg_csv_load(&csv, path, &err), &err);
    assert_ok(erg_csv_require(csv, "energy_mj", &energy, &err), &err);
    assert_ok(erg_csv_require(csv, "power_inst_mw", &power, &err), &err);
    assert_ok(erg_csv_require(csv, "local_idx", &gpu, &err), &err);
    long first[2] = {0}, last[2] = {0};
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        long index, power_mw, energy_mj;
        assert_ok(erg_csv_long(csv, row, gpu, &index, &err), &err);
        assert_ok(erg_csv_long(csv, row, power, &power_mw, &err), &err);
        assert_ok(erg_csv_long(csv, row, energy, &energy_mj, &err), &err);
        assert_int_equal(power_mw, index ? 250000 : 100000);
        if (!first[index])
            first[index] = energy_mj;
        last[index] = energy_mj;
    }
    /* At least 0.6 s of the second GPU. */
    assert_true(last[1] - first[1] >= 150000 * 0.8);
    size_t rows = erg_csv_rows(csv);
    erg_csv_free(csv);
    return rows;
}

static void test_a_command_is_recorded(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check(5, "command's output\n",
          "record -i 20 -o % -- sh -c \"sleep 0.8; echo command\\'s output; exit 5\"",
          in_folder("a.rec"));
    check(1, "", "record -o % -- true 2>&1", in_folder("a.rec")); /* exists */
    struct erg_text arguments = {0};
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
    assert_ok(erg_json_load(&trace, in_folder("a.json"), &err), &err);
    assert_true(json_array_size(json_object_get(trace, "traceEvents")) > rows);
    json_decref(trace);
    erg_text_release(&arguments);
}

static void test_how_a_recording_ends(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check(0, "samples of 1 GPU", "record -v --gpus 1 --duration 1 -o % 2>&1", in_folder("b.rec"));
    check(0, "\"local_idx\":1", "export % -f jsonl", in_folder("b.rec"));
    struct erg_text command = {0};
    /* Ctrl-C is how a recording without an end is ended; one with an end was to go on. */
    erg_text_printf(&command, "timeout --preserve-status -s INT 1.5 '%s' record -o %s",
                    ERGON_TEST_PROGRAM, in_folder("c.rec"));
    assert_int_equal(WEXITSTATUS(system(command.data)), 0);
    check(0, "\"power_inst_mw\":", "export % -f jsonl", in_folder("c.rec"));
    command.count = 0;
    erg_text_printf(&command, "timeout --preserve-status -s INT 1.5 '%s' record -d 60 -o %s",
                    ERGON_TEST_PROGRAM, in_folder("d.rec"));
    assert_int_equal(WEXITSTATUS(system(command.data)), 130);
    check(0, "\"power_inst_mw\":", "export % -f jsonl", in_folder("d.rec"));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_command_is_recorded),
        cmocka_unit_test(test_how_a_recording_ends),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, commands_begin, commands_end);
}
