/* The clocks of a rank as groups of instructions. */
#include "hooks/programme.h"

#include "base/memory.h"
#include "base/statistics.h"
#include "hooks/option_at.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Working state for making a programme. */
struct making {
    const struct erg_programme_request *request;
    struct erg_programme *programme;
    int *clocks_mhz; /* planned clocks that occur, rising */
    size_t clock_count;
    /*
     * For instruction i at clock k, [count * clock_count]: the cost of the instruction beyond
     * waiting, its energy and seconds; valid for clocks not below the planned one.
     */
    double *cost_j;
    struct erg_option_cost *options;
};

/* ---- choice of the point ---- */

int erg_programme_choose(const struct erg_plan *plan, const struct erg_programme_input *input,
                         enum erg_method *method, size_t *point, struct erg_error *err)
{
    const char *name = input->method ? input->method : "sequential+clocks";
    const size_t stages = plan->schedule.pipeline.stages;
    struct erg_plan_selection chosen;
    if (erg_method_parse(name, method, err) != 0)
        return -1;
    if (*method != ERG_METHOD_SEQUENTIAL && *method != ERG_METHOD_SEQUENTIAL_CLOCKS &&
        !input->clocks_only)
        return erg_fail(err, ERG_USAGE,
                        "passes of method %s run only in ergon's own training, expected "
                        "sequential+clocks, or a request for its clocks only",
                        name);
    if (input->stage < 0 || (size_t)input->stage >= stages)
        return erg_fail(err, ERG_USAGE, "stage %ld of a pipeline of %zu, expected 0 to %zu",
                        input->stage, stages, stages - 1);
    if (erg_plan_find_input(plan, &(struct erg_plan_input){.method = name, .number = input->number},
                            &chosen, err) != 0)
        return -1;
    *point = chosen.point;
    return 0;
}

void erg_programme_bound(struct erg_programme_request *request, double dwell_s,
                         double least_change_mhz)
{
    request->dwell_s = dwell_s > 0 ? dwell_s : ERG_PROGRAMME_DWELL_S;
    request->least_change_mhz =
        least_change_mhz > 0 ? least_change_mhz : ERG_PROGRAMME_LEAST_CHANGE_MHZ;
    request->least_saving = ERG_PROGRAMME_LEAST_SAVING;
    request->least_period_s = ERG_PROGRAMME_LEAST_PERIOD_S;
}

/* ---- single instructions ---- */

int erg_programme_clock(const struct erg_clock_list *supported, int clock_mhz)
{
    if (!supported)
        return clock_mhz;
    size_t i = erg_clock_not_below(supported->clocks_mhz, supported->count, clock_mhz);
    return i < supported->count ? supported->clocks_mhz[i] : 0;
}

static int highest_clock(const struct erg_plan_kind *kind)
{
    int highest_mhz = 0;
    for (size_t i = 0; i < kind->clock_count; i++)
        highest_mhz = kind->clocks_mhz[i] > highest_mhz ? kind->clocks_mhz[i] : highest_mhz;
    return highest_mhz;
}

int erg_programme_check(const struct erg_plan *plan, size_t stage,
                        const struct erg_clock_list *supported, struct erg_error *err)
{
    const struct erg_plan_kind *kind = erg_plan_stage_kind(plan, stage);
    const int highest_mhz = highest_clock(kind);
    if (!isnan(kind->mean_clock_mhz) || highest_mhz <= 0)
        return erg_fail(err, ERG_USAGE,
                        "the clocks of stage %zu: the GPUs of this plan chose their clocks "
                        "themselves, expected a plan with clocks to set",
                        stage);
    if (!erg_programme_clock(supported, highest_mhz))
        return erg_fail(err, ERG_USAGE,
                        "the clocks of stage %zu: the plan, which is for %s, has clocks up to %d "
                        "MHz, but the highest of this GPU is %d MHz",
                        stage, kind->gpu, highest_mhz, supported->clocks_mhz[supported->count - 1]);
    return 0;
}

