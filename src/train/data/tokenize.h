/* Converts texts to the token files for training (train/data/corpus.h). */
#ifndef ERG_TRAIN_DATA_TOKENIZE_H
#define ERG_TRAIN_DATA_TOKENIZE_H

#include "train/data/corpus.h"

struct erg_tokenize_input {
    const char *model;        /* a folder with a tokenizer.json, such a file, or "bytes" */
    const char *const *files; /* texts, or JSON lines */
    size_t file_count;
    const char *output; /* PREFIX of the .bin and the .idx */
    const char *key;    /* key of a document's text in JSON lines; NULL: each file is one text */
    const char *end;    /* id or text of the token after a document; NULL: the model's */
};

/* Afterwards *corpus contains only its counts; the tokens are in the files. */
int erg_tokenize(struct erg_corpus *corpus, struct erg_token_totals *totals,
                 const struct erg_tokenize_input *input, struct erg_error *err);

#endif
