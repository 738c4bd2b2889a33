/* The tests of test_ops_vocabulary.c on float elements. */
#define ERG_OPS_FLOAT

#include "test_ops_vocabulary.c"
