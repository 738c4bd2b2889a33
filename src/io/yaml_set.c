/* The text of a YAML document with another value of a key; everything else is unchanged. */
#include "io/yaml_internal.h"

#include <string.h>

/* libyaml counts characters, and not the byte-order mark. */
static size_t byte_at(const struct erg_yaml *yaml, size_t character)
{
    size_t at = yaml->length >= 3 && !memcmp(yaml->text, "\xef\xbb\xbf", 3) ? 3 : 0;
    for (; at < yaml->length; at++)
        if (((unsigned char)yaml->text[at] & 0xc0) != 0x80 && character-- == 0)
            break;
    return at;
}

static bool is_block(const yaml_node_t *node)
{
    return (node->type == YAML_MAPPING_NODE &&
            node->data.mapping.style != YAML_FLOW_MAPPING_STYLE) ||
           (node->type == YAML_SEQUENCE_NODE &&
            node->data.sequence.style != YAML_FLOW_SEQUENCE_STYLE);
}

/* Where a node ends: of a block where its last value does, not before the next key. */
static size_t end_of(const struct erg_yaml *yaml, const yaml_node_t *node)
{
    struct erg_yaml copy = *yaml; /* libyaml's getters want a non-const document; they only read */
    while (is_block(node)) {
        const bool mapping = node->type == YAML_MAPPING_NODE;
        const int last =
            mapping ? node->data.mapping.pairs.top[-1].value : node->data.sequence.items.top[-1];
        node = yaml_document_get_node(&copy.document, last);
    }
    return byte_at(yaml, node->end_mark.index);
}

/* ---- the value ---- */

/* A plain word is written so that it is the same within brackets; what was quoted stays a text. */
static int add_value(struct erg_text *out, const char *key, const char *value,
                     struct erg_error *err)
{
    struct erg_yaml *yaml;
    if (strchr(value, '\n') || erg_yaml_open_text(&yaml, key, value, strlen(value), NULL) != 0)
        return erg_fail(err, ERG_USAGE,
                        "key '%s': got \"%.80s\", expected a YAML value on one line", key, value);
    const yaml_node_t *node = yaml_document_get_root_node(&yaml->document);
    int status = 0;
    if (!node || is_block(node)) {
        status =
            erg_fail(err, ERG_USAGE,
                     "key '%s': \"%.80s\" is not a single value; expected one, in quotes where "
                     "it is a text with colons, or with brackets around several",
                     key, value);
    } else if (node->type == YAML_SCALAR_NODE &&
               (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
                strpbrk((const char *)node->data.scalar.value, ",[]{}#:"))) {
        erg_yaml_add_quoted(out, (const char *)node->data.scalar.value);
    } else {
        const size_t start = byte_at(yaml, node->start_mark.index);
        erg_text_add_bytes(out, value + start, end_of(yaml, node) - start);
    }
    erg_yaml_close(yaml);
    return status;
}

/* ---- its place ---- */

/* The node of the longest existing part of a key, and the rest of the key. */
static const yaml_node_t *find(const struct erg_yaml *yaml, const char *key, const char **rest)
{
    struct erg_yaml copy = *yaml;
    const yaml_node_t *node = yaml_document_get_root_node(&copy.document);
    while (node && *key && node->type == YAML_MAPPING_NODE) {
        const size_t length = strcspn(key, ".");
        const yaml_node_t *next = NULL;
        for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
             pair < node->data.mapping.pairs.top && !next; pair++) {
            const yaml_node_t *name = yaml_document_get_node(&copy.document, pair->key);
            if (name->type == YAML_SCALAR_NODE && name->data.scalar.length == length &&
                !memcmp(name->data.scalar.value, key, length))
                next = yaml_document_get_node(&copy.document, pair->value);
        }
        if (!next)
            break;
        node = next;
        key += length;
        key += *key == '.';
    }
    *rest = key;
    return node;
}

static void replace(struct erg_text *out, const struct erg_yaml *yaml, const yaml_node_t *node,
                    const char *value)
{
    const size_t start = byte_at(yaml, node->start_mark.index), end = end_of(yaml, node);
    erg_text_add_bytes(out, yaml->text, start);
    if (start > 0 && yaml->text[start - 1] != ' ')
        erg_text_add(out, " ");
    erg_text_add(out, value);
    for (size_t i = start; i < end; i++)
        if (yaml->text[i] == '\n')
            erg_text_add(out, "\n");
    erg_text_add_bytes(out, yaml->text + end, yaml->length - end);
}

