/* ergon train JOB.yaml: trains a model. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/backend.h"
#include "launch/launch.h"
#include "report/report.h"
#include "train/log/run_log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct train_values {
    const char *output, *resume, *init, *export;
    long steps;
    int device, type;
    bool dry_run, fresh;
};

static const char *const devices[] = {"auto", "cuda", "host", NULL}; /* enum erg_backend_kind */
static const char *const types[] = {"bfloat16", "float32", NULL};
enum { TYPE_BFLOAT16, TYPE_FLOAT32 };

#define AT(member) offsetof(struct train_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "RUN", AT(output),
     .help = "folder of the run: its log, page and checkpoints, from which it goes on"},
    {"resume", 'r', ERG_OPTION_FILE, "FOLDER", AT(resume),
     .help = "go on from this checkpoint, or the newest of this run (default: RUN's)"},
    {"fresh", 0, ERG_OPTION_FLAG, NULL, AT(fresh),
     .help = "begin anew; a run that is there already is an error"},
    {"steps", 'n', ERG_OPTION_LONG, "N", AT(steps), 1, 1e12,
     .help = "end at this step (default: the job's updates)"},
    {"init", 'i', ERG_OPTION_FILE, "FOLDER", AT(init),
     .help = "begin with a model's weights, or \"random\" (default: as the job says)"},
    {"export", 'e', ERG_OPTION_FILE, "FOLDER", AT(export),
     .help = "write the trained model as Hugging Face keeps it"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "auto",
     .help = "what computes: a GPU, the host's CPU, or a GPU if there is one"},
    {"dtype", 't', ERG_OPTION_CHOICE, "TYPE", AT(type), .choices = types,
     .default_text = "bfloat16",
     .help = "of weights in use and activations; masters are always float32"},
    {"dry-run", 0, ERG_OPTION_FLAG, NULL, AT(dry_run),
     .help = "check everything, say what would run, train nothing"},
    {0},
};

static double seconds_between(int64_t start_ns, int64_t end_ns)
{
    return 1e-9 * (double)(end_ns - start_ns);
}

/* What ended a run before its last step. */
static int explain_signal(const struct erg_trainer *trainer, int signal, const char *output,
                          bool saved, struct erg_error *err)
{
    uint64_t step = erg_trainer_steps(trainer);
    if (!saved)
        return erg_fail(err, ERG_INTERRUPTED, "stopped at step %" PRIu64 ", without a checkpoint",
                        step);
    return erg_fail(err, signal == SIGINT ? ERG_INTERRUPTED : ERG_RESUMABLE,
                    "stopped at step %" PRIu64 ", checkpoint %s/latest", step, output);
}

/* A rank that trains. */
struct session {
    const struct erg_invocation *call;
    const struct erg_job *job;
    const struct erg_trainer_options *options;
    struct erg_trainer *trainer;
    struct erg_rank_meter meter;
    struct erg_run_log *log; /* NULL: another rank writes and prints what concerns all */
};

/* World call: the numbers of all ranks, to be freed. */
static struct erg_rank_numbers *measure_ranks(struct session *session, struct erg_error *err)
{
    enum { PATIENCE_S = 600 };
    const struct erg_trainer_options *of = session->options;
    struct erg_rank_numbers own, *all = erg_xcalloc((size_t)of->world, sizeof *all);
    erg_rank_meter_take(&session->meter, &own);
    own.memory_bytes = (double)erg_trainer_bytes(session->trainer);
    *all = own;
    if (of->rendezvous &&
        erg_rendezvous_all_gather(of->rendezvous, &own, sizeof own, all, PATIENCE_S, err) != 0) {
        free(all);
        return NULL;
    }
    return all;
}

static int run_step(struct session *session, bool last, struct erg_train_step *step,
                    struct erg_error *err)
{
    struct erg_text line = {0};
    struct erg_rank_numbers *ranks = NULL;
    int64_t start_ns = erg_now_ns();
    if (erg_trainer_step(session->trainer, erg_interrupt_signal(), step, err) != 0)
        return -1;
    double step_s = seconds_between(start_ns, erg_now_ns());
    if (erg_run_log_due(session->job->training, step->step, last) &&
        (ranks = measure_ranks(session, err)) == NULL)
        return -1;
    struct erg_run_log_entry entry = {.step = step, .step_s = step_s, .ranks = ranks};
    int result = session->log ? erg_run_log_step(session->log, &entry, &line, err) : 0;
    if (line.count && !session->call->common.quiet)
        erg_terminal_line(line.data);
    erg_text_release(&line);
    free(ranks);
    return result;
}

