/* Reads a tokenizer.json: added tokens, normaliser, splitting expressions, words and merges. */
#include "train/tokenizer/tokenizer_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* How GPT-2 splits text: the meaning of ByteLevel's `use_regex`. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool is_type(const struct erg_json_place *place, const char *type)
{
    const char *value = json_string_value(json_object_get(place->object, "type"));
    return value && strcmp(value, type) == 0;
}

static int refuse_type(const struct erg_json_place *place, const char *expected,
                       struct erg_error *err)
{
    const char *value = json_string_value(json_object_get(place->object, "type"));
    return erg_json_fail(place, "type", err, "expected %s, got %s%s%s", expected, value ? "'" : "",
                         value ? value : "none", value ? "'" : "");
}

/* An optional flag that must have one value. */
static int require(const struct erg_json_place *place, const char *key, bool wanted,
                   const char *why, struct erg_error *err)
{
    bool value = wanted;
    if (erg_json_has(place, key) && erg_json_bool(place, key, &value, err) != 0)
        return -1;
    return value == wanted
               ? 0
               : erg_json_fail(place, key, err, "expected %s: %s", wanted ? "true" : "false", why);
}

/* ---- added tokens ---- */

static int is_longer(const void *a, const void *b)
{
    const struct erg_added_token *left = a, *right = b;
    return (left->length < right->length) - (left->length > right->length);
}

static int read_added_token(struct erg_tokenizer *tokenizer, const struct erg_json_place *item,
                            struct erg_error *err)
{
    static const char strict[] = "tokens are cut out of the text just as they are written";
    const char *content;
    long id;
    bool normalized = false;
    if (erg_json_string(item, "content", &content, err) != 0 ||
        erg_json_long(item, "id", 0, INT32_MAX - 1, &id, err) != 0 ||
        require(item, "lstrip", false, strict, err) != 0 ||
        require(item, "rstrip", false, strict, err) != 0 ||
        require(item, "single_word", false, strict, err) != 0 ||
        (erg_json_has(item, "normalized") &&
         erg_json_bool(item, "normalized", &normalized, err) != 0))
        return -1;
    if (!*content)
        return erg_json_fail(item, "content", err, "expected text, got none");
    ERG_PUSH(
        &tokenizer->added, items,
        (struct erg_added_token){erg_xstrdup(content), strlen(content), (int32_t)id, normalized});
    tokenizer->added.begins[(unsigned char)*content] = true;
    if (id >= tokenizer->words)
        tokenizer->words = id + 1;
    return 0;
}

static int read_added(struct erg_tokenizer *tokenizer, const struct erg_json_place *root,
                      struct erg_error *err)
{
    const json_t *list;
    if (!erg_json_has(root, "added_tokens"))
        return 0;
    if (erg_json_array(root, "added_tokens", &list, err) != 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct erg_json_place item;
        if (erg_json_enter_item(&item, root, "added_tokens", i, err) != 0 ||
            read_added_token(tokenizer, &item, err) != 0)
            return -1;
    }
    qsort(tokenizer->added.items, tokenizer->added.count, sizeof *tokenizer->added.items,
          is_longer);
    return 0;
}

/* ---- normaliser and expressions ---- */

static int read_normalizer(struct erg_tokenizer *tokenizer, const struct erg_json_place *root,
                           struct erg_error *err)
{
    struct erg_json_place place;
    if (!erg_json_has(root, "normalizer"))
        return 0;
    if (erg_json_enter(&place, root, "normalizer", err) != 0)
        return -1;
    tokenizer->nfc = is_type(&place, "NFC");
    return tokenizer->nfc ? 0 : refuse_type(&place, "'NFC' or no normalizer", err);
}

/*
 * Adds a pattern with Unicode's white space, as tokenizers define it. PCRE2's own \s also matches
 * U+180E, which is not white space.
 */
static void add_translated(struct erg_text *out, const char *pattern)
{
    static const char space[] = "\\t-\\r\\x{85}\\p{Z}";
    bool in_class = false;
    for (const char *at = pattern; *at; at++) {
        if (*at == '\\' && at[1] == 's') {
            erg_text_printf(out, in_class ? "%s" : "[%s]", space);
            at++;
        } else if (*at == '\\' && at[1] == 'S' && !in_class) {
            erg_text_printf(out, "[^%s]", space);
            at++;
        } else if (*at == '\\' && at[1]) {
            erg_text_add_bytes(out, at++, 2);
        } else {
            in_class = *at == '[' || (in_class && *at != ']');
            erg_text_add_bytes(out, at, 1);
        }
    }
}

