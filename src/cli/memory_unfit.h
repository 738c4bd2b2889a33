/* The sentence of a layout that does not fit, with what would help. */
#ifndef ERG_CLI_MEMORY_UNFIT_H
#define ERG_CLI_MEMORY_UNFIT_H

#include "layout/document/memory.h"

/* ERG_INFEASIBLE where GPUs or hosts are too small; 0: it fits. */
int erg_memory_say_unfit(const struct erg_memory_answer *answer, struct erg_error *err);

#endif
