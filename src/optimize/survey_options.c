/* How a job wants its survey: the search of a partition, and how measurements are made. */
#include "optimize/survey.h"

struct erg_search_options erg_survey_search_options(const struct erg_job *job,
                                                    const struct erg_gpu *gpu, size_t run_ops)
{
    struct erg_search_options options;
    erg_search_defaults(&options, job->search.method, run_ops);
    if (job->search.budget > 0)
        options.budget = (size_t)job->search.budget;
    if (job->search.start > 0)
        options.start = (size_t)job->search.start;
    if (job->search.batch > 0)
        options.batch = (size_t)job->search.batch;
    if (job->search.prior == ERG_JOB_EMULATOR_PRIOR)
        options.sweep_clocks = 3; /* a prior without a sweep has an unusable worst case */
    if (job->search.sweep_clocks >= 0)
        options.sweep_clocks = (size_t)job->search.sweep_clocks;
    if (options.method != ERG_SEARCH_GP)
        options.sweep_clocks = 0;
    if (options.minimum > options.budget)
        options.minimum = options.budget;
    if (options.start > options.budget)
        options.start = options.budget;
    options.seed = job->search.seed;
    options.blocking_power_w = gpu->blocking_power_w;
    return options;
}

struct erg_profile_options erg_survey_profile_options(const struct erg_job *job)
{
    struct erg_profile_options options = erg_profile_options_default();
    if (job->profiler.window_s >= 0)
        options.window_s = job->profiler.window_s;
    if (job->profiler.cooldown_s >= 0)
        options.cooldown_s = job->profiler.cooldown_s;
    if (job->profiler.warmup_s >= 0)
        options.warmup_s = job->profiler.warmup_s;
    return options;
}
