/* Quantities and reasons in words (observe/format.h). */
#include "observe/format.h"

#include "telemetry/gpu.h"

#include <math.h>
#include <stdio.h>

const struct erg_reason_name erg_reason_names[] = {
    {ERG_REASON_HW_POWER_BRAKE, "hw_power_brake", "power brake"},
    {ERG_REASON_HW_THERMAL, "hw_thermal_slowdown", "too hot (hardware)"},
    {ERG_REASON_SW_THERMAL, "sw_thermal_slowdown", "too hot"},
    {ERG_REASON_HW_SLOWDOWN, "hw_slowdown", "hardware slowdown"},
    {ERG_REASON_SW_POWER_CAP, "sw_power_cap", "power cap"},
    {ERG_REASON_SYNC_BOOST, "sync_boost", "sync boost"},
    {ERG_REASON_APPLICATION_CLOCKS, "application_clocks", "clocks set"},
    {ERG_REASON_DISPLAY_CLOCKS, "display_clocks", "display clocks"},
    {ERG_REASON_IDLE, "idle", "idle"},
    {0, NULL, NULL},
};

const char *erg_format_quantity(char *out, double value, const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    if (!isfinite(value)) {
        snprintf(out, ERG_FORMAT_BYTES, "-");
        return out;
    }
    size_t prefix = 0;
    double shown = fabs(value);
    while (shown >= 999.5 && prefix + 1 < sizeof prefixes / sizeof *prefixes) {
        shown /= 1000;
        prefix++;
    }
    int decimals = shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : shown >= 0.9995 ? 2 : 3;
    snprintf(out, ERG_FORMAT_BYTES, "%s%.*f %s%s", value < 0 ? "-" : "", decimals, shown,
             prefixes[prefix], unit);
    return out;
}

const char *erg_format_duration(char *out, double seconds)
{
    long whole = lround(seconds);
    snprintf(out, ERG_FORMAT_BYTES, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    return out;
}

void erg_format_reasons(struct erg_text *out, int64_t reasons)
{
    bool any = false;
    for (const struct erg_reason_name *reason = erg_reason_names; reason->name; reason++) {
        if (!(reasons & reason->bit) || (reason->bit == ERG_REASON_IDLE && any))
            continue;
        erg_text_printf(out, "%s%s", any ? ", " : "", reason->words);
        any = true;
    }
}
