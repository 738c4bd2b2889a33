/* Detects steps whose instructions do not finish. */
#include "train/engine/watchdog.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/statistics.h"
#include "base/text.h"
#include "base/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DURATIONS = 33 }; /* steps for the median */

/* Rank 0 has the progress of all ranks, so the others let it report first. */
static const double patience_s = 2;
/* Time from the failure of the job to the end of a process that does not return. */
static const double parting_s = 5;

struct erg_watchdog {
    struct erg_watchdog_options options;
    uint64_t finished; /* incremented by any thread, atomically */
    pthread_t thread;

    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t changed;
    bool watching, closing;
    uint64_t step; /* the watched step */
    int64_t begun_ns;
    double durations_s[DURATIONS];
    size_t steps; /* measured so far */
};

static double limit_s(const struct erg_watchdog *watchdog)
{
    const double least_s = 60, first_s = 600, times = 20;
    double sorted[DURATIONS];
    size_t count = watchdog->steps < DURATIONS ? watchdog->steps : DURATIONS;
    if (watchdog->options.limit_s > 0)
        return watchdog->options.limit_s;
    if (count == 0)
        return first_s;
    memcpy(sorted, watchdog->durations_s, count * sizeof *sorted);
    double wanted_s = times * erg_median(sorted, count);
    return wanted_s > least_s ? wanted_s : least_s;
}

/* ---- its message ---- */

/* Counts of a step: its instructions and its end. */
static uint64_t per_step(const struct erg_watchdog *watchdog)
{
    return watchdog->options.instructions + 1;
}

static void say_place(const struct erg_watchdog *watchdog, struct erg_text *text, int rank,
                      uint64_t finished, uint64_t own)
{
    char what[128];
    uint64_t behind = own / per_step(watchdog) - finished / per_step(watchdog);
    size_t instruction = (size_t)(finished % per_step(watchdog));
    if (watchdog->options.instructions == 0) {
        erg_text_printf(text, "rank %d, in step %" PRIu64, rank, watchdog->step - behind);
        return;
    }
    snprintf(what, sizeof what, "the end");
    if (instruction < watchdog->options.instructions && watchdog->options.describe)
        watchdog->options.describe(watchdog->options.context, rank, instruction, what, sizeof what);
    erg_text_printf(text, "rank %d, at %s of step %" PRIu64, rank, what, watchdog->step - behind);
}

/* Adds the slowest rank; rank 0 has the progress of all, others only their own. */
static void say_who(const struct erg_watchdog *watchdog, struct erg_text *text, uint64_t own)
{
    struct erg_rendezvous *rendezvous = watchdog->options.rendezvous;
    size_t world = rendezvous ? (size_t)erg_rendezvous_world(rendezvous) : 1;
    if (watchdog->options.rank != 0 || world == 1) {
        say_place(watchdog, text, watchdog->options.rank, own, own);
        return;
    }
    uint64_t *heard = erg_xcalloc(world, sizeof *heard), least = own;
    erg_rendezvous_heard(rendezvous, heard);
    heard[0] = own;
    for (size_t i = 0; i < world; i++)
        least = heard[i] < least ? heard[i] : least;
    erg_text_add(text, "furthest behind: ");
    const char *separator = "";
    for (size_t i = 0; i < world; i++)
        if (heard[i] == least) {
            erg_text_add(text, separator);
            say_place(watchdog, text, (int)i, heard[i], own);
            separator = "; ";
        }
    free(heard);
}

/* The message; free it. */
static char *say_hang(const struct erg_watchdog *watchdog, double silent_s, uint64_t own)
{
    struct erg_text text = {0};
    erg_text_printf(&text, "the run hangs: nothing was finished for %.3g s; ", silent_s);
    say_who(watchdog, &text, own);
    return text.data;
}

/* ---- the thread ---- */

static void fail(struct erg_watchdog *watchdog, const char *sentence)
{
    if (watchdog->options.rendezvous)
        erg_rendezvous_abort(watchdog->options.rendezvous, sentence);
}

