/*
 * The arguments that the host side of collectives passes to the kernels, and the interface to NCCL.
 */
#ifndef ERG_CUDA_COLLECTIVE_INTERNAL_H
#define ERG_CUDA_COLLECTIVE_INTERNAL_H

#include "device/cuda/collective.h"
#include "device/cuda/collective_index.h"

#include <cuda.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Words of one block's signals: one for each peer, in a separate 128-byte line. */
    ERG_SIGNAL_STRIDE = 32,
    ERG_SIGNAL_WORDS = ERG_COLLECTIVE_MOST_SMS * ERG_SIGNAL_STRIDE,
    /*
     * After them, in separate lines: the number of drawn chunks of this rank's share; messages that
     * the peer has offered to it; its own messages that the peer has taken.
     */
    ERG_SIGNAL_OFFERED = ERG_SIGNAL_WORDS + ERG_SIGNAL_STRIDE,
    ERG_SIGNAL_TAKEN = ERG_SIGNAL_OFFERED + ERG_SIGNAL_STRIDE,
    ERG_SIGNAL_BYTES = (ERG_SIGNAL_TAKEN + ERG_SIGNAL_STRIDE) * 4,
};

enum erg_collective_operation { ERG_ALL_REDUCE, ERG_ALL_GATHER, ERG_REDUCE_SCATTER };

/* In page-locked host memory that the GPU reads and writes. */
struct erg_collective_status {
    uint32_t abort;  /* set by the host: stop waiting */
    uint32_t failed; /* set by the GPU, after the two below */
    uint32_t peer, call;
};

/* In GPU memory, this rank's own. */
struct erg_collective_state {
    uint32_t calls[ERG_COLLECTIVE_MOST_SMS]; /* calls so far of each block */
    uint32_t ended;                          /* blocks of a sum; zero between calls */
    uint32_t broken;                         /* a rank is missing: no rank waits any more */
};

/* One part, for the kernel; an all-reduce has a single part with a single piece. */
struct erg_collective_work {
    unsigned char *base[ERG_COLLECTIVE_MOST_RANKS]; /* the buffer on every rank */
    struct erg_collective_share share;              /* this rank's part of it */
    struct erg_collective_share next;               /* sums: the next rank's part */
    ptrdiff_t shift;                                /* sums: bytes from the parts to their sum */
    /* Gather and scatter: the number of pieces, and bytes from one to the next. */
    size_t pieces, stride;
    struct erg_collective_local local;
};

/* The argument of all kernels. */
struct erg_collective_call {
    struct erg_collective_work work[ERG_COLLECTIVE_MOST_PARTS];
    int parts;
    int rank; /* in the group */
    /* signals[r][block * ERG_SIGNAL_STRIDE + s]: rank s reports to rank r the progress of its
     * block. */
    uint32_t *signals[ERG_COLLECTIVE_MOST_RANKS];
    struct erg_collective_state *state;
    struct erg_collective_status *status;
    uint64_t timeout_ns;
};

/*
 * `ranks` is 2, 4 or 8. The device may wait for all running work when it loads a kernel at its
 * first launch. So kernels that wait for other ranks are loaded before any of them runs.
 */
int erg_collective_load(int ranks, struct erg_error *err);
int erg_collective_launch(enum erg_collective_operation operation, enum erg_collective_type type,
                          int ranks, const struct erg_collective_call *call, int sms,
                          struct CUstream_st *stream, struct erg_error *err);

/* ---- the host side ---- */

enum { ERG_COLLECTIVE_WORLD_S = 120 }; /* limit of the ranks' wait for each other in world calls */

/* Of CUDA's driver. */
struct erg_message_library {
    CUresult (*wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    CUresult (*write)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
};
int erg_message_library_open(struct erg_message_library *library, struct erg_error *err);

struct erg_collective {
    struct erg_rendezvous *rendezvous;
    enum erg_collective_method method;
    bool stands_in; /* the library replaces our own collectives */
    int world, world_rank;
    int *ranks;      /* world ranks of the group */
    int count, rank; /* size of the group, and this rank's place in it */
    struct erg_nccl *nccl;
    struct erg_collective_buffer signals;
    struct erg_collective_state *state;   /* on the GPU */
    struct erg_collective_status *status; /* on the host */
    uint64_t timeout_ns;
    struct erg_message_library messages;
    uint32_t sent, received; /* messages that were queued */
};

/* Ends the waits for messages. */
void erg_collective_end_messages(struct erg_collective *collective);

/*
 * World call: tells all ranks whether all have succeeded, so that none waits for one that gave up;
 * `why`: the failure here.
 */
int erg_collective_agree(const struct erg_collective *collective, int failed,
                         const struct erg_error *why, struct erg_error *err);

/* ---- NCCL ---- */

struct erg_nccl;

int erg_nccl_open(struct erg_nccl **nccl, int rank, int ranks, struct erg_error *err);
void erg_nccl_close(struct erg_nccl *nccl);
/* Ends running work after a rank has died. */
void erg_nccl_abort(struct erg_nccl *nccl);

/*
 * The names of a new pair of communicators; one rank makes them and sends them to the rest of the
 * group. One communicator has the ranks in their order, the other one in reverse, for descending
 * shards.
 */
enum { ERG_NCCL_ASCENDING, ERG_NCCL_DESCENDING, ERG_NCCL_ORDERS };
struct erg_nccl_name {
    char bytes[ERG_NCCL_ORDERS][128];
};
int erg_nccl_name_new(struct erg_nccl *nccl, struct erg_nccl_name *name, struct erg_error *err);
/* Makes the communicators with `sms` CTAs; all ranks of the group call it at the same time. */
int erg_nccl_prepare(struct erg_nccl *nccl, int sms, const struct erg_nccl_name *name,
                     struct erg_error *err);
bool erg_nccl_prepared(const struct erg_nccl *nccl, int sms);

int erg_nccl_call(struct erg_nccl *nccl, enum erg_collective_operation operation,
                  enum erg_collective_type type, const struct erg_collective_shards *parts,
                  size_t part_count, ptrdiff_t shift, int sms, struct CUstream_st *stream,
                  struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
