/* Benches on the fake NVML of the tests: one GPU that is nobody else's. */
#ifndef ERGON_BENCH_FAKE_GPU_H
#define ERGON_BENCH_FAKE_GPU_H

#include "ergon/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Runs `bench` of that name on it; the program's exit status. */
static inline int run_on_fake_gpu(const char *name, int (*bench)(struct erg_error *err))
{
    char folder[] = "/tmp/ergon-bench-XXXXXX", script[64];
    struct erg_error err;
    if (!mkdtemp(folder))
        return 1;
    snprintf(script, sizeof script, "%s/script", folder);
    FILE *file = fopen(script, "w");
    if (!file)
        return 1;
    fprintf(file, "gpus 1\ntail %s\n", folder + strlen(folder) - 6); /* in the GPU's UUID */
    fclose(file);
    setenv("ERGON_FAKE_NVML", script, 1);
    setenv("ERGON_NVML", ERGON_BENCH_FAKE_NVML, 1);
    int result = bench(&err);
    if (result != 0)
        fprintf(stderr, "%s: %s\n", name, err.message);
    unlink(script);
    rmdir(folder);
    return result != 0;
}

#endif
