/* ergon submit: gives a job to the cluster's scheduler. */
#include "cli/cli.h"

#include "api/submitting.h"
#include "cli/live_option.h"
#include "io/json.h"
#include "io/print.h"

#include <math.h>
#include <stdlib.h>

struct submit_values {
    const char *live, *like, *resume, *type, *deadline;
    long gpus, gpus_most;
    double weight;
    bool per_node;
};

#define AT(member) offsetof(struct submit_values, member)
static const struct erg_option options[] = {
    {"live", 'l', ERG_OPTION_FILE, "LIVE.yaml", AT(live), .help = ERG_LIVE_OPTION_HELP},
    {"like", 0, ERG_OPTION_TEXT, "MODEL:BATCH:ITERATIONS", AT(like),
     .help = "the job is a program that trains as fast as this model of the cluster's profiles, "
             "such as bert-2.6B:128:5000"},
    {"gpus", 'n', ERG_OPTION_LONG, "N", AT(gpus), 1, 1e6,
     .help = "GPUs asked for (default: those of the job's cluster; 1 for a program)"},
    {"at-most", 'm', ERG_OPTION_LONG, "N", AT(gpus_most), 1, 1e6,
     .help = "never more GPUs than these (default: eight times those asked for; of a program "
             "the cluster's)"},
    {"type", 't', ERG_OPTION_TEXT, "TYPE", AT(type),
     .help = "only GPUs of this type (default: any)"},
    {"deadline", 'D', ERG_OPTION_TEXT, "TIME", AT(deadline),
     .help = "when it should be done: HH:MM:SS from now on, or 2026-01-31T12:00"},
    {"weight", 'w', ERG_OPTION_DOUBLE, "W", AT(weight), 1e-3, 1e3,
     .help = "how much it counts among others (default: 1)"},
    {"per-node", 0, ERG_OPTION_FLAG, NULL, AT(per_node),
     .help = "start the program once on each node, as torchrun wants it, not for each GPU"},
    {"resume", 'r', ERG_OPTION_FILE, "FOLDER", AT(resume),
     .help = "submit a job anew that Slurm has no more; it goes on from its checkpoint"},
    {0},
};

static int check_given(const struct erg_invocation *call, struct erg_error *err)
{
    const struct submit_values *values = call->values;
    if (values->resume &&
        (call->argument_count || values->like || values->deadline || values->type ||
         values->gpus != ERG_NOT_GIVEN || values->gpus_most != ERG_NOT_GIVEN || values->per_node ||
         !isnan(values->weight)))
        return erg_fail(err, ERG_USAGE,
                        "--resume goes with --live alone: all else is in the job's folder");
    if (!values->resume && !call->argument_count)
        return erg_fail(err, ERG_USAGE, "\"ergon submit\" needs %s; see \"ergon submit --help\".",
                        values->like ? "a program" : "JOB.yaml, or --like and a program");
    if (values->per_node && !values->like)
        return erg_fail(err, ERG_USAGE, "--per-node goes with --like and a program");
    return 0;
}

static void print(const struct erg_invocation *call, const struct erg_submitted *submitted)
{
    if (call->common.json) {
        erg_print_json(stdout,
                       erg_json_pack("{s:s, s:I, s:s, s:s, s:s}", "schema", "ergon.submitted",
                                     "job", (json_int_t)submitted->id, "token", submitted->token,
                                     "folder", submitted->folder, "types", submitted->types));
        return;
    }
    printf("job %lu, token %s, waits for its place", submitted->id, submitted->token);
    if (submitted->types)
        printf(" on %s", submitted->types);
    printf("\nfolder %s\n", submitted->folder);
}

static int submit(const struct erg_invocation *call, const struct erg_live_file *live,
                  struct erg_error *err)
{
    const struct submit_values *values = call->values;
    const bool trains = !values->like && !values->resume;
    struct erg_submitted submitted;
    struct erg_submit_wish wish = {
        .job = trains ? call->arguments[0] : NULL,
        .like = values->like,
        .resume = values->resume,
        .arguments = call->arguments + trains,
        .argument_count = call->argument_count - trains,
        .gpus = values->gpus,
        .gpus_most = values->gpus_most,
        .type = values->type,
        .deadline_unix_s = NAN,
        .weight = values->weight,
        .per_node = values->per_node,
    };
    if (values->deadline &&
        erg_submit_read_deadline(&wish.deadline_unix_s, values->deadline, err) != 0)
        return -1;
    char *program = realpath("/proc/self/exe", NULL);
    wish.program = program ? program : "ergon";
    int result = erg_submit(&submitted, live, &wish, err);
    if (result == 0)
        print(call, &submitted);
    erg_submitted_release(&submitted);
    free(program);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct submit_values *values = call->values;
    struct erg_live_file *live;
    const char *path = check_given(call, err) == 0 ? erg_live_option(values->live, err) : NULL;
    if (!path || erg_live_file_load(&live, path, err) != 0)
        return -1;
    int result = submit(call, live, err);
    erg_live_file_free(live);
    return result;
}

const struct erg_command erg_cmd_submit = {
    .name = "submit",
    .summary = "give a job to the cluster's scheduler",
    .arguments = "JOB.yaml [-- OPTION...] | PROGRAM [-- ARGUMENT...]",
    .least_arguments = 0, /* --resume has none */
    .most_arguments = SIZE_MAX,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct submit_values),
    .options = options,
    .details =
        "Makes the job's folder and a held Slurm job, under your own name and account, which\n"
        "\"ergon schedule\" then places, moves and resizes. JOB.yaml is trained by \"ergon "
        "train\", on as\nmany GPUs as it is given; options for it follow \"--\". A program "
        "is one that saves and exits with\n85 on SIGUSR1.",
    .examples = "  ergon submit job.yaml --at-most 16 -- --dtype bfloat16\n"
                "  ergon submit --like bert-2.6B:128:5000 train.sh -- --data corpus\n"
                "  ergon submit --resume /shared/ergon/0123456789abcdef\n",
    .run = run,
};
