/*
 * Recordings: what was written is read, whatever happened to the end of the file; exports.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/random.h"
#include "base/text.h"
#include "fake_gpus.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"
#include "json_file.h"
#include "observed.h"
#include "telemetry/recording.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char folder[64], path[128];
static struct fake fake;
static struct erg_gpus *gpus;

static int set_up(void **state)
{
    (void)state;
    struct erg_error err = {0};
    fake = fake_open(ERGON_TEST_FAKE_NVML, "gpus 3\n");
    snprintf(folder, sizeof folder, "/tmp/ergon_recording_XXXXXX");
    if (!mkdtemp(folder) || erg_gpus_open(&gpus, NULL, &err) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/a.rec", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    erg_gpus_close(gpus);
    fake_close(&fake);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Sample i: extreme and ordinary values, some missing, a lost GPU now and then. */
static struct erg_sampler_item make_item(size_t i)
{
    struct erg_sampler_item item = {.gpu = i % 3,
                                    .scheduled_ns = 1000000000 + 50000000 * (int64_t)i};
    struct erg_gpu_sample *sample = &item.sample;
    sample->start_ns = item.scheduled_ns + (int64_t)(i % 7) * 1000;
    sample->end_ns = sample->start_ns + 3000000;
    sample->lost = i % 101 == 100;
    for (int m = 0; m < ERG_METRICS; m++) {
        uint64_t random = erg_hash_u64(i, (uint64_t)m);
        if (random % 5 == 0)
            continue;
        int64_t value = i % 11 == 0 ? (int64_t)random : (int64_t)(random % 1000000);
        sample->valid |= UINT64_C(1) << m;
        sample->readings[m] =
            (struct erg_reading){value, sample->start_ns + (int64_t)(random % 4000000) - 1000000};
    }
    return item;
}

static void check_item(const struct erg_sampler_item *recorded, size_t i)
{
    struct erg_sampler_item item = make_item(i);
    assert_int_equal(recorded->gpu, item.gpu);
    assert_int_equal(recorded->scheduled_ns, item.scheduled_ns);
    assert_int_equal(recorded->sample.start_ns, item.sample.start_ns);
    assert_int_equal(recorded->sample.end_ns, item.sample.end_ns);
    assert_int_equal(recorded->sample.lost, item.sample.lost);
    assert_int_equal(recorded->sample.valid, item.sample.valid);
    for (int m = 0; m < ERG_METRICS; m++) {
        assert_int_equal(recorded->sample.readings[m].value, item.sample.readings[m].value);
        assert_int_equal(recorded->sample.readings[m].time_ns, item.sample.readings[m].time_ns);
    }
}

/* Chunks of `per_chunk` samples. */
static void record(size_t count, size_t per_chunk)
{
    struct erg_error err = {0};
    struct erg_recorder *recorder;
    assert_ok(erg_recorder_open(&recorder, path, gpus, INT64_C(1000000000000), &err), &err);
    for (size_t i = 0; i < count; i++) {
        struct erg_sampler_item item = make_item(i);
        if (i && i % per_chunk == 0)
            assert_ok(erg_recorder_flush(recorder, &err), &err);
        assert_ok(erg_recorder_add(recorder, &item, &err), &err);
    }
    assert_ok(erg_recorder_close(recorder, &err), &err);
}

/* Reads what is there, checks it, and says how many samples that were. */
static size_t read_back(size_t *damaged)
{
    struct erg_error err = {0};
    struct erg_recording *recording;
    struct erg_sampler_item item;
    int64_t unix_ns;
    size_t count = 0;
    int more;
    assert_ok(erg_recording_open(&recording, path, &err), &err);
    while ((more = erg_recording_next(recording, &item, &unix_ns, &err)) > 0)
        check_item(&item, count++);
    if (more < 0)
        fail_msg("%s", err.message);
    *damaged = erg_recording_damaged_bytes(recording);
    erg_recording_close(recording);
    return count;
}

