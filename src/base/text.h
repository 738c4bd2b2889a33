/*
 * Text: a growable string, bytes made valid UTF-8, number parsing that refuses garbage, and "did
 * you mean".
 */
#ifndef ERG_BASE_TEXT_H
#define ERG_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All-zero is a valid empty text; `data` is NUL-terminated once anything was added. */
struct erg_text {
    char *data;
    size_t count; /* bytes without the NUL */
    size_t capacity;
};

void erg_text_add(struct erg_text *text, const char *part);
void erg_text_add_bytes(struct erg_text *text, const char *bytes, size_t count);
/* Seven bits a byte, the lowest first, the highest bit set where more follow (LEB128). */
void erg_text_add_varint(struct erg_text *text, uint64_t value);
void erg_text_printf(struct erg_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same on one line: control characters, and what other readers take for a line break, are
 * written out as \x0a or \u2028. */
void erg_text_add_printable(struct erg_text *text, const char *part);
void erg_text_release(struct erg_text *text);

/*
 * Adds bytes of unknown origin as valid UTF-8: each maximal part of a sequence that is not valid
 * becomes U+FFFD, as the Unicode Standard recommends (3.9, "U+FFFD Substitution of Maximal
 * Subparts"). Overlong forms, surrogates and codes above U+10FFFF are not valid.
 */
void erg_text_add_utf8(struct erg_text *text, const char *bytes, size_t count);
bool erg_utf8_is_valid(const char *bytes, size_t count);

/* The same in place, for a string in a buffer of `capacity` bytes: text that does not fit is cut
 * off at a character boundary. A string without a NUL in the buffer ends with the buffer. */
void erg_utf8_repair(char *text, size_t capacity);

/* A text as it may stand between quotes in JSON: quotes, backslashes and control characters
 * escaped, and cut off where it does not fit. */
const char *erg_text_escape_json(char *out, size_t capacity, const char *text);

/* "s" after the noun of a number other than 1, or "": "1 GPU", "2 GPUs". */
const char *erg_plural(size_t count);

/*
 * The whole of `text` as a finite number; false for empty, trailing garbage, overflow, NaN, inf.
 * Independent of the locale's decimal point.
 */
bool erg_parse_double(const char *text, double *value);
/* Bytes: such a number alone or with KiB, MiB, GiB, TiB, kB, MB, GB or TB behind it. */
bool erg_parse_bytes(const char *text, double *bytes);
bool erg_parse_long(const char *text, long *value);
/* The text after "expected" where erg_parse_long() fails: with bounds if the number is outside. */
const char *erg_whole_number(const char *text);

/*
 * The candidate closest to `word` by edit distance (insert, delete, replace, swap), or NULL
 * when none is close enough to be meant. `candidates` ends with NULL.
 */
const char *erg_closest(const char *word, const char *const *candidates);

/* "a, b, c" of a list that ends with NULL; at least empty text. */
void erg_text_add_names(struct erg_text *text, const char *const *names);

#endif
