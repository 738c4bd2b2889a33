/* Reads JSON token by token, from plain and from compressed files. */
#include "io/json_stream.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { BLOCK = 1 << 17 };

enum wanted { VALUE, VALUE_OR_END, KEY, KEY_OR_END, COMMA_OR_END, NOTHING };

struct erg_json_stream {
    gzFile file;
    char *path;
    unsigned char *block;
    size_t at, count;
    bool ended;
    uint64_t before; /* bytes before the block */
    uint64_t line;
    struct erg_json_spot spot;
    enum wanted wanted;
    bool objects[ERG_JSON_STREAM_DEPTH]; /* those that are open; false: arrays */
    size_t depth;
    char text[ERG_JSON_STREAM_TEXT_BYTES + 1];
    size_t length;
};

int erg_json_stream_open(struct erg_json_stream **stream, const char *path, struct erg_error *err)
{
    if (erg_file_refuse_fifo(path, err) != 0)
        return -1;
    errno = 0;
    gzFile file = gzopen(path, "rbe");
    if (!file)
        return erg_fail(err, ERG_FAILED, "reading '%s': %s", path,
                        strerror(errno ? errno : ENOMEM));
    gzbuffer(file, BLOCK);
    *stream = erg_xcalloc(1, sizeof **stream);
    (*stream)->file = file;
    (*stream)->path = erg_xstrdup(path);
    (*stream)->block = erg_xmalloc(BLOCK);
    (*stream)->line = 1;
    (*stream)->wanted = VALUE;
    return 0;
}

void erg_json_stream_close(struct erg_json_stream *stream)
{
    if (!stream)
        return;
    gzclose(stream->file);
    free(stream->path);
    free(stream->block);
    free(stream);
}

const char *erg_json_stream_text(const struct erg_json_stream *stream)
{
    return stream->text;
}

struct erg_json_spot erg_json_stream_spot(const struct erg_json_stream *stream)
{
    return stream->spot;
}

int erg_json_stream_fail(const struct erg_json_stream *stream, struct erg_json_spot spot,
                         struct erg_error *err, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    erg_utf8_repair(what, sizeof what);
    return erg_fail(err, ERG_FAILED, "%s:%llu: byte %llu: %s", stream->path,
                    (unsigned long long)spot.line, (unsigned long long)spot.byte, what);
}

/* ---- bytes ---- */

static struct erg_json_spot here(const struct erg_json_stream *stream)
{
    return (struct erg_json_spot){stream->line, stream->before + stream->at + 1};
}

/* Whether there is another block. */
static int refill(struct erg_json_stream *stream, struct erg_error *err)
{
    int number;
    if (stream->ended)
        return 0;
    stream->before += stream->count;
    assert(stream->at == stream->count);
    stream->at = stream->count = 0;
    int got = gzread(stream->file, stream->block, BLOCK);
    const char *reason = gzerror(stream->file, &number);
    if (got < 0 || (got < BLOCK && number == Z_BUF_ERROR))
        return erg_json_stream_fail(stream, here(stream), err, "%s",
                                    number == Z_BUF_ERROR
                                        ? "the compressed file ends early; expected the rest of it"
                                    : number == Z_ERRNO ? strerror(errno)
                                                        : reason);
    stream->count = (size_t)got;
    stream->ended = got == 0;
    return got > 0;
}

/* The next byte, without consuming it; -1: end of the file; -2: it cannot be read. */
static inline int peek(struct erg_json_stream *stream, struct erg_error *err)
{
    if (stream->at == stream->count) {
        int more = refill(stream, err);
        if (more <= 0)
            return more - 1;
    }
    return stream->block[stream->at];
}

static int skip_blanks(struct erg_json_stream *stream, struct erg_error *err)
{
    int byte;
    while ((byte = peek(stream, err)) == ' ' || byte == '\n' || byte == '\t' || byte == '\r') {
        stream->at++;
        stream->line += byte == '\n';
    }
    return byte;
}

/* A description of the next token, for messages. */
static int fail_here(struct erg_json_stream *stream, int byte, const char *expected,
                     struct erg_error *err)
{
    if (byte == -2)
        return -1; /* reported already */
    if (byte < 0)
        return erg_json_stream_fail(stream, here(stream), err,
                                    "the file ends here; expected %s (was its writer stopped?)",
                                    expected);
    if (byte < 0x20 || byte > 0x7e)
        return erg_json_stream_fail(stream, here(stream), err, "expected %s, got the byte 0x%02x",
                                    expected, (unsigned)byte);
    return erg_json_stream_fail(stream, here(stream), err, "expected %s, got '%c'", expected, byte);
}

