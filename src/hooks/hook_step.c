/* The steps of a trainer and their passes. Nothing here allocates or waits, except to report
 * misuse. */
#include "hooks/hook_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The weight of a new measurement in the mean ratio of measured to planned times. */
#define RATIO_WEIGHT 0.1
#define RATIO_LEAST 0.25
#define RATIO_MOST 4

size_t erg_hook_find_class(struct erg_hook *hook, int kind, int chunk, int clock_mhz,
                           double planned_s)
{
    for (size_t i = 0; i < hook->class_count; i++) {
        const struct hook_class *class = &hook->classes[i];
        if (class->kind == kind && class->chunk == chunk && class->clock_mhz == clock_mhz)
            return i;
    }
    if (hook->class_count == HOOK_CLASSES)
        return HOOK_CLASSES - 1;
    hook->classes[hook->class_count] = (struct hook_class){
        .kind = kind, .chunk = chunk, .clock_mhz = clock_mhz, .planned_s = planned_s};
    return hook->class_count++;
}

/* ---- the trainer's place ---- */

static struct hook_where where_of(const struct erg_hook *hook, enum hook_phase phase)
{
    return (struct hook_where){
        .phase = phase,
        .programme = hook_programme(hook),
        .last_stage =
            hook->plan && (size_t)hook->options.stage + 1 == hook->plan->schedule.pipeline.stages,
        .step = hook->steps,
        .position = (int32_t)hook->position - 1,
        .ratio = hook->ratio,
        .clock_mhz = hook->profile && !hook->profile->over ? hook->profile->clock_mhz : 0,
        .block = hook->profile ? hook->profile->block : 0,
    };
}

/* Times on the host's clock. */
static void tell_place(struct erg_hook *hook, enum hook_phase phase, int64_t begun_ns,
                       int64_t ended_ns)
{
    struct hook_where where = where_of(hook, phase);
    if (!hook_sets_clocks(hook))
        return;
    where.begun_ns = begun_ns;
    where.ended_ns = ended_ns;
    hook_place_write(&hook->place, &where);
}

/* The same outside of steps, where the clock thread sleeps. */
static void tell_rest(struct erg_hook *hook, enum hook_phase phase)
{
    const struct hook_where where = where_of(hook, phase);
    if (hook->marks.gpu)
        erg_hook_mark_phase(hook, &where);
    else
        tell_place(hook, phase, 0, 0);
    if (hook_sets_clocks(hook))
        erg_clock_thread_wake(hook->clock.thread);
}

static enum hook_phase rest_of(const struct erg_hook *hook)
{
    return hook->steps > 0 ? HOOK_BETWEEN : HOOK_IDLE;
}

/*
 * Handles failures that the clock thread detected: the driver refuses, the guardian has ended, the
 * GPU does not follow its lock.
 */
static void hear_clocks(struct erg_hook *hook)
{
    struct erg_error why;
    char sentence[sizeof hook->trouble];
    if (!hook_sets_clocks(hook))
        return;
    if (erg_clock_thread_refused(hook->clock.thread, &why))
        snprintf(sentence, sizeof sentence, "%.200s; the GPU has its own clocks", why.message);
    else if (atomic_load(&hook->clock.disobeyed))
        snprintf(sentence, sizeof sentence,
                 "clocks: the GPU ran above its lock for 10 s; it has its own clocks");
    else
        return;
    erg_hook_end_clocks(hook, sentence);
    erg_log(ERG_LOG_WARNING, "%s", sentence);
}

/* ---- mistakes ---- */

/* The GPU is unlocked before the failure is reported. */
int erg_hook_mistake(struct erg_hook *hook, struct erg_error *err, const char *sentence)
{
    char said[sizeof hook->error.message];
    snprintf(said, sizeof said, "%s: %s", hook->profile ? "making a profile" : "following the plan",
             sentence);
    const bool first = hook->order_errors++ == 0;
    erg_hook_end_clocks(hook, said);
    hook->unchecked = true;
    if (!hook->options.strict) {
        if (first)
            erg_log(ERG_LOG_WARNING, "%s; the GPU has its own clocks from now on", said);
        return 0;
    }
    hook->lost = true;
    erg_fail(&hook->error, ERG_FAILED, "%s", said);
    if (err)
        *err = hook->error;
    return -1;
}

