/* ergon train JOB.yaml: trains a model. */
#include "cli/cli.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/text.h"
#include "device/backend.h"
#include "io/print.h"
#include "launch/launch.h"
#include "layout/memory/stage_memory.h"
#include "optimize/optimize.h"
#include "train/files/model_file.h"
#include "train/run/run_layout.h"
#include "train/run/run_memory.h"
#include "train/run/session.h"
#include "train/run/train_preview.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct train_values {
    const char *output, *resume, *init, *export, *until;
    double auto_s; /* 0: without a value; NaN: not given */
    const char *plan, *method;
    long point;
    double deadline_s, budget_j;
    bool force, lock_clocks, require_clocks;
    long steps;
    int device, type;
    bool dry_run, fresh, allow_change;
};

static const char *const devices[] = {"auto", "cuda", "host", NULL}; /* enum erg_train_device */

#define AT(member) offsetof(struct train_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "RUN", AT(output),
     .help = "folder of the run: its log, page and checkpoints, from which it goes on"},
    {"resume", 'r', ERG_OPTION_FILE, "FOLDER", AT(resume),
     .help = "go on from this checkpoint, the newest of this run's folder, or RUN's \"latest\""},
    {"fresh", 0, ERG_OPTION_FLAG, NULL, AT(fresh),
     .help = "begin anew; a run that is there already is an error"},
    {"allow-change", 0, ERG_OPTION_FLAG, NULL, AT(allow_change),
     .help = "go on from a checkpoint of another batch, seed, data or computation, too"},
    {"steps", 'n', ERG_OPTION_LONG, "N", AT(steps), 1, 1e12,
     .help = "end at this step (default: the job's updates)"},
    {"until", 'u', ERG_OPTION_TEXT, "HH:MM:SS", AT(until),
     .help = "stop with a checkpoint before the run has taken so long (default: before "
             "$SLURM_JOB_END_TIME)"},
    {"init", 'i', ERG_OPTION_FILE, "FOLDER", AT(init),
     .help = "begin with a model's weights, or \"random\" (default: as the job says)"},
    {"export", 'e', ERG_OPTION_FILE, "FOLDER", AT(export),
     .help = "write the trained model as Hugging Face keeps it"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "auto",
     .help = "what computes: a GPU, the host's CPU, or a GPU if there is one"},
    {"dtype", 't', ERG_OPTION_CHOICE, "TYPE", AT(type), .choices = erg_train_type_names,
     .default_text = "bfloat16",
     .help = "of weights in use and activations; masters are always float32"},
    {"plan", 'p', ERG_OPTION_FILE, "PLAN.json", AT(plan),
     .help = "run every instruction as this plan of the job says (ergon optimize)"},
    {"method", 'm', ERG_OPTION_TEXT, "NAME", AT(method),
     .help = "a point of this method (default: the plan's selected one)"},
    {"point", 0, ERG_OPTION_LONG, "N", AT(point), 1, 1e9,
     .help = "the plan's point of this number; 1 is the fastest"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), 1e-9, 1e15,
     .help = "the plan's point of least energy within this time of an iteration; with --auto the "
             "way of least energy within this time of a step"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(budget_j), 1e-9, 1e18,
     .help = "the plan's fastest point within this energy of an iteration; with --auto the fastest "
             "way within this energy of a step"},
    {"lock-clocks", 0, ERG_OPTION_FLAG, NULL, AT(lock_clocks),
     .help = "set the plan's clocks (default: GPUs keep their own); needs permission"},
    {"require-clocks", 0, ERG_OPTION_FLAG, NULL, AT(require_clocks),
     .help = "the same, and end where they cannot be set"},
    {"force", 0, ERG_OPTION_FLAG, NULL, AT(force),
     .help = "take a plan that was measured on other GPUs"},
    {"auto", 0, ERG_OPTION_DOUBLE, "SECONDS", AT(auto_s), 0, 1e9, .bare_text = "0",
     .help = "choose what the job leaves open, try the ways to run its passes on steps of the run "
             "for so long (5 % of it), and go on with the best"},
    {"dry-run", 0, ERG_OPTION_FLAG, NULL, AT(dry_run),
     .help = "check the job, say what would run and what it takes, train nothing"},
    {0},
};

/* ---- what is printed ---- */

static void print_line(void *context, const char *text)
{
    (void)context;
    erg_terminal_line(text);
}

