/*
 * Host lists, as Slurm writes the names of nodes: "h[001-004,7],x3,r[1-2]n[1-2]". Numbers keep
 * their leading zeros; with several pairs of brackets, the last one varies fastest.
 */
#ifndef ERG_CLUSTER_LIVE_HOST_LIST_H
#define ERG_CLUSTER_LIVE_HOST_LIST_H

#include "ergon/error.h"

#include <stddef.h>

enum { ERG_HOST_LIST_MOST = 100000, ERG_HOST_NAME_MOST = 64 };

/* Zeros are an empty list. */
struct erg_host_list {
    char **items;
    size_t count, capacity;
};

/* Appends the names in `text`. The error message quotes the invalid part. */
int erg_host_list_add(struct erg_host_list *hosts, const char *text, struct erg_error *err);
void erg_host_list_release(struct erg_host_list *hosts);

#endif