static void test_round_trip(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_recording *recording;
    size_t damaged;
    record(1000, 90);
    assert_int_equal(read_back(&damaged), 1000);
    assert_int_equal(damaged, 0);
    assert_ok(erg_recording_open(&recording, path, &err), &err);
    assert_int_equal(erg_recording_gpus(recording), 3);
    assert_string_equal(erg_recording_gpu(recording, 2)->uuid, erg_gpus_info(gpus, 2)->uuid);
    assert_string_equal(erg_recording_gpu(recording, 2)->name, "NVIDIA Fake H200");
    assert_int_equal(erg_recording_gpu(recording, 2)->index, 2);
    assert_true(strlen(erg_recording_node(recording)) > 0);
    erg_recording_close(recording);

    struct erg_recorder *recorder;
    assert_fails(erg_recorder_open(&recorder, path, gpus, 0, &err), &err, "nothing is overwritten");
}

/* How a file with damage is read: samples that are true, or a refusal, and never less without a
 * word. */
static bool is_told(size_t *count)
{
    struct erg_error err = {0};
    struct erg_recording *recording;
    struct erg_sampler_item item;
    int64_t unix_ns;
    *count = 0;
    if (erg_recording_open(&recording, path, &err) != 0)
        return err.message[0] != '\0';
    int more;
    while ((more = erg_recording_next(recording, &item, &unix_ns, &err)) > 0)
        check_item(&item, (*count)++);
    bool told = more < 0 || erg_recording_damaged_bytes(recording) > 0 ||
                !erg_recording_was_closed(recording);
    erg_recording_close(recording);
    return told;
}

/* Cut anywhere, or with any bit changed: what lies before the damage is there, no more, and that
 * something is missing is known. */
