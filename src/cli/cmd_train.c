/* ergon train JOB.yaml: trains a model. */
#include "cli/answer_show.h"
#include "cli/cli.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/option_value.h"
#include "base/quantity.h"
#include "base/text.h"
#include "ergon/train.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct train_values {
    const char *output, *resume, *init, *export, *until;
    double auto_s; /* 0: given without a value; NaN: not given */
    const char *plan, *method;
    long point;
    double deadline_s, budget_j;
    bool force, lock_clocks, require_clocks;
    long steps;
    int device, type;
    bool dry_run, fresh, allow_change;
};

static const char *const devices[] = {"auto", "cuda", "host", NULL}; /* in the order of enum
                                                                      * erg_train_device */

#define AT(member) offsetof(struct train_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "RUN", AT(output),
     .help = "folder of the run: its log, page and checkpoints; an interrupted run continues from "
             "there"},
    {"resume", 'r', ERG_OPTION_FILE, "FOLDER", AT(resume),
     .help = "continue from this checkpoint, from the newest in this folder of a run, or with "
             "\"latest\" from the newest in RUN"},
    {"fresh", 0, ERG_OPTION_FLAG, NULL, AT(fresh),
     .help = "start a new run; an existing run in RUN is an error"},
    {"allow-change", 0, ERG_OPTION_FLAG, NULL, AT(allow_change),
     .help = "continue from a checkpoint even if batch, seed, data or computation differ"},
    {"steps", 'n', ERG_OPTION_LONG, "N", AT(steps), 1, 1e12,
     .help = "stop after this step (default: the job's updates)"},
    {"until", 'u', ERG_OPTION_TEXT, "HH:MM:SS", AT(until),
     .help = "write a checkpoint and stop before the run has taken this time (default: before "
             "$SLURM_JOB_END_TIME)"},
    {"init", 'i', ERG_OPTION_FILE, "FOLDER", AT(init),
     .help = "start with the weights of this model, or with \"random\" weights (default: "
             "train.init of the job)"},
    {"export", 'e', ERG_OPTION_FILE, "FOLDER", AT(export),
     .help = "write the trained model in Hugging Face's format"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "auto", .help = "a GPU, the host's CPU, or (auto) a GPU if there is one"},
    {"dtype", 't', ERG_OPTION_CHOICE, "TYPE", AT(type), .words = ERG_WORDS_TRAIN_TYPE,
     .default_text = "bfloat16",
     .help = "type of activations and of the weights in use; master weights are always float32"},
    {"plan", 'p', ERG_OPTION_FILE, "PLAN.json", AT(plan),
     .help = "run every instruction as in this plan of the job (see ergon optimize)"},
    {"method", 'm', ERG_OPTION_TEXT, "NAME", AT(method),
     .help = "take a point of this method (default: the plan's selected point)"},
    {"point", 0, ERG_OPTION_LONG, "N", AT(point), ERG_POINT_RANGE,
     .help = "take the plan's point of this number; 1 is the fastest"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), ERG_POINT_TIME_RANGE,
     .help = "take the plan's point of least energy within this time of an iteration; with --auto, "
             "the way of least energy within this time of a step"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(budget_j), ERG_POINT_ENERGY_RANGE,
     .help = "take the plan's fastest point within this energy of an iteration; with --auto, the "
             "fastest way within this energy of a step"},
    {"lock-clocks", 0, ERG_OPTION_FLAG, NULL, AT(lock_clocks),
     .help = "set the plan's clocks (default: GPUs keep their own); needs permission"},
    {"require-clocks", 0, ERG_OPTION_FLAG, NULL, AT(require_clocks),
     .help = "like --lock-clocks, but fail if the clocks cannot be set"},
    {"force", 0, ERG_OPTION_FLAG, NULL, AT(force),
     .help = "accept a plan that was measured on other GPUs"},
    {"auto", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(auto_s), 0, 1e9, .bare_text = "0",
     .help = "choose the layout where the job leaves it open, try ways to run a step for this time "
             "(default: 5 % of the run), and continue with the best"},
    {"dry-run", 0, ERG_OPTION_FLAG, NULL, AT(dry_run),
     .help = "check the job, print its ranks, memory and time, and train nothing"},
    {0},
};

