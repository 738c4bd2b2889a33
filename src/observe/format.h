/* The reasons for a low clock in words: "power cap". */
#ifndef ERG_OBSERVE_FORMAT_H
#define ERG_OBSERVE_FORMAT_H

#include "base/quantity.h"
#include "base/text.h"

#include <stdint.h>

/*
 * Why the clock is lower than requested, in words separated by commas; "idle" only if there is no
 * other reason. Adds nothing for 0.
 */
void erg_format_reasons(struct erg_text *out, int64_t reasons);

/* The bits of enum erg_clock_reason, ended by NULL. Names are the vendor's, in snake case. */
struct erg_reason_name {
    int64_t bit;
    const char *name, *words;
};
extern const struct erg_reason_name erg_reason_names[];

#endif