/* ---- texts ---- */

static void keep(struct erg_json_stream *stream, const unsigned char *bytes, size_t count)
{
    size_t room = ERG_JSON_STREAM_TEXT_BYTES - stream->length;
    assert(stream->length <= ERG_JSON_STREAM_TEXT_BYTES);
    if (count > room)
        count = room;
    memcpy(stream->text + stream->length, bytes, count);
    stream->length += count;
}

static void keep_code(struct erg_json_stream *stream, unsigned code)
{
    unsigned char bytes[4];
    size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = count; i-- > 1; code >>= 6)
        bytes[i] = (unsigned char)(0x80 | (code & 0x3f));
    bytes[0] = (unsigned char)(first[count - 1] | code);
    keep(stream, bytes, count);
}

static int read_hex(struct erg_json_stream *stream, unsigned *code, struct erg_error *err)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        int byte = peek(stream, err);
        int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                    : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                    : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return fail_here(stream, byte, "four hexadecimal digits behind \\u", err);
        *code = *code * 16 + (unsigned)digit;
        stream->at++;
    }
    return 0;
}

/* Behind a backslash. A half of a pair of surrogates alone becomes U+FFFD. */
static int read_escape(struct erg_json_stream *stream, unsigned *high, struct erg_error *err)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    int byte = peek(stream, err);
    const char *letter = byte > 0 ? strchr(letters, byte) : NULL;
    unsigned code, before = *high;
    if (byte != 'u' && !letter)
        return fail_here(stream, byte, "one of \"\\/bfnrtu behind a backslash", err);
    stream->at++;
    *high = 0;
    if (letter) {
        keep(stream, (const unsigned char *)&meant[letter - letters], 1);
        return 0;
    }
    if (read_hex(stream, &code, err) != 0)
        return -1;
    if (code >= 0xd800 && code < 0xdc00)
        *high = code;
    else if (code >= 0xdc00 && code < 0xe000)
        keep_code(stream, before ? 0x10000 + ((before - 0xd800) << 10) + (code - 0xdc00) : 0xfffd);
    else
        keep_code(stream, code ? code : 0xfffd);
    return 0;
}

/* From its opening quote on. */
static int read_text(struct erg_json_stream *stream, struct erg_error *err)
{
    unsigned high = 0;
    stream->at++;
    stream->length = 0;
    for (;;) {
        int byte = peek(stream, err);
        if (byte < 0)
            return fail_here(stream, byte, "the closing quote of a text", err);
        const unsigned char *start = stream->block + stream->at, *at = start;
        const unsigned char *end = stream->block + stream->count;
        while (at < end && *at != '"' && *at != '\\' && *at != '\n')
            at++;
        if (high && at > start)
            high = 0;
        keep(stream, start, (size_t)(at - start));
        stream->at += (size_t)(at - start);
        if (at == end)
            continue;
        stream->at++;
        if (*at == '"')
            break;
        if (*at == '\n') {
            stream->line++;
            keep(stream, (const unsigned char *)"\n", 1);
        } else if (read_escape(stream, &high, err) != 0) {
            return -1;
        }
    }
    stream->text[stream->length] = '\0';
    return 0;
}

/* ---- numbers and words ---- */

static int read_digits(struct erg_json_stream *stream, struct erg_error *err)
{
    size_t before = stream->length;
    int byte;
    while ((byte = peek(stream, err)) >= '0' && byte <= '9') {
        const unsigned char digit = (unsigned char)byte;
        if (stream->length - before >= 512)
            return fail_here(stream, byte, "a number of fewer digits", err);
        keep(stream, &digit, 1);
        stream->at++;
    }
    return stream->length > before ? 0 : fail_here(stream, byte, "a digit", err);
}

/* One of two bytes, if it is there. */
static bool take(struct erg_json_stream *stream, int one, int other, struct erg_error *err)
{
    int byte = peek(stream, err);
    const unsigned char taken = (unsigned char)byte;
    if (byte != one && byte != other)
        return false;
    keep(stream, &taken, 1);
    stream->at++;
    return true;
}

static int read_number(struct erg_json_stream *stream, struct erg_error *err)
{
    stream->length = 0;
    take(stream, '-', '-', err);
    size_t first = stream->length;
    if (read_digits(stream, err) != 0)
        return -1;
    if (stream->text[first] == '0' && stream->length > first + 1)
        return erg_json_stream_fail(stream, stream->spot, err,
                                    "expected a number without zeros before it");
    if (take(stream, '.', '.', err) && read_digits(stream, err) != 0)
        return -1;
    if (take(stream, 'e', 'E', err)) {
        take(stream, '+', '-', err);
        if (read_digits(stream, err) != 0)
            return -1;
    }
    stream->text[stream->length] = '\0';
    return 0;
}

