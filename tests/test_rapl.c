/*
 * CPU and DRAM energy from a powercap tree made for the test.
 */
#include "base/text.h"
#include "check.h"
#include "telemetry/rapl.h"

#include <sys/stat.h>

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
    assert_fails(erg_rapl_open(&rapl, NULL, &err), &err, "cannot be read by this user");
    unsetenv("ERGON_POWERCAP");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_packages_and_wraps, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_none, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
