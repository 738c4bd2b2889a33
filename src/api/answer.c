/* Answers of ergon/ask.h: their forms, and the calls that make them. */
#include "api/answer.h"

#include "base/call.h"
#include "base/memory.h"

#include <stdlib.h>

static const char no_memory[] = "there is no memory for an answer";

const char *erg_answer_text(const struct erg_answer *answer)
{
    return answer->texts[ERG_ANSWER_TEXT];
}

const char *erg_answer_json(const struct erg_answer *answer)
{
    return answer->texts[ERG_ANSWER_JSON];
}

const char *erg_answer_csv(const struct erg_answer *answer)
{
    return answer->texts[ERG_ANSWER_CSV];
}

int erg_answer_check(const struct erg_answer *answer, struct erg_error *err)
{
    if (answer->checked != 0 && err)
        *err = answer->reason;
    return answer->checked;
}

/* True if the written text is complete; false: out of memory. An empty document or table is none.
 */
static bool finish(struct erg_answer *answer)
{
    bool whole = true;
    for (int form = 0; form < ERG_ANSWER_FORMS; form++) {
        FILE *file = answer->files[form];
        answer->files[form] = NULL;
        if (file && (ferror(file) | fclose(file)) != 0)
            whole = false;
        if (form != ERG_ANSWER_TEXT && file && answer->counts[form] == 0) {
            free(answer->texts[form]);
            answer->texts[form] = NULL;
        }
    }
    return whole;
}

void erg_answer_free(struct erg_answer *answer)
{
    if (!answer)
        return;
    finish(answer);
    for (int form = 0; form < ERG_ANSWER_FORMS; form++)
        free(answer->texts[form]);
    free(answer);
}

FILE *erg_answer_pen(struct erg_answer *answer, enum erg_answer_form form, struct erg_error *err)
{
    FILE *file = open_memstream(&answer->texts[form], &answer->counts[form]);
    if (!file)
        erg_fail(err, ERG_FAILED, "%s", no_memory);
    answer->files[form] = file;
    return file;
}

bool erg_answer_pens(struct erg_answer *answer, struct erg_error *err)
{
    return erg_answer_pen(answer, ERG_ANSWER_TEXT, err) &&
           erg_answer_pen(answer, ERG_ANSWER_JSON, err);
}

int erg_answer_settle(struct erg_answer *answer, int result, const struct erg_error *err)
{
    bool any = false;
    for (int form = 0; form < ERG_ANSWER_FORMS && result != 0; form++)
        any |= answer->files[form] && fflush(answer->files[form]) == 0 && answer->counts[form] > 0;
    if (!any)
        return result;
    answer->checked = -1;
    answer->reason = *err;
    return 0;
}

static int run(void *argument, struct erg_error *err)
{
    struct erg_ask_call *at = argument;
    struct erg_answer *answer = at->answer = erg_xcalloc(1, sizeof *answer);
    int result = at->ask(at, err);
    if (result == 0 && !finish(answer))
        result = erg_fail(err, ERG_FAILED, "%s", no_memory);
    if (result != 0 || !at->answer) {
        erg_answer_free(answer);
        at->answer = NULL;
    }
    return result;
}

int erg_answer_ask(struct erg_answer **answer,
                   int (*body)(struct erg_ask_call *at, struct erg_error *err),
                   const void *question, const struct erg_watch *watch, struct erg_error *err)
{
    struct erg_ask_call at = {.question = question, .ask = body};
    if (erg_call_run(run, &at, watch, err) != 0)
        return -1;
    *answer = at.answer;
    return 0;
}

int erg_answer_ask_here(struct erg_answer **answer,
                        int (*body)(struct erg_ask_call *at, struct erg_error *err),
                        const void *question, struct erg_error *err)
{
    struct erg_ask_call at = {.question = question, .ask = body};
    if (run(&at, err) != 0)
        return -1;
    *answer = at.answer;
    return 0;
}
