/* A thread that sets the clock that is due now, never an older one. */
#define _GNU_SOURCE /* ppoll */
#include "telemetry/clock_thread.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Sums grow after `set`, so that a mean never exceeds the worst value. */
struct tally {
    _Atomic uint64_t total_ns, worst_ns;
};

struct erg_clock_thread {
    struct erg_clock_thread_options options;
    struct erg_clocks *clocks; /* NULL: refused from the beginning, without a thread */
    pthread_t thread;
    int bell; /* eventfd */
    atomic_bool asleep, closing;
    bool ended; /* the thread */
    _Atomic uint64_t set;
    struct tally calls, lates;
    /* The thread that detects the refusal first writes it once, before `refused`. */
    atomic_flag refusing;
    atomic_bool refused;
    struct erg_error refusal;
};

static void count_ns(struct tally *tally, int64_t ns)
{
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    if (value > atomic_load(&tally->worst_ns))
        atomic_store(&tally->worst_ns, value);
    atomic_fetch_add(&tally->total_ns, value);
}

static void refuse(struct erg_clock_thread *thread, const struct erg_error *why)
{
    if (atomic_flag_test_and_set(&thread->refusing))
        return;
    erg_fail(&thread->refusal, ERG_NO_DEVICE, "clocks: refused: %s", why->message);
    atomic_store(&thread->refused, true);
    /* Callers that require clocks get the failure; the end of the guardian was already logged. */
    if (!thread->options.required && (!thread->clocks || erg_clocks_guarded(thread->clocks)))
        erg_log(ERG_LOG_WARNING, "%s; %s", thread->refusal.message, thread->options.otherwise);
}

/* ---- the thread ---- */

static void set_clock(struct erg_clock_thread *thread, const struct erg_clock_due *due,
                      int64_t now_ns)
{
    const struct erg_clock_thread_options *options = &thread->options;
    struct erg_error err;
    int64_t begin_ns = erg_now_ns();
    int result = erg_clocks_set(thread->clocks, options->gpu, due->clock_mhz, &err);
    int64_t end_ns = erg_now_ns();
    if (result != 0) {
        erg_clocks_reset(thread->clocks, options->gpu,
                         NULL); /* the previous clock may still be locked */
        refuse(thread, &err);
        return;
    }
    atomic_fetch_add(&thread->set, 1);
    count_ns(&thread->calls, end_ns - begin_ns);
    count_ns(&thread->lates, begin_ns - (due->since_ns ? due->since_ns : now_ns));
    if (options->accepted)
        options->accepted(options->context, due->clock_mhz, begin_ns, end_ns);
}

/* Sleeps until then, or until the bell rings. */
static void sleep_until(struct erg_clock_thread *thread, int64_t until_ns, int64_t now_ns)
{
    const int64_t left_ns = until_ns - now_ns;
    struct pollfd bell = {thread->bell, POLLIN, 0};
    struct timespec wait = {left_ns / 1000000000, left_ns % 1000000000};
    uint64_t rings;
    if (left_ns > 0 && ppoll(&bell, 1, until_ns == INT64_MAX ? NULL : &wait, NULL) > 0)
        (void)!read(thread->bell, &rings, sizeof rings);
}

static void *control(void *argument)
{
    struct erg_clock_thread *thread = argument;
    int set_mhz = 0;
    while (!atomic_load(&thread->closing)) {
        const int64_t now_ns = erg_now_ns();
        struct erg_clock_due due = {.again_ns = INT64_MAX};
        /* Before the check, so that later changes ring the bell. */
        atomic_store(&thread->asleep, true);
        if (!atomic_load(&thread->refused))
            thread->options.due(thread->options.context, now_ns, &due);
        if (due.clock_mhz && due.clock_mhz != set_mhz) {
            atomic_store(&thread->asleep, false);
            set_mhz = due.clock_mhz;
            set_clock(thread, &due, now_ns);
        } else if (!atomic_load(&thread->closing)) {
            sleep_until(thread, due.again_ns, now_ns);
        }
    }
    return NULL;
}

/* ---- the owner ---- */

