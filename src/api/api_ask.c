/* ergon/ask.h: questions that are answered as a whole, for people and for programs. */
#include "ergon/ask.h"

#include "api/answer.h"
#include "api/door.h"
#include "api/fit_call.h"
#include "api/fit_print.h"
#include "api/profile_frontier.h"
#include "api/submit_job.h"
#include "base/memory.h"
#include "base/sized.h"
#include "cluster/live/job_list_print.h"
#include "cluster/live/live_file.h"
#include "cluster/traces/trace_print.h"
#include "device/real.h"
#include "ergon/telemetry.h"
#include "hooks/programme_print.h"
#include "io/json.h"
#include "io/print.h"
#include "iteration/iteration.h"
#include "launch/launch.h"
#include "layout/exchange/calculon_import.h"
#include "observe/doctor_print.h"
#include "observe/measure_command.h"
#include "observe/record.h"
#include "telemetry/recording.h"
#include "train/data/tokenize.h"
#include "verify/verify_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static long given(int64_t number)
{
    return number ? (long)number : ERG_NOT_GIVEN;
}

/* ---- this machine ---- */

static int ask_doctor(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_doctor *question = at->question;
    const double watch_s = 1.5;
    struct erg_doctor doctor;
    if (!erg_answer_pens(at->answer, err))
        return -1;
    erg_doctor_examine(&doctor, question->gpus, watch_s);
    erg_doctor_print(at->answer->files[ERG_ANSWER_TEXT], &doctor);
    erg_doctor_print_json(at->answer->files[ERG_ANSWER_JSON], &doctor);
    erg_doctor_release(&doctor);
    return 0;
}

int erg_ask_doctor(struct erg_answer **answer, const struct erg_ask_doctor *question,
                   struct erg_error *err)
{
    struct erg_ask_doctor own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_doctor", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_doctor, &own, own.watch, err);
}

/* ---- plans and pipelines ---- */

static int ask_programme(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_programme *question = at->question;
    const struct erg_programme_shown_input input = {
        .plan = question->plan,
        .method = question->method,
        .number = (size_t)question->point,
        .stage = question->stage,
        .dwell_s = question->dwell_s,
        .least_change_mhz = question->least_change_mhz,
        .clocks_only = question->clocks_only != 0,
    };
    if (!question->plan || question->point < 0)
        return erg_fail(err, ERG_USAGE,
                        "a programme: expected a plan, and a point from 1 on, or 0");
    return erg_answer_pens(at->answer, err)
               ? erg_programme_print(at->answer->files[ERG_ANSWER_TEXT],
                                     at->answer->files[ERG_ANSWER_JSON], &input, err)
               : -1;
}

int erg_ask_programme(struct erg_answer **answer, const struct erg_ask_programme *question,
                      struct erg_error *err)
{
    struct erg_ask_programme own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_programme", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_programme, &own, own.watch, err);
}

static int ask_frontier(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_frontier *question = at->question;
    struct erg_profile_frontier_input input = {
        .profile = question->profile,
        .output = question->plan,
        .microbatches = (long)question->microbatches,
        .virtual_stages = question->virtual_stages ? (long)question->virtual_stages : 1,
        .points = question->points ? (long)question->points : 100,
        .schedule = question->interleaved ? ERG_SCHEDULE_INTERLEAVED : ERG_SCHEDULE_1F1B,
        .seed = (long)question->seed,
        .blocking_power_w = question->blocking_power_w ? *question->blocking_power_w : (double)NAN,
        .p2p_latency_s = question->p2p_latency_s,
    };
    if (!input.profile || input.microbatches < 1 || input.virtual_stages < 1 || input.points < 2)
        return erg_fail(
            err, ERG_USAGE,
            "a frontier: expected a profile, microbatches from 1 on, and points from 2 on");
    if (question->deadline_s > 0 && question->energy_j > 0)
        return erg_fail(err, ERG_USAGE,
                        "--deadline and --energy-budget exclude each other: each selects one plan");
    if (erg_door_amount(&input.unit_s, "unit_s", question->unit_s, err) != 0 ||
        erg_door_amount(&input.deadline_s, "deadline_s", question->deadline_s, err) != 0 ||
        erg_door_amount(&input.energy_budget_j, "energy_j", question->energy_j, err) != 0 ||
        !erg_answer_pens(at->answer, err) || !erg_answer_pen(at->answer, ERG_ANSWER_CSV, err))
        return -1;
    const struct erg_frontier_streams streams = {at->answer->files[ERG_ANSWER_TEXT],
                                                 at->answer->files[ERG_ANSWER_CSV],
                                                 at->answer->files[ERG_ANSWER_JSON]};
    return erg_profile_frontier(&streams, &input, err);
}

