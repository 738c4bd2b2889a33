/* YAML: loads documents, fills structs by a schema, and finds the line of a key. */
#include "io/yaml.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/yaml_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_BRACKETS = 200 };

/*
 * libyaml takes quadratic time for nested brackets, so a file of nothing else would keep it busy
 * for minutes. No document that a schema describes comes near the limit.
 */
static int check_brackets(const struct erg_yaml *yaml, struct erg_error *err)
{
    size_t line = 1;
    int depth = 0;
    for (size_t i = 0; i < yaml->length; i++) {
        char c = yaml->text[i];
        line += c == '\n';
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
        if (depth > MAX_BRACKETS)
            return erg_fail(err, ERG_FAILED,
                            "%s:%zu: brackets are nested more than %d deep, expected a few at most",
                            yaml->name, line, MAX_BRACKETS);
    }
    return 0;
}

/* Parses the first document; a second one is an error. */
static int parse_document(struct erg_yaml *yaml, struct erg_error *err)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return erg_fail(err, ERG_FAILED, "%s: out of memory while reading YAML", yaml->name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml->text, yaml->length);
    int result = 0;
    if (yaml_parser_load(&parser, &yaml->document)) {
        yaml->parsed = true;
        yaml_document_t next;
        if (!yaml_parser_load(&parser, &next)) {
            result = -1;
        } else {
            const yaml_node_t *more = yaml_document_get_root_node(&next);
            if (more)
                result = erg_fail(err, ERG_FAILED,
                                  "%s:%zu: a second YAML document starts here, expected one "
                                  "document per file",
                                  yaml->name, more->start_mark.line + 1);
            yaml_document_delete(&next);
        }
    } else {
        result = -1;
    }
    if (parser.error != YAML_NO_ERROR) {
        size_t line = parser.problem_mark.line;
        if (parser.error == YAML_READER_ERROR) { /* it reads ahead, and reports only its own
                                                  * position */
            line = 0;
            for (size_t i = 0; i < yaml->length && i < parser.problem_offset; i++)
                line += yaml->text[i] == '\n';
        }
        result = erg_fail(err, ERG_FAILED, "%s:%zu: this is not valid YAML: %s", yaml->name,
                          line + 1, parser.problem ? parser.problem : "it cannot be read");
    }
    yaml_parser_delete(&parser);
    return result;
}

int erg_yaml_open_text(struct erg_yaml **out, const char *name, const char *text, size_t length,
                       struct erg_error *err)
{
    struct erg_yaml *yaml = erg_xcalloc(1, sizeof *yaml);
    yaml->name = erg_xstrdup(name);
    yaml->text = erg_xmalloc(length + 1);
    memcpy(yaml->text, text, length);
    yaml->text[length] = '\0';
    yaml->length = length;
    if (check_brackets(yaml, err) != 0 || parse_document(yaml, err) != 0) {
        erg_yaml_close(yaml);
        return -1;
    }
    *out = yaml;
    return 0;
}

int erg_yaml_open(struct erg_yaml **yaml, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, &length, err) != 0)
        return -1;
    int result = erg_yaml_open_text(yaml, path, text, length, err);
    free(text);
    return result;
}

void erg_yaml_close(struct erg_yaml *yaml)
{
    if (!yaml)
        return;
    if (yaml->parsed)
        yaml_document_delete(&yaml->document);
    free(yaml->text);
    free(yaml->name);
    free(yaml);
}

/* libcyaml's error for a document that passed our own check. */
struct complaint {
    char message[256];
    unsigned long line;
};

static void note_complaint(cyaml_log_t level, void *context, const char *format, va_list args)
    ERG_PRINTF(3, 0);

