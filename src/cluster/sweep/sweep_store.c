/* Sweeps: the store of all points, and those of parts that were run elsewhere. */
#include "cluster/simulate/results.h"
#include "cluster/sweep/sweep_internal.h"

#include "base/log.h"
#include "io/file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static bool is_part(const char *name)
{
    unsigned index, count;
    int end = 0;
    return sscanf(name, "%u-of-%u.db%n", &index, &count, &end) == 2 && end > 0 && !name[end];
}

static int merge_one(struct erg_documents *store, const char *parts, const char *name,
                     struct erg_error *err)
{
    struct erg_text path = {0};
    size_t added = 0;
    erg_text_printf(&path, "%s/%s", parts, name);
    int result = erg_documents_merge(store, path.data, &added, err);
    if (result == 0)
        erg_log(ERG_LOG_INFO, "%s: %zu new result%s", path.data, added, erg_plural(added));
    erg_text_release(&path);
    return result;
}

/* In any order: a key has the same result in all of them. */
static int merge_parts(struct erg_documents *store, const char *folder, struct erg_error *err)
{
    struct erg_text parts = {0};
    erg_text_printf(&parts, "%s/parts", folder);
    DIR *listing = opendir(parts.data);
    int result = 0;
    for (struct dirent *entry; listing && result == 0 && (entry = readdir(listing));)
        if (is_part(entry->d_name))
            result = merge_one(store, parts.data, entry->d_name, err);
    if (listing)
        closedir(listing);
    erg_text_release(&parts);
    return result;
}

int erg_sweep_store_open(struct erg_documents **store, const char *folder,
                         const struct erg_sweep_part *part, struct erg_error *err)
{
    bool whole = part->count == 1;
    struct erg_text place = {0};
    erg_text_printf(&place, whole ? "%s" : "%s/parts", folder);
    int result = erg_dir_make(place.data, err);
    if (whole)
        erg_text_add(&place, "/sweep.db");
    else
        erg_text_printf(&place, "/%u-of-%u.db", part->index + 1, part->count);
    if (result == 0)
        result = erg_documents_open(store, place.data, err);
    if (result == 0 && whole && (result = merge_parts(*store, folder, err)) != 0)
        erg_documents_close(*store);
    erg_text_release(&place);
    return result;
}

int erg_sweep_point_get(const struct erg_sweep *sweep, struct erg_documents *store,
                        const struct erg_sweep_point *point, json_t **summary,
                        struct erg_error *err)
{
    struct erg_sweep_key key = erg_sweep_key(sweep, point);
    if (erg_documents_get(store, key.text, summary, err) != 0)
        return -1;
    const char *missing = *summary ? erg_simulated_missing(*summary) : NULL;
    if (!missing)
        return 0;
    struct erg_text why = {0};
    erg_text_printf(&why, "expected the summary of a simulation with the key '%s'", missing);
    json_decref(*summary);
    erg_documents_fail(store, key.text, why.data, err);
    erg_text_release(&why);
    return -1;
}
