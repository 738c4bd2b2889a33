/* libFuzzer: any bytes as a tariff, of both forms. What is accepted has a rate at every time, which
 * of hours may not be known, and time goes on. */
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
    static const char *const columns[] = {"g_per_kwh", "usd_per_kwh"};
    for (int i = 0; i < 2; i++) {
        if (erg_tariff_load_hours(&tariff, as_file(data, size), columns[i], &err) == 0)
            for (double now_s = 0, until_s; now_s < 1e10; now_s = 3 * now_s + 1) {
                const struct erg_rate *rate = erg_tariff_at(&tariff, now_s, &until_s);
                if (!(until_s > now_s) || rate->g_co2_per_kwh < 0)
                    abort();
            }
        erg_tariff_release(&tariff);
    }
    return 0;
}