/* As with a checkpoint, a page that cannot be written is a warning. */
static void write_page(const struct erg_run_log *log)
{
    struct erg_error err;
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/report.html", log->about.folder);
    json_t *document = erg_run_log_document(log);
    if (erg_report_training_write(path.data, document, &err) != 0)
        erg_log(ERG_LOG_WARNING, "%s", err.message);
    json_decref(document);
    erg_text_release(&path);
}

/* A checkpoint that cannot be written is a warning: training goes on, and older ones stay. */
static bool save(struct session *session)
{
    const struct train_values *values = session->call->values;
    struct erg_error err;
    if (!values->output)
        return false;
    if (session->log)
        write_page(session->log);
    if (erg_trainer_save(session->trainer, values->output, session->job->training->checkpoint.keep,
                         &err) == 0)
        return true;
    if (session->log)
        erg_log(ERG_LOG_WARNING, "%s; there is no checkpoint of this step", err.message);
    return false;
}

static int run_steps(struct session *session, uint64_t end, struct erg_train_step *step,
                     struct erg_error *err)
{
    const struct train_values *values = session->call->values;
    struct erg_trainer *trainer = session->trainer;
    uint64_t every = (uint64_t)session->job->training->checkpoint.every;
    erg_interrupt_on(SIGUSR1);
    while (erg_trainer_steps(trainer) < end) {
        bool last = erg_trainer_steps(trainer) + 1 == end, saved = false;
        if (session->log)
            erg_progress("training", erg_trainer_steps(trainer), end);
        if (run_step(session, last, step, err) != 0)
            return -1;
        if (last || step->signal || (every && step->step % every == 0))
            saved = save(session);
        if (step->signal && !last)
            return explain_signal(trainer, step->signal, values->output, saved, err);
    }
    if (session->log)
        erg_progress("training", end, end);
    return 0;
}

/* Takes up a checkpoint where there is one to go on from. */
static int resume(const struct train_values *values, struct erg_trainer *trainer, bool tells,
                  struct erg_error *err)
{
    const char *folder = values->resume ? values->resume : values->fresh ? NULL : values->output;
    char *found = NULL;
    if (!folder)
        return 0;
    int result = erg_trainer_resume(trainer, folder, &found, err);
    if (result == 0 && !found && values->resume)
        result = erg_fail(err, ERG_FAILED, "--resume: '%s' has no checkpoint", folder);
    if (result == 0 && found && tells) {
        struct erg_text text = {0};
        erg_text_printf(&text, "goes on from %s, step %" PRIu64 "\n", found,
                        erg_trainer_steps(trainer));
        erg_terminal_print(stderr, text.data);
        erg_text_release(&text);
    }
    free(found);
    return result;
}

static void print_plan(const struct erg_backend *backend, const struct erg_job *job,
                       const struct erg_trainer *trainer, const struct train_values *values,
                       uint64_t steps)
{
    const struct erg_layout *layout = &job->layout;
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "%s: %.4g million parameters in %s on %s, %.3g GiB of memory\n"
                    "%" PRIu64 " step%s of %ld sequences of %ld tokens, %ld at a time\n",
                    job->model->name, 1e-6 * erg_model_parameters(job->model), types[values->type],
                    strcmp(backend->name, "host") ? backend->name : "the host",
                    (double)erg_trainer_bytes(trainer) / 0x1p30, steps, erg_plural(steps),
                    layout->microbatch * layout->microbatches * layout->data, layout->sequence,
                    layout->microbatch);
    erg_terminal_print(stdout, text.data);
    erg_text_release(&text);
    fflush(stdout); /* before the lines of steps */
}

