/*
 * Clock: monotonic and calendar time, and CPU time of a thread.
 */
#ifndef ERG_BASE_CLOCK_H
#define ERG_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t erg_now_ns(void);     /* monotonic */
double erg_unix_s(void);      /* calendar time; can jump back */
double erg_cpu_seconds(void); /* of the calling thread */

/* Returns at once for 0 or less, and may return early after a signal. */
void erg_sleep_ns(int64_t duration_ns);

/* Rate limit (GCRA, ITU-T I.371): `per_s` events a second on average, `burst` at once. Returns the
 * earliest time, >= now_ns, for the next event. Reserves it in *pace_ns if it is at most `most_ns`
 * ahead; otherwise nothing is reserved: compare the result. *pace_ns begins with 0. */
int64_t erg_pace_reserve(int64_t *pace_ns, int64_t now_ns, double per_s, long burst,
                         int64_t most_ns);

/* "2026-01-31T12:00:00Z" into `out` (at least 21 bytes). */
void erg_utc_now(char *out, size_t capacity);

#endif
