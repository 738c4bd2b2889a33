/* Determines when a run with limited time must stop. */
#include "train/run/time_limit.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static const double slow_disk = 100e6; /* bytes/s, assumed until a checkpoint has been written */

void erg_time_limit_init(struct erg_time_limit *limit, double time_s, const char *job_end,
                         size_t state_bytes)
{
    char *rest = NULL;
    double left_s = time_s > 0 ? time_s : INFINITY;
    double end_s = job_end ? strtod(job_end, &rest) : 0;
    *limit = (struct erg_time_limit){.write_s = (double)state_bytes / slow_disk};
    if (rest && rest != job_end && *rest == '\0' && end_s > 0)
        left_s = fmin(left_s, end_s - erg_unix_s());
    /* A time in the past is a limit, too. */
    if (left_s < 1e9)
        limit->end_ns = erg_now_ns() + (int64_t)(1e9 * fmax(left_s, 0));
}

void erg_time_limit_add_step(struct erg_time_limit *limit, double seconds)
{
    limit->steps_s[limit->next++ % ERG_TIME_LIMIT_STEPS] = seconds;
}

void erg_time_limit_add_write(struct erg_time_limit *limit, double seconds)
{
    limit->write_s = fmax(limit->write_s, seconds);
}

bool erg_time_limit_is_near(const struct erg_time_limit *limit, int64_t now_ns)
{
    double longest_s = 0;
    for (size_t i = 0; i < ERG_TIME_LIMIT_STEPS; i++)
        longest_s = fmax(longest_s, limit->steps_s[i]);
    double left_s = 1e-9 * (double)(limit->end_ns - now_ns);
    return limit->end_ns != 0 && 2 * longest_s + limit->write_s > left_s;
}
