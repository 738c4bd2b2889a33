/*
 * The simulator's meters: integrals of power, throughput and use, per job and for the cluster, and
 * the summary derived from them.
 */
#ifndef ERG_CLUSTER_SIMULATE_METER_INTERNAL_H
#define ERG_CLUSTER_SIMULATE_METER_INTERNAL_H

#include "cluster/schedule/scheduler.h"
#include "cluster/simulate/simulation.h"

/* The rates of a job between two of its events. */
struct job_meter {
    double since_s;
    int gpus;
    double power_w; /* of its GPUs, and their power without it */
    double idle_w;
    double samples_per_s; /* as the accounting counts it */
    double share;         /* of its speed */
    double jobs_before_s; /* the meter's jobs_s at its submission */
};

/* A family's throughput, settled when one of its jobs changes. */
struct family_meter {
    struct erg_family_result result;
    double since_s, samples_per_s, samples;
};

struct meter {
    const struct erg_simulation *simulation;
    const struct erg_scheduler *scheduler;
    struct erg_job_result *results; /* by job */
    struct job_meter *jobs;         /* by job */
    struct family_meter *families;  /* in the order of the trace */
    size_t families_count;
    size_t *family_of; /* by workload */
    double now_s;
    /* The cluster now. */
    double power_w, samples_per_s;
    double idle_w; /* of all GPUs that are up, including nodes that are off, if no job had any */
    int busy_gpus, down_gpus, off_gpus;
    long wake_ups;
    /* Integrals until now. */
    double jobs_s; /* of the number of waiting or running jobs */
    double energy_j, busy_gpu_s, up_gpu_s, counted_s, counted_samples;
    double off_gpu_s;
    double free_gpu_s, pieces_gpu_s; /* of free GPUs, and of free GPUs on a node with a job */
    double cost_usd, co2_g;
    double peak_power_w, peak_samples_per_s;
    double throttled_s;
};

void erg_cluster_meter_init(struct meter *meter, const struct erg_simulation *simulation,
                            const struct erg_scheduler *scheduler);
void erg_cluster_meter_release(struct meter *meter);

/* Advances to a time; nothing changes until then. */
void erg_cluster_meter_advance(struct meter *meter, double now_s);

/* A job was submitted: it waits from now on. */
void erg_cluster_meter_submit(struct meter *meter, int job);

/* A job's allocation or share of speed changes now. */
void erg_cluster_meter_update(struct meter *meter, int job);

/* A job has to repeat the given iterations, at the given time each; until the next update its GPUs
 * are still its own. */
void erg_cluster_meter_undo(struct meter *meter, int job, double iterations, double iteration_s);

/* A node's GPUs went down or came up; no job had them. */
void erg_cluster_meter_node(struct meter *meter, int node, bool down);

/* A node without jobs was switched off, or one that was off is on again. */
void erg_cluster_meter_switch(struct meter *meter, int node, bool off);

/* Closes all accounts: jobs, families and the summary of the result, which owns them. */
void erg_cluster_meter_finish(struct meter *meter, struct erg_simulated *result);

#endif
