/* Quantities as people read and write them (base/quantity.h). */
#include "base/quantity.h"

#include "base/digits.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

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

bool erg_parse_duration(const char *text, double *seconds)
{
    int hours, minutes, rest;
    if (!erg_take_digits(&text, 1, 5, &hours) || !erg_take_char(&text, ':') ||
        !erg_take_digits(&text, 1, 2, &minutes) || !erg_take_char(&text, ':') ||
        !erg_take_digits(&text, 1, 2, &rest) || *text || minutes > 59 || rest > 59)
        return false;
    *seconds = 3600.0 * hours + 60.0 * minutes + rest;
    return true;
}
