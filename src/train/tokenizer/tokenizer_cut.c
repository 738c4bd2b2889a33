/* Cuts a text into pieces: at added tokens, then by regular expressions. */
#include "train/tokenizer/tokenizer_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The longest added token that begins at `text`; NULL: none. */
static const struct erg_added_token *token_at(const struct erg_tokenizer *tokenizer,
                                              bool normalized, const char *text, size_t length)
{
    if (!tokenizer->added.begins[(unsigned char)*text])
        return NULL;
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const struct erg_added_token *token = &tokenizer->added.items[i];
        if (token->normalized == normalized && token->length <= length &&
            memcmp(token->content, text, token->length) == 0)
            return token;
    }
    return NULL;
}

/* Applies the expressions from `level` on to a text. */
static int encode_pieces(struct erg_tokenizer *tokenizer, size_t level, const char *text,
                         size_t length, struct erg_token_ids *ids, struct erg_error *err)
{
    if (!length)
        return 0;
    if (level == tokenizer->patterns.count)
        return erg_tokenizer_encode_piece(tokenizer, text, length, ids, err);
    size_t done = 0;
    while (done < length) {
        int found = pcre2_match(tokenizer->patterns.items[level], (PCRE2_SPTR)text, length, done,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, tokenizer->match, NULL);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0) {
            char message[160];
            pcre2_get_error_message(found, (PCRE2_UCHAR *)message, sizeof message);
            return erg_fail(err, ERG_FAILED,
                            "the tokenizer's regular expression cannot cut this text: %s", message);
        }
        /* With \K and lookbehinds a match could begin before the start of the search. */
        const size_t *bounds = pcre2_get_ovector_pointer(tokenizer->match);
        size_t begin = bounds[0], end = bounds[1];
        if (begin < done || end <= begin)
            return erg_fail(err, ERG_FAILED,
                            "the tokenizer's regular expression cannot cut this text: a match "
                            "begins before the end of the last one");
        if (encode_pieces(tokenizer, level + 1, text + done, begin - done, ids, err) != 0 ||
            encode_pieces(tokenizer, level + 1, text + begin, end - begin, ids, err) != 0)
            return -1;
        done = end;
    }
    return encode_pieces(tokenizer, level + 1, text + done, length - done, ids, err);
}

typedef int encode_part(struct erg_tokenizer *tokenizer, const char *text, size_t length,
                        struct erg_token_ids *ids, struct erg_error *err);

/* Cuts out added tokens of one kind, and calls `encode` for the text between them. */
static int cut_tokens(struct erg_tokenizer *tokenizer, bool normalized, const char *text,
                      size_t length, encode_part *encode, struct erg_token_ids *ids,
                      struct erg_error *err)
{
    size_t done = 0;
    for (size_t at = 0; at < length;) {
        const struct erg_added_token *token =
            token_at(tokenizer, normalized, text + at, length - at);
        if (!token) {
            at++;
            continue;
        }
        if (encode(tokenizer, text + done, at - done, ids, err) != 0)
            return -1;
        ERG_PUSH(ids, items, token->id);
        done = at += token->length;
    }
    return encode(tokenizer, text + done, length - done, ids, err);
}

static int encode_normalized(struct erg_tokenizer *tokenizer, const char *text, size_t length,
                             struct erg_token_ids *ids, struct erg_error *err)
{
    return encode_pieces(tokenizer, 0, text, length, ids, err);
}

static int encode_plain(struct erg_tokenizer *tokenizer, const char *text, size_t length,
                        struct erg_token_ids *ids, struct erg_error *err)
{
    if (!tokenizer->nfc || !length)
        return cut_tokens(tokenizer, true, text, length, encode_normalized, ids, err);
    utf8proc_uint8_t *composed = NULL;
    utf8proc_ssize_t count = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length,
                                          &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (count < 0)
        return erg_fail(err, ERG_FAILED, "normalizing a text of %zu bytes: %s", length,
                        utf8proc_errmsg(count));
    int result = cut_tokens(tokenizer, true, (const char *)composed, (size_t)count,
                            encode_normalized, ids, err);
    free(composed);
    return result;
}

int erg_tokenizer_encode(struct erg_tokenizer *tokenizer, const char *text, size_t length,
                         struct erg_token_ids *ids, struct erg_error *err)
{
    if (!tokenizer->bytes)
        return cut_tokens(tokenizer, false, text, length, encode_plain, ids, err);
    for (size_t i = 0; i < length; i++)
        ERG_PUSH(ids, items, (unsigned char)text[i]);
    return 0;
}
