/* Reads token ids from mapped files of three formats. */
#include "train/data/token_set.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/file_map.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LLMC_WORDS = 256, LLMC_MAGIC_16 = 20240520, LLMC_MAGIC_32 = 20240801 };

struct erg_token_file {
    char *path, *index; /* for Megatron's data; otherwise NULL */
    void *mapped;
    size_t length;
    const unsigned char *tokens;
    uint64_t count;
    size_t bytes; /* of a token */
    bool is_signed;
};

/* ---- opening ---- */

static int map_file(struct erg_token_file *file, const char *path, struct erg_error *err)
{
    void *mapped;
    size_t length;
    if (erg_file_map(path, &mapped, &length, err) != 0)
        return -1;
    if (!mapped)
        return erg_fail(err, ERG_FAILED, "reading '%s': expected a file with tokens", path);
    *file = (struct erg_token_file){.path = erg_xstrdup(path), .mapped = mapped, .length = length};
    return 0;
}

static uint64_t get(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* Bytes of each of Megatron's types for tokens; 0: not a type for tokens. */
static size_t bytes_of_type(int type)
{
    static const size_t bytes[] = {0, 1, 0, 0, 4, 8, 0, 0, 2};
    return type >= 0 && type < 9 ? bytes[type] : 0;
}

int erg_token_index_parse(struct erg_token_index *index, const char *name, const void *bytes,
                          size_t length, uint64_t bin_bytes, struct erg_error *err)
{
    const unsigned char *at = bytes;
    if (length < 34 || memcmp(at, "MMIDIDX\0", 9) != 0 || get(at + 9, 8) != 1)
        return erg_fail(err, ERG_FAILED, "%s: not an index of Megatron's data, version 1", name);
    *index = (struct erg_token_index){.type = at[17], .sequences = get(at + 18, 8)};
    index->token_bytes = bytes_of_type(index->type);
    uint64_t documents = get(at + 26, 8), n = index->sequences;
    if (!index->token_bytes)
        return erg_fail(
            err, ERG_FAILED,
            "%s: byte 17: tokens of type %d, expected 1 (uint8), 4 (int32), 5 (int64) or "
            "8 (uint16)",
            name, index->type);
    /* Compares by division, which does not overflow. */
    if (n > (length - 34) / 12 || documents > (length - 34 - 12 * n) / 8)
        return erg_fail(err, ERG_FAILED,
                        "%s: %" PRIu64 " sequences and %" PRIu64
                        " documents do not fit into its %zu "
                        "bytes",
                        name, n, documents, length);
    const unsigned char *lengths = at + 34, *offsets = lengths + 4 * n, *order = offsets + 8 * n;
    uint64_t end = 0;
    for (uint64_t i = 0; i < n; i++) {
        int64_t count = (int32_t)get(lengths + 4 * i, 4);
        if (count < 0)
            return erg_fail(err, ERG_FAILED, "%s: sequence %" PRIu64 " has %" PRId64 " tokens",
                            name, i, count);
        if (get(offsets + 8 * i, 8) != end)
            return erg_fail(err, ERG_FAILED,
                            "%s: sequence %" PRIu64 " begins at byte %" PRIu64 ", expected %" PRIu64
                            ", where the previous one ends",
                            name, i, get(offsets + 8 * i, 8), end);
        end += (uint64_t)count * index->token_bytes;
    }
    if (end != bin_bytes)
        return erg_fail(err, ERG_FAILED,
                        "%s: its sequences have %" PRIu64 " bytes, expected the %" PRIu64
                        " of the file of tokens",
                        name, end, bin_bytes);
    for (uint64_t i = 0, last = 0; i < documents; i++) {
        uint64_t first = get(order + 8 * i, 8);
        if (first < last || first > n || (i == 0 && first) || (i + 1 == documents && first != n))
            return erg_fail(err, ERG_FAILED,
                            "%s: document %" PRIu64 " begins at sequence %" PRIu64
                            ", expected an ascending order from 0 to %" PRIu64,
                            name, i, first, n);
        last = first;
    }
    index->tokens = end / index->token_bytes;
    return 0;
}

static int open_megatron(struct erg_token_file *file, const char *index_path, struct erg_error *err)
{
    char *bytes;
    size_t length;
    struct erg_token_index index;
    if (erg_file_read(index_path, 0, &bytes, &length, err) != 0)
        return -1;
    int result =
        erg_token_index_parse(&index, index_path, bytes, length, (uint64_t)file->length, err);
    free(bytes);
    if (result != 0)
        return -1;
    file->tokens = file->mapped;
    file->bytes = index.token_bytes;
    file->is_signed = index.type == 4 || index.type == 5;
    file->count = index.tokens;
    return 0;
}

static int open_llmc(struct erg_token_file *file, struct erg_error *err)
{
    const unsigned char *header = file->mapped;
    size_t header_bytes = LLMC_WORDS * sizeof(int32_t);
    uint64_t magic = file->length >= header_bytes ? get(header, 4) : 0;
    uint64_t version = magic ? get(header + 4, 4) : 0;
    file->bytes = magic == LLMC_MAGIC_16 && version == 1   ? 2
                  : magic == LLMC_MAGIC_32 && version == 7 ? 4
                                                           : 0;
    if (!file->bytes)
        return erg_fail(err, ERG_FAILED,
                        "%s: expected tokens of llm.c, or a file PREFIX.idx next to it (Megatron's "
                        "data), or a key 'type' with the type of plain tokens",
                        file->path);
    file->count = get(header + 8, 4);
    file->tokens = header + header_bytes;
    if ((uint64_t)(file->length - header_bytes) != file->count * file->bytes)
        return erg_fail(err, ERG_FAILED,
                        "%s: its header gives %" PRIu64
                        " tokens of %zu bytes, but %zu bytes follow",
                        file->path, file->count, file->bytes, file->length - header_bytes);
    return 0;
}

static int open_plain(struct erg_token_file *file, enum erg_token_type type, struct erg_error *err)
{
    file->bytes = type == ERG_TOKENS_UINT16 ? 2 : 4;
    file->is_signed = type == ERG_TOKENS_INT32;
    file->tokens = file->mapped;
    file->count = (uint64_t)file->length / file->bytes;
    if (file->length % file->bytes)
        return erg_fail(err, ERG_FAILED,
                        "%s: %zu bytes are not a whole number of tokens of %zu bytes", file->path,
                        file->length, file->bytes);
    return 0;
}

/* The path PREFIX.idx for PREFIX or PREFIX.bin; NULL: it does not exist. */
static char *index_of(const char *path)
{
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".bin") == 0)
        length -= 4;
    struct erg_text index = {0};
    erg_text_printf(&index, "%.*s.idx", (int)length, path);
    if (access(index.data, F_OK) == 0)
        return index.data;
    erg_text_release(&index);
    return NULL;
}

