/*
 * Late pipelines: chooses the point of this pipeline while another one is late, by its caller's
 * request or by agreement of all ranks.
 */
#include "hooks/hook_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "plan/plan_follow.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/*
 * A pipeline is late beyond this share. The others then follow it until it is below half of that.
 */
#define LATE_SHARE 0.015
/* A slower point needs ROUNDS rounds that agree, and LEAST_BETWEEN_S since the last change. */
enum { ROUNDS = 3, STEPS_BETWEEN = 16, STEPS_UNTIL = 2, VERSION = 1 };
#define LEAST_BETWEEN_S 60

static_assert(sizeof(struct hook_message) == 64, "include/ergon/hook.h promises this size");

static const struct erg_plan_point *point_of(const struct erg_hook *hook, size_t point)
{
    return &hook->plan->methods[hook->method].points[point];
}

static int need_plan(const struct erg_hook *hook, const char *what, struct erg_error *err)
{
    if (hook->profile)
        return erg_fail(err, ERG_USAGE, "%s: this hook makes a profile, expected one that follows",
                        what);
    return hook->plan ? 0
                      : erg_fail(err, ERG_USAGE, "%s: this hook has no plan, expected one", what);
}

/* Another point runs from step `from_step` on. */
static void change_point(struct erg_hook *hook, size_t point, int64_t from_step)
{
    hook->next = point;
    hook->next_step = from_step;
}

static struct erg_hook_choice describe(const struct erg_hook *hook, size_t point, double until_s,
                                       int64_t from_step)
{
    const struct erg_plan_point *chosen = point_of(hook, point);
    return (struct erg_hook_choice){
        .size = sizeof(struct erg_hook_choice),
        .point = (int32_t)point,
        .method = erg_method_name(hook->method),
        .time_s = chosen->time_s,
        .energy_j = chosen->energy_j,
        .held_energy_j = erg_plan_held_energy(hook->plan, chosen, fmax(until_s, chosen->time_s)),
        .from_step = from_step,
        .late_replica = -1,
    };
}

/* ---- by the caller's request ---- */

int erg_hook_late(struct erg_hook *hook, double factor, struct erg_hook_choice *choice,
                  struct erg_error *err)
{
    if (erg_hook_check(hook, "waiting for a late pipeline", err) ||
        need_plan(hook, "waiting for a late pipeline", err))
        return -1;
    if (!(factor >= 1) || !isfinite(factor))
        return erg_fail(err, ERG_USAGE,
                        "waiting for a late pipeline: a factor of %g, expected 1 or more", factor);
    const double until_s = factor * point_of(hook, hook->chosen)->time_s;
    const struct erg_goal goal = {ERG_LEAST_ENERGY, .straggler_s = until_s};
    size_t point = hook->chosen;
    if (factor > 1 && erg_plan_pick(hook->plan, hook->method, &goal, &point, err) != 0)
        return -1;
    if (erg_hook_make_point(hook, point, err) != 0)
        return -1;
    const int64_t from_step = hook->steps + hook->in_step;
    change_point(hook, point, from_step);
    if (choice) {
        struct erg_hook_choice found = describe(hook, point, until_s, from_step);
        found.cause = factor > 1 ? ERG_HOOK_CAUSE_ASKED : ERG_HOOK_CAUSE_NONE;
        erg_sized_give32(choice, &found, sizeof found);
    }
    return 0;
}

/* ---- by agreement ---- */

int erg_hook_agree(struct erg_hook *hook, erg_hook_exchange *exchange, void *context, int32_t ranks,
                   struct erg_error *err)
{
    struct hook_agreement *agreement = &hook->agreement;
    if (erg_hook_check(hook, "agreeing on late pipelines", err) != 0)
        return -1;
    if (ranks < 1)
        return erg_fail(err, ERG_USAGE,
                        "agreeing on late pipelines: %d ranks, expected all of the job", ranks);
    if (hook->profile)
        return erg_hook_profile_agree(hook, exchange, context, (size_t)ranks, err);
    if (need_plan(hook, "agreeing on late pipelines", err) != 0)
        return -1;
    const size_t stages = hook->plan->schedule.pipeline.stages;
    free(agreement->messages);
    free(agreement->seconds);
    agreement->exchange = exchange;
    agreement->context = context;
    agreement->ranks = (size_t)ranks;
    agreement->messages = erg_xcalloc((size_t)ranks, sizeof *agreement->messages);
    agreement->seconds = erg_xcalloc(3 * stages, sizeof *agreement->seconds);
    agreement->since_s = LEAST_BETWEEN_S;
    return 0;
}

