/* Published logs of clusters: the jobs of one log, in any layout. */
#ifndef ERG_CLUSTER_TRACES_LOG_INTERNAL_H
#define ERG_CLUSTER_TRACES_LOG_INTERNAL_H

#include "base/memory.h"
#include "io/csv.h"

#include <stdbool.h>
#include <stdint.h>

/* The values that are drawn for a job, each from a random number of its own:
 * erg_hash_u64(erg_hash_u64(seed, erg_hash_text(id)), this). */
enum erg_log_draw { ERG_LOG_DRAW_DURATION = 1, ERG_LOG_DRAW_TYPE, ERG_LOG_DRAW_MODEL };

/* The end of a job. All jobs that did not run are left out. A job with several tasks gets the first
 * of these ends that one of its tasks has. */
enum erg_log_fate {
    ERG_LOG_STILL_RAN, /* at the end of the log, so its run time is unknown */
    ERG_LOG_RAN,
    ERG_LOG_WRONG,
    ERG_LOG_NEVER_RAN,
    ERG_LOG_WITHOUT_GPUS,
    ERG_LOG_FATES
};

struct erg_log_job {
    const char *id;           /* of the log's arena, like all texts */
    const char *tenant;       /* "": none */
    const char *type;         /* of GPUs, as the log calls it; "": none */
    const char *model, *size; /* "": unknown */
    long batch;               /* of an iteration; 0: not given */
    double submit_s;
    double duration_s; /* of its run; NAN: unknown */
    double iterations; /* NAN: unknown */
    double deadline_s; /* INFINITY: none */
    double gpus;       /* may be a fraction */
    enum erg_log_fate fate;
    bool has_wrong_part; /* a task or an attempt, which does not count */
    size_t line;         /* of a CSV file, else the number of the entry */
};

struct erg_log {
    const char *path;
    uint64_t seed;
    struct erg_arena texts;
    struct erg_log_job *items;
    size_t count, capacity;
    struct erg_error first_wrong;
    size_t fates[ERG_LOG_FATES]; /* numbers of jobs by fate */
    size_t with_wrong_part;      /* of those that ran */
};

/* An empty job of a line. */
struct erg_log_job erg_log_job(size_t line);

/* Records why a job, or a part of one, is invalid, if it is the first. */
void erg_log_note_wrong(struct erg_log *log, const struct erg_error *why);

/* The fate of a job whose GPUs and run are known. */
void erg_log_judge(struct erg_log_job *job);

/*
 * Counts all fates and keeps the jobs that ran, in the order of their lines. Rows with one name are
 * tasks of one job, or all but the first are invalid.
 */
void erg_log_settle(struct erg_log *log, bool rows_are_tasks);

/* The layout of a table, by its columns; NULL: unknown. */
struct erg_log_layout {
    const char *name; /* "Helios" */
    const char *columns[8];
    const char *id, *tenant; /* columns; the second is optional */
    bool rows_are_tasks;
    /* Fills the job of a row; fails if the row is invalid. */
    int (*read)(struct erg_log *log, const struct erg_csv *csv, size_t row, struct erg_log_job *job,
                struct erg_error *err);
};
const struct erg_log_layout *erg_log_layout_of(const struct erg_csv *csv);

/* Fills the log with all rows of a table. */
void erg_log_read_table(struct erg_log *log, const struct erg_log_layout *layout,
                        const struct erg_csv *csv);

/* The same with the entries of Philly's log; fails if it is not an array. */
int erg_log_read_philly(struct erg_log *log, const char *text, size_t length,
                        struct erg_error *err);

/*
 * "2017-10-07 01:12:09", or with a zone, "2023-03-01T00:00:00.5+08:00", in seconds after 1970;
 * false for other text. A time without a zone is UTC; in the other function it is US Pacific time.
 * When that clock is set back in November, a time names two moments: the first one that is not
 * before `least_s` is taken.
 */
bool erg_log_time(const char *text, double *seconds);
bool erg_log_time_pacific(const char *text, double least_s, double *seconds);

#endif