int erg_ask_frontier(struct erg_answer **answer, const struct erg_ask_frontier *question,
                     struct erg_error *err)
{
    struct erg_ask_frontier own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_frontier", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_frontier, &own, own.watch, err);
}

static int ask_fit(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_fit *question = at->question;
    const struct erg_fit_input input = {
        .rows = question->rows,
        .runs = question->runs,
        .run_count = question->run_count,
        .engine = question->engine,
        .job = question->job,
        .cluster = question->cluster,
        .keys = question->keys,
        .output = question->output,
        .folds = question->folds ? (long)question->folds : 5,
    };
    struct erg_fit_call fitting;
    if ((!input.rows && !input.run_count) || !input.engine || !input.keys || input.folds < 2 ||
        input.folds > ERG_FIT_MOST_FOLDS)
        return erg_fail(err, ERG_USAGE,
                        "a fit: expected rows or runs, an engine, keys, and 2 to %d folds",
                        ERG_FIT_MOST_FOLDS);
    if (!erg_answer_pens(at->answer, err))
        return -1;
    int result = erg_fit_call_run(&fitting, &input, err);
    if (result == 0) {
        erg_fit_print(at->answer->files[ERG_ANSWER_TEXT], &fitting);
        erg_print_json(at->answer->files[ERG_ANSWER_JSON], erg_fit_call_document(&fitting));
    }
    erg_fit_call_release(&fitting);
    return result;
}

int erg_ask_fit(struct erg_answer **answer, const struct erg_ask_fit *question,
                struct erg_error *err)
{
    struct erg_ask_fit own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_fit", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_fit, &own, own.watch, err);
}

/* ---- a plan on a stack ---- */

static int open_gpus(struct erg_real **real, const struct erg_job *job, int layers,
                     struct erg_error *err)
{
    const struct erg_real_request request = {
        .model = job->model,
        .tensor = (int)job->layout.tensor,
        .context = (int)job->layout.context,
        .layers = layers,
        .replay = job->layout.recompute == ERG_RECOMPUTE_FULL,
        .sequences = (int)job->layout.microbatch,
        .sequence = (int)job->layout.sequence,
        .seed = job->search.seed,
    };
    return erg_real_open(real, &request, err);
}

/* With all that the request names there. */
static int verify(struct erg_answer *answer, const struct erg_verify_request *request,
                  struct erg_error *err)
{
    struct erg_verification *verification = erg_xcalloc(1, sizeof *verification);
    int result = erg_verify(request, verification, err);
    if (result == 0) {
        erg_verify_print(answer->files[ERG_ANSWER_TEXT], request, verification, false);
        erg_verify_print(answer->files[ERG_ANSWER_JSON], request, verification, true);
        answer->checked = erg_verify_judge(verification, &answer->reason);
    }
    free(verification);
    return result;
}

