/* A folder of the test program's own: made before its tests, removed with all that is in it. */
#ifndef ERGON_TESTS_FOLDER_H
#define ERGON_TESTS_FOLDER_H

#include "base/text.h"
#include "check.h"
#include "io/file.h"

static char folder[64];

static inline int make_folder_below(const char *parent)
{
    snprintf(folder, sizeof folder, "%s/ergon-test-XXXXXX", parent);
    return mkdtemp(folder) ? 0 : -1;
}

static inline int make_folder(void **state)
{
    (void)state;
    return make_folder_below("/tmp");
}

static inline int remove_tree(const char *path)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command);
}

static inline int remove_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

/* FOLDER/name; valid until the fourth next call. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Shell text with @ for the folder. Release it. */
static inline struct erg_text with_folder(const char *text)
{
    struct erg_text line = {0};
    for (const char *at = text; *at; at++)
        if (*at == '@')
            erg_text_add(&line, folder);
        else
            erg_text_add_bytes(&line, at, 1);
    return line;
}

static inline void write_text(const char *name, const char *text)
{
    struct erg_error err;
    assert_ok(erg_file_write(in_folder(name), text, strlen(text), &err), &err);
}

/* A command of the shell with @ for the folder, which must succeed. */
static inline void shell(const char *command)
{
    struct erg_text line = with_folder(command);
    if (system(line.data) != 0)
        fail_msg("%s failed", line.data);
    erg_text_release(&line);
}

static inline void assert_same_bytes(const char *path, const char *expected)
{
    char *a, *b;
    size_t a_length, b_length;
    struct erg_error err;
    assert_ok(erg_file_read(path, 0, &a, &a_length, &err), &err);
    assert_ok(erg_file_read(expected, 0, &b, &b_length, &err), &err);
    assert_int_equal(a_length, b_length);
    assert_memory_equal(a, b, a_length);
    free(a);
    free(b);
}

#endif
