/* A profile from ordinary steps: the order of passes, blocks of steps, agreement of ranks. */
#include "hooks/hook_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/statistics.h"
#include "io/file.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Steps of a block, and the required accuracy of times and energies. */
enum { SETTLE = 3, ROUND = 4, MOST_STEPS = 40, VERSION = 1 };
#define KNOWN 0.01
#define KNOWN_LEAST 0.1 /* otherwise the clock is excluded */
/* The next clock is this share of the previous one, or the next lower one that the GPU has. */
#define CLOCK_STEP 0.96

enum hook_profile_form { STATUS = 1, ROW };
enum hook_profile_flag { KNOWS = 1, ENDED = 2 };

static_assert(sizeof(struct hook_profile_message) == 64, "include/ergon/hook.h promises this size");

static const char default_path[] = "profile.csv";

static const char *path_of(const struct erg_hook *hook)
{
    return hook->profile->path ? hook->profile->path : default_path;
}

/* ---- open and close ---- */

/* The exchange of a single rank. */
static int tell_oneself(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    memcpy(all, mine, bytes);
    return 0;
}

static void set_ranks(struct hook_profile *profile, erg_hook_exchange *exchange, void *context,
                      size_t ranks)
{
    profile->exchange = exchange;
    profile->context = context;
    profile->ranks = ranks;
    free(profile->messages);
    profile->messages = erg_xcalloc(ranks, sizeof *profile->messages);
}

void erg_hook_profile_open(struct erg_hook *hook)
{
    struct hook_profile *profile = erg_xcalloc(1, sizeof *profile);
    profile->order = erg_xcalloc(HOOK_PROFILE_PASSES, sizeof *profile->order);
    profile->clock_mhz = hook->clocks.clocks_mhz[hook->clocks.count - 1];
    profile->block = 1;
    profile->nonce =
        erg_hash_u64((uint64_t)erg_now_ns() ^ (uint64_t)(uintptr_t)profile, (uint64_t)getpid());
    set_ranks(profile, tell_oneself, NULL, 1);
    hook->profile = profile;
}

void erg_hook_profile_close(struct erg_hook *hook)
{
    struct hook_profile *profile = hook->profile;
    if (!profile)
        return;
    if (!profile->over)
        erg_log(ERG_LOG_WARNING, "the hook was closed before all clocks were tried%s%s",
                profile->said[0] ? ": " : "", profile->said);
    erg_hook_rows_release(&profile->rows);
    free(profile->messages);
    free(profile->order);
    free(profile->path);
    free(profile);
    hook->profile = NULL;
}

int erg_hook_profile_agree(struct erg_hook *hook, erg_hook_exchange *exchange, void *context,
                           size_t ranks, struct erg_error *err)
{
    if (hook->steps > 0 || hook->in_step)
        return erg_fail(err, ERG_USAGE,
                        "making a profile: erg_hook_agree() came after a step, expected it before "
                        "the first one");
    if (exchange)
        set_ranks(hook->profile, exchange, context, ranks);
    else
        set_ranks(hook->profile, tell_oneself, NULL, 1);
    return 0;
}

int erg_hook_profile_to(struct erg_hook *hook, const char *path, struct erg_error *err)
{
    if (erg_hook_check(hook, "making a profile", err) != 0)
        return -1;
    if (!hook->profile || hook->steps > 0 || hook->in_step)
        return erg_fail(err, ERG_USAGE,
                        "making a profile: '%s' came %s, expected it before the first step of a "
                        "hook of mode ERG_HOOK_PROFILE",
                        path, hook->profile ? "after a step" : "for another mode");
    free(hook->profile->path);
    hook->profile->path = erg_xstrdup(path);
    return 0;
}

/* ---- the order of passes ---- */

static void name_pass(struct erg_text *text, const struct erg_pass_came *pass)
{
    erg_text_printf(text, "%s pass", erg_pass_kind_name(pass->kind));
    if (pass->microbatch >= 0)
        erg_text_printf(text, " of microbatch %d", pass->microbatch);
    if (pass->chunk > 0)
        erg_text_printf(text, "%s chunk %d", pass->microbatch >= 0 ? " on" : " of", pass->chunk);
}

