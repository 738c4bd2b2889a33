/*
 * What Gavel and Sia have in common in Arena's published comparison, which departs from their
 * papers: tables of who has which configuration, the search for a better one, and how a decision is
 * carried out.
 */
#ifndef ERG_RESEARCH_TABLES_H
#define ERG_RESEARCH_TABLES_H

#include "cluster/schedule/policy.h"

/* How many jobs one decision may change beside the one that it admits. */
enum { REPLAY_CHANGES_MOST = 3 };

/* The best locality of the GPUs that a job is to have; -1: there is none. */
struct replay_change {
    int job, shape;
};

/*
 * Moves running jobs, in this order, and then places a waiting one: on those shapes or, where there
 * is no room, on twice as many nodes, where they run by these speeds. False, and nothing has
 * changed, where one finds no room.
 */
bool replay_apply(struct erg_scheduler *scheduler, const struct replay_change *changes, int count,
                  const struct replay_change *admitted, const struct erg_speeds *speeds);

/* ---- tables ---- */

/* An admitted job, and its configuration: a number with a meaning that is the policy's own. */
struct replay_row {
    int job, now;
};

struct replay_table {
    struct replay_row *items; /* in the order of admission */
    size_t count, capacity;
};

/* Leaves out the jobs that run no more. */
void replay_table_forget_ended(struct replay_table *table, const struct erg_scheduler *scheduler);

struct replay_gpus {
    int type, count;
};

/* A job that could have another configuration. */
struct replay_move {
    int row, to;
    struct replay_gpus gives, takes;
    double gain;
    double bound; /* at most that much to a table with others, too; what moves are sorted by */
};

struct replay_moves {
    struct replay_move *items;
    size_t count, capacity;
};

/* The largest bound first. */
void replay_moves_sort(struct replay_moves *moves);

/*
 * The search for the best table with no more than most_count moves. Of equally good ones it takes
 * that in which the oldest jobs have the first configurations, and then the new one.
 */
struct replay_search {
    const struct replay_table *table;
    const struct replay_moves *moves; /* sorted */
    int types, *left;                 /* by type: GPUs that the table leaves */
    double equal;                     /* values this close are */
    int most_count;
    int entry; /* of the new job in the tables that are tried next; -1: none */

    double best_value; /* -INFINITY at first */
    int best_entry, best_count, best[REPLAY_CHANGES_MOST];

    int count, chosen[REPLAY_CHANGES_MOST]; /* while it searches */
};

/* Tries all tables with the entry, which is worth `value`, and with moves at most `most`. */
void replay_search_try(struct replay_search *search, double value, double most);

/* A row that was changed, and its configuration before. */
struct replay_changed {
    int row, before;
};

/* Makes the best moves in the table; their rows in order, best_count of them. */
void replay_table_change(struct replay_table *table, const struct replay_search *search,
                         struct replay_changed *changed);

#endif
