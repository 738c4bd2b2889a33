/* ergon frontier PROFILE.csv: the time-energy frontier of a pipeline from a measured profile. */
#include "cli/answer_show.h"
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>

enum format { TABLE, CSV, JSON };

struct frontier_values {
    long microbatches, virtual_stages, points;
    int schedule, format;
    double blocking_power_w, p2p_latency_s, unit_s, deadline_s, energy_budget_j;
    const char *plan;
};

static const char *const schedules[] = {"1f1b", "interleaved", NULL};
static const char *const formats[] = {"table", "csv", "json", NULL};

#define AT(member) offsetof(struct frontier_values, member)
static const struct erg_option options[] = {
    {"microbatches", 'm', ERG_OPTION_LONG, "M", AT(microbatches), 1, 1000000, .required = true,
     .help = "microbatches per iteration"},
    {"schedule", 0, ERG_OPTION_CHOICE, "NAME", AT(schedule), .choices = schedules,
     .default_text = "1f1b", .help = "pipeline schedule"},
    {"virtual-stages", 0, ERG_OPTION_LONG, "V", AT(virtual_stages), 1, 4096, .default_text = "1",
     .help = "virtual stages per stage, for the interleaved schedule"},
    {"blocking-power", 'p', ERG_OPTION_DOUBLE, "W", AT(blocking_power_w), 0, 1e6,
     .help = "power of a GPU that waits for its neighbours (default: 0)"},
    {"p2p-latency", 0, ERG_OPTION_DOUBLE, "S", AT(p2p_latency_s), 0, 1e6, .default_text = "0",
     .help = "seconds that a message takes from one stage to the next"},
    {"unit", 0, ERG_OPTION_DOUBLE, "S", AT(unit_s), 1e-12, 1e6,
     .help =
         "resolution of planned times in seconds (default: the finest that the solver can use)"},
    {"points", 'n', ERG_OPTION_LONG, "N", AT(points), 2, 100000, .default_text = "100",
     .help = "number of deadlines to make plans for"},
    {"deadline", 0, ERG_OPTION_DOUBLE, "S", AT(deadline_s), 1e-12, 1e15,
     .help = "print only the plan of least energy within this time"},
    {"energy-budget", 0, ERG_OPTION_DOUBLE, "J", AT(energy_budget_j), 1e-12, 1e15,
     .help = "print only the fastest plan within this energy"},
    {"plan", 0, ERG_OPTION_FILE, "FILE", AT(plan),
     .help = "write all points as a plan; the selected point (default: the fastest) is marked"},
    {"format", 'f', ERG_OPTION_CHOICE, "FORMAT", AT(format), .choices = formats,
     .help = "output format (default: a table)"},
    {0},
};

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct frontier_values *values = call->values;
    if (call->common.json && (values->format == TABLE || values->format == CSV))
        return erg_fail(err, ERG_USAGE,
                        "--format %s and --json exclude each other: the output has one format",
                        formats[values->format]);
    const struct erg_ask_frontier question = {
        .size = sizeof question,
        .profile = call->arguments[0],
        .plan = values->plan,
        .microbatches = values->microbatches,
        .virtual_stages = values->virtual_stages,
        .interleaved = values->schedule,
        .points = values->points,
        .blocking_power_w = isnan(values->blocking_power_w) ? NULL : &values->blocking_power_w,
        .p2p_latency_s = values->p2p_latency_s,
        .unit_s = erg_given_amount(values->unit_s),
        .deadline_s = erg_given_amount(values->deadline_s),
        .energy_j = erg_given_amount(values->energy_budget_j),
        .seed = (uint64_t)erg_given_number(call->common.seed),
    };
    struct erg_answer *answer = NULL;
    const int asked = erg_ask_frontier(&answer, &question, err);
    if (asked != 0 || values->format != CSV)
        return erg_answer_show(asked, &answer, call->common.json || values->format == JSON, err);
    fputs(erg_answer_csv(answer), stdout);
    erg_answer_free(answer);
    return 0;
}

const struct erg_command erg_cmd_frontier = {
    .name = "frontier",
    .summary = "compute the time-energy frontier of a pipeline iteration from a measured profile",
    .arguments = "PROFILE.csv",
    .least_arguments = 1,
    .most_arguments = 1,
    .values_bytes = sizeof(struct frontier_values),
    .options = options,
    .details =
        "PROFILE.csv has the columns stage,instruction,frequency,time,energy: the time in s and\n"
        "the energy in J of one GPU of the stage, for one forward or backward of one microbatch,\n"
        "at every clock in MHz. With the interleaved schedule, the column stage contains either "
        "virtual\n"
        "stages, where virtual stage x runs on stage x mod S and S = virtual stages / V, or "
        "stages, where\n"
        "instructions include the chunk: forward/1.\n"
        "Energies are summed over one GPU per stage and include the power of waiting.",
    .examples = "  ergon frontier profile.csv --microbatches 12 --blocking-power 83.6\n"
                "  ergon frontier profile.csv -m 12 -p 83.6 --deadline 3.1 --plan plan.json\n"
                "  ergon frontier profile.csv -m 16 -p 83.6 --schedule interleaved "
                "--virtual-stages 2\n",
    .run = run,
};