int erg_hook_agreed(const struct erg_hook *hook, struct erg_hook_choice *choice)
{
    erg_sized_give32(choice, &hook->agreement.choice, sizeof hook->agreement.choice);
    return 0;
}

static struct hook_message make_message(struct erg_hook *hook)
{
    return (struct hook_message){
        .version = VERSION,
        .replica = hook->options.replica,
        .stage = hook->options.stage,
        .point = (int32_t)hook->running,
        .step = hook->steps,
        .step_s = erg_hook_median_of_steps(hook, hook->step_s, HOOK_STEPS),
        .busy_s = erg_hook_median_of_steps(hook, hook->step_busy_s, HOOK_STEPS),
        .reasons = (int64_t)atomic_exchange(&hook->clock.reasons, 0),
        .lease = hook_sets_clocks(hook) ? ERG_HOOK_LEASE_DIRECT : ERG_HOOK_LEASE_NONE,
    };
}

/* Checks that all ranks have the same values where they must agree. */
static int check_messages(const struct erg_hook *hook, struct erg_error *err)
{
    const struct erg_plan_method *method = &hook->plan->methods[hook->method];
    const size_t points = method->point_count + method->slower_count;
    for (size_t i = 0; i < hook->agreement.ranks; i++) {
        const struct hook_message *message = &hook->agreement.messages[i];
        if (message->version != VERSION || message->step != hook->steps || message->replica < 0 ||
            message->stage < 0 || message->point < 0 || (size_t)message->point >= points ||
            (size_t)message->stage >= hook->plan->schedule.pipeline.stages)
            return erg_fail(err, ERG_FAILED,
                            "agreeing on late pipelines after step %" PRId64
                            ": rank %zu has version %d, step %" PRId64
                            ", replica %d, stage %d and point %d, expected the same step and plan "
                            "on all ranks",
                            hook->steps, i, message->version, message->step, message->replica,
                            message->stage, message->point);
    }
    return 0;
}

struct lateness {
    int32_t slowest;              /* a replica */
    double slowest_share, others; /* its factor on the planned time, and that of the next slowest */
    int64_t reasons;              /* of its GPUs */
};

/*
 * Working seconds of each stage of a replica: those of its slowest rank; NaN: no rank reports any.
 * Returns the point that it runs.
 */
static size_t replica_seconds(const struct erg_hook *hook, int32_t replica, double *seconds)
{
    const struct hook_agreement *agreement = &hook->agreement;
    size_t point = hook->chosen;
    for (size_t s = 0; s < hook->plan->schedule.pipeline.stages; s++)
        seconds[s] = NAN;
    for (size_t i = 0; i < agreement->ranks; i++)
        if (agreement->messages[i].replica == replica) {
            double *stage_s = &seconds[agreement->messages[i].stage];
            *stage_s = fmax(*stage_s, agreement->messages[i].busy_s); /* fmax ignores NaN */
            point = (size_t)agreement->messages[i].point;
        }
    return point;
}

static int32_t count_replicas(const struct hook_agreement *agreement)
{
    int32_t most = 0;
    for (size_t i = 0; i < agreement->ranks; i++)
        if (agreement->messages[i].replica > most)
            most = agreement->messages[i].replica;
    return most + 1;
}

static struct lateness find_lateness(const struct erg_hook *hook)
{
    const struct hook_agreement *agreement = &hook->agreement;
    const struct erg_plan_point *chosen = point_of(hook, hook->chosen);
    const int32_t replicas = count_replicas(agreement);
    struct lateness found = {.slowest = -1};
    for (int32_t replica = 0; replica < replicas; replica++) {
        size_t point = replica_seconds(hook, replica, agreement->seconds);
        double share =
            erg_plan_paced_time(hook->plan, chosen, point_of(hook, point), agreement->seconds) /
            chosen->time_s;
        if (found.slowest < 0 || share > found.slowest_share) {
            found.others = found.slowest < 0 ? 0 : found.slowest_share;
            found.slowest_share = share;
            found.slowest = replica;
        } else if (share > found.others) {
            found.others = share;
        }
    }
    for (size_t i = 0; i < agreement->ranks; i++)
        if (agreement->messages[i].replica == found.slowest)
            found.reasons |= agreement->messages[i].reasons;
    return found;
}

