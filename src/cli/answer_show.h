/* How answers of ergon/ask.h come to standard output. */
#ifndef ERG_CLI_ANSWER_SHOW_H
#define ERG_CLI_ANSWER_SHOW_H

#include "ergon/ask.h"

#include <stdbool.h>

/* Prints one of the forms of *answer and frees it: -1 where `asked`, what the question returned, is
 * no 0, or where what was asked about does not hold. */
int erg_answer_show(int asked, struct erg_answer **answer, bool json, struct erg_error *err);

#endif
