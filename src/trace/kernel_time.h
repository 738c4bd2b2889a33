/*
 * Kernel time: how a GPU spends a window, from the intervals of its work.
 *
 * At every moment a GPU computes, or only communicates and copies, or is idle; kernels that compute
 * hide concurrent communication and copies. `exposed` of a category is the time in which it runs
 * and, if it does not compute, no kernel computes. The categories that are exposed at a moment
 * share the GPU's energy equally.
 */
#ifndef ERG_TRACE_KERNEL_TIME_H
#define ERG_TRACE_KERNEL_TIME_H

#include "trace/interval_sort.h"
#include "trace/kernel_record.h"

/* Energy so far at a moment, J; only differences are meaningful. */
typedef double erg_energy_at(void *context, int64_t time_ns);

struct erg_kernel_time {
    int64_t begin_ns, end_ns; /* of the window: first start, last end */
    int64_t compute_ns, exposed_ns, idle_ns;
    double energy_j, idle_energy_j; /* NaN: unknown */
    struct erg_kernel_share {
        double summed_ns; /* exact below 2^53 */
        int64_t exposed_ns;
        size_t count;
        double energy_j;
    } category[ERG_CATEGORIES];
};

/*
 * The kernel time of the records of one device, which need their categories, in any order; `energy`
 * NULL: unknown.
 */
void erg_kernel_time_of(struct erg_kernel_time *time, const struct erg_kernel_record *records,
                        size_t count, int32_t device, erg_energy_at *energy, void *context);

/* The same, one interval at a time. */
struct erg_kernel_sweep;

/* `energy` NULL: unknown. */
struct erg_kernel_sweep *erg_kernel_sweep_new(erg_energy_at *energy, void *context);

/* Call it in order of their starts. */
void erg_kernel_sweep_add(struct erg_kernel_sweep *sweep,
                          const struct erg_kernel_interval *interval);

/* After the last interval: all zero if nothing ran. Frees the sweep. */
void erg_kernel_sweep_end(struct erg_kernel_sweep *sweep, struct erg_kernel_time *time);

#endif
