/* libFuzzer: any bytes as a profile of the tuner. What is accepted has values to choose from. */
#include "as_file.h"
#include "hooks/tune_profile.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    for (int knob = ERG_TUNE_POWER; knob <= ERG_TUNE_CLOCK; knob++) {
        struct erg_tune_point *points;
        struct erg_error err;
        size_t count;
        bool per_step;
        if (erg_tune_profile_read(as_file(data, size), knob, &points, &count, &per_step, &err) != 0)
            continue;
        if (count < 1)
            abort();
        for (size_t i = 0; i < count; i++)
            if (points[i].value < 1 || !(points[i].time_s > 0) || !isfinite(points[i].energy_j))
                abort();
        free(points);
    }
    return 0;
}
