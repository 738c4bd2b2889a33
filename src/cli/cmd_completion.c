/* ergon completion SHELL: prints the completion script of a shell. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const char *const shells[] = {"bash", "zsh", "fish", NULL};
static const struct erg_option options[] = {{0}};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    for (int i = 0; shells[i]; i++) {
        if (strcmp(call->arguments[0], shells[i]) != 0)
            continue;
        struct erg_text script = {0};
        erg_completion(&script, (enum erg_shell)i, erg_commands);
        fputs(script.data, stdout);
        erg_text_release(&script);
        return 0;
    }
    return erg_fail(
        err, ERG_USAGE,
        "There is no completion script for the shell \"%s\"; expected bash, zsh or fish",
        call->arguments[0]);
}

const struct erg_command erg_cmd_completion = {
    .name = "completion",
    .summary = "print the completion script of a shell",
    .arguments = "bash|zsh|fish",
    .argument_choices = shells,
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_FEW,
    .options = options,
    .examples = "  ergon completion bash >~/.local/share/bash-completion/completions/ergon\n"
                "  ergon completion fish >~/.config/fish/completions/ergon.fish\n",
    .run = run,
};