static void add_plan(struct erg_text *text, const struct erg_run_expected *expected)
{
    if (expected->plan)
        erg_text_printf(text, "by %s: %s, point %zu of %zu (%s), %.3g s and %.4g J an iteration\n",
                        expected->plan, expected->method, expected->point, expected->points,
                        expected->rule, expected->time_s, expected->energy_j);
    if (!isnan(expected->step_s))
        erg_text_printf(text, "a step with sums of gradients and optimizer: %.3g s and %.4g J\n",
                        expected->step_s, expected->step_j);
}

/* How the run is spread, or by which plan it trains. */
static void add_choice(struct erg_text *text, const struct erg_train *train)
{
    const char *layout = erg_train_auto_layout(train);
    if (layout)
        erg_text_printf(text, "%s\n", layout);
    else
        add_plan(text, erg_train_expected(train));
}

static void print_run(const struct erg_train *train, const struct erg_train_stats *stats, int type)
{
    const struct erg_job *job = erg_train_job(train);
    const struct erg_layout *layout = &job->layout;
    const char *device = erg_train_device_name(train);
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "%s: %.4g million parameters in %s on %s, %.3g GiB of memory\n"
                    "%" PRIu64 " step%s of %ld sequences of %ld tokens, %ld at a time\n",
                    job->model->name, 1e-6 * erg_model_trained_parameters(job->model),
                    erg_train_type_names[type], strcmp(device, "host") ? device : "the host",
                    (double)stats->memory_bytes / 0x1p30, stats->steps, erg_plural(stats->steps),
                    erg_layout_batch(layout), layout->sequence, layout->microbatch);
    add_choice(&text, train);
    erg_terminal_print(stdout, text.data);
    erg_text_release(&text);
    fflush(stdout); /* before the lines of steps */
}

static void print_resumed(const struct erg_train_stats *stats)
{
    struct erg_text text = {0};
    erg_text_printf(&text, "goes on from %s, step %" PRIu64 "\n", stats->resumed, stats->step);
    erg_terminal_print(stderr, text.data);
    erg_text_release(&text);
}

static void print_end(const struct erg_train *train, const struct erg_train_stats *stats)
{
    struct erg_text text = {0}, found = {0};
    erg_train_auto_found(&found, train);
    erg_text_printf(&text, "trained %" PRIu64 " step%s", stats->step, erg_plural(stats->step));
    if (isfinite(stats->loss))
        erg_text_printf(&text, ", loss %.4f", stats->loss);
    erg_text_add(&text, "\n");
    if (found.count)
        erg_text_printf(&text, "%s\n", found.data);
    erg_terminal_print(stdout, text.data);
    erg_text_release(&text);
    erg_text_release(&found);
}

/* ---- plans of runs that look for the best way ---- */

/* On an emulated GPU: what it says orders the ways to be tried. */
static int plan_job(void *context, const struct erg_job *job, bool sequential,
                    struct erg_plan **plan, struct erg_error *err)
{
    struct erg_optimize_request request = {.job = job, .store_path = ":memory:"};
    (void)context;
    for (int method = 0; method < ERG_METHOD_COUNT; method++)
        request.methods[method] = !sequential || method == ERG_METHOD_SEQUENTIAL ||
                                  method == ERG_METHOD_SEQUENTIAL_CLOCKS;
    return erg_optimize(&request, plan, err);
}

static struct erg_goal goal_of(const struct train_values *values)
{
    return (struct erg_goal){.objective =
                                 isnan(values->deadline_s) ? ERG_FASTEST : ERG_LEAST_ENERGY,
                             .deadline_s = isnan(values->deadline_s) ? 0 : values->deadline_s,
                             .energy_j = isnan(values->budget_j) ? 0 : values->budget_j};
}

/* ---- what would run ---- */

/* The rank that takes most, if it is more than there is. */
static int check_memory(const struct erg_run_preview *preview, struct erg_backend *backend,
                        struct erg_error *err)
{
    const long each = preview->ranks / preview->job->layout.pipeline;
    const struct erg_run_memory_request request = {preview->job, backend,
                                                   (int)((long)preview->most * each), 1, NULL};
    size_t most[ERG_RANK_ITEMS];
    return erg_run_memory_check(&request, most, err);
}

