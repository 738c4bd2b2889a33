/* A dictionary of kernels: any bytes are refused, or put every name into a category. */
#include "as_file.h"

#include "trace/kernel_category.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_kernel_names *names;
    struct erg_error err;
    if (erg_kernel_names_load_file(&names, as_file(data, size), &err) != 0)
        return 0;
    static const char *const kernels[] = {"", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                                          "nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NNT", "*a*b*"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        struct erg_kernel_record record = {.name = kernels[i]};
        if (!erg_kernel_names_apply(names, &record))
            abort();
    }
    erg_kernel_names_free(names);
    return 0;
}
