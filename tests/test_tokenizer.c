/* Tokenizers: the ids that Hugging Face's library gives, and files that are refused. */
#include "check.h"
#include "json_file.h"

#include "base/text.h"
#include "io/file.h"
#include "train/tokenizer/tokenizer.h"

#define TOKENIZERS ERGON_TEST_SOURCE_DIR "/tests/data/train/tokenizers/"

static struct erg_tokenizer *load(const char *path)
{
    struct erg_tokenizer *tokenizer;
    struct erg_error err;
    assert_ok(erg_tokenizer_load(&tokenizer, path, &err), &err);
    return tokenizer;
}

static void check_ids(struct erg_tokenizer *tokenizer, const char *text, size_t length,
                      const int32_t *expected, size_t count)
{
    struct erg_token_ids ids = {0};
    struct erg_error err;
    assert_ok(erg_tokenizer_encode(tokenizer, text, length, &ids, &err), &err);
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++)
        if (ids.items[i] != expected[i])
            fail_msg("token %zu of \"%.40s\" is %d, expected %d", i, text, ids.items[i],
                     expected[i]);
    free(ids.items);
}

/* Each text twice: pieces that were seen before take another way. */
static void check_golden(const char *folder)
{
    struct erg_text path = {0};
    struct erg_error err;
    json_t *cases;
    erg_text_printf(&path, "%s%s/ids.json", TOKENIZERS, folder);
    assert_ok(load_json(&cases, path.data, &err), &err);
    path.count = 0;
    erg_text_printf(&path, "%s%s", TOKENIZERS, folder);
    struct erg_tokenizer *tokenizer = load(path.data);
    assert_int_equal(json_array_size(cases), 8);
    for (size_t i = 0; i < 2 * json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i % json_array_size(cases));
        const json_t *text = json_object_get(item, "text"), *list = json_object_get(item, "ids");
        size_t count = json_array_size(list);
        int32_t *expected = calloc(count + 1, sizeof *expected);
        for (size_t k = 0; k < count; k++)
            expected[k] = (int32_t)json_integer_value(json_array_get(list, k));
        check_ids(tokenizer, json_string_value(text), json_string_length(text), expected, count);
        free(expected);
    }
    assert_int_equal(erg_tokenizer_words(tokenizer), 400);
    assert_int_equal(erg_tokenizer_id(tokenizer, "<|end|>"), 0);
    assert_int_equal(erg_tokenizer_id(tokenizer, "no such word"), -1);
    assert_int_equal(erg_tokenizer_end(tokenizer), -1);
    erg_tokenizer_free(tokenizer);
    json_decref(cases);
    erg_text_release(&path);
}

static void ids_are_those_of_the_library(void **state)
{
    (void)state;
    check_golden("gpt2");
    check_golden("llama3");
    check_golden("nfc");
}

/* U+180E is no white space in Unicode; PCRE2 takes it for some. Ids: the library's. */
static void white_space_follows_unicode(void **state)
{
    (void)state;
    struct erg_tokenizer *tokenizer = load(TOKENIZERS "gpt2");
    static const char text[] = "a  \u180eb";
    check_ids(tokenizer, text, strlen(text), (const int32_t[]){65, 221, 221, 158, 255, 237, 66}, 7);
    erg_tokenizer_free(tokenizer);
}

static void bytes_are_a_vocabulary(void **state)
{
    (void)state;
    struct erg_tokenizer *tokenizer = load("bytes");
    check_ids(tokenizer, "a\0\xc3\xa9", 4, (const int32_t[]){97, 0, 0xc3, 0xa9}, 4);
    assert_int_equal(erg_tokenizer_words(tokenizer), 257);
    assert_int_equal(erg_tokenizer_end(tokenizer), 256);
    erg_tokenizer_free(tokenizer);
}