/* "a.b" in an object without a: "a: {b: value}". */
static void add_pair(struct erg_text *out, const char *key, const char *value)
{
    size_t depth = 0;
    while (*key) {
        const size_t length = strcspn(key, ".");
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)length, key);
        erg_text_add(out, depth ? "{" : "");
        erg_yaml_add_string(out, name);
        erg_text_add(out, ": ");
        key += length;
        key += *key == '.';
        depth++;
    }
    erg_text_add(out, value);
    while (depth-- > 1)
        erg_text_add(out, "}");
}

/* The end of a line if only a comment is left in it. */
static size_t line_end(const struct erg_yaml *yaml, size_t at)
{
    size_t end = at + strspn(yaml->text + at, " \t\r");
    if (yaml->text[end] == '#')
        end += strcspn(yaml->text + end, "\n");
    return yaml->text[end] == '\n' || yaml->text[end] == '\0' ? end : at;
}

static void insert(struct erg_text *out, const struct erg_yaml *yaml, const yaml_node_t *object,
                   const char *key, const char *value)
{
    if (!is_block(object)) {
        const size_t start = byte_at(yaml, object->start_mark.index) + 1;
        const bool empty = object->data.mapping.pairs.start == object->data.mapping.pairs.top;
        erg_text_add_bytes(out, yaml->text, start);
        add_pair(out, key, value);
        erg_text_add(out, empty ? "" : ", ");
        erg_text_add_bytes(out, yaml->text + start, yaml->length - start);
        return;
    }
    struct erg_yaml copy = *yaml;
    const yaml_node_t *first =
        yaml_document_get_node(&copy.document, object->data.mapping.pairs.start->key);
    const size_t end = line_end(yaml, end_of(yaml, object));
    erg_text_add_bytes(out, yaml->text, end);
    if (end > 0 && yaml->text[end - 1] != '\n')
        erg_text_add(out, "\n");
    for (size_t i = 0; i < first->start_mark.column; i++)
        erg_text_add(out, " ");
    add_pair(out, key, value);
    if (end == yaml->length || yaml->text[end - 1] == '\n')
        erg_text_add(out, "\n");
    erg_text_add_bytes(out, yaml->text + end, yaml->length - end);
}

/* Syntax that this file does not support, such as anchors, is left unchanged. */
static int check_key(const struct erg_yaml *yaml, const char *key, const struct erg_text *changed,
                     struct erg_error *err)
{
    struct erg_yaml *again;
    bool there = false;
    if (erg_yaml_open_text(&again, yaml->name, changed->data, changed->count, NULL) == 0) {
        there = erg_yaml_has(again, key);
        erg_yaml_close(again);
    }
    return there ? 0
                 : erg_fail(err, ERG_FAILED,
                            "%s: key '%s' cannot be set in this text; expected plain YAML, or the "
                            "key there already",
                            yaml->name, key);
}

int erg_yaml_set(struct erg_text *out, const struct erg_yaml *yaml, const char *key,
                 const char *value, struct erg_error *err)
{
    const char *rest;
    struct erg_text text = {0};
    const yaml_node_t *node = find(yaml, key, &rest);
    if (!*key || key[0] == '.' || strstr(key, "..") || key[strlen(key) - 1] == '.')
        return erg_fail(err, ERG_USAGE, "'%.80s' is not a key; expected one such as cluster.nodes",
                        key);
    if (add_value(&text, key, value, err) != 0)
        return -1;
    int status = 0;
    if (!node)
        add_pair(out, key, text.data);
    else if (!*rest)
        replace(out, yaml, node, text.data);
    else if (node->type == YAML_MAPPING_NODE)
        insert(out, yaml, node, rest, text.data);
    else
        status = erg_fail(err, ERG_USAGE, "%s: '%.*s' is not an object, so it has no key '%s'",
                          yaml->name, (int)(rest - key - 1), key, rest);
    erg_text_release(&text);
    return status == 0 ? check_key(yaml, key, out, err) : -1;
}
