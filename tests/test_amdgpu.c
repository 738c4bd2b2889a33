/*
 * AMD GPUs on a tree of the driver's files made for the test: every metric of the revisions of its
 * table, what is missing, lists of GPUs, and the energy of a window.
 */
#include "base/clock.h"
#include "commands.h"
#include "ergon/telemetry.h"
#include "side_by_side.h"
#include "telemetry/clocks.h"
#include "telemetry/gpu_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#define MI300 "0000:1c:00.0"
#define MI250 "0000:c1:00.0"
#define RADEON "0001:03:00.0"

static const uint64_t all_metrics = (UINT64_C(1) << ERG_METRICS) - 1;

/* ---- the tree ---- */

static void make_subfolder(const char *name)
{
    mkdir(in_folder(name), 0777);
}

/* As the driver does it: whoever reads sees the old bytes or the new ones. */
static void write_bytes(const char *gpu, const char *name, const void *bytes, size_t length)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s", gpu, name);
    FILE *file = fopen(in_folder("draft"), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
    assert_int_equal(rename(in_folder("draft"), in_folder(path.data)), 0);
    erg_text_release(&path);
}

static void write_line(const char *gpu, const char *name, const char *text)
{
    struct erg_text line = {0};
    erg_text_printf(&line, "%s\n", text);
    write_bytes(gpu, name, line.data, line.count);
    erg_text_release(&line);
}

/* A table that says nothing but its size and revisions. */
struct table {
    unsigned char bytes[512];
    size_t length;
};

static struct table table_of(size_t length, int format, int revision)
{
    struct table table = {.length = length};
    memset(table.bytes, 0xff, sizeof table.bytes);
    table.bytes[0] = (unsigned char)(length & 0xff);
    table.bytes[1] = (unsigned char)(length >> 8);
    table.bytes[2] = (unsigned char)format;
    table.bytes[3] = (unsigned char)revision;
    return table;
}

static void set(struct table *table, size_t at, size_t size, uint64_t value)
{
    for (size_t i = 0; i < size; i++)
        table->bytes[at + i] = (unsigned char)(value >> 8 * i);
}

static void write_table(const char *gpu, const struct table *table)
{
    write_bytes(gpu, "gpu_metrics", table->bytes, table->length);
}

static void make_gpu(const char *gpu)
{
    static const char *const folders[] = {"", "/hwmon", "/hwmon/hwmon7", "/ras"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct erg_text name = {0};
        erg_text_printf(&name, "%s%s", gpu, folders[i]);
        make_subfolder(name.data);
        erg_text_release(&name);
    }
    write_line(gpu, "vendor", "0x1002");
}

/* An MI300X: instant power, junction and memory temperature, table 1.6. */
static struct table make_mi300(void)
{
    make_gpu(MI300);
    write_line(MI300, "device", "0x74a1");
    write_line(MI300, "product_name", "AMD Instinct MI300X OAM");
    write_line(MI300, "unique_id", "8f3a0123456789ab");
    write_line(MI300, "hwmon/hwmon7/power1_input", "512345678");
    write_line(MI300, "hwmon/hwmon7/power1_cap", "700000000");
    write_line(MI300, "hwmon/hwmon7/power1_cap_default", "750000000");
    write_line(MI300, "hwmon/hwmon7/power1_cap_min", "0");
    write_line(MI300, "hwmon/hwmon7/power1_cap_max", "750000000");
    write_line(MI300, "hwmon/hwmon7/freq1_input", "2100000000");
    write_line(MI300, "hwmon/hwmon7/freq2_input", "1300000000");
    write_line(MI300, "hwmon/hwmon7/temp2_label", "junction");
    write_line(MI300, "hwmon/hwmon7/temp2_input", "71000");
    write_line(MI300, "hwmon/hwmon7/temp2_crit", "100000");
    write_line(MI300, "hwmon/hwmon7/temp3_label", "mem");
    write_line(MI300, "hwmon/hwmon7/temp3_input", "62500");
    write_line(MI300, "hwmon/hwmon7/temp3_crit", "84000");
    write_line(MI300, "gpu_busy_percent", "97");
    write_line(MI300, "mem_busy_percent", "40");
    write_line(MI300, "ras/umc_err_count", "ue: 1\nce: 3");
    struct table table = table_of(312, 1, 6);
    set(&table, 16, 8, UINT64_C(65536) * 1234 + 32768); /* 1234.5 J */
    set(&table, 32, 4, 1000);                           /* ticks */
    set(&table, 40, 4, 200);                            /* at the power limit */
    set(&table, 44, 4, 10);                             /* too hot: socket, regulators, memory */
    set(&table, 48, 4, 0);
    set(&table, 52, 4, 50);
    for (size_t link = 0; link < 7; link++) { /* the eighth is none */
        set(&table, 128 + 8 * link, 8, 1000);
        set(&table, 192 + 8 * link, 8, 2000 + link);
    }
    write_table(MI300, &table);
    return table;
}

