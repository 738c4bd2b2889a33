/* Sums of GPU traces, as tables for people and as CSV. */
#ifndef ERG_API_KERNELS_PRINT_H
#define ERG_API_KERNELS_PRINT_H

#include "ergon/kernels.h"

#include <stdio.h>

void erg_kernels_print(FILE *out, const struct erg_kernels_gpu *gpus, size_t count);
void erg_kernels_print_csv(FILE *out, const struct erg_kernels_gpu *gpus, size_t count);

#endif
