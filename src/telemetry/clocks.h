/*
 * Clocks: locks the SM clock of GPUs of any vendor, or sets their power limits, and resets them.
 *
 * Except the daemon (daemon/daemon.h), ergon's programs change clocks only through
 * erg_clocks_open(), which callers use only on an explicit request. That function selects the
 * method: $ERGON_DAEMON names the socket of a daemon, which then leases the clocks; "none" means
 * never a daemon. If it is not set, root uses the driver directly; other users use the daemon at
 * /run/ergon/ergond.sock, and the driver if there is no daemon. A lease ends with its process, and
 * the daemon unlocks. The rest describes direct locks.
 *
 * A lock belongs to the driver and outlives the process that made it. Therefore a separate process,
 * the guardian (telemetry/guardian.h), unlocks the GPUs within a second of any end of the owner:
 * return, exit(), a signal, a crash, kill -9, the end of its process group. Only killing both at
 * once leaves a lock behind. If the guardian ends first, a thread of the owner unlocks all and logs
 * it, and further locks fail.
 *
 * NVML cannot report the range of a lock. That has two consequences:
 * - A lock is verified by reading the clock. A GPU that idles or throttles may run slower than its
 *   lock; then the lock is neither refuted nor confirmed, and the caller judges the clock under
 *   load (ERG_METRIC_SM_CLOCK and ERG_METRIC_REASONS of telemetry/gpu.h).
 * - An earlier lock by another program cannot be detected, and so is not restored: the GPU is left
 *   unlocked. Among runs of ergon, the second one that requests a GPU is refused if they see each
 *   other's claims (telemetry/claim.h).
 *
 * A refusal of the driver (no permission, not supported, not obeyed) has status ERG_NO_DEVICE, a
 * clock that the GPU does not have ERG_FAILED. Facts of the interface: NVIDIA's NVML API reference,
 * "Device Commands" and "Device Queries".
 */
#ifndef ERG_TELEMETRY_CLOCKS_H
#define ERG_TELEMETRY_CLOCKS_H

#include "telemetry/gpu.h"

/* The SM clocks that a GPU can be locked at, MHz, rising. */
struct erg_clock_list {
    int *clocks_mhz;
    size_t count;
};

/* Needs no permission and changes nothing; at least one clock. Release the list. */
int erg_clocks_supported(struct erg_gpus *gpus, size_t gpu, struct erg_clock_list *list,
                         struct erg_error *err);
void erg_clock_list_release(struct erg_clock_list *list);

/*
 * The index of the first of `count` rising clocks that is not below `clock_mhz`; `count`: all are
 * below.
 */
static inline size_t erg_clock_not_below(const int *clocks_mhz, size_t count, int64_t clock_mhz)
{
    size_t i = 0;
    while (i < count && clocks_mhz[i] < clock_mhz)
        i++;
    return i;
}

/*
 * The right to lock the GPUs of a list. One thread at a time may use it, while other threads may
 * read the same GPUs, and only the process that opened it: a child of fork() may only close it,
 * which then leaves the clocks alone.
 */
struct erg_clocks;

/* Starts the guardian or connects to the daemon; changes no clock. Keeps the list open as long as
 * it needs it. */
int erg_clocks_open(struct erg_clocks **clocks, struct erg_gpus *gpus, struct erg_error *err);

enum erg_clock_seen {
    ERG_CLOCK_HELD,  /* the clock reads as locked */
    ERG_CLOCK_BELOW, /* the clock reads lower: judge it under load */
};

/*
 * Locks a GPU (an index into the list) at one of its supported clocks, and reads the clock back
 * until it matches, for up to 50 ms while it is lower and 0.5 s while it is higher. `seen` may be
 * NULL. On failure the GPU is unlocked, or locked as before if the driver was not yet called.
 */
int erg_clocks_lock(struct erg_clocks *clocks, size_t gpu, int clock_mhz, enum erg_clock_seen *seen,
                    struct erg_error *err);

/* Locks a GPU at its highest clock and unlocks it, so that a refusal is known before it matters. */
int erg_clocks_try(struct erg_clocks *clocks, size_t gpu, struct erg_error *err);

/*
 * Locks a GPU that was locked or tried before, without checking that it obeys. This takes as long
 * as the driver's call, so it may happen between two pieces of work. On failure the GPU is
 * unlocked, or locked as before if the driver was not yet called.
 */
int erg_clocks_set(struct erg_clocks *clocks, size_t gpu, int clock_mhz, struct erg_error *err);

/*
 * Whether the guardian or the lease was still alive at the last check; never waits, and any thread
 * may call it. Once false, it stays false: the log has the reason, and no lock succeeds.
 */
bool erg_clocks_guarded(const struct erg_clocks *clocks);

/* Unlocks a GPU that was locked here; leaves others alone. */
int erg_clocks_reset(struct erg_clocks *clocks, size_t gpu, struct erg_error *err);

/*
 * Sets the power limit of a GPU, in mW; its bounds are those of erg_knob_bounds_read(). Like a
 * lock, it returns to its former value at the close and at any end of this process. On failure it
 * keeps its former value.
 */
int erg_clocks_limit(struct erg_clocks *clocks, size_t gpu, int64_t limit_mw,
                     struct erg_error *err);

/*
 * Resets everything that was set and ends the guardian. Fails if a GPU may still be locked after
 * the guardian has tried for 10 s, too; frees `clocks` in any case. NULL is fine.
 */
int erg_clocks_close(struct erg_clocks *clocks, struct erg_error *err);

#endif
