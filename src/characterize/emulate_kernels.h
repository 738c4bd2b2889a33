/*
 * What the time of an emulated GPU is by category of kernels, as a trace of it would say
 * (trace/kernel_time.h). Spinning in an exchange for a slower rank and waiting for a message are
 * part of the exchange, as they are of the kernel that waits there; so are all joules meanwhile.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_KERNELS_H
#define ERG_CHARACTERIZE_EMULATE_KERNELS_H

#include "characterize/emulate_internal.h"
#include "ergon/kernels.h"

struct erg_emulated_kernels {
    struct erg_emulated_kernel {
        double summed_s, exposed_s, wait_s, count, energy_j;
    } category[ERG_CATEGORIES];
    double idle_s, idle_j;
};

/* Of an iteration: exposed seconds and idle ones make up its time, joules its energy. */
void erg_emulation_kernels(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                           const struct emulated_gpu *gpu);

#endif
