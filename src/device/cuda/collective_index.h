/*
 * The work of each rank and block in a collective: plain arithmetic, shared by the host, the
 * kernels and the tests of both.
 *
 * A share is a range of elements whose middle can be moved as 16-byte vectors.
 */
#ifndef ERG_CUDA_COLLECTIVE_INDEX_H
#define ERG_CUDA_COLLECTIVE_INDEX_H

#include <stddef.h>

#ifdef __CUDACC__
#define ERG_HOST_DEVICE __host__ __device__
#else
#define ERG_HOST_DEVICE
#endif

struct erg_collective_share {
    size_t begin;   /* first element */
    size_t head;    /* single elements before the first vector */
    size_t vectors; /* of `width` elements, 16-byte aligned */
    size_t tail;    /* single elements after the last one */
};

/* Elements [begin, end) of a buffer whose element 0 is aligned; `width` elements are 16 bytes. */
static inline struct erg_collective_share erg_collective_split(size_t begin, size_t end,
                                                               size_t width)
{
    size_t first = (begin + width - 1) / width * width, last = end / width * width;
    struct erg_collective_share share = {begin, end - begin, 0, 0};
    if (first < last) {
        share.head = first - begin;
        share.vectors = (last - first) / width;
        share.tail = end - last;
    }
    return share;
}

/*
 * The start of the part of rank `rank` of `ranks` in elements [offset, offset + count): at a vector
 * boundary if there is one inside.
 */
static inline size_t erg_collective_rank_begin(size_t offset, size_t count, int rank, int ranks,
                                               size_t width)
{
    size_t end = offset + count, first = offset / width;
    size_t vectors = (end + width - 1) / width - first;
    size_t begin = (first + vectors * (size_t)rank / (size_t)ranks) * width;
    return begin < offset ? offset : begin > end ? end : begin;
}

/* The elements that rank `rank` sums for all. */
static inline struct erg_collective_share erg_collective_own(size_t offset, size_t count, int rank,
                                                             int ranks, size_t width)
{
    return erg_collective_split(erg_collective_rank_begin(offset, count, rank, ranks, width),
                                erg_collective_rank_begin(offset, count, rank + 1, ranks, width),
                                width);
}

/* The first vector of block `block` of `blocks`; its last one is before the next block's first. */
ERG_HOST_DEVICE static inline size_t erg_collective_block_begin(size_t vectors, int block,
                                                                int blocks)
{
    return vectors / (size_t)blocks * (size_t)block +
           vectors % (size_t)blocks * (size_t)block / (size_t)blocks;
}

/* This rank's own shard if it is not in the buffer: rows of vectors. */
struct erg_collective_local {
    unsigned char *memory; /* NULL: it is in the buffer */
    unsigned row_vectors;  /* of 16 bytes, at least 1 */
    size_t row_bytes;      /* from one row to the next */
    size_t piece_bytes;    /* from one piece to the next */
};

/*
 * The position of a vector of a piece of it. Kernels step from one to the next by addition, which
 * is measurably faster than division.
 */
struct erg_collective_spot {
    unsigned row, column;
};

ERG_HOST_DEVICE static inline struct erg_collective_spot
erg_collective_spot_of(const struct erg_collective_local *local, unsigned index)
{
    unsigned row = index / local->row_vectors;
    struct erg_collective_spot spot = {row, index - row * local->row_vectors};
    return spot;
}

ERG_HOST_DEVICE static inline struct erg_collective_spot
erg_collective_spot_add(const struct erg_collective_local *local, struct erg_collective_spot spot,
                        struct erg_collective_spot step)
{
    spot.row += step.row;
    spot.column += step.column;
    if (spot.column >= local->row_vectors) {
        spot.column -= local->row_vectors;
        spot.row++;
    }
    return spot;
}

/* Offset in bytes from the start of the piece. */
ERG_HOST_DEVICE static inline size_t
erg_collective_spot_at(const struct erg_collective_local *local, struct erg_collective_spot spot)
{
    return spot.row * local->row_bytes + (size_t)spot.column * 16;
}

#endif
