/* How many rows a store of measurements has. */
#ifndef ERGON_TESTS_STORED_H
#define ERGON_TESTS_STORED_H

#include "check.h"

#include "io/store.h"

static inline int count_row(void *context, const struct erg_store_row *row, struct erg_error *err)
{
    (void)row;
    (void)err;
    ++*(size_t *)context;
    return 0;
}

static inline size_t count_rows(struct erg_store *store)
{
    struct erg_error err;
    size_t count = 0;
    assert_ok(erg_store_each(store, count_row, &count, &err), &err);
    return count;
}

#endif