/* An MI250X: mean power only, edge, junction and memory temperature, table 1.3. */
static struct table make_mi250(void)
{
    make_gpu(MI250);
    write_line(MI250, "device", "0x7408");
    write_line(MI250, "unique_id", "8f3b000000000001");
    write_line(MI250, "hwmon/hwmon7/power1_average", "300000000");
    write_line(MI250, "hwmon/hwmon7/temp1_label", "edge");
    write_line(MI250, "hwmon/hwmon7/temp1_input", "50000");
    write_line(MI250, "hwmon/hwmon7/temp2_label", "junction");
    write_line(MI250, "hwmon/hwmon7/temp2_input", "60000");
    struct table table = table_of(120, 1, 3);
    set(&table, 24, 8, 65536);
    set(&table, 112, 8, UINT64_C(1) << 1 | UINT64_C(1) << 36);
    write_table(MI250, &table);
    return table;
}

static int begin(void **state)
{
    int result = commands_begin(state);
    set_world(NULL);
    setenv("ERGON_AMDGPU", folder, 1);
    make_subfolder("module");
    write_line("module", "version", "6.12.12");
    write_line("", "bind", "not a GPU");
    return result;
}

static int64_t value_of(const struct erg_gpu_sample *sample, enum erg_metric metric)
{
    if (!erg_gpu_has(sample, metric))
        fail_msg("%s is missing", erg_metric_info(metric)->name);
    return sample->readings[metric].value;
}

static struct erg_gpus *open_all(void)
{
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    assert_ok(erg_gpus_open(&gpus, "all", &err), &err);
    return gpus;
}

/* ---- what is read ---- */