static int add_pattern(struct erg_tokenizer *tokenizer, const struct erg_json_place *place,
                       const char *key, const char *pattern, struct erg_error *err)
{
    int code;
    size_t offset;
    struct erg_text translated = {0};
    add_translated(&translated, pattern);
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)(translated.data ? translated.data : ""), PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    erg_text_release(&translated);
    if (!compiled) {
        char message[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        return erg_json_fail(place, key, err, "expected a regular expression, got '%s': %s",
                             pattern, message);
    }
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* without it, matching is slower */
    ERG_PUSH(&tokenizer->patterns, items, compiled);
    return 0;
}

static int read_byte_level(struct erg_tokenizer *tokenizer, const struct erg_json_place *place,
                           struct erg_error *err)
{
    bool use_regex = true;
    if (require(place, "add_prefix_space", false, "a text begins unchanged", err) != 0 ||
        (erg_json_has(place, "use_regex") &&
         erg_json_bool(place, "use_regex", &use_regex, err) != 0))
        return -1;
    return use_regex ? add_pattern(tokenizer, place, "use_regex", gpt2_pattern, err) : 0;
}

static int read_split(struct erg_tokenizer *tokenizer, const struct erg_json_place *place,
                      struct erg_error *err)
{
    struct erg_json_place pattern;
    const char *text, *behavior;
    if (erg_json_enter(&pattern, place, "pattern", err) != 0 ||
        erg_json_string(&pattern, "Regex", &text, err) != 0 ||
        erg_json_string(place, "behavior", &behavior, err) != 0 ||
        require(place, "invert", false, "what matches is a piece", err) != 0)
        return -1;
    if (strcmp(behavior, "Isolated") != 0)
        return erg_json_fail(place, "behavior", err, "expected 'Isolated', got '%s'", behavior);
    return add_pattern(tokenizer, &pattern, "Regex", text, err);
}

/* Reads one or several splitting pre-tokenizers; the last one turns bytes into characters. */
static int read_cuts(struct erg_tokenizer *tokenizer, const struct erg_json_place *root,
                     struct erg_error *err)
{
    static const char expected[] =
        "'ByteLevel', or a 'Sequence' of 'Split' that ends with it (other "
        "tokenizers, such as SentencePiece's, are not read: tokenize "
        "with the model's own tools)";
    struct erg_json_place place, item;
    const json_t *list;
    if (erg_json_enter(&place, root, "pre_tokenizer", err) != 0)
        return -1;
    if (is_type(&place, "ByteLevel"))
        return read_byte_level(tokenizer, &place, err);
    if (!is_type(&place, "Sequence"))
        return refuse_type(&place, expected, err);
    if (erg_json_array(&place, "pretokenizers", &list, err) != 0)
        return -1;
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        if (erg_json_enter_item(&item, &place, "pretokenizers", i, err) != 0)
            return -1;
        bool last = i + 1 == count;
        if (!is_type(&item, last ? "ByteLevel" : "Split"))
            return refuse_type(&item, last ? "'ByteLevel' as the last" : "'Split'", err);
        if ((last ? read_byte_level : read_split)(tokenizer, &item, err) != 0)
            return -1;
    }
    return count ? 0 : erg_json_fail(&place, "pretokenizers", err, "expected at least one");
}

/* ---- words and merges ---- */

static int read_words(struct erg_tokenizer *tokenizer, const struct erg_json_place *model,
                      struct erg_error *err)
{
    struct erg_json_place place;
    if (erg_json_enter(&place, model, "vocab", err) != 0)
        return -1;
    json_t *vocabulary = json_object_get(model->object, "vocab");
    const char *word;
    json_t *value;
    json_object_foreach(vocabulary, word, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= INT32_MAX)
            return erg_json_fail(model, "vocab", err,
                                 "word '%s': expected a whole number of [0, 2147483647)", word);
        if (json_integer_value(value) >= tokenizer->words)
            tokenizer->words = (long)json_integer_value(value) + 1;
    }
    tokenizer->vocabulary = json_incref(vocabulary);
    for (int byte = 0; byte < 256; byte++) {
        struct erg_text text = {0};
        erg_tokenizer_add_byte(&text, (unsigned char)byte);
        const json_t *id = json_object_get(tokenizer->vocabulary, text.data);
        tokenizer->byte_ids[byte] = id ? (int32_t)json_integer_value(id) : -1;
        erg_text_release(&text);
    }
    return 0;
}

