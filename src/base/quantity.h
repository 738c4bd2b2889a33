/* Quantities as people read and write them: "12.3 kJ", "1:02:03". */
#ifndef ERG_BASE_QUANTITY_H
#define ERG_BASE_QUANTITY_H

#include <stdbool.h>

enum { ERG_FORMAT_BYTES = 32 }; /* enough for each of the functions below */

/* Three digits with a prefix: "12.3 kJ", "0.123 J"; "-" for NaN and infinity. Returns `out`. */
const char *erg_format_quantity(char *out, double value, const char *unit);

/* "0:01:32", of seconds. Returns `out`. */
const char *erg_format_duration(char *out, double seconds);

/* Seconds from hours, minutes and seconds as "11:30:00"; false: it is not such a text. */
bool erg_parse_duration(const char *text, double *seconds);

#endif