static int open_clocks(struct erg_clock_thread *thread, struct erg_error *err)
{
    const struct erg_clock_thread_options *options = &thread->options;
    if (erg_clocks_open(&thread->clocks, options->gpus, err) != 0)
        return -1;
    int code = 0;
    if (erg_clocks_try(thread->clocks, options->gpu, err) == 0) {
        thread->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        code = thread->bell < 0 ? errno : erg_thread_start(&thread->thread, control, thread);
        if (code == 0)
            return 0;
        erg_fail(err, ERG_FAILED, "setting clocks in the background: no thread (%s)",
                 strerror(code));
    }
    erg_clocks_close(thread->clocks, NULL);
    thread->clocks = NULL;
    return -1;
}

static struct erg_clock_thread *new_thread(const struct erg_clock_thread_options *options)
{
    struct erg_clock_thread *thread = erg_xcalloc(1, sizeof *thread);
    thread->options = *options;
    thread->bell = -1;
    atomic_flag_clear(&thread->refusing);
    return thread;
}

static int end_refused(struct erg_clock_thread **out, struct erg_clock_thread *thread,
                       const struct erg_error *why, struct erg_error *err)
{
    refuse(thread, why);
    *out = thread;
    if (!thread->options.required)
        return 0;
    if (err)
        *err = thread->refusal;
    erg_clock_thread_close(thread, NULL);
    *out = NULL;
    return -1;
}

int erg_clock_thread_open(struct erg_clock_thread **out,
                          const struct erg_clock_thread_options *options, struct erg_error *err)
{
    struct erg_clock_thread *thread = new_thread(options);
    struct erg_error why;
    if (open_clocks(thread, &why) != 0)
        return end_refused(out, thread, &why, err);
    *out = thread;
    return 0;
}

int erg_clock_thread_refuse(struct erg_clock_thread **out,
                            const struct erg_clock_thread_options *options,
                            const struct erg_error *why, struct erg_error *err)
{
    return end_refused(out, new_thread(options), why, err);
}

/* Waits for a pending call of the driver. */
static void end_thread(struct erg_clock_thread *thread)
{
    if (thread->ended)
        return;
    atomic_store(&thread->closing, true);
    erg_thread_wake(thread->bell);
    pthread_join(thread->thread, NULL);
    thread->ended = true;
}

int erg_clock_thread_close(struct erg_clock_thread *thread, struct erg_error *err)
{
    if (!thread)
        return 0;
    if (thread->clocks)
        end_thread(thread);
    int result = erg_clocks_close(thread->clocks, err);
    if (thread->bell >= 0)
        close(thread->bell);
    free(thread);
    return result;
}

void erg_clock_thread_wake(struct erg_clock_thread *thread)
{
    if (thread->clocks && atomic_exchange(&thread->asleep, false))
        erg_thread_wake(thread->bell);
}

int erg_clock_thread_stop(struct erg_clock_thread *thread, struct erg_error *err)
{
    if (!thread->clocks || thread->ended)
        return 0;
    end_thread(thread);
    return erg_clocks_reset(thread->clocks, thread->options.gpu, err);
}

bool erg_clock_thread_refused(struct erg_clock_thread *thread, struct erg_error *why)
{
    if (!atomic_load(&thread->refused) && !erg_clocks_guarded(thread->clocks)) {
        struct erg_error gone = {0};
        erg_fail(&gone, ERG_NO_DEVICE,
                 "their guardian has ended before this run, expected it to live as long");
        refuse(thread, &gone);
    }
    if (!atomic_load(&thread->refused))
        return false;
    if (why)
        *why = thread->refusal;
    return true;
}

static double mean_s(const struct tally *tally, uint64_t count)
{
    return count ? 1e-9 * (double)atomic_load(&tally->total_ns) / (double)count : (double)NAN;
}

static double worst_s(const struct tally *tally, uint64_t count)
{
    return count ? 1e-9 * (double)atomic_load(&tally->worst_ns) : (double)NAN;
}

void erg_clock_thread_read(const struct erg_clock_thread *thread,
                           struct erg_clock_thread_numbers *numbers)
{
    numbers->set = atomic_load(&thread->set);
    numbers->call_mean_s = mean_s(&thread->calls, numbers->set);
    numbers->call_worst_s = worst_s(&thread->calls, numbers->set);
    numbers->late_mean_s = mean_s(&thread->lates, numbers->set);
    numbers->late_worst_s = worst_s(&thread->lates, numbers->set);
}
