/* Reasons in words (observe/format.h). */
#include "observe/format.h"

#include "telemetry/gpu.h"

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
