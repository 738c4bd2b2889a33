/* The split of a batch of the published tree search over its four passes. */
#ifndef ERG_SEARCH_TREES_INTERNAL_H
#define ERG_SEARCH_TREES_INTERNAL_H

#include <stddef.h>

struct erg_pass_sizes {
    size_t total;     /* hypervolume improvement in (E, t) */
    size_t dynamic;   /* … in (E - Ps t, t) */
    size_t fastest;   /* smallest predicted time */
    size_t uncertain; /* largest spread of the ensemble */
};

struct erg_pass_sizes erg_pass_sizes(size_t batch);

#endif
