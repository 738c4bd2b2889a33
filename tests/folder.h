/* A folder of the test program's own: made before its tests, removed with all that is in it. */
#ifndef ERGON_TESTS_FOLDER_H
#define ERGON_TESTS_FOLDER_H

#include "check.h"

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

#endif
