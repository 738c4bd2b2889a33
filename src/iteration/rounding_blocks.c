#include "iteration/rounding_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Against the mean of what the plan has at stake: gaps from this part of it on are wide. */
static const double wide = 0.5;

/*
 * In parts of what a choice has lost. Where little more is at stake, it has not lost it by gaps.
 * Blocks that cost more than `most` leave too little to gain. What is then still at stake is
 * divided again if it is more than `rest`.
 */
static const double least_at_stake = 1.2, most = 0.5, rest = 0.5;

/* Where the cut that the plan's mean durations ask for is too slow, so many phases more are tried.
 */
enum { FARTHEST = 8 };

/* The part of the hull within which the plan has an instruction; gap 0: none, or not wide. */
struct segment {
    int32_t fast, gap; /* ticks: the faster option, and how much slower the other is */
    double gap_j;      /* what the faster one costs beyond the other */
};

/* Phases before `phase` get the fast end and the others the slow one, or, `late`, reversed. */
struct cut {
    int32_t phase;
    bool late;
};

struct division {
    const struct rounding *rounding;
    struct timecost_problem divided;     /* as the rounding's problem, but for the tables */
    const struct timecost_table **table; /* of `divided`: the hull, or one fixed duration */
    struct timecost_table *fixed;        /* per instruction */
    int32_t *fixed_ticks;
    struct segment *segments;
    int32_t *phase;
    int32_t first, last; /* phases of wide segments */
    int32_t deadline;    /* ticks */
    struct timecost_plan found, trial;
    double given_j; /* of the plan in hand, beyond all at their slowest */
    struct cut cut;
    double found_j; /* of `found`, by `cut`, beyond given_j */
    bool solved;    /* the sweep came to the deadline */
};

/* --- one way to cut --- */

static void ignore_piece(struct timecost_visitor *visitor, int32_t from, int32_t to, int64_t slope)
{
    (void)visitor, (void)from, (void)to, (void)slope;
}

static void collect_plan(struct timecost_visitor *visitor, const struct timecost_plan *plan)
{
    struct division *division = visitor->context;
    timecost_plan_copy(&division->trial, plan, &division->divided);
    division->solved = true;
    visitor->deadline = -1;
}

static double joules(const struct division *division, double slope, int32_t ticks)
{
    const struct option_tables *tables = division->rounding->tables;
    return slope * tables->slope_unit_w * ticks * tables->tick_s;
}

/* Beyond all at their slowest. */
static double cost_j(const struct division *division, const struct timecost_plan *plan)
{
    const struct timecost_problem *problem = division->rounding->problem;
    double sum = 0;
    for (size_t i = 0; i < problem->activity_count; i++) {
        const struct timecost_table *hull = problem->table[i];
        int32_t duration = plan->duration[i];
        for (int32_t l = 1; l < hull->levels && duration < hull->duration[l - 1]; l++) {
            int32_t to = duration > hull->duration[l] ? duration : hull->duration[l];
            sum += joules(division, (double)hull->slope[l], hull->duration[l - 1] - to);
        }
    }
    return sum;
}

static void apply(struct division *division, struct cut cut)
{
    static const int64_t no_slopes[] = {0, TIMECOST_INFINITE};
    for (size_t i = 0; i < division->divided.activity_count; i++) {
        const struct segment *segment = &division->segments[i];
        if (!segment->gap)
            continue;
        bool fast = (division->phase[i] < cut.phase) != cut.late;
        division->fixed_ticks[i] = segment->fast + (fast ? 0 : segment->gap);
        division->fixed[i] = (struct timecost_table){1, &division->fixed_ticks[i], no_slopes};
        division->table[i] = &division->fixed[i];
    }
}

/* Solves with the cut; whether that is cheaper than what was found. */
static bool try_cut(struct division *division, struct cut cut)
{
    if (cut.phase < division->first || cut.phase > division->last + 1)
        return false;
    apply(division, cut);
    int64_t slowest = timecost_longest_path(&division->divided, 0);
    struct timecost_visitor visitor = {
        .context = division,
        .deadline = slowest < division->deadline ? slowest : division->deadline,
        .piece = ignore_piece,
        .plan = collect_plan};
    division->solved = false;
    if (timecost_longest_path(&division->divided, 1) > division->deadline ||
        timecost_sweep(&division->divided, &visitor, NULL) != 0 || !division->solved)
        return false;
    double trial_j = cost_j(division, &division->trial) - division->given_j;
    if (trial_j >= division->found_j)
        return false;
    struct timecost_plan swap = division->found;
    division->found = division->trial;
    division->trial = swap;
    division->found_j = trial_j;
    division->cut = cut;
    return true;
}

