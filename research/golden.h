/*
 * Runs of the published comparison, held against its golden rounds and jobs: who was submitted and
 * ended in which of 2,000 rounds, what ran, waited and lay idle at the start of each, and the
 * throughput that each counted.
 */
#ifndef ERG_RESEARCH_GOLDEN_H
#define ERG_RESEARCH_GOLDEN_H

#include "artifact.h"
#include "check.h"
#include "io/csv.h"

enum { GOLDEN_ROUNDS = 2000 };

struct published {
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct artifact artifact;
};

/* False where the data is not here. */
static inline bool published_load(struct published *published, const char *trace)
{
    char folder[4096], path[4200];
    const char *found = shared_data("arena");
    struct erg_error err;
    if (!found)
        return false;
    snprintf(folder, sizeof folder, "%s", found);
    snprintf(path, sizeof path, "%s/traces/%s", folder, trace);
    assert_ok(erg_fleet_load(&published->fleet,
                             ERGON_TEST_SOURCE_DIR "/examples/arena/cluster-1280.yaml", &err),
              &err);
    assert_ok(erg_job_trace_load(&published->trace, path, published->fleet, &err), &err);
    assert_ok(artifact_load(&published->artifact, folder, published->fleet, published->trace, &err),
              &err);
    return true;
}

static inline void published_release(struct published *published)
{
    artifact_release(&published->artifact);
    erg_job_trace_free(published->trace);
    erg_fleet_free(published->fleet);
}

static inline void published_run(struct erg_simulated *result, const struct published *published,
                                 const char *policy)
{
    struct erg_error err;
    struct erg_simulation simulation = {
        .fleet = published->fleet,
        .trace = published->trace,
        .speeds = published->artifact.speeds,
        .accounting = &published->artifact.rules,
        .work = 1,
        .until_s = GOLDEN_ROUNDS * 300.0,
        .power_cap_w = INFINITY,
        .keep_events = true,
        .keep_samples = true,
    };
    assert_ok(artifact_policy_find(&simulation.policy, policy, &err), &err);
    assert_ok(erg_simulate(result, &simulation, &err), &err);
}

static inline double golden_number(const struct erg_csv *csv, size_t row, const char *name)
{
    double value = NAN;
    struct erg_error err;
    size_t column;
    assert_ok(erg_csv_require(csv, name, &column, &err), &err);
    assert_ok(erg_csv_double(csv, row, column, &value, &err), &err);
    return value;
}

/* Compares who runs, waits and lies idle in the first so many rounds, and their throughput in the
 * first `exact`, which tells also who restarted; fails at the first that differs. */
static inline void check_golden_counts(const struct erg_simulated *result, const char *policy,
                                       size_t rounds, size_t exact)
{
    struct erg_csv *csv;
    struct erg_error err;
    assert_ok(erg_csv_load(&csv, shared_data("arena/golden_rounds_philly.csv"), &err), &err);
    size_t at = 0, checked = 0;
    struct erg_cluster_sample before = {0}, now = {0};
    for (size_t row = 0; row < erg_csv_rows(csv) && checked < rounds; row++) {
        if (strcmp(erg_csv_text(csv, row, 0), policy) != 0)
            continue;
        double round = golden_number(csv, row, "round");
        before = now;
        if (at < result->samples_count && result->samples[at].at_s == 300 * round)
            now = result->samples[at++];
        double idle = golden_number(csv, row, "idle_a100") + golden_number(csv, row, "idle_v100") +
                      golden_number(csv, row, "idle_a40") + golden_number(csv, row, "idle_a10");
        double running = golden_number(csv, row, "running_at_start");
        double pending = golden_number(csv, row, "pending_at_start");
        double throughput = golden_number(csv, row, "cluster_throughput");
        if (before.running != running || before.waiting != pending ||
            1280 - before.busy_gpus != idle ||
            (checked < exact && fabs(now.samples_per_s - throughput) > 6e-4))
            fail_msg("%s, round %g: %d running, %d waiting, %d idle, %.3f samples/s, expected %g, "
                     "%g, %g and %.3f",
                     policy, round, before.running, before.waiting, 1280 - before.busy_gpus,
                     now.samples_per_s, running, pending, idle, throughput);
        checked++;
    }
    assert_int_equal(checked, rounds);
    erg_csv_free(csv);
}

static inline void check_golden_rounds(const struct erg_simulated *result, const char *policy,
                                       size_t rounds)
{
    check_golden_counts(result, policy, rounds, rounds);
}

static inline void check_golden_jobs(const struct erg_simulated *result, const char *policy)
{
    struct erg_csv *csv;
    struct erg_error err;
    long ended = 0;
    assert_ok(erg_csv_load(&csv, shared_data("arena/golden_jobs_philly.csv"), &err), &err);
    for (size_t row = 0; row < erg_csv_rows(csv); row++) {
        if (strcmp(erg_csv_text(csv, row, 0), policy) != 0)
            continue;
        size_t job = (size_t)golden_number(csv, row, "job_index");
        const struct erg_job_result *found = &result->jobs[job];
        if (found->state != ERG_JOB_ENDED)
            fail_msg("%s: job %zu has not ended", policy, job);
        assert_near(found->submitted_s, 300 * golden_number(csv, row, "submit_round"), 0);
        assert_near(found->ended_s, 300 * golden_number(csv, row, "end_round"), 0);
        ended++;
    }
    assert_true(ended > 0);
    assert_int_equal(result->summary.finished_jobs, ended);
    erg_csv_free(csv);
}

#endif
