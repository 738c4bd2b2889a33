/* Verify: runs the schedule of a plan on a stack of layers, and compares it with its parts. */
#include "verify/verify.h"

#include "base/log.h"
#include "base/random.h"
#include "device/emulated/emulated.h"
#include "optimize/optimize.h"
#include "optimize/survey.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double heat_s = 15; /* of work, until the GPUs are as hot as they will be */
static const double cost_tolerance = 0.03;
/* bf16 products are summed in another order, and each layer passes the difference on to the
 * next. */
static const double tensor_tolerance = 0.03;

/* Steps that are part of a composition, and how often. */
struct verify_piece {
    const char *name;
    const struct erg_step *steps;
    size_t count;
    int times;
};
enum { MOST_PIECES = ERG_VERIFY_PARTITIONS / 2 + 1 }; /* partitions of a direction, and the ends */

/* One way of running an instruction: in one go, and in pieces. */
struct way {
    struct erg_steps stack;
    struct verify_piece pieces[MOST_PIECES];
    struct erg_step single[MOST_PIECES]; /* where pieces are partitions */
    size_t count;
    enum erg_mode mode;
    int clock_mhz;
};

struct verifier {
    const struct erg_verify_request *request;
    struct erg_workload_request workload_request;
    struct erg_workload workload;
    struct erg_profile_options profiler;
    struct erg_device *device;
    const struct erg_plan_option *options[2]; /* of the plan, forward and backward */
    struct erg_verify_share shares[2];
    struct way ways[2][ERG_VERIFY_WAYS]; /* [backward] */
    size_t measured, expected;
};

const char *erg_verify_way_name(enum erg_verify_way way)
{
    static const char *const names[] = {"sequential", "nanobatching", "plan"};
    return names[way];
}

/* ---- the plan's configurations ---- */

/* Calibrated files of one kind of GPU have one name; the identity of an emulated one, which a plan
 * contains, also covers its constants. */
static bool has_other_constants(const char *identity, const struct erg_job *job)
{
    const char *planned = strstr(identity, "constants ");
    char constants[ERG_EMULATED_CONSTANTS_BYTES];
    erg_emulated_constants(job->gpu, job->stack, constants);
    return planned && strncmp(planned, constants, strlen(constants)) != 0;
}

static int check_plan(const struct erg_verify_request *request, struct erg_error *err)
{
    const struct erg_job *job = request->job;
    const struct erg_plan *plan = request->plan;
    const char *recompute = erg_recompute_name(job->layout.recompute);
    const char *model = plan->model ? plan->model : "a model that it does not name";
    if (request->layers > job->model->layers)
        return erg_fail(err, ERG_USAGE,
                        "verifying a plan: expected a stack of at most the %ld layers of %s, got "
                        "%d",
                        job->model->layers, job->model->name, request->layers);
    if (job->kind_count > 1 || plan->kind_count > 1)
        return erg_fail(err, ERG_USAGE,
                        "verifying a plan: stages of %s lie on GPUs of several kinds, expected a "
                        "job and a plan on one, on which a stack of layers is measured",
                        job->kind_count > 1 ? job->name : plan->name);
    const char *gpu = plan->kinds[0].gpu;
    if (!request->device && strcmp(gpu, job->gpu->name) != 0) /* its clocks and constants */
        return erg_fail(err, ERG_USAGE,
                        "verifying a plan: it is one for %s, expected one for %s, the GPU of the "
                        "job %s",
                        gpu, job->gpu->name, job->name);
    if (!request->device && has_other_constants(plan->kinds[0].identity, job))
        return erg_fail(err, ERG_USAGE,
                        "verifying a plan: it is one for a %s with other constants than the one of "
                        "the job %s; expected a plan that was made with this GPU's file",
                        gpu, job->name);
    const struct erg_layout *layout = &plan->layout;
    const char *planned = erg_layout_recompute_name(layout);
    if (!strcmp(model, job->model->name) && layout->tensor == job->layout.tensor &&
        layout->context == job->layout.context && layout->microbatch == job->layout.microbatch &&
        layout->sequence == job->layout.sequence && !strcmp(planned, recompute))
        return 0;
    return erg_fail(err, ERG_USAGE,
                    "verifying a plan: it is one of %s, tensor %ld, context %ld, microbatches of "
                    "%ld x %ld tokens, recomputation %s, expected a plan of the job %s",
                    model, layout->tensor, layout->context, layout->microbatch, layout->sequence,
                    planned, job->name);
}

