/* Converts texts to token files with a model's tokenizer. */
#include "train/data/tokenize.h"

#include "base/text.h"

/* The token that ends a document: the requested one, otherwise that of the model's folder. */
static int find_end(long *end, const struct erg_tokenizer *tokenizer, const char *model,
                    const char *asked, struct erg_error *err)
{
    long words = erg_tokenizer_words(tokenizer);
    *end = erg_tokenizer_end(tokenizer);
    if (asked && !erg_parse_long(asked, end) && (*end = erg_tokenizer_id(tokenizer, asked)) < 0)
        return erg_fail(err, ERG_FAILED,
                        "--end: '%s' is not a token of %s; expected one, or an id below %ld", asked,
                        model, words);
    if (!asked && *end < 0)
        return erg_fail(err, ERG_FAILED, "%s has no end-of-document token; expected --end TOKEN",
                        model);
    if (*end < 0 || *end >= words)
        return erg_fail(
            err, ERG_FAILED,
            "the token that ends a document is %ld; expected an id of [0, %ld), which %s "
            "has",
            *end, words, model);
    return 0;
}

static int write_all(struct erg_corpus *corpus, struct erg_token_totals *totals,
                     const struct erg_tokenize_input *input, struct erg_error *err)
{
    if (erg_token_writer_open(&corpus->writer, input->output,
                              erg_tokenizer_words(corpus->tokenizer), err) != 0)
        return -1;
    int result = 0;
    for (size_t i = 0; i < input->file_count && result == 0; i++)
        result = erg_corpus_add(corpus, input->files[i], err);
    *totals = erg_token_writer_totals(corpus->writer);
    if (result == 0 && totals->documents == 0)
        result = erg_fail(err, ERG_FAILED, "no file has text; expected at least one document");
    if (result != 0) {
        erg_token_writer_abandon(corpus->writer);
        return -1;
    }
    return erg_token_writer_close(corpus->writer, err);
}

int erg_tokenize(struct erg_corpus *corpus, struct erg_token_totals *totals,
                 const struct erg_tokenize_input *input, struct erg_error *err)
{
    *corpus = (struct erg_corpus){.key = input->key};
    if (erg_tokenizer_load(&corpus->tokenizer, input->model, err) != 0)
        return -1;
    int result = find_end(&corpus->end, corpus->tokenizer, input->model, input->end, err);
    if (result == 0)
        result = write_all(corpus, totals, input, err);
    erg_tokenizer_free(corpus->tokenizer);
    return result;
}
