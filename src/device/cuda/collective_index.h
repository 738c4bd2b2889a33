/*
 * The work of each rank and block in a collective: plain arithmetic, shared by the host, the
 * kernels and the tests of both.
 *
 * A share is a run of elements whose middle can be moved as 16-byte vectors.
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

/* Where the part of rank `rank` of `ranks` begins of elements [offset, offset + count): at the
 * boundary of a vector wherever that lies inside. */
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

/* The vectors of block `block` of `blocks` are those from here to where the next one's begin. */
ERG_HOST_DEVICE static inline size_t erg_collective_block_begin(size_t vectors, int block,
                                                                int blocks)
{
    return vectors / (size_t)blocks * (size_t)block +
           vectors % (size_t)blocks * (size_t)block / (size_t)blocks;
}

/* This rank's own shard where it does not lie in the buffer: rows of vectors. */
struct erg_collective_local {
    unsigned char *memory; /* NULL: it lies in the buffer */
    unsigned row_vectors;  /* of 16 bytes, at least 1 */
    size_t row_bytes;      /* from one row to the next */
    size_t piece_bytes;    /* from one piece to the next */
};

/* Where a vector of a piece of it lies. Kernels go from one to the next by adding, which is so much
 * cheaper than dividing that it shows. */
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

/* Bytes from where the piece begins. */
ERG_HOST_DEVICE static inline size_t
erg_collective_spot_at(const struct erg_collective_local *local, struct erg_collective_spot spot)
{
    return spot.row * local->row_bytes + (size_t)spot.column * 16;
}

#endif
