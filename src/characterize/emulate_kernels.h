/*
 * What the time of an emulated GPU is by category of kernels, as a trace of it would say
 * (trace/kernel_time.h). Spinning in an exchange for a slower rank and waiting for a message are
 * part of the exchange, as they are of the kernel that waits there; so are all joules meanwhile.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_KERNELS_H
#define ERG_CHARACTERIZE_EMULATE_KERNELS_H

#include "characterize/emulate_internal.h"
#include "ergon/kernels.h"

/* Of the op list of a pass: its exchanges, and how its memory-bound bytes and kernels fall. */
struct erg_emulated_mix {
    double comm_s[ERG_CATEGORIES];   /* hidden or not */
    double expert_s[ERG_CATEGORIES]; /* of them, those of experts */
    double wires[ERG_CATEGORIES];
    double count[ERG_CATEGORIES];
    double norm_bytes, other_bytes;
};

enum erg_kernel_category erg_emulation_exchange_category(enum erg_comm_kind kind);

/* Of every kind of pass. */
void erg_emulation_mixes(struct erg_emulated_mix mixes[ERG_PASSES],
                         const struct emulation *emulation);

/* Seconds of one pass of a kind on a GPU: they make up its time. Norms are memory-bound, too. */
struct erg_emulated_split {
    double product_s, memory_s, norms_s;
    double comm_s[ERG_CATEGORIES]; /* that nothing hides */
    double all_comm_s;
    double idle_s; /* between kernels */
};
void erg_emulation_split(struct erg_emulated_split *split, const struct emulation *emulation,
                         const struct emulated_rank *gpu, enum erg_layout_pass kind,
                         const struct erg_emulated_mix *mix);

struct erg_emulated_kernels {
    struct erg_emulated_kernel {
        double summed_s, exposed_s, wait_s, count, energy_j;
    } category[ERG_CATEGORIES];
    double idle_s, idle_j;
};

/* Of an iteration: exposed seconds and idle ones make up its time, joules its energy. */
void erg_emulation_kernels(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                           const struct emulated_rank *gpu);

#endif
