/* Checks the settings in slurm.conf that live jobs need. */
#ifndef ERG_CLUSTER_LIVE_SLURM_ADVICE_H
#define ERG_CLUSTER_LIVE_SLURM_ADVICE_H

#include "cluster/live/live_engine.h"

enum { ERG_SLURM_SETTINGS = 5 };

struct erg_slurm_setting {
    const char *name; /* as in slurm.conf */
    bool fine;
    char fact[200];     /* its value */
    const char *advice; /* one sentence; NULL if the setting is right */
};

/*
 * Checks RequeueExitHold, KillWait, MinJobAge, PriorityTier and JobSubmitPlugins (which may also
 * lack lua). `partition`: that of live jobs; NULL: the one with the highest tier. Returns DONE,
 * else as erg_slurm_command(): BROKEN with the status ERG_SLURM_MISSING if Slurm is not
 * installed.
 */
enum erg_engine_answer erg_slurm_advice(const char *partition,
                                        struct erg_slurm_setting settings[ERG_SLURM_SETTINGS],
                                        struct erg_error *err);

/* The same from the output of "scontrol show config" and "scontrol -o show partition". */
void erg_slurm_judge(const char *config, const char *partitions, const char *partition,
                     struct erg_slurm_setting settings[ERG_SLURM_SETTINGS]);

#endif