/* --- the best way to cut --- */

/*
 * What it costs an instruction to take the best option there is between the ends of its segment, or
 * one of them, and to trade the time that makes it differ from the plan at the plan's price.
 */
static double stake_of(const struct division *division, size_t i)
{
    const struct erg_schedule *schedule = division->rounding->schedule;
    size_t t = erg_table_index(&schedule->pipeline, &schedule->instructions[i]);
    const struct option_table *table = &division->rounding->tables->tables[t];
    const struct segment *segment = &division->segments[i];
    int32_t planned = division->found.duration[i];
    double tick_j = segment->gap_j / segment->gap, least_j = INFINITY;
    size_t o = 0;
    while (table->options[o].ticks < segment->fast)
        o++;
    double fast_j = table->options[o].cost_j;
    for (; o < table->count && table->options[o].ticks <= segment->fast + segment->gap; o++) {
        const struct option *option = &table->options[o];
        double beside_j = option->cost_j - fast_j + tick_j * (option->ticks - segment->fast);
        least_j = fmin(least_j, beside_j + tick_j * abs(option->ticks - planned));
    }
    return least_j;
}

/*
 * The segments whose slope is the price of time in `found`, which is therefore indifferent between
 * their ends: of all instructions, or of those only that it does have between them.
 */
static void find_segments(struct division *division, bool all)
{
    for (size_t i = 0; i < division->divided.activity_count; i++) {
        const struct timecost_table *table = division->table[i];
        int64_t flow = division->found.flow[i];
        int32_t duration = division->found.duration[i], level = 0;
        while (level < table->levels && flow > table->slope[level])
            level++;
        division->segments[i] = (struct segment){0};
        if (level == 0 || flow != table->slope[level] ||
            (!all &&
             (duration == table->duration[level] || duration == table->duration[level - 1])))
            continue;
        int32_t gap = table->duration[level - 1] - table->duration[level];
        division->segments[i] =
            (struct segment){.fast = table->duration[level],
                             .gap = gap,
                             .gap_j = joules(division, (double)table->slope[level], gap)};
    }
}

/* Leaves the wide segments. Returns what is at stake there. */
static double find_wide(struct division *division, bool all)
{
    size_t count = division->divided.activity_count;
    double stake_j = 0, mean_gap_j = 0;
    find_segments(division, all);
    for (size_t i = 0; i < count; i++)
        if (division->segments[i].gap) {
            double at_stake_j = stake_of(division, i);
            stake_j += at_stake_j;
            mean_gap_j += at_stake_j * division->segments[i].gap_j;
        }
    mean_gap_j /= stake_j > 0 ? stake_j : 1;
    stake_j = 0;
    division->first = INT32_MAX;
    division->last = -1;
    for (size_t i = 0; i < count; i++) {
        struct segment *segment = &division->segments[i];
        if (segment->gap_j < wide * mean_gap_j)
            segment->gap = 0;
        if (!segment->gap)
            continue;
        int32_t phase = division->phase[i];
        stake_j += stake_of(division, i);
        division->first = phase < division->first ? phase : division->first;
        division->last = phase > division->last ? phase : division->last;
    }
    return stake_j;
}

/* How many of the wide segments' phases have to be fast for the mean durations of `found`. */
static int32_t fast_phases(const struct division *division)
{
    double saved = 0, whole = 0;
    for (size_t i = 0; i < division->divided.activity_count; i++) {
        const struct segment *segment = &division->segments[i];
        if (!segment->gap)
            continue;
        saved += segment->gap - (division->found.duration[i] - segment->fast);
        whole += segment->gap;
    }
    return (int32_t)lround(saved / whole * (division->last + 1 - division->first));
}

static bool move_cut(struct division *division, int32_t by)
{
    return try_cut(division, (struct cut){division->cut.phase + by, division->cut.late});
}

/* From the cut in hand, further and further one way while that helps, then less far both ways. */
static bool climb(struct division *division, int32_t step)
{
    if (!move_cut(division, step))
        return false;
    do
        step *= 2;
    while (move_cut(division, step));
    while (step /= 2)
        if (!move_cut(division, step))
            move_cut(division, -step);
    return true;
}

