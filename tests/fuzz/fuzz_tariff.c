/* libFuzzer: any bytes as a tariff. What is accepted has a rate at every time, and time goes on. */
#include "as_file.h"
#include "cluster/tariff.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_tariff tariff = {0};
    struct erg_error err;
    if (erg_tariff_load(&tariff, as_file(data, size), &err) == 0)
        for (double now_s = 0, until_s; now_s < 1e7; now_s = 3 * now_s + 1) {
            const struct erg_rate *rate = erg_tariff_at(&tariff, now_s, &until_s);
            if (!isfinite(rate->usd_per_kwh) || !isfinite(rate->g_co2_per_kwh) ||
                !(until_s > now_s) || !(erg_tariff_relative(&tariff, now_s) >= 0))
                abort();
        }
    erg_tariff_release(&tariff);
    return 0;
}
