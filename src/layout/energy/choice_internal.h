/* Shared by choice.c, target.c and polish.c only. */
#ifndef ERG_LAYOUT_ENERGY_CHOICE_INTERNAL_H
#define ERG_LAYOUT_ENERGY_CHOICE_INTERNAL_H

#include "layout/energy/bound.h"
#include "layout/energy/choice.h"

/* Tenths of a per cent of energy are lost to so few clocks, and half of the time is saved. */
enum { ERG_LAYOUT_CHOICE_CLOCKS = 6 };

/* A layout that may be the best of a target. */
struct erg_layout_entry {
    double bound;    /* of the target's objective */
    bool exact;      /* with the pipeline's own time in it */
    uint64_t number; /* in the order of the searches */
    struct erg_layout_candidate candidate;
};

/* A question to all layouts: the query, the least energy within a deadline, or what is nearest to a
 * bound that none keeps. */
enum { ERG_LAYOUT_KEPT = 64 };
struct erg_layout_target {
    struct erg_layout_query query;
    struct erg_layout_entry entries[ERG_LAYOUT_KEPT + 1]; /* the lowest bound first */
    size_t count;
    double tolerance; /* with which it is proven */
    double dropped;   /* the lowest bound of those that had no place */
    double best;      /* of the layouts that were solved */
};

/* The union is made right at so many deadlines. */
enum { ERG_LAYOUT_UNION_DEADLINES = 8, ERG_LAYOUT_TARGETS = 2 + ERG_LAYOUT_UNION_DEADLINES };

struct erg_layout_choosing {
    const struct erg_layout_choice_request *request;
    struct erg_layout_choice *choice;
    struct erg_layout_target *targets; /* the query's first */
    size_t target_count;
    struct erg_layout_ladder ladder; /* of the layout that came last */
    struct erg_layout climber;       /* whose degrees the ladder has; tensor 0: none yet */
    uint64_t *numbers;               /* of the choice's layouts */
};

/* The frontier of one layout with further points; `tries`: to compare it. */
int erg_layout_choosing_solve(struct erg_layout_frontier *frontier,
                              const struct erg_layout_choice_request *asked,
                              const struct erg_layout_candidate *candidate,
                              const double *deadlines_s, size_t deadline_count, bool tries,
                              struct erg_error *err);

/* The best plan of the picks is searched harder where that could save energy that matters. */
int erg_layout_choosing_polish(struct erg_layout_choosing *at, struct erg_error *err);

/* The bound of a layout. To be released. */
void erg_layout_choosing_bound(struct erg_layout_bound *bound, struct erg_layout_choosing *at,
                               const struct erg_layout_candidate *candidate, bool exact);

/* Called with the choosing and every layout that fits: enters it for each target of which it may be
 * the best. */
void erg_layout_choosing_consider(void *context, const struct erg_layout_candidate *candidate);

/* Called with the choosing: whether a layout with this bound may have a place in any target's
 * entries. */
bool erg_layout_choosing_wants(void *context, const struct erg_layout_bound *bound);

/* Seconds beyond which nothing is asked; 0: there is no such bound. */
double erg_layout_choosing_limit(const struct erg_layout_choosing *at);

void erg_layout_choosing_add(struct erg_layout_choosing *at, struct erg_layout_query query,
                             double tolerance);
void erg_layout_choosing_release_targets(struct erg_layout_choosing *at);

/* Until the first entry is one that was not solved and whose bound has all that is known in it. */
void erg_layout_target_settle_first(struct erg_layout_choosing *at,
                                    struct erg_layout_target *target);

/* The first entry's candidate is the caller's then. */
void erg_layout_target_remove_first(struct erg_layout_target *target);

/* How much better a layout that was not solved could be; INFINITY while none was within bounds. */
double erg_layout_target_gap(const struct erg_layout_target *target);
bool erg_layout_target_is_open(const struct erg_layout_target *target);

#endif
