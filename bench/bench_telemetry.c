/*
 * The sampler: how late it reads (p99 below 2 ms wanted at 50 ms), what it costs (below 0.3 % of a
 * core per GPU), what a recording takes, and how long each class of metrics takes to read.
 *
 *     bench_telemetry         8 GPUs of the fake NVML: the cost of ergon itself
 *     bench_telemetry real    the GPUs of this machine: with the driver's cost
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "base/clock.h"
#include "base/memory.h"
#include "telemetry/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const double run_s = 10;

struct lateness {
    double *items; /* ms */
    size_t count, capacity;
};

struct world {
    struct lateness late;
    struct erg_recorder *recorder;
};

static void put(void *context, const struct erg_sampler_item *item)
{
    struct world *world = context;
    double late_ms = 1e-6 * (double)(item->sample.start_ns - item->scheduled_ns);
    ERG_PUSH(&world->late, items, late_ms);
    erg_recorder_add(world->recorder, item, NULL);
}

static void idle(void *context)
{
    erg_recorder_tick(((struct world *)context)->recorder, NULL);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double process_cpu_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void pause_s(double duration_s)
{
    nanosleep(&(struct timespec){(time_t)duration_s, 0}, NULL);
}

static void bench_reads(struct erg_gpus *gpus)
{
    static const char *const names[] = {"fast", "medium", "slow"};
    enum { READS = 51 };
    struct erg_gpu_sample sample;
    for (int cost = 0; cost < ERG_COSTS; cost++) {
        double took_ms[READS];
        uint64_t metrics = erg_gpu_metrics(gpus, 0, (enum erg_metric_cost)cost);
        for (int i = 0; i < READS; i++) {
            erg_gpu_read(gpus, 0, metrics, &sample);
            took_ms[i] = 1e-6 * (double)(sample.end_ns - sample.start_ns);
        }
        qsort(took_ms, READS, sizeof *took_ms, compare);
        printf("  %-6s metrics: %2d of %2d valid, %7.3f ms median, %7.3f ms most\n", names[cost],
               __builtin_popcountll(sample.valid), __builtin_popcountll(metrics),
               took_ms[READS / 2], took_ms[READS - 1]);
    }
}

static int bench_sampler(struct erg_gpus *gpus, const char *folder, bool closely,
                         struct erg_error *err)
{
    char path[256];
    struct world world = {0};
    struct erg_sampler *sampler;
    struct erg_sampler_options options = erg_sampler_options_default();
    size_t count = erg_gpus_count(gpus);
    snprintf(path, sizeof path, "%s/%d.rec", folder, closely);
    double cpu_s = process_cpu_s();
    int64_t start_ns = erg_now_ns();
    if (erg_recorder_open(&world.recorder, path, gpus, 0, err) != 0 ||
        erg_sampler_start(&sampler, gpus, &options, &(struct erg_sampler_sink){put, idle, &world},
                          err) != 0)
        return -1;
    if (closely)
        erg_sampler_look_closely(sampler, start_ns + (int64_t)(run_s * 1e9));
    pause_s(run_s);
    uint64_t missed = 0, dropped = 0;
    double lanes_cpu_s = 0;
    for (size_t i = 0; i < count; i++) {
        struct erg_sampler_stats stats;
        erg_sampler_stats(sampler, i, &stats);
        missed += stats.missed;
        dropped += stats.dropped;
        lanes_cpu_s += 1e-9 * (double)stats.cpu_ns;
    }
    erg_sampler_stop(sampler);
    double took_s = 1e-9 * (double)(erg_now_ns() - start_ns);
    cpu_s = process_cpu_s() - cpu_s;
    if (erg_recorder_close(world.recorder, err) != 0)
        return -1;
    struct stat info = {0};
    stat(path, &info);
    size_t samples = world.late.count;
    qsort(world.late.items, samples, sizeof *world.late.items, compare);
    printf("  %s: %zu samples, late %.3f ms median, %.3f ms p99, %.3f ms most; %llu missed, %llu "
           "dropped\n",
           closely ? "close looks, 5 ms" : "50 ms", samples, world.late.items[samples / 2],
           world.late.items[samples * 99 / 100], world.late.items[samples - 1],
           (unsigned long long)missed, (unsigned long long)dropped);
    printf("    CPU: %.3f %% of a core per GPU for reading, %.3f %% per GPU with the writer; %.0f "
           "bytes a sample\n",
           100 * lanes_cpu_s / took_s / (double)count, 100 * cpu_s / took_s / (double)count,
           (double)info.st_size / (double)samples);
    free(world.late.items);
    unlink(path);
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_gpus *gpus;
    char folder[] = "/tmp/ergon-bench-XXXXXX";
    if (!mkdtemp(folder))
        return 1;
    if (argc < 2 || strcmp(argv[1], "real") != 0) {
        char script[64];
        snprintf(script, sizeof script, "%s/script", folder);
        FILE *file = fopen(script, "w");
        if (!file)
            return 1;
        fprintf(file, "gpus 8\ngpu * power 0=500 1=700 2=300\ngpu * cycle 2\ngpu * counter 0.092\n"
                      "gpu * nvlink 1e11 1e11 18 together\n");
        fclose(file);
        setenv("ERGON_FAKE_NVML", script, 1);
        setenv("ERGON_NVML", ERGON_BENCH_FAKE_NVML, 1);
    }
    int result = erg_gpus_open(&gpus, "all", &err);
    if (result == 0) {
        printf("%zu GPUs, %s\n", erg_gpus_count(gpus), erg_gpus_info(gpus, 0)->name);
        bench_reads(gpus);
        result = bench_sampler(gpus, folder, false, &err);
        if (result == 0)
            result = bench_sampler(gpus, folder, true, &err);
        erg_gpus_close(gpus);
    }
    if (result != 0)
        fprintf(stderr, "bench_telemetry: %s\n", err.message);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0 || result != 0;
}
