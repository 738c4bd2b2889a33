/* Clocks of measured points: asked for by name, held while a point is trained, given back. The
 * program that trains is a script, and the GPUs are those of the fake NVML. */
#include "fake_clocks.h"
#include "folder.h"
#include "study_point.h"

#include "api/measure_point.h"
#include "io/file.h"

#include <sys/stat.h>

/* Writes the log of a run whose steps take 0.1 s and 30 J, at the clock that is in the file
 * `clock`, and the line of the latest lock at each run's start. */
static const char trainer[] =
    "#!/bin/sh\n"
    "while [ $# -gt 0 ]; do\n"
    "  case $1 in train) job=$2 ;; --output) run=$2 ;; esac\n"
    "  shift\n"
    "done\n"
    "[ -f FOLDER/fails ] && exit 1\n"
    "mkdir -p \"$run\"\n"
    "cat LOG >>FOLDER/seen\n"
    "echo end >>FOLDER/seen\n"
    "clock=$(cat FOLDER/clock)\n"
    "steps=$(sed -n 's/^  updates: //p' \"$job\")\n"
    "every=$(sed -n 's/^  log_every: //p' \"$job\")\n"
    "step=$every\n"
    "while [ $step -le $steps ]; do\n"
    "  echo '{\"step\": '$step', \"window_steps\": '$every', \"step_ms\": {\"mean\": 100},"
    " \"energy_j\": '$((30 * every))', \"bubble_ms\": 0, \"time_unix_s\": '$step',"
    " \"power_w\": [150, 150], \"clock_mhz\": ['$clock', '$clock'],"
    " \"temperature_c\": [50, 50], \"exposed_ms\": {}}' >>\"$run/metrics.jsonl\"\n"
    "  step=$((step + every))\n"
    "done\n";

struct bench {
    struct world world;
    struct test_study study;
    struct erg_measure_context context;
    char program[200];
};

static void replace(struct erg_text *out, const char *text, const char *log)
{
    for (const char *at = text; *at;) {
        if (!strncmp(at, "FOLDER", 6) || !strncmp(at, "LOG", 3)) {
            erg_text_add(out, *at == 'F' ? folder : log);
            at += *at == 'F' ? 6 : 3;
        } else {
            erg_text_printf(out, "%c", *at++);
        }
    }
}

/* A point of two ranks on one machine that asks for a clock. */
static void bench_open(struct bench *bench, double clock_mhz, const char *commands)
{
    struct erg_text text = {0};
    *bench = (struct bench){.world = world_begin(commands)};
    replace(&text, trainer, bench->world.log);
    write_text("trainer", text.data);
    erg_text_release(&text);
    write_text("clock", "1200\n");
    snprintf(bench->program, sizeof bench->program, "%s", in_folder("trainer"));
    assert_int_equal(chmod(bench->program, 0755), 0);
    study_open(&bench->study, "llama-3.2-1b", "t=1,p=1", 1024, 1, ERG_RECOMPUTE_NONE);
    bench->study.cluster.nodes = 1;
    bench->study.cluster.gpu = (char *)(uintptr_t) "H200-SXM";
    bench->study.cluster.adapters_per_node = 0;
    struct erg_study_measurement *measuring = &bench->study.measuring;
    measuring->device = "cuda";
    measuring->settle_s = 1;
    measuring->window_s = 0.5;
    measuring->settle_most_iterations = 10;
    measuring->settle_k_per_min = 0.5;
    struct erg_study_point *point = &bench->study.point;
    point->clock_mhz = clock_mhz;
    point->batch = 8;
    point->layout.data = 2;
    point->layout.microbatches = 4;
    snprintf(point->id, sizeof point->id, "0123456789abcdef");
    mkdir(in_folder("runs"), 0700); /* of an earlier test, too */
    bench->context = (struct erg_measure_context){.program = bench->program, .folder = folder};
}

static void bench_close(struct bench *bench)
{
    study_close(&bench->study);
    world_end(&bench->world);
}

