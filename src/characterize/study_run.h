/*
 * Runs a study in a folder:
 *
 *   DIR/sweep.json       all points of the file (study.h)
 *   DIR/points/ID.json   the result of each point (result.h)
 *
 * A point with a file is not run again. Files are written to a temporary name and renamed. Their
 * contents do not depend on the time or order of the runs: a killed run continues and ends with the
 * same bytes.
 */
#ifndef ERG_CHARACTERIZE_STUDY_RUN_H
#define ERG_CHARACTERIZE_STUDY_RUN_H

#include "characterize/result.h"
#include "characterize/study.h"

struct erg_study_run {
    const struct erg_study *study;
    const char *folder;
    const char *only; /* shell pattern for the names of points; NULL: all */
    size_t jobs;      /* points at a time; 0: the number of cores */
    bool retry;       /* run failed points again */
    /* Runs a point with a possible layout: fills the result with status, metrics and lists. A
     * failure is stored as the point's result, except for an interrupt. Called from several
     * threads. */
    int (*point)(void *context, const struct erg_study_point *point,
                 struct erg_study_result *result, struct erg_arena *arena, struct erg_error *err);
    void *context;
};

/* The points by status at the end of the run. */
struct erg_study_tally {
    size_t ran; /* points run in this call */
    size_t by_status[ERG_RESULT_SKIPPED + 1];
    struct erg_error first; /* error of the first failed point; status 0 if none failed */
};

/*
 * Locks the folder for this process until erg_study_release(); fails if another process runs there.
 * Creates the folder, and writes sweep.json.
 */
int erg_study_claim(int *claim, const struct erg_study *study, const char *folder,
                    struct erg_error *err);
void erg_study_release(int claim);

/* Runs the points without a result. Interruptible. */
int erg_study_run(const struct erg_study_run *run, struct erg_study_tally *tally,
                  struct erg_error *err);

/* DIR/points/ID.json; free it. */
char *erg_study_point_path(const char *folder, const char *id);

#endif
