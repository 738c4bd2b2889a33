/*
 * One point of a study on an emulated cluster, in virtual time.
 *
 * Every GPU has a place in a chassis, a temperature and clocks. How warm it gets depends on what it
 * draws, that on its clocks and the iteration's time, and both on how warm it is. The fixed point
 * is found in rounds:
 *
 *   1. Every pass of every GPU at its temperature: static power grows with it, so the cap leaves a
 *      lower clock, and a limit of heat a lower one still (layout/energy). GPUs of one board share
 *      its cap. The first stage has the embedding as well.
 *   2. Ranks that exchange in every layer (tensor, context, expert groups, FSDP) take the longest
 * of their passes; the faster ones spin in the collective meanwhile.
 *   3. The schedule pass by pass, every replica with its own times. A message takes its bytes at
 * the link's rate, or at its GPUs' share of what the node has of the network: of all that send at
 *      once. Then gradients, and the optimizer when all GPUs have theirs.
 *   4. The power of every GPU over the iteration, its mean, the temperatures that follow
 * (thermal/), and the die's ripple around them.
 *
 * A fault comes to a point that has settled without it: its GPUs keep a share of their clocks.
 *
 * Equal keys give equal results, bit for bit; the name of a point is none of its keys.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_POINT_H
#define ERG_CHARACTERIZE_EMULATE_POINT_H

#include "characterize/result.h"
#include "characterize/study.h"

/* Temperatures and iteration times that move by less than this have settled. */
#define ERG_EMULATE_KELVIN 0.05
#define ERG_EMULATE_TIME 1e-4
enum { ERG_EMULATE_ROUNDS = 200 };

/*
 * Fills status, metrics and lists of a result; id, point and identity are left alone. A point that
 * does not fit is a success with that status. Texts and lists lie in the arena. From any thread.
 * `context` (a text; NULL: no files) is the folder that has traces/, where the point wants them.
 * The signature is that of erg_study_run.point.
 */
int erg_emulate_point(void *context, const struct erg_study_point *point,
                      struct erg_study_result *result, struct erg_arena *arena,
                      struct erg_error *err);

#endif
