/*
 * What a rank measures for its log: its own GPU of several, on the fake NVML which knows the truth,
 * and the CPU packages of a powercap tree made for the test.
 */
#include "folder.h"

#include "base/clock.h"
#include "fake_gpus.h"
#include "side_by_side.h"
#include "train/log/rank_meter.h"

#include <sys/stat.h>

enum { ATTEMPTS = 15 }; /* for a host so busy that it reads late */

static void check_some_attempt(bool (*is_exact)(void))
{
    for (int i = 0; i < ATTEMPTS; i++)
        if (is_exact())
            return;
    fail_msg("not once in %d times as exact as promised", ATTEMPTS);
}

static const char *const three_gpus = "gpus 3\n"
                                      "gpu * name NVIDIA H100 80GB HBM3\n"
                                      "gpu * limit 700\n"
                                      "gpu 0 power 0=120\n"
                                      "gpu 1 power 0=250\n"
                                      "gpu 2 power 0=300 2.5=300 2.5=650\n"
                                      "gpu 2 counter 0.1 0.03\n"
                                      "gpu 2 temperature 61 70\n"
                                      "gpu 2 clock 1665\n"
                                      "gpu 2 reasons 4 0 100\n";

/* The second rank of two has GPU 2. Each window has the energy that the GPU used in it, in a few
 * milliseconds, also where the load has changed. */
static bool check_the_right_gpu(void)
{
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, three_gpus);
    struct erg_rank_meter meter;
    setenv("CUDA_VISIBLE_DEVICES", "1,2", 1);
    erg_rank_meter_open(&meter, "NVIDIA H100 80GB HBM3", 1);
    assert_non_null(meter.meter);
    bool exact = true;
    double sum_j = 0;
    int64_t begin_ns = meter.last_ns, first_ns = begin_ns;
    for (int i = 0; i < 3; i++) {
        struct erg_rank_numbers numbers;
        erg_sleep_ns(1300000000);
        int64_t before_ns = erg_now_ns();
        erg_rank_meter_take(&meter, &numbers);
        exact &= erg_now_ns() - before_ns < 20000000;
        double truth_j = fake.energy_j(2, begin_ns, meter.last_ns);
        double error_j = fabs(numbers.energy_j - truth_j);
        assert_near(numbers.window_s, 1e-9 * (double)(meter.last_ns - begin_ns), 1e-6);
        assert_near(numbers.measured_s, numbers.window_s, 0.02);
        assert_int_equal(numbers.energy, ERG_RANK_ENERGY_OWN);
        assert_int_equal(numbers.is_gpu, 1);
        assert_true(error_j <= fmax(2 * numbers.uncertainty_j, 0.02 * truth_j));
        exact &= error_j <= numbers.uncertainty_j && numbers.uncertainty_j < 0.12 * truth_j;
        assert_near(numbers.clock_mhz, 1665, 1e-6);
        assert_near(numbers.temperature_c, 61, 0);
        assert_near(numbers.throttled_thermal_s, 0, 1e-9);
        exact &= fabs(numbers.throttled_power_s - numbers.measured_s) < 0.1;
        assert_close(numbers.power_w, numbers.energy_j / numbers.window_s, 1e-6);
        assert_close(numbers.peak_flops, 989.4e12, 0.001);
        assert_true(isnan(numbers.memory_bytes) && isnan(numbers.bubble_s) &&
                    isnan(numbers.exposed_s[ERG_EXPOSED_TENSOR]));
        sum_j += numbers.energy_j;
        begin_ns = meter.last_ns;
    }
    exact &= fabs(sum_j / fake.energy_j(2, first_ns, begin_ns) - 1) < 0.03;
    erg_rank_meter_close(&meter);
    fake_close(&fake);
    return exact;
}

static void the_right_gpu(void **state)
{
    (void)state;
    check_some_attempt(check_the_right_gpu);
}