static int wrong_order(struct erg_hook *hook, const struct erg_pass_came *came,
                       struct erg_error *err)
{
    const struct erg_order_mistake what = {
        .pipeline = &hook->plan->schedule.pipeline,
        .instructions = hook->instructions,
        .stage = (size_t)hook->options.stage,
        .position = hook->position,
        .came = came,
        .names_microbatches = hook->names_microbatches,
        .names_chunks = hook->names_chunks,
        .splits_backward = hook->splits_backward,
        .step = hook->steps,
    };
    struct erg_text text = {0};
    erg_order_explain(&text, &what);
    int result = erg_hook_mistake(hook, err, text.data);
    erg_text_release(&text);
    return result;
}

static bool checks_order(const struct erg_hook *hook)
{
    return hook->plan && !hook->unchecked;
}

/* ---- steps ---- */

int erg_hook_step_begin(struct erg_hook *hook, struct erg_error *err)
{
    if (erg_hook_check(hook, "beginning a step", err) != 0)
        return -1;
    if (hook->paused)
        return 0;
    if (hook->in_step)
        return erg_hook_mistake(
            hook, err, "a step began within a step, expected erg_hook_step_end() before it");
    if (hook->in_pass >= 0)
        return erg_hook_mistake(hook, err,
                                "a step began within a pass, expected erg_hook_end() before it");
    hear_clocks(hook);
    if (hook->next_step >= 0 && hook->steps >= hook->next_step) {
        hook->running = hook->next;
        hook->next_step = -1;
    }
    if (hook->profile && erg_hook_profile_begin(hook, err) != 0)
        return -1;
    hook->in_step = true;
    hook->position = 0;
    hook->names_microbatches = hook->names_chunks = true;
    hook->splits_backward = false;
    hook->busy_s = 0;
    hook->step_ns = erg_now_ns();
    if (hook->profile && !hook->marks.gpu)
        erg_hook_profile_turn(hook, hook->profile->block, hook->profile->clock_mhz);
    tell_rest(hook, HOOK_STEP);
    return 0;
}

static int check_step_end(struct erg_hook *hook, struct erg_error *err)
{
    if (hook->in_pass >= 0)
        return erg_hook_mistake(hook, err,
                                "a step ended within a pass, expected erg_hook_end() before it");
    if (checks_order(hook) && hook->position < hook->plan->schedule.per_stage)
        return wrong_order(hook, NULL, err);
    return hook->profile ? erg_hook_profile_end(hook, err) : 0;
}

int erg_hook_step_end(struct erg_hook *hook, struct erg_error *err)
{
    if (erg_hook_check(hook, "ending a step", err) != 0)
        return -1;
    if (hook->paused)
        return 0;
    if (!hook->in_step)
        return erg_hook_mistake(hook, err,
                                "a step ended, expected erg_hook_step_begin() before it");
    if (check_step_end(hook, err) != 0)
        return -1;
    const size_t slot = (size_t)(hook->steps % HOOK_STEPS);
    const int64_t now_ns = erg_now_ns();
    hook->step_s[slot] = 1e-9 * (double)(now_ns - hook->step_ns);
    if (hook->energy && !hook->marks.gpu)
        erg_hook_energy_step(hook->energy, hook->step_ns, now_ns);
    hook->step_busy_s[slot] = hook->marks.gpu ? (double)NAN : hook->busy_s;
    hook->in_step = false;
    hook->in_pass = -1;
    hook->steps++;
    hook->position = 0;
    tell_rest(hook, HOOK_BETWEEN);
    hear_clocks(hook);
    if (hook->profile)
        return erg_hook_profile_step(hook, err);
    return hook->agreement.exchange ? erg_hook_exchange_step(hook, err) : 0;
}

