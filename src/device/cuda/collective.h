/*
 * Collectives: sums, copies and messages between the GPUs of one machine, each with its own SM
 * budget.
 *
 * The ranks of a group (2, 4 or 8 GPUs) map each other's buffers (CUDA IPC, no multicast) and meet
 * in our own kernels, whose grid is the budget: one block per SM. For a sum, each rank loads its
 * share of the elements from all peers and stores the sums to all peers: the least traffic on
 * NVLink without multicast, half loads and half stores. A rank that has finished helps the next
 * one. Sums are in float, in the order of ranks; one rank computes each of them for all, so every
 * rank gets the same bits for every budget. Method: the two-shot all-reduce over peer memory.
 *
 * Block b of a rank only waits for block b of the others, and blocks start in order, so a
 * collective makes progress on any number of free SMs, concurrently with any computation. Launch it
 * on an urgent stream (cuda.h) to let it start first.
 *
 * Collective calls: all ranks of a group make the same calls in the same order with the same
 * arguments, one at a time for each group (its next call waits for the previous one on the stream,
 * or by an event). They are asynchronous and may be captured into CUDA graphs, which all ranks
 * replay alike. All ranks of the world make "world calls", each for its own group; these block.
 */
#ifndef ERG_CUDA_COLLECTIVE_H
#define ERG_CUDA_COLLECTIVE_H

#include "device/cuda/cuda.h"
#include "launch/rendezvous.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ERG_COLLECTIVE_MOST_RANKS = 8, ERG_COLLECTIVE_MOST_SMS = 32, ERG_COLLECTIVE_MOST_PARTS = 4 };

enum erg_collective_method {
    ERG_COLLECTIVE_PEER,    /* our kernels, over the peers' memory */
    ERG_COLLECTIVE_LIBRARY, /* NCCL, also across machines; its own order of sums */
};

enum erg_collective_type { ERG_COLLECTIVE_BF16, ERG_COLLECTIVE_FLOAT };

struct erg_collective;

struct erg_collective_options {
    const struct erg_launch_environment *env;
    struct erg_rendezvous *rendezvous; /* outlives the collective */
    const int *ranks;                  /* of the group, ascending, including this one */
    /* Any number with the library; 0: this rank is in no group and only makes the world calls. */
    int rank_count;
    enum erg_collective_method method;
    /*
     * A kernel that has waited this long for a peer gives up, and erg_collective_check() reports
     * it.
     */
    double timeout_s;
};

/*
 * World call, on the calling thread's GPU. If any group of the call has ranks on several machines,
 * the library replaces our kernels in all groups: with the budget's number of CTAs if that was
 * prepared, otherwise with its own choice.
 */
int erg_collective_open(struct erg_collective **collective,
                        const struct erg_collective_options *options, struct erg_error *err);
/* After the last call has ended on the GPU; NULL is fine. */
void erg_collective_close(struct erg_collective *collective);

/*
 * World call, needed with the library before the first call with each budget: makes a communicator
 * for it; budget 0 lets the library choose its SMs. Our own kernels need no preparation, but always
 * a budget.
 */
int erg_collective_prepare(struct erg_collective *collective, int sms, struct erg_error *err);

/* Memory of every rank of the group that all of them can access. */
struct erg_collective_buffer {
    void *memory; /* this rank's; 256-byte aligned, not cleared */
    size_t bytes;
    void *peers[ERG_COLLECTIVE_MOST_RANKS]; /* by place in the group, including our own */
    bool adopted;                           /* the caller's memory */
};

/* World calls. Free after the last use by any rank. */
int erg_collective_buffer_init(struct erg_collective_buffer *buffer,
                               struct erg_collective *collective, size_t bytes,
                               struct erg_error *err);
/* A buffer over memory of erg_cuda_alloc(), which outlives the buffer; sizes may differ.
 * Collectives need the same offsets on all ranks. */
int erg_collective_buffer_adopt(struct erg_collective_buffer *buffer,
                                struct erg_collective *collective, void *memory, size_t bytes,
                                struct erg_error *err);
int erg_collective_buffer_release(struct erg_collective_buffer *buffer,
                                  struct erg_collective *collective, struct erg_error *err);

/*
 * `count` elements of a buffer from element `offset` on, without any alignment. Their sum goes
 * `shift` elements further, a multiple of 16 bytes, and does not overlap them; 0: in place.
 */
struct erg_collective_part {
    const struct erg_collective_buffer *buffer;
    size_t offset, count;
    ptrdiff_t shift;
};

/* The sum of the parts of all ranks, on every rank. */
int erg_collective_all_reduce(struct erg_collective *collective, enum erg_collective_type type,
                              const struct erg_collective_part *part, int sms,
                              struct CUstream_st *stream, struct erg_error *err);

/* Rows of `row` elements, the next one `stride` elements further. */
struct erg_collective_rows {
    void *memory;
    size_t row, stride;
};

/*
 * One shard of each rank: rank r of the group has the `count` elements from offset + r * count on;
 * `descending`: in reverse order of ranks. Further pieces follow at a distance of `stride` elements
 * each.
 *
 * `local`, if set, replaces this rank's own shard: a gather reads the shard there (and copies it to
 * its place in the buffer, too), and a scatter writes the sum only there. It holds the shards of
 * the pieces in order, piece p from row p * local_rows on. With pieces or `local` all sizes are
 * multiples of 16 bytes, with `local` also of rows.
 */
struct erg_collective_shards {
    const struct erg_collective_buffer *buffer;
    size_t offset, count;
    size_t pieces, stride; /* 0 pieces means 1 */
    bool descending;
    struct erg_collective_rows local;
    size_t local_rows;
};

/*
 * Up to ERG_COLLECTIVE_MOST_PARTS in one kernel. Gather: each rank has written its own shard and
 * gets those of all others. Scatter: each rank gets, in its own shard, the sum of all ranks'; its
 * other shards are unchanged (with `local`, and by the library, its own is undefined afterwards).
 */
int erg_collective_all_gather(struct erg_collective *collective, enum erg_collective_type type,
                              const struct erg_collective_shards *parts, size_t part_count, int sms,
                              struct CUstream_st *stream, struct erg_error *err);
int erg_collective_reduce_scatter(struct erg_collective *collective, enum erg_collective_type type,
                                  const struct erg_collective_shards *parts, size_t part_count,
                                  int sms, struct CUstream_st *stream, struct erg_error *err);

/*
 * Messages in a group of two with ERG_COLLECTIVE_PEER; they use no SM. Send: this rank's next
 * message is ready; the stream continues when the peer has copied it. Receive: copies the peer's
 * next message from its place in a buffer's `peers`. Messages of one direction are in order, on one
 * stream of each rank. Do not capture them into graphs.
 */
int erg_collective_send(struct erg_collective *collective, struct CUstream_st *stream,
                        struct erg_error *err);
int erg_collective_receive(struct erg_collective *collective, const void *from, void *to,
                           size_t bytes, struct CUstream_st *stream, struct erg_error *err);

/*
 * 0 while all is well; otherwise names the rank that is missing, and queued work ends soon, with
 * undefined results. After that only close is useful. Cheap.
 */
int erg_collective_check(struct erg_collective *collective, struct erg_error *err);

/* Waits for the stream like erg_cuda_stream_sync(), but fails within seconds if a rank dies. */
int erg_collective_wait(struct erg_collective *collective, struct CUstream_st *stream,
                        struct erg_error *err);

#ifdef __cplusplus
}
#endif

#endif
