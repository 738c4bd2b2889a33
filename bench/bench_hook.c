/*
 * What a hook costs the trainer's thread, on the fake NVML: begin and end of a pass, one after the
 * other and with passes of 2 ms between them, whose caches are cold and among which clocks change;
 * and a step's begin and end; how much longer a step is. No clock of a real GPU is touched.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "base/clock.h"
#include "base/memory.h"
#include "ergon/hook.h"
#include "fake_gpu.h"
#include "iteration/iteration.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STAGES = 2, MICROBATCHES = 8, PER_STAGE = 2 * MICROBATCHES };

struct times {
    int64_t *items;
    size_t count, capacity;
};

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void print_times(struct times *times, const char *what)
{
    const size_t count = times->count;
    qsort(times->items, count, sizeof *times->items, by_size);
    printf("%-34s p50 %7.0f ns, p99 %7.0f ns, worst %9.0f ns (%zu)\n", what,
           (double)times->items[count / 2], (double)times->items[count * 99 / 100],
           (double)times->items[count - 1], count);
    free(times->items);
    *times = (struct times){0};
}

static int run_steps(struct erg_hook *hook, int steps, int64_t pass_ns, struct erg_error *err)
{
    struct erg_instruction order[PER_STAGE];
    struct times passes = {0}, ends = {0};
    const struct erg_pass_order passes_of = erg_pass_order_of(STAGES, 1, MICROBATCHES);
    erg_schedule_stage(order, 0, &passes_of);
    for (int step = 0; step < steps; step++) {
        const int64_t before_ns = erg_now_ns();
        if (erg_hook_step_begin(hook, err) != 0)
            return -1;
        int64_t rest_ns = erg_now_ns() - before_ns;
        for (int i = 0; i < PER_STAGE; i++) {
            const int64_t begin_ns = erg_now_ns();
            if (erg_hook_begin(hook, order[i].direction, 0, (int)order[i].microbatch, NULL, err))
                return -1;
            const int64_t begun_ns = erg_now_ns();
            erg_sleep_ns(pass_ns);
            const int64_t end_ns = erg_now_ns();
            if (erg_hook_end(hook, NULL, err) != 0)
                return -1;
            ERG_PUSH(&passes, items, begun_ns - begin_ns + erg_now_ns() - end_ns);
        }
        const int64_t last_ns = erg_now_ns();
        if (erg_hook_step_end(hook, err) != 0)
            return -1;
        rest_ns += erg_now_ns() - last_ns;
        ERG_PUSH(&ends, items, rest_ns);
    }
    print_times(&passes, pass_ns ? "begin + end, passes of 2 ms" : "begin + end, back to back");
    print_times(&ends, "step begin + end");
    return 0;
}

/* ---- a step's length with a hook and without ---- */

static volatile double sink;

static void work(long turns)
{
    double value = sink;
    for (long i = 0; i < turns; i++)
        value = value * 0.999999 + 1e-6;
    sink = value;
}

/* The turns of a pass of 2 ms. */
static long turns_of_a_pass(void)
{
    int64_t least_ns = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        const int64_t begin_ns = erg_now_ns();
        work(1000000);
        const int64_t taken_ns = erg_now_ns() - begin_ns;
        least_ns = taken_ns < least_ns ? taken_ns : least_ns;
    }
    return (long)(2000000 * 1e6 / (double)least_ns);
}

struct step_time {
    double taken_s, cpu_s; /* the latter of the trainer's thread, whoever else needs the core */
};

/* `hook` NULL: nobody follows. */
static int time_step(struct erg_hook *hook, long turns, struct step_time *time,
                     struct erg_error *err)
{
    struct erg_instruction order[PER_STAGE];
    const struct erg_pass_order passes_of = erg_pass_order_of(STAGES, 1, MICROBATCHES);
    erg_schedule_stage(order, 0, &passes_of);
    const int64_t begin_ns = erg_now_ns();
    const double cpu_s = erg_cpu_seconds();
    if (hook && erg_hook_step_begin(hook, err) != 0)
        return -1;
    for (int i = 0; i < PER_STAGE; i++) {
        if (hook &&
            erg_hook_begin(hook, order[i].direction, 0, (int)order[i].microbatch, NULL, err) != 0)
            return -1;
        work(turns);
        if (hook && erg_hook_end(hook, NULL, err) != 0)
            return -1;
    }
    if (hook && erg_hook_step_end(hook, err) != 0)
        return -1;
    *time = (struct step_time){1e-9 * (double)(erg_now_ns() - begin_ns), erg_cpu_seconds() - cpu_s};
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void print_ratios(const char *what, double *ratios, size_t count)
{
    qsort(ratios, count, sizeof *ratios, by_value);
    printf("a step of %d passes of 2 ms of work: with the hook %+.2f %% %s (quartiles %+.2f and "
           "%+.2f, %zu pairs)\n",
           (int)PER_STAGE, 100 * (ratios[count / 2] - 1), what, 100 * (ratios[count / 4] - 1),
           100 * (ratios[count * 3 / 4] - 1), count);
}

static int compare_steps(struct erg_hook *hook, struct erg_error *err)
{
    enum { PAIRS = 200 };
    const long turns = turns_of_a_pass();
    double taken[PAIRS], cpu[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        struct step_time with, plain;
        const bool first = i % 2; /* in turn */
        if (time_step(first ? hook : NULL, turns, first ? &with : &plain, err) ||
            time_step(first ? NULL : hook, turns, first ? &plain : &with, err))
            return -1;
        taken[i] = with.taken_s / plain.taken_s;
        cpu[i] = with.cpu_s / plain.cpu_s;
    }
    print_ratios("of its time", taken, PAIRS);
    print_ratios("of its thread's CPU time", cpu, PAIRS);
    return 0;
}

static double process_cpu_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static int bench(struct erg_error *err)
{
    struct erg_hook *hook;
    struct erg_hook_options options;
    struct erg_hook_stats stats = {.size = sizeof stats};
    erg_hook_defaults(&options);
    options.plan = ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json";
    options.point = 2;
    options.gpu = "0";
    if (erg_hook_open(&hook, &options, err) != 0)
        return -1;
    int result = run_steps(hook, 5000, 0, err);
    const double cpu_s = process_cpu_s();
    const int64_t begin_ns = erg_now_ns();
    if (result == 0)
        result = run_steps(hook, 100, 2000000, err);
    const double used_s = process_cpu_s() - cpu_s;
    const double taken_s = 1e-9 * (double)(erg_now_ns() - begin_ns);
    if (result == 0)
        result = compare_steps(hook, err);
    erg_hook_stats(hook, &stats);
    printf("%.2f %% of a core with the clock thread, %d changes of clock in all\n",
           100 * used_s / taken_s, (int)stats.clock_changes);
    return erg_hook_close(hook, result ? NULL : err) != 0 ? -1 : result;
}

int main(void)
{
    return run_on_fake_gpu("bench_hook", bench);
}
