/* Survey: measures whole layers at every clock, and searches each partition's schedules. */
#include "optimize/survey.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/thread.h"
#include "device/emulated/emulated.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whole layers, ends of instructions or fixed work, to be measured at every clock. */
struct survey_sweep {
    char name[48];
    const struct erg_steps *steps;
    struct erg_cost *costs; /* [clock_count] */
};

enum { MAX_SWEEPS = 8 + ERG_FIXED_COUNT };

struct survey_run {
    struct erg_survey *survey;
    const struct erg_survey_request *request;
    struct survey_sweep sweeps[MAX_SWEEPS];
    size_t sweep_count;
};

/* ---- a job's settings ---- */

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

/* ---- one partition ---- */

struct search_context {
    const struct erg_survey_request *request;
    const struct erg_partition *partition;
    const struct erg_space *space;
    struct erg_device *device;
    size_t done, expected; /* measurements; a search may stop before all it may make */
};

static void count_progress(struct search_context *search)
{
    if (search->expected && ++search->done < search->expected)
        erg_progress(search->partition->key, search->done, search->expected);
}

static struct erg_step step_of(const struct search_context *search, size_t config, int *clock_mhz,
                               struct erg_lab_name *name)
{
    struct erg_choice choice = erg_space_choice(search->space, config);
    int sms = search->space->sms[choice.sm];
    *clock_mhz = search->space->clocks_mhz[choice.clock];
    *name = (struct erg_lab_name){search->partition->key,
                                  search->partition->slots[choice.slot].name, sms, false};
    return erg_partition_step(search->partition, choice.slot, sms);
}

static int measure_by(struct search_context *search, size_t config, bool time_only,
                      struct erg_measurement *out, struct erg_error *err)
{
    int clock_mhz;
    struct erg_lab_name name;
    struct erg_step step = step_of(search, config, &clock_mhz, &name);
    name.time_only = time_only;
    if (erg_interrupt_check(err) ||
        erg_lab_measure(search->request->lab, search->device, name, &step, 1, clock_mhz, out, err))
        return -1;
    count_progress(search);
    return 0;
}

static int measure(void *context, size_t config, struct erg_measurement *out, struct erg_error *err)
{
    return measure_by(context, config, false, out, err);
}

static int measure_time(void *context, size_t config, struct erg_measurement *out,
                        struct erg_error *err)
{
    return measure_by(context, config, true, out, err);
}

/* The model of the device as a prior, under scaled constants. */
static int predict(void *context, const double *log_factors, const size_t *configs, size_t count,
                   double *time_s, double *energy_j, struct erg_error *err)
{
    const struct search_context *search = context;
    struct erg_gpu gpu;
    struct erg_stack stack;
    erg_emulated_calibrate(search->request->gpu, search->request->job->stack, log_factors, &gpu,
                           &stack);
    for (size_t i = 0; i < count; i++) {
        int clock_mhz;
        struct erg_lab_name name;
        struct erg_step step = step_of(search, configs[i], &clock_mhz, &name);
        struct erg_emulated_result result;
        if (erg_emulated_run(&gpu, &stack, &step, 1, clock_mhz, &result, err))
            return -1;
        time_s[i] = result.time_s;
        energy_j[i] = result.energy_j;
    }
    return 0;
}

