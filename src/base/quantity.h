/* Quantities as people read and write them: "12.3 kJ", "1:02:03". */
#ifndef ERG_BASE_QUANTITY_H
#define ERG_BASE_QUANTITY_H

#include <stdbool.h>

enum { ERG_FORMAT_BYTES = 32 }; /* enough for each of the functions below */

/* Three significant digits with prefix k to P; below 1, three decimals without prefix: "12.3 kJ",
 * "0.012 J". "-" for NaN and infinity. Returns `out`. */
const char *erg_format_quantity(char *out, double value, const char *unit);

/* Seconds as h:mm:ss: "0:01:32". Returns `out`. */
const char *erg_format_duration(char *out, double seconds);

/* Seconds from h:mm:ss; false if the text is malformed: *seconds is then unchanged. */
bool erg_parse_duration(const char *text, double *seconds);

#endif
