/* Finds the best way to run steps, and checks that it remains the best. */
#include "train/run/trials.h"

#include "plan/plan_follow.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const double confidence = 0.95;
static const double longest_block_s = 5;
static const double sure_enough = 0.01; /* half-width of the saving at which trials end */
enum { LEAST_STEPS = 2, MOST_DEGREES = 100 };

/* ---- two ways round by round ---- */

typedef double quantity(const struct erg_trial_block *block);

static double time_of(const struct erg_trial_block *block)
{
    return block->step_s;
}

static double energy_of(const struct erg_trial_block *block)
{
    return block->step_j;
}

/* The ratio of one way to another, minus 1: the mean over rounds that have both. */
static struct erg_interval compare(const struct erg_trials *trials, size_t way, size_t other,
                                   quantity *of)
{
    const struct erg_trials_way *a = &trials->ways[way], *b = &trials->ways[other];
    const size_t count = a->count < b->count ? a->count : b->count;
    double ratios[ERG_TRIALS_MOST_ROUNDS];
    for (size_t i = 0; i < count; i++)
        ratios[i] = of(&a->blocks[i]) / of(&b->blocks[i]) - 1;
    return erg_interval_of_mean(ratios, count, confidence);
}

static bool is_shown_less(const struct erg_trials *trials, size_t way, size_t other, quantity *of)
{
    const struct erg_interval ratio = compare(trials, way, other, of);
    return ratio.mean + ratio.half_width < 0; /* false for one round, whose half-width is NaN */
}

static struct erg_interval mean_of(const struct erg_trials *trials, size_t way, quantity *of)
{
    double values[ERG_TRIALS_MOST_ROUNDS];
    for (size_t i = 0; i < trials->ways[way].count; i++)
        values[i] = of(&trials->ways[way].blocks[i]);
    return erg_interval_of_mean(values, trials->ways[way].count, confidence);
}

/* ---- the answer ---- */

/* Whether a tried way meets the goal's bounds; an unknown value meets none. */
static bool is_within(const struct erg_trials *trials, size_t way)
{
    const struct erg_goal *goal = &trials->options.goal;
    return trials->ways[way].count > 0 &&
           (!(goal->deadline_s > 0) || mean_of(trials, way, time_of).mean <= goal->deadline_s) &&
           (!(goal->energy_j > 0) || mean_of(trials, way, energy_of).mean <= goal->energy_j);
}

/*
 * The way with the least value compared with the reference, among all or those within bounds;
 * returns the number of ways if there is none.
 */
static size_t find_least(const struct erg_trials *trials, quantity *of, bool within)
{
    size_t found = trials->options.ways;
    double least = INFINITY;
    for (size_t way = 0; way < trials->options.ways; way++) {
        const double value = compare(trials, way, 0, of).mean;
        if ((within && !is_within(trials, way)) || isnan(value) || value >= least)
            continue;
        least = value;
        found = way;
    }
    return found;
}

/* Among the ways that are not significantly slower than the fastest, one that needs significantly
 * less energy. */
static size_t find_thriftiest(const struct erg_trials *trials, size_t fastest)
{
    size_t found = fastest;
    for (size_t way = 0; way < trials->options.ways; way++)
        if (trials->ways[way].count > 0 && !is_shown_less(trials, fastest, way, time_of) &&
            is_shown_less(trials, way, found, energy_of))
            found = way;
    return found;
}

static size_t find_best(struct erg_trials *trials)
{
    const struct erg_goal *goal = &trials->options.goal;
    const size_t none = trials->options.ways, fastest = find_least(trials, time_of, false);
    trials->unmet = false;
    if (fastest == none)
        return 0; /* nothing was measured */
    if (!(goal->deadline_s > 0) && !(goal->energy_j > 0))
        return find_thriftiest(trials, fastest);
    size_t found = goal->deadline_s > 0 ? find_least(trials, energy_of, true) : none;
    if (found == none)
        found = find_least(trials, time_of, true);
    if (found != none)
        return found;
    trials->unmet = true;
    if (goal->energy_j > 0)
        found = find_least(trials, energy_of, false);
    return found == none ? fastest : found;
}

/*
 * The same, but a way that ran before continues unless another one is shown to be better, which
 * takes blocks of both.
 */
static size_t choose(struct erg_trials *trials)
{
    const size_t found = find_best(trials), before = trials->best;
    const bool better = is_shown_less(trials, found, before, time_of) ||
                        is_shown_less(trials, found, before, energy_of);
    const bool may_stay =
        trials->ways[before].count == 0 || is_within(trials, before) || trials->unmet;
    return trials->series > 0 && may_stay && !better ? before : found;
}

