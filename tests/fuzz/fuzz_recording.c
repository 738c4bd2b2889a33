/*
 * libFuzzer: any bytes as a recording. The bytes are taken as what follows a good header, in chunks
 * whose checksums are put right, so that the reader of samples is reached, and as a whole file.
 */
#define _GNU_SOURCE /* memfd_create */
#include "base/text.h"
#include "telemetry/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void add_u32(struct erg_text *out, uint32_t value)
{
    char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (char)(value >> 8 * i);
    erg_text_add_bytes(out, bytes, sizeof bytes);
}

static void add_chunk(struct erg_text *out, uint32_t kind, const void *bytes, size_t count)
{
    add_u32(out, kind);
    add_u32(out, (uint32_t)count);
    uLong sum = crc32(0, (const unsigned char *)out->data + out->count - 8, 8);
    add_u32(out, (uint32_t)crc32(sum, bytes, (uInt)count));
    erg_text_add_bytes(out, bytes, count);
}

static void read_all(const void *bytes, size_t count)
{
    struct erg_error err;
    struct erg_recording *recording;
    struct erg_sampler_item item;
    int64_t unix_ns;
    char path[64];
    int file = memfd_create("fuzz", 0);
    if (file < 0 || write(file, bytes, count) != (ssize_t)count)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (erg_recording_open(&recording, path, &err) == 0) {
        while (erg_recording_next(recording, &item, &unix_ns, &err) > 0)
            if (item.gpu >= erg_recording_gpus(recording) || item.sample.valid >> ERG_METRICS)
                abort();
        if (erg_recording_damaged_bytes(recording) > count)
            abort();
        erg_recording_close(recording);
    }
    close(file);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const char start[] = "ERGONREC\2\0\0\0";
    static const char header[] = "{\"node\":\"n\",\"gpus\":[{\"index\":0},{\"index\":1}],"
                                 "\"metrics\":[\"energy_mj\",\"sm_mhz\",\"of_tomorrow\"]}";
    struct erg_text file = {0};
    if (size > 1 << 16)
        return 0;
    read_all(data, size);
    erg_text_add_bytes(&file, start, sizeof start - 1);
    add_chunk(&file, 1, header, sizeof header - 1);
    add_chunk(&file, 2, data, size);
    add_chunk(&file, 2, data, size / 2);
    read_all(file.data, file.count);
    file.count = 0; /* the bytes as a header */
    erg_text_add_bytes(&file, start, sizeof start - 1);
    add_chunk(&file, 1, data, size);
    read_all(file.data, file.count);
    erg_text_release(&file);
    return 0;
}