static int search_partition(struct survey_run *run, size_t index, struct erg_error *err)
{
    const struct erg_survey_request *request = run->request;
    struct erg_survey *survey = run->survey;
    const struct erg_partition *partition = &request->workload->partitions[index];
    struct search_context context = {
        .request = request, .partition = partition, .space = &survey->spaces[index]};
    if (erg_lab_bench(request->lab, &context.device, err))
        return -1;

    size_t parameter_count = 0;
    const struct erg_calibratable *parameters = erg_emulated_calibratables(&parameter_count);
    double *parameter_sd = erg_xcalloc(parameter_count, sizeof *parameter_sd);
    for (size_t i = 0; i < parameter_count; i++)
        parameter_sd[i] = parameters[i].log_sd;
    struct erg_prior prior = {predict, &context, parameter_count, parameter_sd};

    struct erg_search_options options =
        erg_survey_search_options(request->job, request->gpu, partition->run_ops);
    options.seed = erg_hash_u64(request->job->search.seed, erg_hash_text(partition->key));
    if (request->job->search.prior == ERG_JOB_EMULATOR_PRIOR)
        options.prior = &prior;
    context.expected =
        options.budget + options.sweep_clocks * partition->sms_count * partition->slot_count;
    if (options.method == ERG_SEARCH_EXHAUSTIVE || context.expected > erg_space_size(context.space))
        context.expected = erg_space_size(context.space);
    struct erg_oracle oracle = {measure, measure_time, &context};
    double start_s = erg_cpu_seconds();
    int status =
        erg_search_run(&survey->searches[index], &survey->spaces[index], &options, &oracle, err);
    double cpu_s = erg_cpu_seconds() - start_s;
    erg_progress(partition->key, context.expected, context.expected);
    if (!status) {
        erg_log(ERG_LOG_INFO,
                "%s: %zu of %zu configurations measured, %zu times swept, in %.2f CPU s",
                partition->key, survey->searches[index]->evaluation_count,
                survey->searches[index]->config_count, survey->searches[index]->swept_count, cpu_s);
    } else {
        erg_fail_context(err, "searching partition %s", partition->key);
    }
    free(parameter_sd);
    erg_lab_bench_close(request->lab, context.device);
    return status;
}

/* ---- whole layers and fixed work ---- */

struct sweep_context {
    const struct survey_run *run;
    const struct survey_sweep *sweep;
    struct erg_device *device;
    size_t done;
};

static int measure_layer(void *context, size_t clock, struct erg_measurement *out,
                         struct erg_error *err)
{
    struct sweep_context *c = context;
    const struct survey_sweep *sweep = c->sweep;
    if (erg_interrupt_check(err) ||
        erg_lab_measure(c->run->request->lab, c->device,
                        (struct erg_lab_name){.task = sweep->name, .slot = ""}, sweep->steps->steps,
                        sweep->steps->count, c->run->survey->clocks_mhz[clock], out, err))
        return -1;
    erg_progress(sweep->name, ++c->done, c->run->survey->clock_count);
    return 0;
}

/*
 * Measures at every clock, once where the GPU is held at one below. The posterior mean of a
 * Gaussian process over the clocks is kept: a planner that chose among raw readings would pick the
 * lucky ones and promise too much.
 */
static int run_sweep(struct survey_run *run, const struct survey_sweep *sweep,
                     struct erg_error *err)
{
    struct sweep_context context = {run, sweep, NULL, 0};
    if (erg_lab_bench(run->request->lab, &context.device, err))
        return -1;
    static const int no_choice[] = {1};
    size_t clocks = run->survey->clock_count;
    struct erg_space space = {run->survey->clocks_mhz, clocks, no_choice, 1, 1};
    struct erg_search_options options;
    erg_search_defaults(&options, ERG_SEARCH_GP, 1);
    options.seed = erg_hash_u64(run->request->job->search.seed, erg_hash_text(sweep->name));
    options.blocking_power_w = run->request->gpu->blocking_power_w;
    options.budget = options.minimum = clocks;
    options.start = options.start < clocks ? options.start : clocks;
    options.stop_ratio = 0;
    options.sweep_clocks = 0;
    struct erg_oracle oracle = {measure_layer, NULL, &context};
    struct erg_search_result *search = NULL;
    int status = erg_search_run(&search, &space, &options, &oracle, err);
    for (size_t clock = 0; !status && clock < clocks; clock++)
        sweep->costs[clock] =
            (struct erg_cost){search->table[clock].time_s, search->table[clock].energy_j};
    erg_search_free(search);
    erg_lab_bench_close(run->request->lab, context.device);
    return status;
}

static void add_sweep(struct survey_run *run, const char *name, const struct erg_steps *steps,
                      struct erg_cost **costs)
{
    *costs = erg_xcalloc(run->survey->clock_count, sizeof **costs);
    if (!steps->count)
        return; /* nothing to run costs nothing */
    struct survey_sweep *sweep = &run->sweeps[run->sweep_count++];
    snprintf(sweep->name, sizeof sweep->name, "%s", name);
    sweep->steps = steps;
    sweep->costs = *costs;
}

