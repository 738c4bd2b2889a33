/*
 * Clock thread: sets the SM clock of one GPU while others work, because threads that queue work or
 * run a step must not wait for the driver.
 *
 * The owner determines the due clock; the thread sets it. It calls the owner's `due`, calls the
 * driver if the due clock differs from the one set, and repeats. A slow call of the driver makes no
 * caller wait. After it, the thread sets the newest clock and skips those that were due in between.
 * If the driver refuses, or the guardian of the clocks ends, the thread leaves the GPU at its own
 * clocks for good.
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
    int64_t since_ns; /* the earliest time at which this was due; 0: now */
    int64_t again_ns; /* when to ask again, as erg_now_ns(); INT64_MAX: when the thread is woken */
};

struct erg_clock_thread_options {
    struct erg_gpus *gpus; /* kept open as long as they are needed */
    size_t gpu;            /* an index into them */
    /* Called by the thread alone, with no lock held. */
    void (*due)(void *context, int64_t now_ns, struct erg_clock_due *due);
    /* Called by the thread alone after the driver accepted a clock; NULL: no callback. */
    void (*accepted)(void *context, int clock_mhz, int64_t begin_ns, int64_t end_ns);
    void *context;
    bool required;         /* a refusal is a failure; otherwise a warning */
    const char *otherwise; /* end of the warning: what happens instead */
};

/*
 * Starts the guardian, tries the GPU once, and starts the thread. If clocks are refused:
 * ERG_NO_DEVICE if they are required, otherwise a warning and a thread that sets nothing.
 */
int erg_clock_thread_open(struct erg_clock_thread **thread,
                          const struct erg_clock_thread_options *options, struct erg_error *err);

/* The same as open for a caller that cannot have clocks. The caller owns `why`, the reason. */
int erg_clock_thread_refuse(struct erg_clock_thread **thread,
                            const struct erg_clock_thread_options *options,
                            const struct erg_error *why, struct erg_error *err);

/* Unlocks the GPU. Fails as erg_clocks_close() does; frees the thread in any case. NULL is fine. */
int erg_clock_thread_close(struct erg_clock_thread *thread, struct erg_error *err);

/* The answer of `due` has changed. Called by any thread; no system call while the thread is
 * awake. */
void erg_clock_thread_wake(struct erg_clock_thread *thread);

/*
 * Waits for a pending call of the driver, ends the thread and unlocks the GPU. `due` is not called
 * again.
 */
int erg_clock_thread_stop(struct erg_clock_thread *thread, struct erg_error *err);

/*
 * Whether clocks are refused; `why`, if not NULL, then gets the reason with ERG_NO_DEVICE. The
 * guardian may end while nothing is set. Called by any thread; never waits.
 */
bool erg_clock_thread_refused(struct erg_clock_thread *thread, struct erg_error *why);

struct erg_clock_thread_numbers {
    uint64_t set; /* clocks that the driver accepted */
    /* Durations of the driver's calls, and of the delay from the due time to the call. NaN without
     * calls. */
    double call_mean_s, call_worst_s, late_mean_s, late_worst_s;
};

/* Called by any thread; never waits. */
void erg_clock_thread_read(const struct erg_clock_thread *thread,
                           struct erg_clock_thread_numbers *numbers);

#endif
