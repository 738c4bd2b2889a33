/* ergon import kineto: what traces of GPUs say, as a table, CSV or JSON. */
#ifndef ERG_API_IMPORT_KERNELS_H
#define ERG_API_IMPORT_KERNELS_H

#include "ergon/error.h"
#include "ergon/kernels.h"

#include <stdbool.h>
#include <stdio.h>

enum erg_import_form { ERG_IMPORT_TABLE, ERG_IMPORT_CSV, ERG_IMPORT_JSON };

int erg_import_kernels(FILE *out, const struct erg_kernels_options *options,
                       enum erg_import_form form, struct erg_error *err);

#endif
