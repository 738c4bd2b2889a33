/*
 * Time limit: when a run with limited time must stop, so that its last checkpoint is complete
 * before the end. That is when two more steps and one checkpoint no longer fit: one step runs
 * before all ranks know, and one may be slower than earlier ones.
 */
#ifndef ERG_TRAIN_RUN_TIME_LIMIT_H
#define ERG_TRAIN_RUN_TIME_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ERG_TIME_LIMIT_STEPS = 16 };

struct erg_time_limit {
    int64_t end_ns;                       /* on the clock of erg_now_ns(); 0: no limit */
    double steps_s[ERG_TIME_LIMIT_STEPS]; /* of the latest steps, including the work after each */
    size_t next;
    double write_s; /* of the longest checkpoint, or the estimate for the first */
};

/*
 * The limits are `time_s` from now on (0: none) and `job_end`, the value of $SLURM_JOB_END_TIME in
 * seconds since 1970 (NULL or not a number: none). `state_bytes`: of a checkpoint on this rank.
 */
void erg_time_limit_init(struct erg_time_limit *limit, double time_s, const char *job_end,
                         size_t state_bytes);

void erg_time_limit_add_step(struct erg_time_limit *limit, double seconds);
void erg_time_limit_add_write(struct erg_time_limit *limit, double seconds);

/* Whether two more steps and a checkpoint no longer fit. */
bool erg_time_limit_is_near(const struct erg_time_limit *limit, int64_t now_ns);

#endif
