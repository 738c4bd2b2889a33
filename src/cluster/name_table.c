/* Numbers names in the order of their appearance: open addressing over a growing list. */
#include "cluster/name_table.h"

#include "base/memory.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

static size_t *slot_of(const struct erg_name_table *table, const char *name)
{
    size_t at = erg_hash_text(name) & (table->slots_count - 1);
    while (table->slots[at] && strcmp(table->items[table->slots[at] - 1], name) != 0)
        at = (at + 1) & (table->slots_count - 1);
    return &table->slots[at];
}

static void enlarge(struct erg_name_table *table)
{
    table->slots_count = table->slots_count ? 2 * table->slots_count : 64;
    free(table->slots);
    table->slots = erg_xcalloc(table->slots_count, sizeof *table->slots);
    for (size_t i = 0; i < table->count; i++)
        *slot_of(table, table->items[i]) = i + 1;
}

size_t erg_name_find(const struct erg_name_table *table, const char *name)
{
    size_t slot = table->slots_count ? *slot_of(table, name) : 0;
    return slot ? slot - 1 : table->count;
}

size_t erg_name_add(struct erg_name_table *table, const char *name)
{
    if (2 * (table->count + 1) > table->slots_count)
        enlarge(table);
    size_t *slot = slot_of(table, name);
    if (!*slot) {
        ERG_PUSH(table, items, erg_xstrdup(name));
        *slot = table->count;
    }
    return *slot - 1;
}

void erg_name_table_release(struct erg_name_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->items[i]);
    free(table->items);
    free(table->slots);
    *table = (struct erg_name_table){0};
}
