/* libFuzzer: any bytes as the data of the estimator of grids. What it knows it finds. */
#include "as_file.h"
#include "estimator.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct estimator *estimator;
    const struct estimator_device *device;
    struct erg_error err;
    if (estimator_load(&estimator, as_file(data, size), &err) != 0)
        return 0;
    for (unsigned i = 0; i < estimator->devices_count; i++)
        if (estimator_device(estimator, estimator->devices[i].type, &device, &err) != 0)
            abort();
    estimator_free(estimator);
    return 0;
}
