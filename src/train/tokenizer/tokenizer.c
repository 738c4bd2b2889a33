/* Tokenizers: opens them by name; words, and the token that ends a document. */
#include "train/tokenizer/tokenizer_internal.h"

#include "base/memory.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct erg_tokenizer *tokenizer_new(void)
{
    struct erg_tokenizer *tokenizer = erg_xcalloc(1, sizeof *tokenizer);
    tokenizer->end = -1;
    return tokenizer;
}

int erg_tokenizer_parse(struct erg_tokenizer **tokenizer, const char *name, const char *text,
                        size_t length, struct erg_error *err)
{
    json_t *document;
    struct erg_json_place root;
    if (erg_json_open(&root, &document, name, text, length, err) != 0)
        return -1;
    struct erg_tokenizer *made = tokenizer_new();
    int result = erg_tokenizer_read(made, &root, err);
    json_decref(document);
    if (result != 0) {
        erg_tokenizer_free(made);
        return -1;
    }
    *tokenizer = made;
    return 0;
}

void erg_tokenizer_free(struct erg_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    json_decref(tokenizer->vocabulary);
    for (size_t i = 0; i < tokenizer->added.count; i++)
        free(tokenizer->added.items[i].content);
    free(tokenizer->added.items);
    for (size_t i = 0; i < tokenizer->patterns.count; i++)
        pcre2_code_free(tokenizer->patterns.items[i]);
    free(tokenizer->patterns.items);
    pcre2_match_data_free(tokenizer->match);
    free(tokenizer->merges.slots);
    for (size_t i = 0; tokenizer->pieces && i < ERG_PIECES_KEPT; i++)
        free(tokenizer->pieces[i].bytes);
    free(tokenizer->pieces);
    free(tokenizer);
}

static int parse_file(struct erg_tokenizer **tokenizer, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, 0, &text, &length, err) != 0)
        return -1;
    int result = erg_tokenizer_parse(tokenizer, path, text, length, err);
    free(text);
    return result;
}

/* The object in a file of the folder; NULL: no such file. Release the text after the place. */
static json_t *open_sibling(struct erg_json_place *root, char **text, char *path, int *result,
                            struct erg_error *err)
{
    json_t *document = NULL;
    struct stat info;
    size_t length;
    *text = NULL;
    if (stat(path, &info) != 0)
        return NULL;
    *result = erg_file_read(path, ERG_FILE_SMALL_BYTES, text, &length, err);
    if (*result == 0)
        *result = erg_json_open(root, &document, path, *text, length, err);
    return *result == 0 ? document : NULL;
}

/* eos_token_id of a model's config.json: one number or several; the first ends documents. */
static int read_end_id(struct erg_tokenizer *tokenizer, const struct erg_json_place *config,
                       struct erg_error *err)
{
    if (!erg_json_has(config, "eos_token_id"))
        return 0;
    const json_t *value = json_object_get(config->object, "eos_token_id");
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= INT32_MAX)
        return erg_json_fail(config, "eos_token_id", err,
                             "expected the id of a token, or a list of ids");
    tokenizer->end = (long)json_integer_value(value);
    return 0;
}

/* eos_token of a tokenizer_config.json: a word, or an object with its `content`. */
static int read_end_word(struct erg_tokenizer *tokenizer, const struct erg_json_place *config,
                         struct erg_error *err)
{
    if (!erg_json_has(config, "eos_token"))
        return 0;
    const json_t *value = json_object_get(config->object, "eos_token");
    if (json_is_object(value))
        value = json_object_get(value, "content");
    const char *word = json_string_value(value);
    if (!word || (tokenizer->end = erg_tokenizer_id(tokenizer, word)) < 0)
        return erg_json_fail(config, "eos_token", err, "expected a token of the tokenizer");
    return 0;
}

static int read_end(struct erg_tokenizer *tokenizer, const char *folder, struct erg_error *err)
{
    static const struct {
        const char *file;
        int (*read)(struct erg_tokenizer *, const struct erg_json_place *, struct erg_error *);
    } sources[] = {{"config.json", read_end_id}, {"tokenizer_config.json", read_end_word}};
    int result = 0;
    for (size_t i = 0; i < 2 && result == 0 && tokenizer->end < 0; i++) {
        struct erg_text path = {0};
        erg_text_printf(&path, "%s/%s", folder, sources[i].file);
        struct erg_json_place root;
        char *text;
        json_t *document = open_sibling(&root, &text, path.data, &result, err);
        if (document)
            result = sources[i].read(tokenizer, &root, err);
        json_decref(document);
        free(text);
        erg_text_release(&path);
    }
    return result;
}

int erg_tokenizer_load(struct erg_tokenizer **tokenizer, const char *name, struct erg_error *err)
{
    if (strcmp(name, "bytes") == 0) {
        *tokenizer = tokenizer_new();
        **tokenizer = (struct erg_tokenizer){.bytes = true, .words = 257, .end = 256};
        return 0;
    }
    struct stat info;
    if (stat(name, &info) != 0 || !S_ISDIR(info.st_mode))
        return parse_file(tokenizer, name, err);
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/tokenizer.json", name);
    int result = 0;
    if (stat(path.data, &info) != 0)
        result =
            erg_fail(err, ERG_FAILED,
                     "reading '%s': the folder has no tokenizer.json; expected a model's folder "
                     "with one (a tokenizer.model of SentencePiece is not read: tokenize with "
                     "the model's own tools), a tokenizer.json, or \"bytes\"",
                     name);
    else
        result = parse_file(tokenizer, path.data, err);
    erg_text_release(&path);
    if (result == 0 && read_end(*tokenizer, name, err) != 0) {
        erg_tokenizer_free(*tokenizer);
        result = -1;
    }
    return result;
}

long erg_tokenizer_words(const struct erg_tokenizer *tokenizer)
{
    return tokenizer->words;
}

long erg_tokenizer_end(const struct erg_tokenizer *tokenizer)
{
    return tokenizer->end;
}

long erg_tokenizer_id(const struct erg_tokenizer *tokenizer, const char *word)
{
    for (size_t i = 0; i < tokenizer->added.count; i++)
        if (strcmp(tokenizer->added.items[i].content, word) == 0)
            return tokenizer->added.items[i].id;
    const json_t *id = json_object_get(tokenizer->vocabulary, word);
    return id ? (long)json_integer_value(id) : -1;
}