/* `came` NULL: the step ended. */
static int other_order(struct erg_hook *hook, const struct erg_pass_came *came,
                       struct erg_error *err)
{
    const struct hook_profile *profile = hook->profile;
    struct erg_text text = {0};
    erg_text_printf(&text, "step %" PRId64 ", pass %u of stage %d: ", hook->steps, hook->position,
                    hook->options.stage);
    if (came)
        name_pass(&text, came);
    else
        erg_text_add(&text, "the end of the step");
    erg_text_add(&text, " came, expected ");
    if (hook->position < profile->count)
        name_pass(&text, &profile->order[hook->position]);
    else
        erg_text_printf(&text, "the end of the step after %u passes", profile->count);
    erg_text_add(&text,
                 " as in the first step: all steps need the same order while a profile is made, "
                 "and an evaluation needs erg_hook_pause() before it");
    int result = erg_hook_mistake(hook, err, text.data);
    erg_text_release(&text);
    return result;
}

static bool is_same(int a, int b)
{
    return a < 0 || b < 0 || a == b;
}

static int take_pass(struct erg_hook *hook, const struct erg_pass_came *came, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    if (!profile->learned) {
        if (profile->count == HOOK_PROFILE_PASSES)
            return erg_hook_mistake(hook, err, "a step has more passes than a profile can have");
        profile->order[profile->count++] = *came;
    } else {
        const struct erg_pass_came *wanted = &profile->order[hook->position];
        if (hook->position >= profile->count || came->kind != wanted->kind ||
            !is_same(came->chunk, wanted->chunk) || !is_same(came->microbatch, wanted->microbatch))
            return other_order(hook, came, err);
    }
    hook->position++;
    return 0;
}

int erg_hook_profile_pass(struct erg_hook *hook, const struct erg_pass_came *came,
                          struct erg_error *err)
{
    if (hook->unchecked || hook->profile->over || came->kind == ERG_OTHER)
        return 0;
    if (came->kind == ERG_BACKWARD_WEIGHT)
        return erg_hook_mistake(hook, err,
                                "the trainer runs a zero-bubble schedule, which splits backward "
                                "passes: a profile has whole ones only");
    /* The number of classes with energies, including other work and waiting. */
    if (2 * came->chunk + 2 > ERG_DECONVOLUTION_CLASSES - 2)
        return erg_hook_mistake(hook, err, "a stage has more chunks than a profile can have");
    return hook->plan ? 0 : take_pass(hook, came, err);
}

static size_t count_all(const struct erg_hook *hook)
{
    return hook->plan ? hook->plan->schedule.per_stage : hook->profile->count;
}

/* Forward and backward passes of a chunk in the step. */
static void count_passes(const struct erg_hook *hook, size_t chunk, size_t counts[2])
{
    const struct hook_profile *profile = hook->profile;
    counts[ERG_FORWARD] = counts[ERG_BACKWARD] = 0;
    for (uint32_t i = 0; i < count_all(hook); i++) {
        const int at = hook->plan ? (int)hook->instructions[i].chunk : profile->order[i].chunk;
        const int kind = hook->plan ? (int)hook->instructions[i].direction : profile->order[i].kind;
        assert(kind == ERG_FORWARD || kind == ERG_BACKWARD);
        counts[kind] += (at < 0 ? 0 : (size_t)at) == chunk;
    }
}

/* The passes of the first step must be those of a pipeline. */
static int learn(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    size_t counts[2], chunks = 0;
    char text[200];
    do {
        count_passes(hook, chunks, counts);
        if (chunks == 0)
            profile->microbatches = counts[ERG_FORWARD];
        if (chunks == 0 || counts[ERG_FORWARD] || counts[ERG_BACKWARD])
            chunks++;
        else
            break;
        if (!counts[ERG_FORWARD] || counts[ERG_FORWARD] != counts[ERG_BACKWARD] ||
            counts[ERG_FORWARD] != profile->microbatches) {
            snprintf(
                text, sizeof text,
                "the first step had %zu forward and %zu backward passes of chunk %zu, expected "
                "as many of both, and of each chunk",
                counts[ERG_FORWARD], counts[ERG_BACKWARD], chunks - 1);
            return erg_hook_mistake(hook, err, text);
        }
    } while (chunks < ERG_DECONVOLUTION_CLASSES);
    if (2 * chunks * profile->microbatches != count_all(hook))
        return erg_hook_mistake(hook, err,
                                "chunks of the first step are not numbered from 0 without gaps");
    profile->chunks = chunks;
    profile->learned = true;
    return 0;
}