static int ask_verify(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_verify *question = at->question;
    struct erg_verify_request request = {.layers = question->layers ? (int)question->layers : 4,
                                         .repeatable = question->repeatable != 0};
    struct erg_job *job = NULL;
    struct erg_plan *plan = NULL;
    struct erg_real *real = NULL;
    int device;
    if (erg_door_choice(&device, "device", question->device, ERG_WORDS_DEVICE, err) != 0)
        return -1;
    if (request.repeatable && device != ERG_DOOR_CUDA)
        return erg_fail(err, ERG_USAGE,
                        "--repeatable: emulated GPUs compute no gradients; expected --device cuda");
    if (!question->job || !question->plan || question->layers < 0 || question->layers > 1000 ||
        request.layers < 2)
        return erg_fail(err, ERG_USAGE,
                        "a verification: expected a job, a plan, and 2 to 1000 layers");
    int result = !erg_answer_pens(at->answer, err) ||
                         erg_job_load(&job, question->job, NULL, err) ||
                         erg_plan_load(&plan, question->plan, err) ||
                         (device == ERG_DOOR_CUDA && open_gpus(&real, job, request.layers, err))
                     ? -1
                     : 0;
    if (result == 0 && erg_launch_leads(real != NULL)) {
        request.job = job;
        request.plan = plan;
        request.device = real ? erg_real_device(real) : NULL;
        result = verify(at->answer, &request, err);
    } else if (result == 0) {
        at->answer = NULL;
    }
    erg_real_close(real);
    erg_plan_free(plan);
    erg_job_free(job);
    return result;
}

int erg_ask_verify(struct erg_answer **answer, const struct erg_ask_verify *question,
                   struct erg_error *err)
{
    struct erg_ask_verify own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_verify", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_verify, &own, own.watch, err);
}

/* ---- clusters ---- */

static int ask_jobs(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_jobs *question = at->question;
    struct erg_live_file *live;
    struct erg_live_list list = {0};
    if (!question->live)
        return erg_fail(err, ERG_USAGE, "live jobs: expected the cluster's live file");
    if (!erg_answer_pens(at->answer, err) || erg_live_file_load(&live, question->live, err) != 0)
        return -1;
    int result = erg_live_list_read(&list, live->slurm.partition, live->slurm.spool,
                                    question->all != 0, err);
    if (result == 0) {
        erg_live_list_print(at->answer->files[ERG_ANSWER_TEXT], &list);
        erg_live_list_print_json(at->answer->files[ERG_ANSWER_JSON], &list);
    }
    erg_live_list_release(&list);
    erg_live_file_free(live);
    return result;
}

int erg_ask_jobs(struct erg_answer **answer, const struct erg_ask_jobs *question,
                 struct erg_error *err)
{
    struct erg_ask_jobs own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_jobs", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_jobs, &own, own.watch, err);
}

static void print_submitted(const struct erg_answer *answer, const struct erg_submitted *submitted)
{
    FILE *out = answer->files[ERG_ANSWER_TEXT];
    fprintf(out, "job %lu, token %s, waits for its place", submitted->id, submitted->token);
    if (submitted->types)
        fprintf(out, " on %s", submitted->types);
    fprintf(out, "\nfolder %s\n", submitted->folder);
    erg_print_json(answer->files[ERG_ANSWER_JSON],
                   erg_json_pack("{s:s, s:I, s:s, s:s, s:s}", "schema", "ergon.submitted", "job",
                                 (json_int_t)submitted->id, "token", submitted->token, "folder",
                                 submitted->folder, "types", submitted->types));
}

static int ask_submit(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_submit *question = at->question;
    struct erg_live_file *live;
    struct erg_submitted submitted;
    struct erg_submit_input input = {
        .job = question->job,
        .like = question->like,
        .resume = question->resume,
        .arguments = question->arguments,
        .argument_count = question->argument_count,
        .gpus = given(question->gpus),
        .gpus_most = given(question->gpus_most),
        .type = question->type,
        .deadline_unix_s = NAN,
        .weight = question->weight > 0 ? question->weight : (double)NAN,
        .per_node = question->per_node != 0,
        .measure_s = question->measure_s,
        .program = question->program ? question->program : "ergon",
    };
    if (!question->live || !input.job + !input.like + !input.resume != 2)
        return erg_fail(err, ERG_USAGE,
                        "a live job: expected the cluster's live file, and a job, a model that it "
                        "is like, or a folder to resume");
    if (!(question->measure_s >= 0 && isfinite(question->measure_s)) ||
        (question->measure_s > 0 && !input.job))
        return erg_fail(err, ERG_USAGE,
                        "measuring for %g s: expected a positive time, and a job of ergon train",
                        question->measure_s);
    if (!erg_answer_pens(at->answer, err) || erg_live_file_load(&live, question->live, err) != 0)
        return -1;
    int result = question->deadline
                     ? erg_submit_read_deadline(&input.deadline_unix_s, question->deadline, err)
                     : 0;
    if (result == 0) {
        result = erg_submit(&submitted, live, &input, err);
        if (result == 0)
            print_submitted(at->answer, &submitted);
        erg_submitted_release(&submitted);
    }
    erg_live_file_free(live);
    return result;
}

