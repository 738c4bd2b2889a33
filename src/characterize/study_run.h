/*
 * Running a study in a folder:
 *
 *   DIR/sweep.json       all points of the file (study.h)
 *   DIR/points/ID.json   what each came to (result.h)
 *
 * A point whose file is there is not run again. Files are written beside and renamed, and nothing
 * in them depends on when or in which order points ran: a run that was killed goes on and ends with
 * the same bytes.
 */
#ifndef ERG_CHARACTERIZE_STUDY_RUN_H
#define ERG_CHARACTERIZE_STUDY_RUN_H

#include "characterize/result.h"
#include "characterize/study.h"

struct erg_study_run {
    const struct erg_study *study;
    const char *folder;
    const char *only; /* points with such a name, as shells match file names; NULL: all */
    size_t jobs;      /* at a time; 0: as many as there are cores */
    bool retry;       /* those that failed are run again */
    /* Runs a point whose layout can be: fills the result with status, metrics and lists. A failure
     * is the point's, unless it is an interrupt. From several threads. */
    int (*point)(void *context, const struct erg_study_point *point,
                 struct erg_study_result *result, struct erg_arena *arena, struct erg_error *err);
    void *context;
};

/* Points by what is known of them when the run ends. */
struct erg_study_tally {
    size_t ran; /* in this run */
    size_t by_status[ERG_RESULT_SKIPPED + 1];
    struct erg_error first; /* of the first failed one; its status is 0 without */
};

/*
 * The folder is this process's until erg_study_release(): fails where another one runs there. Makes
 * it, and writes sweep.json.
 */
int erg_study_claim(int *claim, const struct erg_study *study, const char *folder,
                    struct erg_error *err);
void erg_study_release(int claim);

/* Runs what the folder lacks. Interruptible. */
int erg_study_run(const struct erg_study_run *run, struct erg_study_tally *tally,
                  struct erg_error *err);

/* DIR/points/ID.json, to be freed. */
char *erg_study_point_path(const char *folder, const char *id);

#endif