static size_t find_clock(const struct making *making, int clock_mhz)
{
    size_t k = 0;
    while (making->clocks_mhz[k] != clock_mhz)
        k++;
    return k;
}

static void collect_passes(struct making *making)
{
    const struct erg_programme_request *request = making->request;
    const struct erg_plan *plan = request->plan;
    struct erg_programme *programme = making->programme;
    const size_t count = programme->count, first = request->stage * count;
    double *start_s = erg_xcalloc(plan->schedule.count, sizeof *start_s), time_s, energy_j;
    erg_plan_evaluate(plan, request->point, start_s, &time_s, &energy_j);
    programme->step_s = time_s;
    making->clocks_mhz = erg_xcalloc(count, sizeof *making->clocks_mhz);
    for (size_t i = 0; i < count; i++) {
        const struct erg_plan_option *option = erg_plan_option(plan, request->point, first + i);
        int clock_mhz = erg_programme_clock(request->supported, option->clock_mhz);
        programme->passes[i] = (struct erg_programme_pass){
            .planned_mhz = clock_mhz, .start_s = erg_scale_time(&plan->scale, start_s[first + i])};
        making->clocks_mhz[i] = clock_mhz;
    }
    qsort(making->clocks_mhz, count, sizeof *making->clocks_mhz, erg_compare_ints);
    for (size_t i = 0; i < count; i++)
        if (!i || making->clocks_mhz[i] != making->clocks_mhz[i - 1])
            making->clocks_mhz[making->clock_count++] = making->clocks_mhz[i];
    free(start_s);
}

static void cost_passes(struct making *making)
{
    const struct erg_plan *plan = making->request->plan;
    const size_t count = making->programme->count, clocks = making->clock_count;
    const double waiting_w = erg_plan_stage_kind(plan, making->request->stage)->blocking_power_w;
    making->cost_j = erg_xcalloc(count * clocks, sizeof *making->cost_j);
    making->options = erg_xcalloc(count * clocks, sizeof *making->options);
    for (size_t i = 0; i < count; i++) {
        const size_t at = making->request->stage * count + i;
        const struct erg_plan_option *option = erg_plan_option(plan, making->request->point, at);
        for (size_t k = 0; k < clocks; k++) {
            if (making->clocks_mhz[k] < making->programme->passes[i].planned_mhz)
                continue;
            struct erg_option_cost cost = erg_option_at(plan, at, option, making->clocks_mhz[k]);
            /* A higher clock is never slower; measurements that differ are noise. */
            cost.time_s = fmin(cost.time_s, option->time_s);
            making->options[i * clocks + k] = cost;
            making->cost_j[i * clocks + k] = cost.energy_j - waiting_w * cost.time_s;
        }
    }
}

/* ---- groups ---- */

/* The end time of a group that ends before position `end`. */
static double end_s(const struct erg_programme *programme, uint32_t end)
{
    return end < programme->count ? programme->passes[end].start_s : programme->step_s;
}

static double sum_costs(const struct making *making, uint32_t first, uint32_t end, int clock_mhz)
{
    const size_t k = find_clock(making, clock_mhz);
    double cost_j = 0;
    for (uint32_t i = first; i < end; i++)
        cost_j += making->cost_j[i * making->clock_count + k];
    return cost_j;
}

/*
 * Finds the cheapest cut into groups of at least the dwell: `before`[p] is the start of the group
 * that ends at position p. One group if the step is shorter than the dwell.
 */
