/*
 * Survey: everything about a workload that has to be measured before planning.
 *
 * For every clock: a whole layer run sequentially and nanobatched, forward and backward, and the
 * work outside layers. For every partition type: a search over its schedules. All measurements go
 * through the lab, so a survey that was killed goes on where it was.
 */
#ifndef ERG_OPTIMIZE_SURVEY_H
#define ERG_OPTIMIZE_SURVEY_H

#include "job/job.h"
#include "microbatch/microbatch.h"
#include "optimize/lab.h"
#include "partition/partition.h"
#include "search/search.h"

#include <stdbool.h>

struct erg_survey_request {
    struct erg_lab *lab;
    const struct erg_workload *workload;
    const struct erg_job *job;
    const struct erg_gpu *gpu; /* of the job; its search clocks are those of the survey */
    bool whole_sequential, whole_nanobatch, partitions; /* the data that the methods need */
    bool ends; /* of instructions, too; false for a stack whose measured overhead has them in it */
};

struct erg_survey {
    int *clocks_mhz; /* increasing */
    size_t clock_count;
    struct erg_cost *sequential[2], *nanobatch[2];  /* [clock_count] per layer; or NULL */
    struct erg_cost *nanobatch_single[2], *ends[2]; /* [clock_count], see the workload; or NULL */
    struct erg_cost *fixed[ERG_FIXED_COUNT];        /* [clock_count] */
    struct erg_space *spaces;                       /* [partition types] */
    struct erg_search_result **searches;            /* [partition types] */
    size_t partition_count;
};

/* The job's settings for the search of a partition whose run has `run_ops` ops, on one of its
 * GPUs. */
struct erg_search_options erg_survey_search_options(const struct erg_job *job,
                                                    const struct erg_gpu *gpu, size_t run_ops);

/* The job's settings for measurements. */
struct erg_profile_options erg_survey_profile_options(const struct erg_job *job);

int erg_survey_run(struct erg_survey *survey, const struct erg_survey_request *request,
                   struct erg_error *err);
void erg_survey_release(struct erg_survey *survey);

/*
 * Measures the given configurations (pairs of partition type and config) that were only predicted,
 * and refines the tables with them. *added counts them.
 */
struct erg_survey_pick {
    size_t partition, config;
};
int erg_survey_verify(struct erg_survey *survey, const struct erg_survey_request *request,
                      const struct erg_survey_pick *picks, size_t count, size_t *added,
                      struct erg_error *err);

/*
 * The composition of the partitions of an instruction of `layers` layers (backward: with the replay
 * when the workload recomputes), short of its ends where these are surveyed. measured_only keeps
 * configurations that were measured. Free with erg_layer_free().
 */
struct erg_layer *erg_survey_compose(const struct erg_survey *survey,
                                     const struct erg_survey_request *request, int layers,
                                     bool backward, bool measured_only);

#endif