/* Merges of "aaaa…": a heap takes them all, in a time that does not grow with the square. */
static void long_pieces_are_merged(void **state)
{
    (void)state;
    static const char document[] =
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},\n"
        " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"aa\": 1, \"aaaa\": 2, \"b\": 3},\n"
        "  \"merges\": [\"a a\", [\"aa\", \"aa\"]]}}";
    struct erg_tokenizer *tokenizer;
    struct erg_error err;
    assert_ok(erg_tokenizer_parse(&tokenizer, "t", document, strlen(document), &err), &err);
    enum { LENGTH = 1000003 };
    char *text = malloc(LENGTH);
    memset(text, 'a', LENGTH);
    struct erg_token_ids ids = {0};
    assert_ok(erg_tokenizer_encode(tokenizer, text, LENGTH, &ids, &err), &err);
    assert_int_equal(ids.count, LENGTH / 4 + 2); /* three letters are left: "aa", "a" */
    assert_int_equal(ids.items[LENGTH / 4 - 1], 2);
    assert_int_equal(ids.items[LENGTH / 4], 1);
    assert_int_equal(ids.items[LENGTH / 4 + 1], 0);
    assert_fails(erg_tokenizer_encode(tokenizer, "abc", 3, &ids, &err), &err,
                 "no word for the byte 0x63");
    free(ids.items);
    free(text);
    erg_tokenizer_free(tokenizer);
}

/* A sound document in which one part is replaced. */
static void check_refused(const char *part, const char *by, const char *message)
{
    static const char sound[] =
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", \"lstrip\": false}],\n"
        " \"normalizer\": {\"type\": \"NFC\"},\n"
        " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
        "  {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\s+\"}, \"behavior\": "
        "\"Isolated\"},\n"
        "  {\"type\": \"ByteLevel\", \"use_regex\": false}]},\n"
        " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"byte_fallback\": false,\n"
        "  \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2},\n"
        "  \"merges\": [\"a b\"]}}";
    const char *at = strstr(sound, part);
    assert_non_null(at);
    struct erg_text document = {0};
    erg_text_add_bytes(&document, sound, (size_t)(at - sound));
    erg_text_printf(&document, "%s%s", by, at + strlen(part));
    struct erg_tokenizer *tokenizer;
    struct erg_error err;
    if (message) {
        assert_fails(erg_tokenizer_parse(&tokenizer, "t.json", document.data, document.count, &err),
                     &err, message);
    } else {
        assert_ok(erg_tokenizer_parse(&tokenizer, "t.json", document.data, document.count, &err),
                  &err);
        erg_tokenizer_free(tokenizer);
    }
    erg_text_release(&document);
}

static void unsupported_keys_are_refused(void **state)
{
    (void)state;
    check_refused("null", "0", NULL);
    check_refused("null", "0.1", "t.json:6: key 'model.dropout'");
    check_refused("\"lstrip\": false", "\"lstrip\": true",
                  "t.json:1: key 'added_tokens[0].lstrip': expected false");
    check_refused("<e>", "", "key 'added_tokens[0].content': expected text");
    check_refused("\"NFC\"", "\"NFKC\"",
                  "t.json:2: key 'normalizer.type': expected 'NFC' or no normalizer, got 'NFKC'");
    check_refused("\"Sequence\"", "\"Metaspace\"",
                  "key 'pre_tokenizer.type': expected 'ByteLevel'");
    check_refused("\"Split\"", "\"Digits\"",
                  "t.json:4: key 'pre_tokenizer.pretokenizers[0].type': expected 'Split'");
    check_refused("\"Isolated\"", "\"Removed\"", "expected 'Isolated', got 'Removed'");
    check_refused("\\\\s+", "(", "pattern.Regex': expected a regular expression, got '('");
    check_refused("\"use_regex\": false", "\"add_prefix_space\": true",
                  "add_prefix_space': expected false");
    check_refused("\"BPE\"", "\"Unigram\"", "key 'model.type': expected 'BPE', got 'Unigram'");
    check_refused("\"byte_fallback\": false", "\"byte_fallback\": true", "SentencePiece");
    check_refused("\"ab\": 2", "\"ab\": -2", "word 'ab': expected a whole number");
    check_refused("\"a b\"", "\"ab\"", "t.json:8: key 'model.merges[0]': expected two words");
    check_refused("\"a b\"", "[\"b\", \"a\"]", "'ba' is not a word of the vocabulary");
    check_refused("\"a b\"", "[\"a\", 1]", "expected two words");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_library),
        cmocka_unit_test(white_space_follows_unicode),
        cmocka_unit_test(bytes_are_a_vocabulary),
        cmocka_unit_test(long_pieces_are_merged),
        cmocka_unit_test(unsupported_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
