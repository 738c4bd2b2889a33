/* Checks a YAML document against a schema, with file, line and key in each message. */
#include "base/memory.h"
#include "base/text.h"
#include "io/yaml_internal.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct check {
    const char *name;
    yaml_document_t *document;
    struct erg_error *err;
};

static int check_value(const struct check *check, const yaml_node_t *node,
                       const cyaml_schema_value_t *schema, const char *path);

/* "file:line: key 'path': message", or without the key at the top of the document. */
static int complain(const struct check *check, const yaml_node_t *node, const char *path,
                    const char *format, ...) ERG_PRINTF(4, 5);

static int complain(const struct check *check, const yaml_node_t *node, const char *path,
                    const char *format, ...)
{
    char message[768];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    size_t line = node->start_mark.line + 1;
    if (!*path)
        return erg_fail(check->err, ERG_FAILED, "%s:%zu: %s", check->name, line, message);
    return erg_fail(check->err, ERG_FAILED, "%s:%zu: key '%s': %s", check->name, line, path,
                    message);
}

static int expected(const struct check *check, const yaml_node_t *node, const char *path,
                    const char *what)
{
    if (node->type == YAML_MAPPING_NODE)
        return complain(check, node, path, "expected %s, got a group of keys", what);
    if (node->type == YAML_SEQUENCE_NODE)
        return complain(check, node, path, "expected %s, got a list", what);
    if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
        node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return complain(check, node, path, "expected %s, got nothing", what);
    return complain(check, node, path, "expected %s, got '%.80s'", what,
                    (const char *)node->data.scalar.value);
}

static const cyaml_schema_field_t *find_field(const cyaml_schema_field_t *fields, const char *key)
{
    for (; fields->key; fields++) {
        if (!strcmp(fields->key, key))
            return fields;
    }
    return NULL;
}

