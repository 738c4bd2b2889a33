/* Frames of the rendezvous: any bytes are cut into frames that lie inside them, or refused. */
#include "launch/wire_internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct erg_link link = {.fd = -1, .most = size};
    struct erg_frame frame;
    const char *payload;
    size_t used = 0;
    unsigned sum = 0;
    erg_text_add_bytes(&link.in, (const char *)data, size);
    while (erg_link_next(&link, &frame, &payload) > 0) {
        used += sizeof frame + (size_t)frame.payload_bytes;
        if (used > size || link.taken != used)
            abort();
        for (uint64_t i = 0; i < frame.payload_bytes; i++)
            sum += (unsigned char)payload[i]; /* all of it can be read */
    }
    erg_link_release(&link);
    volatile unsigned read = sum;
    (void)read;
    return 0;
}