int erg_hook_profile_end(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    if (hook->unchecked || profile->over)
        return 0;
    if (!profile->learned)
        return learn(hook, err);
    return !hook->plan && hook->position < profile->count ? other_order(hook, NULL, err) : 0;
}

/* ---- classes ---- */

size_t erg_hook_profile_class(struct erg_hook *hook, const struct erg_pass_came *came)
{
    const int chunk = came->chunk < 0 ? 0 : came->chunk;
    for (size_t i = 0; i < hook->class_count; i++)
        if (hook->classes[i].kind == came->kind && hook->classes[i].chunk == chunk)
            return i;
    return erg_hook_find_class(hook, came->kind, chunk, hook->profile->clock_mhz, (double)NAN);
}

void erg_hook_profile_turn(struct erg_hook *hook, uint64_t block, int clock_mhz)
{
    struct hook_profile *profile = hook->profile;
    if (atomic_load(&profile->turned) == block)
        return;
    for (size_t i = 0; i < hook->class_count; i++)
        erg_hook_clear_class(&hook->classes[i], clock_mhz);
    erg_hook_energy_restart(hook->energy, block);
    atomic_store(&profile->turned, block);
}

/* ---- this rank's results for the block ---- */

struct finding {
    double time_s, energy_j, uncertainty; /* the latter as a share; NaN: unknown */
};

static struct finding find(const struct erg_hook *hook, int kind, int chunk)
{
    const struct hook_profile *profile = hook->profile;
    const struct finding unknown = {(double)NAN, (double)NAN, (double)NAN};
    const struct erg_pass_came pass = {kind, chunk, -1};
    size_t class = 0;
    while (class < hook->class_count &&
           (hook->classes[class].kind != pass.kind || hook->classes[class].chunk != pass.chunk))
        class ++;
    if (class == hook->class_count || atomic_load(&profile->turned) != profile->block ||
        erg_hook_energy_block(hook->energy) != profile->block)
        return unknown;
    const struct hook_tally tally = erg_hook_read_class(&hook->classes[class]);
    const struct erg_class_power power = erg_hook_energy_of(hook->energy, class);
    if (tally.count < 2 || !power.measured || !(power.power_w > 0))
        return unknown;
    const double n = (double)tally.count, mean_s = tally.total_s / n;
    const double variance_s2 = fmax(tally.squares_s2 / n - mean_s * mean_s, 0) * n / (n - 1);
    const double error_s = erg_student_critical(tally.count - 1, 0.95) * sqrt(variance_s2 / n);
    const struct finding found = {mean_s, power.power_w * mean_s,
                                  fmax(error_s / mean_s, power.uncertainty_w / power.power_w)};
    return found.uncertainty <= KNOWN_LEAST ? found : unknown;
}

static bool knows_enough(const struct erg_hook *hook)
{
    for (size_t chunk = 0; chunk < hook->profile->chunks; chunk++)
        for (int kind = ERG_FORWARD; kind <= ERG_BACKWARD; kind++)
            if (!(find(hook, kind, (int)chunk).uncertainty <= KNOWN))
                return false;
    return true;
}

/* ---- messages ---- */

static struct hook_profile_message begin_message(const struct erg_hook *hook, int32_t form)
{
    return (struct hook_profile_message){
        .version = VERSION,
        .form = form,
        .stage = hook->options.stage,
        .replica = hook->options.replica,
        .step = hook->steps,
        .nonce = hook->profile->nonce,
        .clock_mhz = hook->profile->clock_mhz,
    };
}

static struct hook_profile_message status_of(const struct erg_hook *hook)
{
    const struct hook_profile *profile = hook->profile;
    struct hook_profile_message status = begin_message(hook, STATUS);
    status.chunk = (int32_t)profile->chunks;
    status.count = (int32_t)profile->microbatches;
    status.flags = !hook_sets_clocks(hook) ? ENDED : knows_enough(hook) ? KNOWS : 0;
    status.time_s = 1;
    status.energy_j = erg_hook_energy_block(hook->energy) == profile->block
                          ? erg_hook_energy_of(hook->energy, ERG_HOOK_WAITING).power_w
                          : (double)NAN;
    return status;
}

