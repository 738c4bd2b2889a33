/* Prints answers on standard output. */
#include "cli/answer_show.h"

#include "cli/cli.h"

#include <stdio.h>

int erg_answer_show(int asked, struct erg_answer **answer, bool json, struct erg_error *err)
{
    erg_terminal_finish();
    if (asked != 0 || !*answer) /* the question failed, or another rank prints the answer */
        return asked;
    const char *form = json ? erg_answer_json(*answer) : erg_answer_text(*answer);
    if (form) /* a question that failed after its first lines has no document */
        fputs(form, stdout);
    const int result = erg_answer_check(*answer, err);
    erg_answer_free(*answer);
    return result;
}
