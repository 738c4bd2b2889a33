/* Version: the version of the library as text. */
#include "ergon/ergon.h"

const char *erg_version(void)
{
    return ERG_VERSION;
}