/* What a run would choose on so many ranks that are all like this one. */
static int choose_layout(struct erg_run_layout *chosen, const struct train_values *values,
                         const struct erg_job *job, int world, struct erg_backend *backend,
                         struct erg_error *err)
{
    size_t free_bytes;
    *chosen = (struct erg_run_layout){0};
    if (backend->table->memory_free(backend, &free_bytes, err) != 0)
        return -1;
    const int sharing = backend->shares_memory ? world : 1;
    const struct erg_run_layout_request request = {.job = job,
                                                   .backend = backend,
                                                   .init = values->init,
                                                   .world = world,
                                                   .room_bytes = ERG_MEMORY_USABLE_SHARE *
                                                                 (double)free_bytes / sharing};
    return erg_run_layout_choose(chosen, &request, err);
}

/* The plan that a run would train by, or whose ways it would try. */
static int open_plan(struct erg_plan **plan, struct erg_run_preview *preview,
                     const struct train_values *values, const struct erg_train_options *asked,
                     const struct erg_job *job, struct erg_backend *backend, struct erg_error *err)
{
    const struct erg_goal goal = goal_of(values);
    if (isnan(values->auto_s))
        return erg_run_plan_open(plan, NULL, asked, job, backend->name, 0, err);
    preview->sequential = erg_train_auto_sequential(job);
    if (plan_job(NULL, job, preview->sequential != NULL, plan, err) != 0)
        return -1;
    preview->way_count = erg_run_ways_list(preview->ways, *plan, asked->lock_clocks, &goal);
    return 0;
}

static int preview(const struct erg_invocation *call, const struct erg_train_options *asked,
                   const struct erg_job *job, const char *layout, struct erg_backend *backend,
                   struct erg_error *err)
{
    const struct train_values *values = call->values;
    const uint64_t updates = job->training ? job->training->updates : 0;
    uint64_t steps = values->steps == ERG_NOT_GIVEN ? updates : (uint64_t)values->steps;
    struct erg_run_preview preview;
    struct erg_plan *plan = NULL;
    int result = erg_run_preview_init(&preview, job, backend, values->init,
                                      erg_train_type_names[values->type],
                                      steps < updates ? steps : updates, err);
    if (result == 0)
        result = open_plan(&plan, &preview, values, asked, job, backend, err);
    preview.plan = plan;
    preview.layout = layout;
    erg_run_plan_expect(&preview.planned, plan, asked->plan, job);
    if (result == 0 && call->common.json)
        erg_print_json(stdout, erg_run_preview_document(&preview));
    else if (result == 0)
        erg_train_preview_print(stdout, &preview);
    if (result == 0)
        result = check_memory(&preview, backend, err);
    erg_run_preview_release(&preview);
    erg_plan_free(plan);
    return result;
}

/* Of any layout: that which a run would choose. Ranks that nobody has started are as many as GPUs
 * of the cluster. */
static int preview_choice(const struct erg_invocation *call, const struct erg_train_options *asked,
                          const struct erg_job *job, int world, struct erg_backend *backend,
                          struct erg_error *err)
{
    struct erg_run_layout chosen;
    struct erg_job *own = NULL;
    if (!job->training)
        return erg_fail(err, ERG_FAILED, "%s: key 'train': the key is missing", job->path);
    if (world == 1)
        world = (int)erg_cluster_gpus(&job->cluster);
    int result = choose_layout(&chosen, call->values, job, world, backend, err);
    if (result == 0)
        result = erg_job_parse(&own, job->path, chosen.job.data, chosen.job.count, NULL, err) ||
                         preview(call, asked, own, chosen.why.data, backend, err)
                     ? -1
                     : 0;
    erg_run_layout_release(&chosen);
    erg_job_free(own);
    return result;
}

/* One rank says it for all, on a device of its own. */
static int run_dry(const struct erg_invocation *call, const struct erg_train_options *asked,
                   struct erg_error *err)
{
    const struct train_values *values = call->values;
    struct erg_launch_environment env;
    struct erg_job *job;
    struct erg_backend *backend;
    if (erg_launch_environment_read(&env, err) != 0)
        return -1;
    if (env.rank != 0)
        return 0;
    const struct erg_job_overrides any = {.any_layout = !isnan(values->auto_s)};
    if (erg_job_load(&job, call->arguments[0], &any, err) != 0)
        return -1;
    const struct erg_backend_options wanted = {
        .kind = (enum erg_backend_kind)values->device,
        .float32 = values->type == ERG_TRAIN_FLOAT32,
        .deterministic = job->training && job->training->deterministic,
        .local_rank = env.local_rank,
    };
    int result = erg_backend_open(&backend, &wanted, err);
    if (result == 0) {
        result = any.any_layout ? preview_choice(call, asked, job, env.world, backend, err)
                                : preview(call, asked, job, NULL, backend, err);
        backend->table->close(backend);
    }
    erg_job_free(job);
    return result;
}

