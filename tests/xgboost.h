/* The published tree search needs libxgboost, which no other part does. */
#ifndef TESTS_XGBOOST_H
#define TESTS_XGBOOST_H

#include "check.h"
#include "search/boost_internal.h"

/* Whether libxgboost is installed, which the search 'trees' needs; says so where it is not. */
static inline bool trees_are_here(void)
{
    struct erg_boost boost;
    struct erg_error err;
    bool here = erg_boost_open(&boost, &err) == 0;
    if (!here)
        print_message("[  NOTE  ] skipped: %s\n", err.message);
    return here;
}

#endif
