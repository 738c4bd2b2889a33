/* libFuzzer: any bytes as the manifest of a checkpoint. */
#include "train/checkpoint/checkpoint_internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_checkpoint_manifest *manifest;
    if (erg_checkpoint_parse(&manifest, "manifest.json", (const char *)data, size, &err) != 0)
        return 0;
    for (size_t i = 0; i < manifest->count; i++)
        if (manifest->pieces[i].row >= manifest->pieces[i].row_end ||
            manifest->pieces[i].kind >= ERG_CHECKPOINT_KINDS)
            abort();
    erg_checkpoint_manifest_free(manifest);
    return 0;
}
