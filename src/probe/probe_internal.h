/*
 * Shared between the files of the probe room only: items that others refer to.
 */
#ifndef ERG_PROBE_INTERNAL_H
#define ERG_PROBE_INTERNAL_H

#define PROBE_REST "rest"            /* right after work, clocks still up */
#define PROBE_IDLE "idle"            /* a while after it */
#define PROBE_BLOCKED "blocked"      /* waiting for another GPU */
#define PROBE_PRODUCT "4 x fwd proj" /* before a collective, PROBE_PRODUCTS times */

enum { PROBE_PRODUCTS = 4 };

#endif
