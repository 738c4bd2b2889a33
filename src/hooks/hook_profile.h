/*
 * A profile made from ordinary steps (ERG_HOOK_PROFILE).
 *
 * All ranks hold one clock for a block of steps: a few to settle, then at most 40, until seconds
 * and joules of each class of passes are known to 1 %. Blocks end by agreement: every fourth step
 * each rank reports whether its values are accurate enough, and all compute the same decision from
 * the same bytes; then each rank sends its values, class by class. Rank 0 of the exchange writes
 * the file after each clock, so that a job that ends early leaves its measurements.
 *
 * Times come from the classes of the hook, which restart with each block. If the GPU runs behind
 * the trainer (hook_marks.h), the GPU's progress begins the block.
 */
#ifndef ERG_HOOKS_HOOK_PROFILE_H
#define ERG_HOOKS_HOOK_PROFILE_H

#include "ergon/hook.h"
#include "hooks/hook_order.h"
#include "hooks/hook_rows.h"

#include <stdatomic.h>

enum { HOOK_PROFILE_PASSES = 16384 }; /* the most passes of a step */

/* The message of a rank: 64 bytes. */
struct hook_profile_message {
    int32_t version, form; /* enum hook_profile_form */
    int32_t stage, replica;
    int64_t step;
    uint64_t nonce; /* distinguishes ranks */
    int32_t clock_mhz;
    int32_t chunk;           /* row: its chunk; status: the number of chunks */
    int32_t count;           /* status: microbatches; row: uncertainty, in millionths */
    int32_t flags;           /* status: enum hook_profile_flag; row: enum erg_direction */
    double time_s, energy_j; /* status: of waiting, per second */
};

struct hook_profile {
    /* The passes of the first step. */
    struct erg_pass_came *order; /* [HOOK_PROFILE_PASSES] */
    uint32_t count;
    bool learned;
    size_t chunks, microbatches;

    int clock_mhz;   /* the clock under trial */
    uint64_t block;  /* counted from 1; odd: steps to settle; even: measured steps */
    int block_steps; /* complete steps at this clock */
    bool over;

    erg_hook_exchange *exchange;
    void *context;
    size_t ranks;
    struct hook_profile_message *messages; /* [ranks] */
    uint64_t nonce;
    bool writes;               /* this is rank 0 */
    struct erg_hook_rows rows; /* valid once `agreed` */
    bool agreed;
    char *path; /* NULL: the default one */
    char said[512];

    _Atomic uint64_t turned; /* the block that the classes count */
};

struct erg_hook;

/* Clocks of the hook's GPU are known; `ranks` is 1 until erg_hook_profile_agree(). */
void erg_hook_profile_open(struct erg_hook *hook);
void erg_hook_profile_close(struct erg_hook *hook);
int erg_hook_profile_agree(struct erg_hook *hook, erg_hook_exchange *exchange, void *context,
                           size_t ranks, struct erg_error *err);

/* Called by the trainer's thread; each fails in the same way as a wrong order. */
int erg_hook_profile_begin(struct erg_hook *hook, struct erg_error *err); /* of a step */
int erg_hook_profile_pass(struct erg_hook *hook, const struct erg_pass_came *came,
                          struct erg_error *err);
int erg_hook_profile_end(struct erg_hook *hook,
                         struct erg_error *err); /* checks that the step is complete */
int erg_hook_profile_step(struct erg_hook *hook, struct erg_error *err); /* after a complete step */

/* The class of a pass. */
size_t erg_hook_profile_class(struct erg_hook *hook, const struct erg_pass_came *came);

/* For a caller that follows the GPU: a step of this block begins on the GPU, at this clock. */
void erg_hook_profile_turn(struct erg_hook *hook, uint64_t block, int clock_mhz);

#endif
