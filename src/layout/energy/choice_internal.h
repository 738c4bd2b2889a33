/* Shared by choice.c, choice_question.c and choice_solve.c only. */
#ifndef ERG_LAYOUT_ENERGY_CHOICE_INTERNAL_H
#define ERG_LAYOUT_ENERGY_CHOICE_INTERNAL_H

#include "layout/energy/bound.h"
#include "layout/energy/choice.h"
#include "layout/energy/mixed_rows.h"

/* The number of clocks: so few cost tenths of a per cent of energy, and save half of the time. */
enum { ERG_LAYOUT_CHOICE_CLOCKS = 6 };

/* A layout that may be the answer to a question. */
struct erg_bounded_layout {
    struct erg_layout_candidate candidate; /* the choice owns its lists once it is solved */
    size_t references;                     /* held by entries and by the list of solved layouts */
    struct erg_layout_bound bound;         /* exact after the first request; empty before */
    bool solved;
    size_t option; /* its index in the choice, if it is solved */
    /* The deadlines for its solution: those to meet, and those to show its frontier. */
    struct erg_layout_deadlines {
        double *items;
        size_t count, capacity;
    } deadlines, times;
};

/*
 * A question about all layouts: the query, the least energy within a deadline, or the layout
 * nearest to a bound that none meets.
 */
enum { ERG_QUESTION_ENTRIES = 128 };
struct erg_layout_question {
    struct erg_goal query;
    struct erg_question_entry { /* the lowest bound first */
        double bound;           /* of the query's objective */
        bool settled;           /* its bound cannot be raised */
        struct erg_bounded_layout *layout;
    } entries[ERG_QUESTION_ENTRIES + 1];
    size_t count;
    bool of_union;    /* needs no exact answer */
    double tolerance; /* tolerance of its proof */
    double dropped;   /* the lowest bound among layouts without an entry */
    double best;      /* best value of the solved layouts */
};

struct erg_choice_state {
    const struct erg_layout_choice_request *request;
    struct erg_layout_choice *choice;
    struct {
        struct erg_layout_question *items; /* the query's first */
        size_t count, capacity;
    } questions;
    struct erg_mixed_rows rows;              /* of the current search, on several kinds */
    struct erg_layout_energy_request energy; /* on one kind */
    struct erg_clock_table table;            /* on one kind, for the latest layout */
    struct erg_layout table_degrees;         /* degrees of the table; tensor 0: none yet */
    struct erg_bounded_layout **solved;      /* by option */
};

/* ---- questions (choice_question.c) ---- */

/* A layout with one reference. Copies the candidate's lists. */
struct erg_bounded_layout *erg_bounded_layout_new(const struct erg_layout_candidate *candidate);
void erg_bounded_layout_drop(struct erg_bounded_layout *layout);

/*
 * Makes a layout's bound exact, or raises an exact one up to `enough` of the query's objective or
 * to the optimum. Several layouts may be raised at the same time.
 */
int erg_question_raise(struct erg_question_entry *entry, const struct erg_choice_state *at,
                       const struct erg_goal *query, double enough, struct erg_error *err);

void erg_question_add(struct erg_choice_state *at, const struct erg_goal *query, bool of_union);
void erg_questions_release(struct erg_choice_state *at);

/* Called with the state and every layout that fits: adds it to each question that it may answer. */
void erg_questions_consider(void *context, const struct erg_layout_candidate *candidate);

/* Whether a layout with this bound may become an entry of any question. */
bool erg_questions_want(struct erg_choice_state *at, const struct erg_layout_bound *bound);

/*
 * Raises bounds until no layout can be better than the first entry, or none by more than the
 * tolerance. Fails only when interrupted.
 */
int erg_question_settle(struct erg_choice_state *at, struct erg_layout_question *question,
                        struct erg_error *err);

/* Removes the first entry; the caller gets its reference. */
struct erg_bounded_layout *erg_question_take_first(struct erg_layout_question *question);

/* How much better an unsolved layout could be; INFINITY while no solved layout is within bounds. */
double erg_question_gap(const struct erg_layout_question *question);

/* ---- plans (choice_solve.c) ---- */

/* Solves layouts until the answers of all questions are proven, or until the request's limit on
 * solved layouts is reached. */
int erg_choice_solve(struct erg_choice_state *at, struct erg_error *err);

/* Solves one layout for all questions. Takes the reference. */
int erg_choice_solve_one(struct erg_choice_state *at, struct erg_bounded_layout *layout,
                         struct erg_error *err);

/*
 * Solves layouts again where the union of the frontiers has a step between two points, or where
 * another layout could be better. Each layout was solved at its own deadlines, so between two
 * points another one may be better than the union shows. The optimum of its continuous problem
 * gives each layout's potential at all times.
 */
int erg_choice_fill_union(struct erg_choice_state *at, struct erg_error *err);

#endif
