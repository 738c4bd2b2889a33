/* Shared by the files of reading a plan only. */
#ifndef ERG_OPTIMIZE_PLAN_FILE_INTERNAL_H
#define ERG_OPTIMIZE_PLAN_FILE_INTERNAL_H

#include "io/json.h"
#include "optimize/plan_file.h"

enum { ERG_PLAN_MOST_COUNT = 100000000 }; /* of anything counted in a job */

struct erg_plan_reader {
    struct erg_plan_file *plan;
    struct erg_json_place root, job;
    const json_t *partitions, *stages;
};

/* plan_file_job.c: what the plan is of. Schema and version, the job, its GPUs, the list of
 * partitions; fills the pipeline and the scale short of the powers, which the stages' GPUs say. */
int erg_plan_read_job(struct erg_plan_reader *reader, struct erg_pipeline *pipeline,
                      struct erg_error *err);

/* plan_file_stages.c: the stages, their layers, their kinds of GPUs and their options. */
int erg_plan_read_stages(struct erg_plan_reader *reader, struct erg_pipeline *pipeline,
                         struct erg_error *err);

/* A value that must be there and positive; the largest double keeps infinity out. */
int erg_plan_positive(const struct erg_json_place *place, const char *key, double *value,
                      struct erg_error *err);

/* The powers of waiting and static ones, once it is known which stages lie where. */
void erg_plan_find_powers(struct erg_plan_file *plan, struct erg_pipeline *pipeline);

#endif
