/* ergon simulate CLUSTER.yaml TRACE.csv --policy P --profiles DIR: simulates jobs on a shared
 * cluster. */
#include "cli/answer_show.h"
#include "cli/cli.h"

#include <string.h>

/* The unit of --rounds. */
#define ROUND_S 300

struct simulate_values {
    const char *policies, *profiles, *tariff, *outages, *output;
    const char *sweep, *part, *generate;
    long slurm;
    long rounds;
    bool until_empty;
    double work, power_cap_w, failures_h, repair_h;
};

#define AT(member) offsetof(struct simulate_values, member)
static const struct erg_option options[] = {
    {"policy", 'p', ERG_OPTION_TEXT, "NAME,...", AT(policies),
     .help = "scheduling policies: fcfs, arena, … (ergon-simulate(1)); several are compared"},
    {"profiles", 'P', ERG_OPTION_FILE, "DIR", AT(profiles), .help = "folder with prof_optimal.csv"},
    {"rounds", 'r', ERG_OPTION_LONG, "N", AT(rounds), 1, 1e9,
     .help = "stop after N rounds of 300 s"},
    {"until-empty", 'E', ERG_OPTION_FLAG, NULL, AT(until_empty),
     .help = "run until no job runs and none can start (default without --rounds)"},
    {"work", 'W', ERG_OPTION_DOUBLE, "SHARE", AT(work), 1e-6, 1e6, .default_text = "1",
     .help = "share of its iterations that every job does"},
    {"power-cap", 'w', ERG_OPTION_DOUBLE, "W", AT(power_cap_w), 1, 1e12,
     .help =
         "limit of the power of all GPUs together; clocks are lowered if the policy exceeds it"},
    {"tariff", 't', ERG_OPTION_FILE, "FILE", AT(tariff),
     .help = "price and emissions of electricity; columns at_s, usd_per_kwh, g_co2_per_kwh"},
    {"outages", 'f', ERG_OPTION_FILE, "FILE", AT(outages),
     .help = "node failures: a CSV table with the columns node, from_s and to_s"},
    {"mean-failure", 'm', ERG_OPTION_DOUBLE, "HOURS", AT(failures_h), 0.01, 1e9,
     .help = "draw node failures with this mean time between them, per node"},
    {"repair", 'R', ERG_OPTION_DOUBLE, "HOURS", AT(repair_h), 0.001, 1e6,
     .help = "repair time of a drawn failure (default: 4)"},
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "write report.html, and tables, summary and trace of each policy, to this folder"},
    {"sweep", 's', ERG_OPTION_FILE, "SWEEP.yaml", AT(sweep),
     .help = "run all simulations of this file, in place of one cluster and trace; needs --output"},
    {"generate", 'g', ERG_OPTION_FILE, "RECIPE.yaml", AT(generate),
     .help = "print a trace drawn from this recipe and --seed; needs CLUSTER.yaml and --profiles"},
    {"part", 0, ERG_OPTION_TEXT, "K/N", AT(part),
     .help = "simulate every Nth of the sweep, starting with the Kth, into a separate store"},
    {"slurm", 0, ERG_OPTION_LONG, "N", AT(slurm), 1, 9999,
     .help = "print a script that runs the sweep as N tasks under Slurm"},
    {0},
};

/* Default of --seed: 0. */
static uint64_t seed_of(const struct erg_invocation *call)
{
    return (uint64_t)erg_given_number(call->common.seed);
}

/* Returns the first given option that is not in `fitting` (ends with NULL), or NULL. */
static const char *unfitting(const struct erg_invocation *call, const char *const *fitting)
{
    for (size_t i = 0; options[i].name; i++) {
        bool fits = false;
        for (size_t k = 0; fitting[k]; k++)
            fits |= !strcmp(options[i].name, fitting[k]);
        if (call->given[i] && !fits)
            return options[i].name;
    }
    return NULL;
}

/* Options and arguments of one simulation are keys of a sweep's file. */
static int check_sweep(const struct erg_invocation *call, struct erg_error *err)
{
    static const char *const fitting[] = {"output", "sweep", "part", "slurm", NULL};
    const char *other = unfitting(call, fitting);
    if (other)
        return erg_fail(err, ERG_USAGE, "--%s: expected it as a key of the --sweep file", other);
    if (call->argument_count > 0 || call->common.seed != ERG_NOT_GIVEN)
        return erg_fail(err, ERG_USAGE, "%s: expected it as a key of the --sweep file",
                        call->argument_count ? call->arguments[0] : "--seed");
    return 0;
}

