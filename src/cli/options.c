/* Reads the command line by a command's table of options, and writes its help. */
#include "cli/options.h"

#include "base/memory.h"
#include "base/option_value.h"
#include "ergon/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A command understands those from its row on; see enum erg_common_set. */
static const struct erg_option common_options[] = {
    {.name = "seed",
     .type = ERG_OPTION_LONG,
     .argument = "N",
     .offset = offsetof(struct erg_common, seed),
     .most = 9007199254740992.0,
     .help = "seed of every random choice; equal seeds give equal results"},
    {.name = "json",
     .type = ERG_OPTION_FLAG,
     .offset = offsetof(struct erg_common, json),
     .help = "print one JSON document on standard output"},
    {.name = "quiet",
     .letter = 'q',
     .type = ERG_OPTION_COUNT,
     .offset = offsetof(struct erg_common, quiet),
     .help = "print only errors on standard error"},
    {.name = "verbose",
     .letter = 'v',
     .type = ERG_OPTION_COUNT,
     .offset = offsetof(struct erg_common, verbose),
     .help = "print more on standard error; twice: debugging"},
    {.name = "help",
     .letter = 'h',
     .type = ERG_OPTION_FLAG,
     .offset = offsetof(struct erg_common, help),
     .help = "show this help"},
    {0},
};

const struct erg_option *erg_common_options(const struct erg_command *command)
{
    return &common_options[command->common];
}

const char *const *erg_option_choices(const struct erg_option *option)
{
    return option->words ? erg_words(option->words) : option->choices;
}

static int set_choice(const struct erg_option *option, void *target, const char *text,
                      struct erg_error *err)
{
    const char *const *choices = erg_option_choices(option);
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) != 0)
            continue;
        if (option->type == ERG_OPTION_WORD)
            *(const char **)target = choices[i];
        else
            *(int *)target = i;
        return 0;
    }
    struct erg_text list = {0};
    for (int i = 0; choices[i]; i++)
        erg_text_printf(&list, "%s\"%s\"", i ? ", " : "", choices[i]);
    erg_fail(err, ERG_USAGE, "--%s got \"%s\", expected one of %s", option->name, text, list.data);
    erg_text_release(&list);
    return -1;
}

/* Stores one value; `text` is NULL for flags. */
static int set_value(const struct erg_option *option, void *values, const char *text,
                     struct erg_error *err)
{
    void *target = (char *)values + option->offset;
    switch (option->type) {
    case ERG_OPTION_FLAG:
        *(bool *)target = true;
        return 0;
    case ERG_OPTION_COUNT:
        ++*(int *)target;
        return 0;
    case ERG_OPTION_LONG:
        return erg_option_long(target, option->name, text, option->least, option->most, err);
    case ERG_OPTION_DOUBLE:
        return erg_option_double(target, option->name, text, option->least, option->most, err);
    case ERG_OPTION_BYTES:
        if (!erg_parse_bytes(text, target))
            return erg_fail(
                err, ERG_USAGE,
                "--%s got \"%s\", expected a number of bytes like 6e10, 64GiB, 500MiB or 64GB",
                option->name, text);
        return erg_option_check_range(option->name, text, *(double *)target, option->least,
                                      option->most, err);
    case ERG_OPTION_CHOICE:
    case ERG_OPTION_WORD:
        return set_choice(option, target, text, err);
    case ERG_OPTION_TEXT:
    case ERG_OPTION_FILE:
    case ERG_OPTION_FILES:
        if (!*text)
            return erg_fail(err, ERG_USAGE, "--%s got an empty value", option->name);
        if (option->type == ERG_OPTION_FILES)
            ERG_PUSH((struct erg_option_list *)target, items, text);
        else
            *(const char **)target = text;
        return 0;
    }
    return 0;
}

/* Sets defaults, or the values that mean "not given". */
static int set_defaults(const struct erg_option *options, void *values, struct erg_error *err)
{
    for (const struct erg_option *option = options; option->name; option++) {
        void *target = (char *)values + option->offset;
        if (option->type == ERG_OPTION_LONG)
            *(long *)target = ERG_NOT_GIVEN;
        else if (option->type == ERG_OPTION_DOUBLE || option->type == ERG_OPTION_BYTES)
            *(double *)target = NAN;
        else if (option->type == ERG_OPTION_CHOICE)
            *(int *)target = -1;
        if (option->default_text && set_value(option, values, option->default_text, err) != 0)
            return -1;
    }
    return 0;
}

static const struct erg_option *find_name(const struct erg_option *options, const char *name,
                                          size_t length)
{
    for (const struct erg_option *option = options; option->name; option++)
        if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return option;
    return NULL;
}