/* ---- passes ---- */

static int check_begin(struct erg_hook *hook, const struct erg_pass_came *came,
                       struct erg_error *err)
{
    char text[160];
    if (came->kind < 0 || came->kind > ERG_OTHER) {
        snprintf(text, sizeof text, "a pass of kind %d began, expected 0 to %d", came->kind,
                 ERG_OTHER);
        return erg_hook_mistake(hook, err, text);
    }
    if (hook->in_pass >= 0) {
        snprintf(text, sizeof text,
                 "a %s pass began within a %s pass, expected erg_hook_end() before it",
                 erg_pass_kind_name(came->kind), erg_pass_kind_name(hook->in_pass));
        return erg_hook_mistake(hook, err, text);
    }
    if (!hook->in_step && came->kind != ERG_OTHER) {
        snprintf(text, sizeof text,
                 "a %s pass began outside of a step, expected erg_hook_step_begin() before it",
                 erg_pass_kind_name(came->kind));
        return erg_hook_mistake(hook, err, text);
    }
    return 0;
}

/* Handles a forward or backward pass that is the plan's next one. */
static void take_planned(struct erg_hook *hook, const struct erg_pass_came *came)
{
    hook->names_microbatches &= came->microbatch >= 0;
    hook->names_chunks &= came->chunk >= 0;
    assert(hook->position < hook->plan->schedule.per_stage);
    if (hook->points)
        hook->in_class = hook->points[hook->running].classes[hook->position];
    hook->position++;
}

static void tell_begin(struct erg_hook *hook, void *stream)
{
    const bool other = hook->in_pass == ERG_OTHER;
    const struct hook_where where = where_of(hook, other ? HOOK_HIGH : HOOK_STEP);
    if (hook->marks.gpu) {
        erg_hook_mark_begin(hook, &where, stream);
        if (hook_sets_clocks(hook) && !hook->in_step)
            erg_clock_thread_wake(hook->clock.thread);
    } else if (other && !hook->in_step) {
        tell_rest(hook, HOOK_HIGH);
    } else if (other) {
        tell_place(hook, HOOK_HIGH, 0, 0);
    } else if (hook->in_pass != ERG_BACKWARD_WEIGHT) {
        tell_place(hook, HOOK_STEP, hook->planned_ns, 0);
    }
}

static int begin_pass(struct erg_hook *hook, const struct erg_pass_came *came, void *stream,
                      struct erg_error *err)
{
    const bool planned = came->kind <= ERG_BACKWARD;
    if (check_begin(hook, came, err) != 0)
        return -1;
    if (planned && checks_order(hook) &&
        (hook->position >= hook->plan->schedule.per_stage ||
         !erg_pass_is(came, &hook->instructions[hook->position])) &&
        wrong_order(hook, came, err) != 0)
        return -1;
    if (hook->profile && erg_hook_profile_pass(hook, came, err) != 0)
        return -1;
    hook->in_pass = came->kind;
    hook->splits_backward |= came->kind == ERG_BACKWARD_WEIGHT;
    if (planned && checks_order(hook))
        take_planned(hook, came);
    if (hook->profile)
        hook->in_class = erg_hook_profile_class(hook, came);
    else if (!planned || !checks_order(hook))
        hook->in_class = erg_hook_find_class(hook, came->kind, came->chunk < 0 ? 0 : came->chunk, 0,
                                             (double)NAN);
    hook->pass_ns = erg_now_ns();
    if (planned)
        hook->planned_ns = hook->pass_ns;
    tell_begin(hook, stream);
    return 0;
}

int erg_hook_begin(struct erg_hook *hook, int32_t kind, int32_t chunk, int32_t microbatch,
                   void *stream, struct erg_error *err)
{
    const struct erg_pass_came came = {kind, chunk, microbatch};
    if (erg_hook_check(hook, "beginning a pass", err) != 0)
        return -1;
    if (hook->paused)
        return 0;
    if (hook->marks.gpu && stream && erg_gpu_marks_prepare(hook->marks.gpu, err) != 0)
        return -1;
    return begin_pass(hook, &came, stream, err);
}

