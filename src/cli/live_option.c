/* Finds the live file of commands about managed jobs. */
#include "cli/live_option.h"

#include <stdlib.h>

const char *erg_live_option(const char *path, struct erg_error *err)
{
    const char *own = getenv("ERGON_LIVE");
    if (!path && own && *own)
        path = own;
    if (!path)
        erg_fail(err, ERG_USAGE,
                 "no cluster was given; expected the option --live LIVE.yaml or the environment "
                 "variable ERGON_LIVE");
    return path;
}
