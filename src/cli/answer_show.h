/* Printing of the answers of ergon/ask.h on standard output. */
#ifndef ERG_CLI_ANSWER_SHOW_H
#define ERG_CLI_ANSWER_SHOW_H

#include "ergon/ask.h"

#include <stdbool.h>

/* Prints *answer as text or JSON and frees it. `asked` is the return value of the question. Returns
 * -1 if `asked` is not 0, or if the answer is negative: a layout that does not fit, a finding that
 * fails. */
int erg_answer_show(int asked, struct erg_answer **answer, bool json, struct erg_error *err);

#endif