static void cut_groups(const struct making *making, uint32_t *before)
{
    const struct erg_programme *programme = making->programme;
    const uint32_t count = programme->count;
    const double dwell_s = making->request->dwell_s * (1 - 1e-9);
    double *best_j = erg_xcalloc(count + 1, sizeof *best_j);
    for (uint32_t end = 1; end <= count; end++) {
        int highest_mhz = 0;
        double cut_s = INFINITY; /* start of the shortest group that ends here */
        best_j[end] = INFINITY;
        for (uint32_t first = end; first-- > 0;) {
            const struct erg_programme_pass *pass = &programme->passes[first];
            highest_mhz = pass->planned_mhz > highest_mhz ? pass->planned_mhz : highest_mhz;
            if (cut_s - pass->start_s >= dwell_s && !isinf(cut_s))
                break; /* such a group could be cut in two */
            if (end_s(programme, end) - pass->start_s < dwell_s || isinf(best_j[first]))
                continue;
            double cost_j = best_j[first] + sum_costs(making, first, end, highest_mhz);
            if (isinf(cut_s))
                cut_s = pass->start_s;
            if (cost_j < best_j[end] - 1e-12 * fabs(cost_j)) {
                best_j[end] = cost_j;
                before[end] = first;
            }
        }
    }
    free(best_j);
}

static void add_groups(struct making *making)
{
    struct erg_programme *programme = making->programme;
    uint32_t *before = erg_xcalloc(programme->count + 1, sizeof *before), count = 0;
    cut_groups(making, before);
    for (uint32_t end = programme->count; end > 0; end = before[end])
        count++;
    programme->groups = erg_xcalloc(count, sizeof *programme->groups);
    programme->group_count = count;
    for (uint32_t end = programme->count; end > 0; end = before[end]) {
        struct erg_programme_group *group = &programme->groups[--count];
        *group = (struct erg_programme_group){before[end], end, 0};
        for (uint32_t i = group->first; i < end; i++)
            if (programme->passes[i].planned_mhz > group->clock_mhz)
                group->clock_mhz = programme->passes[i].planned_mhz;
    }
    free(before);
}

/* Merges neighbours with equal clocks. */
static void join_equal(struct erg_programme *programme)
{
    uint32_t kept = 0;
    for (uint32_t g = 1; g < programme->group_count; g++)
        if (programme->groups[g].clock_mhz == programme->groups[kept].clock_mhz)
            programme->groups[kept].end = programme->groups[g].end;
        else
            programme->groups[++kept] = programme->groups[g];
    programme->group_count = kept + 1;
}

/* ---- removed changes ---- */

/* The lowest clock of a neighbour that is above a group's own; 0: none is above. */
static int next_clock(const struct erg_programme *programme, uint32_t g)
{
    const struct erg_programme_group *group = &programme->groups[g];
    int before_mhz = g > 0 ? group[-1].clock_mhz : 0;
    int after_mhz = g + 1 < programme->group_count ? group[1].clock_mhz : 0;
    if (before_mhz <= group->clock_mhz)
        return after_mhz > group->clock_mhz ? after_mhz : 0;
    return after_mhz > group->clock_mhz && after_mhz < before_mhz ? after_mhz : before_mhz;
}

/* The cost of raising a group to the next clock; INFINITY: no neighbour has a higher one. */
static double raise_cost(const struct making *making, uint32_t g)
{
    const struct erg_programme_group *group = &making->programme->groups[g];
    const int next_mhz = next_clock(making->programme, g);
    return next_mhz ? sum_costs(making, group->first, group->end, next_mhz) -
                          sum_costs(making, group->first, group->end, group->clock_mhz)
                    : (double)INFINITY;
}

/* Whether a group's own clock is worth the change. */
static bool is_worth(const struct making *making, uint32_t g)
{
    const struct erg_programme_group *group = &making->programme->groups[g];
    const int next_mhz = next_clock(making->programme, g);
    if (!next_mhz)
        return true;
    if (next_mhz - group->clock_mhz < making->request->least_change_mhz)
        return false;
    const size_t k = find_clock(making, group->clock_mhz);
    double energy_j = 0;
    for (uint32_t i = group->first; i < group->end; i++)
        energy_j += making->options[i * making->clock_count + k].energy_j;
    return raise_cost(making, g) >= making->request->least_saving * energy_j;
}

/*
 * Raises the cheapest group among those that are not worth their change, or among all; false: there
 * is none.
 */
