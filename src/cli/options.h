/* Options: one static table per command defines parsing, --help, "did you mean" and the shell
 * completions, so that they always agree.
 *
 * The values of a command's options are in one plain struct; each table row has the offset of its
 * value. Accepted forms: --name VALUE, --name=VALUE, -n VALUE, joined flags (-vv); "--" ends the
 * options; options and arguments may be mixed. An option with an optional value accepts only --name
 * and --name=VALUE. */
#ifndef ERG_CLI_OPTIONS_H
#define ERG_CLI_OPTIONS_H

#include "base/given.h"
#include "base/text.h"
#include "ergon/ask.h"
#include "ergon/error.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum erg_option_type {
    ERG_OPTION_FLAG,   /* bool */
    ERG_OPTION_COUNT,  /* int, the number of times that the option appears */
    ERG_OPTION_LONG,   /* long */
    ERG_OPTION_DOUBLE, /* double */
    ERG_OPTION_BYTES,  /* double, with or without a unit: 64GiB */
    ERG_OPTION_TEXT,   /* const char * */
    ERG_OPTION_FILE,   /* const char *, completed with file names */
    ERG_OPTION_FILES,  /* struct erg_option_list: one file per appearance of the option */
    ERG_OPTION_CHOICE, /* int, the index in `choices` or `words` */
    ERG_OPTION_WORD,   /* const char *, one of them */
};

struct erg_option_list {
    const char **items;
    size_t count, capacity;
};

struct erg_option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* 0 = none */
    enum erg_option_type type;
    const char *argument;       /* the word for the value in --help: "FILE", "M", "W" */
    size_t offset;              /* offset in the struct of values */
    double least, most;         /* limits of numbers; least == most means none */
    const char *const *choices; /* ends with NULL */
    enum erg_word_list words;   /* a list of the library in place of `choices`; 0: none */
    const char *default_text;   /* parsed like a value; NULL: no default */
    const char *bare_text;      /* the same, for an option without its value; NULL: the value is
                                 * required */
    bool required;
    const char *help;
};

/* Options of all commands, except the first two. */
struct erg_common {
    int quiet, verbose; /* the number of -q and -v */
    bool json;
    bool help;
    long seed;
};

/* The common options of a command. Commands that draw no random numbers refuse --seed, those
 * without a document --json. */
enum erg_common_set { ERG_COMMON_SEED_JSON, ERG_COMMON_JSON, ERG_COMMON_FEW };

struct erg_invocation;

struct erg_command {
    const char *name;
    const char *former_name;             /* accepted for one more version, with a warning; or
                                          * NULL */
    const char *summary;                 /* one line */
    const char *arguments;               /* "PROFILE.csv", "" for none */
    const char *const *argument_choices; /* words that complete the first argument; NULL: files */
    size_t least_arguments, most_arguments;
    enum erg_common_set common;
    size_t values_bytes; /* size of the struct of values */
    const struct erg_option *options;
    bool listens;         /* SIGUSR1 ends it like SIGTERM, SIGUSR2 asks for a checkpoint */
    bool passes_output;   /* other programs write standard output: it is not escaped */
    const char *details;  /* paragraphs of --help */
    const char *examples; /* lines of --help, ends with a newline */
    int (*run)(const struct erg_invocation *call, struct erg_error *err);
};

/* The common options of a command; ends like a command's table. */
const struct erg_option *erg_common_options(const struct erg_command *command);

/* The arguments of a command's run(). */
struct erg_invocation {
    const struct erg_command *command;
    struct erg_common common;
    const void *values; /* the command's struct of values */
    const bool *given;  /* one per row of the command's options: true if it was on the command
                         * line */
    const char *const *arguments;
    size_t argument_count;
};

/* The words that an option accepts, which end with NULL; NULL: it accepts other values. */
const char *const *erg_option_choices(const struct erg_option *option);

/* A number or an amount for the public functions, where 0 stands for "not given". */
static inline long erg_given_number(long value)
{
    return value == ERG_NOT_GIVEN ? 0 : value;
}
static inline double erg_given_amount(double value)
{
    return isnan(value) ? 0 : value;
}

/* Parses the words after the command's name. Errors have the status ERG_USAGE. With --help, later
 * words are not checked. Release with erg_invocation_release(), also after an error. */
int erg_options_parse(struct erg_invocation *call, const struct erg_command *command, int argc,
                      char *const *argv, struct erg_error *err);
void erg_invocation_release(struct erg_invocation *call);

/* The text of `ergon COMMAND --help`. */
void erg_options_help(struct erg_text *out, const struct erg_command *command);

/* The completion script of a shell for all `commands` (ends with NULL). */
enum erg_shell { ERG_SHELL_BASH, ERG_SHELL_ZSH, ERG_SHELL_FISH };
void erg_completion(struct erg_text *out, enum erg_shell shell,
                    const struct erg_command *const *commands);

#endif
