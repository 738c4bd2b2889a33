/*
 * Quantities and reasons in words, as people read them: "12.3 kJ", "1:02:03", "power cap".
 */
#ifndef ERG_OBSERVE_FORMAT_H
#define ERG_OBSERVE_FORMAT_H

#include "base/text.h"

#include <stdint.h>

enum { ERG_FORMAT_BYTES = 32 }; /* enough for each of the functions below */

/* Three digits with a prefix: "12.3 kJ", "0.123 J"; "-" for NaN and infinity. Returns `out`. */
const char *erg_format_quantity(char *out, double value, const char *unit);

/* "0:01:32", of seconds. Returns `out`. */
const char *erg_format_duration(char *out, double seconds);

/*
 * Why the clock is lower than asked for, in words with commas; "idle" only when nothing else
 * holds. Adds nothing for 0.
 */
void erg_format_reasons(struct erg_text *out, int64_t reasons);

/* The bits of enum erg_clock_reason one by one: NULL ends. Names are the vendor's, in snake case.
 */
struct erg_reason_name {
    int64_t bit;
    const char *name, *words;
};
extern const struct erg_reason_name erg_reason_names[];

#endif