/* ---- output ---- */

static void print_line(void *context, const char *text)
{
    (void)context;
    erg_terminal_line(text);
}

static void print_resumed(const struct erg_train_stats *stats)
{
    struct erg_text text = {0};
    erg_text_printf(&text, "continues from %s, step %" PRIu64 "\n", stats->resumed, stats->step);
    erg_terminal_print(stderr, text.data);
    erg_text_release(&text);
}

/* ---- training ---- */

static int read_until(double *seconds, const char *text, struct erg_error *err)
{
    if (!text || (erg_parse_duration(text, seconds) && *seconds > 0))
        return 0;
    return erg_fail(err, ERG_USAGE,
                    "--until got \"%.80s\", expected hours, minutes and seconds as 11:30:00", text);
}

/* Explains why a run ended before its last step; only rank 0 prints it. */
static int explain_end(const struct erg_train_stats *stats, const char *output,
                       struct erg_error *err)
{
    const char *why = stats->end == ERG_TRAIN_TIME_UP ? " as its time ends" : "";
    if (stats->end == ERG_TRAIN_DONE)
        return 0;
    if (stats->saved)
        erg_fail(err, stats->signal == SIGINT ? ERG_INTERRUPTED : ERG_RESUMABLE,
                 "stopped at step %" PRIu64 "%s, checkpoint %s/latest", stats->step, why, output);
    else
        erg_fail(err, ERG_INTERRUPTED, "stopped at step %" PRIu64 "%s, without a checkpoint",
                 stats->step, why);
    if (stats->rank != 0)
        err->message[0] = 0;
    return -1;
}

/* A run that was interrupted before its first step has lost nothing and can be run again. */
static int explain_early_signal(struct erg_error *err)
{
    int signal = erg_interrupt_signal();
    if (err->status == ERG_INTERRUPTED && signal && signal != SIGINT)
        err->status = ERG_RESUMABLE;
    return -1;
}

/* Only another thread can end a process whose call to its device does not return. */
static void end_stuck(const char *sentence)
{
    struct erg_text text = {0};
    erg_text_printf(&text, "ergon: %s\n", sentence);
    ssize_t ignored = write(STDERR_FILENO, text.data, text.count);
    (void)ignored;
    _exit(ERG_FAILED);
}

static int run_steps(struct erg_train *train, struct erg_train_stats *stats, struct erg_error *err)
{
    while (erg_train_stats(train, stats, err) == 0 && !stats->end) {
        if (stats->rank == 0)
            erg_progress("training", stats->step, stats->steps);
        erg_train_stop(train, erg_interrupt_signal());
        if (erg_interrupt_take_request())
            erg_train_save_soon(train);
        if (erg_train_step(train, err) != 0)
            return -1;
    }
    if (stats->rank == 0 && stats->end == ERG_TRAIN_DONE)
        erg_progress("training", stats->steps, stats->steps);
    return 0;
}

static int train_model(struct erg_train *train, const struct train_values *values,
                       struct erg_error *err)
{
    struct erg_train_stats stats = {.size = sizeof stats};
    erg_train_stats(train, &stats, err);
    if (stats.rank == 0) {
        fputs(erg_train_about(train), stdout);
        fflush(stdout); /* before the lines of the steps */
    }
    const char *from = values->resume;
    if (from && strcmp(from, "latest") == 0)
        from = values->output; /* else --resume contains the folder */
    if ((from || !values->fresh) && erg_train_resume(train, from, err) != 0)
        return -1;
    erg_train_stats(train, &stats, err);
    if (stats.resumed && stats.rank == 0)
        print_resumed(&stats);
    if (run_steps(train, &stats, err) != 0 || explain_end(&stats, values->output, err) != 0)
        return -1;
    if (stats.rank == 0)
        fputs(erg_train_result(train), stdout);
    return values->export ? erg_train_export(train, values->export, err) : 0;
}

