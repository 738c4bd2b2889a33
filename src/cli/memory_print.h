/* What ergon memory prints for people: a line per stage, what binds, and whether it fits. */
#ifndef ERG_CLI_MEMORY_PRINT_H
#define ERG_CLI_MEMORY_PRINT_H

#include "layout/document/memory_document.h"

void erg_memory_print(const struct erg_memory_answer *answer);

#endif
