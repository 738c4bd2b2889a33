/* ergon tokenize MODEL FILE... -o PREFIX: converts texts to token files. */
#include "cli/answer_show.h"
#include "cli/cli.h"

struct tokenize_values {
    const char *output, *key, *end;
};

#define AT(member) offsetof(struct tokenize_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "PREFIX", AT(output), .required = true,
     .help = "write PREFIX.bin and PREFIX.idx"},
    {"key", 'k', ERG_OPTION_TEXT, "KEY", AT(key),
     .help = "read JSON lines, one document each, with the text under this key"},
    {"end", 'e', ERG_OPTION_TEXT, "TOKEN", AT(end),
     .help =
         "token to append to every document: its id or text (default: the model's end of text)"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct tokenize_values *values = call->values;
    const struct erg_ask_tokenize question = {
        .size = sizeof question,
        .model = call->arguments[0],
        .files = call->arguments + 1,
        .file_count = call->argument_count - 1,
        .output = values->output,
        .key = values->key,
        .end = values->end,
    };
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_tokenize(&answer, &question, err), &answer, call->common.json,
                           err);
}

const struct erg_command erg_cmd_tokenize = {
    .name = "tokenize",
    .summary = "convert text to the token files for training",
    .arguments = "MODEL FILE...",
    .least_arguments = 2,
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct tokenize_values),
    .options = options,
    .details = "MODEL is a folder with a tokenizer.json in Hugging Face's format, such a file, or "
               "\"bytes\", whose\n"
               "tokens are bytes. Supported: byte-level BPE (GPT-2, Llama 3, Qwen, ...). A token "
               "marks the end of each\n"
               "document. The output has Megatron's indexed format.",
    .examples = "  ergon tokenize models/llama3.2-1b corpus.jsonl --key text -o corpus\n"
                "  ergon tokenize bytes book.txt -o book\n",
    .run = run,
};