static int run_piece(void *context, size_t i, struct erg_error *err)
{
    struct survey_run *run = context;
    if (i < run->survey->partition_count)
        return search_partition(run, i, err);
    return run_sweep(run, &run->sweeps[i - run->survey->partition_count], err);
}

/* ---- the door ---- */

/* A device that chooses its own clocks is measured at one only: the highest, from which it
 * starts. */
static void list_clocks(struct erg_survey *survey, const struct erg_gpu *gpu, bool fixed_clock)
{
    int step = gpu->search_step_mhz;
    survey->clock_count =
        fixed_clock ? 1 : (size_t)((gpu->search_max_mhz - gpu->search_min_mhz) / step + 1);
    survey->clocks_mhz = erg_xcalloc(survey->clock_count, sizeof *survey->clocks_mhz);
    for (size_t i = 0; i < survey->clock_count; i++)
        survey->clocks_mhz[i] = gpu->search_max_mhz - step * (int)(survey->clock_count - 1 - i);
}

static void list_spaces(struct survey_run *run)
{
    struct erg_survey *survey = run->survey;
    const struct erg_workload *workload = run->request->workload;
    survey->partition_count = workload->forward_count + workload->backward_count;
    survey->spaces = erg_xcalloc(survey->partition_count, sizeof *survey->spaces);
    survey->searches = erg_xcalloc(survey->partition_count, sizeof(struct erg_search_result *));
    for (size_t i = 0; i < survey->partition_count; i++) {
        const struct erg_partition *partition = &workload->partitions[i];
        survey->spaces[i] = (struct erg_space){
            survey->clocks_mhz,   survey->clock_count,   partition->sms,
            partition->sms_count, partition->slot_count,
        };
    }
}

int erg_survey_run(struct erg_survey *survey, const struct erg_survey_request *request,
                   struct erg_error *err)
{
    *survey = (struct erg_survey){0};
    const struct erg_workload *workload = request->workload;
    struct survey_run run = {.survey = survey, .request = request};
    list_clocks(survey, request->gpu, erg_lab_fixed_clock(request->lab));
    if (request->partitions)
        list_spaces(&run);
    const struct {
        bool wanted;
        const char *name;
        const struct erg_steps *steps; /* forward, backward */
        struct erg_cost **costs;
    } wholes[] = {
        {request->whole_sequential, "sequential layer", workload->sequential, survey->sequential},
        {request->whole_nanobatch, "nanobatched layer", workload->nanobatch, survey->nanobatch},
        {request->whole_nanobatch && request->ends, "single nanobatched layer",
         workload->nanobatch_single, survey->nanobatch_single},
        {request->partitions && request->ends, "ends", workload->ends, survey->ends},
    };
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
            char name[48];
            snprintf(name, sizeof name, "%s %s", wholes[i].name, d ? "backward" : "forward");
            if (wholes[i].wanted)
                add_sweep(&run, name, &wholes[i].steps[d], &wholes[i].costs[d]);
        }
    for (int fixed = 0; fixed < ERG_FIXED_COUNT; fixed++)
        add_sweep(&run, erg_fixed_name((enum erg_fixed)fixed), &workload->fixed[fixed],
                  &survey->fixed[fixed]);

    int status = erg_parallel_for(survey->partition_count + run.sweep_count,
                                  erg_lab_benches(request->lab), run_piece, &run, err);
    if (status)
        erg_survey_release(survey);
    return status;
}

void erg_survey_release(struct erg_survey *survey)
{
    for (int d = 0; d < 2; d++) {
        free(survey->sequential[d]);
        free(survey->nanobatch[d]);
        free(survey->nanobatch_single[d]);
        free(survey->ends[d]);
    }
    for (int fixed = 0; fixed < ERG_FIXED_COUNT; fixed++)
        free(survey->fixed[fixed]);
    for (size_t i = 0; i < survey->partition_count; i++)
        erg_search_free(survey->searches[i]);
    free(survey->searches);
    free(survey->spaces);
    free(survey->clocks_mhz);
    *survey = (struct erg_survey){0};
}

