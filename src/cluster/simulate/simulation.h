/*
 * The simulator: a trace of jobs on a fleet under a policy, event by event.
 *
 * Events are submissions, ends of jobs and of their restarts, failures and repairs of nodes, rounds
 * and wishes of the policy. At equal times: ends, then failures and repairs, then submissions, then
 * one call of the policy, so that it sees all that has happened. Between events nothing is
 * computed: each job's progress, energy and attained service are closed forms of time from its last
 * change on, and the next event comes from a heap. A policy that keeps requesting calls while
 * nothing happens is called less and less often after a thousand calls without a change, or five
 * thousand calls without an event. Equal inputs give equal results.
 *
 * Where the fleet saves power (fleet.h), a node without jobs for that time is switched off, after
 * all other events at that moment. The first job that gets a GPU of it wakes it, and restarts when
 * it is up, at the cost of a restart. A node that fails while it is off, or wakes, is up when it is
 * back.
 *
 * Under a power cap the GPUs of all nodes together never draw more. A policy gets the cap and may
 * keep it by its decisions; where more would be drawn, the clocks of all GPUs are lowered to one
 * share of the highest, the largest that keeps the cap, and those that are lower anyway stay as
 * they are: what an operator does who caps clocks, only that he does it at every moment anew.
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

/* A node that fails at a time and comes back. */
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
    double work;    /* every job does this share of its iterations, rounded down, at least one */
    double until_s; /* after the first submission; INFINITY: until nothing runs and nothing can */
    double power_cap_w;               /* see above; INFINITY: none */
    const struct erg_tariff *tariff;  /* reported to the policy, and paid; NULL: none */
    const struct erg_outage *outages; /* in any order */
    size_t outages_count;
    bool keep_events, keep_samples; /* in the result */
    size_t reopened_every; /* calls, the policy is closed and opened anew; 0: never; for tests */
};

enum erg_record_kind {
    ERG_RECORD_SUBMIT,
    ERG_RECORD_START,   /* got GPUs, first or again */
    ERG_RECORD_CHANGE,  /* got other GPUs or another operating point */
    ERG_RECORD_SUSPEND, /* the policy took its GPUs */
    ERG_RECORD_RELEASE, /* gave its GPUs back, to be changed at this moment: an exchange */
    ERG_RECORD_EVICT,   /* a node failed under it */
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
    int shape, point; /* that it has now; -1: none */
    /* The GPUs that it has now, or had until it was evicted or ended: the first of the result's
     * slices and their number. */
    size_t first_slice;
    int slices;
};

/* The history of a job. Times that never came are NAN. */
struct erg_job_result {
    enum erg_cluster_job_state state; /* at the end of the simulation */
    double submitted_s, started_s, ended_s;
    double iterations, remaining;
    double queued_s;      /* without GPUs while submitted and not ended */
    double gpu_s;         /* GPU-seconds that it had */
    double lost_s;        /* GPU-seconds of those in restarts */
    double undone_s;      /* GPU-seconds of work that was lost with a node */
    double jobs_present;  /* jobs that waited or ran, in the mean of its time; 0 until it ended */
    double energy_j;      /* of its GPUs */
    int reconfigurations; /* the first start among them */
    bool runnable;        /* on any GPUs of the cluster */
};

/* The cluster from one moment to the next sample. */
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
    double mean_time_in_system_s; /* of all submitted jobs; those that are left count until now */
    double mean_queue_s;          /* of all submitted jobs */
    double mean_slowdown;         /* of finished jobs: JCT divided by the time on their requested
                                   * GPUs */
    /* For finished jobs: JCT divided by the time that the job would have taken on its requested
     * GPUs in a share of the cluster; the shares are equal and as many as there were jobs in its
     * time (Themis). */
    double mean_finish_time_fairness, worst_finish_time_fairness;
    double mean_throughput, peak_throughput; /* samples/s over time */
    double utilization;                      /* GPU-seconds that jobs had of those that were up */
    double goodput;                          /* that without restarts and lost work */
    double fragmentation;                    /* share of free GPU-seconds on nodes with a job */
    long reconfigurations;
    double reconfiguration_gpu_s, undone_gpu_s; /* restarts; lost work */
    double deadlines_met; /* share of jobs with one that ended, are overdue, or will never end */
    double energy_j, peak_power_w;
    double throttled_s;         /* the cap, and not the policy, slowed GPUs down; NAN: no cap */
    double off_gpu_s, wake_ups; /* time of GPUs on nodes that were off, nodes woken; NAN where power
                                 * is not saved */
    double cost_usd, co2_kg;    /* of that energy; NAN without a tariff */
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
    struct erg_family_result *families; /* those with submitted jobs, as they come in the trace */
    size_t families_count;
    struct erg_cluster_record *records; /* if asked for */
    size_t records_count;
    struct erg_slice *slices; /* of the records */
    struct erg_cluster_sample *samples;
    size_t samples_count;
    struct erg_unserved *unserved; /* in the order in which that was known */
    size_t unserved_count;
    struct erg_summary summary;
};

/* Interruptible. */
int erg_simulate(struct erg_simulated *result, const struct erg_simulation *simulation,
                 struct erg_error *err);
void erg_simulated_release(struct erg_simulated *result);

#endif
