/* The tests of test_ops.c on float elements. */
#define ERG_OPS_FLOAT

#include "test_ops.c"
