/*
 * Context parallelism: the tokens of a sequence that a rank holds, and the keys that its queries
 * see.
 *
 * A sequence is cut into 2c chunks. Rank r of c holds chunks r and 2c - 1 - r, one after the other,
 * so that causal attention is the same work for all ranks. Keys and values are gathered into the
 * order of the sequence; then the queries of a chunk are the last ones of a sequence that ends with
 * it, and attention is one call for each chunk. Each rank's gradients of all keys and values are
 * summed over the ranks, and every rank keeps those of its own.
 *
 * Sources: Kareus, overlap with context parallelism; the split is that of Megatron-LM.
 */
#ifndef ERG_OPS_CONTEXT_H
#define ERG_OPS_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

enum erg_context_half { ERG_CONTEXT_LOW, ERG_CONTEXT_HIGH };

struct erg_context_chunk {
    size_t first, count; /* tokens of the sequence */
    size_t keys;         /* that its last query sees */
};

/* `sequence` tokens in all, a multiple of 2 `context`. */
static inline struct erg_context_chunk erg_context_chunk(size_t sequence, size_t context,
                                                         size_t rank, enum erg_context_half half)
{
    size_t index = half == ERG_CONTEXT_LOW ? rank : 2 * context - 1 - rank;
    size_t count = sequence / (2 * context);
    return (struct erg_context_chunk){index * count, count, (index + 1) * count};
}

/* The place in the sequence of each of a rank's sequence / context tokens. */
static inline void erg_context_positions(size_t sequence, size_t context, size_t rank,
                                         int32_t *positions)
{
    for (int half = ERG_CONTEXT_LOW; half <= ERG_CONTEXT_HIGH; half++) {
        struct erg_context_chunk chunk =
            erg_context_chunk(sequence, context, rank, (enum erg_context_half)half);
        for (size_t i = 0; i < chunk.count; i++)
            *positions++ = (int32_t)(chunk.first + i);
    }
}

#endif
