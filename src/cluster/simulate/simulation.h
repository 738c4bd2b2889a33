/*
 * The simulator: a trace of jobs on a fleet under a policy, event by event.
 *
 * Events are submissions, ends of jobs and of their restarts, failures and repairs of nodes,
 * rounds, and calls that the policy requested. The order at equal times: ends, then failures and
 * repairs, then submissions, then one call of the policy, so that it sees all of them. Between
 * events nothing is computed: each job's progress, energy and attained service are closed forms of
 * time since its last change, and the next event comes from a heap. A policy that keeps requesting
 * calls while nothing happens is called less and less often after a thousand calls without a
 * change, or five thousand calls without an event. Equal inputs give equal results.
 *
 * If the fleet saves power (fleet.h), a node without jobs for that time is switched off, after all
 * other events at that moment. The first job that gets a GPU of it wakes it, and restarts when it
 * is up, at the cost of a restart. A node that fails while it is off or waking is up when it is
 * back.
 *
 * Under a power cap, the GPUs of all nodes together never draw more. A policy gets the cap and may
 * keep it by its decisions. Otherwise the simulator limits the clocks of all GPUs to one share of
 * the highest, the largest that keeps the cap; lower clocks stay unchanged. This models an operator
 * who limits clocks, and adjusts the limit at every moment.
 */
#ifndef ERG_CLUSTER_SIMULATE_SIMULATION_H
#define ERG_CLUSTER_SIMULATE_SIMULATION_H

#include "cluster/fleet.h"
#include "cluster/job_trace.h"
#include "cluster/schedule/accounting.h"
#include "cluster/schedule/policy.h"
#include "cluster/speed_table.h"
#include "cluster/tariff.h"
#include "cluster/unserved.h"

/* A node fails at a time and comes back. */
struct erg_outage {
    int node;
    double from_s, to_s; /* after the first submission; INFINITY: never comes back */
};

struct erg_simulation {
    const struct erg_fleet *fleet;
    const struct erg_job_trace *trace;
    const struct erg_speeds *speeds;
    const struct erg_policy *policy;
    const struct erg_accounting *accounting; /* NULL: the fair one */
    double work;    /* share of its iterations that every job does, rounded down, at least one */
    double until_s; /* after the first submission; INFINITY: until nothing runs and nothing can
                     * start */
    double power_cap_w;               /* see above; INFINITY: none */
    const struct erg_tariff *tariff;  /* reported to the policy, and applied; NULL: none */
    const struct erg_outage *outages; /* in any order */
    size_t outages_count;
    bool keep_events, keep_samples; /* in the result */
    size_t reopened_every; /* the policy is closed and opened again after this many calls; 0: never;
                            * for tests */
};

enum erg_record_kind {
    ERG_RECORD_SUBMIT,
    ERG_RECORD_START,   /* got GPUs, first or again */
    ERG_RECORD_CHANGE,  /* got other GPUs or another operating point */
    ERG_RECORD_SUSPEND, /* the policy took its GPUs */
    ERG_RECORD_RELEASE, /* released its GPUs, and gets others at this moment: an exchange */
    ERG_RECORD_EVICT,   /* its node failed */
    ERG_RECORD_END,
    ERG_RECORD_REJECT,
    ERG_RECORD_FAILURE, /* of a node; job is -1 */
    ERG_RECORD_REPAIR,
    ERG_RECORD_OFF, /* of a node */
    ERG_RECORD_WAKE,
    ERG_RECORD_KINDS
};

struct erg_cluster_record {
    double at_s; /* after the first submission, like all times of a result */
    enum erg_record_kind kind;
    int job, node;
    int shape, point; /* present ones; -1: none */
    /* The present GPUs, or those that it had until it was evicted or ended: the first of the
     * result's slices and their number. */
    size_t first_slice;
    int slices;
};

/* The history of a job. Times that never came are NAN. */
struct erg_job_result {
    enum erg_cluster_job_state state; /* at the end of the simulation */
    double submitted_s, started_s, ended_s;
    double iterations, remaining;
    double queued_s;      /* time without GPUs between submission and end */
    double gpu_s;         /* GPU-seconds */
    double lost_s;        /* GPU-seconds of restarts */
    double undone_s;      /* GPU-seconds of work lost by node failures */
    double jobs_present;  /* mean number of waiting or running jobs during its time; 0 until it
                           * ended */
    double energy_j;      /* of its GPUs */
    int reconfigurations; /* including the first start */
    bool runnable;        /* on any GPUs of the cluster */
};

/* The cluster from one sample to the next. */
struct erg_cluster_sample {
    double at_s;
    int running, waiting;
    int busy_gpus, down_gpus, off_gpus;
    double samples_per_s; /* of all running jobs, as the accounting counts it */
    double power_w;       /* of all GPUs of nodes that are up */
};

/* The keys of the JSON summary; undefined values (a mean over nothing) are NAN. */
struct erg_summary {
    long submitted_jobs, finished_jobs, rejected_jobs, unrunnable_jobs;
    double mean_jct_s, median_jct_s, p99_jct_s; /* of finished jobs */
    double mean_time_in_system_s; /* of all submitted jobs; jobs that are left count until now */
    double mean_queue_s;          /* of all submitted jobs */
    double mean_slowdown;         /* of finished jobs: JCT divided by the time alone on their
                                   * requested GPUs */
    /* For finished jobs: JCT divided by the time that the job would have taken on its requested
     * GPUs in an equal share of the cluster; there are as many shares as there were jobs during its
     * time (Themis). */
    double mean_finish_time_fairness, worst_finish_time_fairness;
    double mean_throughput, peak_throughput; /* samples/s over time */
    double utilization;                      /* GPU-seconds of jobs divided by those that were up */
    double goodput;                          /* the same without restarts and lost work */
    double fragmentation;                    /* share of free GPU-seconds on nodes with a job */
    long reconfigurations;
    double reconfiguration_gpu_s, undone_gpu_s; /* restarts; lost work */
    double deadlines_met; /* share of jobs with a deadline that met it; the others are late,
                           * overdue, or will never end */
    double energy_j, peak_power_w;
    double throttled_s;         /* time in which the cap, and not the policy, slowed GPUs down; NAN:
                                 * no cap */
    double off_gpu_s, wake_ups; /* GPU-seconds on nodes that were off, number of wakes; NAN without
                                 * power saving */
    double cost_usd, co2_kg;    /* of energy_j; NAN without a tariff */
    double simulated_s;         /* from the first submission to the end of the simulation */
    double cpu_s;               /* of the simulation itself */
};

/* Jobs of one model family, whose samples can be added. */
struct erg_family_result {
    const char *name; /* the trace's */
    long submitted_jobs, finished_jobs;
    double mean_throughput, peak_throughput; /* samples/s, the mean over the whole run */
};

struct erg_simulated {
    struct erg_job_result *jobs; /* by index in the trace */
    size_t jobs_count;
    struct erg_family_result *families; /* those with submitted jobs, in the order of the trace */
    size_t families_count;
    struct erg_cluster_record *records; /* if requested */
    size_t records_count;
    struct erg_slice *slices; /* of the records */
    struct erg_cluster_sample *samples;
    size_t samples_count;
    struct erg_unserved *unserved; /* in the order in which they were found */
    size_t unserved_count;
    struct erg_summary summary;
};

/* Interruptible. */
int erg_simulate(struct erg_simulated *result, const struct erg_simulation *simulation,
                 struct erg_error *err);
void erg_simulated_release(struct erg_simulated *result);

#endif