/* Windows of 60 ms have their share of the latest second. */
static bool check_short_windows_are_widened(void)
{
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 1\ngpu 0 limit 700\n"
                                                       "gpu 0 power 0=400\n"
                                                       "gpu 0 counter 0.1 0.03\n");
    struct erg_rank_meter meter;
    struct erg_rank_numbers numbers;
    erg_rank_meter_open(&meter, "NVIDIA Fake H200", 0);
    bool exact = true;
    int64_t first_ns = meter.last_ns;
    double sum_j = 0, sum_s = 0;
    for (int i = 0; i < 40; i++) {
        erg_sleep_ns(60000000);
        erg_rank_meter_take(&meter, &numbers);
        double since_s = 1e-9 * (double)(meter.last_ns - first_ns);
        assert_true(numbers.measured_s >= fmin(0.99, since_s - 0.01));
        exact &= numbers.measured_s < 1.25 && meter.count <= 12;
        assert_true(numbers.window_s < 1);
        if (since_s > 1) {
            assert_near(numbers.energy_j, 400 * numbers.window_s, 2 * numbers.uncertainty_j);
            exact &= numbers.uncertainty_j < 0.1 * numbers.energy_j;
        }
        sum_j += numbers.energy_j;
        sum_s += numbers.window_s;
    }
    assert_near(sum_s, 1e-9 * (double)(meter.last_ns - first_ns), 1e-6);
    exact &= fabs(sum_j / (400 * sum_s) - 1) < 0.03;
    assert_true(isnan(numbers.peak_flops)); /* the catalogue does not know it */
    erg_rank_meter_close(&meter);
    fake_close(&fake);
    return exact;
}

static void short_windows_are_widened(void **state)
{
    (void)state;
    check_some_attempt(check_short_windows_are_widened);
}

/* Another GPU than the one that trains is not measured, nor is one that is not there. */
static void another_gpu_is_not_measured(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int rank;
    } cases[] = {{"NVIDIA A40", 0}, {"NVIDIA Fake H200", 2}};
    struct fake fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 2\ngpu * power 0=400\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_rank_meter meter;
        struct erg_rank_numbers numbers;
        erg_rank_meter_open(&meter, cases[i].name, cases[i].rank);
        erg_rank_meter_take(&meter, &numbers);
        assert_int_equal(numbers.energy, ERG_RANK_ENERGY_UNKNOWN);
        assert_true(isnan(numbers.energy_j) && isnan(numbers.power_w));
        assert_int_equal(numbers.is_gpu, 1);
        erg_rank_meter_close(&meter);
    }
    fake_close(&fake);
}

static void write_counter(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/intel-rapl:0/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void packages_of_the_host(void **state)
{
    (void)state;
    struct erg_rank_meter meter;
    struct erg_rank_numbers numbers;
    assert_int_equal(mkdir(in_folder("intel-rapl:0"), 0755), 0);
    write_counter("name", "package-0");
    write_counter("max_energy_range_uj", "262143328850");
    write_counter("energy_uj", "1000000");
    setenv("ERGON_POWERCAP", folder, 1);
    erg_rank_meter_open(&meter, NULL, 0);
    assert_non_null(meter.rapl);
    double window_s[3];
    static const char *const counters[] = {"4000000", "34000000", "44000000"};
    for (int i = 0; i < 3; i++) {
        erg_sleep_ns(i == 1 ? 1100000000 : 200000000);
        write_counter("energy_uj", counters[i]);
        erg_rank_meter_take(&meter, &numbers);
        window_s[i] = numbers.window_s;
        assert_int_equal(numbers.energy, ERG_RANK_ENERGY_OWN);
        assert_int_equal(numbers.is_gpu, 0);
        assert_true(numbers.uncertainty_j > 0);
        assert_true(isnan(numbers.peak_flops) && isnan(numbers.clock_mhz));
        if (i == 0)
            assert_close(numbers.energy_j, 3, 0.01);
        if (i == 1) { /* its own second and more */
            assert_close(numbers.energy_j, 30, 0.01);
            assert_close(numbers.power_w, 30 / numbers.measured_s, 0.01);
        }
        if (i == 2) /* its share of the 40 J of both */
            assert_close(numbers.energy_j, 40 * window_s[2] / (window_s[1] + window_s[2]), 0.01);
    }
    erg_rank_meter_close(&meter);

    /* The second rank of the machine does not count the same energy. */
    erg_rank_meter_open(&meter, NULL, 1);
    erg_rank_meter_take(&meter, &numbers);
    assert_int_equal(numbers.energy, ERG_RANK_ENERGY_ELSEWHERE);
    assert_true(isnan(numbers.energy_j));
    erg_rank_meter_close(&meter);

    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    erg_rank_meter_open(&meter, NULL, 0);
    erg_rank_meter_take(&meter, &numbers);
    assert_int_equal(numbers.energy, ERG_RANK_ENERGY_UNKNOWN);
    assert_true(isnan(numbers.energy_j) && isnan(numbers.power_w));
    erg_rank_meter_close(&meter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_gpu),
        cmocka_unit_test(short_windows_are_widened),
        cmocka_unit_test(another_gpu_is_not_measured),
        cmocka_unit_test(packages_of_the_host),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, make_folder, remove_folder);
}
