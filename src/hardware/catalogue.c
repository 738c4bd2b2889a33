/* Finding catalogue entries, and the units of their numbers. */
#include "hardware/catalogue.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "io/file.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_path(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') || (length > 5 && strcmp(name + length - 5, ".yaml") == 0);
}

static int unknown_entry(const char *kind, const char *what, const char *name,
                         struct erg_error *err)
{
    struct erg_arena arena = {0};
    const char *const *names = erg_data_names(kind, &arena);
    char *lower = erg_arena_strdup(&arena, name); /* as the files are named */
    for (char *at = lower; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    const char *meant = erg_closest(lower, names);
    struct erg_text known = {0};
    erg_text_add_names(&known, names);
    if (meant)
        erg_fail(err, ERG_FAILED, "unknown %s '%s'; did you mean '%s'? Expected one of: %s", what,
                 name, meant, known.data);
    else
        erg_fail(err, ERG_FAILED, "unknown %s '%s'; expected one of %s, or a file", what, name,
                 known.data);
    erg_text_release(&known);
    erg_arena_release(&arena);
    return -1;
}

char *erg_catalogue_path(const char *kind, const char *name)
{
    return is_path(name) ? erg_xstrdup(name) : erg_data_find(kind, name);
}

int erg_catalogue_load(void **value, const struct erg_catalogue *catalogue, const char *name,
                       struct erg_error *err)
{
    struct erg_yaml *yaml;
    char *path = erg_catalogue_path(catalogue->folder, name);
    if (!path)
        return unknown_entry(catalogue->folder, catalogue->what, name, err);
    int status = erg_yaml_open(&yaml, path, err);
    free(path);
    if (status != 0)
        return -1;
    status = erg_yaml_read(yaml, catalogue->schema, value, err);
    if (status == 0 && catalogue->finish(*value, yaml, err) != 0) {
        erg_yaml_free(catalogue->schema, *value);
        status = -1;
    }
    erg_yaml_close(yaml);
    return status;
}

void erg_name_make_printable(char **name)
{
    struct erg_text printable = {0};
    erg_text_add_printable(&printable, *name);
    free(*name);
    *name = printable.data;
}

void erg_catalogue_add_heading(struct erg_text *out, const char *heading)
{
    while (*heading) {
        size_t length = strcspn(heading, "\n");
        erg_text_printf(out, "# %.*s\n", (int)length, heading);
        heading += length + (heading[length] != '\0');
    }
}

int erg_quantities_finish(void *object, const struct erg_quantity *list,
                          const struct erg_yaml *yaml, const char *prefix, struct erg_error *err)
{
    for (; list->key; list++) {
        char key[160];
        snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", list->key);
        if (!erg_yaml_has(yaml, key))
            continue;
        double *number = (double *)(void *)((char *)object + list->offset);
        assert(list->min <= list->max && list->factor > 0);
        if (erg_yaml_check_range(yaml, key, *number, list->min, list->max, err) != 0)
            return -1;
        *number *= list->factor;
    }
    return 0;
}

uint64_t erg_quantities_hash(const void *object, const struct erg_quantity *list, uint64_t hash)
{
    for (; list->key; list++) {
        uint64_t bits;
        memcpy(&bits, (const char *)object + list->offset, sizeof bits);
        hash = erg_hash_u64(hash, bits);
    }
    return hash;
}
