/* The times of a policy's calls, its events, and its restarts in between. */
#include "cluster/schedule/scheduler_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/*
 * The time of the call that a policy requested without an event. To keep simulations of long jobs
 * fast, the time between such calls doubles with each call after this many calls without a change,
 * and sometimes after many calls without an event, even if the policy made changes.
 */
static double call_time(const struct erg_scheduler *scheduler, double wanted_s)
{
    enum { VAIN_CALLS = 1000, CALLS = 5000, CALLS_PER_DOUBLING = 250, DOUBLINGS = 60 };
    const struct erg_course *course = scheduler->course;
    const long after_calls = (course->calls - CALLS) / CALLS_PER_DOUBLING;
    double doublings = fmax((double)(course->vain_calls - VAIN_CALLS), (double)after_calls);
    if (doublings <= 0 || isinf(wanted_s))
        return wanted_s;
    if (course->events & ~(unsigned)ERG_EVENT_TARIFF) /* an event that it waits for */
        return fmax(wanted_s, scheduler->now_s);
    return course->called_s +
           fmax(0, wanted_s - course->called_s) * exp2(fmin(doublings, DOUBLINGS));
}

static bool has_jobs(const struct erg_scheduler *scheduler)
{
    return scheduler->waiting.count + scheduler->running.count > 0;
}

/* The next round of the policy, now or later. */
double erg_course_next_round(const struct erg_scheduler *scheduler)
{
    double length_s = scheduler->policy->round_s;
    if (length_s <= 0 || !has_jobs(scheduler))
        return INFINITY;
    return call_time(
        scheduler, fmax(scheduler->course->round_s, ceil(scheduler->now_s / length_s) * length_s));
}

/* The next time at which the accounting allows an event. */
static double allowed(const struct erg_scheduler *scheduler, double at_s)
{
    double round_s = scheduler->accounting->round_s;
    return round_s > 0 && !isinf(at_s) ? ceil(at_s / round_s) * round_s : at_s;
}

double erg_course_next_wake(const struct erg_scheduler *scheduler)
{
    if (!has_jobs(scheduler))
        return INFINITY;
    return allowed(scheduler, call_time(scheduler, scheduler->changes->wake_s));
}

/* The next change of the price of electricity, if the policy needs it and has jobs. */
double erg_course_next_tariff(const struct erg_scheduler *scheduler)
{
    double until_s = INFINITY;
    if (scheduler->tariff && (scheduler->policy->events & ERG_EVENT_TARIFF) && has_jobs(scheduler))
        erg_tariff_at(scheduler->tariff, scheduler->now_s, &until_s);
    return allowed(scheduler, call_time(scheduler, until_s));
}

void erg_course_open(struct erg_scheduler *scheduler)
{
    const struct erg_policy *policy = scheduler->policy;
    struct erg_course *course = scheduler->course;
    json_t *saved = NULL;
    if (course->opened && !course->stale)
        return;
    if (course->opened && policy->save)
        saved = policy->save(scheduler->policy_state, scheduler);
    if (course->opened && policy->close)
        policy->close(scheduler->policy_state);
    for (size_t i = 0; i < course->adopted.count; i++)
        scheduler->jobs[course->adopted.items[i]].told = true;
    course->adopted.count = course->ended.count = course->evicted.count = 0;
    scheduler->policy_state = policy->open ? policy->open(scheduler, policy->rules) : NULL;
    if (saved && policy->load)
        policy->load(scheduler->policy_state, scheduler, saved);
    json_decref(saved);
    course->opened = true;
    course->stale = false;
}

void erg_course_release(struct erg_scheduler *scheduler)
{
    struct erg_course *course = scheduler->course;
    if (course->opened && scheduler->policy->close)
        scheduler->policy->close(scheduler->policy_state);
    free(course->arrived.items);
    free(course->ended.items);
    free(course->evicted.items);
    free(course->adopted.items);
    free(course->changed.items);
    free(course);
}

static void take_out(struct erg_job_ids *ids, int job)
{
    size_t kept = 0;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->items[i] != job)
            ids->items[kept++] = ids->items[i];
    ids->count = kept;
}

void erg_course_forget(struct erg_scheduler *scheduler, int job)
{
    take_out(&scheduler->course->arrived, job);
    take_out(&scheduler->course->adopted, job);
}

/* Returns true if the policy did anything except reject jobs. */
static bool has_changed(const struct erg_scheduler *scheduler)
{
    const struct erg_change_log *changes = scheduler->changes;
    for (size_t i = 0; i < changes->count; i++) {
        const struct erg_cluster_job *job = &scheduler->jobs[changes->items[i].job];
        if (job->state != ERG_JOB_REJECTED && erg_change_is_real(job, &changes->items[i]))
            return true;
    }
    return false;
}

int erg_course_call(struct erg_scheduler *scheduler, struct erg_error *err)
{
    const struct erg_policy *policy = scheduler->policy;
    struct erg_course *course = scheduler->course;
    double now_s = scheduler->now_s;
    bool in_round = erg_course_next_round(scheduler) <= now_s;
    bool awake = erg_course_next_wake(scheduler) <= now_s;
    erg_course_open(scheduler);
    if (in_round)
        course->round_s = now_s + policy->round_s;
    if (awake)
        scheduler->changes->wake_s = INFINITY;
    struct erg_occasion occasion = {
        .events = course->events | (in_round || awake ? ERG_EVENT_ROUND : 0),
        .arrived = course->arrived.items,
        .arrived_count = course->arrived.count,
        .ended = course->ended.items,
        .ended_count = course->ended.count,
        .evicted = course->evicted.items,
        .evicted_count = course->evicted.count,
    };
    for (size_t i = 0; i < course->arrived.count; i++)
        scheduler->jobs[course->arrived.items[i]].told = true;
    if (policy->decide(scheduler->policy_state, scheduler, &occasion, err) != 0)
        return erg_fail_context(err, "policy %s at %g s", policy->name, now_s);
    bool happened = course->events & ~(unsigned)ERG_EVENT_TARIFF;
    course->rested = !happened && scheduler->changes->count == 0;
    course->events = 0;
    course->arrived.count = course->ended.count = course->evicted.count = 0;
    course->called_s = now_s;
    course->calls = happened ? 0 : course->calls + 1;
    course->vain_calls = happened || has_changed(scheduler) ? 0 : course->vain_calls + 1;
    return 0;
}