static void test_every_metric(void **state)
{
    (void)state;
    make_mi250();
    make_mi300();
    struct erg_gpus *gpus = open_all();
    struct erg_gpu_sample sample;
    assert_int_equal(erg_gpus_count(gpus), 2);
    const struct erg_gpu_info *info = erg_gpus_info(gpus, 0);
    assert_string_equal(info->vendor, "AMD");
    assert_string_equal(info->name, "AMD Instinct MI300X OAM");
    assert_string_equal(info->uuid, "GPU-8f3a0123456789ab");
    assert_string_equal(info->pci, "00000000:1c:00.0");
    assert_string_equal(info->driver, "amdgpu 6.12.12");
    assert_int_equal(info->index, 0);

    erg_gpu_read(gpus, 0, all_metrics, &sample);
    assert_false(sample.lost);
    assert_int_equal(value_of(&sample, ERG_METRIC_ENERGY), 1234500);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_INSTANT), 512345);
    assert_int_equal(value_of(&sample, ERG_METRIC_SM_CLOCK), 2100);
    assert_int_equal(value_of(&sample, ERG_METRIC_MEMORY_CLOCK), 1300);
    assert_int_equal(value_of(&sample, ERG_METRIC_TEMPERATURE), 71);
    assert_int_equal(value_of(&sample, ERG_METRIC_MEMORY_TEMPERATURE), 62);
    assert_int_equal(value_of(&sample, ERG_METRIC_MARGIN), 21); /* of the memory: 84 - 62.5 */
    assert_int_equal(value_of(&sample, ERG_METRIC_UTILISATION), 97);
    assert_int_equal(value_of(&sample, ERG_METRIC_MEMORY_UTILISATION), 40);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT), 700000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT_DEFAULT), 750000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT_MIN), 0);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_LIMIT_MAX), 750000);
    assert_int_equal(value_of(&sample, ERG_METRIC_ECC_CORRECTED), 3);
    assert_int_equal(value_of(&sample, ERG_METRIC_ECC_UNCORRECTED), 1);
    assert_int_equal(value_of(&sample, ERG_METRIC_NVLINK_RX), 7 * 1000 * 1024);
    assert_int_equal(value_of(&sample, ERG_METRIC_NVLINK_TX), (7 * 2000 + 21) * 1024);
    assert_string_equal(erg_gpu_source(gpus, 0, ERG_METRIC_ENERGY),
                        "gpu_metrics energy_accumulator");
    static const enum erg_metric missing[] = {ERG_METRIC_POWER_AVERAGE, ERG_METRIC_REASONS,
                                              ERG_METRIC_PCIE_TX,       ERG_METRIC_PCIE_RX,
                                              ERG_METRIC_XID,           ERG_METRIC_MEMORY_POWER};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        assert_false(erg_gpu_has(&sample, missing[i]));
        assert_string_equal(erg_gpu_refusal(gpus, 0, missing[i]),
                            "not supported by this GPU or driver");
    }

    assert_string_equal(erg_gpus_info(gpus, 1)->name, "AMD GPU 0x7408");
    erg_gpu_read(gpus, 1, all_metrics, &sample);
    assert_int_equal(value_of(&sample, ERG_METRIC_ENERGY), 1000);
    assert_int_equal(value_of(&sample, ERG_METRIC_POWER_INSTANT), 300000);
    assert_string_equal(erg_gpu_source(gpus, 1, ERG_METRIC_POWER_INSTANT), "power1_average");
    assert_int_equal(value_of(&sample, ERG_METRIC_TEMPERATURE), 60); /* the hottest spot */
    assert_int_equal(value_of(&sample, ERG_METRIC_REASONS),
                     ERG_REASON_SW_POWER_CAP | ERG_REASON_SW_THERMAL);
    assert_false(erg_gpu_has(&sample, ERG_METRIC_MARGIN));
    assert_false(erg_gpu_has(&sample, ERG_METRIC_NVLINK_TX));
    assert_false(erg_gpu_has(&sample, ERG_METRIC_VIOLATION_POWER));
    erg_gpus_close(gpus);
}

/* The share of ticks at a limit between two reads is a share of the time between them, also where
 * the ticks, of 32 bits, begin anew. */