static int read_word(struct erg_json_stream *stream, enum erg_json_token *token,
                     struct erg_error *err)
{
    static const struct {
        const char *word;
        enum erg_json_token token;
    } words[] = {{"true", ERG_JSON_TRUE}, {"false", ERG_JSON_FALSE}, {"null", ERG_JSON_NULL}};
    int byte = peek(stream, err);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (byte != words[i].word[0])
            continue;
        for (const char *at = words[i].word; *at; at++, stream->at++)
            if ((byte = peek(stream, err)) != *at)
                return fail_here(stream, byte, words[i].word, err);
        *token = words[i].token;
        return 0;
    }
    return fail_here(stream, byte, "a value", err);
}

/* ---- tokens ---- */

static int open_container(struct erg_json_stream *stream, bool object, enum erg_json_token *token,
                          struct erg_error *err)
{
    if (stream->depth == ERG_JSON_STREAM_DEPTH)
        return erg_json_stream_fail(stream, stream->spot, err,
                                    "expected at most %d objects and lists in each other",
                                    ERG_JSON_STREAM_DEPTH);
    stream->objects[stream->depth++] = object;
    stream->wanted = object ? KEY_OR_END : VALUE_OR_END;
    stream->at++;
    *token = object ? ERG_JSON_OBJECT : ERG_JSON_ARRAY;
    return 0;
}

static int read_value(struct erg_json_stream *stream, int byte, enum erg_json_token *token,
                      struct erg_error *err)
{
    if (byte == '{' || byte == '[')
        return open_container(stream, byte == '{', token, err);
    stream->wanted = stream->depth ? COMMA_OR_END : NOTHING;
    if (byte == '"') {
        *token = ERG_JSON_TEXT;
        return read_text(stream, err);
    }
    if (byte == '-' || (byte >= '0' && byte <= '9')) {
        *token = ERG_JSON_NUMBER;
        return read_number(stream, err);
    }
    return read_word(stream, token, err);
}

static int read_key(struct erg_json_stream *stream, int byte, enum erg_json_token *token,
                    struct erg_error *err)
{
    if (byte != '"')
        return fail_here(stream, byte, "a key in quotes", err);
    *token = ERG_JSON_KEY;
    if (read_text(stream, err) != 0)
        return -1;
    byte = skip_blanks(stream, err);
    if (byte != ':')
        return fail_here(stream, byte, "':' behind a key", err);
    stream->at++;
    stream->wanted = VALUE;
    return 0;
}

int erg_json_stream_next(struct erg_json_stream *stream, enum erg_json_token *token,
                         struct erg_error *err)
{
    int byte = skip_blanks(stream, err);
    stream->spot = here(stream);
    if (stream->wanted == NOTHING) {
        *token = ERG_JSON_END;
        return byte == -1 ? 0 : fail_here(stream, byte, "nothing behind the document", err);
    }
    bool object = stream->depth && stream->objects[stream->depth - 1];
    bool may_end = stream->wanted == COMMA_OR_END || stream->wanted == KEY_OR_END ||
                   stream->wanted == VALUE_OR_END;
    if (may_end && byte == (object ? '}' : ']')) {
        stream->at++;
        assert(stream->depth > 0);
        stream->depth--;
        stream->wanted = stream->depth ? COMMA_OR_END : NOTHING;
        *token = object ? ERG_JSON_OBJECT_END : ERG_JSON_ARRAY_END;
        return 0;
    }
    if (stream->wanted == COMMA_OR_END) {
        if (byte != ',')
            return fail_here(stream, byte, object ? "',' or '}'" : "',' or ']'", err);
        stream->at++;
        stream->wanted = object ? KEY : VALUE;
        byte = skip_blanks(stream, err);
        stream->spot = here(stream);
    }
    return stream->wanted == KEY || stream->wanted == KEY_OR_END
               ? read_key(stream, byte, token, err)
               : read_value(stream, byte, token, err);
}

int erg_json_stream_skip(struct erg_json_stream *stream, enum erg_json_token token,
                         struct erg_error *err)
{
    size_t depth = stream->depth;
    if (token != ERG_JSON_OBJECT && token != ERG_JSON_ARRAY)
        return 0;
    while (stream->depth >= depth)
        if (erg_json_stream_next(stream, &token, err) != 0)
            return -1;
    return 0;
}
