/* Writes documents of token ids as Megatron's indexed data. */
#include "train/data/token_writer.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TYPE_INT32 = 4, TYPE_UINT16 = 8 };
enum { BUFFER_TOKENS = 1 << 16 };

struct erg_token_writer {
    char *bin_path, *idx_path;
    struct erg_file_writer bin;
    long words;
    size_t token_bytes;
    uint64_t tokens;
    struct {
        int32_t *items;
        size_t count, capacity;
    } lengths;
    unsigned char *buffer; /* [BUFFER_TOKENS * token_bytes], little-endian */
    size_t buffered;       /* tokens */
};

static char *path_of(const char *prefix, const char *suffix)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s%s", prefix, suffix);
    return path.data;
}

static void writer_free(struct erg_token_writer *writer)
{
    free(writer->bin_path);
    free(writer->idx_path);
    free(writer->lengths.items);
    free(writer->buffer);
    free(writer);
}

int erg_token_writer_open(struct erg_token_writer **writer, const char *prefix, long words,
                          struct erg_error *err)
{
    assert(words > 0 && words <= INT32_MAX);
    struct erg_token_writer *made = erg_xcalloc(1, sizeof *made);
    made->bin_path = path_of(prefix, ".bin");
    made->idx_path = path_of(prefix, ".idx");
    made->words = words;
    made->token_bytes = words <= UINT16_MAX + 1 ? sizeof(uint16_t) : sizeof(int32_t);
    const char *paths[] = {made->bin_path, made->idx_path};
    int result = 0;
    for (int i = 0; i < 2 && result == 0; i++) {
        struct stat info;
        if (stat(paths[i], &info) == 0)
            result = erg_fail(err, ERG_FAILED,
                              "writing '%s': this file exists and is not replaced; expected "
                              "another prefix, or that you remove the file",
                              paths[i]);
    }
    if (result != 0 || erg_file_begin(&made->bin, made->bin_path, err) != 0) {
        writer_free(made);
        return -1;
    }
    made->buffer = erg_xcalloc(BUFFER_TOKENS, made->token_bytes);
    *writer = made;
    return 0;
}

static int flush(struct erg_token_writer *writer, struct erg_error *err)
{
    size_t bytes = writer->buffered * writer->token_bytes;
    writer->buffered = 0;
    return bytes ? erg_file_append(&writer->bin, writer->buffer, bytes, err) : 0;
}

/* Stores the lowest bytes of a number, little-endian. */
static unsigned char *put(unsigned char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *at++ = (unsigned char)(value >> (8 * i));
    return at;
}

int erg_token_writer_add(struct erg_token_writer *writer, const int32_t *ids, size_t count,
                         struct erg_error *err)
{
    if (count > INT32_MAX)
        return erg_fail(err, ERG_FAILED,
                        "writing '%s': document %zu has %zu tokens, expected at most 2147483647; "
                        "split it",
                        writer->bin_path, writer->lengths.count, count);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= writer->words)
            return erg_fail(err, ERG_FAILED,
                            "writing '%s': document %zu, token %zu: id %" PRId32
                            ", expected one of [0, %ld)",
                            writer->bin_path, writer->lengths.count, i, ids[i], writer->words);
        put(writer->buffer + writer->buffered * writer->token_bytes, (uint32_t)ids[i],
            writer->token_bytes);
        if (++writer->buffered == BUFFER_TOKENS && flush(writer, err) != 0)
            return -1;
    }
    writer->tokens += count;
    ERG_PUSH(&writer->lengths, items, (int32_t)count);
    return 0;
}

struct erg_token_totals erg_token_writer_totals(const struct erg_token_writer *writer)
{
    return (struct erg_token_totals){writer->lengths.count, writer->tokens, writer->token_bytes};
}

static int write_index(const struct erg_token_writer *writer, struct erg_error *err)
{
    size_t n = writer->lengths.count;
    size_t bytes = 34 + n * (sizeof(int32_t) + 2 * sizeof(int64_t)) + sizeof(int64_t);
    unsigned char *index = erg_xmalloc(bytes), *at = index;
    memcpy(at, "MMIDIDX\0", 9);
    at = put(at + 9, 1, 8);
    at = put(at, writer->token_bytes == 2 ? TYPE_UINT16 : TYPE_INT32, 1);
    at = put(at, n, 8);
    at = put(at, n + 1, 8);
    for (size_t i = 0; i < n; i++)
        at = put(at, (uint32_t)writer->lengths.items[i], 4);
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        at = put(at, offset, 8);
        offset += (uint32_t)writer->lengths.items[i] * (uint64_t)writer->token_bytes;
    }
    for (size_t i = 0; i <= n; i++)
        at = put(at, i, 8);
    assert((size_t)(at - index) == bytes);
    int result = erg_file_write(writer->idx_path, index, bytes, err);
    free(index);
    return result;
}

int erg_token_writer_close(struct erg_token_writer *writer, struct erg_error *err)
{
    if (flush(writer, err) != 0) {
        erg_token_writer_abandon(writer);
        return -1;
    }
    /* The index comes last: without it PREFIX.bin is not a data set. */
    int result = erg_file_commit(&writer->bin, err);
    if (result == 0 && write_index(writer, err) != 0) {
        unlink(writer->bin_path);
        result = -1;
    }
    writer_free(writer);
    return result;
}

void erg_token_writer_abandon(struct erg_token_writer *writer)
{
    erg_file_abandon(&writer->bin);
    writer_free(writer);
}
