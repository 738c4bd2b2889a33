/* Writes the completion scripts of bash, zsh and fish from the tables of options. */
#include "cli/cli.h"

#include <string.h>

/* Returns true if the next word is the option's value. */
static bool takes_value(const struct erg_option *option)
{
    return !option->bare_text && option->type != ERG_OPTION_FLAG &&
           option->type != ERG_OPTION_COUNT;
}

static bool takes_file(const struct erg_option *option)
{
    return option->type == ERG_OPTION_FILE || option->type == ERG_OPTION_FILES;
}

static void add_choices(struct erg_text *out, const char *const *choices)
{
    for (size_t i = 0; choices[i]; i++)
        erg_text_printf(out, "%s%s", i ? " " : "", choices[i]);
}

/* --- bash: one case per command; the word before the cursor decides which values complete --- */

static void bash_values(struct erg_text *out, const struct erg_option *options)
{
    for (const struct erg_option *option = options; option->name; option++) {
        if (!takes_value(option))
            continue;
        erg_text_printf(out, "        --%s", option->name);
        if (option->letter)
            erg_text_printf(out, "|-%c", option->letter);
        erg_text_add(out, ") COMPREPLY=(");
        if (takes_file(option)) {
            erg_text_add(out, "$(compgen -f -- \"$word\")");
        } else if (erg_option_choices(option)) {
            erg_text_add(out, "$(compgen -W \"");
            add_choices(out, erg_option_choices(option));
            erg_text_add(out, "\" -- \"$word\")");
        }
        erg_text_add(out, "); return ;;\n");
    }
}

static void bash(struct erg_text *out, const struct erg_command *const *commands)
{
    erg_text_add(out, "_ergon()\n{\n"
                      "    local word=\"${COMP_WORDS[COMP_CWORD]}\"\n"
                      "    local before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
                      "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                      "        COMPREPLY=($(compgen -W \"help --help --version");
    for (size_t i = 0; commands[i]; i++)
        erg_text_printf(out, " %s", commands[i]->name);
    erg_text_add(out, "\" -- \"$word\"))\n        return\n    fi\n"
                      "    case \"${COMP_WORDS[1]}\" in\n");
    for (size_t i = 0; commands[i]; i++) {
        const struct erg_command *command = commands[i];
        erg_text_printf(out, "    %s)\n        case \"$before\" in\n", command->name);
        bash_values(out, command->options);
        bash_values(out, erg_common_options(command));
        erg_text_add(out, "        esac\n        case \"$word\" in\n"
                          "        -*) COMPREPLY=($(compgen -W \"");
        for (const struct erg_option *option = command->options; option->name; option++)
            erg_text_printf(out, "--%s ", option->name);
        for (const struct erg_option *option = erg_common_options(command); option->name; option++)
            erg_text_printf(out, "--%s ", option->name);
        erg_text_add(out, "\" -- \"$word\")) ;;\n        *) COMPREPLY=($(compgen ");
        if (command->argument_choices) {
            erg_text_add(out, "-W \"");
            add_choices(out, command->argument_choices);
            erg_text_add(out, "\"");
        } else {
            erg_text_add(out, "-f");
        }
        erg_text_add(out, " -- \"$word\")) ;;\n        esac ;;\n");
    }
    erg_text_add(out, "    help) COMPREPLY=($(compgen -W \"");
    for (size_t i = 0; commands[i]; i++)
        erg_text_printf(out, "%s%s", i ? " " : "", commands[i]->name);
    erg_text_add(out, "\" -- \"$word\")) ;;\n    esac\n}\ncomplete -o filenames -F _ergon ergon\n");
}

/* Text inside single quotes of zsh and fish; `special` lists characters that need a backslash. */
static void add_quoted(struct erg_text *out, const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text))
            erg_text_add(out, "\\");
        erg_text_add_bytes(out, text, 1);
    }
}

/* --- zsh: _arguments per command --- */

