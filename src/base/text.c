/* Text: growable strings, UTF-8, numbers and the closest word (base/text.h). */
#define _GNU_SOURCE /* strtod_l, newlocale: parsing must not follow the user's locale */
#include "base/text.h"

#include "base/memory.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void erg_text_add_bytes(struct erg_text *text, const char *bytes, size_t count)
{
    ERG_RESERVE(text, data, count + 1);
    assert(text->capacity > text->count + count);
    memcpy(text->data + text->count, bytes, count);
    text->count += count;
    text->data[text->count] = '\0';
}

void erg_text_add_varint(struct erg_text *text, uint64_t value)
{
    char bytes[10];
    size_t count = 0;
    do {
        bytes[count++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    erg_text_add_bytes(text, bytes, count);
}

void erg_text_add(struct erg_text *text, const char *part)
{
    erg_text_add_bytes(text, part, strlen(part));
}

void erg_text_printf(struct erg_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length > 0) {
        ERG_RESERVE(text, data, (size_t)length + 1);
        vsnprintf(text->data + text->count, (size_t)length + 1, format, again);
        text->count += (size_t)length;
    }
    va_end(again);
}

void erg_text_add_printable(struct erg_text *text, const char *part)
{
    erg_text_add(text, "");
    for (const unsigned char *at = (const unsigned char *)part; *at; at++) {
        if (*at < 0x20 || *at == 0x7f) {
            erg_text_printf(text, "\\x%02x", *at);
        } else if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) { /* U+0080 to U+009F */
            erg_text_printf(text, "\\x%02x", at[1]);
            at++;
        } else if (at[0] == 0xe2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9)) {
            erg_text_printf(text, "\\u20%02x", at[2] - 0x80);
            at += 2;
        } else {
            erg_text_add_bytes(text, (const char *)at, 1);
        }
    }
}

void erg_text_release(struct erg_text *text)
{
    free(text->data);
    *text = (struct erg_text){0};
}

/*
 * Bytes of the character at `at`, or of the longest part of one that could have begun there. The
 * ranges of second bytes leave out overlong forms, surrogates and codes above U+10FFFF.
 */
static size_t utf8_length(const unsigned char *at, size_t left, bool *valid)
{
    unsigned char lead = at[0];
    size_t length = lead < 0x80                    ? 1
                    : lead >= 0xC2 && lead <= 0xDF ? 2
                    : lead >= 0xE0 && lead <= 0xEF ? 3
                    : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                   : 0;
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    size_t found = 1;
    for (; found < length && found < left && at[found] >= low && at[found] <= high; found++) {
        low = 0x80;
        high = 0xBF;
    }
    *valid = length && found == length;
    return found;
}

void erg_text_add_utf8(struct erg_text *text, const char *bytes, size_t count)
{
    const unsigned char *at = (const unsigned char *)bytes;
    size_t sound = 0; /* bytes before `i` that are not yet added */
    erg_text_add_bytes(text, bytes, 0);
    for (size_t i = 0; i < count;) {
        bool valid;
        size_t length = utf8_length(at + i, count - i, &valid);
        i += length;
        sound += length;
        if (valid && i < count)
            continue;
        erg_text_add_bytes(text, bytes + i - sound, valid ? sound : sound - length);
        if (!valid)
            erg_text_add(text, "\xEF\xBF\xBD");
        sound = 0;
    }
}

bool erg_utf8_is_valid(const char *bytes, size_t count)
{
    bool valid = true;
    for (size_t i = 0; valid && i < count;)
        i += utf8_length((const unsigned char *)bytes + i, count - i, &valid);
    return valid;
}

void erg_utf8_repair(char *text, size_t capacity)
{
    struct erg_text sound = {0};
    erg_text_add_utf8(&sound, text, strnlen(text, capacity));
    size_t length = sound.count;
    if (length >= capacity) { /* back to where a character begins */
        length = capacity - 1;
        while (length && ((unsigned char)sound.data[length] & 0xC0) == 0x80)
            length--;
    }
    assert(length < capacity);
    memcpy(text, sound.data, length);
    text[length] = '\0';
    erg_text_release(&sound);
}

