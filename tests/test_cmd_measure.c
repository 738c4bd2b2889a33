/* ergon measure: energy of a command over the fake NVML; exit status, signals, output. */
#include "commands.h"
#include "json_file.h"
#include "side_by_side.h"

#include <sys/stat.h>

static void test_energy_of_repeats(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    json_t *root = run_json("measure --json -r 3 -w 1 -- sleep 0.6", 0);
    assert_int_equal(json_array_size(json_at(root, "runs")), 3);
    assert_int_equal(number_at(root, "warmups"), 1);
    assert_string_equal(text_at(root, "command.1"), "0.6");
    double time_s = number_at(root, "summary.time_s.mean");
    assert_true(time_s >= 0.6);
    /* Constant power: all there is to find out is the time. A host that read late says so. */
    double late =
        2 * number_at(root, "summary.uncertainty_j.max") / number_at(root, "summary.energy_j.min");
    double loose = fmax(0.02, late);
    assert_close(number_at(root, "summary.energy_j.mean"), 350 * time_s, loose);
    assert_close(number_at(root, "summary.power_mean_w.mean"), 350, loose);
    assert_close(number_at(root, "gpus.1.energy_j.mean"), 250 * time_s, loose);
    assert_close(number_at(root, "gpus.0.power_peak_w.max"), 100, 0.01);
    assert_close(number_at(root, "gpus.0.ratio.mean"), 1,
                 fmax(0.02, 2 * number_at(root, "gpus.0.uncertainty_j.max") /
                                number_at(root, "gpus.0.energy_j.min")));
    assert_string_equal(text_at(root, "runs.2.gpus.1.quality"), "measured");
    assert_close(number_at(root, "runs.0.gpus.1.energy_j"), 250 * number_at(root, "runs.0.time_s"),
                 fmax(0.03, late));
    double cv = number_at(root, "summary.time_s.sd") / time_s;
    assert_close(number_at(root, "summary.time_s.cv"), cv, 1e-9);
    assert_true(json_is_null(json_at(root, "summary.cpu_energy_j.mean")));
    json_decref(root);
}

static void test_table_and_output(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct erg_text arguments = {0};
    struct program_result result = run_program("measure -r 2 -- sh -c 'echo out; echo err >&2' "
                                               "2>/dev/null");
    assert_int_equal(result.exit_code, 0);
    assert_string_equal(result.out.data, "out\nout\n");
    erg_text_release(&result.out);
    check_program("measure -r 2 --gpus 1 -- sleep 0.3 2>&1", 0,
                  "Energy of 'sleep 0.3', 2 runs (mean ± standard deviation):");
    check_program("measure --gpus 1 -- sleep 0.3 2>&1", 0, "\n  1 NVIDIA ");
    check_program("measure --gpus 1 -- true 2>&1", 0, "so estimated; repeat the work");
    erg_text_printf(&arguments, "measure --json -o %s -- echo out", in_folder("m.json"));
    check_program(arguments.data, 0, "out\n");
    json_t *root;
    struct erg_error err;
    assert_ok(load_json(&root, in_folder("m.json"), &err), &err);
    assert_int_equal(number_at(root, "runs.0.exit_status"), 0);
    json_decref(root);
    erg_text_release(&arguments);
}

#define NO_SENSORS(gpu)                                                                            \
    "gpu " gpu " fail GetTotalEnergyConsumption 3\n"                                               \
    "gpu " gpu " fail field185 3\n"                                                                \
    "gpu " gpu " fail field186 3\n"                                                                \
    "gpu " gpu " fail GetPowerUsage 3\n"

/* No sensor is no energy, not none used: one GPU of two is one of two. */
static void test_one_gpu_without_sensors(void **state)
{
    (void)state;
    set_world("gpus 2\ngpu * power 0=300\n" NO_SENSORS("0"));
    json_t *root = run_json("measure --json -r 2 -- sleep 0.6", 0);
    assert_int_equal(number_at(root, "summary.energy_gpus"), 1);
    assert_true(json_is_null(json_at(root, "gpus.0.energy_j.mean")));
    assert_near(number_at(root, "summary.energy_j.mean"), number_at(root, "gpus.1.energy_j.mean"),
                1e-9);
    json_decref(root);
    check_program("measure -- sleep 0.6 2>&1", 0, "\n  energy of 1 of 2 GPUs ");
}

static void test_no_gpu_with_sensors(void **state)
{
    (void)state;
    set_world("gpus 2\ngpu * power 0=300\n" NO_SENSORS("*"));
    json_t *root = run_json("measure --json -- sleep 0.6", 0);
    assert_int_equal(number_at(root, "summary.energy_gpus"), 0);
    assert_true(json_is_null(json_at(root, "summary.energy_j.mean")));
    assert_true(json_is_null(json_at(root, "summary.uncertainty_j.mean")));
    assert_true(json_is_null(json_at(root, "summary.power_mean_w.mean")));
    assert_true(json_is_null(json_at(root, "runs.0.energy_j")));
    json_decref(root);
    check_program("measure -- sleep 0.3 2>&1", 0, "\n  energy of GPUs               -\n");
}

