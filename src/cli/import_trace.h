/* ergon import trace: a log of another cluster as a trace, on standard output. */
#ifndef ERG_CLI_IMPORT_TRACE_H
#define ERG_CLI_IMPORT_TRACE_H

#include "ergon/error.h"

#include <stdint.h>

/* `cluster` and `profiles` as for ergon simulate. What was left out or drawn is logged. */
int import_trace(const char *log, const char *cluster, const char *profiles, uint64_t seed,
                 struct erg_error *err);

#endif
