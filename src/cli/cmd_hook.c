/* ergon hook show: the clocks that a rank of another trainer sets when it follows a plan. */
#include "cli/answer_show.h"
#include "cli/cli.h"

#include <string.h>

struct hook_values {
    long stage, point;
    const char *method;
    double dwell_s, least_change_mhz;
    bool clocks_only;
};

#define AT(member) offsetof(struct hook_values, member)
static const struct erg_option options[] = {
    {"stage", 's', ERG_OPTION_LONG, "N", AT(stage), 0, 1e6, .default_text = "0",
     .help = "pipeline rank, from 0"},
    {"method", 'm', ERG_OPTION_TEXT, "NAME", AT(method),
     .help = "method of the plan (default: sequential+clocks)"},
    {"point", 'p', ERG_OPTION_LONG, "N", AT(point), 1, 1e9,
     .help = "number of the point; 1 is the fastest (default: the plan's selected one, if it is of "
             "that method)"},
    {"dwell", 'd', ERG_OPTION_DOUBLE, "SECONDS", AT(dwell_s), 0, 1e6,
     .help = "keep a clock for at least this time (default: 0.05; 0 means the default)"},
    {"least-change", 0, ERG_OPTION_DOUBLE, "MHZ", AT(least_change_mhz), 0, 1e5,
     .help = "skip smaller changes (default: 30; 0 means the default)"},
    {"clocks-only", 0, ERG_OPTION_FLAG, NULL, AT(clocks_only),
     .help = "use the clocks of a method that only ergon's own training can run"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct hook_values *values = call->values;
    if (strcmp(call->arguments[0], "show") != 0)
        return erg_fail(err, ERG_USAGE, "\"ergon hook\" got \"%s\", expected show",
                        call->arguments[0]);
    const struct erg_ask_programme question = {
        .size = sizeof question,
        .plan = call->arguments[1],
        .method = values->method,
        .point = erg_given_number(values->point),
        .stage = values->stage,
        .dwell_s = values->dwell_s,
        .least_change_mhz = values->least_change_mhz,
        .clocks_only = values->clocks_only,
    };
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_programme(&answer, &question, err), &answer, call->common.json,
                           err);
}

const struct erg_command erg_cmd_hook = {
    .name = "hook",
    .summary = "show the clocks of a plan that another trainer sets",
    .arguments = "show PLAN.json",
    .least_arguments = 2,
    .most_arguments = 2,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct hook_values),
    .options = options,
    .details =
        "A trainer other than ergon's follows a plan through the C interface ergon/hook.h. It "
        "joins passes\n"
        "into groups of at least the dwell time, each at the highest clock planned for a pass in "
        "it, so that\n"
        "no pass becomes slower. This command prints the groups of one stage, and their cost.",
    .examples = "  ergon hook show plan.json --stage 1\n"
                "  ergon hook show plan.json --stage 1 --point 4 --dwell 0.1\n"
                "  ergon hook show plan.json --json\n",
    .run = run,
};
