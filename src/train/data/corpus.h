/* A corpus: converts texts in files to token files, document by document. */
#ifndef ERG_TRAIN_DATA_CORPUS_H
#define ERG_TRAIN_DATA_CORPUS_H

#include "train/data/token_writer.h"
#include "train/tokenizer/tokenizer.h"

#include <stdbool.h>

struct erg_corpus {
    struct erg_tokenizer *tokenizer;
    struct erg_token_writer *writer;
    long end;        /* the token after every document */
    const char *key; /* of the text in JSON lines; NULL: a file is one document of plain text */
    /* Counts of the input. */
    uint64_t text_bytes;
    uint64_t empty; /* documents without text, which are skipped */
};

/*
 * Adds the documents of a file; invalid UTF-8 becomes U+FFFD. A JSON line that is not an object
 * with a text under the key is an error, which names file and line. Interruptible.
 */
int erg_corpus_add(struct erg_corpus *corpus, const char *path, struct erg_error *err);

#endif
