/* libFuzzer: any text as the degrees of a layout. */
#include "job/layout.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_layout layout = {.sequence = 1};
    char *text = calloc(size + 1, 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    if (erg_layout_parse(&layout, text, 80, &err) == 0 &&
        (layout.tensor < 1 || layout.context < 1 || layout.pipeline < 1 || layout.microbatch < 1 ||
         layout.virtual_stages < 1))
        abort();
    free(text);
    return 0;
}
