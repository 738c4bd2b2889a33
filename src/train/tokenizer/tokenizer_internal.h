/* Declarations shared by the files of tokenizers. */
#ifndef ERG_TRAIN_TOKENIZER_INTERNAL_H
#define ERG_TRAIN_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/json.h"
#include "train/tokenizer/tokenizer.h"

#include <pcre2.h>
#include <stdbool.h>

/* A token that is cut out of the text first. */
struct erg_added_token {
    char *content;
    size_t length;
    int32_t id;
    bool normalized; /* matched in normalised text */
};

/* The merges of two neighbouring symbols. Open addressing, a power of two of slots. */
struct erg_merges {
    struct erg_merge {
        uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
        uint32_t rank;
        int32_t id;
    } * slots;
    size_t mask;
};

/* A cache of pieces, the latest of each hash. */
enum { ERG_PIECES_KEPT = 1 << 16, ERG_PIECE_BYTES_KEPT = 128 };
struct erg_text_piece {
    char *bytes;
    int32_t *ids; /* after the bytes, in the same allocation */
    uint32_t length, count;
};

struct erg_tokenizer {
    bool bytes; /* the vocabulary "bytes": of the members below only `words` and `end` are used */
    long words, end;
    json_t *vocabulary;    /* word, its bytes written as characters, to id */
    int32_t byte_ids[256]; /* -1: no word */
    bool ignore_merges, nfc;
    struct {
        struct erg_added_token *items; /* longest first */
        size_t count, capacity;
        bool begins[256]; /* whether one of them begins with this byte */
    } added;
    struct {
        pcre2_code **items; /* in order; each cuts the pieces of the previous one */
        size_t count, capacity;
    } patterns;
    pcre2_match_data *match;
    struct erg_merges merges;
    struct erg_text_piece *pieces; /* [ERG_PIECES_KEPT] */
};

/*
 * Adds the character of a byte in words: printable Latin-1 is itself, the others follow in order
 * from U+0100 on.
 */
void erg_tokenizer_add_byte(struct erg_text *out, unsigned char byte);

/* Makes room for `count` merges. Sets a merge; the last of equal pairs stays. */
void erg_merges_init(struct erg_merges *merges, size_t count);
void erg_merges_set(struct erg_merges *merges, int32_t left, int32_t right, uint32_t rank,
                    int32_t id);

/* Adds the ids of one piece. */
int erg_tokenizer_encode_piece(struct erg_tokenizer *tokenizer, const char *bytes, size_t length,
                               struct erg_token_ids *ids, struct erg_error *err);

/* Fills a tokenizer from the document. */
int erg_tokenizer_read(struct erg_tokenizer *tokenizer, const struct erg_json_place *root,
                       struct erg_error *err);

#endif
