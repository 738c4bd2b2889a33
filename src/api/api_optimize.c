/* ergon/optimize.h: the main job for a program. */
#define ERGON_EXPERIMENTAL /* this library has what only some programs ask for */
#include "ergon/optimize.h"

#include "api/door.h"
#include "api/optimize_call.h"
#include "base/call.h"
#include "base/interrupt.h"
#include "base/sized.h"

struct plan_finding {
    const struct erg_job *job;
    struct erg_optimize_options options;
    struct erg_plan *plan;
};

int erg_optimize_call_take(struct erg_optimize_call *at, const struct erg_optimize_options *options,
                           struct erg_error *err)
{
    int device;
    double deadline_s, energy_j;
    if (erg_door_choice(&device, "device", options->device, ERG_WORDS_DEVICE, err) != 0 ||
        erg_door_amount(&deadline_s, "deadline_s", options->deadline_s, err) != 0 ||
        erg_door_amount(&energy_j, "energy_j", options->energy_j, err) != 0 ||
        erg_optimize_call_methods(at, options->methods, err) != 0)
        return -1;
    at->folder = options->folder;
    at->cuda = device == ERG_DOOR_CUDA;
    at->lock_clocks = options->lock_clocks != 0;
    if (options->deadline_s > 0 && options->energy_j > 0)
        return erg_fail(err, ERG_USAGE, "%s were both given; expected one of them",
                        at->dashes ? "--deadline and --energy-budget" : "deadline_s and energy_j");
    if (at->lock_clocks && !at->cuda)
        return erg_fail(err, ERG_USAGE,
                        "%s: the clocks of an emulated GPU cannot be locked; expected %s",
                        at->dashes ? "--lock-clocks" : "lock_clocks",
                        at->dashes ? "--device cuda" : "the device \"cuda\"");
    return 0;
}

void erg_optimize_call_set_goal(struct erg_job *job, const struct erg_optimize_options *options)
{
    if (options->deadline_s > 0)
        job->goal = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = options->deadline_s};
    if (options->energy_j > 0)
        job->goal = (struct erg_goal){ERG_FASTEST, .energy_j = options->energy_j};
}

static int find(void *argument, struct erg_error *err)
{
    struct plan_finding *at = argument;
    const struct erg_job *job = at->job;
    struct erg_job *own = NULL;
    struct erg_optimize_call run = {.hint = job->path};
    int status = erg_optimize_call_take(&run, &at->options, err) ||
                 erg_job_parse(&own, job->path, job->text, job->text_length, NULL, err);
    if (!status) {
        erg_optimize_call_set_goal(own, &at->options);
        run.job = own;
        status = erg_optimize_call_open(&run, err);
    }
    if (!status && (!run.real || erg_real_device(run.real)))
        status = erg_optimize_call_run(&run, err);
    at->plan = status ? NULL : run.plan;
    if (!status)
        run.plan = NULL;
    erg_optimize_call_release(&run);
    erg_job_free(own);
    if (status)
        erg_interrupt_explain(err);
    return status ? -1 : 0;
}

int erg_optimize_job(struct erg_plan **plan, const struct erg_job *job,
                     const struct erg_optimize_options *options, struct erg_error *err)
{
    struct plan_finding at = {.job = job};
    if (erg_sized_take(&at.options, sizeof at.options, options, "erg_optimize_options", err) != 0 ||
        erg_call_run(find, &at, at.options.watch, err) != 0)
        return -1;
    *plan = at.plan;
    return 0;
}
