/* The result of a verification: tables for people, or a document. */
#ifndef ERG_OPTIMIZE_VERIFY_PRINT_H
#define ERG_OPTIMIZE_VERIFY_PRINT_H

#include "verify/verify.h"

#include <stdbool.h>
#include <stdio.h>

void erg_verify_print(FILE *out, const struct erg_verify_request *request,
                      const struct erg_verification *verification, bool json);

#endif
