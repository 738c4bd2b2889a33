/*
 * Kernel power: the energy of GPUs between moments of a trace, from a recording of that time. Unix
 * time joins both. Between two steps of a sensor, tens of milliseconds, only the mean power is
 * known: shorter kernels get energy by their share of the time.
 */
#ifndef ERG_TRACE_KERNEL_POWER_H
#define ERG_TRACE_KERNEL_POWER_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_kernel_power;

/* Keeps the data from shortly before one moment until shortly after the other, Unix ns. */
int erg_kernel_power_open(struct erg_kernel_power **power, const char *recording, int64_t from_ns,
                          int64_t to_ns, struct erg_error *err);
void erg_kernel_power_close(struct erg_kernel_power *power); /* NULL is fine */

/*
 * The recording's GPU with this UUID, or, if that is unknown (""), with this index in the driver's
 * order; -1: none.
 */
int erg_kernel_power_find(const struct erg_kernel_power *power, const char *uuid, int32_t device);

/* Whether the energy of a GPU is known at all times from one moment to another. */
bool erg_kernel_power_covers(const struct erg_kernel_power *power, int gpu, int64_t from_ns,
                             int64_t to_ns);

/* Energy so far at a moment, J. Calls in order of time need no search. */
struct erg_kernel_power_gpu;
struct erg_kernel_power_gpu *erg_kernel_power_of(struct erg_kernel_power *power, int gpu);
double erg_kernel_power_at(void *gpu, int64_t unix_ns);

#endif
