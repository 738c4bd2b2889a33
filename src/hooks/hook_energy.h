/*
 * Energy of passes: a thread that reads the GPU's energy counter and computes the power of each
 * class of passes (hooks/deconvolution.h) from the times of passes. The trainer's side only writes
 * times into a ring; if that is full, a step is skipped.
 */
#ifndef ERG_HOOKS_HOOK_ENERGY_H
#define ERG_HOOKS_HOOK_ENERGY_H

#include "hooks/deconvolution.h"
#include "telemetry/gpu.h"

struct erg_hook_energy;

/* Starts the thread. Keeps the list open while needed; no other thread may read it. */
int erg_hook_energy_open(struct erg_hook_energy **energy, struct erg_gpus *gpus, size_t gpu,
                         struct erg_error *err);
void erg_hook_energy_close(struct erg_hook_energy *energy); /* NULL is fine */

/* Reports a pass of a class, or a step after all its passes. One thread calls both, in order. */
void erg_hook_energy_pass(struct erg_hook_energy *energy, size_t class, int64_t begin_ns,
                          int64_t end_ns);
void erg_hook_energy_step(struct erg_hook_energy *energy, int64_t begin_ns, int64_t end_ns);

/*
 * Begins a new block of estimates, between two steps; called by the same thread.
 * erg_hook_energy_block() is the block of the current estimates, 0 at first; any thread may call
 * it.
 */
void erg_hook_energy_restart(struct erg_hook_energy *energy, uint64_t block);
uint64_t erg_hook_energy_block(const struct erg_hook_energy *energy);

/*
 * The estimate for a class so far; ERG_HOOK_WAITING: for the waiting in the rest of steps. Any
 * thread may call it.
 */
#define ERG_HOOK_WAITING SIZE_MAX
struct erg_class_power erg_hook_energy_of(const struct erg_hook_energy *energy, size_t class);

#endif