/* ---- rounds ---- */

/* A series tries the ways that the budget allows, and the running one. */
static void list_tried(struct erg_trials *trials)
{
    for (size_t way = 0; way < ERG_TRIALS_WAYS; way++)
        trials->ways[way].out =
            way >= trials->tried && !(trials->series > 0 && way == trials->best);
}

static void begin_series(struct erg_trials *trials, const char *why)
{
    list_tried(trials);
    for (size_t way = 0; way < ERG_TRIALS_WAYS; way++)
        trials->ways[way].count = 0;
    trials->trying = true;
    trials->way = trials->rounds = 0;
    trials->spent_s = 0;
    trials->why = why;
}

void erg_trials_init(struct erg_trials *trials, const struct erg_trials_options *options)
{
    assert(options->ways >= 1 && options->ways <= ERG_TRIALS_WAYS);
    *trials = (struct erg_trials){
        .options = *options, .budget_s = options->budget_s, .steps = LEAST_STEPS};
    begin_series(trials, NULL);
}

void erg_trials_keep(struct erg_trials *trials, size_t way)
{
    trials->trying = false;
    trials->way = trials->best = way;
    trials->series = 1;
}

/*
 * Sets the length of blocks and the number of ways for which there is time, from the first measured
 * step.
 */
static void plan_blocks(struct erg_trials *trials, double step_s)
{
    const struct erg_trials_options *options = &trials->options;
    const double least_s = ERG_TRIALS_ROUNDS * (LEAST_STEPS + 1) * step_s;
    if (!(trials->budget_s > 0))
        trials->budget_s =
            fmin(ERG_TRIALS_SHARE * (double)options->steps * step_s, ERG_TRIALS_MOST_S);
    const double ways = fmax(fmin(trials->budget_s / least_s, (double)options->ways), 2);
    trials->tried = options->ways < 2 ? options->ways : (size_t)ways;
    const double block_s =
        fmin(trials->budget_s / (ERG_TRIALS_ROUNDS * (double)trials->tried), longest_block_s);
    trials->steps = (uint64_t)fmax(fmin(block_s / step_s - 1, ERG_TRIALS_MOST_STEPS), LEAST_STEPS);
    list_tried(trials);
}

/*
 * Drops ways that are shown to be slower than the best so far, unless a bound may still need their
 * lower energy.
 */
static void drop_ways(struct erg_trials *trials)
{
    const struct erg_goal *goal = &trials->options.goal;
    const bool bounded = goal->deadline_s > 0 || goal->energy_j > 0;
    const size_t found = find_best(trials);
    for (size_t way = 1; way < trials->options.ways; way++) {
        const bool kept = way == found || (trials->series > 0 && way == trials->best);
        const bool thrifty = compare(trials, way, found, energy_of).mean < 0;
        if (!kept && !(bounded && thrifty) && is_shown_less(trials, found, way, time_of))
            trials->ways[way].out = true;
    }
}

/*
 * Whether more rounds would change nothing: only the best way and the reference are left, and their
 * ratio is known.
 */
static bool is_settled(struct erg_trials *trials)
{
    const size_t found = find_best(trials);
    for (size_t way = 1; way < trials->options.ways; way++)
        if (way != found && !trials->ways[way].out)
            return false;
    return found == 0 || compare(trials, found, 0, time_of).half_width <= sure_enough;
}

/* ---- the running way ---- */

static void watch_note(struct erg_trials_watch *watch, double value, bool alike)
{
    if (watch->count > 0 && alike) {
        watch->squares += (value - watch->last) * (value - watch->last);
        watch->changes++;
    }
    watch->last = value;
}

/* Adds a value of the reference. */
static void watch_expect(struct erg_trials_watch *watch, double value)
{
    if (isnan(value))
        return;
    watch_note(watch, value, true);
    watch->sum += value;
    watch->count++;
}

/*
 * Adds a value; true: the values have shifted for some time. Differences of neighbours give the
 * variation of blocks, since slow changes do not affect them.
 */
static bool watch_add(struct erg_trials_watch *watch, double value)
{
    if (watch->count < ERG_TRIALS_ROUNDS || isnan(value)) {
        watch_expect(watch, value);
        return false;
    }
    const double count = (double)watch->count, mean = watch->sum / count;
    const double spread = sqrt(watch->squares / (2 * (double)watch->changes));
    const size_t degrees = watch->changes < MOST_DEGREES ? watch->changes : MOST_DEGREES;
    const double varies = erg_student_critical(degrees, confidence) * spread * sqrt(1 + 1 / count);
    const double most = fmax(varies, ERG_FOLLOW_NOISE * mean);
    const int side = (value > mean + most) - (value < mean - most);
    watch->beyond = side == 0 ? 0 : side == watch->side ? watch->beyond + 1 : 1;
    watch_note(watch, value, side == watch->side);
    watch->side = side;
    return watch->beyond >= ERG_TRIALS_PATIENCE;
}