/* Whether layers run alike: stages have options of their own, but may run the same. */
static bool runs_alike(const struct erg_plan_option *a, const struct erg_plan_option *b)
{
    if (a->mode != b->mode || a->clock_mhz != b->clock_mhz ||
        a->configuration_count != b->configuration_count)
        return false;
    for (size_t i = 0; i < a->configuration_count; i++) {
        const struct erg_plan_configuration *x = &a->configurations[i], *y = &b->configurations[i];
        if (x->sms != y->sms || strcmp(x->slot, y->slot) != 0 ||
            strcmp(x->partition, y->partition) != 0)
            return false;
    }
    return true;
}

/* The option that most instructions of a direction run at the selected point; of equally frequent
 * ones an overlapped one. */
static const struct erg_plan_option *choose_option(const struct erg_plan *plan, int direction,
                                                   struct erg_verify_share *share)
{
    const struct erg_plan_point *point =
        &plan->methods[plan->selected.method].points[plan->selected.point];
    const struct erg_plan_option *best = NULL;
    *share = (struct erg_verify_share){0};
    for (size_t i = 0; i < plan->schedule.count; i++) {
        if ((int)plan->schedule.instructions[i].direction != direction)
            continue;
        const struct erg_plan_option *option = erg_plan_option(plan, point, i);
        size_t uses = 0;
        for (size_t k = 0; k < plan->schedule.count; k++)
            uses += (int)plan->schedule.instructions[k].direction == direction &&
                    runs_alike(erg_plan_option(plan, point, k), option);
        share->instructions++;
        if (uses > share->uses ||
            (best && uses == share->uses && option->mode == ERG_MODE_OVERLAP &&
             best->mode != ERG_MODE_OVERLAP)) {
            share->uses = uses;
            best = option;
        }
    }
    return best;
}

/* ---- the ways ---- */

static void add_piece(struct way *way, const char *name, const struct erg_steps *steps, int times)
{
    assert(way->count < MOST_PIECES);
    way->pieces[way->count++] = (struct verify_piece){name, steps->steps, steps->count, times};
}

static void add_partitions(const struct verifier *v, struct way *way, bool backward,
                           const struct erg_launch *launches)
{
    const struct erg_workload *workload = &v->workload;
    bool replay = backward && v->workload.replays_forward;
    size_t first = backward && !replay ? workload->forward_count : 0;
    size_t end = workload->forward_count + (backward ? workload->backward_count : 0);
    for (size_t i = first; i < end; i++) {
        const struct erg_partition *partition = &workload->partitions[i];
        assert(way->count < MOST_PIECES);
        struct erg_step *step = &way->single[way->count];
        *step = (struct erg_step){.task = partition->task, .launch = launches[i]};
        int times = v->request->layers * partition->occurrences - (i == first);
        way->pieces[way->count++] = (struct verify_piece){partition->key, step, 1, times};
    }
    add_piece(way, "ends", &workload->ends[backward], 1);
}

static int make_sequential(struct verifier *v, struct way *way, bool backward,
                           struct erg_error *err)
{
    way->mode = ERG_MODE_SEQUENTIAL;
    add_piece(way, "layer", &v->workload.sequential[backward], v->request->layers);
    return erg_stage_sequential(&v->workload, &v->workload_request, v->request->layers, backward,
                                &way->stack, err);
}

static int make_nanobatched(struct verifier *v, struct way *way, bool backward,
                            struct erg_error *err)
{
    way->mode = ERG_MODE_NANOBATCH;
    add_piece(way, "layer", &v->workload.nanobatch[backward], v->request->layers - 1);
    add_piece(way, "single layer", &v->workload.nanobatch_single[backward], 1);
    return erg_stage_nanobatched(&v->workload, &v->workload_request, v->request->layers, backward,
                                 NULL, &way->stack, err);
}

