/*
 * Which layout, at which clocks: the best by time or energy within bounds, over all layouts that
 * fit, on one number of GPUs or several.
 *
 * No layout is dropped by a heuristic. Every layout that fits gets a lower bound of its frontier
 * (bound.h), the cheap one first. The bound of a layout that may be the best is raised to the
 * optimum of its continuous problem, as far as that decides anything: plans come within hundredths
 * of a per cent of it. So only one layout or a few of some thousand are solved (layout_frontier.h),
 * until no other can be better than the best by more than a tolerance. `gap` is the most by which a
 * layout that was not solved could be better.
 *
 * The same is done for the union of all frontiers, at deadlines 8 % apart from the fastest layout's
 * time on; there the continuous problems decide, or, for pipelines that are too long to be solved
 * whole, interpolation between plans. The solved layouts are then solved again at deadlines 1.5 %
 * apart, each by the layout that is best there: from a point of the union to the next is at most 3
 * %, unless none of the layouts does better between, and none does better than a point of it by
 * more than 0.3 %, except for the loss by rounding to clocks in pipelines of a few instructions.
 */
#ifndef ERG_LAYOUT_ENERGY_CHOICE_H
#define ERG_LAYOUT_ENERGY_CHOICE_H

#include "layout/energy/layout_frontier.h"
#include "layout/search/layout_search.h"

struct erg_layout_choice_request {
    /* The requests differ only in the number of GPUs of each kind; `each` and `wanted` are ignored.
     * On one kind of GPUs, the layouts that the requests keep are considered with the fastest
     * splits of their layers. */
    const struct erg_layout_search *searches;
    size_t search_count;
    struct erg_goal query; /* its bounds of memory and GPUs are those of the searches */
    bool whole_union;      /* also the frontier over all layouts */
    size_t most;           /* layouts that are solved, at least 1 */
    size_t more;           /* beyond them where the query itself is not proven yet */
    double tolerance;      /* as a share: 0.002 */
};

struct erg_layout_choice {
    struct erg_layout_planned {
        struct erg_layout_candidate candidate;
        struct erg_layout_frontier frontier;
    } * layouts;                       /* that were solved, in that order */
    struct erg_layout_option *options; /* the same, for erg_layout_pick() and erg_layout_union() */
    size_t count;
    uint64_t fitting; /* layouts that were bounded */
    /* The best point of every layout that has a point within the query; the best layout first. */
    struct erg_layout_pick *picks;
    size_t pick_count;
    double gap;       /* of the query's time or energy, as a share */
    double union_gap; /* of energy, at the worst of the union's deadlines; 0 without whole_union */
};

/*
 * Some hundred microseconds a layout that fits, milliseconds for each whose bound is raised (up to
 * seconds for a long pipeline near its fastest time), and up to seconds for each that is solved.
 * ERG_INFEASIBLE when no layout fits the GPUs or none is within the query's bounds; then the
 * message names the bound that binds and the nearest layout. Interruptible; reports progress. To be
 * released, also after ERG_INFEASIBLE.
 */
int erg_layout_choose(struct erg_layout_choice *choice,
                      const struct erg_layout_choice_request *request, struct erg_error *err);

/* The same for one layout, without regard to others. Takes ownership of the candidate. */
int erg_layout_choose_point(struct erg_layout_choice *choice,
                            const struct erg_layout_choice_request *request,
                            struct erg_layout_candidate *candidate, struct erg_error *err);

void erg_layout_choice_release(struct erg_layout_choice *choice);

/* One number of GPUs among others, of several kinds on given ones of them. */
struct erg_layout_count {
    bool fits; /* else nothing else is set */
    struct erg_layout_candidate fastest;
    bool on_frontier; /* of all layouts: nothing beats one of its points in time and energy */
};

/* counts[search_count], of the searches of a choice over the whole union. To be released. */
int erg_layout_counts_init(struct erg_layout_count *counts,
                           const struct erg_layout_choice_request *request,
                           const struct erg_layout_choice *choice, struct erg_error *err);
void erg_layout_counts_release(struct erg_layout_count *counts, size_t count);

#endif
