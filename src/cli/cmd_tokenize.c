/* ergon tokenize MODEL FILE... -o PREFIX: texts to token files. */
#include "cli/cli.h"

#include "io/json.h"
#include "train/data/tokenize.h"

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

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct tokenize_values *values = call->values;
    const struct erg_tokenize_wish wish = {
        .model = call->arguments[0],
        .files = call->arguments + 1,
        .file_count = call->argument_count - 1,
        .output = values->output,
        .key = values->key,
        .end = values->end,
    };
    struct erg_corpus corpus;
    struct erg_token_totals totals;
    if (erg_tokenize(&corpus, &totals, &wish, err) != 0)
        return -1;
    report(call, &corpus, &totals);
    return 0;
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
