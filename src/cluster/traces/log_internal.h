/*
 * Logs of clusters as they were published: the jobs of one, whatever its layout.
 */
#ifndef ERG_CLUSTER_TRACES_LOG_INTERNAL_H
#define ERG_CLUSTER_TRACES_LOG_INTERNAL_H

#include "base/memory.h"
#include "io/csv.h"

#include <stdbool.h>
#include <stdint.h>

/* What is drawn for a job, from random numbers of its own: erg_hash_u64(erg_hash_u64(seed,
 * erg_hash_text(id)), this). */
enum erg_log_draw { ERG_LOG_DRAW_DURATION = 1, ERG_LOG_DRAW_TYPE, ERG_LOG_DRAW_MODEL };

struct erg_log_job {
    const char *id;           /* of the log's arena, like all texts */
    const char *tenant;       /* "": none */
    const char *type;         /* of GPUs, as the log calls it; "": none */
    const char *model, *size; /* "": not said */
    long batch;               /* of an iteration; 0: not said */
    double submit_s;
    double duration_s; /* of its run; NAN: not said */
    double iterations; /* NAN: not said */
    double deadline_s; /* INFINITY: none */
    double gpus;       /* may be a part of one */
    size_t line;       /* of a CSV file, else the number of the entry */
};

struct erg_log {
    const char *path;
    uint64_t seed;
    struct erg_arena texts;
    struct erg_log_job *items;
    size_t count, capacity;
    size_t without_gpus, without_time; /* left out: asked for none, never ran */
};

/* Which layout a table has, by its columns; NULL: none of those known. */
struct erg_log_layout {
    const char *name; /* "Helios" */
    const char *columns[8];
    int (*read)(struct erg_log *log, const struct erg_csv *csv, struct erg_error *err);
};
const struct erg_log_layout *erg_log_layout_of(const struct erg_csv *csv);

int erg_log_read_philly(struct erg_log *log, const char *text, size_t length,
                        struct erg_error *err);

/* "2017-10-07 01:12:09" in seconds of no particular zone; false where it is no such text. */
bool erg_log_time(const char *text, double *seconds);

#endif
