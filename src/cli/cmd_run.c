/* ergon run -n N -- CMD...: one process per GPU of this machine. */
#include "cli/cli.h"

#include "ergon/launch.h"

#include <stdio.h>

struct run_values {
    long ranks;
    double timeout_s;
    bool plain;
};

#define AT(member) offsetof(struct run_values, member)
static const struct erg_option options[] = {
    {"ranks", 'n', ERG_OPTION_LONG, "N", AT(ranks), 1, ERG_LAUNCH_MOST_RANKS, .required = true,
     .help = "number of processes"},
    {"timeout", 't', ERG_OPTION_DOUBLE, "SECONDS", AT(timeout_s), 1e-3, 1e15,
     .help = "stop ranks that still run after this time, with exit status 124"},
    {"plain", 0, ERG_OPTION_FLAG, NULL, AT(plain),
     .help = "pass on the ranks' lines without the prefix \"[rank] \""},
    {0},
};

static void print_line(void *context, int rank, int is_error, const char *text, size_t count)
{
    FILE *out = is_error ? stderr : stdout;
    const struct run_values *values = context;
    if (!values->plain)
        fprintf(out, "[%d] ", rank);
    fwrite(text, 1, count, out);
    putc('\n', out);
    fflush(out); /* the ranks flush their own lines */
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct run_values values = *(const struct run_values *)call->values;
    const struct erg_launch_options input = {.size = sizeof input,
                                             .ranks = values.ranks,
                                             .command = call->arguments,
                                             .timeout_s = erg_given_amount(values.timeout_s),
                                             .line = print_line,
                                             .context = &values};
    return erg_launch_ranks(&input, err);
}

const struct erg_command erg_cmd_run = {
    .name = "run",
    .summary = "run a command as several ranks, one process per GPU",
    .arguments = "-- CMD [ARGUMENT]...",
    .least_arguments = 1,
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_FEW,
    .passes_output = true,
    .listens = true,
    .values_bytes = sizeof(struct run_values),
    .options = options,
    .details = "The environment of each of the N processes contains its rank and the address where "
               "ranks meet. The\n"
               "first rank that fails stops the others within seconds; one message names it, and "
               "its exit status is\n"
               "passed on. Signals are passed on to all ranks.",
    .examples = "  ergon run -n 4 -- ./train --steps 100\n"
                "  ergon run -n 2 --timeout 60 -- sh -c 'echo rank $ERGON_RANK of "
                "$ERGON_WORLD_SIZE'\n",
    .run = run,
};
