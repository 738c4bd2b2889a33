/* Findings about heat and clocks: slots of a node, placement, splits that favour cold GPUs. */
#include "characterize/findings_internal.h"

/* ---- slots ---- */

struct slots {
    double front_c, rear_c;            /* means */
    double front_peak_c, rear_least_c; /* extremes over time, in the node with the smallest gap */
    size_t fronts, rears;
};

static bool is_front(const struct erg_result_gpu *gpu)
{
    return gpu->slot && !strcmp(gpu->slot, "front");
}

static bool is_rear(const struct erg_result_gpu *gpu)
{
    return gpu->slot && !strcmp(gpu->slot, "rear");
}

/* Returns false if the chassis does not have both. */
static bool read_slots(struct slots *slots, erg_mark mark)
{
    *slots = (struct slots){0};
    const struct erg_study_result *result = mark->result;
    double smallest = INFINITY;
    for (size_t i = 0; i < result->gpu_count; i++) {
        const struct erg_result_gpu *gpu = &result->gpu[i];
        if (is_front(gpu)) {
            slots->front_c += gpu->temperature_c.mean;
            slots->fronts++;
        } else if (is_rear(gpu)) {
            slots->rear_c += gpu->temperature_c.mean;
            slots->rears++;
        }
    }
    if (!slots->fronts || !slots->rears)
        return false;
    slots->front_c /= (double)slots->fronts;
    slots->rear_c /= (double)slots->rears;
    for (long node = 0; node < result->nodes; node++) {
        double front = -INFINITY, rear = INFINITY;
        for (size_t i = 0; i < result->gpu_count; i++) {
            const struct erg_result_gpu *gpu = &result->gpu[i];
            if (gpu->node == node && is_front(gpu))
                front = fmax(front, gpu->temperature_c.peak);
            if (gpu->node == node && is_rear(gpu))
                rear = fmin(rear, gpu->temperature_c.least);
        }
        if (rear - front < smallest) {
            smallest = rear - front;
            slots->front_peak_c = front;
            slots->rear_least_c = rear;
        }
    }
    return true;
}

struct hottest {
    erg_mark mark;
    struct slots slots;
    double ratio;
};

static void see_hottest(struct erg_finding_check *at, erg_mark mark, void *context)
{
    struct hottest *hottest = context;
    struct slots slots;
    (void)at;
    if (!erg_mark_is_usual(mark) || erg_mark_inlet(mark) != 29 || !read_slots(&slots, mark))
        return;
    double ratio = slots.rear_c / slots.front_c;
    if (!hottest->mark || ratio > hottest->ratio)
        *hottest = (struct hottest){mark, slots, ratio};
}

static struct hottest hottest_of(struct erg_finding_check *at)
{
    struct hottest hottest = {0};
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_hottest, &hottest});
    return hottest;
}

void erg_finding_check_rear_ratio(struct erg_finding_check *at)
{
    struct hottest hottest = hottest_of(at);
    if (!hottest.mark)
        return;
    erg_finding_say(at, "%.3f (%.1f against %.1f °C, %s %s)", hottest.ratio, hottest.slots.rear_c,
                    hottest.slots.front_c, hottest.mark->model, hottest.mark->label);
    erg_finding_judge_range(at, hottest.ratio, 1.20, 1.30);
}

void erg_finding_check_rear_gap(struct erg_finding_check *at)
{
    struct hottest hottest = hottest_of(at);
    if (!hottest.mark)
        return;
    const double gap = hottest.slots.rear_c - hottest.slots.front_c;
    erg_finding_say(at, "%.1f K (%s %s)", gap, hottest.mark->model, hottest.mark->label);
    erg_finding_judge_range(at, gap, 12, 20);
}