/* The point that this pipeline should run while the late one is slow. */
static int follow(const struct erg_hook *hook, const struct lateness *late, size_t *point,
                  struct erg_error *err)
{
    const size_t stages = hook->plan->schedule.pipeline.stages;
    double *slowest_s = hook->agreement.seconds, *own_s = slowest_s + stages,
           *planned_s = own_s + stages;
    const struct erg_plan_lateness lateness = {.method = hook->method,
                                               .chosen = hook->chosen,
                                               .running = hook->running,
                                               .slowest_s = slowest_s,
                                               .own_s = own_s};
    /* If the late pipeline runs another point: its time at the chosen one. */
    size_t runs = replica_seconds(hook, late->slowest, slowest_s);
    erg_plan_stage_seconds(hook->plan, point_of(hook, runs), planned_s);
    for (size_t s = 0; s < stages; s++)
        slowest_s[s] /= planned_s[s];
    erg_plan_stage_seconds(hook->plan, point_of(hook, hook->chosen), planned_s);
    for (size_t s = 0; s < stages; s++)
        slowest_s[s] *= planned_s[s];
    (void)replica_seconds(hook, hook->options.replica, own_s);
    return erg_plan_follow(hook->plan, &lateness, point, err);
}

/*
 * A faster point starts immediately, so that no pipeline waits for this one; a slower one once
 * rounds agree.
 */
static bool is_time_for(struct erg_hook *hook, size_t wanted)
{
    struct hook_agreement *agreement = &hook->agreement;
    if (wanted == hook->running) {
        agreement->rounds = 0;
        return false;
    }
    if (point_of(hook, wanted)->time_s < point_of(hook, hook->running)->time_s)
        return true;
    agreement->rounds = wanted == agreement->wanted ? agreement->rounds + 1 : 1;
    agreement->wanted = wanted;
    return agreement->rounds >= ROUNDS && agreement->since_s >= LEAST_BETWEEN_S;
}

/* From the same bytes all ranks of a pipeline make the same decision. */
static int decide(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_agreement *agreement = &hook->agreement;
    const struct lateness late = find_lateness(hook);
    const double share = agreement->late ? LATE_SHARE / 2 : LATE_SHARE;
    size_t wanted = hook->chosen;
    agreement->since_s += STEPS_BETWEEN * agreement->messages[0].step_s;
    agreement->late = late.others > 0 && late.slowest_share > (1 + share) * late.others;
    if (agreement->late && late.slowest != hook->options.replica &&
        follow(hook, &late, &wanted, err) != 0)
        return -1;
    if (!is_time_for(hook, wanted))
        return 0;
    if (erg_hook_make_point(hook, wanted, err) != 0)
        return -1;
    const double until_s = point_of(hook, hook->chosen)->time_s *
                           (late.others > 0 ? late.slowest_share / late.others : 1);
    change_point(hook, wanted, hook->steps + STEPS_UNTIL);
    agreement->choice = describe(hook, wanted, until_s, hook->steps + STEPS_UNTIL);
    agreement->choice.late_replica = agreement->late ? late.slowest : -1;
    agreement->choice.cause = (int32_t)(agreement->late ? erg_hook_cause_of((uint64_t)late.reasons)
                                                        : ERG_HOOK_CAUSE_NONE);
    agreement->rounds = 0;
    agreement->since_s = 0;
    erg_log(ERG_LOG_INFO, "pipeline %d runs point %zu from step %" PRId64 " on",
            hook->options.replica, wanted, agreement->choice.from_step);
    return 0;
}

int erg_hook_exchange_step(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_agreement *agreement = &hook->agreement;
    if (hook->steps % STEPS_BETWEEN != 0)
        return 0;
    const struct hook_message mine = make_message(hook);
    if (agreement->exchange(agreement->context, &mine, agreement->messages, sizeof mine) != 0)
        return erg_fail(err, ERG_FAILED,
                        "agreeing on late pipelines after step %" PRId64
                        ": the caller's exchange failed",
                        hook->steps);
    return check_messages(hook, err) || decide(hook, err) ? -1 : 0;
}