static const struct erg_option *find_letter(const struct erg_option *options, char letter)
{
    for (const struct erg_option *option = options; option->name; option++)
        if (option->letter == letter)
            return option;
    return NULL;
}

static bool takes_value(const struct erg_option *option)
{
    return option->type != ERG_OPTION_FLAG && option->type != ERG_OPTION_COUNT;
}

/* "--name VALUE", or "--name A|B|C" for a choice. */
static void add_form(struct erg_text *out, const struct erg_option *option)
{
    const char *const *choices = erg_option_choices(option);
    erg_text_printf(out, "--%s", option->name);
    if (option->bare_text)
        erg_text_printf(out, "[=%s]", option->argument);
    else if (takes_value(option) && !choices)
        erg_text_printf(out, " %s", option->argument);
    for (size_t i = 0; choices && choices[i]; i++)
        erg_text_printf(out, "%s%s", i ? "|" : " ", choices[i]);
}

static int fail_unknown(const struct erg_command *command, const char *name, size_t length,
                        struct erg_error *err)
{
    const char *names[128];
    size_t count = 0;
    for (const struct erg_option *option = command->options; option->name && count < 120; option++)
        names[count++] = option->name;
    for (const struct erg_option *option = erg_common_options(command); option->name; option++)
        names[count++] = option->name;
    names[count] = NULL;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    if (erg_job_own_name(word))
        return erg_fail(err, ERG_USAGE, "--%s: %s", word, erg_job_own_name(word));
    const char *closest = erg_closest(word, names);
    if (closest)
        return erg_fail(err, ERG_USAGE, "\"ergon %s\" has no option --%s; did you mean --%s?",
                        command->name, word, closest);
    return erg_fail(err, ERG_USAGE,
                    "\"ergon %s\" has no option --%s; \"ergon %s --help\" lists its options",
                    command->name, word, command->name);
}

struct parser {
    struct erg_invocation *call;
    void *values;
    bool *given; /* one per row of the command's table */
    int argc, next;
    char *const *argv;
};

static int take(struct parser *parser, const struct erg_option *option, bool common,
                const char *inline_value, struct erg_error *err)
{
    const char *text = inline_value ? inline_value : option->bare_text;
    if (takes_value(option) && !text) {
        if (parser->next >= parser->argc)
            return erg_fail(err, ERG_USAGE, "--%s needs a value (%s)", option->name,
                            option->argument);
        text = parser->argv[parser->next++];
    }
    if (!takes_value(option) && text)
        return erg_fail(err, ERG_USAGE, "--%s got \"%s\", expected no value", option->name, text);
    if (!common)
        parser->given[option - parser->call->command->options] = true;
    return set_value(option, common ? (void *)&parser->call->common : parser->values, text, err);
}

static int take_long(struct parser *parser, const char *word, struct erg_error *err)
{
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const struct erg_command *command = parser->call->command;
    const struct erg_option *option = find_name(command->options, word, length);
    bool common = !option;
    if (!option)
        option = find_name(erg_common_options(command), word, length);
    if (!option)
        return fail_unknown(command, word, length, err);
    return take(parser, option, common, equals ? equals + 1 : NULL, err);
}

static int take_letters(struct parser *parser, const char *letters, struct erg_error *err)
{
    const struct erg_command *command = parser->call->command;
    for (; *letters; letters++) {
        const struct erg_option *option = find_letter(command->options, *letters);
        bool common = !option;
        if (!option)
            option = find_letter(erg_common_options(command), *letters);
        if (!option)
            return erg_fail(err, ERG_USAGE,
                            "\"ergon %s\" has no option -%c; \"ergon %s --help\" lists its options",
                            command->name, *letters, command->name);
        bool rest = takes_value(option) && letters[1];
        if (take(parser, option, common, rest ? letters + 1 : NULL, err) != 0)
            return -1;
        if (takes_value(option))
            return 0;
    }
    return 0;
}

static int fail_missing(const struct erg_command *command, const struct erg_option *option,
                        struct erg_error *err)
{
    struct erg_text form = {0};
    add_form(&form, option);
    erg_fail(err, ERG_USAGE, "\"ergon %s\" needs the option %s (%s)", command->name, form.data,
             option->help);
    erg_text_release(&form);
    return -1;
}

static int check_complete(const struct parser *parser, struct erg_error *err)
{
    const struct erg_command *command = parser->call->command;
    size_t count = parser->call->argument_count;
    if (count < command->least_arguments)
        return erg_fail(err, ERG_USAGE, "\"ergon %s\" needs %s; see \"ergon %s --help\"",
                        command->name, command->arguments, command->name);
    if (count > command->most_arguments)
        return erg_fail(err, ERG_USAGE, "\"ergon %s\" got the argument \"%s\", expected none",
                        command->name, parser->call->arguments[command->most_arguments]);
    for (const struct erg_option *option = command->options; option->name; option++)
        if (option->required && !parser->given[option - command->options])
            return fail_missing(command, option, err);
    return 0;
}