static void *watch(void *argument)
{
    struct erg_watchdog *watchdog = argument;
    const int64_t look_ns = 100000000;
    uint64_t last = 0, step = 0;
    int64_t now_ns = erg_now_ns(), last_ns = now_ns, failed_ns = now_ns;
    char *sentence = NULL;
    struct erg_error failure;
    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->closing) {
        int64_t before_ns = now_ns;
        erg_condition_wait(&watchdog->changed, &watchdog->lock, now_ns + look_ns);
        now_ns = erg_now_ns();
        uint64_t own = __atomic_load_n(&watchdog->finished, __ATOMIC_RELAXED);
        if (watchdog->options.rendezvous)
            erg_rendezvous_tell(watchdog->options.rendezvous, own);
        /* A process that was stopped itself cannot judge that time. */
        bool overslept = now_ns - before_ns > 10 * look_ns;
        if (!watchdog->watching || own != last || step != watchdog->step || overslept)
            last_ns = now_ns;
        last = own;
        step = watchdog->step;
        double silent_s = 1e-9 * (double)(now_ns - last_ns);
        double most_s = limit_s(watchdog) + (watchdog->options.rank ? patience_s : 0);
        bool alone = !watchdog->options.rendezvous;
        if (silent_s > most_s && !sentence) {
            sentence = say_hang(watchdog, silent_s, own);
            fail(watchdog, sentence);
        }
        /* The thread that queues work for the device is blocked there and cannot check. */
        if (alone || !watchdog->watching ||
            erg_rendezvous_check(watchdog->options.rendezvous, &failure) == 0)
            failed_ns = now_ns;
        if (1e-9 * (double)(now_ns - failed_ns) > parting_s && watchdog->options.stuck)
            watchdog->options.stuck(failure.message);
        if (sentence && silent_s > most_s + (alone ? 0 : parting_s) && watchdog->options.stuck)
            watchdog->options.stuck(sentence);
    }
    pthread_mutex_unlock(&watchdog->lock);
    free(sentence);
    return NULL;
}

/* ---- the rank ---- */

int erg_watchdog_open(struct erg_watchdog **out, const struct erg_watchdog_options *options,
                      struct erg_error *err)
{
    struct erg_watchdog *watchdog = erg_xcalloc(1, sizeof *watchdog);
    watchdog->options = *options;
    pthread_mutex_init(&watchdog->lock, NULL);
    erg_condition_init(&watchdog->changed);
    int code = erg_thread_start(&watchdog->thread, watch, watchdog);
    if (code == 0) {
        *out = watchdog;
        return 0;
    }
    pthread_cond_destroy(&watchdog->changed);
    pthread_mutex_destroy(&watchdog->lock);
    free(watchdog);
    return erg_fail(err, ERG_FAILED, "rank %d cannot start the thread that watches its steps: %s",
                    options->rank, strerror(code));
}

void erg_watchdog_close(struct erg_watchdog *watchdog)
{
    if (!watchdog)
        return;
    pthread_mutex_lock(&watchdog->lock);
    watchdog->closing = true;
    pthread_cond_signal(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->changed);
    pthread_mutex_destroy(&watchdog->lock);
    free(watchdog);
}

uint64_t *erg_watchdog_finished(struct erg_watchdog *watchdog)
{
    return &watchdog->finished;
}

void erg_watchdog_begin(struct erg_watchdog *watchdog, uint64_t step)
{
    pthread_mutex_lock(&watchdog->lock);
    watchdog->watching = true;
    watchdog->step = step;
    watchdog->begun_ns = erg_now_ns();
    pthread_mutex_unlock(&watchdog->lock);
}

void erg_watchdog_end(struct erg_watchdog *watchdog)
{
    pthread_mutex_lock(&watchdog->lock);
    watchdog->watching = false;
    watchdog->durations_s[watchdog->steps++ % DURATIONS] =
        1e-9 * (double)(erg_now_ns() - watchdog->begun_ns);
    pthread_mutex_unlock(&watchdog->lock);
    __atomic_add_fetch(&watchdog->finished, 1, __ATOMIC_RELAXED);
}
