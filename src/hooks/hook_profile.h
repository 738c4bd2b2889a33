/*
 * A profile made from ordinary steps (ERG_HOOK_PROFILE).
 *
 * All ranks hold one clock for a block of steps: some to settle, then at most 40, until seconds and
 * joules of each class of passes are known to 1 %. Blocks end by agreement: every fourth step each
 * rank reports whether its values are accurate enough, and all compute the same decision from the
 * same bytes; then each rank sends its values, class by class. Rank 0 of the exchange writes the
 * file after each clock, so that a job that ends early leaves its measurements.
 *
 * Times are those of the classes of the hook, which begin anew with each block; where the GPU runs
 * behind the trainer (hook_marks.h), the GPU's progress begins the block.
 */
#ifndef ERG_HOOKS_HOOK_PROFILE_H
#define ERG_HOOKS_HOOK_PROFILE_H

#include "ergon/hook.h"
#include "hooks/hook_order.h"
#include "hooks/hook_rows.h"

#include <stdatomic.h>

enum { HOOK_PROFILE_PASSES = 16384 }; /* of a step that can be learned */

/* The message of a rank: 64 bytes. */
struct hook_profile_message {
    int32_t version, form; /* enum hook_profile_form */
    int32_t stage, replica;
    int64_t step;
    uint64_t nonce; /* distinguishes ranks */
    int32_t clock_mhz;
    int32_t chunk;           /* of the row; a status: how many there are */
    int32_t count;           /* status: microbatches; row: uncertainty, of a million */
    int32_t flags;           /* status: enum hook_profile_flag; row: enum erg_direction */
    double time_s, energy_j; /* status: of waiting, in one second */
};

struct hook_profile {
    /* Passes of a step as the first one had them. */
    struct erg_pass_came *order; /* [HOOK_PROFILE_PASSES] */
    uint32_t count;
    bool learned;
    size_t chunks, microbatches;

    int clock_mhz;   /* that is tried */
    uint64_t block;  /* counted from 1: of steps to settle, odd, and measured, even */
    int block_steps; /* that were ended at this clock */
    bool over;

    erg_hook_exchange *exchange;
    void *context;
    size_t ranks;
    struct hook_profile_message *messages; /* [ranks] */
    uint64_t nonce;
    bool writes;               /* this is rank 0 */
    struct erg_hook_rows rows; /* once `agreed` */
    bool agreed;
    char *path; /* NULL: the default one */
    char said[512];

    _Atomic uint64_t turned; /* the block whose passes classes have */
};

struct erg_hook;

/* Clocks of the hook's GPU are known; `ranks` is 1 until erg_hook_profile_agree(). */
void erg_hook_profile_open(struct erg_hook *hook);
void erg_hook_profile_close(struct erg_hook *hook);
int erg_hook_profile_agree(struct erg_hook *hook, erg_hook_exchange *exchange, void *context,
                           size_t ranks, struct erg_error *err);

/* The trainer's thread; each fails as a wrong order does. */
int erg_hook_profile_begin(struct erg_hook *hook, struct erg_error *err); /* of a step */
int erg_hook_profile_pass(struct erg_hook *hook, const struct erg_pass_came *came,
                          struct erg_error *err);
int erg_hook_profile_end(struct erg_hook *hook, struct erg_error *err);  /* is it all? */
int erg_hook_profile_step(struct erg_hook *hook, struct erg_error *err); /* it was */

/* The class of a pass. */
size_t erg_hook_profile_class(struct erg_hook *hook, const struct erg_pass_came *came);

/* For a caller that follows the GPU: a step of this block begins there, at this clock. */
void erg_hook_profile_turn(struct erg_hook *hook, uint64_t block, int clock_mhz);

#endif
