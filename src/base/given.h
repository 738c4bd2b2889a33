/* The values that stand for "not given". */
#ifndef ERG_BASE_GIVEN_H
#define ERG_BASE_GIVEN_H

#include <limits.h>

/* An integer without a default that was not given; doubles are NaN then, texts and files NULL,
 * choices -1, flags false. */
#define ERG_NOT_GIVEN LONG_MIN

#endif