int erg_ask_submit(struct erg_answer **answer, const struct erg_ask_submit *question,
                   struct erg_error *err)
{
    struct erg_ask_submit own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_submit", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_submit, &own, own.watch, err);
}

static int ask_trace(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_trace *question = at->question;
    if (!question->cluster || !question->profiles || !question->recipe == !question->log)
        return erg_fail(err, ERG_USAGE,
                        "a trace: expected a cluster, profiles, and a recipe or a log");
    FILE *out = erg_answer_pen(at->answer, ERG_ANSWER_TEXT, err);
    if (!out)
        return -1;
    return question->recipe ? erg_trace_print(out, question->cluster, question->profiles,
                                              question->recipe, question->seed, err)
                            : erg_trace_print_import(out, question->cluster, question->profiles,
                                                     question->log, question->seed, err);
}

int erg_ask_trace(struct erg_answer **answer, const struct erg_ask_trace *question,
                  struct erg_error *err)
{
    struct erg_ask_trace own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_trace", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_trace, &own, own.watch, err);
}

static int ask_calculon(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_calculon *question = at->question;
    const struct erg_calculon_input input = {.model = question->model,
                                             .system = question->system,
                                             .folder = question->folder,
                                             .gpus = given(question->gpus),
                                             .batch = given(question->batch)};
    if (!input.model || !input.system || !input.folder || question->gpus < 0 || question->batch < 0)
        return erg_fail(err, ERG_USAGE,
                        "files of Calculon: expected a model, a system, a folder, and no number "
                        "below 0");
    return erg_answer_pens(at->answer, err)
               ? erg_calculon_import(at->answer->files[ERG_ANSWER_TEXT],
                                     at->answer->files[ERG_ANSWER_JSON], &input, err)
               : -1;
}

int erg_ask_calculon(struct erg_answer **answer, const struct erg_ask_calculon *question,
                     struct erg_error *err)
{
    struct erg_ask_calculon own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_calculon", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_calculon, &own, own.watch, err);
}

/* ---- texts ---- */

static void print_tokens(const struct erg_answer *answer, const char *output,
                         const struct erg_corpus *corpus, const struct erg_token_totals *totals)
{
    /* Without the tokens that end documents. */
    double text_per_token =
        (double)corpus->text_bytes / (double)(totals->tokens - totals->documents);
    FILE *out = answer->files[ERG_ANSWER_TEXT];
    erg_print_json(answer->files[ERG_ANSWER_JSON],
                   erg_json_pack("{s:i, s:s, s:I, s:I, s:I, s:i, s:i, s:I, s:f}", "schema_version",
                                 1, "prefix", output, "documents", (json_int_t)totals->documents,
                                 "empty_documents", (json_int_t)corpus->empty, "tokens",
                                 (json_int_t)totals->tokens, "token_bytes",
                                 (int)totals->token_bytes, "end_token", (int)corpus->end,
                                 "text_bytes", (json_int_t)corpus->text_bytes,
                                 "text_bytes_per_token", text_per_token));
    fprintf(out,
            "%" PRIu64 " document%s, %" PRIu64 " tokens of %zu bytes, %.2f bytes of text per token",
            totals->documents, erg_plural(totals->documents), totals->tokens, totals->token_bytes,
            text_per_token);
    if (corpus->empty)
        fprintf(out, "; %" PRIu64 " without text left out", corpus->empty);
    fprintf(out, "\nwrote %s.bin and %s.idx\n", output, output);
}

