/*
 * Kernel power: the energy of GPUs between moments of a trace, from a recording of that time. Both
 * are brought together by Unix time. Between two steps of a sensor, tens of milliseconds, only the
 * mean power is known: what shorter kernels take is their share of the time.
 */
#ifndef ERG_TRACE_KERNEL_POWER_H
#define ERG_TRACE_KERNEL_POWER_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erg_kernel_power;

/* Keeps the data from a little before one moment until a little after the other, Unix ns. */
int erg_kernel_power_open(struct erg_kernel_power **power, const char *recording, int64_t from_ns,
                          int64_t to_ns, struct erg_error *err);
void erg_kernel_power_close(struct erg_kernel_power *power); /* NULL is fine */

/* The recording's GPU of that UUID, or where that is not known ("") the one of that index in the
 * driver's order; -1: none. */
int erg_kernel_power_find(const struct erg_kernel_power *power, const char *uuid, int32_t device);

/* Whether the energy of a GPU is known at all times from one moment to another. */
bool erg_kernel_power_covers(const struct erg_kernel_power *power, int gpu, int64_t from_ns,
                             int64_t to_ns);

/* Energy so far at a moment, J; asked in order of time it takes no search. */
struct erg_kernel_power_gpu;
struct erg_kernel_power_gpu *erg_kernel_power_of(struct erg_kernel_power *power, int gpu);
double erg_kernel_power_at(void *gpu, int64_t unix_ns);

#endif
