/*
 * Run ways: the ways to run a step that a plan has, to be tried on steps of a run (run/trials.h):
 * the points of all its methods that differ in what is launched, and where clocks are set, in
 * clocks. Sequential execution is the first, the reference; the plan's model orders the others.
 */
#ifndef ERG_TRAIN_RUN_RUN_WAYS_H
#define ERG_TRAIN_RUN_RUN_WAYS_H

#include "plan/plan.h"
#include "train/run/trials.h"

struct erg_run_way {
    enum erg_method method;
    size_t point;            /* of its points, from 0 */
    double time_s, energy_j; /* of an iteration of one pipeline, as planned */
};

/* The name of a plan's selection that trials found; trials are not repeated for it. */
extern const char erg_run_ways_rule[];

/*
 * The ways of a plan that has sequential execution; how many. The most promising come first: by
 * time, or where clocks are set, by the goal's objective if they are planned to keep its bound.
 */
size_t erg_run_ways_list(struct erg_run_way ways[ERG_TRIALS_WAYS], const struct erg_plan *plan,
                         bool clocks, const struct erg_goal *goal);

/* The index of the way that runs as the plan's selected point does; `count`: none. */
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