int erg_options_parse(struct erg_invocation *call, const struct erg_command *command, int argc,
                      char *const *argv, struct erg_error *err)
{
    *call = (struct erg_invocation){.command = command};
    void *values = erg_xcalloc(1, command->values_bytes + 1);
    call->values = values;
    const char **arguments = erg_xcalloc((size_t)argc + 1, sizeof *arguments);
    call->arguments = arguments;
    size_t rows = 0;
    while (command->options[rows].name)
        rows++;
    bool *given = erg_xcalloc(rows + 1, sizeof *given);
    call->given = given;
    struct parser parser = {
        .call = call, .values = values, .given = given, .argc = argc, .argv = argv};
    int result = set_defaults(common_options, &call->common, err);
    if (result == 0)
        result = set_defaults(command->options, values, err);
    bool only_arguments = false;
    while (result == 0 && parser.next < argc) {
        const char *word = argv[parser.next++];
        if (only_arguments || word[0] != '-' || !word[1])
            arguments[call->argument_count++] = word;
        else if (strcmp(word, "--") == 0)
            only_arguments = true;
        else if (word[1] == '-')
            result = take_long(&parser, word + 2, err);
        else
            result = take_letters(&parser, word + 1, err);
    }
    if (result == 0 && !call->common.help)
        result = check_complete(&parser, err);
    return result;
}

void erg_invocation_release(struct erg_invocation *call)
{
    const struct erg_option *option = call->values ? call->command->options : NULL;
    for (; option && option->name; option++)
        if (option->type == ERG_OPTION_FILES)
            free(((const struct erg_option_list *)(const void *)((const char *)call->values +
                                                                 option->offset))
                     ->items);
    free((void *)(uintptr_t)call->values);
    free((void *)(uintptr_t)call->given);
    free((void *)(uintptr_t)call->arguments);
    *call = (struct erg_invocation){0};
}

enum { HELP_INDENT = 32, HELP_WIDTH = 100 };

/* Adds words to a line that has `column` characters; starts a new line where a word does not
 * fit. */
static void add_wrapped(struct erg_text *out, size_t column, const char *words)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        if (column > HELP_INDENT && column + 1 + length > HELP_WIDTH) {
            erg_text_printf(out, "\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
        } else if (column > HELP_INDENT) {
            erg_text_add(out, " ");
            column++;
        }
        erg_text_add_bytes(out, words, length);
        column += length;
        words += length + (words[length] == ' ');
    }
}

static void help_option(struct erg_text *out, const struct erg_option *option)
{
    struct erg_text left = {0}, right = {0};
    if (option->letter)
        erg_text_printf(&left, "-%c, ", option->letter);
    else
        erg_text_add(&left, "    ");
    add_form(&left, option);
    /* A left part that is too long for its column gets its own line. */
    if (left.count > HELP_INDENT - 4)
        erg_text_printf(out, "  %s\n%*s", left.data, HELP_INDENT, "");
    else
        erg_text_printf(out, "  %-*s  ", HELP_INDENT - 4, left.data);
    erg_text_add(&right, option->help);
    if (option->default_text)
        erg_text_printf(&right, " (default: %s)", option->default_text);
    add_wrapped(out, HELP_INDENT, right.data);
    erg_text_add(out, "\n");
    erg_text_release(&left);
    erg_text_release(&right);
}

void erg_options_help(struct erg_text *out, const struct erg_command *command)
{
    /* After "--" nothing is an option. */
    bool options_first = strstr(command->arguments, "-- ");
    erg_text_printf(out, "ergon %s: %s\n\nUsage: ergon %s%s%s%s%s\n", command->name,
                    command->summary, command->name, options_first ? " [OPTION]..." : "",
                    command->arguments[0] ? " " : "", command->arguments,
                    options_first ? "" : " [OPTION]...");
    if (command->details)
        erg_text_printf(out, "\n%s\n", command->details);
    if (command->options->name) {
        erg_text_add(out, "\nOptions:\n");
        for (const struct erg_option *option = command->options; option->name; option++)
            help_option(out, option);
    }
    erg_text_add(out, "\nCommon options:\n");
    for (const struct erg_option *option = erg_common_options(command); option->name; option++)
        help_option(out, option);
    if (command->examples)
        erg_text_printf(out, "\nExamples:\n%s", command->examples);
}
