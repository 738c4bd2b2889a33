/* ergon measure: energy of a command over the fake NVML; exit status, signals, output. */
#include "commands.h"
#include "json_file.h"
#include "side_by_side.h"

#include "cluster/tariff.h"
#include "observe/parts.h"

#include <sys/stat.h>
#include <time.h>

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

/* By tables of hours: what it emits and costs is known where the hour is. */
static void test_carbon_and_price(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    struct erg_text daily = {0}, hours = {0};
    const time_t now = time(NULL), later = now + 3600;
    struct tm utc, next;
    assert_non_null(gmtime_r(&now, &utc));
    assert_non_null(gmtime_r(&later, &next));
    erg_text_add(&daily, "utc_hour,g_per_kwh\n");
    for (int hour = 0; hour < 24; hour++)
        erg_text_printf(&daily, "%d,400\n", hour);
    write_text("carbon.csv", daily.data);
    erg_text_printf(&hours, "utc_hour,usd_per_kwh\n%04d-%02d-%02dT%02d:00:00Z,-0.5\n",
                    utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour);
    erg_text_printf(&hours, "%04d-%02d-%02dT%02d,-0.5\n", next.tm_year + 1900, next.tm_mon + 1,
                    next.tm_mday, next.tm_hour);
    write_text("price.csv", hours.data);
    struct erg_text line = with_folder("measure --json -r 2 --carbon @/carbon.csv --price "
                                       "@/price.csv -- sleep 0.6");
    json_t *root = run_json(line.data, 0);
    const double energy_j = number_at(root, "runs.0.energy_j");
    assert_close(number_at(root, "runs.0.co2_g"), energy_j / 3.6e6 * 400, 1e-9);
    assert_close(-number_at(root, "runs.0.cost_usd"), energy_j / 3.6e6 * 0.5, 1e-9);
    assert_close(number_at(root, "summary.co2_g.mean"),
                 number_at(root, "summary.energy_j.mean") / 3.6e6 * 400, 1e-9);
    json_decref(root);
    erg_text_release(&line);
    /* Hours long ago say nothing of today. */
    write_text("old.csv", "utc_hour,g_per_kwh\n2024-02-29T23,400\n2024-03-01T00:00,410\n");
    line = with_folder("measure --json --carbon @/old.csv -- sleep 0.6");
    root = run_json(line.data, 0);
    assert_true(json_is_null(json_at(root, "runs.0.co2_g")));
    assert_int_equal(number_at(root, "summary.co2_g.count"), 0);
    assert_null(json_object_get(json_at(root, "summary"), "cost_usd"));
    json_decref(root);
    erg_text_release(&line);
    line = with_folder("measure --carbon @/old.csv -- sleep 0.3 2>&1");
    check_program(line.data, 0, "emissions (CO2)              -, unknown for some hours");
    erg_text_release(&line);
    erg_text_release(&daily);
    erg_text_release(&hours);
    static const struct {
        const char *table, *said;
    } wrong[] = {
        {"utc_hour,g_per_kwh\n2026-13-01T00,4\n", "wrong.csv:2: column 'utc_hour' is"},
        {"utc_hour,g_per_kwh\n2026-12-01T00:30,4\n", "expected an hour as 2026-11-27T18, or 0"},
        {"utc_hour,g_per_kwh\n2026-+1-01T00,4\n", "expected an hour as 2026-11-27T18, or 0"},
        {"utc_hour,g_per_kwh\n2026-12-01T-0,4\n", "expected an hour as 2026-11-27T18, or 0"},
        {"utc_hour,g_per_kwh\n24,4\n", "or 0 to 23 for every day"},
        {"utc_hour,g_per_kwh\n3,4\n3,5\n", "wrong.csv:3: column 'utc_hour' is \"3\", expected an"},
        {"utc_hour,g_per_kwh\n3,4\n2026-12-01T00,5\n", "not both"},
        {"utc_hour,g_per_kwh\n3,-4\n", "expected 0 or more, got -4"},
        {"utc_hour,g_per_kwh\n", "expected at least one row below the header"},
        {"hour,g_per_kwh\n3,4\n", "utc_hour"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text("wrong.csv", wrong[i].table);
        line = with_folder("measure --carbon @/wrong.csv -- touch @/ran 2>&1");
        check_program(line.data, 1, wrong[i].said);
        erg_text_release(&line);
        assert_int_equal(access(in_folder("ran"), F_OK), -1);
    }
}

/* Rates change exactly where hours do, over the end of a leap day; gaps are not known. */
static void test_tables_of_hours(void **state)
{
    (void)state;
    struct erg_tariff tariff;
    struct erg_error err = {0};
    double until_s;
    const double march_s = 1709251200; /* 2024-03-01T00:00:00Z */
    write_text("hours.csv", "utc_hour,g_per_kwh\n2024-02-29T23,400\n2024-03-01T00:00,410\n"
                            "2024-03-01 02:00:00+00:00,420\n");
    assert_ok(erg_tariff_load_hours(&tariff, in_folder("hours.csv"), "g_per_kwh", &err), &err);
    static const struct {
        double at_s, g_per_kwh, until_s;
    } cases[] = {{-3600.001, NAN, -3600}, {-3600, 400, 0},        {-0.001, 400, 0},
                 {0, 410, 3600},          {3599.999, 410, 3600},  {3600, NAN, 7200},
                 {7200, 420, 10800},      {10800, NAN, INFINITY}, {1e9, NAN, INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct erg_rate *rate = erg_tariff_at(&tariff, march_s + cases[i].at_s, &until_s);
        assert_true(rate->g_co2_per_kwh == cases[i].g_per_kwh ||
                    (isnan(rate->g_co2_per_kwh) && isnan(cases[i].g_per_kwh)));
        assert_true(isnan(rate->usd_per_kwh));
        assert_true(until_s == march_s + cases[i].until_s);
    }
    erg_tariff_release(&tariff);
    write_text("daily.csv", "utc_hour,usd_per_kwh\n0,0.1\n23,-0.2\n");
    assert_ok(erg_tariff_load_hours(&tariff, in_folder("daily.csv"), "usd_per_kwh", &err), &err);
    assert_near(erg_tariff_at(&tariff, march_s, &until_s)->usd_per_kwh, 0.1, 0);
    assert_true(until_s == march_s + 3600);
    assert_true(isnan(erg_tariff_at(&tariff, march_s + 3600, &until_s)->usd_per_kwh));
    assert_true(until_s == march_s + 23 * 3600);
    assert_near(erg_tariff_at(&tariff, march_s - 1, &until_s)->usd_per_kwh, -0.2, 0);
    assert_true(until_s == march_s);
    erg_tariff_release(&tariff);
}

/* Cut where hours begin, here after a quarter of a second: nothing is lost or counted twice. */
static void test_parts_of_a_run(void **state)
{
    (void)state;
    struct erg_meter *meter;
    struct erg_parts *parts;
    struct erg_part *items;
    struct erg_error err = {0};
    struct erg_window_result whole = {.size = sizeof whole};
    size_t count;
    double sum_j = 0;
    set_world(QUIET_WORLD);
    assert_ok(erg_meter_open(&meter, NULL, &err), &err);
    struct erg_window *window = erg_window_begin(meter);
    assert_ok(erg_parts_begin(&parts, meter, NULL, 0.25, &err), &err);
    nanosleep(&(struct timespec){1, 100000000}, NULL);
    erg_parts_stop(parts);
    erg_window_end(window, &whole, NULL);
    erg_parts_end(parts, &whole, &items, &count);
    assert_true(count >= 4);
    for (size_t i = 0; i < count; i++) {
        sum_j += items[i].energy_j;
        assert_true(items[i].end_s > items[i].begin_s);
        assert_true(i == 0 || fabs(items[i].begin_s - items[i - 1].end_s) < 0.05);
        if (i > 0) /* no part reaches beyond a cut, but for the time that it takes to wake up */
            assert_true(floor(items[i].begin_s / 0.25) > floor(items[i - 1].begin_s / 0.25));
    }
    assert_close(sum_j, whole.energy_j, 1e-9);
    for (size_t i = 0; i < count; i++) /* power does not change */
        assert_near(items[i].energy_j, 350 * (items[i].end_s - items[i].begin_s), 30);
    free(items);
    erg_meter_close(meter);
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
    check_program("measure -- sh -c 'kill -9 $$' 2>&1", 137, "was killed by signal 9");
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
                  "was killed by signal 15");
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
        cmocka_unit_test(test_carbon_and_price),
        cmocka_unit_test(test_tables_of_hours),
        cmocka_unit_test(test_parts_of_a_run),
        cmocka_unit_test(test_one_gpu_without_sensors),
        cmocka_unit_test(test_no_gpu_with_sensors),
        cmocka_unit_test(test_a_counter_that_stands_still),
        cmocka_unit_test(test_exit_status),
        cmocka_unit_test(test_signals_reach_the_command),
        cmocka_unit_test(test_without_gpus),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, commands_begin, remove_folder);
}
