/*
 * The best layout and clocks by time or energy within bounds, over all layouts that fit, on one
 * number of GPUs or several.
 *
 * No layout is dropped by a heuristic. Every layout that fits first gets a cheap lower bound of its
 * frontier (bound.h). The bound of a layout that may be the best is raised to the optimum of its
 * continuous problem where that matters for the decision: plans come within hundredths of a per
 * cent of it. So only one or a few of some thousand layouts are solved (layout_frontier.h), until
 * no other can be better than the best by more than a tolerance. `gap` is the most by which an
 * unsolved layout could be better.
 *
 * The union of all frontiers is found in the same way, at deadlines 8 % apart from the fastest
 * layout's time on; there the continuous problems decide or, for pipelines that are too long to be
 * solved whole, interpolation between plans. Then the layout that is best at each of a series of
 * deadlines 1.5 % apart is solved again there. So points of the union are at most 3 % apart, unless
 * no layout is better in between, and no layout is better than a point by more than 0.3 %, except
 * for the rounding to clocks in pipelines of few instructions.
 */
#ifndef ERG_LAYOUT_ENERGY_CHOICE_H
#define ERG_LAYOUT_ENERGY_CHOICE_H

#include "layout/energy/layout_frontier.h"
#include "layout/search/layout_search.h"

struct erg_layout_choice_request {
    /*
     * The requests differ only in the number of GPUs of each kind; `each` and `wanted` are ignored.
     * On one kind of GPUs, the choice considers the fastest splits of the layers of the requests'
     * layouts.
     */
    const struct erg_layout_search *searches;
    size_t search_count;
    struct erg_goal query; /* its bounds on memory and GPUs are those of the searches */
    bool whole_union;      /* find the frontier over all layouts, too */
    size_t most;           /* the most layouts to solve, at least 1 */
    size_t more;           /* further ones while the query itself is not proven */
    double tolerance;      /* as a share: 0.002 */
};

struct erg_layout_choice {
    struct erg_layout_planned {
        struct erg_layout_candidate candidate;
        struct erg_layout_frontier frontier;
    } * layouts;                       /* the solved layouts, in order of solution */
    struct erg_layout_option *options; /* the same, for erg_layout_pick() and erg_layout_union() */
    size_t count;
    uint64_t fitting; /* number of layouts with a bound */
    /* The best point of every layout that has a point within the query; the best layout first. */
    struct erg_layout_pick *picks;
    size_t pick_count;
    double gap;       /* of the query's time or energy, as a share */
    double union_gap; /* of energy, at the union's worst deadline; 0 without whole_union */
};

/*
 * Takes some hundred microseconds per layout that fits, milliseconds for each raised bound (up to
 * seconds for a long pipeline near its fastest time), and up to seconds for each solved layout.
 * ERG_INFEASIBLE if no layout fits the GPUs or none is within the query's bounds; the message then
 * names the binding bound and the nearest layout. Interruptible; reports progress. Release it, even
 * after ERG_INFEASIBLE.
 */
int erg_layout_choose(struct erg_layout_choice *choice,
                      const struct erg_layout_choice_request *request, struct erg_error *err);

/* The same for one layout, without regard to others. Takes ownership of the candidate. */
int erg_layout_choose_point(struct erg_layout_choice *choice,
                            const struct erg_layout_choice_request *request,
                            struct erg_layout_candidate *candidate, struct erg_error *err);

void erg_layout_choice_release(struct erg_layout_choice *choice);

/* One number of GPUs among others; with several kinds, how many of each. */
struct erg_layout_count {
    bool fits; /* false: nothing else is set */
    struct erg_layout_candidate fastest;
    bool on_frontier; /* no layout beats one of its points in time and energy */
};

/* counts[search_count], for the searches of a choice with whole_union. Release them. */
int erg_layout_counts_init(struct erg_layout_count *counts,
                           const struct erg_layout_choice_request *request,
                           const struct erg_layout_choice *choice, struct erg_error *err);
void erg_layout_counts_release(struct erg_layout_count *counts, size_t count);

#endif
