/* Clock: reads the monotonic, CPU and calendar clocks, and sleeps. */
#include "base/clock.h"

#include <time.h>

double erg_unix_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int64_t erg_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double erg_cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void erg_sleep_ns(int64_t duration_ns)
{
    struct timespec duration = {duration_ns / 1000000000, duration_ns % 1000000000};
    if (duration_ns > 0)
        nanosleep(&duration, NULL);
}

void erg_utc_now(char *out, size_t capacity)
{
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, capacity, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

int64_t erg_pace_reserve(int64_t *pace_ns, int64_t now_ns, double per_s, long burst,
                         int64_t most_ns)
{
    double interval_ns = 1e9 / per_s;
    int64_t earliest_ns = *pace_ns - (int64_t)(interval_ns * (double)(burst - 1));
    int64_t at_ns = now_ns > earliest_ns ? now_ns : earliest_ns;
    if (at_ns <= now_ns + most_ns)
        *pace_ns = (*pace_ns > at_ns ? *pace_ns : at_ns) + (int64_t)interval_ns;
    return at_ns;
}
