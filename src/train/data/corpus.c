/* Reads texts, plain or as JSON lines, and writes their tokens. */
#include "train/data/corpus.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A document; `text` is any bytes. */
static int add_document(struct erg_corpus *corpus, const char *text, size_t length,
                        struct erg_error *err)
{
    if (!length) {
        corpus->empty++;
        return 0;
    }
    corpus->text_bytes += length;
    struct erg_text repaired = {0};
    if (!erg_utf8_is_valid(text, length)) {
        erg_text_add_utf8(&repaired, text, length);
        text = repaired.data;
        length = repaired.count;
    }
    struct erg_token_ids ids = {0};
    int result = erg_tokenizer_encode(corpus->tokenizer, text, length, &ids, err);
    if (result == 0) {
        ERG_PUSH(&ids, items, (int32_t)corpus->end);
        result = erg_token_writer_add(corpus->writer, ids.items, ids.count, err);
    }
    free(ids.items);
    erg_text_release(&repaired);
    return result;
}

static int add_plain(struct erg_corpus *corpus, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, 0, &text, &length, err) != 0)
        return -1;
    int result = add_document(corpus, text, length, err);
    free(text);
    return result == 0 ? 0 : erg_fail_context(err, "%s", path);
}

static int add_line(struct erg_corpus *corpus, const char *path, long number, const char *line,
                    size_t length, struct erg_error *err)
{
    /* Not io/json.h's parser: a text may contain U+0000, and messages need the line of this
     * file. */
    json_error_t reason;
    json_t *object = json_loadb(line, length, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &reason);
    if (!object)
        return erg_fail(err, ERG_FAILED, "%s:%ld: expected a line of JSON: %s", path, number,
                        reason.text);
    const json_t *text = json_object_get(object, corpus->key);
    int result;
    if (json_is_string(text))
        result = add_document(corpus, json_string_value(text), json_string_length(text), err);
    else
        result = erg_fail(err, ERG_FAILED, "key '%s': expected the text of a document%s",
                          corpus->key, text ? "" : "; the line lacks this key");
    json_decref(object);
    return result == 0 ? 0 : erg_fail_context(err, "%s:%ld", path, number);
}

static int add_lines(struct erg_corpus *corpus, const char *path, struct erg_error *err)
{
    struct stat info;
    if (erg_file_refuse_fifo(path, err) != 0)
        return -1;
    FILE *file = fopen(path, "re");
    if (!file)
        return erg_fail(err, ERG_FAILED, "reading '%s': %s", path, strerror(errno));
    size_t total =
        fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) ? (size_t)info.st_size : 0;
    char *line = NULL;
    size_t capacity = 0, read = 0;
    int result = 0;
    ssize_t length;
    for (long number = 1; result == 0 && (length = getline(&line, &capacity, file)) >= 0;
         number++) {
        read += (size_t)length;
        if (number % 256 == 0)
            erg_progress("tokenizing", read, total);
        size_t used = (size_t)length;
        while (used && strchr(" \t\r\n", line[used - 1]))
            used--;
        result = erg_interrupt_check(err);
        if (result == 0 && used)
            result = add_line(corpus, path, number, line, used, err);
    }
    if (result == 0 && ferror(file))
        result = erg_fail(err, ERG_FAILED, "reading '%s': %s", path, strerror(errno));
    free(line);
    fclose(file);
    return result;
}

int erg_corpus_add(struct erg_corpus *corpus, const char *path, struct erg_error *err)
{
    return (corpus->key ? add_lines : add_plain)(corpus, path, err);
}
