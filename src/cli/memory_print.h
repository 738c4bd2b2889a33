/* What ergon memory prints for people: a line per stage, what binds, and whether it fits. */
#ifndef ERG_CLI_MEMORY_PRINT_H
#define ERG_CLI_MEMORY_PRINT_H

#include "layout/document/memory_document.h"

void erg_memory_print(const struct erg_memory_answer *answer);

/* ERG_INFEASIBLE where GPUs or hosts are too small, with what would help; 0: it fits. */
int erg_memory_say_unfit(const struct erg_memory_answer *answer, struct erg_error *err);

#endif