static void zsh_options(struct erg_text *out, const struct erg_option *options)
{
    for (const struct erg_option *option = options; option->name; option++) {
        const bool again = option->type == ERG_OPTION_FILES; /* the option may be repeated */
        erg_text_printf(out, " \\\n            '%s--%s%s[", again ? "*" : "", option->name,
                        takes_value(option) ? "=" : "");
        add_quoted(out, option->help, "[]:");
        erg_text_add(out, "]");
        if (takes_value(option))
            erg_text_printf(out, ":%s:", option->argument ? option->argument : "VALUE");
        if (takes_file(option)) {
            erg_text_add(out, "_files");
        } else if (erg_option_choices(option)) {
            erg_text_add(out, "(");
            add_choices(out, erg_option_choices(option));
            erg_text_add(out, ")");
        }
        erg_text_add(out, "'");
    }
}

static void zsh(struct erg_text *out, const struct erg_command *const *commands)
{
    erg_text_add(out, "#compdef ergon\n_ergon()\n{\n    local -a commands=(\n");
    for (size_t i = 0; commands[i]; i++) {
        erg_text_printf(out, "        '%s:", commands[i]->name);
        add_quoted(out, commands[i]->summary, ":");
        erg_text_add(out, "'\n");
    }
    erg_text_add(out, "        'help:show the help of a command'\n    )\n"
                      "    if (( CURRENT == 2 )); then\n"
                      "        _describe command commands\n        return\n    fi\n"
                      "    local command=\"$words[2]\"\n    shift words\n    (( CURRENT-- ))\n"
                      "    case \"$command\" in\n");
    for (size_t i = 0; commands[i]; i++) {
        erg_text_printf(out, "    %s)\n        _arguments", commands[i]->name);
        zsh_options(out, commands[i]->options);
        zsh_options(out, erg_common_options(commands[i]));
        if (commands[i]->argument_choices) {
            erg_text_add(out, " \\\n            '1:argument:(");
            add_choices(out, commands[i]->argument_choices);
            erg_text_add(out, ")'");
        } else if (commands[i]->most_arguments) {
            erg_text_add(out, " \\\n            '*:file:_files'");
        }
        erg_text_add(out, " ;;\n");
    }
    erg_text_add(out, "    help) _describe command commands ;;\n    esac\n}\n"
                      "if [ \"$funcstack[1]\" = _ergon ]; then\n    _ergon \"$@\"\nelse\n"
                      "    compdef _ergon ergon\nfi\n");
}

/* --- fish: one complete line per option --- */

static void fish_options(struct erg_text *out, const char *command,
                         const struct erg_option *options)
{
    for (const struct erg_option *option = options; option->name; option++) {
        erg_text_printf(out, "complete -c ergon -n '__fish_seen_subcommand_from %s' -l %s", command,
                        option->name);
        if (option->letter)
            erg_text_printf(out, " -s %c", option->letter);
        if (takes_file(option)) {
            erg_text_add(out, " -r -F");
        } else if (erg_option_choices(option)) {
            erg_text_add(out, " -x -a '");
            add_choices(out, erg_option_choices(option));
            erg_text_add(out, "'");
        } else if (takes_value(option)) {
            erg_text_add(out, " -x");
        }
        erg_text_add(out, " -d '");
        add_quoted(out, option->help, "'\\");
        erg_text_add(out, "'\n");
    }
}

static void fish(struct erg_text *out, const struct erg_command *const *commands)
{
    erg_text_add(out,
                 "complete -c ergon -n __fish_use_subcommand -f -a help -d 'show the help of a "
                 "command'\n");
    for (size_t i = 0; commands[i]; i++) {
        const char *name = commands[i]->name;
        erg_text_printf(out, "complete -c ergon -n __fish_use_subcommand -f -a %s -d '", name);
        add_quoted(out, commands[i]->summary, "'\\");
        erg_text_add(out, "'\n");
        fish_options(out, name, commands[i]->options);
        fish_options(out, name, erg_common_options(commands[i]));
        if (commands[i]->argument_choices) {
            erg_text_printf(out, "complete -c ergon -n '__fish_seen_subcommand_from %s' -f -a '",
                            name);
            add_choices(out, commands[i]->argument_choices);
            erg_text_add(out, "'\n");
        }
    }
}

void erg_completion(struct erg_text *out, enum erg_shell shell,
                    const struct erg_command *const *commands)
{
    switch (shell) {
    case ERG_SHELL_BASH:
        bash(out, commands);
        break;
    case ERG_SHELL_ZSH:
        zsh(out, commands);
        break;
    case ERG_SHELL_FISH:
        fish(out, commands);
        break;
    }
}