/* Says why power was summed, and keeps the clock. */
static void test_a_counter_that_stands_still(void **state)
{
    (void)state;
    set_world("gpus 1\ngpu 0 power 0=300\ngpu 0 glitch 0 99 5000000\n");
    json_t *root = run_json("measure --json -- sleep 0.6", 0);
    assert_string_equal(text_at(root, "runs.0.gpus.0.counter"), "still");
    assert_string_equal(text_at(root, "runs.0.gpus.0.quality"), "power_only");
    assert_true(json_is_false(json_at(root, "runs.0.gpus.0.lost")));
    assert_near(number_at(root, "gpus.0.sm_clock_mean_mhz.mean"), 1980, 1e-6);
    json_decref(root);
}

static void test_exit_status(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check_program("measure -- sh -c 'exit 7' 2>&1", 7, "'sh' ended with exit status 7");
    check_program("measure -- sh -c 'kill -9 $$' 2>&1", 137, "died of signal 9");
    /* What was measured is printed where the file cannot be written. */
    check_program("measure -o /nonexistent/table -- true 2>&1", 1, "Energy of 'true', 1 run");
    check_program("measure -o /nonexistent/table -- true 2>&1", 1, "writing '/nonexistent/table'");
    check_program("measure -- ergon-no-such-program 2>&1", 127, "starting 'ergon-no-such-program'");
    /* A script without a first line that says by what it is run. */
    struct erg_text arguments = {0};
    write_text("script", "echo \"<$1>\"; exit 9\n");
    assert_int_equal(chmod(in_folder("script"), 0755), 0);
    erg_text_printf(&arguments, "measure -- %s 'a b' 2>/dev/null", in_folder("script"));
    check_program(arguments.data, 9, "<a b>\n");
    erg_text_release(&arguments);
    check_program("measure 2>&1", 2, "needs -- CMD");
    check_program("measure -r 0 -- true 2>&1", 2, "--repeat");
    check_program("measure --gpus 7 -- true 2>&1", 4, "there is no GPU 7");
    /* The first run that fails is the last. */
    json_t *root = run_json("measure --json -r 5 -- false 2>/dev/null", 1);
    assert_int_equal(json_array_size(json_at(root, "runs")), 1);
    json_decref(root);
}

static void test_signals_reach_the_command(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    /* The command sends a signal to ergon, which passes it on; what was measured is shown. No child
     * of its own outlives it: that would hold our pipe. */
    check_program("measure -r 5 -- sh -c 'trap \"exit 9\" TERM; kill -TERM $PPID; "
                  "while :; do sleep 0.1; done' 2>&1",
                  9, "1 run");
    check_program("measure -- sh -c 'kill -TERM $PPID; exec sleep 60' 2>&1", 143,
                  "died of signal 15");
}

static void test_without_gpus(void **state)
{
    (void)state;
    set_world(NULL);
    check_program("measure -- true 2>&1", 4, "looking for NVIDIA GPUs");
    /* A powercap tree makes CPU energy readable. */
    assert_int_equal(mkdir(in_folder("powercap"), 0755), 0);
    assert_int_equal(mkdir(in_folder("powercap/intel-rapl:0"), 0755), 0);
    write_text("powercap/intel-rapl:0/name", "package-0\n");
    write_text("powercap/intel-rapl:0/energy_uj", "1000000\n");
    write_text("powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    setenv("ERGON_POWERCAP", in_folder("powercap"), 1);
    struct erg_text arguments = {0};
    erg_text_printf(&arguments,
                    "measure --json -- sh -c 'echo 3500000 >%s/intel-rapl:0/energy_uj' 2>/dev/null",
                    in_folder("powercap"));
    json_t *root = run_json(arguments.data, 0);
    assert_near(number_at(root, "summary.cpu_energy_j.mean"), 2.5, 1e-9);
    assert_true(number_at(root, "summary.cpu_uncertainty_j.mean") > 0);
    assert_true(json_is_null(json_at(root, "summary.energy_j.mean")));
    assert_true(json_is_null(json_at(root, "summary.dram_energy_j.mean")));
    json_decref(root);
    check_program("measure -- true 2>&1", 0, "warning: no GPU is measured, only the CPU");
    /* Who asks for GPUs by name wants GPUs. */
    check_program("measure --gpus 0 -- true 2>&1", 4, "looking for NVIDIA GPUs");
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    erg_text_release(&arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_energy_of_repeats),
        cmocka_unit_test(test_table_and_output),
        cmocka_unit_test(test_one_gpu_without_sensors),
        cmocka_unit_test(test_no_gpu_with_sensors),
        cmocka_unit_test(test_a_counter_that_stands_still),
        cmocka_unit_test(test_exit_status),
        cmocka_unit_test(test_signals_reach_the_command),
        cmocka_unit_test(test_without_gpus),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, commands_begin, remove_folder);
}
