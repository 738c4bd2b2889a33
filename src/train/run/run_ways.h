/*
 * Run ways: the ways to run a step in a plan, for trials on steps of a run (run/trials.h): the
 * points of all its methods that differ in their launches or, if clocks are set, in clocks.
 * Sequential execution is the first, the reference; the plan's model orders the others.
 */
#ifndef ERG_TRAIN_RUN_RUN_WAYS_H
#define ERG_TRAIN_RUN_RUN_WAYS_H

#include "plan/plan.h"
#include "train/run/trials.h"

struct erg_run_way {
    enum erg_method method;
    size_t point;            /* index of the point, from 0 */
    double time_s, energy_j; /* planned, for an iteration of one pipeline */
};

/* The rule of a plan's selection by trials; such a plan needs no further trials. */
extern const char erg_run_ways_rule[];

/*
 * The ways of a plan that has sequential execution; returns their number. The most promising come
 * first: by time or, if clocks are set, by the goal's objective if the plan meets its bound.
 */
size_t erg_run_ways_list(struct erg_run_way ways[ERG_TRIALS_WAYS], const struct erg_plan *plan,
                         bool clocks, const struct erg_goal *goal);

/* The index of the way with the launches of the plan's selected point; `count`: none. */
size_t erg_run_ways_find(const struct erg_run_way *ways, size_t count, const struct erg_plan *plan,
                         bool clocks);

/* "sequential", "ergon point 3" */
void erg_run_way_name(struct erg_text *out, const struct erg_run_way *way,
                      const struct erg_plan *plan);

/* The results of trials, as an object and as a sentence. */
json_t *erg_run_ways_document(const struct erg_run_way *ways, const struct erg_trials *trials,
                              const struct erg_plan *plan);
void erg_run_ways_say(struct erg_text *out, const json_t *document);

#endif
