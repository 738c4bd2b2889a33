/* Accept headers: any text is understood or ignored. */
#define _GNU_SOURCE /* strcasestr */
#include "base/memory.h"
#include "observe/openmetrics.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = erg_xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    if (erg_openmetrics_accepted(text) && !strcasestr(text, "openmetrics"))
        abort();
    free(text);
    return 0;
}
