/* Studies run in a folder, or read back from it, with their figures and findings. */
#ifndef ERG_API_CHARACTERIZE_CALL_H
#define ERG_API_CHARACTERIZE_CALL_H

#include "characterize/findings.h"
#include "characterize/study_run.h"
#include "report/figures/figures.h"

/* NULL texts are not given. */
struct erg_characterize_input {
    const char *file;   /* of the study; NULL: redraw only */
    const char *folder; /* NULL: the study's name */
    bool list;          /* lists the points to run, and runs none */
    const char *only, *device, *sensor;
    const char *figures; /* "4,8" */
    int right;           /* enum erg_figure_right */
    size_t jobs;         /* 0: as many as there are cores */
    const char *program; /* ergon's own, for points that are measured */
    bool retry, seeded, lock_clocks;
    uint64_t seed;
    double transient_s; /* NaN: none */
    /* Folders of other studies, for findings that compare clusters. */
    const char *const *others;
    size_t other_count;
};

struct erg_characterize_call {
    const struct erg_characterize_input *input;
    char *folder; /* NULL with `list` and no folder */
    struct erg_study_tally tally;
    struct erg_collection *collection; /* NULL with `list` */
    struct erg_findings findings;
    json_t *document; /* schema "ergon.characterization" */
};

/* Failed points are not a failure of the call: the tally counts them. The caller releases it in any
 * case. */
int erg_characterize_call_run(struct erg_characterize_call *at,
                              const struct erg_characterize_input *input, struct erg_error *err);
void erg_characterize_call_release(struct erg_characterize_call *at);

/* The status of a whole run: ERG_FAILED where points failed, ERG_INFEASIBLE where none fits. */
int erg_characterize_call_judge(const struct erg_characterize_call *at, struct erg_error *err);

#endif
