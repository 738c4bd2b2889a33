/*
 * Clock: wall, CPU and calendar time of this process.
 */
#ifndef ERG_BASE_CLOCK_H
#define ERG_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t erg_now_ns(void);     /* monotonic */
double erg_unix_s(void);      /* of the calendar: it can go back */
double erg_cpu_seconds(void); /* of the calling thread */

/* Returns at once for 0 or less, and may return early after a signal. */
void erg_sleep_ns(int64_t duration_ns);

/* When the next of events may happen that come every 1 / `per_s` s on average, and `burst` at once
 * (the generic cell rate algorithm, ITU-T I.371); takes that place if it is at most `most_ns` away,
 * so that no more debt than that is made. *pace_ns begins with 0. */
int64_t erg_pace_reserve(int64_t *pace_ns, int64_t now_ns, double per_s, long burst,
                         int64_t most_ns);

/* "2026-01-31T12:00:00Z" into `out` (at least 21 bytes). */
void erg_utc_now(char *out, size_t capacity);

#endif
