/*
 * The GPUs of a list: indices, UUIDs and beginnings of UUIDs, from an option or from the
 * environment variables of a vendor's programs (CUDA_VISIBLE_DEVICES).
 */
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "telemetry/gpu_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct selection {
    const struct erg_gpus *gpus;
    size_t *chosen;
    size_t count;
    bool counts; /* some GPU was given by its index */
};

static int choose(struct selection *selection, const char *word, size_t found,
                  struct erg_error *err)
{
    const struct erg_gpu_info *info = &selection->gpus->items[found].info;
    for (size_t i = 0; i < selection->count; i++)
        if (selection->chosen[i] == found)
            return erg_fail(err, ERG_FAILED,
                            "\"%s\" selects a GPU a second time, expected each once", word);
    if (info->trouble[0])
        return erg_fail(err, ERG_NO_DEVICE, "GPU %d does not work: %s", info->index, info->trouble);
    selection->chosen[selection->count++] = found;
    return 0;
}

static int choose_uuid(struct selection *selection, const char *word, struct erg_error *err)
{
    const struct erg_gpus *gpus = selection->gpus;
    size_t found = 0, matches = 0;
    for (size_t i = 0; i < gpus->count; i++)
        if (strncasecmp(gpus->items[i].info.uuid, word, strlen(word)) == 0) {
            found = i;
            matches++;
        }
    if (matches != 1)
        return erg_fail(err, matches ? ERG_FAILED : ERG_NO_DEVICE,
                        "%zu of %zu GPUs have a UUID that begins with \"%s\", expected exactly one",
                        matches, gpus->count, word);
    return choose(selection, word, found, err);
}

static int choose_index(struct selection *selection, const char *word, long index,
                        struct erg_error *err)
{
    if (index < 0 || (size_t)index >= selection->gpus->count)
        return erg_fail(err, ERG_NO_DEVICE, "there is no GPU %s, expected an index from 0 to %zu",
                        word, selection->gpus->count - 1);
    return choose(selection, word, (size_t)index, err);
}

static char *trim(char *word)
{
    word += strspn(word, " \t");
    size_t length = strlen(word);
    while (length && strchr(" \t", word[length - 1]))
        word[--length] = '\0';
    return word;
}

/* Applies every word of `list`, which is modified. */
static int choose_all(struct selection *selection, char *list, bool variable, struct erg_error *err)
{
    for (char *next = list; next;) {
        long index;
        char *word = next, *comma = strchr(next, ',');
        next = comma ? comma + 1 : NULL;
        if (comma)
            *comma = '\0';
        word = trim(word);
        if (strncasecmp(word, "MIG", 3) == 0)
            return erg_fail(err, ERG_FAILED,
                            "\"%s\" is a MIG slice, which has no power sensor of its own; expected "
                            "indices or UUIDs of whole GPUs",
                            word);
        bool number = erg_parse_long(word, &index);
        if (variable && ((number && index < 0) || strcmp(word, "NoDevFiles") == 0))
            return 0; /* CUDA and HIP stop at the first negative index, CUDA at this word */
        selection->counts |= number;
        if (!number && strncasecmp(word, "GPU-", 4) != 0)
            return erg_fail(err, ERG_FAILED, "\"%s\" is neither an index nor a UUID (\"GPU-...\")",
                            word);
        if (number ? choose_index(selection, word, index, err) != 0
                   : choose_uuid(selection, word, err) != 0)
            return -1;
    }
    return 0;
}

/* Moves the chosen GPUs to the front, in the order of the list; the others stay open but hidden. */
static void keep(struct erg_gpus *gpus, const size_t *chosen, size_t count)
{
    struct erg_open_gpu *kept = erg_xcalloc(gpus->opened, sizeof *kept);
    size_t at = count;
    for (size_t i = 0; i < gpus->opened; i++) {
        size_t to = count;
        for (size_t c = 0; c < count; c++)
            if (chosen[c] == i)
                to = c;
        kept[to < count ? to : at++] = gpus->items[i];
    }
    free(gpus->items);
    gpus->items = kept;
    gpus->count = count;
}

/* ---- the order of a variable's indices ---- */

static bool are_of_one_kind(const struct erg_gpus *gpus)
{
    const char *name = NULL;
    for (size_t i = 0; i < gpus->count; i++) {
        const struct erg_gpu_info *info = &gpus->items[i].info;
        if (!info->trouble[0] && name && strcmp(name, info->name) != 0)
            return false;
        name = info->trouble[0] ? name : info->name;
    }
    return true;
}

/*
 * Chooses the GPUs that the vendor's own library shows instead. Returns false if it gives no
 * answer, or shows GPUs that are not in the list.
 */
static bool choose_as_shown(struct selection *selection)
{
    const struct erg_gpus *gpus = selection->gpus;
    char(*uuids)[ERG_CUDA_UUID_BYTES] = erg_xcalloc(gpus->count, sizeof *uuids);
    size_t count = 0, found = 0;
    bool told = gpus->vendor->order(uuids, gpus->count, &count);
    for (size_t u = 0; told && u < count; u++)
        for (size_t i = 0; i < gpus->count; i++)
            if (strcasecmp(gpus->items[i].info.uuid, uuids[u]) == 0 && found == u)
                selection->chosen[found++] = i;
    free(uuids);
    if (!told || found < count || !found)
        return false;
    selection->count = found;
    return true;
}

static void follow_order(struct selection *selection, const char *list, const char *where)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    if (!selection->gpus->vendor->order || !selection->counts ||
        (order && strcmp(order, "PCI_BUS_ID") == 0) || are_of_one_kind(selection->gpus) ||
        choose_as_shown(selection))
        return;
    const struct erg_gpu_info *info = &selection->gpus->items[selection->chosen[0]].info;
    erg_log(ERG_LOG_WARNING,
            "%s=\"%s\" counts the GPUs in CUDA's own order, which is not available here, and they "
            "are of different kinds: GPU %d (%s) on the PCI bus may not be the one that programs "
            "use; set CUDA_DEVICE_ORDER=PCI_BUS_ID for ergon and for them, or give UUIDs",
            where, list, info->index, info->name);
}

/* Keeps the GPUs of one list. `where` is its source, which may be a variable. */
static int select_from(struct erg_gpus *gpus, const char *text, const char *where, bool variable,
                       struct erg_error *err)
{
    char *list = erg_xstrdup(text);
    struct selection selection = {
        .gpus = gpus,
        .chosen = erg_xcalloc(gpus->count, sizeof *selection.chosen),
    };
    bool empty = *trim(list) == '\0';
    int result = empty ? 0 : choose_all(&selection, list, variable, err);
    if (result == 0 && selection.count == 0)
        result = erg_fail(err, ERG_NO_DEVICE,
                          "this hides every GPU, expected at least one index or UUID");
    if (result != 0)
        erg_fail_context(err, "selecting GPUs by %s=\"%s\"", where, text);
    if (result == 0 && variable)
        follow_order(&selection, text, where);
    if (result == 0)
        keep(gpus, selection.chosen, selection.count);
    free(selection.chosen);
    free(list);
    return result;
}

int erg_gpus_select(struct erg_gpus *gpus, const char *select, struct erg_error *err)
{
    if (select)
        return strcmp(select, "all") == 0 ? 0 : select_from(gpus, select, "the list", false, err);
    for (const char *const *name = gpus->vendor->visible; *name; name++) {
        const char *text = getenv(*name);
        if (text && select_from(gpus, text, *name, true, err) != 0)
            return -1;
    }
    return 0;
}
