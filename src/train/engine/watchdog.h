/*
 * Watchdog: a thread that notices a step in which nothing is finished any more: a rank that hangs,
 * or ranks that wait for each other. It fails the job with one sentence, which says who is furthest
 * behind, and so ends the waiting of all other ranks.
 *
 * The limit is the larger of 60 s and 20 times the median of the steps so far; of the first step,
 * which may load and tune kernels, 600 s.
 */
#ifndef ERG_TRAIN_ENGINE_WATCHDOG_H
#define ERG_TRAIN_ENGINE_WATCHDOG_H

#include "launch/rendezvous.h"

struct erg_watchdog;

struct erg_watchdog_options {
    double limit_s; /* in place of the rule above; 0: the rule */
    int rank;
    struct erg_rendezvous *rendezvous; /* outlives the watchdog; NULL: one rank */
    size_t instructions;               /* of each rank in a step */
    /* Says what an instruction of a rank is. */
    void (*describe)(const void *context, int rank, size_t instruction, char *text,
                     size_t capacity);
    const void *context;
    /* Called on the watchdog's thread where this rank itself does not come back although the job
     * has failed: nothing but the end of the process helps. NULL: nothing is called. */
    void (*stuck)(const char *sentence);
};

int erg_watchdog_open(struct erg_watchdog **watchdog, const struct erg_watchdog_options *options,
                      struct erg_error *err);
void erg_watchdog_close(struct erg_watchdog *watchdog); /* NULL is fine */

/* What is counted up, atomically and by any thread, whenever an instruction has been finished. */
uint64_t *erg_watchdog_finished(struct erg_watchdog *watchdog);

/* Between the two the thread watches. */
void erg_watchdog_begin(struct erg_watchdog *watchdog, uint64_t step);
void erg_watchdog_end(struct erg_watchdog *watchdog);

#endif