static void file_release(struct erg_token_file *file)
{
    munmap(file->mapped, file->length);
    free(file->index);
    free(file->path);
}

int erg_token_set_add(struct erg_token_set *set, const char *path, enum erg_token_type type,
                      struct erg_error *err)
{
    struct erg_token_file file;
    char *index = type == ERG_TOKENS_OF_FILE ? index_of(path) : NULL;
    struct erg_text bin = {0};
    erg_text_add(&bin, path);
    if (index && access(path, F_OK) != 0)
        erg_text_add(&bin, ".bin");
    int result = map_file(&file, bin.data, err);
    if (result == 0) {
        result = index                        ? open_megatron(&file, index, err)
                 : type == ERG_TOKENS_OF_FILE ? open_llmc(&file, err)
                                              : open_plain(&file, type, err);
        if (result != 0)
            file_release(&file);
    }
    if (result == 0) {
        set->tokens += file.count;
        file.index = index;
        ERG_PUSH(set, files, file);
    } else {
        free(index);
    }
    erg_text_release(&bin);
    return result;
}

void erg_token_set_release(struct erg_token_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        file_release(&set->files[i]);
    free(set->files);
    *set = (struct erg_token_set){0};
}

/* ---- reading ---- */

static int64_t token_at(const struct erg_token_file *file, uint64_t place)
{
    assert(place < file->count);
    uint64_t value = get(file->tokens + place * file->bytes, file->bytes);
    if (file->is_signed && file->bytes == 4)
        return (int32_t)value;
    return (int64_t)value;
}

/* Adds " (token N of sequence M)" if the file is Megatron's; otherwise nothing. */
static void say_sequence(struct erg_text *out, const struct erg_token_file *file, uint64_t place)
{
    char *bytes;
    size_t length;
    struct erg_token_index index;
    if (!file->index || erg_file_read(file->index, 0, &bytes, &length, NULL) != 0)
        return;
    if (erg_token_index_parse(&index, file->index, bytes, length, (uint64_t)file->length, NULL) ==
        0) {
        const unsigned char *lengths = (const unsigned char *)bytes + 34;
        uint64_t sequence = 0, tokens = 0;
        while (sequence < index.sequences && place >= (tokens = get(lengths + 4 * sequence, 4))) {
            place -= tokens;
            sequence++;
        }
        erg_text_printf(out, " (token %" PRIu64 " of sequence %" PRIu64 ")", place, sequence);
    }
    free(bytes);
}

static int fail_token(const struct erg_token_file *file, uint64_t place, long words,
                      struct erg_error *err)
{
    struct erg_text sequence = {0};
    say_sequence(&sequence, file, place);
    erg_fail(err, ERG_FAILED,
             "%s: token %" PRIu64 "%s is %" PRId64 ", expected a word of the model, [0, %ld)",
             file->path, place, sequence.count ? sequence.data : "", token_at(file, place), words);
    erg_text_release(&sequence);
    return -1;
}

int erg_token_set_read(const struct erg_token_set *set, uint64_t first, size_t count, long words,
                       int32_t *ids, struct erg_error *err)
{
    size_t done = 0;
    for (size_t i = 0; i < set->count && done < count; i++) {
        const struct erg_token_file *file = &set->files[i];
        if (first >= file->count) {
            first -= file->count;
            continue;
        }
        for (; done < count && first < file->count; first++, done++) {
            int64_t id = token_at(file, first);
            if (id < 0 || id >= words)
                return fail_token(file, first, words, err);
            ids[done] = (int32_t)id;
        }
        first = 0;
    }
    return done == count ? 0
                         : erg_fail(err, ERG_FAILED,
                                    "the set has %" PRIu64 " tokens, expected %zu more after them",
                                    set->tokens, count - done);
}