static int measure(struct bench *bench, struct erg_study_result *result, struct erg_error *err)
{
    unlink(in_folder("seen"));
    erg_study_result_init(result);
    return erg_measure_point(&bench->context, &bench->study.point, result, &bench->study.arena,
                             err);
}

/* The latest lines about the clocks of both GPUs, as each run saw them. */
static void check_seen(const char *expected, int runs)
{
    char *seen;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("seen"), 0, &seen, NULL, &err), &err);
    int count = 0;
    char *start = seen;
    for (char *end; (end = strstr(start, "end\n")); start = end + 4) {
        *end = '\0';
        for (int gpu = 0; gpu < 2; gpu++) {
            char part[32], *last = NULL;
            snprintf(part, sizeof part, " %s %d ", "set", gpu);
            for (char *at = start; (at = strstr(at, " ")); at++)
                if (!strncmp(at, part, strlen(part)))
                    last = at;
            assert_non_null(last);
            assert_int_equal(strncmp(last + strlen(part), expected, strlen(expected)), 0);
        }
        count++;
    }
    assert_int_equal(count, runs);
    free(seen);
}

static void clocks_need_the_option(void **state)
{
    (void)state;
    struct bench bench;
    struct erg_study_result result;
    struct erg_error err;
    bench_open(&bench, 1200, "");
    assert_fails(measure(&bench, &result, &err), &err,
                 "asks for 1200 MHz, and clocks are not changed unasked; expected --lock-clocks");
    assert_int_equal(latest_of(&bench.world, 0).line, 0);
    bench.study.measuring.device = "host";
    bench.context.lock_clocks = true;
    assert_fails(measure(&bench, &result, &err), &err, "without clocks of CPUs");
    bench_close(&bench);
}

/* Held during both runs, on the GPUs of both ranks, and free afterwards. */
static void clocks_are_held_and_given_back(void **state)
{
    (void)state;
    struct bench bench;
    struct erg_study_result result;
    struct erg_error err;
    bench_open(&bench, 1200, "");
    bench.context.lock_clocks = true;
    assert_ok(measure(&bench, &result, &err), &err);
    check_seen("1200 1200", 2);
    for (int gpu = 0; gpu < 2; gpu++)
        assert_int_equal(lock_of(&bench.world, gpu), 0);
    assert_close(result.metrics.time_s, 0.1, 1e-9);
    assert_close(result.metrics.energy_j, 30, 1e-9);
    assert_close(result.metrics.clock_mhz, 1200, 1e-9);
    assert_int_equal(result.flag_count, 0);
    /* GPUs that are slower than their lock. */
    write_text("clock", "1000\n");
    assert_ok(measure(&bench, &result, &err), &err);
    assert_int_equal(result.flag_count, 1);
    assert_string_equal(result.flags[0], "locked at 1200 MHz, the GPUs ran at 1000 MHz");
    bench_close(&bench);
}

static void failures_give_clocks_back(void **state)
{
    (void)state;
    struct bench bench;
    struct erg_study_result result;
    struct erg_error err;
    bench_open(&bench, 1200, "");
    bench.context.lock_clocks = true;
    write_text("fails", "");
    assert_fails(measure(&bench, &result, &err), &err, "training it");
    unlink(in_folder("fails"));
    assert_true(latest_of(&bench.world, 0).line > 0);
    for (int gpu = 0; gpu < 2; gpu++)
        assert_int_equal(lock_of(&bench.world, gpu), 0);
    bench.study.point.clock_mhz = 1213;
    assert_fails(measure(&bench, &result, &err), &err, "it has no such clock");
    for (int gpu = 0; gpu < 2; gpu++)
        assert_int_equal(lock_of(&bench.world, gpu), 0);
    bench_close(&bench);
    bench_open(&bench, 1200, "gpu 1 nolocks\n");
    bench.context.lock_clocks = true;
    assert_fails(measure(&bench, &result, &err), &err, "GPU 1");
    assert_int_equal(lock_of(&bench.world, 0), 0);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_need_the_option),
        cmocka_unit_test(clocks_are_held_and_given_back),
        cmocka_unit_test(failures_give_clocks_back),
    };
    setenv("ERGON_DAEMON", "none", 1);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