static int sweep(const struct erg_invocation *call, struct erg_error *err)
{
    const struct simulate_values *values = call->values;
    const struct erg_ask_sweep question = {.size = sizeof question,
                                           .file = values->sweep,
                                           .folder = values->output,
                                           .part = values->part,
                                           .slurm_tasks = erg_given_number(values->slurm),
                                           .program = "/proc/self/exe"};
    struct erg_answer *answer = NULL;
    if (check_sweep(call, err) != 0)
        return -1;
    if (call->common.json && (values->part || values->slurm != ERG_NOT_GIVEN))
        return erg_fail(err, ERG_USAGE,
                        "--json was given with --part or --slurm, which have no complete results; "
                        "expected it without them");
    return erg_answer_show(erg_ask_sweep(&answer, &question, err), &answer, call->common.json, err);
}

/* Prints a trace drawn from a recipe on standard output. */
static int generate(const struct erg_invocation *call, struct erg_error *err)
{
    static const char *const fitting[] = {"generate", "profiles", NULL};
    const struct simulate_values *values = call->values;
    const char *other = unfitting(call, fitting);
    if (other || call->common.json)
        return erg_fail(
            err, ERG_USAGE,
            "--%s was given with --generate, which simulates nothing; expected it without",
            other ? other : "json");
    if (call->argument_count != 1 || !values->profiles)
        return erg_fail(
            err, ERG_USAGE,
            "--generate needs CLUSTER.yaml and the option --profiles DIR, and no trace");
    const struct erg_ask_trace question = {.size = sizeof question,
                                           .cluster = call->arguments[0],
                                           .profiles = values->profiles,
                                           .recipe = values->generate,
                                           .seed = seed_of(call)};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_trace(&answer, &question, err), &answer, false, err);
}

/* Checks for one simulation. */
static int check_given(const struct erg_invocation *call, struct erg_error *err)
{
    const struct simulate_values *values = call->values;
    const char *missing = call->argument_count < 2 ? call->command->arguments
                          : !values->policies      ? "the option --policy NAME"
                          : !values->profiles      ? "the option --profiles DIR"
                                                   : NULL;
    if (missing)
        return erg_fail(err, ERG_USAGE,
                        "\"ergon simulate\" needs %s, or --sweep; see \"ergon simulate --help\"",
                        missing);
    if (values->part || values->slurm != ERG_NOT_GIVEN)
        return erg_fail(
            err, ERG_USAGE,
            "%s was given without --sweep; expected it only with a sweep, which has parts",
            values->part ? "--part" : "--slurm");
    return 0;
}

static int simulate(const struct erg_invocation *call, struct erg_error *err)
{
    const struct simulate_values *values = call->values;
    const bool bounded = values->rounds != ERG_NOT_GIVEN;
    if (check_given(call, err) != 0)
        return -1;
    if (values->until_empty && bounded)
        return erg_fail(err, ERG_USAGE, "--until-empty and --rounds exclude each other");
    const struct erg_simulations_options input = {
        .size = sizeof input,
        .cluster = call->arguments[0],
        .trace = call->arguments[1],
        .profiles = values->profiles,
        .policies = values->policies,
        .until_s = bounded ? ROUND_S * (double)values->rounds : 0,
        .work = values->work,
        .power_cap_w = erg_given_amount(values->power_cap_w),
        .tariff = values->tariff,
        .outages = values->outages,
        .failure_s = 3600 * erg_given_amount(values->failures_h),
        .repair_s = 3600 * erg_given_amount(values->repair_h),
        .seed = seed_of(call),
        .folder = values->output,
    };
    const struct erg_ask_simulate question = {.size = sizeof question, .options = &input};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_simulate(&answer, &question, err), &answer, call->common.json,
                           err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct simulate_values *values = call->values;
    return values->sweep      ? sweep(call, err)
           : values->generate ? generate(call, err)
                              : simulate(call, err);
}

const struct erg_command erg_cmd_simulate = {
    .name = "simulate",
    .summary = "simulate a trace of jobs on a shared cluster under a policy",
    .arguments = "CLUSTER.yaml TRACE.csv",
    .least_arguments = 0, /* a sweep's file names them */
    .most_arguments = 2,
    .values_bytes = sizeof(struct simulate_values),
    .options = options,
    .details = "Simulates the waiting time, speed, energy and deadlines of the jobs of a trace "
               "under a policy.\n"
               "Several policies are compared on one page. --sweep runs many loads, clusters, "
               "policies and seeds on\n"
               "all cores; after an interruption, the same command continues.",
    .examples =
        "  ergon simulate examples/arena/cluster-1280.yaml trace.csv --policy fcfs --profiles "
        "arena\n"
        "  ergon simulate --sweep sweep.yaml --output out\n",
    .run = run,
};
