/*
 * Token files: the output of `ergon tokenize`, Megatron's indexed data. PREFIX.bin holds only the
 * tokens of all documents, PREFIX.idx their lengths and offsets:
 *
 *     offset   type     content
 *     0        9 bytes  "MMIDIDX\0\0"
 *     9        u64      version, 1
 *     17       u8       type of a token: 8 uint16, 4 int32
 *     18       u64      n sequences, one a document
 *     26       u64      n + 1 entries of the document index
 *     34       i32[n]   tokens of each sequence
 *     34+4n    i64[n]   where it begins in PREFIX.bin, bytes
 *     34+12n   i64[n+1] sequence at which each document begins, then n
 *
 * All little-endian, without padding. Source: megatron/core/datasets/indexed_dataset.py.
 */
#ifndef ERG_TRAIN_DATA_TOKEN_WRITER_H
#define ERG_TRAIN_DATA_TOKEN_WRITER_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

struct erg_token_writer;

/*
 * `words`: the upper limit of ids, exclusive. Up to 65,536 words a token is a uint16, beyond that
 * an int32. The two files get their names when the writer is closed. Refuses a prefix if one of
 * them exists.
 */
int erg_token_writer_open(struct erg_token_writer **writer, const char *prefix, long words,
                          struct erg_error *err);

/* Adds a document: at most 2^31 - 1 tokens, each in [0, words). */
int erg_token_writer_add(struct erg_token_writer *writer, const int32_t *ids, size_t count,
                         struct erg_error *err);

struct erg_token_totals {
    uint64_t documents, tokens;
    size_t token_bytes; /* of one token */
};
struct erg_token_totals erg_token_writer_totals(const struct erg_token_writer *writer);

/* Finishes both files; after a failure neither exists. Frees the writer. */
int erg_token_writer_close(struct erg_token_writer *writer, struct erg_error *err);

/* Frees the writer and leaves no file. */
void erg_token_writer_abandon(struct erg_token_writer *writer);

#endif
