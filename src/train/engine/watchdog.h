/*
 * Watchdog: a thread that detects a step in which this rank makes no progress: it hangs, or waits
 * for a rank that does. It fails the job with one message, which ends the waits of all ranks. Rank
 * 0 reports first, since it receives the progress of each rank: its message names the rank that is
 * furthest behind. The message of another rank gives that rank's own position.
 *
 * Devices count every instruction that they finish (`count` of device/backend.h). A device without
 * such a count counts whole steps: its limit applies to the whole step, and its position within a
 * step is unknown.
 *
 * The limit is the larger of 60 s and 20 times the median of the last 33 steps. It is 600 s in the
 * first step of a process, since no step was measured before. Only steps are watched: validation
 * and saving are not.
 */
#ifndef ERG_TRAIN_ENGINE_WATCHDOG_H
#define ERG_TRAIN_ENGINE_WATCHDOG_H

#include "launch/rendezvous.h"

struct erg_watchdog;

struct erg_watchdog_options {
    double limit_s; /* instead of the rule above; 0: the rule */
    int rank;
    struct erg_rendezvous *rendezvous; /* outlives the watchdog; NULL: one rank */
    size_t instructions;               /* of each rank in a step */
    /* Describes an instruction of a rank. */
    void (*describe)(const void *context, int rank, size_t instruction, char *text,
                     size_t capacity);
    const void *context;
    /*
     * Called on the watchdog's thread if this rank itself does not return although the job has
     * failed: only the end of the process helps. NULL: no call.
     */
    void (*stuck)(const char *sentence);
};

int erg_watchdog_open(struct erg_watchdog **watchdog, const struct erg_watchdog_options *options,
                      struct erg_error *err);
void erg_watchdog_close(struct erg_watchdog *watchdog); /* NULL is fine */

/* The counter that any thread increments atomically when an instruction has finished. */
uint64_t *erg_watchdog_finished(struct erg_watchdog *watchdog);

/* The thread watches between begin and end. */
void erg_watchdog_begin(struct erg_watchdog *watchdog, uint64_t step);
void erg_watchdog_end(struct erg_watchdog *watchdog);

#endif