static int unknown_key(const struct check *check, const yaml_node_t *key_node,
                       const cyaml_schema_field_t *fields, const char *key, const char *path)
{
    size_t count = 0;
    while (fields[count].key)
        count++;
    const char **names = erg_xcalloc(count + 1, sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = fields[i].key;
    const char *meant = erg_closest(key, names);
    if (meant) {
        complain(check, key_node, "", "unknown key '%s'; did you mean '%s'?", path, meant);
    } else {
        struct erg_text known = {0};
        erg_text_add_names(&known, names);
        complain(check, key_node, "", "unknown key '%s'; expected one of: %s", path, known.data);
        erg_text_release(&known);
    }
    free(names);
    return -1;
}

static int check_pair(const struct check *check, const yaml_node_t *node,
                      const yaml_node_pair_t *pair, const cyaml_schema_field_t *fields,
                      const char *path)
{
    const yaml_node_t *key_node = yaml_document_get_node(check->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(check->document, pair->value);
    if (key_node->type != YAML_SCALAR_NODE)
        return complain(check, key_node, path, "expected plain words as keys");
    const char *key = (const char *)key_node->data.scalar.value;
    char inner[256];
    snprintf(inner, sizeof inner, "%s%s%.100s", path, *path ? "." : "", key);
    const cyaml_schema_field_t *field = find_field(fields, key);
    if (!field)
        return unknown_key(check, key_node, fields, key, inner);
    for (const yaml_node_pair_t *before = node->data.mapping.pairs.start; before < pair; before++) {
        const yaml_node_t *other = yaml_document_get_node(check->document, before->key);
        if (!strcmp((const char *)other->data.scalar.value, key))
            return complain(check, key_node, inner, "the key appears twice, first on line %zu",
                            other->start_mark.line + 1);
    }
    return check_value(check, value, &field->value, inner);
}

static int check_mapping(const struct check *check, const yaml_node_t *node,
                         const cyaml_schema_field_t *fields, const char *path)
{
    if (node->type != YAML_MAPPING_NODE)
        return expected(check, node, path, "a group of keys (key: value)");
    const yaml_node_pair_t *start = node->data.mapping.pairs.start;
    const yaml_node_pair_t *top = node->data.mapping.pairs.top;
    for (const yaml_node_pair_t *pair = start; pair < top; pair++) {
        if (check_pair(check, node, pair, fields, path) != 0)
            return -1;
    }
    for (; fields->key; fields++) {
        bool found = fields->value.flags & CYAML_FLAG_OPTIONAL;
        for (const yaml_node_pair_t *pair = start; !found && pair < top; pair++) {
            const yaml_node_t *key = yaml_document_get_node(check->document, pair->key);
            found = !strcmp((const char *)key->data.scalar.value, fields->key);
        }
        if (!found)
            return complain(check, node, "", "the key '%s%s%s' is missing", path, *path ? "." : "",
                            fields->key);
    }
    return 0;
}

static int check_sequence(const struct check *check, const yaml_node_t *node,
                          const cyaml_schema_value_t *schema, const char *path)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return expected(check, node, path, "a list ([a, b, …])");
    const yaml_node_item_t *items = node->data.sequence.items.start;
    size_t count = (size_t)(node->data.sequence.items.top - items);
    if (count < schema->sequence.min)
        return complain(check, node, path, "expected at least %u entries, got %zu",
                        (unsigned)schema->sequence.min, count);
    if (count > schema->sequence.max)
        return complain(check, node, path, "expected at most %u entries, got %zu",
                        (unsigned)schema->sequence.max, count);
    for (size_t i = 0; i < count; i++) {
        char inner[288];
        snprintf(inner, sizeof inner, "%s[%zu]", path, i);
        if (check_value(check, yaml_document_get_node(check->document, items[i]),
                        schema->sequence.entry, inner) != 0)
            return -1;
    }
    return 0;
}

/* "010" would be read as octal by libcyaml and as ten by people. */
static bool has_leading_zero(const char *text)
{
    text += *text == '-' || *text == '+';
    return text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

static int check_integer(const struct check *check, const yaml_node_t *node,
                         const cyaml_schema_value_t *schema, const char *text, const char *path)
{
    int bits = (int)schema->data_size * 8;
    bool is_signed = schema->type == CYAML_INT;
    long max = bits >= 64 ? LONG_MAX : (1L << (is_signed ? bits - 1 : bits)) - 1;
    long min = is_signed ? -max - 1 : 0;
    long number;
    if (!erg_parse_long(text, &number) || has_leading_zero(text))
        return expected(check, node, path, erg_whole_number(text));
    if (number < 0 && !is_signed)
        return expected(check, node, path, "a whole number of at least 0");
    if (number < min || number > max) {
        char what[64];
        snprintf(what, sizeof what, "a whole number from %ld to %ld", min, max);
        return expected(check, node, path, what);
    }
    return 0;
}

static int check_enum(const struct check *check, const yaml_node_t *node,
                      const cyaml_schema_value_t *schema, const char *text, const char *path)
{
    uint32_t count = schema->enumeration.count;
    const char **names = erg_xcalloc(count + 1, sizeof *names);
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        names[i] = schema->enumeration.strings[i].str;
        found = found || (schema->flags & CYAML_FLAG_CASE_INSENSITIVE ? !strcasecmp(names[i], text)
                                                                      : !strcmp(names[i], text));
    }
    if (!found) {
        const char *meant = erg_closest(text, names);
        struct erg_text known = {0};
        erg_text_add_names(&known, names);
        if (meant)
            complain(check, node, path, "unknown value '%.80s'; did you mean '%s'?", text, meant);
        else
            complain(check, node, path, "expected one of %s, got '%.80s'", known.data, text);
        erg_text_release(&known);
    }
    free(names);
    return found ? 0 : -1;
}

static int check_scalar(const struct check *check, const yaml_node_t *node,
                        const cyaml_schema_value_t *schema, const char *path)
{
    static const char *const words[] = {"true", "false", "yes", "no"};
    static const char *const kinds[CYAML__TYPE_COUNT] = {
        [CYAML_INT] = "a whole number", [CYAML_UINT] = "a whole number",
        [CYAML_BOOL] = "true or false", [CYAML_ENUM] = "a word",
        [CYAML_FLOAT] = "a number",     [CYAML_STRING] = "text",
    };
    if (node->type != YAML_SCALAR_NODE)
        return expected(check, node, path, kinds[schema->type]);
    const char *text = (const char *)node->data.scalar.value;
    size_t length = node->data.scalar.length;
    if (strlen(text) != length)
        return complain(check, node, path, "the value holds a zero byte, expected plain text");
    bool empty = length == 0 && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (empty && (schema->flags & CYAML_FLAG_POINTER_NULL) == CYAML_FLAG_POINTER_NULL)
        return 0;
    if (empty)
        return expected(check, node, path, kinds[schema->type]);

    double number;
    switch (schema->type) {
    case CYAML_INT:
    case CYAML_UINT:
        return check_integer(check, node, schema, text, path);
    case CYAML_FLOAT:
        return erg_parse_double(text, &number) ? 0 : expected(check, node, path, "a number");
    case CYAML_BOOL:
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            if (!strcasecmp(text, words[i]))
                return 0;
        }
        return expected(check, node, path, "true or false");
    case CYAML_ENUM:
        return check_enum(check, node, schema, text, path);
    default:
        break;
    }
    if (length < schema->string.min)
        return complain(check, node, path, "expected at least %u characters, got '%s'",
                        (unsigned)schema->string.min, text);
    if (length > schema->string.max)
        return complain(check, node, path, "expected at most %u characters, got %zu",
                        (unsigned)schema->string.max, length);
    return 0;
}

static int check_value(const struct check *check, const yaml_node_t *node,
                       const cyaml_schema_value_t *schema, const char *path)
{
    switch (schema->type) {
    case CYAML_MAPPING:
        return check_mapping(check, node, schema->mapping.fields, path);
    case CYAML_SEQUENCE:
    case CYAML_SEQUENCE_FIXED:
        return check_sequence(check, node, schema, path);
    case CYAML_INT:
    case CYAML_UINT:
    case CYAML_BOOL:
    case CYAML_ENUM:
    case CYAML_FLOAT:
    case CYAML_STRING:
        return check_scalar(check, node, schema, path);
    default:
        return 0; /* ignored values; flags and bit fields are libcyaml's to check */
    }
}

int erg_yaml_check_schema(const struct erg_yaml *yaml, const cyaml_schema_value_t *schema,
                          struct erg_error *err)
{
    yaml_document_t document = yaml->document; /* the getters want it non-const; they only read */
    const struct check check = {yaml->name, &document, err};
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    if (root)
        return check_value(&check, root, schema, "");
    struct erg_text keys = {0};
    erg_text_add(&keys, "");
    if (schema->type == CYAML_MAPPING) {
        for (const cyaml_schema_field_t *field = schema->mapping.fields; field->key; field++) {
            if (!(field->value.flags & CYAML_FLAG_OPTIONAL))
                erg_text_printf(&keys, "%s%s", keys.count ? ", " : "", field->key);
        }
    }
    erg_fail(err, ERG_FAILED, "%s:1: the document is empty, expected the keys: %s", yaml->name,
             keys.data);
    erg_text_release(&keys);
    return -1;
}
