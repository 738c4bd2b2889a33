/* The live file that commands about managed jobs are told of. */
#ifndef ERG_CLI_LIVE_OPTION_H
#define ERG_CLI_LIVE_OPTION_H

#include "ergon/error.h"

#define ERG_LIVE_OPTION_HELP "the cluster's live file (default: $ERGON_LIVE)"

/* That of the option, else of $ERGON_LIVE; NULL, and the error, where there is none. */
const char *erg_live_option(const char *path, struct erg_error *err);

#endif