static void note_complaint(cyaml_log_t level, void *context, const char *format, va_list args)
{
    struct complaint *complaint = context;
    char message[256];
    vsnprintf(message, sizeof message, format, args);
    const char *line = strstr(message, "(line: ");
    if (level != CYAML_LOG_ERROR)
        return;
    if (line && !complaint->line)
        complaint->line = strtoul(line + strlen("(line: "), NULL, 10);
    if (!complaint->message[0]) {
        const char *text = strncmp(message, "Load: ", 6) ? message : message + 6;
        snprintf(complaint->message, sizeof complaint->message, "%.*s", (int)strcspn(text, "\n"),
                 text);
    }
}

static void *allocate(void *context, void *old, size_t bytes)
{
    (void)context;
    if (!bytes) {
        free(old);
        return NULL;
    }
    return erg_xrealloc(old, 1, bytes);
}

int erg_yaml_read(const struct erg_yaml *yaml, const cyaml_schema_value_t *schema, void **value,
                  struct erg_error *err)
{
    if (erg_yaml_check_schema(yaml, schema, err) != 0)
        return -1;
    struct complaint complaint = {0};
    const cyaml_config_t config = {
        .log_fn = note_complaint,
        .log_ctx = &complaint,
        .mem_fn = allocate,
        .log_level = CYAML_LOG_ERROR,
        .flags = CYAML_CFG_NO_ALIAS,
    };
    void *loaded = NULL;
    cyaml_err_t status = cyaml_load_data((const unsigned char *)yaml->text, yaml->length, &config,
                                         schema, &loaded, NULL);
    if (status == CYAML_OK) {
        *value = loaded;
        return 0;
    }
    const char *what = complaint.message[0] ? complaint.message : cyaml_strerror(status);
    if (status == CYAML_ERR_ALIAS)
        what = "an alias (*name) is used here, expected the value itself";
    return erg_fail(err, ERG_FAILED, "%s:%lu: %s", yaml->name, complaint.line ? complaint.line : 1,
                    what);
}

void erg_yaml_free(const cyaml_schema_value_t *schema, void *value)
{
    const cyaml_config_t config = {.mem_fn = allocate};
    cyaml_free(&config, schema, value, 0);
}

static yaml_node_t *member(yaml_document_t *document, const yaml_node_t *mapping, const char *key,
                           size_t length)
{
    if (mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name = yaml_document_get_node(document, pair->key);
        if (name && name->type == YAML_SCALAR_NODE && name->data.scalar.length == length &&
            !memcmp(name->data.scalar.value, key, length))
            return yaml_document_get_node(document, pair->value);
    }
    return NULL;
}

static yaml_node_t *element(yaml_document_t *document, const yaml_node_t *sequence, long index)
{
    if (sequence->type != YAML_SEQUENCE_NODE || index < 0 ||
        index >= sequence->data.sequence.items.top - sequence->data.sequence.items.start)
        return NULL;
    return yaml_document_get_node(document, sequence->data.sequence.items.start[index]);
}

/* Walks a path as far as the document goes; *complete: whether that was all of it. */
static const yaml_node_t *walk(const struct erg_yaml *yaml, const char *key, bool *complete)
{
    struct erg_yaml copy = *yaml; /* libyaml's getters want a non-const document; they only read */
    const yaml_node_t *node = yaml_document_get_root_node(&copy.document);
    while (node && *key) {
        const yaml_node_t *next;
        if (*key == '[') {
            char *end;
            next = element(&copy.document, node, strtol(key + 1, &end, 10));
            key = *end == ']' ? end + 1 : end;
        } else {
            size_t length = strcspn(key, ".[");
            next = member(&copy.document, node, key, length);
            key += length;
        }
        if (!next) {
            *complete = false;
            return node;
        }
        key += *key == '.';
        node = next;
    }
    *complete = node != NULL;
    return node;
}

bool erg_yaml_has(const struct erg_yaml *yaml, const char *key)
{
    bool complete;
    walk(yaml, key, &complete);
    return complete;
}

