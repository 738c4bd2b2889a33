/* Failures as clang-tidy reads them (scripts/gates.sh): they return -1. Nothing is built with this
 * file. */
#include "ergon/error.h"
#define erg_fail(...) (erg_fail(__VA_ARGS__), -1)
#define erg_fail_context(...) (erg_fail_context(__VA_ARGS__), -1)
