/*
 * One point of a study on an emulated cluster, in virtual time.
 *
 * Every GPU has a place in a chassis, a temperature and clocks. Its temperature depends on its
 * power, the power on its clocks and on the time of the iteration, and both on its temperature. The
 * fixed point is found in rounds:
 *
 *   1. Every pass of every GPU at its temperature. Static power grows with temperature, so the cap
 *      permits a lower clock, and a heat limit may lower it further (layout/energy). GPUs of one
 *      board share its cap. The first stage includes the embedding.
 *   2. Ranks that exchange in every layer (tensor, context, expert groups, FSDP) take as long as
 *      the slowest of them; the faster ones spin in the collective.
 *   3. The schedule pass by pass, every replica with its own times. A message is sent at the link's
 *      rate, or at its share of the node's network among all GPUs that send at the same time. Then
 *      the gradients, and the optimizer after the gradients of all GPUs.
 *   4. The power of every GPU over the iteration, its mean, the resulting temperatures (thermal/),
 *      and the die's ripple around its mean.
 *
 * A fault is added after the point has settled without it: the faulty GPUs keep a share of their
 * clocks.
 *
 * Equal keys give equal results, bit for bit; the name of a point is not a key.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_POINT_H
#define ERG_CHARACTERIZE_EMULATE_POINT_H

#include "characterize/result.h"
#include "characterize/study.h"

/* The point has settled when temperatures and iteration times change by less than this. */
#define ERG_EMULATE_KELVIN 0.05
#define ERG_EMULATE_TIME 1e-4
enum { ERG_EMULATE_ROUNDS = 200 };

/*
 * Fills status, metrics and lists of a result; leaves id, point and identity unchanged. A point
 * that does not fit into memory is a success with that status. The arena owns texts and lists.
 * Callable from any thread. `context` (a text; NULL: no files) is the folder that contains traces/,
 * for points with traces. The signature is that of erg_study_run.point.
 */
int erg_emulate_point(void *context, const struct erg_study_point *point,
                      struct erg_study_result *result, struct erg_arena *arena,
                      struct erg_error *err);

#endif