const char *erg_yaml_scalar(const struct erg_yaml *yaml, const char *key)
{
    bool complete;
    const yaml_node_t *node = walk(yaml, key, &complete);
    return complete && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
                                                      : NULL;
}

size_t erg_yaml_line(const struct erg_yaml *yaml, const char *key)
{
    bool complete;
    const yaml_node_t *node = walk(yaml, key, &complete);
    return node ? node->start_mark.line + 1 : 1;
}

int erg_yaml_fail(const struct erg_yaml *yaml, const char *key, struct erg_error *err,
                  const char *format, ...)
{
    char message[768];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return erg_fail(err, ERG_FAILED, "%s:%zu: key '%s': %s", yaml->name, erg_yaml_line(yaml, key),
                    key, message);
}

int erg_yaml_check_range(const struct erg_yaml *yaml, const char *key, double value, double min,
                         double max, struct erg_error *err)
{
    if (value >= min && value <= max)
        return 0;
    if (isinf(max))
        return erg_yaml_fail(yaml, key, err, "expected a number of at least %.10g, got %.10g", min,
                             value);
    return erg_yaml_fail(yaml, key, err, "expected a number from %.10g to %.10g, got %.10g", min,
                         max, value);
}

int erg_yaml_check_ranges(const struct erg_yaml *yaml, const struct erg_yaml_range *ranges,
                          size_t count, bool always, struct erg_error *err)
{
    for (size_t i = 0; i < count; i++)
        if ((always || erg_yaml_has(yaml, ranges[i].key)) &&
            erg_yaml_check_range(yaml, ranges[i].key, ranges[i].value, ranges[i].least,
                                 ranges[i].most, err) != 0)
            return -1;
    return 0;
}

/* ---- writing ---- */

/* Words that YAML 1.1 or 1.2 reads as something else. */
static bool is_no_other_word(const char *value)
{
    static const char *const words[] = {"y",  "n",   "yes",  "no",   "true",
                                        "on", "off", "null", "false"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(words[i], value) == 0)
            return false;
    return true;
}

/* Whether it is valid without quotes: it begins with letters, so it is not a number. */
static bool is_plain(const char *value)
{
    static const char inside[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789_./+- ";
    const size_t first = strcspn(inside, "0"), length = strlen(value);
    return length > 0 && (value[0] == '/' || memchr(inside, value[0], first)) &&
           strspn(value, inside) == length && value[length - 1] != ' ' && is_no_other_word(value);
}

/* One character in double quotes; how many bytes it has. */
static size_t add_quoted(struct erg_text *out, const unsigned char *at)
{
    if (*at == '"' || *at == '\\') {
        erg_text_printf(out, "\\%c", *at);
        return 1;
    }
    if (*at < 0x20 || *at == 0x7f) {
        erg_text_printf(out, "\\x%02x", *at);
        return 1;
    }
    if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) { /* U+0080 to U+009F */
        erg_text_printf(out, "\\x%02x", at[1]);
        return 2;
    }
    /* Line breaks, byte-order marks and non-characters, which readers change or refuse. */
    if ((at[0] == 0xe2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9)) ||
        (at[0] == 0xef && at[1] == 0xbb && at[2] == 0xbf) ||
        (at[0] == 0xef && at[1] == 0xbf && (at[2] == 0xbe || at[2] == 0xbf))) {
        erg_text_printf(out, "\\u%04x",
                        (at[0] & 0xfu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu));
        return 3;
    }
    erg_text_add_bytes(out, (const char *)at, 1);
    return 1;
}

void erg_yaml_add_string(struct erg_text *out, const char *value)
{
    if (is_plain(value))
        erg_text_add(out, value);
    else
        erg_yaml_add_quoted(out, value);
}

void erg_yaml_add_quoted(struct erg_text *out, const char *value)
{
    erg_text_add(out, "\"");
    for (const unsigned char *at = (const unsigned char *)value; *at;)
        at += add_quoted(out, at);
    erg_text_add(out, "\"");
}
