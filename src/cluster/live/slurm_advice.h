/* The settings for live jobs in slurm.conf, and missing ones. */
#ifndef ERG_CLUSTER_LIVE_SLURM_ADVICE_H
#define ERG_CLUSTER_LIVE_SLURM_ADVICE_H

#include "cluster/live/live_engine.h"

enum { ERG_SLURM_SETTINGS = 5 };

struct erg_slurm_setting {
    const char *name; /* as in slurm.conf */
    bool fine;
    char fact[200];     /* what it is */
    const char *advice; /* one sentence; NULL where it is fine */
};

/*
 * RequeueExitHold, KillWait, MinJobAge, PriorityTier and JobSubmitPlugins (which is fine without
 * lua, too). The partition of live jobs: NULL stands for that of the highest tier. DONE; else as of
 * erg_slurm_command(): BROKEN with the status ERG_SLURM_MISSING where Slurm is not installed.
 */
enum erg_engine_answer erg_slurm_advice(const char *partition,
                                        struct erg_slurm_setting settings[ERG_SLURM_SETTINGS],
                                        struct erg_error *err);

/* The same of what "scontrol show config" and "scontrol -o show partition" have printed. */
void erg_slurm_judge(const char *config, const char *partitions, const char *partition,
                     struct erg_slurm_setting settings[ERG_SLURM_SETTINGS]);

#endif
