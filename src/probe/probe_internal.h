/*
 * Shared between the files of the probe room only: items that others refer to.
 */
#ifndef ERG_PROBE_INTERNAL_H
#define ERG_PROBE_INTERNAL_H

#define PROBE_REST "rest"                  /* right after work, clocks still up */
#define PROBE_IDLE "idle"                  /* seconds after it */
#define PROBE_BEFORE_COLLECTIVE "fwd proj" /* the product that a collective follows */

#endif