static void test_time_at_a_limit(void **state)
{
    (void)state;
    struct table table = make_mi300();
    set(&table, 32, 4, UINT32_MAX - 300);
    write_table(MI300, &table);
    struct erg_gpus *gpus = open_all();
    struct erg_gpu_sample first, second;
    erg_gpu_read(gpus, 0, all_metrics, &first);
    assert_int_equal(value_of(&first, ERG_METRIC_VIOLATION_POWER), 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    set(&table, 32, 4, 99);  /* 400 on */
    set(&table, 40, 4, 300); /* 100 on: a quarter */
    set(&table, 52, 4, 70);  /* a twentieth */
    write_table(MI300, &table);
    erg_gpu_read(gpus, 0, all_metrics, &second);
    double between_ns = (double)(second.readings[ERG_METRIC_VIOLATION_POWER].time_ns -
                                 first.readings[ERG_METRIC_VIOLATION_POWER].time_ns);
    assert_near(value_of(&second, ERG_METRIC_VIOLATION_POWER), between_ns / 4, 2);
    assert_near(value_of(&second, ERG_METRIC_VIOLATION_THERMAL), between_ns / 20, 2);
    erg_gpus_close(gpus);
}

/* Energy of 1 J by every revision; nothing by those that are not known, cut off or of a CPU. */
static void test_revisions_of_the_table(void **state)
{
    (void)state;
    static const struct {
        size_t length, at;
        int format, revision;
        bool known;
    } cases[] = {
        {96, 24, 1, 1, true},   {104, 24, 1, 2, true},  {120, 24, 1, 3, true},
        {288, 24, 1, 4, true},  {360, 88, 1, 5, true},  {400, 16, 1, 6, true},
        {400, 24, 1, 7, true},  {400, 24, 1, 8, true},  {400, 24, 1, 0, false},
        {400, 24, 1, 9, false}, {120, 24, 2, 3, false}, {100, 24, 1, 3, false},
        {16, 8, 1, 4, false},
    };
    make_gpu(RADEON);
    struct erg_gpus *gpus = open_all();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct table table = table_of(cases[i].length, cases[i].format, cases[i].revision);
        struct erg_gpu_sample sample;
        set(&table, cases[i].at, 8, 65536);
        write_table(RADEON, &table);
        erg_gpu_read(gpus, 0, UINT64_C(1) << ERG_METRIC_ENERGY, &sample);
        assert_int_equal(erg_gpu_has(&sample, ERG_METRIC_ENERGY), cases[i].known);
        if (cases[i].known)
            assert_int_equal(value_of(&sample, ERG_METRIC_ENERGY), 1000);
        table.length -= 8; /* what it says is there is not */
        write_table(RADEON, &table);
        erg_gpu_read(gpus, 0, UINT64_C(1) << ERG_METRIC_ENERGY, &sample);
        assert_false(erg_gpu_has(&sample, ERG_METRIC_ENERGY));
        table.length += 8;
        for (uint64_t none = 0; none < 2; none++) { /* never counts; not filled */
            set(&table, cases[i].at, 8, -none);
            write_table(RADEON, &table);
            erg_gpu_read(gpus, 0, UINT64_C(1) << ERG_METRIC_ENERGY, &sample);
            assert_false(erg_gpu_has(&sample, ERG_METRIC_ENERGY));
        }
    }
    assert_string_equal(erg_gpus_info(gpus, 0)->uuid, "GPU-00000001:03:00.0");
    erg_gpus_close(gpus);
}

static void test_a_gpu_that_goes(void **state)
{
    (void)state;
    make_mi300();
    struct erg_gpus *gpus = open_all();
    struct erg_gpu_sample sample;
    write_line(MI300, "hwmon/hwmon7/power1_input", "busy"); /* no number is not 0 */
    erg_gpu_read(gpus, 0, UINT64_C(1) << ERG_METRIC_POWER_INSTANT, &sample);
    assert_int_equal(sample.valid, 0);
    assert_false(sample.lost);
    assert_int_equal(remove_tree(in_folder(MI300)), 0);
    erg_gpu_read(gpus, 0, all_metrics, &sample);
    assert_int_equal(sample.valid, 0);
    assert_true(sample.lost);
    erg_gpus_close(gpus);
    struct erg_error err = {0};
    assert_fails(erg_amdgpu_open(&gpus, NULL, &err), &err, "shows none");
    assert_fails(erg_amdgpu_open(&gpus, "/nonexistent", &err), &err, "No such file");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    assert_fails(erg_gpus_open(&gpus, "all", &err), &err, "looking for NVIDIA GPUs");
    assert_non_null(strstr(err.message, "; looking for AMD GPUs: '"));
}

/* ---- which of them ---- */

