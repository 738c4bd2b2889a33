/*
 * Names by number of appearance: a hash table over a growing list.
 */
#ifndef ERG_CLUSTER_NAME_TABLE_H
#define ERG_CLUSTER_NAME_TABLE_H

#include <stddef.h>

/* All-zero is an empty table. */
struct erg_name_table {
    char **items; /* copies */
    size_t count, capacity;
    size_t *slots; /* number + 1; 0 = free */
    size_t slots_count;
};

/* The number of a name; how many there are: it is none of them. */
size_t erg_name_find(const struct erg_name_table *table, const char *name);

/* The number of a name, which is copied when it is new. */
size_t erg_name_add(struct erg_name_table *table, const char *name);

void erg_name_table_release(struct erg_name_table *table);

#endif