static int check_plan_options(const struct train_values *values, struct erg_error *err)
{
    const int points =
        (values->point != ERG_NOT_GIVEN) + !isnan(values->deadline_s) + !isnan(values->budget_j);
    const char *lone = values->method           ? "--method"
                       : values->lock_clocks    ? "--lock-clocks"
                       : values->require_clocks ? "--require-clocks"
                       : values->force          ? "--force"
                       : points                 ? "--point, --deadline or --energy-budget"
                                                : NULL;
    if (!isnan(values->auto_s)) {
        const char *both = values->plan                     ? "--plan"
                           : values->method                 ? "--method"
                           : values->point != ERG_NOT_GIVEN ? "--point"
                           : values->force                  ? "--force"
                                                            : NULL;
        if (both)
            return erg_fail(
                err, ERG_USAGE,
                "--auto and %s exclude each other: --auto makes a plan and chooses its best point",
                both);
        if (!values->output && !values->dry_run)
            return erg_fail(
                err, ERG_USAGE,
                "--auto needs --output, the folder of the run, which stores its choices");
        lone = NULL;
    }
    if (erg_option_check_points(points, err) != 0)
        return -1;
    if (!values->plan && lone)
        return erg_fail(err, ERG_USAGE, "%s needs --plan or --auto", lone);
    return 0;
}

static int preview(const struct erg_invocation *call, const struct erg_train_options *asked,
                   struct erg_error *err)
{
    const struct train_values *values = call->values;
    const struct erg_ask_train question = {.size = sizeof question,
                                           .job = call->arguments[0],
                                           .options = asked,
                                           .best = !isnan(values->auto_s)};
    struct erg_answer *answer = NULL;
    return erg_answer_show(erg_ask_train(&answer, &question, err), &answer, call->common.json, err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct train_values *values = call->values;
    struct erg_train_options train_options = {
        .size = sizeof train_options,
        .folder = values->output,
        .init = values->init,
        .device = values->device,
        .type = values->type,
        .fresh = values->fresh,
        .allow_change = values->allow_change,
        .plan = values->plan,
        .method = values->method,
        .point = (size_t)erg_given_number(values->point),
        .deadline_s = erg_given_amount(values->deadline_s),
        .energy_budget_j = erg_given_amount(values->budget_j),
        .force_plan = values->force,
        .lock_clocks = values->lock_clocks || values->require_clocks,
        .require_clocks = values->require_clocks,
        .steps = (uint64_t)erg_given_number(values->steps),
        .line = call->common.quiet ? NULL : print_line,
        .stuck = end_stuck,
    };
    struct erg_train *train;
    if (check_plan_options(values, err) != 0)
        return -1;
    if (read_until(&train_options.time_s, values->until, err) != 0)
        return -1;
    if (call->common.json && !values->dry_run)
        return erg_fail(err, ERG_USAGE,
                        "--json needs --dry-run; a run writes its numbers to RUN/metrics.jsonl");
    if (values->resume && strcmp(values->resume, "latest") == 0 && !values->output)
        return erg_fail(err, ERG_USAGE, "--resume latest needs --output, the folder of the run");
    if (values->export && erg_train_check_export(values->export, err) != 0)
        return -1;
    if (values->dry_run)
        return preview(call, &train_options, err);
    const int opened =
        isnan(values->auto_s)
            ? erg_train_open(&train, call->arguments[0], &train_options, err)
            : erg_train_open_best(&train, call->arguments[0], &train_options, values->auto_s, err);
    if (opened != 0)
        return explain_early_signal(err);
    int result = train_model(train, values, err);
    return erg_train_close(train, result ? NULL : err) != 0 ? -1 : result;
}

const struct erg_command erg_cmd_train = {
    .name = "train",
    .summary = "train a model on GPUs or the host's CPU",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .listens = true,
    .values_bytes = sizeof(struct train_values),
    .options = options,
    .details = "The job's key \"train\" sets data, updates and learning rate. Its degrees set the "
               "number of ranks;\n"
               "\"ergon run\", torchrun or Slurm start them, one per GPU. On the host's CPU, one "
               "machine can run any\n"
               "number of ranks.",
    .examples = "  ergon tokenize bytes book.txt -o book\n"
                "  ergon train examples/train/tiny.yaml -o run --export trained\n"
                "  ergon run -n 4 -- ergon train job.yaml -o run\n",
    .run = run,
};