static int make_overlapped(struct verifier *v, struct way *way, bool backward,
                           const struct erg_plan_option *option, struct erg_error *err)
{
    struct erg_launch launches[MOST_PIECES] = {0};
    assert(v->workload.forward_count + v->workload.backward_count <= MOST_PIECES);
    way->mode = ERG_MODE_OVERLAP;
    if (erg_plan_expand(option, &v->workload, &v->workload_request, v->request->layers, backward,
                        launches, &way->stack, err))
        return -1;
    add_partitions(v, way, backward, launches);
    return 0;
}

static int make_ways(struct verifier *v, bool backward, struct erg_error *err)
{
    struct way *ways = v->ways[backward];
    const struct erg_plan_option *option = v->options[backward];
    for (int i = 0; i < ERG_VERIFY_WAYS; i++)
        ways[i].clock_mhz =
            i == ERG_VERIFY_PLAN ? option->clock_mhz : v->request->job->gpu->search_max_mhz;
    struct way *plan = &ways[ERG_VERIFY_PLAN];
    if (make_sequential(v, &ways[ERG_VERIFY_SEQUENTIAL], backward, err) ||
        make_nanobatched(v, &ways[ERG_VERIFY_NANOBATCHING], backward, err))
        return -1;
    switch (option->mode) {
    case ERG_MODE_SEQUENTIAL:
        return make_sequential(v, plan, backward, err);
    case ERG_MODE_NANOBATCH:
        return make_nanobatched(v, plan, backward, err);
    case ERG_MODE_OVERLAP:
        return make_overlapped(v, plan, backward, option, err);
    }
    return 0;
}

/* ---- numbers ---- */

static int pass(struct verifier *v, enum erg_verify_way way, size_t number, struct erg_error *err)
{
    const struct erg_device_numbers *numbers = v->device->numbers;
    const struct erg_steps *forward = &v->ways[0][way].stack, *backward = &v->ways[1][way].stack;
    return numbers->clear(v->device, err) ||
                   erg_device_enqueue(v->device, forward->steps, forward->count, 1, err) ||
                   erg_device_enqueue(v->device, backward->steps, backward->count, 1, err) ||
                   erg_device_sync(v->device, err) || numbers->note(v->device, number, err)
               ? -1
               : 0;
}

static int compare_numbers(struct verifier *v, struct erg_verification *out, struct erg_error *err)
{
    static const enum erg_verify_way ways[] = {ERG_VERIFY_SEQUENTIAL, ERG_VERIFY_SEQUENTIAL,
                                               ERG_VERIFY_NANOBATCHING, ERG_VERIFY_PLAN};
    static const char *const names[] = {"sequential", "sequential again", "nanobatching", "plan"};
    static const size_t pairs[ERG_VERIFY_COMPARISONS][2] = {{1, 0}, {2, 0}, {3, 0}, {3, 2}};
    erg_device_begin(v->device, 0);
    const struct erg_device_numbers *numbers = v->device->numbers;
    if (v->request->repeatable && numbers->repeat(v->device, true, err))
        return -1;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (pass(v, ways[i], i, err))
            return erg_fail_context(err, "running %d layers, %s", v->request->layers, names[i]);
    for (size_t i = 0; i < ERG_VERIFY_COMPARISONS; i++) {
        struct erg_verify_comparison *comparison = &out->comparisons[i];
        comparison->way = names[pairs[i][0]];
        comparison->reference = names[pairs[i][1]];
        if (numbers->compare(v->device, pairs[i][0], pairs[i][1], comparison->tensors,
                             &comparison->count, err))
            return -1;
    }
    out->comparison_count = ERG_VERIFY_COMPARISONS;
    return v->request->repeatable ? numbers->repeat(v->device, false, err) : 0;
}

/* ---- time and energy ---- */

static int measure(struct verifier *v, const struct erg_step *steps, size_t count, int clock_mhz,
                   struct erg_measurement *result, struct erg_error *err)
{
    uint64_t key = erg_hash_u64(v->request->job->search.seed, v->measured++);
    int status = erg_profile(v->device, steps, count, clock_mhz, &v->profiler, key, result, err);
    erg_progress("verifying", v->measured, v->expected);
    return status;
}