static void print_end(uint64_t steps, const struct erg_train_step *step)
{
    struct erg_text text = {0};
    erg_text_printf(&text, "trained %" PRIu64 " step%s", steps, erg_plural(steps));
    if (step->step)
        erg_text_printf(&text, ", loss %.4f", step->loss);
    erg_text_add(&text, "\n");
    erg_terminal_print(stdout, text.data);
    erg_text_release(&text);
}

/* Trains with a log, which rank 0 writes. */
static int train_logged(struct session *session, const struct erg_run_about *about, int local_rank,
                        uint64_t end, struct erg_train_step *step, struct erg_error *err)
{
    struct erg_run_log log;
    bool on_host = strcmp(about->device, "host") == 0, tells = session->options->rank == 0;
    int result = tells ? erg_run_log_open(&log, about, err) : 0;
    session->log = tells ? &log : NULL;
    result = erg_rendezvous_agree(session->options->rendezvous, result, err);
    if (result == 0) {
        erg_rank_meter_open(&session->meter, on_host ? NULL : about->device, local_rank);
        result = run_steps(session, end, step, err);
        erg_rank_meter_close(&session->meter);
    }
    return tells && erg_run_log_close(&log, result ? NULL : err) != 0 ? -1 : result;
}

static int train(struct session *session, int local_rank, struct erg_error *err)
{
    const struct train_values *values = session->call->values;
    const struct erg_backend *backend = session->options->backend;
    struct erg_trainer *trainer = session->trainer;
    uint64_t updates = session->job->training->updates;
    uint64_t end = values->steps == ERG_NOT_GIVEN ? updates : (uint64_t)values->steps;
    bool tells = session->options->rank == 0;
    end = end < updates ? end : updates;
    if (tells)
        print_plan(backend, session->job, trainer, values, end);
    if (values->dry_run)
        return 0;
    struct erg_train_step step = {0};
    if (resume(values, trainer, tells, err) != 0)
        return -1;
    struct erg_run_about about = {.job = session->job,
                                  .folder = values->output,
                                  .device = backend->name,
                                  .type = types[values->type],
                                  .ranks = (size_t)session->options->world,
                                  .step = erg_trainer_steps(trainer),
                                  .tokens = erg_trainer_tokens(trainer),
                                  .fresh = values->fresh};
    if (train_logged(session, &about, local_rank, end, &step, err) != 0)
        return -1;
    if (tells)
        print_end(erg_trainer_steps(trainer), &step);
    return values->export
               ? erg_trainer_export(trainer, values->export, values->type == TYPE_BFLOAT16, err)
               : 0;
}

static int train_rank(const struct erg_invocation *call, const struct erg_job *job,
                      const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous,
                      struct erg_error *err)
{
    const struct train_values *values = call->values;
    struct erg_backend_options wanted = {(enum erg_backend_kind)values->device,
                                         values->type == TYPE_FLOAT32, env->local_rank, rendezvous};
    struct erg_backend *backend;
    if (erg_backend_open(&backend, &wanted, err) != 0)
        return -1;
    struct erg_trainer_options options_of_rank = {backend,   job,        values->init,
                                                  env->rank, env->world, rendezvous};
    struct session session = {.call = call, .job = job, .options = &options_of_rank};
    int result = erg_trainer_open(&session.trainer, &options_of_rank, err);
    if (result == 0) {
        result = train(&session, env->local_rank, err);
        erg_trainer_close(session.trainer);
    }
    backend->table->close(backend);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    enum { MEETING_S = 300 };
    struct erg_job *job;
    struct erg_launch_environment env;
    struct erg_rendezvous *rendezvous = NULL;
    if (erg_job_load(&job, call->arguments[0], NULL, err) != 0)
        return -1;
    int result = erg_launch_environment_read(&env, err);
    if (result == 0 && env.world > 1)
        result = erg_rendezvous_open(&rendezvous, &env, MEETING_S, err);
    if (result == 0)
        result = train_rank(call, job, &env, rendezvous, err);
    erg_rendezvous_close(rendezvous);
    erg_job_free(job);
    return result;
}

const struct erg_command erg_cmd_train = {
    .name = "train",
    .summary = "train a model on GPUs or the host's CPU",
    .arguments = "JOB.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_FEW,
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
