/*
 * Token sets: files of token ids for training, in sequence.
 *
 *   plain      only tokens: uint16, uint32 or int32, by the job's key
 *   Megatron   PREFIX.bin with PREFIX.idx next to it (data/token_writer.h)
 *   llm.c      256 int32 of header, then uint16 or uint32 tokens
 *
 * Files are mapped. Every id is checked when it is read: a negative id or one outside the model's
 * vocabulary is an error with file and place.
 *
 * Source of llm.c's format: its dev/data/data_common.py.
 */
#ifndef ERG_TRAIN_DATA_TOKEN_SET_H
#define ERG_TRAIN_DATA_TOKEN_SET_H

#include "ergon/error.h"
#include "job/training.h"

#include <stddef.h>
#include <stdint.h>

struct erg_token_set {
    struct erg_token_file *files; /* private */
    size_t count, capacity;
    uint64_t tokens;
};

/*
 * Adds a file; all-zero is a valid empty set. For Megatron's data, `path` is PREFIX.bin or PREFIX.
 */
int erg_token_set_add(struct erg_token_set *set, const char *path, enum erg_token_type type,
                      struct erg_error *err);
void erg_token_set_release(struct erg_token_set *set);

/* Tokens [first, first + count) of all files, each of [0, words). */
int erg_token_set_read(const struct erg_token_set *set, uint64_t first, size_t count, long words,
                       int32_t *ids, struct erg_error *err);

/*
 * Checks an index of Megatron's data against the size of its .bin and returns the bytes and the
 * type of a token. For erg_token_set_add() and a fuzz target.
 */
struct erg_token_index {
    size_t token_bytes;
    uint64_t sequences, tokens;
    int type; /* the file's number of the type */
};
int erg_token_index_parse(struct erg_token_index *index, const char *name, const void *bytes,
                          size_t length, uint64_t bin_bytes, struct erg_error *err);

#endif