static double power_of(const struct erg_trial_block *block)
{
    return block->step_j / block->step_s;
}

static enum erg_trials_event end_series(struct erg_trials *trials)
{
    trials->best = trials->way = choose(trials);
    trials->trying = false;
    trials->series++;
    trials->running_s = 0;
    memset(&trials->time, 0, sizeof trials->time);
    memset(&trials->power, 0, sizeof trials->power);
    for (size_t i = 0; i < trials->ways[trials->best].count; i++) {
        const struct erg_trial_block *block = &trials->ways[trials->best].blocks[i];
        watch_expect(&trials->time, block->step_s);
        watch_expect(&trials->power, power_of(block));
    }
    return ERG_TRIALS_ENDED;
}

static enum erg_trials_event add_running(struct erg_trials *trials,
                                         const struct erg_trial_block *block)
{
    trials->running_s += block->spent_s;
    if (block->disturbed)
        return ERG_TRIALS_GO_ON;
    if (trials->tried == 0) { /* without a first series: later blocks have another length */
        plan_blocks(trials, block->step_s);
        return ERG_TRIALS_GO_ON;
    }
    const bool slow = watch_add(&trials->time, block->step_s);
    const bool hot = watch_add(&trials->power, power_of(block));
    const bool soon = trials->running_s < (1 / ERG_TRIALS_SHARE - 1) * trials->spent_s;
    if (soon || !(slow || hot) || trials->options.ways < 2)
        return ERG_TRIALS_GO_ON;
    begin_series(trials, slow ? "time" : "power");
    return ERG_TRIALS_BEGAN;
}

enum erg_trials_event erg_trials_add(struct erg_trials *trials, const struct erg_trial_block *block)
{
    struct erg_trials_way *way = &trials->ways[trials->way];
    if (!trials->trying)
        return add_running(trials, block);
    trials->spent_s += block->spent_s;
    if (block->disturbed) /* repeat it, if there is time */
        return trials->budget_s > 0 && trials->spent_s >= trials->budget_s ? end_series(trials)
                                                                           : ERG_TRIALS_GO_ON;
    if (trials->tried == 0)
        plan_blocks(trials, block->step_s);
    way->blocks[way->count++] = *block;
    do
        trials->way++;
    while (trials->way < trials->options.ways && trials->ways[trials->way].out);
    if (trials->way < trials->options.ways)
        return ERG_TRIALS_GO_ON;
    trials->way = 0;
    trials->rounds++;
    if (trials->rounds >= ERG_TRIALS_ROUNDS)
        drop_ways(trials);
    /* Later series need significant results, which one round cannot give. */
    const size_t least = trials->series > 0 ? ERG_TRIALS_ROUNDS : 1;
    const bool over = (trials->rounds >= least && trials->spent_s >= trials->budget_s) ||
                      trials->rounds == ERG_TRIALS_MOST_ROUNDS;
    return over || (trials->rounds >= ERG_TRIALS_ROUNDS && is_settled(trials)) ? end_series(trials)
                                                                               : ERG_TRIALS_GO_ON;
}

/* ---- results ---- */

void erg_trials_cost(struct erg_trials_cost *cost, const struct erg_trials *trials, size_t way)
{
    const struct erg_interval time = mean_of(trials, way, time_of);
    const struct erg_interval energy = mean_of(trials, way, energy_of);
    const size_t count = trials->ways[way].count;
    double sensors_j = 0;
    for (size_t i = 0; i < count; i++)
        sensors_j += trials->ways[way].blocks[i].uncertainty_j / (double)count;
    *cost = (struct erg_trials_cost){.step_s = time.mean,
                                     .step_s_half = time.half_width,
                                     .step_j = energy.mean,
                                     .step_j_half = energy.half_width + sensors_j};
}

void erg_trials_saved(struct erg_trials_saved *saved, const struct erg_trials *trials, size_t way)
{
    const struct erg_interval time = compare(trials, way, 0, time_of);
    const struct erg_interval energy = compare(trials, way, 0, energy_of);
    *saved =
        (struct erg_trials_saved){-time.mean, time.half_width, -energy.mean, energy.half_width};
}
