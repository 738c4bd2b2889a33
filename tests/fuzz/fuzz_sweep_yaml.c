/* libFuzzer: any bytes as the file of a sweep. What is accepted has points, each its own. */
#include "cluster/sweep/sweep.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check_point(const struct erg_sweep *sweep, size_t index)
{
    struct erg_sweep_point point = erg_sweep_point(sweep, index);
    struct erg_text text = {0};
    if (erg_sweep_index(sweep, &point) != index || point.cluster >= sweep->clusters_count ||
        point.trace >= sweep->traces_count || point.cap >= sweep->power_caps_count ||
        point.load >= sweep->loads_count || point.seed >= (unsigned)sweep->seeds ||
        point.policy >= sweep->policies_count)
        abort();
    erg_sweep_describe(&text, sweep, &point);
    if (!text.data)
        abort();
    erg_text_release(&text);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_sweep *sweep;
    struct erg_error err;
    if (erg_sweep_parse(&sweep, "sweep.yaml", (const char *)data, size, &err) != 0)
        return 0;
    size_t points = erg_sweep_points(sweep);
    if (points < 1 || points > 10000000 || sweep->reference_index >= sweep->policies_count)
        abort();
    check_point(sweep, 0);
    check_point(sweep, points / 2);
    check_point(sweep, points - 1);
    erg_sweep_free(sweep);
    return 0;
}
