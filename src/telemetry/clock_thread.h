/*
 * Clock thread: sets the SM clock of one GPU while others work, because threads that queue work or
 * run a step must not wait for the driver.
 *
 * The owner determines the due clock; the thread sets it. It asks the owner's `due`, calls the
 * driver where the answer is another clock than the one set, and asks again. So a slow call causes
 * no wait, and after it the newest clock is set: clocks that were due in between are skipped. Where
 * the driver refuses, or the guardian of the clocks ends, the GPU is left at its own clocks for
 * good.
 *
 * Users are training by plan (train/engine/clock_controller.h) and hooks (hooks/hook_internal.h).
 */
#ifndef ERG_TELEMETRY_CLOCK_THREAD_H
#define ERG_TELEMETRY_CLOCK_THREAD_H

#include "telemetry/clocks.h"

struct erg_clock_thread;

/* The answer of `due`; zeroed except again_ns before the call. */
struct erg_clock_due {
    int clock_mhz;    /* of the GPU from now on; 0: unchanged */
    int64_t since_ns; /* at the earliest this was due then; 0: now */
    int64_t again_ns; /* when to ask again, of erg_now_ns(); INT64_MAX: once the thread is woken */
};

struct erg_clock_thread_options {
    struct erg_gpus *gpus; /* kept open as long as they are needed */
    size_t gpu;            /* an index into them */
    /* Called by the thread alone, with no lock held. */
    void (*due)(void *context, int64_t now_ns, struct erg_clock_due *due);
    /* Likewise, after the driver accepted a clock; NULL: no callback. */
    void (*accepted)(void *context, int clock_mhz, int64_t begin_ns, int64_t end_ns);
    void *context;
    bool required;         /* a refusal is a failure, else a warning */
    const char *otherwise; /* what happens then instead: the end of that warning */
};

/*
 * Starts the guardian, tries the GPU once, and starts the thread. Where clocks are refused:
 * ERG_NO_DEVICE if they are required, else a warning and a thread that sets nothing.
 */
int erg_clock_thread_open(struct erg_clock_thread **thread,
                          const struct erg_clock_thread_options *options, struct erg_error *err);

/* As open does where a caller cannot have clocks for the reason in `why`, which it owns. */
int erg_clock_thread_refuse(struct erg_clock_thread **thread,
                            const struct erg_clock_thread_options *options,
                            const struct erg_error *why, struct erg_error *err);

/* Unlocks the GPU. Fails as erg_clocks_close() does; the thread is gone all the same. NULL is fine.
 */
int erg_clock_thread_close(struct erg_clock_thread *thread, struct erg_error *err);

/* The answer of `due` has changed. Called by any thread; no system call while the thread is
 * awake. */
void erg_clock_thread_wake(struct erg_clock_thread *thread);

/* Waits for a call of the driver that is under way, ends the thread, and unlocks the GPU: `due` is
 * not called any more. */
int erg_clock_thread_stop(struct erg_clock_thread *thread, struct erg_error *err);

/* Whether clocks are refused; then `why`, if not NULL, has the sentence, ERG_NO_DEVICE. The
 * guardian may end while nothing is set. Called by any thread; never waits. */
bool erg_clock_thread_refused(struct erg_clock_thread *thread, struct erg_error *why);

struct erg_clock_thread_numbers {
    uint64_t set; /* the driver accepted */
    /* Durations of the driver's calls, and of the delay from the due time to the call. NaN without
     * calls. */
    double call_mean_s, call_worst_s, late_mean_s, late_worst_s;
};

/* Called by any thread; never waits. */
void erg_clock_thread_read(const struct erg_clock_thread *thread,
                           struct erg_clock_thread_numbers *numbers);

#endif