static int measure_piece(struct verifier *v, const struct way *way,
                         const struct verify_piece *piece, struct erg_verify_row *row,
                         struct erg_error *err)
{
    struct erg_measurement seen;
    if (measure(v, piece->steps, piece->count, way->clock_mhz, &seen, err))
        return -1;
    row->composed.time_s += piece->times * seen.time_s;
    row->composed.energy_j += piece->times * seen.energy_j;
    row->composed_mhz += piece->times * seen.time_s * seen.clock_mhz;
    erg_log(ERG_LOG_INFO, "%s %s: %d x %s, each %.4f ms and %.4f J, at %.0f MHz, %.1f C",
            row->backward ? "backward" : "forward", erg_verify_way_name(row->way), piece->times,
            piece->name, 1e3 * seen.time_s, seen.energy_j, seen.clock_mhz, seen.temperature_end_c);
    return 0;
}

static size_t partitions_of(const struct way *way)
{
    return way->mode == ERG_MODE_OVERLAP ? way->count - 1 : 0; /* the last piece is the ends */
}

/* A piece that is a partition in the three ways, one after the other. */
static int measure_partition(struct verifier *v, const struct way *way,
                             const struct verify_piece *piece, bool backward,
                             struct erg_verify_partition *out, struct erg_error *err)
{
    struct erg_step steps[ERG_VERIFY_WAYS] = {*piece->steps, *piece->steps, *piece->steps};
    steps[ERG_VERIFY_SEQUENTIAL].launch.slot = piece->steps->task.op_count;
    steps[ERG_VERIFY_NANOBATCHING].launch.slot = 0;
    steps[ERG_VERIFY_SEQUENTIAL].task.comm.library = true;
    steps[ERG_VERIFY_NANOBATCHING].task.comm.library = true;
    *out = (struct erg_verify_partition){.backward = backward};
    snprintf(out->name, sizeof out->name, "%s", piece->name);
    for (int i = 0; i < ERG_VERIFY_WAYS; i++) {
        struct erg_measurement seen;
        if (measure(v, &steps[i], 1, way->clock_mhz, &seen, err))
            return -1;
        out->costs[i] = (struct erg_cost){seen.time_s, seen.energy_j};
    }
    return 0;
}

/* The partitions of the plan, each once: a replay repeats those of the forward pass. */
static int measure_partitions(struct verifier *v, struct erg_verification *out,
                              struct erg_error *err)
{
    for (int backward = 0; backward < 2; backward++) {
        const struct way *way = &v->ways[backward][ERG_VERIFY_PLAN];
        for (size_t i = 0; i < partitions_of(way); i++)
            if (measure_partition(v, way, &way->pieces[i], backward,
                                  &out->partitions[out->partition_count++], err))
                return -1;
    }
    return 0;
}

/* The stack before and after its pieces, so that what drifts (heat) is the same for both. */
static int measure_way(struct verifier *v, enum erg_verify_way name, bool backward,
                       struct erg_verify_row *row, struct erg_error *err)
{
    const struct way *way = &v->ways[backward][name];
    struct erg_measurement before;
    *row = (struct erg_verify_row){.backward = backward, .way = name, .mode = way->mode};
    if (measure(v, way->stack.steps, way->stack.count, way->clock_mhz, &before, err))
        return -1;
    for (size_t i = 0; i < way->count; i++)
        if (measure_piece(v, way, &way->pieces[i], row, err))
            return -1;
    row->composed_mhz /= row->composed.time_s;
    if (measure(v, way->stack.steps, way->stack.count, way->clock_mhz, &row->profile, err))
        return -1;
    row->stack = (struct erg_cost){(before.time_s + row->profile.time_s) / 2,
                                   (before.energy_j + row->profile.energy_j) / 2};
    row->stack_mhz = (before.clock_mhz + row->profile.clock_mhz) / 2;
    return 0;
}

static int heat(struct verifier *v, struct erg_error *err)
{
    const struct way *way = &v->ways[0][ERG_VERIFY_SEQUENTIAL];
    struct erg_profile_options options = v->profiler;
    struct erg_measurement ignored;
    options.warmup_s = heat_s;
    options.attempts = 1;
    return erg_profile(v->device, way->stack.steps, way->stack.count, way->clock_mhz, &options, 0,
                       &ignored, err);
}

