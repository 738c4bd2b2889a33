/* ergon frontier PROFILE.csv: the time-energy frontier of a pipeline from a measured profile. */
#include "api/profile_frontier.h"
#include "cli/cli.h"

#include <math.h>

static const char *const schedules[] = {"1f1b", "interleaved", NULL};
static const char *const formats[] = {"table", "csv", "json", NULL};

#define AT(member) offsetof(struct erg_profile_frontier_wish, member)
static const struct erg_option options[] = {
    {"microbatches", 'm', ERG_OPTION_LONG, "M", AT(microbatches), 1, 1000000, .required = true,
     .help = "microbatches per iteration"},
    {"schedule", 0, ERG_OPTION_CHOICE, "NAME", AT(schedule), .choices = schedules,
     .default_text = "1f1b", .help = "pipeline schedule"},
    {"virtual-stages", 0, ERG_OPTION_LONG, "V", AT(virtual_stages), 1, 4096, .default_text = "1",
     .help = "virtual stages per stage, with the interleaved schedule"},
    {"blocking-power", 'p', ERG_OPTION_DOUBLE, "W", AT(blocking_power_w), 0, 1e6,
     .help = "power of a GPU that waits for its neighbours (default: 0)"},
    {"p2p-latency", 0, ERG_OPTION_DOUBLE, "S", AT(p2p_latency_s), 0, 1e6, .default_text = "0",
     .help = "seconds from one stage to the next"},
    {"unit", 0, ERG_OPTION_DOUBLE, "S", AT(unit_s), 1e-12, 1e6,
     .help = "resolution of planned times in seconds (default: as fine as fits)"},
    {"points", 'n', ERG_OPTION_LONG, "N", AT(points), 2, 100000, .default_text = "100",
     .help = "deadlines to make plans for"},
    {"deadline", 0, ERG_OPTION_DOUBLE, "S", AT(deadline_s), 1e-12, 1e15,
     .help = "print only the plan of least energy within this time"},
    {"energy-budget", 0, ERG_OPTION_DOUBLE, "J", AT(energy_budget_j), 1e-12, 1e15,
     .help = "print only the fastest plan within this energy"},
    {"plan", 0, ERG_OPTION_FILE, "FILE", AT(output),
     .help = "write all points, the selected one (default: the fastest) marked, as a plan"},
    {"format", 'f', ERG_OPTION_CHOICE, "FORMAT", AT(form), .choices = formats,
     .help = "what to print (default: a table)"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct erg_profile_frontier_wish wish = *(const struct erg_profile_frontier_wish *)call->values;
    if (!isnan(wish.deadline_s) && !isnan(wish.energy_budget_j))
        return erg_fail(err, ERG_USAGE,
                        "The options --deadline and --energy-budget exclude each other: each "
                        "selects one plan.");
    if (call->common.json && (wish.form == ERG_FRONTIER_TABLE || wish.form == ERG_FRONTIER_CSV))
        return erg_fail(err, ERG_USAGE,
                        "The options --format %s and --json exclude each other: what is printed "
                        "has one form.",
                        formats[wish.form]);
    wish.profile = call->arguments[0];
    wish.seed = call->common.seed;
    if (call->common.json)
        wish.form = ERG_FRONTIER_JSON;
    return erg_profile_frontier(stdout, &wish, err);
}

const struct erg_command erg_cmd_frontier = {
    .name = "frontier",
    .summary = "time-energy frontier of a pipeline iteration from a measured stage profile",
    .arguments = "PROFILE.csv",
    .least_arguments = 1,
    .most_arguments = 1,
    .values_bytes = sizeof(struct erg_profile_frontier_wish),
    .options = options,
    .details =
        "PROFILE.csv has the columns stage,instruction,frequency,time,energy: the time in s and\n"
        "the energy in J of one GPU of the stage, for one forward or backward of one microbatch,\n"
        "at every clock in MHz. With the interleaved schedule its stages are virtual stages:\n"
        "virtual stage x runs on stage x mod S, where S = stages of the profile / V. Or they are\n"
        "the stages, and instructions name the chunk: forward/1.\n"
        "Energies are summed over one GPU per stage and include the power of waiting.",
    .examples = "  ergon frontier profile.csv --microbatches 12 --blocking-power 83.6\n"
                "  ergon frontier profile.csv -m 12 -p 83.6 --deadline 3.1 --plan plan.json\n"
                "  ergon frontier profile.csv -m 16 -p 83.6 --schedule interleaved "
                "--virtual-stages 2\n",
    .run = run,
};
