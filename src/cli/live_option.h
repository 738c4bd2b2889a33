/* The live file that commands about managed jobs are told of. */
#ifndef ERG_CLI_LIVE_OPTION_H
#define ERG_CLI_LIVE_OPTION_H

#include "cluster/live/live_file.h"

#define ERG_LIVE_OPTION_HELP "the cluster's live file (default: $ERGON_LIVE)"

/* That of the option, else of $ERGON_LIVE. */
int erg_live_option_load(struct erg_live_file **live, const char *path, struct erg_error *err);

#endif
