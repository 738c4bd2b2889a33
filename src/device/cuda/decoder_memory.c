/* The memory of a decoder on its GPU: taken piece by piece, released together. */
#include "device/cuda/decoder_internal.h"

#include "base/memory.h"

#include <stdlib.h>

int erg_decoder_take(struct erg_decoder *decoder, void *pointer, size_t bytes,
                     struct erg_error *err)
{
    void *memory;
    if (erg_cuda_alloc(&memory, bytes, err))
        return -1;
    *(void **)pointer = memory;
    ERG_PUSH(&decoder->memory, items, memory);
    return 0;
}

void erg_decoder_release_memory(struct erg_decoder *decoder)
{
    for (size_t i = 0; i < decoder->memory.count; i++)
        erg_cuda_free(decoder->memory.items[i]);
    free(decoder->memory.items);
}
