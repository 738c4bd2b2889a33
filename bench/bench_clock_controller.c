/*
 * What setting clocks from instruction to instruction costs, on the fake NVML: an ask for the
 * thread that queues work, and of a run of instructions of 2 ms how late clocks are set, and how
 * much of a core the controller takes. No clock of a real GPU is touched.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "base/clock.h"
#include "base/memory.h"
#include "fake_gpu.h"
#include "train/engine/clock_controller.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ASKS = 100000, INSTRUCTIONS = 1000 };

static uint64_t finished;

static double process_cpu_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* Mean of many asks from `due` on, with two clocks by turns or one. */
static int time_asks(struct erg_clock_controller *controller, const char *what, uint64_t due,
                     int other_mhz, struct erg_error *err)
{
    int64_t begin_ns = erg_now_ns();
    for (uint64_t i = 0; i < ASKS; i++)
        if (erg_clock_controller_ask(controller, i % 2 ? 1200 : other_mhz, due + i, err) != 0)
            return -1;
    printf("ask, %-32s %7.0f ns\n", what, (double)(erg_now_ns() - begin_ns) / ASKS);
    return 0;
}

/* Mean of asks each of which wakes the thread, which sleeps. */
static int time_waking(struct erg_clock_controller *controller, struct erg_error *err)
{
    const int count = 200;
    int64_t total_ns = 0;
    for (int i = 0; i < count; i++) {
        erg_sleep_ns(3000000);
        int64_t begin_ns = erg_now_ns();
        if (erg_clock_controller_ask(controller, i % 2 ? 1200 : 900, 0, err) != 0)
            return -1;
        total_ns += erg_now_ns() - begin_ns;
    }
    printf("ask, %-32s %7.0f ns\n", "waking the thread", (double)total_ns / count);
    return 0;
}

static int run_instructions(struct erg_clock_controller *controller, struct erg_error *err)
{
    struct erg_clock_numbers before, after;
    double cpu_s = process_cpu_s();
    int64_t begin_ns = erg_now_ns();
    erg_clock_controller_read(controller, &before);
    for (uint64_t i = 1; i <= INSTRUCTIONS; i++)
        if (erg_clock_controller_ask(controller, i % 2 ? 1500 : 900, i, err) != 0)
            return -1;
    for (uint64_t i = 1; i <= INSTRUCTIONS; i++) {
        erg_sleep_ns(2000000);
        __atomic_add_fetch(&finished, 1, __ATOMIC_RELEASE);
    }
    erg_sleep_ns(10000000);
    double taken_s = 1e-9 * (double)(erg_now_ns() - begin_ns);
    erg_clock_controller_read(controller, &after);
    printf("%d instructions: %" PRIu64 " set, %" PRIu64 " superseded, %.2f %% of a core\n",
           INSTRUCTIONS, after.set - before.set, after.superseded - before.superseded,
           100 * (process_cpu_s() - cpu_s) / taken_s);
    printf("all calls of the driver: mean %.3f ms, worst %.3f ms\n", 1e3 * after.call_mean_s,
           1e3 * after.call_worst_s);
    printf("at most so late: mean %.3f ms, worst %.3f ms\n", 1e3 * after.late_mean_s,
           1e3 * after.late_worst_s);
    return 0;
}

static int bench(struct erg_error *err)
{
    struct erg_clock_controller_options options = {.finished = &finished, .required = true};
    struct erg_clock_controller *controller;
    if (erg_gpus_open(&options.gpus, "all", err) != 0)
        return -1;
    int result = erg_clock_controller_open(&controller, &options, err);
    if (result == 0) {
        result =
            time_waking(controller, err) || run_instructions(controller, err) ||
                    time_asks(controller, "the clock asked for before", INSTRUCTIONS, 1200, err) ||
                    time_asks(controller, "while others wait", 2 * ASKS, 900, err)
                ? -1
                : 0;
        if (erg_clock_controller_close(controller, result ? NULL : err) != 0)
            result = -1;
    }
    erg_gpus_close(options.gpus);
    return result;
}

int main(void)
{
    return run_on_fake_gpu("bench_clock_controller", bench);
}
