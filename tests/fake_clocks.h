/*
 * What tests of clock control begin with: a fake NVML of some GPUs that other processes see too,
 * and the log of all locks, whoever asked for them.
 */
#ifndef ERGON_TESTS_FAKE_CLOCKS_H
#define ERGON_TESTS_FAKE_CLOCKS_H

#include "check.h"
#include "telemetry/clocks.h"

#include <stdbool.h>
#include <time.h>

static inline void pause_s(double duration_s)
{
    nanosleep(&(struct timespec){(time_t)duration_s, (long)(fmod(duration_s, 1) * 1e9)}, NULL);
}

struct world {
    char folder[64], script[96], log[96];
};

static inline struct world world_of(int gpus, const char *commands)
{
    struct world world = {.folder = "/tmp/ergon-clocks-XXXXXX"};
    assert_non_null(mkdtemp(world.folder));
    snprintf(world.script, sizeof world.script, "%s/script", world.folder);
    snprintf(world.log, sizeof world.log, "%s/log", world.folder);
    FILE *file = fopen(world.script, "w");
    assert_non_null(file);
    /* The name of the folder is nobody else's, nor are then the GPUs. */
    fprintf(file, "gpus %d\ntail %s\nlog %s\n%s", gpus, world.folder + strlen(world.folder) - 6,
            world.log, commands);
    fclose(file);
    setenv("ERGON_NVML", ERGON_TEST_FAKE_NVML, 1);
    setenv("ERGON_FAKE_NVML", world.script, 1);
    return world;
}

static inline struct world world_begin(const char *commands)
{
    return world_of(2, commands);
}

static inline void world_end(const struct world *world)
{
    unlink(world->script);
    unlink(world->log);
    assert_int_equal(rmdir(world->folder), 0);
}

/* The latest line about the clock of a GPU, as "set 1200" or "reset 0", or about its power limit
 * (mW); the time is that line's number. */
struct latest {
    int line, clock_mhz;
    long process;
};

static inline struct latest latest_line(const struct world *world, int gpu, bool limits)
{
    struct latest latest = {0};
    FILE *file = fopen(world->log, "r");
    char text[128], what[16];
    for (int line = 1; file && fgets(text, sizeof text, file); line++) {
        long process;
        int index, low, high;
        assert_int_equal(sscanf(text, "%ld %15s %d %d %d", &process, what, &index, &low, &high), 5);
        assert_int_equal(low, high);
        if (index == gpu && (strcmp(what, "limit") == 0) == limits)
            latest = (struct latest){line, low, process};
    }
    if (file)
        fclose(file);
    return latest;
}

static inline struct latest latest_of(const struct world *world, int gpu)
{
    return latest_line(world, gpu, false);
}

/* W; 0: it was never set. */
static inline int limit_of(const struct world *world, int gpu)
{
    return latest_line(world, gpu, true).clock_mhz / 1000;
}

static inline int lock_of(const struct world *world, int gpu)
{
    return latest_of(world, gpu).clock_mhz;
}

#endif