/* ---- training ---- */

static int read_until(double *seconds, const char *text, struct erg_error *err)
{
    unsigned hours, minutes, rest;
    int length = 0;
    if (!text)
        return 0;
    if (sscanf(text, "%5u:%2u:%2u%n", &hours, &minutes, &rest, &length) != 3 ||
        text[length] != '\0' || minutes > 59 || rest > 59 || hours + minutes + rest == 0)
        return erg_fail(err, ERG_USAGE,
                        "--until got \"%.80s\", expected hours, minutes and seconds as 11:30:00",
                        text);
    *seconds = 3600.0 * hours + 60.0 * minutes + rest;
    return 0;
}

/* What ended a run before its last step, which one rank says. */
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

/* What was interrupted before its first step has lost nothing, and can be run again. */
static int explain_early_signal(struct erg_error *err)
{
    int signal = erg_interrupt_signal();
    if (err->status == ERG_INTERRUPTED && signal && signal != SIGINT)
        err->status = ERG_RESUMABLE;
    return -1;
}

/* A process that does not come back from its device can only be ended from beside. */
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
    if (stats.rank == 0)
        print_run(train, &stats, values->type);
    const char *from = values->resume;
    if (from && strcmp(from, "latest") == 0)
        from = values->output; /* else where is said */
    if ((from || !values->fresh) && erg_train_resume(train, from, err) != 0)
        return -1;
    erg_train_stats(train, &stats, err);
    if (stats.resumed && stats.rank == 0)
        print_resumed(&stats);
    if (run_steps(train, &stats, err) != 0 || explain_end(&stats, values->output, err) != 0)
        return -1;
    if (stats.rank == 0)
        print_end(train, &stats);
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
            return erg_fail(err, ERG_USAGE,
                            "--auto and %s exclude each other: --auto makes a plan and finds its "
                            "best point",
                            both);
        if (!values->output && !values->dry_run)
            return erg_fail(err, ERG_USAGE,
                            "--auto needs --output, the folder of the run, which keeps what it "
                            "chooses");
        lone = NULL;
    }
    if (points > 1)
        return erg_fail(err, ERG_USAGE,
                        "--point, --deadline and --energy-budget exclude each other: each chooses "
                        "one point");
    if (!values->plan && lone)
        return erg_fail(err, ERG_USAGE, "%s needs --plan, the plan that it is about, or --auto",
                        lone);
    return 0;
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
        .point = values->point == ERG_NOT_GIVEN ? 0 : (size_t)values->point,
        .deadline_s = isnan(values->deadline_s) ? 0 : values->deadline_s,
        .energy_budget_j = isnan(values->budget_j) ? 0 : values->budget_j,
        .force_plan = values->force,
        .lock_clocks = values->lock_clocks || values->require_clocks,
        .require_clocks = values->require_clocks,
        .steps = values->steps == ERG_NOT_GIVEN ? 0 : (uint64_t)values->steps,
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
                        "--json needs --dry-run; a run keeps its numbers in "
                        "RUN/metrics.jsonl");
    if (values->resume && strcmp(values->resume, "latest") == 0 && !values->output)
        return erg_fail(err, ERG_USAGE, "--resume latest needs --output, the folder of the run");
    if (values->export && erg_model_file_check_folder(values->export, err) != 0) {
        if (erg_launch_own_rank() != 0)
            err->message[0] = 0; /* another rank says it */
        return -1;
    }
    if (values->dry_run)
        return run_dry(call, &train_options, err);
    const struct erg_train_auto asked = {
        .budget_s = values->auto_s, .goal = goal_of(values), .plan = plan_job};
    if (!isnan(values->auto_s)) /* of a step, as it is measured */
        train_options.deadline_s = train_options.energy_budget_j = 0;
    if (erg_train_open_auto(&train, call->arguments[0], &train_options,
                            isnan(values->auto_s) ? NULL : &asked, err) != 0)
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
    .details = "The job's key \"train\" says what the run is: its data, updates and learning rate. "
               "Its degrees say\nhow many ranks train it: \"ergon run\", torchrun or Slurm start "
               "them, one for each GPU. On the\nhost's CPU any number runs on one machine.",
    .examples = "  ergon tokenize bytes book.txt -o book\n"
                "  ergon train examples/train/tiny.yaml -o run --export trained\n"
                "  ergon run -n 4 -- ergon train job.yaml -o run\n",
    .run = run,
};
