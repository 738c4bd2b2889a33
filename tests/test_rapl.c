/*
 * CPU and DRAM energy from a powercap tree made for the test.
 */
#include "base/random.h"
#include "base/text.h"
#include "check.h"
#include "telemetry/rapl.h"

#include <sys/stat.h>
#include <time.h>

static char root[64];

static void write_file(const char *zone, const char *name, const char *text)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s", root, zone);
    mkdir(path.data, 0777);
    erg_text_printf(&path, "/%s", name);
    FILE *file = fopen(path.data, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
    erg_text_release(&path);
}

static void make_zone(const char *zone, const char *name, const char *energy_uj)
{
    write_file(zone, "name", name);
    write_file(zone, "max_energy_range_uj", "262143328850");
    write_file(zone, "energy_uj", energy_uj);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/ergon_rapl_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static struct erg_window_result between(const struct erg_rapl_reading *before,
                                        const struct erg_rapl_reading *after, int64_t begin_ns,
                                        int64_t end_ns)
{
    struct erg_window_result window = {.begin_ns = begin_ns, .end_ns = end_ns};
    erg_rapl_between(before, after, &window);
    return window;
}

static void test_packages_and_wraps(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_rapl *rapl;
    struct erg_rapl_reading reading;
    make_zone("intel-rapl:0", "package-0", "262143000000");
    make_zone("intel-rapl:0:0", "core", "5");
    make_zone("intel-rapl:0:1", "dram", "1000000");
    make_zone("intel-rapl:1", "package-1", "0");
    make_zone("intel-rapl-mmio:0", "package-0", "262143000000");
    make_zone("intel-rapl:2", "psys", "77");
    assert_ok(erg_rapl_open(&rapl, root, &err), &err);
    erg_rapl_read(rapl, &reading);
    assert_true(reading.cpu_valid && reading.dram_valid);
    assert_near(reading.cpu_j, 0, 0);

    write_file("intel-rapl:0", "energy_uj", "171150"); /* 328850 to the end, then on */
    write_file("intel-rapl:1", "energy_uj", "2500000");
    write_file("intel-rapl:0:1", "energy_uj", "1250000");
    erg_rapl_read(rapl, &reading);
    assert_near(reading.cpu_j, 0.5 + 2.5, 1e-9);
    assert_near(reading.dram_j, 0.25, 1e-9);
    erg_rapl_read(rapl, &reading);
    assert_near(reading.cpu_j, 3, 1e-9);

    write_file("intel-rapl:0", "energy_uj", "not a number");
    erg_rapl_read(rapl, &reading);
    assert_false(reading.cpu_valid);
    assert_true(reading.dram_valid);
    write_file("intel-rapl:0", "energy_uj", "1171150");
    erg_rapl_read(rapl, &reading);
    assert_true(reading.cpu_valid);
    assert_near(reading.cpu_j, 4, 1e-9); /* nothing was lost meanwhile */
    erg_rapl_close(rapl);
}

/* The sum of a socket that moves and one that stands still is not that of both; nor has a counter
 * without a range any energy to give when it falls. */
static void test_a_counter_that_stands_still(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_rapl *rapl;
    struct erg_rapl_reading before, after;
    struct erg_window_result energy = {0};
    make_zone("intel-rapl:0", "package-0", "0");
    make_zone("intel-rapl:1", "package-1", "7000000");
    write_file("intel-rapl:1", "max_energy_range_uj", "0");
    assert_ok(erg_rapl_open(&rapl, root, &err), &err);
    erg_rapl_read(rapl, &before);
    assert_true(before.cpu_valid);
    nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL);
    write_file("intel-rapl:0", "energy_uj", "5000000");
    erg_rapl_read(rapl, &after);
    assert_false(after.cpu_valid);
    energy.begin_ns = before.end_ns;
    energy.end_ns = after.begin_ns;
    erg_rapl_between(&before, &after, &energy);
    assert_true(isnan(energy.cpu_j));
    write_file("intel-rapl:1", "energy_uj", "9000000"); /* it was only slow */
    erg_rapl_read(rapl, &after);
    energy.begin_ns = before.end_ns;
    energy.end_ns = after.begin_ns;
    erg_rapl_between(&before, &after, &energy);
    assert_near(energy.cpu_j, 7, 1e-9);
    write_file("intel-rapl:1", "energy_uj", "8000000");
    erg_rapl_read(rapl, &after);
    energy.begin_ns = before.end_ns;
    energy.end_ns = after.begin_ns;
    erg_rapl_between(&before, &after, &energy);
    assert_true(isnan(energy.cpu_j));
    assert_near(after.cpu_j, 0, 0);
    erg_rapl_close(rapl);
}

static void test_none(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_rapl *rapl;
    assert_fails(erg_rapl_open(&rapl, "/nonexistent", &err), &err, "expected the powercap tree");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    assert_fails(erg_rapl_open(&rapl, root, &err), &err, "has none");
    make_zone("intel-rapl:0", "package-0", "not for you");
    setenv("ERGON_POWERCAP", root, 1);
    assert_fails(erg_rapl_open(&rapl, NULL, &err), &err, "1 of the 1 below '/tmp/ergon_rapl_");
    assert_non_null(strstr(err.message, "cannot be read by this user"));
    unsetenv("ERGON_POWERCAP");
}

