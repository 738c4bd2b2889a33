/*
 * Lines of JSON, for messages. jansson forgets where a value stood, and only a message needs it:
 * so the text is searched again, by the path that names the key.
 */
#include "io/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    const char *at, *end;
};

static void skip_space(struct scan *scan)
{
    while (scan->at < scan->end && strchr(" \t\r\n", *scan->at))
        scan->at++;
}

/* The character that comes next, 0 at the end. */
static char next_of(struct scan *scan)
{
    skip_space(scan);
    return scan->at < scan->end ? *scan->at : 0;
}

/* From the opening quote to behind the closing one. */
static void skip_string(struct scan *scan)
{
    for (scan->at++; scan->at < scan->end && *scan->at != '"'; scan->at++)
        if (*scan->at == '\\')
            scan->at++;
    scan->at = scan->at < scan->end ? scan->at + 1 : scan->end;
}

/* A whole value: up to the comma or bracket that follows it. */
static void skip_value(struct scan *scan)
{
    for (int depth = 0; scan->at < scan->end;) {
        char next = *scan->at;
        if (next == '"') {
            skip_string(scan);
            continue;
        }
        if (!depth && (next == ',' || next == ']' || next == '}'))
            return;
        depth += (next == '{' || next == '[') - (next == '}' || next == ']');
        scan->at++;
    }
}

/* At an object: enters the member that the path begins with, and leaves the rest of the path. */
static bool enter_member(struct scan *scan, const char **path, const char **key)
{
    scan->at++;
    while (next_of(scan) == '"') {
        *key = scan->at;
        skip_string(scan);
        size_t quotes = scan->at - *key < 2 ? 1 : 2; /* one where the text ends */
        size_t length = (size_t)(scan->at - *key) - quotes;
        scan->at += next_of(scan) == ':';
        if (strlen(*path) >= length && !memcmp(*path, *key + 1, length) &&
            strchr(".[", (*path)[length])) {
            *path += length;
            *path += **path == '.';
            return true;
        }
        skip_value(scan);
        if (next_of(scan) != ',')
            break;
        scan->at++;
    }
    return false;
}

/* At a list: enters the item of the index that the path begins with. */
static bool enter_item(struct scan *scan, const char **path)
{
    char *rest;
    unsigned long index = strtoul(*path + 1, &rest, 10);
    scan->at++;
    for (unsigned long i = 0; next_of(scan) && *scan->at != ']'; i++) {
        if (i == index && *rest == ']') {
            *path = rest + 1 + (rest[1] == '.');
            return true;
        }
        skip_value(scan);
        if (next_of(scan) != ',')
            break;
        scan->at++;
    }
    return false;
}

long erg_json_line(const char *text, size_t length, const char *path)
{
    struct scan scan = {.at = text, .end = text + length};
    const char *found = text;
    bool inside = true;
    while (inside && *path) {
        char open = next_of(&scan);
        const char *key = NULL;
        inside = (open == '{' && enter_member(&scan, &path, &key)) ||
                 (open == '[' && *path == '[' && enter_item(&scan, &path));
        if (inside) {
            skip_space(&scan);
            found = key ? key : scan.at;
        }
    }
    long line = 1;
    for (const char *at = text; at < found; at++)
        line += *at == '\n';
    return line;
}