static int ask_tokenize(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_tokenize *question = at->question;
    const struct erg_tokenize_input input = {.model = question->model,
                                             .files = question->files,
                                             .file_count = question->file_count,
                                             .output = question->output,
                                             .key = question->key,
                                             .end = question->end};
    struct erg_corpus corpus;
    struct erg_token_totals totals;
    if (!input.model || !input.file_count || !input.output)
        return erg_fail(err, ERG_USAGE, "texts to tokens: expected a model, files, and an output");
    if (!erg_answer_pens(at->answer, err) || erg_tokenize(&corpus, &totals, &input, err) != 0)
        return -1;
    print_tokens(at->answer, input.output, &corpus, &totals);
    return 0;
}

int erg_ask_tokenize(struct erg_answer **answer, const struct erg_ask_tokenize *question,
                     struct erg_error *err)
{
    struct erg_ask_tokenize own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_tokenize", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_tokenize, &own, own.watch, err);
}

/* ---- programs ---- */

static int measure(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_measure *question = at->question;
    struct erg_answer *answer = at->answer;
    const struct erg_measure_input input = {
        .command = question->command,
        .gpus = question->gpus,
        .repeats = question->repeats ? (long)question->repeats : 1,
        .warmups = (long)question->warmups,
        .carbon = question->carbon,
        .price = question->price,
    };
    struct erg_runs runs;
    struct erg_child_end end = {0};
    if (!input.command || !*input.command || input.repeats < 1 || input.warmups < 0)
        return erg_fail(err, ERG_USAGE,
                        "a measurement: expected a command, and no number of runs below 0");
    if (!erg_answer_pens(answer, err))
        return -1;
    answer->checked = erg_measure(&runs, &input, &end, &answer->reason);
    if (answer->checked == 0)
        answer->checked = erg_child_check(&end, input.command, &answer->reason);
    if (runs.count) {
        struct erg_text table = {0};
        erg_runs_table(&table, &runs);
        fputs(table.data, answer->files[ERG_ANSWER_TEXT]);
        erg_text_release(&table);
        erg_print_json(answer->files[ERG_ANSWER_JSON], erg_runs_json(&runs));
    }
    const bool any = runs.count > 0 || answer->checked == 0;
    erg_runs_release(&runs);
    if (!any && err)
        *err = answer->reason;
    return any ? 0 : -1;
}

/* On the caller's own thread, whose signals are to reach the command. */
int erg_ask_measure(struct erg_answer **answer, const struct erg_ask_measure *question,
                    struct erg_error *err)
{
    struct erg_ask_measure own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_measure", err) != 0
               ? -1
               : erg_answer_ask_here(answer, measure, &own, err);
}

int erg_record_gpus(const struct erg_record_options *options, struct erg_error *err)
{
    struct erg_record_options own = {0};
    if (erg_sized_take(&own, sizeof own, options, "erg_record_options", err) != 0)
        return -1;
    if (!own.output || own.interval_ms < 0 || (own.command && own.duration_s > 0))
        return erg_fail(err, ERG_USAGE,
                        "a recording: expected an output, an interval from 0 on, and a command or "
                        "a duration, not both");
    const struct erg_record_input input = {
        .output = own.output,
        .gpus = own.gpus,
        .interval_ms = own.interval_ms ? (long)own.interval_ms : 50,
        .duration_s = own.duration_s > 0 ? own.duration_s : (double)NAN,
        .command = own.command,
    };
    return erg_record(&input, err);
}

int erg_record_export(const char *recording, const char *format, const char *output,
                      struct erg_error *err)
{
    static const enum erg_recording_format numbers[] = {ERG_EXPORT_CSV, ERG_EXPORT_JSONL,
                                                        ERG_EXPORT_CHROME};
    int number;
    if (erg_door_choice(&number, "format", format, ERG_WORDS_FORMAT, err) != 0)
        return -1;
    return number < 0 ? erg_fail(err, ERG_USAGE, "an export: expected a format")
                      : erg_recording_export(recording, numbers[number], output, err);
}