static int measure_all(struct verifier *v, struct erg_verification *out, struct erg_error *err)
{
    for (int backward = 0; backward < 2; backward++)
        for (int way = 0; way < ERG_VERIFY_WAYS; way++)
            v->expected += v->ways[backward][way].count + 2;
    for (int backward = 0; backward < 2; backward++)
        v->expected += ERG_VERIFY_WAYS * partitions_of(&v->ways[backward][ERG_VERIFY_PLAN]);
    if (v->request->device && heat(v, err))
        return -1;
    for (int backward = 0; backward < 2; backward++)
        for (int way = 0; way < ERG_VERIFY_WAYS; way++)
            if (measure_way(v, (enum erg_verify_way)way, backward, &out->rows[out->row_count++],
                            err))
                return -1;
    return measure_partitions(v, out, err);
}

/* ---- the door ---- */

static int prepare(struct verifier *v, struct erg_error *err)
{
    const struct erg_job *job = v->request->job;
    if (erg_optimize_check_device(job, v->request->device, err))
        return -1;
    v->workload_request = erg_workload_of_job(job, job->gpu);
    v->profiler = erg_survey_profile_options(job);
    if (check_plan(v->request, err) || erg_workload_build(&v->workload, &v->workload_request, err))
        return -1;
    if (!v->workload.nanobatched)
        return erg_fail(err, ERG_INFEASIBLE,
                        "verifying the plan of %s: its microbatches run sequentially only, there "
                        "is nothing to compare",
                        job->name);
    for (int direction = 0; direction < 2; direction++) {
        v->options[direction] = choose_option(v->request->plan, direction, &v->shares[direction]);
        if (make_ways(v, direction, err))
            return -1;
    }
    v->device = v->request->device;
    if (v->device)
        return 0;
    struct erg_emulated_options options = erg_emulated_options_default();
    options.gpus = (size_t)(job->layout.tensor * job->layout.context);
    options.seed = job->search.seed;
    options.chassis = job->kinds[0].chassis;
    return erg_emulated_open(&v->device, job->gpu, job->stack, &options, err);
}

int erg_verify(const struct erg_verify_request *request, struct erg_verification *verification,
               struct erg_error *err)
{
    struct verifier v = {.request = request};
    *verification = (struct erg_verification){0};
    int status = prepare(&v, err) ||
                         (v.device->numbers && compare_numbers(&v, verification, err)) ||
                         measure_all(&v, verification, err)
                     ? -1
                     : 0;
    memcpy(verification->shares, v.shares, sizeof v.shares);
    if (!request->device)
        erg_device_close(v.device);
    erg_workload_release(&v.workload);
    return status;
}

/* ---- the judgement ---- */

static int judge_tensors(const struct erg_verify_comparison *comparison, struct erg_error *err)
{
    for (size_t i = 0; i < comparison->count; i++)
        if (!(comparison->tensors[i].relative <= tensor_tolerance))
            return erg_fail(err, ERG_FAILED,
                            "verifying a plan: the %s tensor of %s is %.2g from that of %s, "
                            "relative to its size; expected at most %g",
                            comparison->tensors[i].tensor, comparison->way,
                            comparison->tensors[i].relative, comparison->reference,
                            tensor_tolerance);
    return 0;
}

int erg_verify_judge(const struct erg_verification *verification, struct erg_error *err)
{
    for (size_t i = 0; i < verification->comparison_count; i++)
        if (judge_tensors(&verification->comparisons[i], err))
            return -1;
    const struct erg_verify_row *worst = NULL;
    double worst_by = cost_tolerance, time_by = 0, energy_by = 0;
    for (size_t i = 0; i < verification->row_count; i++) {
        const struct erg_verify_row *row = &verification->rows[i];
        double time = row->stack.time_s / row->composed.time_s - 1;
        double energy = row->stack.energy_j / row->composed.energy_j - 1;
        if (fmax(fabs(time), fabs(energy)) > worst_by) {
            worst_by = fmax(fabs(time), fabs(energy));
            worst = row;
            time_by = time;
            energy_by = energy;
        }
    }
    if (!worst)
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "verifying a plan: %s %s takes %+.1f %% of time and %+.1f %% of energy more "
                    "than the sum of its pieces, expected at most %g %%",
                    erg_verify_way_name(worst->way), worst->backward ? "backward" : "forward",
                    100 * time_by, 100 * energy_by, 100 * cost_tolerance);
}