static void see_twins(struct erg_finding_check *at, erg_mark mark, void *context)
{
    double *most = context, sum = 0;
    const struct erg_study_result *result = mark->result;
    size_t pairs = 0;
    (void)at;
    if (!erg_mark_is_usual(mark))
        return;
    for (size_t i = 0; i + 1 < result->gpu_count; i += 2, pairs++)
        sum += fabs(result->gpu[i + 1].temperature_c.mean - result->gpu[i].temperature_c.mean);
    if (pairs)
        *most = fmax(isnan(*most) ? 0 : *most, sum / (double)pairs);
}

void erg_finding_check_twins(struct erg_finding_check *at)
{
    double most = NAN;
    erg_marks_visit(at, &(struct erg_mark_visit){"mi250", see_twins, &most});
    if (isnan(most))
        return;
    erg_finding_say(at, "%.1f K between the dies of a board", most);
    erg_finding_judge_range(at, most, 5, 10);
}

struct slowest {
    double inlet_least, inlet_most;
    const struct erg_result_gpu *gpu;
    erg_mark mark;
};

static void see_slowest(struct erg_finding_check *at, erg_mark mark, void *context)
{
    struct slowest *slowest = context;
    const double inlet = erg_mark_inlet(mark);
    struct slots slots;
    (void)at;
    if (!isnan(mark->fault_clock_share) || inlet < slowest->inlet_least ||
        inlet > slowest->inlet_most || !read_slots(&slots, mark))
        return;
    for (size_t i = 0; i < mark->result->gpu_count; i++) {
        const struct erg_result_gpu *gpu = &mark->result->gpu[i];
        if (!slowest->gpu || gpu->busy_clock_mhz < slowest->gpu->busy_clock_mhz) {
            slowest->gpu = gpu;
            slowest->mark = mark;
        }
    }
}

void erg_finding_check_lowest_clock(struct erg_finding_check *at)
{
    const struct {
        double least, most;
        bool by_heat;
    } airs[] = {{28, 30, false}, {41.5, 42.5, true}};
    for (size_t i = 0; i < sizeof airs / sizeof *airs; i++) {
        struct slowest slowest = {airs[i].least, airs[i].most, NULL, NULL};
        erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_slowest, &slowest});
        if (!slowest.gpu || !slowest.gpu->slot)
            continue;
        const bool by_heat = slowest.gpu->thermal_share > slowest.gpu->cap_share;
        erg_finding_say(at, "%.0f MHz, held by %s, at %.0f °C of air (%s %s)",
                        slowest.gpu->busy_clock_mhz, by_heat ? "heat" : "the cap",
                        airs[i].by_heat ? 42.0 : 29.0, slowest.mark->model, slowest.mark->label);
        erg_finding_judge(at, slowest.gpu->busy_clock_mhz <= 1750 && by_heat == airs[i].by_heat);
    }
}

struct overlapping {
    size_t count, apart;
    erg_mark worst;
    double gap;
};

static void see_overlapping(struct erg_finding_check *at, erg_mark mark, void *context)
{
    struct overlapping *overlapping = context;
    struct slots slots;
    (void)at;
    if (!erg_mark_is_usual(mark) || erg_mark_inlet(mark) != 29 || mark->pipeline < 2 ||
        mark->microbatch != 1 || mark->equal || !read_slots(&slots, mark))
        return;
    const double gap = slots.rear_least_c - slots.front_peak_c;
    overlapping->count++;
    overlapping->apart += gap > 0;
    if (!overlapping->worst || gap < overlapping->gap) {
        overlapping->worst = mark;
        overlapping->gap = gap;
    }
}

void erg_finding_check_cool_down(struct erg_finding_check *at)
{
    struct overlapping overlapping = {0};
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_overlapping, &overlapping});
    if (!overlapping.count)
        return;
    erg_finding_say(at, "%zu of %zu; least %.1f K (%s %s %s)", overlapping.apart, overlapping.count,
                    overlapping.gap, overlapping.worst->model, overlapping.worst->label,
                    overlapping.worst->optimisation);
    erg_finding_judge(at, overlapping.apart == overlapping.count);
}

