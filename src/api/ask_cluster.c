/* ergon/ask.h: questions about simulated clusters: policies on one trace, and whole sweeps. */
#include "ergon/ask.h"

#include "api/answer.h"
#include "api/door.h"
#include "api/simulate_call.h"
#include "api/simulate_print.h"
#include "api/simulate_sweep.h"
#include "base/sized.h"
#include "io/print.h"

static void print_each(void *context, const struct erg_simulate_call *at,
                       const struct erg_simulated *result)
{
    erg_simulate_print(context, at, result);
}

static int ask_simulate(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_simulate *question = at->question;
    struct erg_simulations_options options = {0};
    struct erg_simulate_input input;
    if (erg_sized_take(&options, sizeof options, question->options, "erg_simulations_options",
                       err) != 0 ||
        erg_simulate_call_take(&input, &options, err) != 0 || !erg_answer_pens(at->answer, err))
        return -1;
    input.dashes = true;
    input.each = print_each;
    input.context = at->answer->files[ERG_ANSWER_TEXT];
    struct erg_simulate_call simulating;
    const int result = erg_simulate_call_run(&simulating, &input, err);
    if (result == 0)
        erg_print_json(at->answer->files[ERG_ANSWER_JSON], erg_simulate_call_document(&simulating));
    erg_simulate_call_release(&simulating);
    return erg_answer_settle(at->answer, result, err);
}

int erg_ask_simulate(struct erg_answer **answer, const struct erg_ask_simulate *question,
                     struct erg_error *err)
{
    struct erg_ask_simulate own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_simulate", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_simulate, &own, own.watch, err);
}

static int ask_sweep(struct erg_ask_call *at, struct erg_error *err)
{
    const struct erg_ask_sweep *question = at->question;
    struct erg_sweep_input input = {.file = question->file,
                                    .output = question->folder,
                                    .part = question->part,
                                    .program = question->program};
    if (!input.file)
        return erg_fail(err, ERG_USAGE, "a sweep: expected a file");
    if (erg_door_number(&input.slurm, "slurm_tasks", question->slurm_tasks, 9999, err) != 0 ||
        !erg_answer_pens(at->answer, err))
        return -1;
    const int result = erg_simulate_sweep(at->answer->files[ERG_ANSWER_TEXT],
                                          at->answer->files[ERG_ANSWER_JSON], &input, err);
    return erg_answer_settle(at->answer, result, err);
}

int erg_ask_sweep(struct erg_answer **answer, const struct erg_ask_sweep *question,
                  struct erg_error *err)
{
    struct erg_ask_sweep own = {0};
    return erg_sized_take(&own, sizeof own, question, "erg_ask_sweep", err) != 0
               ? -1
               : erg_answer_ask(answer, ask_sweep, &own, own.watch, err);
}