static struct hook_profile_message row_of(const struct erg_hook *hook, size_t chunk, int kind)
{
    struct hook_profile_message row = begin_message(hook, ROW);
    const struct finding found = find(hook, kind, (int)chunk);
    row.chunk = (int32_t)chunk;
    row.flags = kind;
    row.time_s = found.time_s;
    row.energy_j = found.energy_j;
    row.count = (int32_t)fmin(1e6 * found.uncertainty, 1e9); /* fmin turns NaN into 1e9 */
    return row;
}

/*
 * Whether another rank is at the same place as this one. A rank that has ended may have no values.
 */
static bool is_alike(const struct hook_profile *profile, const struct hook_profile_message *one,
                     const struct hook_profile_message *mine)
{
    const bool ends = mine->form == STATUS && (one->flags == ENDED || mine->flags == ENDED);
    return one->version == mine->version && one->form == mine->form && one->step == mine->step &&
           one->clock_mhz == mine->clock_mhz && one->stage >= 0 &&
           (size_t)one->stage < profile->ranks && (ends || one->chunk == mine->chunk) &&
           (ends || mine->form == ROW || one->count == mine->count);
}

static int exchange(struct erg_hook *hook, const struct hook_profile_message *mine,
                    struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    if (profile->exchange(profile->context, mine, profile->messages, sizeof *mine) != 0) {
        erg_hook_end_clocks(hook, "making a profile: the caller's exchange failed");
        profile->over = true;
        return erg_fail(err, ERG_FAILED,
                        "making a profile after step %" PRId64 ": the caller's exchange failed",
                        hook->steps);
    }
    for (size_t i = 0; i < profile->ranks; i++) {
        const struct hook_profile_message *one = &profile->messages[i];
        if (is_alike(profile, one, mine))
            continue;
        erg_hook_end_clocks(hook, "making a profile: ranks differ");
        profile->over = true;
        return erg_fail(
            err, ERG_FAILED,
            "making a profile after step %" PRId64
            ": rank %zu has version %d, stage %d, step %" PRId64
            ", %d MHz, %d chunks and %d microbatches, expected version %d, step %" PRId64
            ", %d MHz, %d chunks and %d microbatches on all of %zu ranks",
            hook->steps, i, one->version, one->stage, one->step, one->clock_mhz, one->chunk,
            one->count, mine->version, mine->step, mine->clock_mhz, mine->chunk, mine->count,
            profile->ranks);
    }
    return 0;
}

/* ---- rounds ---- */

/* After the first statuses: finds the number of stages and the rank that writes. */
static int agree(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    size_t stages = 0;
    for (size_t i = 0; i < profile->ranks; i++)
        if ((size_t)profile->messages[i].stage >= stages)
            stages = (size_t)profile->messages[i].stage + 1;
    for (size_t s = 0, i; s < stages; s++) {
        for (i = 0; i < profile->ranks && (size_t)profile->messages[i].stage != s; i++)
            ;
        if (i < profile->ranks)
            continue;
        erg_hook_end_clocks(hook, "making a profile: a stage is missing");
        profile->over = true;
        return erg_fail(err, ERG_USAGE,
                        "making a profile: none of %zu ranks is stage %zu, expected one of each of "
                        "%zu stages",
                        profile->ranks, s, stages);
    }
    const struct erg_hook_shape shape = {stages, profile->chunks, profile->microbatches};
    erg_hook_rows_init(&profile->rows, &shape);
    profile->writes = profile->messages[0].nonce == profile->nonce;
    profile->agreed = true;
    return 0;
}

static void write_rows(struct erg_hook *hook)
{
    struct hook_profile *profile = hook->profile;
    struct erg_text text = {0};
    struct erg_error why;
    if (!profile->writes || !profile->rows.count)
        return;
    erg_hook_rows_write(&profile->rows, &text);
    if (erg_file_write(path_of(hook), text.data, text.count, &why) != 0) {
        erg_log(ERG_LOG_WARNING, "%s; no further clock is tried", why.message);
        erg_hook_end_clocks(hook, why.message);
        profile->said[0] = '\0';
    } else {
        text.count = 0;
        erg_hook_rows_say(&profile->rows, path_of(hook), &text);
        snprintf(profile->said, sizeof profile->said, "%s", text.data);
    }
    erg_text_release(&text);
}

