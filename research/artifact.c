/* The accounting of Arena's published comparison, to the letter (artifact.h). */
#include "artifact.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUND_S 300.0
#define ITERATIONS_DIVISOR 5
#define DEADLINE_FACTOR 5
#define THROUGHPUT_LEAST 100

double artifact_round(double value)
{
    char digits[64];
    double rounded = value;
    snprintf(digits, sizeof digits, "%.3f", value);
    erg_parse_double(digits, &rounded);
    return rounded;
}

/* A round takes the jobs of the 300 s behind it, the first also that at its very beginning. */
static double submission(double asked_s, double previous_s)
{
    return fmax(previous_s, ROUND_S * fmax(0, ceil(asked_s / ROUND_S) - 1));
}

static void submit(struct erg_cluster_job *job, struct erg_work *work)
{
    job->iterations = floor(job->iterations / ITERATIONS_DIVISOR);
    job->deadline_s = job->submitted_s + DEADLINE_FACTOR * (job->deadline_s - job->submitted_s);
    *work = (struct erg_work){.iterations = job->iterations,
                              .since_s = job->submitted_s,
                              .remaining = job->iterations,
                              .resume_s = INFINITY,
                              .iteration_s = INFINITY};
}

/* Seconds that count until the end of a round that is a number of rounds after the last change. */
static double executed(const struct erg_work *work, double rounds)
{
    double skipped = work->overhead_s > ROUND_S ? ceil(work->overhead_s / ROUND_S) - 1 : 0;
    return work->executed_s + ROUND_S * fmax(0, rounds - skipped);
}

static double rounds_since(const struct erg_work *work, double now_s)
{
    return round((now_s - work->since_s) / ROUND_S);
}

double artifact_executed(const struct erg_work *work, double now_s)
{
    return isinf(work->iteration_s) ? work->executed_s : executed(work, rounds_since(work, now_s));
}

static double remaining_after(const struct erg_work *work, double executed_s)
{
    /* Before its first round at the present speed, a job has what it had. */
    if (executed_s == work->executed_s)
        return work->remaining;
    return work->iterations - floor(executed_s / work->iteration_s);
}

static double remaining(const struct erg_work *work, double now_s)
{
    if (isinf(work->iteration_s))
        return work->remaining;
    return remaining_after(work, executed(work, rounds_since(work, now_s)));
}

static double cost(const struct erg_scheduler *scheduler, int job, int type, int gpus)
{
    (void)job;
    (void)type;
    bool prunes_search = !strncmp(scheduler->policy->name, "arena", strlen("arena"));
    return prunes_search ? fmin(10.0 * gpus, 40) : fmin(150.0 * gpus, 600);
}

static void change(struct erg_work *work, double now_s, double iteration_s, double cost_s)
{
    work->remaining = remaining(work, now_s);
    if (!isinf(work->iteration_s))
        work->executed_s = executed(work, rounds_since(work, now_s));
    if (isinf(iteration_s))
        work->iterations = work->remaining; /* but the executed time is kept */
    if (cost_s == 0)                        /* what it still owes of the last restart stays */
        cost_s = fmax(0, work->overhead_s - ROUND_S * rounds_since(work, now_s));
    work->since_s = now_s;
    work->iteration_s = isinf(iteration_s) ? iteration_s : artifact_round(iteration_s);
    work->overhead_s = cost_s;
}

static void pace(struct erg_work *work, const struct erg_fleet *fleet, double now_s,
                 double iteration_s)
{
    (void)fleet;
    change(work, now_s, iteration_s, 0);
}

static void lose(struct erg_work *work, const struct erg_fleet *fleet, double now_s)
{
    (void)work; /* the published simulator knows no failures */
    (void)fleet;
    (void)now_s;
}

static double end(const struct erg_work *work)
{
    if (isinf(work->iteration_s))
        return INFINITY;
    double needed_s = work->iterations * work->iteration_s - work->executed_s;
    double rounds = fmax(1, floor(needed_s / ROUND_S) - 1);
    while (remaining_after(work, executed(work, rounds)) > 0)
        rounds++;
    return work->since_s + ROUND_S * rounds;
}

static double share(const struct erg_work *work, double now_s, double *until_s)
{
    double rounds = rounds_since(work, now_s), owed_s = work->overhead_s - ROUND_S * rounds;
    *until_s = owed_s > 0 ? work->since_s + ROUND_S * (rounds + 1) : INFINITY;
    if (owed_s > ROUND_S)
        return 0;
    return owed_s > 0 ? (ROUND_S - owed_s) / ROUND_S : 1;
}

const struct erg_accounting artifact_accounting = {
    .round_s = ROUND_S,
    .shrinks_in_place = true,
    .throughput_least = THROUGHPUT_LEAST,
    .submission = submission,
    .submit = submit,
    .remaining = remaining,
    .cost = cost,
    .change = change,
    .pace = pace,
    .lose = lose,
    .end = end,
    .share = share,
};

const struct artifact *artifact_of(const struct erg_scheduler *scheduler)
{
    return (const struct artifact *)scheduler->accounting;
}
