/*
 * Energy of passes: a thread that reads the GPU's energy counter, and works out the power of each
 * class of passes (hooks/deconvolution.h) from when passes ran. The trainer's side only notes times
 * in a ring; where that is full, a step is left out.
 */
#ifndef ERG_HOOKS_HOOK_ENERGY_H
#define ERG_HOOKS_HOOK_ENERGY_H

#include "hooks/deconvolution.h"
#include "telemetry/gpu.h"

struct erg_hook_energy;

/* Keeps the list open as long as it needs it; no other thread reads it. Starts the thread. */
int erg_hook_energy_open(struct erg_hook_energy **energy, struct erg_gpus *gpus, size_t gpu,
                         struct erg_error *err);
void erg_hook_energy_close(struct erg_hook_energy *energy); /* NULL is fine */

/* Reports a pass of a class, or a step after all its passes. Called by one thread, in order. */
void erg_hook_energy_pass(struct erg_hook_energy *energy, size_t class, int64_t begin_ns,
                          int64_t end_ns);
void erg_hook_energy_step(struct erg_hook_energy *energy, int64_t begin_ns, int64_t end_ns);

/* Begins a new block of estimates, between two steps; called by the same thread. The estimates
 * belong to the latest block, 0 at first; called by any thread. */
void erg_hook_energy_restart(struct erg_hook_energy *energy, uint64_t block);
uint64_t erg_hook_energy_block(const struct erg_hook_energy *energy);

/* The estimate for a class so far; without a class: for the rest of steps, waiting. Called by any
 * thread. */
#define ERG_HOOK_WAITING SIZE_MAX
struct erg_class_power erg_hook_energy_of(const struct erg_hook_energy *energy, size_t class);

#endif