static bool raise_cheapest(struct making *making, bool all)
{
    struct erg_programme *programme = making->programme;
    double least_j = INFINITY;
    uint32_t found = 0;
    for (uint32_t g = 0; g < programme->group_count; g++) {
        double cost_j = raise_cost(making, g);
        if (cost_j < least_j && (all || !is_worth(making, g))) {
            least_j = cost_j;
            found = g;
        }
    }
    if (isinf(least_j))
        return false;
    programme->groups[found].clock_mhz = next_clock(programme, found);
    join_equal(programme);
    return true;
}

/*
 * Whether some second has more than one change per period; steps follow each other without a gap.
 */
static bool changes_too_often(const struct making *making)
{
    const struct erg_programme *programme = making->programme;
    const double period_s = making->request->least_period_s;
    if (period_s <= 0 || programme->group_count < 2)
        return false;
    /* The transition between steps is a change, too, if its clocks differ. */
    const struct erg_programme_group *groups = programme->groups;
    const bool turns = groups[0].clock_mhz != groups[programme->group_count - 1].clock_mhz;
    const uint32_t skip = turns ? 0 : 1, changes = programme->group_count - skip;
    const uint32_t within = period_s < 1 ? (uint32_t)(1 / period_s + 1e-9) : 1;
    const double window_s = period_s < 1 ? 1 : period_s;
    for (uint32_t c = 0; c < changes; c++) {
        const uint32_t later = c + within, steps_later = later / changes;
        const double from_s = programme->passes[groups[skip + c].first].start_s;
        const double to_s = programme->passes[groups[skip + later % changes].first].start_s +
                            steps_later * programme->step_s;
        if (to_s - from_s < window_s * (1 - 1e-9))
            return true;
    }
    return false;
}

static void leave_out_changes(struct making *making)
{
    join_equal(making->programme);
    while (raise_cheapest(making, false))
        ;
    while (changes_too_often(making) && raise_cheapest(making, true))
        ;
}

/* ---- all steps ---- */

static void finish(struct making *making)
{
    struct erg_programme *programme = making->programme;
    const struct erg_scale *scale = &making->request->plan->scale;
    for (uint32_t g = 0; g < programme->group_count; g++) {
        const size_t k = find_clock(making, programme->groups[g].clock_mhz);
        for (uint32_t i = programme->groups[g].first; i < programme->groups[g].end; i++) {
            struct erg_programme_pass *pass = &programme->passes[i];
            const struct erg_option_cost *options = &making->options[i * making->clock_count];
            pass->group = g;
            pass->time_s = erg_scale_time(scale, options[k].time_s);
            programme->energy_j += options[k].energy_j;
            programme->planned_j += options[find_clock(making, pass->planned_mhz)].energy_j;
            programme->planned_changes += i > 0 && pass->planned_mhz != pass[-1].planned_mhz;
            assert(programme->groups[g].clock_mhz >= pass->planned_mhz);
        }
    }
    programme->changes = programme->group_count - 1;
}

int erg_programme_init(struct erg_programme *programme, const struct erg_programme_request *request,
                       struct erg_error *err)
{
    struct making making = {.request = request, .programme = programme};
    assert(request->stage < request->plan->schedule.pipeline.stages);
    *programme = (struct erg_programme){0};
    if (erg_programme_check(request->plan, request->stage, request->supported, err) != 0)
        return -1;
    programme->count = (uint32_t)request->plan->schedule.per_stage;
    programme->passes = erg_xcalloc(programme->count, sizeof *programme->passes);
    programme->highest_mhz = erg_programme_clock(
        request->supported, highest_clock(erg_plan_stage_kind(request->plan, request->stage)));
    collect_passes(&making);
    cost_passes(&making);
    add_groups(&making);
    leave_out_changes(&making);
    finish(&making);
    free(making.clocks_mhz);
    free(making.cost_j);
    free(making.options);
    return 0;
}

void erg_programme_release(struct erg_programme *programme)
{
    free(programme->passes);
    free(programme->groups);
    *programme = (struct erg_programme){0};
}
