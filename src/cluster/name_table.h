/* Numbers names in the order of their appearance: a hash table over a growing list. */
#ifndef ERG_CLUSTER_NAME_TABLE_H
#define ERG_CLUSTER_NAME_TABLE_H

#include <stddef.h>

/* Zeros are an empty table. */
struct erg_name_table {
    char **items; /* copies */
    size_t count, capacity;
    size_t *slots; /* number + 1; 0 = free */
    size_t slots_count;
};

/* The number of a name; the number of names if it is not in the table. */
size_t erg_name_find(const struct erg_name_table *table, const char *name);

/* The number of a name; a new name is copied into the table. */
size_t erg_name_add(struct erg_name_table *table, const char *name);

void erg_name_table_release(struct erg_name_table *table);

#endif
