/*
 * Findings of a published study of power, heat and traffic, as checks of a study's own points. A
 * check without the points that it needs reports so, and does not count.
 */
#ifndef ERG_CHARACTERIZE_FINDINGS_H
#define ERG_CHARACTERIZE_FINDINGS_H

#include "characterize/collection.h"

enum erg_finding_kind {
    ERG_FINDING_MAGNITUDE, /* a number within limits */
    ERG_FINDING_SIGN,      /* the direction of a change */
    ERG_FINDING_REPORTED,  /* reported, and not judged */
    ERG_FINDING_OUT,       /* not modelled here */
};
extern const char *const erg_finding_kind_names[]; /* "magnitude", …; ends with NULL */

enum erg_finding_verdict {
    ERG_VERDICT_HOLDS,
    ERG_VERDICT_FAILS,
    ERG_VERDICT_REPORTED,
    ERG_VERDICT_NO_POINTS, /* the study lacks the points that it needs */
    ERG_VERDICT_OUT,
};
extern const char *const erg_finding_verdict_names[]; /* "holds", …; ends with NULL */

struct erg_study_finding {
    const char *id; /* "13b" */
    enum erg_finding_kind kind;
    const char *claim;    /* what was published, and how it is checked */
    const char *expected; /* the expected result for our points */
    const char *ours;     /* our result */
    enum erg_finding_verdict verdict;
};

struct erg_findings {
    struct erg_study_finding *items;
    size_t count, capacity;
    struct erg_arena arena; /* private */
};

/* Checks all findings. Studies of several clusters are checked together: a comparison of H100 with
 * H200 needs the points of both. Release it. */
void erg_findings_check(struct erg_findings *findings,
                        const struct erg_collection *const *collections, size_t count);
void erg_findings_release(struct erg_findings *findings);

/* The number of findings that fail. */
size_t erg_findings_failed(const struct erg_findings *findings);

/* Schema "ergon.findings". A new reference. */
json_t *erg_findings_json(const struct erg_findings *findings);

#endif
