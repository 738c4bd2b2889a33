/*
 * What ran on the GPUs of a training: kernels TRACE.json ...
 *
 *     cc kernels.c $(pkg-config --cflags --libs ergon) -o kernels && ./kernels rank-*.json.gz
 */
#include <ergon/kernels.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_kernels *kernels;
    struct erg_kernels_options options = {.size = sizeof options,
                                          .files = (const char *const *)(argv + 1),
                                          .file_count = (size_t)argc - 1};
    if (erg_kernels_import(&kernels, &options, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    for (size_t i = 0; i < erg_kernels_gpus(kernels); i++) {
        struct erg_kernels_gpu gpu = {.size = sizeof gpu};
        if (erg_kernels_gpu(kernels, i, &gpu, &err) != 0)
            break;
        printf("rank %d GPU %d: computes %.1f %%, only communicates or copies %.1f %%\n",
               (int)gpu.rank, (int)gpu.device, 100 * gpu.compute_s / gpu.window_s,
               100 * gpu.exposed_s / gpu.window_s);
        for (int k = 0; k < ERG_CATEGORIES; k++)
            if (gpu.category[k].count)
                printf("  %-18s %3lld kernels, %.6f s, exposed %.6f s\n",
                       erg_kernels_category_name(k), (long long)gpu.category[k].count,
                       gpu.category[k].summed_s, gpu.category[k].exposed_s);
    }
    erg_kernels_free(kernels);
    return 0;
}