static void test_damage(void **state)
{
    (void)state;
    enum { SAMPLES = 6, PER_CHUNK = 2 };
    struct erg_error err = {0};
    char *whole;
    size_t bytes, damaged, count;
    record(SAMPLES, PER_CHUNK);
    assert_ok(erg_file_read(path, 0, &whole, &bytes, &err), &err);
    assert_int_equal(read_back(&damaged), SAMPLES);
    assert_int_equal(damaged, 0);
    /* In place: thousands of whole files would take a disk minutes. */
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        char changed = (char)(whole[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(pwrite(file, &changed, 1, (off_t)(bit / 8)), 1);
        if (!is_told(&count))
            fail_msg("bit %zu of byte %zu: %zu samples and not a word", bit % 8, bit / 8, count);
        assert_int_equal(pwrite(file, &whole[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    assert_int_equal(read_back(&damaged), SAMPLES);
    size_t seen[SAMPLES + 1] = {0};
    for (size_t cut = bytes; cut-- > 0;) {
        assert_int_equal(ftruncate(file, (off_t)cut), 0);
        if (!is_told(&count))
            fail_msg("cut after %zu of %zu bytes: %zu samples and not a word", cut, bytes, count);
        seen[count]++;
    }
    for (size_t i = 0; i <= SAMPLES; i++)
        assert_int_equal(seen[i] > 0, i % PER_CHUNK == 0);
    close(file);
    free(whole);
}

/* What follows a clean end is damage, too. */
static void test_more_after_the_end(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_text file = {0};
    char *whole;
    size_t bytes, damaged;
    record(4, 2);
    assert_ok(erg_file_read(path, 0, &whole, &bytes, &err), &err);
    erg_text_add_bytes(&file, whole, bytes);
    erg_text_add(&file, "?");
    assert_ok(erg_file_write(path, file.data, file.count, &err), &err);
    assert_int_equal(read_back(&damaged), 4);
    assert_int_equal(damaged, 1);
    erg_text_release(&file);
    free(whole);
}

static void test_not_a_recording(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_recording *recording;
    assert_fails(erg_recording_open(&recording, path, &err), &err, "No such file");
    assert_ok(erg_file_write(path, "a,b\n1,2\n", 8, &err), &err);
    assert_fails(erg_recording_open(&recording, path, &err), &err, "does not begin like one");
    assert_fails(erg_recording_open(&recording, folder, &err), &err, "Is a directory");
    assert_ok(erg_file_write(path, "ERGONREC\2\0\0\0????", 16, &err), &err);
    assert_fails(erg_recording_open(&recording, path, &err), &err, "header is missing");
}

/* The first version had no number: the kind of the header's chunk, 1, lay in its place. */
static void test_another_version(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_recording *recording;
    assert_ok(erg_file_write(path, "ERGONREC\1\0\0\0\2\0\0\0", 16, &err), &err);
    assert_fails(erg_recording_open(&recording, path, &err), &err,
                 "it has version 1 of the format, but this ergon reads version 2");
}

/* kill -9 in the middle: all chunks that reached the file are read, so at most one is lost. */
static void test_killed(void **state)
{
    (void)state;
    size_t *written =
        mmap(NULL, sizeof *written, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(written != MAP_FAILED);
    *written = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct erg_recorder *recorder;
        struct stat before, after;
        if (erg_recorder_open(&recorder, path, gpus, 5000000, NULL) != 0)
            _exit(1);
        stat(path, &before);
        for (size_t i = 0;; i++) {
            struct erg_sampler_item item = make_item(i);
            if (erg_recorder_add(recorder, &item, NULL) != 0)
                _exit(1);
            stat(path, &after);
            if (after.st_size != before.st_size)
                *(volatile size_t *)written = i + 1;
            before = after;
        }
    }
    while (*(volatile size_t *)written < 300)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    size_t damaged, count = read_back(&damaged);
    assert_true(count >= *(volatile size_t *)written);
    munmap(written, sizeof *written);
}

/* No room for the file to grow: an error that stays, and what was written before is kept. */
static void test_a_full_disk(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct erg_error err = {0}, again = {0};
        struct erg_recorder *recorder;
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){8192, 8192});
        if (erg_recorder_open(&recorder, path, gpus, INT64_C(1000000000000), &err) != 0)
            _exit(1);
        int result = 0;
        for (size_t i = 0; i < 1000 && result == 0; i++) {
            struct erg_sampler_item item = make_item(i);
            result = erg_recorder_add(recorder, &item, &err);
            if (i % 5 == 4 && result == 0)
                result = erg_recorder_flush(recorder, &err);
        }
        bool said = result != 0 && strstr(err.message, path) && strstr(err.message, "large");
        bool stays = erg_recorder_close(recorder, &again) != 0;
        _exit(said && stays ? 0 : 2);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    size_t damaged, count = read_back(&damaged);
    assert_true(count > 0 && count % 5 == 0);
}

static void export_to(enum erg_recording_format format, const char *name, char *to, size_t capacity)
{
    struct erg_error err = {0};
    snprintf(to, capacity, "%s/%s", folder, name);
    assert_ok(erg_recording_export(path, format, to, &err), &err);
}

static void test_exports(void **state)
{
    (void)state;
    struct erg_error err = {0};
    char to[160];
    record(60, 20);
    export_to(ERG_EXPORT_CSV, "a.csv", to, sizeof to);
    struct erg_csv *csv;
    assert_ok(erg_csv_load(&csv, to, &err), &err);
    assert_int_equal(erg_csv_rows(csv), 60);
    size_t energy, power, reasons, uuid, mono, stamp;
    assert_ok(erg_csv_require(csv, "t_power_inst_ns", &stamp, &err), &err);
    assert_ok(erg_csv_require(csv, "t_mono_ns", &mono, &err), &err);
    assert_ok(erg_csv_require(csv, "gpu_uuid", &uuid, &err), &err);
    assert_ok(erg_csv_require(csv, "energy_mj", &energy, &err), &err);
    assert_ok(erg_csv_require(csv, "power_inst_mw", &power, &err), &err);
    assert_ok(erg_csv_require(csv, "reasons_hex", &reasons, &err), &err);
    for (size_t i = 0; i < 60; i++) {
        struct erg_sampler_item item = make_item(i);
        char expected[32] = "";
        if (erg_gpu_has(&item.sample, ERG_METRIC_ENERGY))
            snprintf(expected, sizeof expected, "%lld",
                     (long long)item.sample.readings[ERG_METRIC_ENERGY].value);
        assert_string_equal(erg_csv_text(csv, i, energy), expected);
        expected[0] = '\0'; /* its own time, not the sample's */
        if (erg_gpu_has(&item.sample, ERG_METRIC_POWER_INSTANT))
            snprintf(expected, sizeof expected, "%lld",
                     (long long)item.sample.readings[ERG_METRIC_POWER_INSTANT].time_ns);
        assert_string_equal(erg_csv_text(csv, i, stamp), expected);
        assert_string_equal(erg_csv_text(csv, i, uuid), erg_gpus_info(gpus, i % 3)->uuid);
        if (erg_gpu_has(&item.sample, ERG_METRIC_REASONS))
            assert_memory_equal(erg_csv_text(csv, i, reasons), "0x", 2);
    }
    erg_csv_free(csv);

    char *text, *rest, *line;
    export_to(ERG_EXPORT_JSONL, "a.jsonl", to, sizeof to);
    assert_ok(erg_file_read(to, 0, &text, NULL, &err), &err);
    size_t lines = 0;
    rest = text;
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        json_t *object;
        struct erg_sampler_item item = make_item(lines++);
        assert_ok(erg_json_parse(&object, "line", line, strlen(line), &err), &err);
        bool has = erg_gpu_has(&item.sample, ERG_METRIC_TEMPERATURE);
        json_t *value = json_object_get(object, "temp_gpu_c");
        assert_int_equal(value != NULL, has);
        if (has)
            assert_int_equal(json_integer_value(value),
                             item.sample.readings[ERG_METRIC_TEMPERATURE].value);
        value = json_object_get(object, "t_energy_ns");
        has = erg_gpu_has(&item.sample, ERG_METRIC_ENERGY);
        assert_int_equal(value != NULL, has);
        if (has)
            assert_int_equal(json_integer_value(value),
                             item.sample.readings[ERG_METRIC_ENERGY].time_ns);
        json_decref(object);
    }
    assert_int_equal(lines, 60);
    free(text);
}

/* Names that are no good in CSV and JSON, and no UTF-8, are whole in all exports. */
static void test_hostile_names(void **state)
{
    (void)state;
    static const char hostile[] = "u\",\n,x\\\x1b\xff=1+1";
    static const char expected[] = "u\",\n,x\\\x1b\xEF\xBF\xBD=1+1";
    struct erg_error err = {0};
    struct erg_open_gpu items[2];
    struct erg_gpus named = observed_gpus(items, 2);
    struct erg_recorder *recorder;
    char to[160];
    for (size_t i = 0; i < 2; i++) {
        snprintf(items[i].info.uuid, sizeof items[i].info.uuid, "%s", hostile);
        snprintf(items[i].info.name, sizeof items[i].info.name, "%s", hostile);
    }
    assert_ok(erg_recorder_open(&recorder, path, &named, 0, &err), &err);
    for (size_t i = 0; i < 2; i++) {
        struct erg_sampler_item item = observed_sample(i, 1000);
        observe_value(&item, ERG_METRIC_POWER_INSTANT, 250000);
        assert_ok(erg_recorder_add(recorder, &item, &err), &err);
    }
    assert_ok(erg_recorder_close(recorder, &err), &err);
    export_to(ERG_EXPORT_CSV, "a.csv", to, sizeof to);
    struct erg_csv *csv;
    size_t uuid;
    assert_ok(erg_csv_load(&csv, to, &err), &err);
    assert_int_equal(erg_csv_rows(csv), 2);
    assert_ok(erg_csv_require(csv, "gpu_uuid", &uuid, &err), &err);
    assert_string_equal(erg_csv_text(csv, 1, uuid), expected);
    erg_csv_free(csv);
    char *text;
    json_t *object;
    size_t length;
    export_to(ERG_EXPORT_JSONL, "a.jsonl", to, sizeof to);
    assert_ok(erg_file_read(to, 0, &text, &length, &err), &err);
    size_t first = strcspn(text, "\n");
    assert_int_equal(length, 2 * (first + 1)); /* alike but for local_idx */
    assert_ok(erg_json_parse(&object, "line", text, first, &err), &err);
    assert_string_equal(json_string_value(json_object_get(object, "gpu_uuid")), expected);
    json_decref(object);
    free(text);
    export_to(ERG_EXPORT_CHROME, "a.json", to, sizeof to);
    assert_ok(load_json(&object, to, &err), &err);
    json_decref(object);
}

/* Byte counters become rates, from one reading to the next. */
static void test_trace(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_recorder *recorder;
    char to[160];
    assert_ok(erg_recorder_open(&recorder, path, gpus, 0, &err), &err);
    for (int64_t i = 0; i < 3; i++) {
        struct erg_sampler_item item = {.gpu = 1, .scheduled_ns = i * 100000000};
        item.sample.start_ns = item.sample.end_ns = item.scheduled_ns;
        item.sample.valid = 1u << ERG_METRIC_POWER_INSTANT | 1u << ERG_METRIC_PCIE_TX;
        item.sample.readings[ERG_METRIC_POWER_INSTANT] =
            (struct erg_reading){250000, item.scheduled_ns};
        item.sample.readings[ERG_METRIC_PCIE_TX] =
            (struct erg_reading){i * 500000000, item.scheduled_ns};
        assert_ok(erg_recorder_add(recorder, &item, &err), &err);
    }
    assert_ok(erg_recorder_close(recorder, &err), &err);
    export_to(ERG_EXPORT_CHROME, "a.json", to, sizeof to);
    json_t *root, *event;
    size_t i, powers = 0, rates = 0;
    assert_ok(load_json(&root, to, &err), &err);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        double value = json_number_value(json_object_get(json_object_get(event, "args"), "value"));
        if (strcmp(name, "power W") == 0) {
            assert_near(value, 250, 1e-9);
            powers++;
        } else if (strcmp(name, "PCIe sent GB/s") == 0) {
            assert_near(value, 5, 1e-9);
            rates++;
        }
    }
    assert_int_equal(powers, 3);
    assert_int_equal(rates, 2);
    json_decref(root);
}

/* Equal samples make equal files, whenever they are written. */
static void test_virtual_time(void **state)
{
    (void)state;
    enum { ITEMS = 200 };
    struct erg_gpu_info infos[3];
    char other[160], *bytes[2];
    size_t sizes[2];
    struct erg_error err;
    snprintf(other, sizeof other, "%s/b.rec", folder);
    for (size_t g = 0; g < 3; g++)
        infos[g] = *erg_gpus_info(gpus, g);
    for (int turn = 0; turn < 2; turn++) {
        const char *name = turn ? other : path;
        struct erg_recorder *recorder;
        unlink(name);
        assert_ok(erg_recorder_open_virtual(&recorder, name, "nowhere", infos, 3, &err), &err);
        for (size_t i = 0; i < ITEMS; i++) {
            struct erg_sampler_item item = make_item(i);
            assert_ok(erg_recorder_add(recorder, &item, &err), &err);
        }
        assert_ok(erg_recorder_close(recorder, &err), &err);
        assert_ok(erg_file_read(name, 0, &bytes[turn], &sizes[turn], &err), &err);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    struct erg_recording *recording;
    struct erg_sampler_item item;
    int64_t at_ns;
    assert_ok(erg_recording_open(&recording, path, &err), &err);
    assert_true(erg_recording_is_virtual(recording));
    assert_string_equal(erg_recording_node(recording), "nowhere");
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(erg_recording_next(recording, &item, &at_ns, &err), 1);
        check_item(&item, i);
        assert_int_equal(at_ns, item.sample.start_ns);
    }
    assert_int_equal(erg_recording_next(recording, &item, &at_ns, &err), 0);
    assert_true(erg_recording_was_closed(recording));
    erg_recording_close(recording);
    free(bytes[0]);
    free(bytes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_virtual_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_more_after_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_a_recording, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_version, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_exports, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hostile_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trace, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
