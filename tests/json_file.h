/* A JSON file, read. */
#ifndef ERGON_TESTS_JSON_FILE_H
#define ERGON_TESTS_JSON_FILE_H

#include "io/file.h"
#include "io/json.h"

#include <stdlib.h>

/* *root is a new reference. */
static inline int load_json(json_t **root, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    if (erg_file_read(path, 0, &text, &length, err) != 0)
        return -1;
    int status = erg_json_parse(root, path, text, length, err);
    free(text);
    return status;
}

#endif
