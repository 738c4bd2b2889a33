/* The operations with float elements: the other files of ops/, compiled once more. */
#define ERG_OPS_FLOAT

#include "ops/activation.c"
#include "ops/attention.c"
#include "ops/embedding.c"
#include "ops/layer_norm.c"
#include "ops/linear.c"
#include "ops/loss.c"
#include "ops/norm.c"
#include "ops/rope.c"
#include "ops/update.c"
