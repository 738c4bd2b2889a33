/* Finds the live file of commands about managed jobs. */
#include "cli/live_option.h"

#include <stdlib.h>

int erg_live_option_load(struct erg_live_file **live, const char *path, struct erg_error *err)
{
    const char *own = getenv("ERGON_LIVE");
    if (!path && own && *own)
        path = own;
    if (!path)
        return erg_fail(err, ERG_USAGE,
                        "which cluster? expected the option --live LIVE.yaml, or the environment "
                        "variable ERGON_LIVE");
    return erg_live_file_load(live, path, err);
}
