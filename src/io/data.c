/* The data folder: finds catalogue files by name, and suggests the closest name. */
#define _GNU_SOURCE /* dladdr */
#include "base/text.h"
#include "io/file.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* share/ergon of the tree whose bin/, lib/ or lib/<machine>/ `file` lies in; empty: none is there.
 */
static void installed_folder(const char *file, struct erg_text *out)
{
    static const char *const ways[] = {"/..", "/../.."};
    char whole[PATH_MAX];
    char *slash = realpath(file, whole) ? strrchr(whole, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof ways / sizeof *ways; i++) {
        *slash = '\0';
        out->count = 0;
        erg_text_printf(out, "%s%s/share/ergon", whole, ways[i]);
        if (access(out->data, R_OK) == 0)
            return;
    }
    out->count = 0;
    erg_text_add(out, "");
}

/* The data folder number `index` into `out`; false after the last. An absent one is empty text. */
static bool data_folder(size_t index, struct erg_text *out)
{
    static const char here; /* an address in the library, or the program */
    const char *given = getenv("ERGON_DATA");
    Dl_info info;
    out->count = 0;
    erg_text_add(out, "");
    if (index == 0)
        erg_text_add(out, given ? given : "");
    else if (index == 1)
        installed_folder("/proc/self/exe", out);
    else if (index == 2 && dladdr(&here, &info) != 0)
        installed_folder(info.dli_fname, out);
    else if (index == 3)
        erg_text_add(out, ERGON_SOURCE_DATA_DIR);
    return index <= 3;
}

/* Length of a file name without ".yaml" or ".json". */
static size_t stem_length(const char *name)
{
    size_t length = strlen(name);
    if (length > 5 &&
        (!strcasecmp(name + length - 5, ".yaml") || !strcasecmp(name + length - 5, ".json")))
        return length - 5;
    return length;
}

static bool same_name(const char *entry, const char *name)
{
    size_t stem = stem_length(entry);
    return !strcasecmp(entry, name) || (strlen(name) == stem && !strncasecmp(entry, name, stem));
}

char *erg_data_find(const char *kind, const char *name)
{
    struct erg_text folder = {0};
    char *found = NULL;
    for (size_t i = 0; !found && data_folder(i, &folder); i++) {
        if (!folder.count)
            continue;
        erg_text_printf(&folder, "/%s", kind);
        DIR *listing = opendir(folder.data);
        struct dirent *entry;
        while (listing && !found && (entry = readdir(listing)) != NULL) {
            if (entry->d_name[0] != '.' && same_name(entry->d_name, name)) {
                erg_text_printf(&folder, "/%s", entry->d_name);
                found = erg_xstrdup(folder.data);
            }
        }
        if (listing)
            closedir(listing);
    }
    erg_text_release(&folder);
    return found;
}

static int by_name(const void *a, const void *b)
{
    return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

const char *const *erg_data_names(const char *kind, struct erg_arena *arena)
{
    struct {
        const char **items;
        size_t count, capacity;
    } names = {0};
    struct erg_text folder = {0};
    for (size_t i = 0; data_folder(i, &folder); i++) {
        if (!folder.count)
            continue;
        erg_text_printf(&folder, "/%s", kind);
        DIR *listing = opendir(folder.data);
        struct dirent *entry;
        while (listing && (entry = readdir(listing)) != NULL) {
            if (entry->d_name[0] == '.')
                continue;
            char *name = erg_arena_strdup(arena, entry->d_name);
            name[stem_length(name)] = '\0';
            bool known = false;
            for (size_t j = 0; j < names.count; j++)
                known = known || !strcasecmp(names.items[j], name);
            if (!known)
                ERG_PUSH(&names, items, name);
        }
        if (listing)
            closedir(listing);
    }
    erg_text_release(&folder);
    if (names.count)
        qsort(names.items, names.count, sizeof *names.items, by_name);
    const char **result = erg_arena_alloc(arena, (names.count + 1) * sizeof *result);
    if (names.count)
        memcpy(result, names.items, names.count * sizeof *result);
    free(names.items);
    return result;
}
