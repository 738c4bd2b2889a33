/* The variables of all launchers, set and cleared for a test. */
#ifndef ERGON_TESTS_LAUNCHER_VARIABLES_H
#define ERGON_TESTS_LAUNCHER_VARIABLES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void clear_environment(void)
{
    static const char *const names[] = {
        "ERGON_RANK",
        "ERGON_WORLD_SIZE",
        "ERGON_LOCAL_RANK",
        "ERGON_HOST",
        "ERGON_PORT",
        "ERGON_JOB",
        "ERGON_JOB_SECRET",
        "ERGON_LISTENER",
        "LOCAL_WORLD_SIZE",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_USE_AGENT_STORE",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_NODELIST",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "TORCHELASTIC_RUN_ID",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* "A=1 B=2": nothing else of a launcher is set. */
static inline void set_environment(const char *text)
{
    char copy[512], *rest = copy, *pair;
    clear_environment();
    snprintf(copy, sizeof copy, "%s", text);
    while ((pair = strtok_r(rest, " ", &rest)) != NULL) {
        char *equals = strchr(pair, '=');
        *equals = 0;
        setenv(pair, equals + 1, 1);
    }
}

#endif
