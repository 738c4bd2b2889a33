/* ergon tokenize MODEL FILE... -o PREFIX: texts to token files. */
#include "cli/cli.h"

#include "base/memory.h"
#include "io/json.h"
#include "train/data/corpus.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct tokenize_values {
    const char *output, *key, *end;
};

#define AT(member) offsetof(struct tokenize_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "PREFIX", AT(output), .required = true,
     .help = "write PREFIX.bin and PREFIX.idx"},
    {"key", 'k', ERG_OPTION_TEXT, "KEY", AT(key),
     .help = "files are JSON lines, a document each, with its text under this key"},
    {"end", 'e', ERG_OPTION_TEXT, "TOKEN", AT(end),
     .help = "id or text of the token behind every document (default: the model's end of text)"},
    {0},
};

/* The token that ends a document: as asked for, else as the model's folder says. */
static int find_end(long *end, const struct erg_tokenizer *tokenizer, const char *model,
                    const char *asked, struct erg_error *err)
{
    long words = erg_tokenizer_words(tokenizer);
    *end = erg_tokenizer_end(tokenizer);
    if (asked && !erg_parse_long(asked, end) && (*end = erg_tokenizer_id(tokenizer, asked)) < 0)
        return erg_fail(err, ERG_FAILED,
                        "--end: '%s' is no token of %s; expected one, or an id below %ld", asked,
                        model, words);
    if (!asked && *end < 0)
        return erg_fail(err, ERG_FAILED,
                        "%s does not say which token ends a document; expected --end TOKEN", model);
    if (*end < 0 || *end >= words)
        return erg_fail(
            err, ERG_FAILED,
            "the token that ends a document is %ld; expected an id of [0, %ld), which %s "
            "has",
            *end, words, model);
    return 0;
}

static void report(const struct erg_invocation *call, const struct erg_corpus *corpus,
                   const struct erg_token_totals *totals)
{
    const struct tokenize_values *values = call->values;
    /* Without the tokens that end documents. */
    double text_per_token =
        (double)corpus->text_bytes / (double)(totals->tokens - totals->documents);
    struct erg_text text = {0};
    if (call->common.json) {
        json_t *document = erg_json_pack(
            "{s:i, s:s, s:I, s:I, s:I, s:i, s:i, s:I, s:f}", "schema_version", 1, "prefix",
            values->output, "documents", (json_int_t)totals->documents, "empty_documents",
            (json_int_t)corpus->empty, "tokens", (json_int_t)totals->tokens, "token_bytes",
            (int)totals->token_bytes, "end_token", (int)corpus->end, "text_bytes",
            (json_int_t)corpus->text_bytes, "text_bytes_per_token", text_per_token);
        char *lines = erg_json_text(document);
        erg_text_printf(&text, "%s\n", lines);
        free(lines);
        json_decref(document);
    } else {
        erg_text_printf(&text,
                        "%" PRIu64 " document%s, %" PRIu64
                        " tokens of %zu bytes, %.2f bytes of text per token",
                        totals->documents, erg_plural(totals->documents), totals->tokens,
                        totals->token_bytes, text_per_token);
        if (corpus->empty)
            erg_text_printf(&text, "; %" PRIu64 " without text left out", corpus->empty);
        erg_text_printf(&text, "\nwrote %s.bin and %s.idx\n", values->output, values->output);
    }
    erg_terminal_print(stdout, text.data);
    erg_text_release(&text);
}

static int write_all(const struct erg_invocation *call, struct erg_corpus *corpus,
                     struct erg_error *err)
{
    const struct tokenize_values *values = call->values;
    if (erg_token_writer_open(&corpus->writer, values->output,
                              erg_tokenizer_words(corpus->tokenizer), err) != 0)
        return -1;
    int result = 0;
    for (size_t i = 1; i < call->argument_count && result == 0; i++)
        result = erg_corpus_add(corpus, call->arguments[i], err);
    struct erg_token_totals totals = erg_token_writer_totals(corpus->writer);
    if (result == 0 && totals.documents == 0)
        result = erg_fail(err, ERG_FAILED, "no file has text; expected at least one document");
    if (result != 0) {
        erg_token_writer_abandon(corpus->writer);
        return -1;
    }
    if (erg_token_writer_close(corpus->writer, err) != 0)
        return -1;
    report(call, corpus, &totals);
    return 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct tokenize_values *values = call->values;
    const char *model = call->arguments[0];
    struct erg_corpus corpus = {.key = values->key};
    if (erg_tokenizer_load(&corpus.tokenizer, model, err) != 0)
        return -1;
    int result = find_end(&corpus.end, corpus.tokenizer, model, values->end, err);
    if (result == 0)
        result = write_all(call, &corpus, err);
    erg_tokenizer_free(corpus.tokenizer);
    return result;
}

const struct erg_command erg_cmd_tokenize = {
    .name = "tokenize",
    .summary = "turn text into the token files that training reads",
    .arguments = "MODEL FILE...",
    .least_arguments = 2,
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct tokenize_values),
    .options = options,
    .details = "MODEL is a folder with a tokenizer.json as Hugging Face writes it, such a file, or "
               "\"bytes\", "
               "whose\ntokens are bytes. Byte-level BPE is read (GPT-2, Llama 3, Qwen, ...). Each "
               "document "
               "ends with a\ntoken of its own. The files are Megatron's indexed data.",
    .examples = "  ergon tokenize models/llama3.2-1b corpus.jsonl --key text -o corpus\n"
                "  ergon tokenize bytes book.txt -o book\n",
    .run = run,
};
