/* ergon submit: submits a job to the cluster's scheduler. */
#include "cli/answer_show.h"
#include "cli/cli.h"
#include "cli/live_option.h"

#include <math.h>
#include <stdlib.h>

struct submit_values {
    const char *live, *like, *resume, *type, *deadline;
    long gpus, gpus_most;
    double weight, minutes;
    bool per_node;
};

#define AT(member) offsetof(struct submit_values, member)
static const struct erg_option options[] = {
    {"live", 'l', ERG_OPTION_FILE, "LIVE.yaml", AT(live), .help = ERG_LIVE_OPTION_HELP},
    {"like", 0, ERG_OPTION_TEXT, "MODEL:BATCH:ITERATIONS", AT(like),
     .help = "the job is a program whose training speed is that of this model in the cluster's "
             "profiles, for example bert-2.6B:128:5000"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e6,
     .help = "GPUs that the job asks for (default: those of the job's cluster; 1 for a program)"},
    {"at-most", 'm', ERG_OPTION_LONG, "N", AT(gpus_most), 1, 1e6,
     .help =
         "most GPUs (default: eight times those asked for; for a program, all of the cluster's)"},
    {"type", 't', ERG_OPTION_TEXT, "TYPE", AT(type),
     .help = "only GPUs of this type (default: any)"},
    {"deadline", 'D', ERG_OPTION_TEXT, "TIME", AT(deadline),
     .help = "deadline: HH:MM:SS from now, or a date and time such as 2026-01-31T12:00"},
    {"weight", 'w', ERG_OPTION_DOUBLE, "W", AT(weight), 1e-3, 1e3,
     .help = "weight of the job compared with others (default: 1)"},
    {"per-node", 0, ERG_OPTION_FLAG, NULL, AT(per_node),
     .help = "start the program once per node, as torchrun expects (default: once per GPU)"},
    {"measure", 0, ERG_OPTION_DOUBLE, "MINUTES", AT(minutes), 0.01, 1e4,
     .help = "first train the job on one GPU of each type, in Slurm jobs of at most this time, and "
             "correct the planner's speeds by the result"},
    {"resume", 'r', ERG_OPTION_FILE, "FOLDER", AT(resume),
     .help = "submit a job again that is no longer in Slurm; it continues from its checkpoint"},
    {0},
};

static int check_given(const struct erg_invocation *call, struct erg_error *err)
{
    const struct submit_values *values = call->values;
    if (values->resume &&
        (call->argument_count || values->like || values->deadline || values->type ||
         values->gpus != ERG_NOT_GIVEN || values->gpus_most != ERG_NOT_GIVEN || values->per_node ||
         !isnan(values->weight) || !isnan(values->minutes)))
        return erg_fail(
            err, ERG_USAGE,
            "--resume takes all settings from the job's folder; expected no option but --live");
    if (!values->resume && !call->argument_count)
        return erg_fail(err, ERG_USAGE, "\"ergon submit\" needs %s; see \"ergon submit --help\"",
                        values->like ? "a program" : "JOB.yaml, or --like and a program");
    if (values->like && !isnan(values->minutes))
        return erg_fail(err, ERG_USAGE, "--measure goes with JOB.yaml, which ergon train trains");
    if (values->per_node && !values->like)
        return erg_fail(err, ERG_USAGE,
                        "--per-node was given without --like; expected it only for a program");
    return 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct submit_values *values = call->values;
    const bool trains = !values->like && !values->resume;
    const char *live = check_given(call, err) == 0 ? erg_live_option(values->live, err) : NULL;
    if (!live)
        return -1;
    char *program = realpath("/proc/self/exe", NULL);
    const struct erg_ask_submit question = {
        .size = sizeof question,
        .live = live,
        .job = trains ? call->arguments[0] : NULL,
        .like = values->like,
        .resume = values->resume,
        .arguments = call->arguments + trains,
        .argument_count = call->argument_count - trains,
        .gpus = erg_given_number(values->gpus),
        .gpus_most = erg_given_number(values->gpus_most),
        .type = values->type,
        .deadline = values->deadline,
        .weight = erg_given_amount(values->weight),
        .per_node = values->per_node,
        .measure_s = 60 * erg_given_amount(values->minutes),
        .program = program,
    };
    struct erg_answer *answer = NULL;
    const int asked = erg_ask_submit(&answer, &question, err);
    free(program);
    return erg_answer_show(asked, &answer, call->common.json, err);
}

const struct erg_command erg_cmd_submit = {
    .name = "submit",
    .summary = "submit a job to the cluster's scheduler",
    .arguments = "JOB.yaml [-- OPTION...] | PROGRAM [-- ARGUMENT...]",
    .least_arguments = 0, /* --resume has none */
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct submit_values),
    .options = options,
    .details =
        "Makes the job's folder and a held Slurm job, under your own name and account. \"ergon "
        "schedule\"\n"
        "then places, moves and resizes it. \"ergon train\" trains JOB.yaml on the GPUs that it "
        "gets; options\n"
        "for it follow \"--\". A program has to save a checkpoint and exit with 85 on SIGUSR1.",
    .examples = "  ergon submit job.yaml --at-most 16 -- --dtype bfloat16\n"
                "  ergon submit --like bert-2.6B:128:5000 train.sh -- --data corpus\n"
                "  ergon submit job.yaml --measure 5\n"
                "  ergon submit --resume /shared/ergon/0123456789abcdef\n",
    .run = run,
};