/*
 * The cost rises on either side of the best cut. Too few fast phases leave no time for the rest:
 * then there are more. No more is tried where the first cuts cost as much as is
 * to be gained. Returns whether the best leaves enough.
 */
static bool cut_best(struct division *division, double loss_j)
{
    int32_t fast = fast_phases(division);
    division->found_j = INFINITY;
    for (int32_t more = 0; more <= FARTHEST && isinf(division->found_j); more++)
        for (int late = 0; late < 2; late++) {
            int32_t phase = late ? division->last + 1 - fast - more : division->first + fast + more;
            try_cut(division, (struct cut){phase, late});
        }
    if (division->found_j > loss_j)
        return false;
    if (!climb(division, 1))
        climb(division, -1);
    apply(division, division->cut);
    return division->found_j <= most * loss_j;
}

static void find_phases(struct division *division, const struct erg_schedule *schedule)
{
    int32_t before[2] = {0};
    for (size_t i = 0; i < schedule->count; i++) {
        enum erg_direction direction = schedule->instructions[i].direction;
        if (i % schedule->per_stage == 0)
            before[ERG_FORWARD] = before[ERG_BACKWARD] = 0;
        division->phase[i] = before[direction == ERG_FORWARD ? ERG_BACKWARD : ERG_FORWARD];
        before[direction]++;
    }
}

static void division_init(struct division *division, const struct rounding *rounding,
                          const struct timecost_plan *plan)
{
    const struct timecost_problem *problem = rounding->problem;
    size_t count = problem->activity_count;
    *division = (struct division){.rounding = rounding,
                                  .table = erg_xcalloc(count, sizeof *division->table),
                                  .fixed = erg_xcalloc(count, sizeof *division->fixed),
                                  .fixed_ticks = erg_xcalloc(count, sizeof *division->fixed_ticks),
                                  .segments = erg_xcalloc(count, sizeof *division->segments),
                                  .phase = erg_xcalloc(count, sizeof *division->phase),
                                  .found = timecost_plan_new(problem),
                                  .trial = timecost_plan_new(problem)};
    division->divided = *problem;
    division->divided.table = division->table;
    division->given_j = cost_j(division, plan);
    for (size_t i = 0; i < count; i++) {
        int32_t end = plan->start[i] + plan->duration[i];
        division->deadline = end > division->deadline ? end : division->deadline;
    }
    find_phases(division, rounding->schedule);
}

static void division_release(struct division *division)
{
    free(division->table);
    free(division->fixed);
    free(division->fixed_ticks);
    free(division->segments);
    free(division->phase);
    timecost_plan_free(&division->found);
    timecost_plan_free(&division->trial);
}

/*
 * Divides what `plan` has in wide segments, then what the result has. Of these the best is kept if
 * it promises less than least_j: its cost, and as much of what is at stake as `plan` has lost.
 */
static void divide(struct division *division, const struct timecost_plan *plan, bool all,
                   double loss_j, double *least_j, struct timecost_plan *blocks)
{
    const struct timecost_problem *problem = division->rounding->problem;
    memcpy(division->table, problem->table, problem->activity_count * sizeof *division->table);
    timecost_plan_copy(&division->found, plan, problem);
    double stake_j = find_wide(division, all), part = loss_j / stake_j;
    if (!(stake_j > least_at_stake * loss_j))
        return;
    while (stake_j > rest * loss_j && cut_best(division, loss_j)) {
        stake_j = find_wide(division, all);
        double promised_j = division->found_j + part * stake_j;
        if (promised_j < *least_j) {
            *least_j = promised_j;
            timecost_plan_copy(blocks, &division->found, problem);
        }
    }
}

bool rounding_blocks(const struct rounding *rounding, const struct timecost_plan *plan,
                     double loss_j, struct timecost_plan *blocks)
{
    if (loss_j <= 0)
        return false;
    struct division division;
    double least_j = loss_j;
    division_init(&division, rounding, plan);
    divide(&division, plan, false, loss_j, &least_j, blocks);
    if (least_j > most * loss_j) /* others may have taken over what those had in gaps */
        divide(&division, plan, true, loss_j, &least_j, blocks);
    division_release(&division);
    return least_j < loss_j;
}
