/* ergon/ask.h: questions about a job: its layouts, its memory and its plan. */
#define ERGON_EXPERIMENTAL /* this library has what only some programs ask for */
#include "ergon/ask.h"

#include "api/answer.h"
#include "api/door.h"
#include "api/layout_answer.h"
#include "api/memory_query.h"
#include "api/optimize_call.h"
#include "base/interrupt.h"
#include "base/sized.h"
#include "io/json.h"
#include "io/print.h"
#include "launch/launch.h"
#include "report/report.h"
#include "report/text/memory_print.h"

#include <math.h>

/* ---- layouts ---- */

static int take_layouts(struct erg_layouts_asked *input, const struct erg_ask_layouts *question,
                        struct erg_error *err)
{
    struct erg_layouts_options options = {0};
    if (!question->job)
        return erg_fail(err, ERG_USAGE, "layouts: expected a job");
    *input = (struct erg_layouts_asked){
        .why = question->why, .output = question->folder, .slots = question->slots != 0};
    if (erg_sized_take(&options, sizeof options, question->options, "erg_layouts_options", err) !=
            0 ||
        erg_layout_input_take(&input->input, &options, err) != 0 ||
        erg_door_number(&input->input.sequence, "sequence", question->sequence, 1000000000, err) !=
            0 ||
        erg_door_choice(&input->export, "export_as", question->export_as, ERG_WORDS_EXPORT, err) !=
            0 ||
        erg_door_choice(&input->planner, "planner", question->planner, ERG_WORDS_PLANNER, err) != 0)
        return -1;
    input->input.cluster = question->cluster;
    input->input.engine = question->engine;
    return 0;
}

static int ask_layouts(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_layouts *question = at->question;
    struct erg_layouts_asked input;
    if (take_layouts(&input, question, err) != 0 || !erg_answer_pens(at->answer, err))
        return -1;
    const int result =
        erg_layouts_answer(at->answer->files[ERG_ANSWER_TEXT], at->answer->files[ERG_ANSWER_JSON],
                           &input, question->job, err);
    return erg_answer_settle(at->answer, result, err);
}

int erg_ask_layouts(struct erg_answer **answer, const struct erg_ask_layouts *question,
                    struct erg_error *err)
{
    struct erg_ask_layouts own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_layouts", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_layouts, &own, own.watch, err);
}

/* ---- memory ---- */

static int take_memory(struct erg_memory_input *input, const struct erg_ask_memory *question,
                       struct erg_error *err)
{
    struct erg_memory_options options = {0};
    if (!question->job)
        return erg_fail(err, ERG_USAGE, "memory: expected a job");
    if (question->offload && !(*question->offload >= 0 && *question->offload <= 1))
        return erg_fail(err, ERG_USAGE, "offload got %.10g, expected a share from 0 to 1",
                        *question->offload);
    if (erg_sized_take(&options, sizeof options, question->options, "erg_memory_options", err) !=
            0 ||
        erg_memory_input_take(input, &options, err) != 0 ||
        erg_door_number(&input->sequence, "sequence", question->sequence, 1000000000, err) != 0 ||
        erg_door_choice(&input->recompute, "recompute", question->recompute, ERG_WORDS_RECOMPUTE,
                        err) != 0)
        return -1;
    input->path = question->job;
    input->dashes = true;
    input->engine = question->engine;
    input->offload = question->offload ? *question->offload : (double)NAN;
    return 0;
}

static int show_memory(struct erg_answer *answer, const struct erg_memory_answer *found,
                       const char *page, struct erg_error *err)
{
    json_t *document = erg_memory_document(found);
    if (page && erg_report_memory_write(page, document, err) != 0) {
        json_decref(document);
        return -1;
    }
    erg_print_json(answer->files[ERG_ANSWER_JSON], document);
    erg_memory_print(answer->files[ERG_ANSWER_TEXT], found);
    answer->checked = erg_memory_say_unfit(found, true, &answer->reason);
    return 0;
}

static int ask_memory(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_memory *question = at->question;
    struct erg_memory_input input;
    struct erg_memory_asked asked;
    if (take_memory(&input, question, err) != 0 || !erg_answer_pens(at->answer, err))
        return -1;
    int result = erg_memory_ask(&asked, &input, err);
    if (result == 0)
        result = show_memory(at->answer, &asked.answer, question->page, err);
    erg_memory_asked_release(&asked);
    return result;
}

int erg_ask_memory(struct erg_answer **answer, const struct erg_ask_memory *question,
                   struct erg_error *err)
{
    struct erg_ask_memory own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_memory", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_memory, &own, own.watch, err);
}

/* ---- its plan ---- */

static int load_job(struct erg_job **job, const struct erg_ask_optimize *question,
                    struct erg_error *err)
{
    struct erg_job_overrides overrides = {.search = question->search, .seed = question->seed};
    int search;
    long ignored;
    if (!question->job)
        return erg_fail(err, ERG_USAGE, "a plan: expected a job");
    if (erg_door_choice(&search, "search", question->search, ERG_WORDS_SEARCH, err) != 0 ||
        erg_door_number(&ignored, "microbatches", question->microbatches, ERG_JOB_MOST_MICROBATCHES,
                        err) != 0 ||
        erg_door_number(&ignored, "microbatch_size", question->microbatch_size, 10000, err) != 0 ||
        erg_door_number(&ignored, "sequence", question->sequence, 100000000, err) != 0)
        return -1;
    overrides.microbatches = (long)question->microbatches;
    overrides.microbatch_size = (long)question->microbatch_size;
    overrides.sequence = (long)question->sequence;
    return erg_job_load(job, question->job, &overrides, err);
}

static int show_plan(struct erg_answer *answer, const struct erg_optimize_call *run,
                     struct erg_error *err)
{
    const char *folder = run->folder;
    FILE *out = answer->files[ERG_ANSWER_TEXT];
    json_t *plan = run->document ? json_incref(run->document) : erg_plan_json(run->plan);
    struct erg_text table = {0};
    int status = erg_report_table(&table, plan, err);
    if (!status) {
        fprintf(out, "%s\n", table.data);
        if (folder)
            fprintf(out, "plan %s/plan.json, report %s/report.html, trace %s/trace.json\n", folder,
                    folder, folder);
        erg_print_json(answer->files[ERG_ANSWER_JSON], json_incref(plan));
    }
    erg_text_release(&table);
    json_decref(plan);
    return status;
}

static int ask_optimize(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_optimize *question = at->question;
    struct erg_optimize_options options = {0};
    struct erg_optimize_call run = {.hint = question->job, .dashes = true};
    struct erg_job *job = NULL;
    int status =
        erg_sized_take(&options, sizeof options, question->options, "erg_optimize_options", err) ||
        erg_optimize_call_take(&run, &options, err) || load_job(&job, question, err) ||
        !erg_answer_pens(at->answer, err);
    if (!status) {
        erg_optimize_call_set_goal(job, &options);
        run.job = job;
        status = erg_optimize_call_open(&run, err);
    }
    if (!status && erg_launch_leads(run.real != NULL))
        status = erg_optimize_call_run(&run, err) || show_plan(at->answer, &run, err);
    else if (!status)
        at->answer = NULL;
    erg_optimize_call_release(&run);
    erg_job_free(job);
    if (status)
        erg_interrupt_explain(err);
    return status ? -1 : 0;
}

int erg_ask_optimize(struct erg_answer **answer, const struct erg_ask_optimize *question,
                     struct erg_error *err)
{
    struct erg_ask_optimize own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_optimize", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_optimize, &own, own.watch, err);
}