const char *erg_plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* A finite number at the start of `text`; *end is behind it. */
static bool parse_start(const char *text, double *value, char **end)
{
    pthread_once(&c_locale_once, make_c_locale);
    if (!text || !*text || isspace((unsigned char)*text))
        return false;
    const char *digits = text + (*text == '-' || *text == '+');
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) /* which strtod() reads */
        return false;
    double parsed = strtod_l(text, end, c_locale);
    if (*end == text || !isfinite(parsed))
        return false;
    *value = parsed;
    return true;
}

bool erg_parse_double(const char *text, double *value)
{
    char *end;
    double parsed;
    if (!parse_start(text, &parsed, &end) || *end)
        return false;
    *value = parsed;
    return true;
}

bool erg_parse_bytes(const char *text, double *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"", 1},     {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
        {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
    };
    char *end;
    double parsed;
    if (!parse_start(text, &parsed, &end))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].name) == 0 && isfinite(parsed * units[i].bytes)) {
            *bytes = parsed * units[i].bytes;
            return true;
        }
    return false;
}

bool erg_parse_long(const char *text, long *value)
{
    if (!text || !*text || isspace((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    long parsed = strtol(text, &end, 10);
    if (*end || errno)
        return false;
    *value = parsed;
    return true;
}

const char *erg_whole_number(const char *text)
{
    double number;
    bool beyond = erg_parse_double(text, &number) && fabs(number) >= 0x1p63;
    return beyond ? "a whole number from -9223372036854775808 to 9223372036854775807"
                  : "a whole number";
}

enum { MAX_WORD = 63 };

/* Damerau-Levenshtein distance with adjacent swaps ("optimal string alignment"). */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][MAX_WORD + 2];
    size_t la = strlen(a), lb = strlen(b);
    if (la > MAX_WORD || lb > MAX_WORD)
        return MAX_WORD + 1;
    size_t *before = rows[0], *previous = rows[1], *current = rows[2];
    for (size_t j = 0; j <= lb; j++)
        previous[j] = j;
    for (size_t i = 1; i <= la; i++) {
        current[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = previous[j - 1] + (a[i - 1] != b[j - 1]);
            if (previous[j] + 1 < best)
                best = previous[j] + 1;
            if (current[j - 1] + 1 < best)
                best = current[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            current[j] = best;
        }
        size_t *recycled = before;
        before = previous;
        previous = current;
        current = recycled;
    }
    return previous[lb];
}

const char *erg_closest(const char *word, const char *const *candidates)
{
    size_t limit = strlen(word) / 3 + 1; /* a third of the letters may be wrong */
    const char *closest = NULL;
    for (; *candidates; candidates++) {
        size_t distance = edit_distance(word, *candidates);
        if (distance <= limit && distance < strlen(*candidates)) {
            limit = distance ? distance - 1 : 0;
            closest = *candidates;
            if (!distance)
                break;
        }
    }
    return closest;
}

void erg_text_add_names(struct erg_text *text, const char *const *names)
{
    erg_text_add(text, "");
    for (size_t i = 0; names[i]; i++)
        erg_text_printf(text, "%s%s", i ? ", " : "", names[i]);
}

const char *erg_text_escape_json(char *out, size_t capacity, const char *text)
{
    size_t at = 0;
    for (; *text && at + 7 < capacity; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x20 || byte == 0x7f)
            at += (size_t)snprintf(out + at, capacity - at, "\\u%04x", byte);
        else if (byte == '"' || byte == '\\')
            at += (size_t)snprintf(out + at, capacity - at, "\\%c", byte);
        else
            out[at++] = *text;
    }
    while (at > 0 && *text && ((unsigned char)*text & 0xc0) == 0x80) /* not within a character */
        text--, at--;
    out[at] = '\0';
    return out;
}
