/*
 * JSON stream: a document of any size, token by token, in little memory; plain or compressed by
 * gzip. Strict as RFC 8259, except that control characters in texts are accepted.
 *
 * Messages say "FILE:LINE: byte N: ..."; bytes are those of the document, from 1.
 */
#ifndef ERG_IO_JSON_STREAM_H
#define ERG_IO_JSON_STREAM_H

#include "ergon/error.h"

#include <stddef.h>
#include <stdint.h>

enum erg_json_token {
    ERG_JSON_OBJECT,
    ERG_JSON_OBJECT_END,
    ERG_JSON_ARRAY,
    ERG_JSON_ARRAY_END,
    ERG_JSON_KEY,
    ERG_JSON_TEXT,
    ERG_JSON_NUMBER,
    ERG_JSON_TRUE,
    ERG_JSON_FALSE,
    ERG_JSON_NULL,
    ERG_JSON_END, /* of the document; then every time */
};

/* The bytes that are kept of a key, text or number; the rest is read and dropped. */
enum { ERG_JSON_STREAM_TEXT_BYTES = 1 << 16, ERG_JSON_STREAM_DEPTH = 512 };

struct erg_json_stream;

int erg_json_stream_open(struct erg_json_stream **stream, const char *path, struct erg_error *err);
void erg_json_stream_close(struct erg_json_stream *stream); /* NULL is fine */

int erg_json_stream_next(struct erg_json_stream *stream, enum erg_json_token *token,
                         struct erg_error *err);

/* The latest key, text or number, with a terminating NUL; numbers as they are written. Valid until
 * the next token. */
const char *erg_json_stream_text(const struct erg_json_stream *stream);

/* Skips the rest of the value that `token`, the latest, begins. */
int erg_json_stream_skip(struct erg_json_stream *stream, enum erg_json_token token,
                         struct erg_error *err);

/* Where the latest token began. */
struct erg_json_spot {
    uint64_t line, byte;
};
struct erg_json_spot erg_json_stream_spot(const struct erg_json_stream *stream);

/* A message about what lies there. Returns -1. */
int erg_json_stream_fail(const struct erg_json_stream *stream, struct erg_json_spot spot,
                         struct erg_error *err, const char *format, ...) ERG_PRINTF(4, 5);

#endif
