/*
 * Optimize: the main job. From a job to the time-energy frontier of its training iteration, the
 * comparison with the baselines, and the plan with the recipe of every point.
 *
 *   workload -> survey (measure, search) -> options per stage and direction -> frontier
 *            -> measure predicted configurations that the plans use, plan again -> plan document
 *
 * Every measurement goes through one store, so that a killed run goes on where it was and reaches
 * the same result.
 */
#ifndef ERG_OPTIMIZE_H
#define ERG_OPTIMIZE_H

#include "device/device.h"
#include "ergon/error.h"
#include "job/job.h"
#include "optimize/methods.h"

#include <stdbool.h>

struct erg_optimize_request {
    const struct erg_job *job;
    bool methods[ERG_METHOD_COUNT]; /* which to report */
    const char *store_path;         /* ":memory:": nothing is kept */
    struct erg_device *device;      /* real GPUs to measure on; NULL: the job's GPU, emulated */
};

/*
 * Whether the job can be planned so: its weights are not sharded (FSDP). And whether a real device
 * (NULL: an emulated one) can run the job's plans: its kernels recompute nothing or whole layers,
 * and do not offload. Warns when its GPUs differ from the job's: the assumed constants (idle and
 * blocking power, links, clocks, the emulator's prior) then belong to another GPU.
 */
int erg_optimize_check_device(const struct erg_job *job, const struct erg_device *device,
                              struct erg_error *err);

/*
 * The plan, to be freed by erg_plan_free(). ERG_INFEASIBLE when no point of the chosen method
 * satisfies the job's goal; the message names the bound that binds.
 */
int erg_optimize(const struct erg_optimize_request *request, struct erg_plan **plan,
                 struct erg_error *err);

#endif
