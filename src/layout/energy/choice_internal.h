/* Shared by choice.c, solving.c, target.c, contender.c, union.c and polish.c only. */
#ifndef ERG_LAYOUT_ENERGY_CHOICE_INTERNAL_H
#define ERG_LAYOUT_ENERGY_CHOICE_INTERNAL_H

#include "layout/energy/bound.h"
#include "layout/energy/choice.h"
#include "layout/energy/mixed_rows.h"

/* Tenths of a per cent of energy are lost to so few clocks, and half of the time is saved. */
enum { ERG_LAYOUT_CHOICE_CLOCKS = 6 };

/* The union is proven at deadlines that are so far apart, and shown at such, as shares. */
#define ERG_LAYOUT_PROVEN_STEP 0.08
#define ERG_LAYOUT_SHOWN_STEP 0.015

/* Some megabytes. */
enum { ERG_LAYOUT_PRICES = 64 };

/* A layout that may be the best of a target. */
struct erg_layout_contender {
    struct erg_layout_candidate candidate; /* its lists are the choice's once it is solved */
    size_t references;                     /* of entries, and of those that are solved */
    struct erg_layout_bound bound;         /* exact, from when it is first asked for; else empty */
    size_t priced;                         /* it has seen so many of the prices that were made */
    bool solved;
    size_t option; /* of the choice, where it is solved */
    /* At which it is to be solved: what must be met, and what shows its frontier. */
    struct erg_layout_times {
        double *items;
        size_t count, capacity;
    } deadlines, times;
};

struct erg_layout_entry {
    double bound;     /* of the target's objective */
    bool settled;     /* it cannot be raised */
    size_t evaluated; /* when so many prices and one were made; 0: never */
    struct erg_layout_contender *contender;
};

/* A question to all layouts: the query, the least energy within a deadline, or what is nearest to a
 * bound that none keeps. */
enum { ERG_LAYOUT_KEPT = 128 };
struct erg_layout_target {
    struct erg_goal query;
    struct erg_layout_entry entries[ERG_LAYOUT_KEPT + 1]; /* the lowest bound first */
    size_t count;
    bool shows;       /* of the union: it need not be met to the last bit */
    double tolerance; /* with which it is proven */
    double dropped;   /* the lowest bound of those that had no place */
    double best;      /* of the layouts that were solved */
};

struct erg_layout_choosing {
    const struct erg_layout_choice_request *request;
    struct erg_layout_choice *choice;
    struct {
        struct erg_layout_target *items; /* the query's first */
        size_t count, capacity;
    } targets;
    struct { /* of layouts whose bounds were raised, a ring of at most ERG_LAYOUT_PRICES */
        struct erg_prices *items;
        size_t count, capacity, made; /* made: of all times */
    } prices;
    struct erg_mixed_rows rows;           /* of the search at hand, on several kinds */
    struct erg_layout_ladder ladder;      /* of the layout that came last */
    struct erg_layout climber;            /* whose degrees the ladder has; tensor 0: none yet */
    struct erg_layout_contender **solved; /* by option */
};

/* ---- contenders (contender.c) ---- */

/* With a reference. Takes copies of the candidate's lists. */
struct erg_layout_contender *erg_layout_contender_new(const struct erg_layout_candidate *candidate);
void erg_layout_contender_drop(struct erg_layout_contender *contender);

/* The bound of a layout that comes by, without its schedule followed. To be released. */
void erg_layout_choosing_bound(struct erg_layout_bound *bound, struct erg_layout_choosing *at,
                               const struct erg_layout_candidate *candidate, bool exact);

/* Makes a contender's bound exact and raises it by prices that it has not seen yet. Several
 * contenders may be priced at the same time. */
void erg_layout_entry_price(struct erg_layout_entry *entry, const struct erg_layout_choosing *at,
                            const struct erg_goal *query);

/*
 * Raises a priced contender's bound as far as `enough` of a query's objective, or to the optimum.
 * `prices`: what others may learn from it, to be released. Several contenders may be raised at the
 * same time.
 */
int erg_layout_entry_raise(struct erg_layout_entry *entry, const struct erg_layout_choosing *at,
                           const struct erg_goal *query, double enough, struct erg_prices *prices,
                           struct erg_error *err);

/* ---- targets (target.c) ---- */

/* Called with the choosing and every layout that fits: enters it for each target of which it may be
 * the best. */
void erg_layout_choosing_consider(void *context, const struct erg_layout_candidate *candidate);

/* Called with the choosing: whether a layout with this bound may have a place in any target's
 * entries. */
bool erg_layout_choosing_wants(void *context, const struct erg_layout_bound *bound);

/* Seconds beyond which nothing is asked; 0: there is no such bound. */
double erg_layout_choosing_limit(const struct erg_layout_choosing *at);

void erg_layout_choosing_add(struct erg_layout_choosing *at, struct erg_goal query, bool shows);
void erg_layout_choosing_release_targets(struct erg_layout_choosing *at);

/* Until no layout can be better than the first entry, or none by more than the tolerance. Fails
 * only when interrupted. */
int erg_layout_target_settle(struct erg_layout_choosing *at, struct erg_layout_target *target,
                             struct erg_error *err);

/* The first entry's reference is the caller's then. */
struct erg_layout_contender *erg_layout_target_take_first(struct erg_layout_target *target);

/* How much better a layout that was not solved could be; INFINITY while none was within bounds. */
double erg_layout_target_gap(const struct erg_layout_target *target);
bool erg_layout_target_is_open(const struct erg_layout_target *target);

/* ---- solving (solving.c) ---- */

/* Solves what targets ask for until they are proven, or so many layouts as the request says are
 * solved. */
int erg_layout_choosing_solve_promising(struct erg_layout_choosing *at, struct erg_error *err);

/* Solves one layout for all targets. Takes the reference. */
int erg_layout_choosing_solve_one(struct erg_layout_choosing *at,
                                  struct erg_layout_contender *contender, struct erg_error *err);

/* Solves what was solved again where the union of the frontiers has a step between two points, or
 * where another layout could do better there (union.c). */
int erg_layout_choosing_show(struct erg_layout_choosing *at, struct erg_error *err);

/* Solves those layouts again that are asked for more. */
int erg_layout_choosing_solve_again(struct erg_layout_choosing *at, struct erg_error *err);

/* So many points of one layout's frontier, and those that the contender asks for; `tries`: to
 * compare it. */
int erg_layout_choosing_solve(struct erg_layout_frontier *frontier,
                              const struct erg_layout_choice_request *asked,
                              const struct erg_layout_contender *contender, size_t points,
                              bool tries, struct erg_error *err);

/* The best plan of the picks is searched harder where that could save energy that matters. */
int erg_layout_choosing_polish(struct erg_layout_choosing *at, struct erg_error *err);

#endif