static void test_lists_of_gpus(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_gpus *gpus;
    make_mi250();
    make_mi300();
    make_gpu(RADEON);
    assert_ok(erg_gpus_open(&gpus, "GPU-8f3b,0", &err), &err);
    assert_int_equal(erg_gpus_count(gpus), 2);
    assert_int_equal(erg_gpus_info(gpus, 0)->index, 1);
    assert_int_equal(erg_gpus_info(gpus, 1)->index, 0);
    erg_gpus_close(gpus);

    setenv("ROCR_VISIBLE_DEVICES", "2,GPU-8f3b", 1);
    setenv("HIP_VISIBLE_DEVICES", "1", 1); /* of those two */
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    assert_ok(erg_gpus_open(&gpus, NULL, &err), &err);
    assert_int_equal(erg_gpus_count(gpus), 1);
    assert_int_equal(erg_gpus_info(gpus, 0)->index, 1);
    erg_gpus_close(gpus);
    setenv("HIP_VISIBLE_DEVICES", "2", 1);
    assert_fails(erg_gpus_open(&gpus, NULL, &err), &err, "HIP_VISIBLE_DEVICES=\"2\"");
    unsetenv("ROCR_VISIBLE_DEVICES");
    unsetenv("HIP_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_clocks_stay_alone(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_clock_list list;
    make_mi300();
    struct erg_gpus *gpus = open_all();
    assert_fails(erg_clocks_supported(gpus, 0, &list, &err), &err, "AMD GPUs cannot be locked");
    erg_gpus_close(gpus);
}

/* ---- energy of a window, and commands ---- */

static atomic_bool stop;
static const double load_w = 420;

struct firmware {
    struct table table;
    int64_t latest_ns; /* from a value until its table lies there: a busy host holds it up */
};

/* A new table every 5 ms, with the energy of a steady load so far. */
static void *fill_tables(void *argument)
{
    struct firmware *firmware = argument;
    int64_t start_ns = erg_now_ns();
    while (!atomic_load(&stop)) {
        int64_t now_ns = erg_now_ns();
        double energy_j = 1234.5 + load_w * 1e-9 * (double)(now_ns - start_ns);
        set(&firmware->table, 16, 8, (uint64_t)(65536 * energy_j));
        write_table(MI300, &firmware->table);
        int64_t late_ns = erg_now_ns() - now_ns;
        if (late_ns > firmware->latest_ns)
            firmware->latest_ns = late_ns;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return NULL;
}

static void test_the_energy_of_a_window(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_meter *meter;
    struct firmware firmware = {.table = make_mi300()};
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, fill_tables, &firmware), 0);
    assert_ok(erg_meter_open(&meter, "0", &err), &err);
    struct erg_window *window = erg_window_begin(meter);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    struct erg_window_result result = {.size = sizeof result};
    erg_window_end(window, &result, NULL);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(result.gpu[0].quality, ERG_ENERGY_MEASURED);
    double own_j = load_w * 1e-9 * (double)firmware.latest_ns;
    assert_near(result.energy_j, load_w * result.time_s,
                own_j + fmax(result.uncertainty_j, 0.01 * load_w * result.time_s));
    assert_close(result.gpu[0].power_peak_w, 512.345, 1e-6);
    erg_meter_close(meter);
}

static void test_commands_show_them(void **state)
{
    (void)state;
    make_mi300();
    json_t *shown = run_json("monitor --once --json", 0);
    assert_string_equal(text_at(shown, "gpus.0.vendor"), "AMD");
    assert_string_equal(text_at(shown, "gpus.0.name"), "AMD Instinct MI300X OAM");
    json_decref(shown);
    check_program("doctor", 0, "of AMD, driver amdgpu 6.12.12: 1 GPU");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_every_metric),           TEST(test_time_at_a_limit),
        TEST(test_revisions_of_the_table), TEST(test_a_gpu_that_goes),
        TEST(test_lists_of_gpus),          TEST(test_clocks_stay_alone),
        TEST(test_the_energy_of_a_window), TEST(test_commands_show_them),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, NULL, NULL);
}