/* One of two sockets: their sum is not known, but that of what all sockets have is. */
static void test_a_socket_that_cannot_be_read(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_rapl *rapl;
    struct erg_rapl_reading before, after;
    struct erg_window_result energy;
    make_zone("intel-rapl:0", "package-0", "0");
    make_zone("intel-rapl:0:0", "dram", "0");
    make_zone("intel-rapl:1", "package-1", "0");
    make_zone("intel-rapl:1:0", "dram", "0");
    write_file("intel-rapl:1", "max_energy_range_uj", "");
    assert_ok(erg_rapl_open(&rapl, root, &err), &err);
    erg_rapl_read(rapl, &before);
    write_file("intel-rapl:0", "energy_uj", "5000000");
    write_file("intel-rapl:1:0", "energy_uj", "1000000");
    erg_rapl_read(rapl, &after);
    assert_false(after.cpu_valid);
    assert_true(after.dram_valid);
    energy = between(&before, &after, before.end_ns, after.begin_ns);
    assert_true(isnan(energy.cpu_j) && isnan(energy.cpu_uncertainty_j));
    assert_near(energy.dram_j, 1, 1e-9);
    erg_rapl_close(rapl);
    write_file("intel-rapl:0:0", "max_energy_range_uj", "");
    assert_fails(erg_rapl_open(&rapl, root, &err), &err, "2 of the 4 below");
}

/* What no CPU can use is no wrap: the energy is unknown, and known again from then on. */
static void test_a_counter_that_restarts(void **state)
{
    (void)state;
    static const char *const resets[] = {"1000", "250000000000"}; /* down, and far up */
    for (int i = 0; i < 2; i++) {
        struct erg_error err = {0};
        struct erg_rapl *rapl;
        struct erg_rapl_reading before, after, later;
        struct erg_window_result energy;
        make_zone("intel-rapl:0", "package-0", "1000000000");
        make_zone("intel-rapl:0:0", "dram", "0");
        assert_ok(erg_rapl_open(&rapl, root, &err), &err);
        erg_rapl_read(rapl, &before);
        write_file("intel-rapl:0", "energy_uj", resets[i]);
        write_file("intel-rapl:0:0", "energy_uj", "2000000");
        erg_rapl_read(rapl, &after);
        energy = between(&before, &after, before.end_ns, after.begin_ns);
        assert_true(isnan(energy.cpu_j) && isnan(energy.cpu_uncertainty_j));
        assert_near(energy.dram_j, 2, 1e-9);
        assert_true(after.cpu_valid && after.cpu_run == before.cpu_run + 1);
        assert_near(after.cpu_j, 0, 0); /* a new series begins */
        struct erg_text energy_uj = {0};
        erg_text_printf(&energy_uj, "%ld", atol(resets[i]) + 3000000);
        write_file("intel-rapl:0", "energy_uj", energy_uj.data);
        erg_text_release(&energy_uj);
        erg_rapl_read(rapl, &later);
        energy = between(&after, &later, after.end_ns, later.begin_ns);
        assert_near(energy.cpu_j, 3, 1e-9);
        erg_rapl_close(rapl);
    }
}

/* A load that is high for a share of each of its periods. */
struct load {
    double low_w, high_w, share, period_s;
};

static double used_j(const struct load *load, double time_s)
{
    double periods = floor(time_s / load->period_s);
    double rest_s = time_s - periods * load->period_s, high_s = load->share * load->period_s;
    double mean_w = load->low_w + (load->high_w - load->low_w) * load->share;
    return periods * load->period_s * mean_w + load->low_w * rest_s +
           (load->high_w - load->low_w) * fmin(rest_s, high_s);
}

/* A counter that is brought up to date every millisecond, read within 40 us. */
static struct erg_rapl_reading read_at(const struct load *load, double time_s, double phase_s)
{
    double updated_s = floor((time_s - phase_s) * 1e3) * 1e-3 + phase_s;
    return (struct erg_rapl_reading){.cpu_j = used_j(load, updated_s),
                                     .cpu_valid = true,
                                     .begin_ns = llround(time_s * 1e9) - 20000,
                                     .end_ns = llround(time_s * 1e9) + 20000};
}

static void test_uncertainty_covers_windows(void **state)
{
    (void)state;
    static const struct load loads[] = {
        {120, 120, 0, 1},        /* steady */
        {60, 180, 0.5, 0.0073},  /* phases of a step */
        {90, 300, 0.3, 0.031},   /* bursts */
        {100, 250, 0.5, 0.0004}, /* faster than the counter */
    };
    enum { WINDOWS = 4000 };
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    for (size_t l = 0; l < sizeof loads / sizeof *loads; l++) {
        size_t covered = 0;
        double relative = 0;
        for (int i = 0; i < WINDOWS; i++) {
            double phase_s = 1e-3 * erg_rng_uniform(&rng), begin_s = 1 + erg_rng_uniform(&rng);
            double end_s = begin_s + 0.05 * (1 + 19 * erg_rng_uniform(&rng));
            double gap_s = 3e-5 + 1e-4 * erg_rng_uniform(&rng); /* until a thread goes on */
            struct erg_rapl_reading before = read_at(&loads[l], begin_s - gap_s, phase_s);
            struct erg_rapl_reading after = read_at(&loads[l], end_s + gap_s, phase_s);
            struct erg_window_result energy;
            energy = between(&before, &after, llround(begin_s * 1e9), llround(end_s * 1e9));
            double truth_j = used_j(&loads[l], end_s) - used_j(&loads[l], begin_s);
            covered += fabs(energy.cpu_j - truth_j) <= energy.cpu_uncertainty_j;
            relative = fmax(relative, energy.cpu_uncertainty_j / truth_j);
            assert_true(isnan(energy.dram_j) && isnan(energy.dram_uncertainty_j));
        }
        assert_true(covered >= 0.95 * WINDOWS);
        assert_true(relative < 0.05); /* of the shortest; a bound that says nothing covers, too */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uncertainty_covers_windows),
        cmocka_unit_test_setup_teardown(test_packages_and_wraps, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_a_counter_that_stands_still, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_none, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_a_socket_that_cannot_be_read, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_a_counter_that_restarts, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