/* The two halves of "a b" or ["a", "b"]. */
static bool split_merge(const json_t *item, struct erg_text halves[2])
{
    const char *text = json_string_value(item);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (space) {
        erg_text_add_bytes(&halves[0], text, (size_t)(space - text));
        erg_text_add(&halves[1], space + 1);
    } else if (json_array_size(item) == 2) {
        for (size_t half = 0; half < 2; half++) {
            text = json_string_value(json_array_get(item, half));
            erg_text_add(&halves[half], text ? text : "");
        }
    }
    return halves[0].count && halves[1].count && !strchr(halves[1].data, ' ');
}

static int read_merge(struct erg_tokenizer *tokenizer, const struct erg_json_place *model,
                      const json_t *item, size_t rank, struct erg_error *err)
{
    struct erg_text parts[3] = {0}; /* the halves, and the whole */
    int32_t ids[3] = {0};
    char key[32];
    snprintf(key, sizeof key, "merges[%zu]", rank);
    int result = 0;
    if (!split_merge(item, parts))
        result =
            erg_json_fail(model, key, err, "expected two words, as \"a b\" or as [\"a\", \"b\"]");
    else
        erg_text_printf(&parts[2], "%s%s", parts[0].data, parts[1].data);
    for (size_t i = 0; i < 3 && result == 0; i++) {
        const json_t *id = json_object_get(tokenizer->vocabulary, parts[i].data);
        if (id)
            ids[i] = (int32_t)json_integer_value(id);
        else
            result = erg_json_fail(model, key, err, "'%s' is not a word of the vocabulary",
                                   parts[i].data);
    }
    if (result == 0)
        erg_merges_set(&tokenizer->merges, ids[0], ids[1], (uint32_t)rank, ids[2]);
    for (size_t i = 0; i < 3; i++)
        erg_text_release(&parts[i]);
    return result;
}

static int refuse_text(const struct erg_json_place *place, const char *key, struct erg_error *err)
{
    const char *text = json_string_value(json_object_get(place->object, key));
    return text && *text ? erg_json_fail(place, key, err, "expected none, got '%s'", text) : 0;
}

static int read_model(struct erg_tokenizer *tokenizer, const struct erg_json_place *root,
                      struct erg_error *err)
{
    struct erg_json_place model;
    const json_t *merges;
    if (erg_json_enter(&model, root, "model", err) != 0)
        return -1;
    if (!is_type(&model, "BPE"))
        return refuse_type(&model, "'BPE'", err);
    double dropout = 0;
    if (refuse_text(&model, "continuing_subword_prefix", err) != 0 ||
        refuse_text(&model, "end_of_word_suffix", err) != 0 ||
        require(&model, "byte_fallback", false,
                "this tokenizer is SentencePiece's; tokenize with the model's own tools",
                err) != 0 ||
        (erg_json_has(&model, "dropout") &&
         erg_json_double(&model, "dropout", 0, 0, &dropout, err) != 0) ||
        (erg_json_has(&model, "ignore_merges") &&
         erg_json_bool(&model, "ignore_merges", &tokenizer->ignore_merges, err) != 0) ||
        read_words(tokenizer, &model, err) != 0 ||
        erg_json_array(&model, "merges", &merges, err) != 0)
        return -1;
    size_t count = json_array_size(merges);
    erg_merges_init(&tokenizer->merges, count);
    for (size_t i = 0; i < count; i++)
        if (read_merge(tokenizer, &model, json_array_get(merges, i), i, err) != 0)
            return -1;
    return 0;
}

int erg_tokenizer_read(struct erg_tokenizer *tokenizer, const struct erg_json_place *root,
                       struct erg_error *err)
{
    if (read_model(tokenizer, root, err) != 0 || read_normalizer(tokenizer, root, err) != 0 ||
        read_cuts(tokenizer, root, err) != 0 || read_added(tokenizer, root, err) != 0)
        return -1;
    tokenizer->match = pcre2_match_data_create(1, NULL);
    tokenizer->pieces = erg_xcalloc(ERG_PIECES_KEPT, sizeof *tokenizer->pieces);
    return 0;
}