int erg_hook_begin_named(struct erg_hook *hook, const char *name, void *stream,
                         struct erg_error *err)
{
    const int kind = erg_pass_kind_parse(name);
    if (kind < 0)
        return erg_fail(err, ERG_USAGE,
                        "beginning a pass: there is none called '%.40s', expected forward, "
                        "backward, backward-weight or other",
                        name);
    return erg_hook_begin(hook, kind, -1, -1, stream, err);
}

struct hook_tally erg_hook_read_class(const struct hook_class *class)
{
    for (;;) {
        const uint64_t before = class->sequence;
        const struct hook_tally tally = {class->count, class->total_s, class->squares_s2};
        if (!(before & 1) && class->sequence == before)
            return tally;
    }
}

void erg_hook_clear_class(struct hook_class *class, int clock_mhz)
{
    class->sequence++;
    class->clock_mhz = clock_mhz;
    class->count = 0;
    class->total_s = 0;
    class->squares_s2 = 0;
    class->sequence++;
}

void erg_hook_take_time(struct hook_class *class, double taken_s, double *busy_s, double *ratio)
{
    class->sequence++;
    class->count++;
    class->total_s = class->total_s + taken_s;
    class->squares_s2 = class->squares_s2 + taken_s * taken_s;
    class->sequence++;
    if (class->kind == ERG_OTHER)
        return;
    *busy_s += taken_s;
    if (class->planned_s > 0) {
        const double measured = fmin(fmax(taken_s / class->planned_s, RATIO_LEAST), RATIO_MOST);
        *ratio += RATIO_WEIGHT * (measured - *ratio);
    }
}

static void tell_end(struct erg_hook *hook, int64_t now_ns, void *stream)
{
    const struct hook_where where = where_of(hook, hook->in_step ? HOOK_STEP : rest_of(hook));
    if (hook->marks.gpu) {
        erg_hook_mark_end(hook, &where, stream);
        return;
    }
    assert(hook->in_class < hook->class_count && now_ns >= hook->pass_ns);
    erg_hook_take_time(&hook->classes[hook->in_class], 1e-9 * (double)(now_ns - hook->pass_ns),
                       &hook->busy_s, &hook->ratio);
    if (hook->energy && hook->in_step)
        erg_hook_energy_pass(hook->energy, hook->in_class, hook->pass_ns, now_ns);
    if (hook->in_pass == ERG_OTHER && !hook->in_step)
        tell_rest(hook, rest_of(hook));
    else if (hook->in_pass != ERG_BACKWARD_WEIGHT)
        tell_place(hook, HOOK_STEP, hook->planned_ns, now_ns);
}

int erg_hook_end(struct erg_hook *hook, void *stream, struct erg_error *err)
{
    if (erg_hook_check(hook, "ending a pass", err) != 0)
        return -1;
    if (hook->paused)
        return 0;
    if (hook->in_pass < 0)
        return erg_hook_mistake(hook, err, "a pass ended, expected erg_hook_begin() before it");
    hook->passes += hook->in_pass != ERG_OTHER;
    tell_end(hook, erg_now_ns(), stream);
    hook->in_pass = -1;
    return 0;
}

/* ---- pauses ---- */

int erg_hook_pause(struct erg_hook *hook)
{
    if (erg_hook_check(hook, "pausing", NULL) != 0 || hook->in_step || hook->in_pass >= 0)
        return -1;
    hook->paused = true;
    tell_rest(hook, HOOK_HIGH);
    return 0;
}

int erg_hook_resume(struct erg_hook *hook)
{
    if (erg_hook_check(hook, "resuming", NULL) != 0 || !hook->paused)
        return -1;
    hook->paused = false;
    tell_rest(hook, rest_of(hook));
    return 0;
}
