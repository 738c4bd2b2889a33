/* ergon/ask.h: questions about simulated clusters: policies on one trace, and whole sweeps. */
#include "ergon/ask.h"

#include "api/answer.h"
#include "api/door.h"
#include "api/simulate_sweep.h"
#include "api/simulating.h"
#include "api/simulating_print.h"
#include "base/sized.h"
#include "io/print.h"

static void print_each(void *context, const struct erg_simulating *at,
                       const struct erg_simulated *result)
{
    erg_simulating_print(context, at, result);
}

static int ask_simulate(struct erg_asking *at, struct erg_error *err)
{
    const struct erg_ask_simulate *question = at->question;
    struct erg_simulations_options options = {0};
    struct erg_simulating_wish wish;
    if (erg_sized_take(&options, sizeof options, question->options, "erg_simulations_options",
                       err) != 0 ||
        erg_simulating_take(&wish, &options, err) != 0 || !erg_answer_pens(at->answer, err))
        return -1;
    wish.dashes = true;
    wish.each = print_each;
    wish.context = at->answer->files[ERG_ANSWER_TEXT];
    struct erg_simulating simulating;
    const int result = erg_simulating_run(&simulating, &wish, err);
    if (result == 0)
        erg_print_json(at->answer->files[ERG_ANSWER_JSON], erg_simulating_document(&simulating));
    erg_simulating_release(&simulating);
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

static int ask_sweep(struct erg_asking *at, struct erg_error *err)
{
    const struct erg_ask_sweep *question = at->question;
    struct erg_sweep_wish wish = {.file = question->file,
                                  .output = question->folder,
                                  .part = question->part,
                                  .program = question->program};
    if (!wish.file)
        return erg_fail(err, ERG_USAGE, "a sweep: expected a file");
    if (erg_door_number(&wish.slurm, "slurm_tasks", question->slurm_tasks, 9999, err) != 0 ||
        !erg_answer_pens(at->answer, err))
        return -1;
    const int result = erg_simulate_sweep(at->answer->files[ERG_ANSWER_TEXT],
                                          at->answer->files[ERG_ANSWER_JSON], &wish, err);
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