static void see_clock(struct erg_finding_check *at, erg_mark mark, void *context)
{
    (void)context;
    if (erg_mark_is_usual(mark) && erg_mark_inlet(mark) == 29 && !mark->equal &&
        mark->pipeline > 1 && mark->microbatch == 1 && !strcmp(mark->optimisation, "act") &&
        at->ours.count < 600)
        erg_finding_say(at, "%s %s: busy %.0f, all %.0f MHz", mark->model, mark->label,
                        mark->result->metrics.busy_clock_mhz, mark->result->metrics.clock_mhz);
}

void erg_finding_report_clocks(struct erg_finding_check *at)
{
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_clock, NULL});
}

/* ---- placement and splits ---- */

static bool is_given(erg_mark mark, const void *context)
{
    (void)context;
    return !strcmp(mark->placement, "given");
}

static void see_cold_first(struct erg_finding_check *at, erg_mark mark, void *context)
{
    double *most = context;
    if (strcmp(mark->placement, "cold-first") != 0 || mark->split)
        return;
    erg_mark given = erg_mark_find(at, mark, ERG_MARK_PLACEMENT, is_given, NULL);
    if (!given)
        return;
    const double change = mark->result->metrics.eff_edp / given->result->metrics.eff_edp - 1;
    if (isnan(*most) || fabs(change) > fabs(*most))
        *most = change;
}

void erg_finding_check_cold_first(struct erg_finding_check *at)
{
    double most = NAN;
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_cold_first, &most});
    if (isnan(most))
        return;
    erg_finding_say(at, "eff_edp changes by at most %+.2f %%", 100 * most);
    erg_finding_judge(at, fabs(most) <= 0.02);
}

static bool is_equal_split(erg_mark mark, const void *context)
{
    (void)context;
    return !mark->split;
}

struct uneven {
    double inlet_least, inlet_most;
    bool judges_llama_gain;
};

/* Returns true if front GPUs have more layers. */
static bool is_for_cold_ones(erg_mark mark)
{
    const struct erg_study_result *result = mark->result;
    double layers[2] = {0, 0}, gpus[2] = {0, 0};
    for (size_t i = 0; i < result->gpu_count; i++) {
        const struct erg_result_gpu *gpu = &result->gpu[i];
        const size_t rear = is_rear(gpu);
        for (size_t s = 0; s < result->stage_count; s++)
            if (result->stages[s].stage == gpu->stage) {
                layers[rear] += (double)result->stages[s].layers;
                gpus[rear]++;
            }
    }
    return layers[0] / gpus[0] > layers[1] / gpus[1];
}

static void see_uneven(struct erg_finding_check *at, erg_mark mark, void *context)
{
    const struct uneven *uneven = context;
    const double inlet = erg_mark_inlet(mark);
    struct slots own, other;
    if (!mark->split || inlet < uneven->inlet_least || inlet > uneven->inlet_most ||
        !is_for_cold_ones(mark))
        return;
    erg_mark equal = erg_mark_find(at, mark, ERG_MARK_SPLIT, is_equal_split, NULL);
    if (!equal || !read_slots(&own, mark) || !read_slots(&other, equal))
        return;
    const double change = mark->result->metrics.eff_edp / equal->result->metrics.eff_edp - 1;
    const double gap = (own.rear_c - own.front_c) / (other.rear_c - other.front_c) - 1;
    erg_finding_say(at, "%s at %.0f °C of air: eff_edp %+.2f %%, gap %+.0f %%", mark->model, inlet,
                    100 * change, 100 * gap);
    const bool gains = uneven->judges_llama_gain && erg_mark_is_llama(mark);
    erg_finding_judge(at, (gains ? change > 0 : change < 0) && gap < -0.07 && gap > -0.25);
}

void erg_finding_check_uneven(struct erg_finding_check *at)
{
    struct uneven band = {41, 42, true}, cool = {29, 29, false};
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_uneven, &band});
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_uneven, &cool});
}