struct verification {
    struct erg_survey *survey;
    const struct erg_survey_request *request;
    const struct erg_survey_pick *picks;
    size_t count;
    atomic_size_t added;
};

static int verify_partition(void *context, size_t index, struct erg_error *err)
{
    struct verification *verification = context;
    struct erg_survey *survey = verification->survey;
    const struct erg_survey_request *request = verification->request;
    struct erg_search_result *search = survey->searches[index];
    struct search_context measured = {.request = request,
                                      .partition = &request->workload->partitions[index],
                                      .space = &survey->spaces[index]};
    if (erg_lab_bench(request->lab, &measured.device, err))
        return -1;
    int status = 0;
    for (size_t i = 0; !status && i < verification->count; i++) {
        const struct erg_survey_pick *pick = &verification->picks[i];
        if (pick->partition != index || search->table[pick->config].knowledge == ERG_MEASURED)
            continue;
        struct erg_measurement seen;
        status = measure(&measured, pick->config, &seen, err) ||
                         erg_search_add(search, pick->config, &seen, err)
                     ? -1
                     : 0;
        verification->added += !status;
    }
    erg_lab_bench_close(request->lab, measured.device);
    return status;
}

int erg_survey_verify(struct erg_survey *survey, const struct erg_survey_request *request,
                      const struct erg_survey_pick *picks, size_t count, size_t *added,
                      struct erg_error *err)
{
    struct verification verification = {survey, request, picks, count, 0};
    int status = erg_parallel_for(survey->partition_count, erg_lab_benches(request->lab),
                                  verify_partition, &verification, err);
    *added = verification.added;
    return status;
}

struct erg_layer *erg_survey_compose(const struct erg_survey *survey,
                                     const struct erg_survey_request *request, int layers,
                                     bool backward, bool measured_only)
{
    const struct erg_workload *workload = request->workload;
    size_t first = backward && !workload->replays_forward ? workload->forward_count : 0;
    size_t end = backward ? survey->partition_count : workload->forward_count;
    size_t clocks = survey->clock_count;
    struct erg_partition_table *tables = erg_xcalloc(end - first, sizeof *tables);
    struct erg_frontier *lists = erg_xcalloc((end - first) * clocks, sizeof *lists);
    for (size_t i = first; i < end; i++) {
        const struct erg_search_result *search = survey->searches[i];
        struct erg_frontier *own = lists + (i - first) * clocks;
        for (size_t config = 0; config < search->config_count; config++) {
            const struct erg_estimate *estimate = &search->table[config];
            if (estimate->knowledge < (measured_only ? ERG_MEASURED : ERG_PREDICTED))
                continue;
            struct erg_choice choice = erg_space_choice(&survey->spaces[i], config);
            /* Predictions enter one standard deviation worse than their mean, so that a plan leaves
             * a measured configuration only for a gain beyond doubt. It halves the later
             * measurements and costs less than 0.1 % of energy. */
            double doubt = estimate->knowledge == ERG_MEASURED ? 0 : 1;
            erg_frontier_add(&own[choice.clock], estimate->time_s * (1 + doubt * estimate->time_sd),
                             estimate->energy_j * (1 + doubt * estimate->energy_sd),
                             (int64_t)config);
        }
        tables[i - first] = (struct erg_partition_table){
            .occurrences =
                layers * workload->partitions[i].occurrences - (request->ends && i == first),
            .kernels = workload->partitions[i].kernels,
            .clocks = own,
        };
    }
    struct erg_host_model host = {request->job->stack->host_per_kernel_s,
                                  request->gpu->static_power_w};
    struct erg_layer *layer =
        erg_layer_compose(tables, end - first, clocks, &host, request->gpu->blocking_power_w);
    for (size_t i = 0; i < (end - first) * clocks; i++)
        erg_frontier_release(&lists[i]);
    free(lists);
    free(tables);
    return layer;
}