/* `why` NULL: all useful clocks were tried. */
static void finish(struct erg_hook *hook, const char *why)
{
    struct hook_profile *profile = hook->profile;
    struct erg_error locked = {0};
    profile->over = true;
    if (why)
        erg_hook_end_clocks(hook, why);
    else if (erg_clock_thread_stop(hook->clock.thread, &locked) != 0)
        erg_hook_end_clocks(hook, locked.message);
    if (profile->writes && !profile->rows.count)
        erg_log(ERG_LOG_WARNING, "no profile is written: %s",
                why ? why : "the energy of passes could not be determined at any clock");
    else if (profile->writes)
        erg_log(why ? ERG_LOG_WARNING : ERG_LOG_INFO, "%s%s%s", why ? why : "", why ? "; " : "",
                profile->said);
}

/* 0: The next clock to try; 0: none. */
static int next_clock(const struct erg_hook *hook)
{
    const struct erg_clock_list *clocks = &hook->clocks;
    const double most_mhz = CLOCK_STEP * hook->profile->clock_mhz;
    for (size_t i = clocks->count; i-- > 0;)
        if (clocks->clocks_mhz[i] <= most_mhz)
            return clocks->clocks_mhz[i];
    return 0;
}

static int exchange_rows(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    for (size_t chunk = 0; chunk < profile->chunks; chunk++)
        for (int kind = ERG_FORWARD; kind <= ERG_BACKWARD; kind++) {
            const struct hook_profile_message row = row_of(hook, chunk, kind);
            if (exchange(hook, &row, err) != 0)
                return -1;
            for (size_t i = 0; i < profile->ranks; i++) {
                const struct hook_profile_message *one = &profile->messages[i];
                erg_hook_rows_add(&profile->rows, (size_t)one->stage, chunk,
                                  (enum erg_direction)kind, one->time_s, one->energy_j,
                                  1e-6 * one->count);
            }
        }
    return 0;
}

/* All ranks have the same statuses: completes this clock. */
static int end_clock(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    erg_hook_rows_begin(&profile->rows, profile->clock_mhz);
    for (size_t i = 0; i < profile->ranks; i++)
        erg_hook_rows_wait(&profile->rows, profile->messages[i].energy_j);
    if (exchange_rows(hook, err) != 0)
        return -1;
    if (erg_hook_rows_end(&profile->rows))
        write_rows(hook);
    const int clock_mhz = next_clock(hook);
    if (!clock_mhz || erg_hook_rows_suffice(&profile->rows)) {
        finish(hook, NULL);
        return 0;
    }
    profile->clock_mhz = clock_mhz;
    profile->block++;
    profile->block_steps = 0;
    return 0;
}

static int hold_round(struct erg_hook *hook, bool last, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    const struct hook_profile_message status = status_of(hook);
    if (exchange(hook, &status, err) != 0)
        return -1;
    bool known = true;
    for (size_t i = 0; i < profile->ranks; i++) {
        char why[128];
        known = known && profile->messages[i].flags == KNOWS;
        if (profile->messages[i].flags != ENDED)
            continue;
        snprintf(why, sizeof why,
                 "making a profile: rank %zu sets no clocks any more, before all were tried", i);
        finish(hook, why);
        return 0;
    }
    if (!profile->agreed && agree(hook, err) != 0)
        return -1;
    return known || last ? end_clock(hook, err) : 0;
}

/* ---- steps ---- */

int erg_hook_profile_begin(struct erg_hook *hook, struct erg_error *err)
{
    const struct hook_profile *profile = hook->profile;
    if (profile->exchange != tell_oneself || !(hook->options.stage || hook->options.replica))
        return 0;
    erg_hook_end_clocks(hook, "making a profile: ranks have not agreed");
    return erg_fail(err, ERG_USAGE,
                    "making a profile: stage %d of replica %d is not alone, expected "
                    "erg_hook_agree() before the first step",
                    hook->options.stage, hook->options.replica);
}

int erg_hook_profile_step(struct erg_hook *hook, struct erg_error *err)
{
    struct hook_profile *profile = hook->profile;
    if (profile->over)
        return 0;
    profile->block_steps++;
    if (profile->block_steps == SETTLE)
        profile->block++;
    const int measured = profile->block_steps - SETTLE;
    if (measured <= 0 || measured % ROUND != 0)
        return 0;
    return hold_round(hook, measured >= MOST_STEPS, err);
}
