/* The live file of commands about managed jobs. */
#ifndef ERG_CLI_LIVE_OPTION_H
#define ERG_CLI_LIVE_OPTION_H

#include "ergon/error.h"

#define ERG_LIVE_OPTION_HELP "the cluster's live file (default: $ERGON_LIVE)"

/* Returns the option's value, else that of $ERGON_LIVE; NULL with an error if neither is set. */
const char *erg_live_option(const char *path, struct erg_error *err);

#endif
