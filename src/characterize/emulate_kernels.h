/*
 * The time of an emulated GPU by category of kernels, as its trace would show it
 * (trace/kernel_time.h). Spinning in an exchange for a slower rank and waiting for a message count
 * as part of the exchange, as they do in the kernel that waits; so does the energy of that time.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_KERNELS_H
#define ERG_CHARACTERIZE_EMULATE_KERNELS_H

#include "characterize/emulate_internal.h"
#include "ergon/kernels.h"

/* Constants of a pass's op list: its exchanges, and how its memory-bound bytes and its kernels are
 * distributed over categories. */
struct erg_emulated_mix {
    double comm_s[ERG_CATEGORIES];   /* exposed or not */
    double expert_s[ERG_CATEGORIES]; /* the part of experts */
    double wires[ERG_CATEGORIES];
    double count[ERG_CATEGORIES];
    double norm_bytes, other_bytes;
};

enum erg_kernel_category erg_emulation_exchange_category(enum erg_comm_kind kind);

/* The kind of pass whose last exchange waits for a slower rank: layers with experts follow those
 * without them. */
static inline enum erg_layout_pass erg_emulation_spinning_pass(const struct emulated_pass *pass,
                                                               bool backward)
{
    const enum erg_layout_pass own = backward ? ERG_PASS_BACKWARD : ERG_PASS_FORWARD;
    return erg_layout_pass_of(own, !(pass->part_s[own] > 0));
}

/* One for every kind of pass. */
void erg_emulation_mixes(struct erg_emulated_mix mixes[ERG_PASSES],
                         const struct emulation *emulation);

/* The time of one pass of a kind on a GPU; the parts add up to it. Norms count as memory-bound. */
struct erg_emulated_split {
    double product_s, memory_s, norms_s;
    double comm_s[ERG_CATEGORIES]; /* exposed */
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

/* Sums for an iteration: exposed and idle times add up to its time, joules to its energy. */
void erg_emulation_kernels(struct erg_emulated_kernels *kernels, const struct emulation *emulation,
                           const struct emulated_rank *gpu);

#endif
