/*
 * Tokenizers: text to token ids, by Hugging Face's tokenizer.json. Byte-level BPE only, which
 * GPT-2, Llama 3, Qwen and most open models use; other features are refused, and the error names
 * the feature.
 *
 * Text becomes ids in these steps:
 *   1. added tokens ("<|end|>") are cut out, the longest first;
 *   2. the rest is normalised to NFC where the file requires it;
 *   3. regular expressions cut it into pieces (PCRE2); text between matches is a piece, too;
 *   4. a piece's bytes are the first symbols; while a pair of neighbours has a merge, the pair of
 *      the lowest rank, the leftmost of equal ones, becomes one symbol. With `ignore_merges` a
 *      piece that is a word stays whole.
 *
 * Special tokens of a post-processor are not added: documents of training end with one token, which
 * the caller adds.
 */
#ifndef ERG_TRAIN_TOKENIZER_H
#define ERG_TRAIN_TOKENIZER_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

struct erg_tokenizer;

/*
 * `name`: "bytes" (an id is a byte, 256 ends a document), a tokenizer.json, or a model's folder
 * with one. erg_tokenizer_parse(): the file from memory; `name` is its name in messages.
 */
int erg_tokenizer_load(struct erg_tokenizer **tokenizer, const char *name, struct erg_error *err);
int erg_tokenizer_parse(struct erg_tokenizer **tokenizer, const char *name, const char *text,
                        size_t length, struct erg_error *err);
void erg_tokenizer_free(struct erg_tokenizer *tokenizer);

/* The highest id plus one. */
long erg_tokenizer_words(const struct erg_tokenizer *tokenizer);

/* The id of a word or an added token as the file writes it ("<|end|>"); -1: there is none. */
long erg_tokenizer_id(const struct erg_tokenizer *tokenizer, const char *word);

/*
 * The token that ends a document: 256 for "bytes"; for a folder, `eos_token_id` of its config.json
 * (the first of several), otherwise `eos_token` of its tokenizer_config.json. -1: in neither.
 */
long erg_tokenizer_end(const struct erg_tokenizer *tokenizer);

struct erg_token_ids {
    int32_t *items; /* free() */
    size_t count, capacity;
};

/*
 * Adds the ids of a text, valid UTF-8 (base/text.h makes it so). Fails for a byte without a word in
 * the vocabulary, and if the regular expression exceeds its limits. Not thread-safe: pieces are
 * cached.
 */
int erg_tokenizer_encode(struct erg_tokenizer *tokenizer, const char *text, size_t length,
                         struct erg_token_ids *ids, struct erg_error *err);

#endif
