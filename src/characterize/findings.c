/* Findings of a published study, checked on the points of ours. */
#include "characterize/findings.h"

#include "base/statistics.h"
#include "base/text.h"
#include "io/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const erg_finding_kind_names[] = {"magnitude", "sign", "reported", "not modelled",
                                              NULL};
const char *const erg_finding_verdict_names[] = {
    "holds", "fails", "reported", "no points for it", "not modelled", NULL};

struct checking {
    struct erg_findings *findings;
    const struct erg_collection *const *collections;
    size_t count;
    struct erg_text ours;
    /* Of the finding at hand. */
    size_t judged, failed;
};

/* ---- marks ---- */

typedef const struct erg_collected *mark_t;

/* Calls `visit` for every mark that was run and fits, of clusters with such a name (NULL: all). */
struct visit {
    const char *cluster;
    void (*each)(struct checking *at, mark_t mark, void *context);
    void *context;
};

/* Whether a study before has the same mark: it is looked at once. */
static bool is_repeated(const struct checking *at, size_t collection, mark_t mark)
{
    for (size_t c = 0; c < collection; c++)
        for (size_t i = 0; i < at->collections[c]->count; i++)
            if (!strcmp(at->collections[c]->marks[i].id, mark->id) &&
                !strcmp(at->collections[c]->marks[i].name, mark->name))
                return true;
    return false;
}

static void visit_marks(struct checking *at, const struct visit *visit)
{
    for (size_t c = 0; c < at->count; c++) {
        const struct erg_collection *collection = at->collections[c];
        if (visit->cluster && !strstr(collection->cluster, visit->cluster))
            continue;
        for (size_t i = 0; i < collection->count; i++) {
            mark_t mark = &collection->marks[i];
            if (mark->result->status == ERG_RESULT_OK && !is_repeated(at, c, mark))
                visit->each(at, mark, visit->context);
        }
    }
}

/* Neither a fault nor another way to place, split or train. */
static bool is_usual(mark_t mark)
{
    return isnan(mark->fault_clock_share) && mark->lora_rank == 0 && !mark->split &&
           !strcmp(mark->placement, "given");
}

static bool is_usual_air(mark_t mark)
{
    return isnan(mark->inlet_c) || mark->inlet_c == 29;
}

static bool is_model(mark_t mark, const char *name)
{
    return strstr(mark->model, name) != NULL;
}

static bool is_llama(mark_t mark)
{
    return is_model(mark, "llama") && is_model(mark, "70b");
}

/* What two marks may differ in; bits. */
enum {
    OF_OPTIMISATION = 1,
    OF_MICROBATCH = 2,
    OF_PLACEMENT = 4,
    OF_SPLIT = 8,
    OF_FAULT = 16,
    OF_LORA = 32,
};

static bool alike(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool is_same_but(mark_t a, mark_t b, unsigned of)
{
    return !strcmp(a->model, b->model) && !strcmp(a->label, b->label) &&
           a->sequence == b->sequence && a->batch == b->batch && alike(a->inlet_c, b->inlet_c) &&
           (of & OF_OPTIMISATION || !strcmp(a->optimisation, b->optimisation)) &&
           (of & OF_MICROBATCH || a->microbatch == b->microbatch) &&
           (of & OF_PLACEMENT || !strcmp(a->placement, b->placement)) &&
           (of & OF_SPLIT || a->split == b->split) &&
           (of & OF_FAULT || alike(a->fault_clock_share, b->fault_clock_share)) &&
           (of & OF_LORA || a->lora_rank == b->lora_rank);
}

/* The study that a mark is of. */
static const struct erg_collection *study_of(const struct checking *at, mark_t mark)
{
    size_t c = 0;
    while (mark < at->collections[c]->marks ||
           mark >= at->collections[c]->marks + at->collections[c]->count)
        c++;
    return at->collections[c];
}

/* The first mark on the same cluster that was run, differs in no more and `fits`. */
static mark_t find(const struct checking *at, mark_t like, unsigned of,
                   bool (*fits)(mark_t mark, const void *context), const void *context)
{
    const char *cluster = study_of(at, like)->cluster;
    for (size_t c = 0; c < at->count; c++) {
        const struct erg_collection *collection = at->collections[c];
        if (strcmp(collection->cluster, cluster) != 0)
            continue;
        for (size_t i = 0; i < collection->count; i++) {
            mark_t mark = &collection->marks[i];
            if (mark->result->status == ERG_RESULT_OK && is_same_but(like, mark, of) &&
                fits(mark, context))
                return mark;
        }
    }
    return NULL;
}

/* A mark of a layout by its label and optimisation, on a cluster with such a name. */
struct wanted_mark {
    const char *cluster, *model, *label, *optimisation;
    long microbatch;
};

static mark_t find_wanted(const struct checking *at, const struct wanted_mark *wanted)
{
    for (size_t c = 0; c < at->count; c++) {
        const struct erg_collection *collection = at->collections[c];
        if (wanted->cluster && !strstr(collection->cluster, wanted->cluster))
            continue;
        for (size_t i = 0; i < collection->count; i++) {
            mark_t mark = &collection->marks[i];
            if (mark->result->status == ERG_RESULT_OK && is_usual(mark) && is_usual_air(mark) &&
                is_model(mark, wanted->model) && !strcmp(mark->label, wanted->label) &&
                (!wanted->optimisation || !strcmp(mark->optimisation, wanted->optimisation)) &&
                (!wanted->microbatch || mark->microbatch == wanted->microbatch))
                return mark;
        }
    }
    return NULL;
}

/* ---- sentences ---- */

static void say(struct checking *at, const char *format, ...) ERG_PRINTF(2, 3);

static void say(struct checking *at, const char *format, ...)
{
    char part[512];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    if (at->ours.count)
        erg_text_add(&at->ours, "; ");
    erg_text_add(&at->ours, part);
}

/* A check that holds or not. */
static void judge(struct checking *at, bool holds)
{
    at->judged++;
    at->failed += !holds;
}

static void judge_range(struct checking *at, double value, double least, double most)
{
    judge(at, value >= least && value <= most);
}

/* ---- heat ---- */

struct slots {
    double front_c, rear_c;            /* means */
    double front_peak_c, rear_least_c; /* over time, of the node with the smallest gap */
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

/* False where the chassis has not both. */
static bool read_slots(struct slots *slots, mark_t mark)
{
    *slots = (struct slots){0};
    const struct erg_sweep_result *result = mark->result;
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
    mark_t mark;
    struct slots slots;
    double ratio;
};

static void see_hottest(struct checking *at, mark_t mark, void *context)
{
    struct hottest *hottest = context;
    struct slots slots;
    (void)at;
    if (!is_usual(mark) || !is_usual_air(mark) || !read_slots(&slots, mark))
        return;
    double ratio = slots.rear_c / slots.front_c;
    if (!hottest->mark || ratio > hottest->ratio)
        *hottest = (struct hottest){mark, slots, ratio};
}

static struct hottest hottest_of(struct checking *at)
{
    struct hottest hottest = {0};
    visit_marks(at, &(struct visit){NULL, see_hottest, &hottest});
    return hottest;
}

static void check_rear_ratio(struct checking *at)
{
    struct hottest hottest = hottest_of(at);
    if (!hottest.mark)
        return;
    say(at, "%.3f (%.1f against %.1f °C, %s %s)", hottest.ratio, hottest.slots.rear_c,
        hottest.slots.front_c, hottest.mark->model, hottest.mark->label);
    judge_range(at, hottest.ratio, 1.20, 1.30);
}

static void check_rear_gap(struct checking *at)
{
    struct hottest hottest = hottest_of(at);
    if (!hottest.mark)
        return;
    const double gap = hottest.slots.rear_c - hottest.slots.front_c;
    say(at, "%.1f K (%s %s)", gap, hottest.mark->model, hottest.mark->label);
    judge_range(at, gap, 12, 20);
}

static void see_twins(struct checking *at, mark_t mark, void *context)
{
    double *most = context, sum = 0;
    const struct erg_sweep_result *result = mark->result;
    size_t pairs = 0;
    (void)at;
    if (!is_usual(mark))
        return;
    for (size_t i = 0; i + 1 < result->gpu_count; i += 2, pairs++)
        sum += fabs(result->gpu[i + 1].temperature_c.mean - result->gpu[i].temperature_c.mean);
    if (pairs)
        *most = fmax(isnan(*most) ? 0 : *most, sum / (double)pairs);
}

static void check_twins(struct checking *at)
{
    double most = NAN;
    visit_marks(at, &(struct visit){"mi250", see_twins, &most});
    if (isnan(most))
        return;
    say(at, "%.1f K between the dies of a board", most);
    judge_range(at, most, 5, 10);
}

struct slowest {
    double inlet_least, inlet_most;
    const struct erg_result_gpu *gpu;
    mark_t mark;
};

static void see_slowest(struct checking *at, mark_t mark, void *context)
{
    struct slowest *slowest = context;
    const double inlet = isnan(mark->inlet_c) ? 29 : mark->inlet_c;
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

static void check_lowest_clock(struct checking *at)
{
    const struct {
        double least, most;
        bool by_heat;
    } airs[] = {{28, 30, false}, {41.5, 42.5, true}};
    for (size_t i = 0; i < sizeof airs / sizeof *airs; i++) {
        struct slowest slowest = {airs[i].least, airs[i].most, NULL, NULL};
        visit_marks(at, &(struct visit){NULL, see_slowest, &slowest});
        if (!slowest.gpu || !slowest.gpu->slot)
            continue;
        const bool by_heat = slowest.gpu->thermal_share > slowest.gpu->cap_share;
        say(at, "%.0f MHz, held by %s, at %.0f °C of air (%s %s)", slowest.gpu->busy_clock_mhz,
            by_heat ? "heat" : "the cap", airs[i].by_heat ? 42.0 : 29.0, slowest.mark->model,
            slowest.mark->label);
        judge(at, slowest.gpu->busy_clock_mhz <= 1750 && by_heat == airs[i].by_heat);
    }
}

struct overlapping {
    size_t count, apart;
    mark_t worst;
    double gap;
};

static void see_overlapping(struct checking *at, mark_t mark, void *context)
{
    struct overlapping *overlapping = context;
    struct slots slots;
    (void)at;
    if (!is_usual(mark) || !is_usual_air(mark) || mark->pipeline < 2 || mark->microbatch != 1 ||
        mark->equal || mark->expert > 1 || !read_slots(&slots, mark))
        return;
    const double gap = slots.rear_least_c - slots.front_peak_c;
    overlapping->count++;
    overlapping->apart += gap > 0;
    if (!overlapping->worst || gap < overlapping->gap) {
        overlapping->worst = mark;
        overlapping->gap = gap;
    }
}

static void check_cool_down(struct checking *at)
{
    struct overlapping overlapping = {0};
    visit_marks(at, &(struct visit){NULL, see_overlapping, &overlapping});
    if (!overlapping.count)
        return;
    say(at, "%zu of %zu; least %.1f K (%s %s %s)", overlapping.apart, overlapping.count,
        overlapping.gap, overlapping.worst->model, overlapping.worst->label,
        overlapping.worst->optimisation);
    judge(at, overlapping.apart == overlapping.count);
}

static void see_clock(struct checking *at, mark_t mark, void *context)
{
    (void)context;
    if (is_usual(mark) && is_usual_air(mark) && !mark->equal && mark->pipeline > 1 &&
        mark->microbatch == 1 && !strcmp(mark->optimisation, "act") && at->ours.count < 600)
        say(at, "%s %s: busy %.0f, all %.0f MHz", mark->model, mark->label,
            mark->result->metrics.busy_clock_mhz, mark->result->metrics.clock_mhz);
}

static void report_clocks(struct checking *at)
{
    visit_marks(at, &(struct visit){NULL, see_clock, NULL});
}

/* ---- microbatches ---- */

static void check_sharded_speedup(struct checking *at)
{
    struct wanted_mark wanted = {NULL, "gpt3-175b", "TP8 FSDP4", "act", 1};
    mark_t small = find_wanted(at, &wanted);
    wanted.microbatch = 4;
    mark_t large = find_wanted(at, &wanted);
    if (!small || !large)
        return;
    const double ratio = small->result->metrics.time_s / large->result->metrics.time_s;
    say(at, "%.2f (%.1f against %.1f s)", ratio, small->result->metrics.time_s,
        large->result->metrics.time_s);
    judge_range(at, ratio, 3.2, 4.0);
}

static void check_pipeline_microbatches(struct checking *at)
{
    mark_t before = NULL;
    size_t pairs = 0;
    bool holds = true;
    for (long b = 1; b <= 64; b *= 2) {
        struct wanted_mark wanted = {NULL, "gpt3-175b", "TP2 PP16", "act", b};
        mark_t mark = find_wanted(at, &wanted);
        if (!mark)
            continue;
        const struct erg_result_metrics *own = &mark->result->metrics;
        say(at, "b=%ld: %.1f s, eff_edp %.4g", b, own->time_s, own->eff_edp);
        if (before) {
            pairs++;
            holds = holds && own->time_s > before->result->metrics.time_s &&
                    own->eff_edp < before->result->metrics.eff_edp;
        }
        before = mark;
    }
    if (pairs)
        judge(at, holds);
}

static bool has_microbatch(mark_t mark, const void *context)
{
    return mark->microbatch == *(const long *)context;
}

static void see_sharded(struct checking *at, mark_t mark, void *context)
{
    (void)context;
    if (mark->fsdp < 2 || !is_usual(mark) || mark->microbatch != 1 || mark->equal ||
        strcmp(mark->optimisation, "act") != 0)
        return;
    mark_t large = NULL;
    for (long b = 2; b <= 64; b *= 2) {
        mark_t other = find(at, mark, OF_MICROBATCH, has_microbatch, &b);
        large = other ? other : large;
    }
    if (!large)
        return;
    const struct erg_result_metrics *a = &mark->result->metrics, *b = &large->result->metrics;
    say(at, "%s b=1 to %ld: %.0f to %.0f W, sensor peak %.0f to %.0f W, %.1f to %.1f °C",
        mark->model, large->microbatch, a->power_w.mean, b->power_w.mean, a->power_w.sensor_peak,
        b->power_w.sensor_peak, a->temperature_c.peak, b->temperature_c.peak);
    judge(at, b->power_w.mean > a->power_w.mean &&
                  b->power_w.sensor_peak >= a->power_w.sensor_peak &&
                  b->temperature_c.peak > a->temperature_c.peak);
}

static void check_sharded_microbatches(struct checking *at)
{
    visit_marks(at, &(struct visit){NULL, see_sharded, NULL});
}

/* ---- optimisations ---- */

static bool has_optimisation(mark_t mark, const void *context)
{
    return !strcmp(mark->optimisation, context);
}

struct overlaps {
    size_t count, shorter, faster, power, heat;
    size_t same; /* pairs of sharded weights, whose gathers take longer than all that overlaps */
};

static void see_overlap(struct checking *at, mark_t mark, void *context)
{
    struct overlaps *overlaps = context;
    if (strcmp(mark->optimisation, "cc") != 0 || !is_usual(mark))
        return;
    mark_t base = find(at, mark, OF_OPTIMISATION, has_optimisation, "base");
    if (!base || !strcmp(base->id, mark->id))
        return;
    const struct erg_result_metrics *a = &base->result->metrics, *b = &mark->result->metrics;
    if (mark->fsdp > 1 && fabs(b->time_s / a->time_s - 1) < 1e-6) {
        overlaps->same++;
        return;
    }
    overlaps->count++;
    overlaps->shorter += b->exposed_share * b->time_s < a->exposed_share * a->time_s;
    overlaps->faster += b->time_s < a->time_s;
    overlaps->power += b->power_w.mean >= a->power_w.mean * (1 - 1e-3);
    overlaps->heat += b->temperature_c.peak >= a->temperature_c.peak - 0.1;
}

static void check_overlap(struct checking *at)
{
    struct overlaps overlaps = {0};
    visit_marks(at, &(struct visit){NULL, see_overlap, &overlaps});
    if (!overlaps.count)
        return;
    say(at,
        "of %zu pairs exposed communication falls in %zu, time in %zu; mean power does not fall in "
        "%zu, the highest temperature in %zu; in %zu more gathers of sharded weights set the pace, "
        "and nothing changes",
        overlaps.count, overlaps.shorter, overlaps.faster, overlaps.power, overlaps.heat,
        overlaps.same);
    judge(at, overlaps.shorter == overlaps.count && overlaps.faster == overlaps.count &&
                  overlaps.power == overlaps.count && overlaps.heat == overlaps.count);
}

static void see_throttling(struct checking *at, mark_t mark, void *context)
{
    (void)context;
    if (strcmp(mark->optimisation, "act") != 0 || !is_usual(mark) || at->ours.count > 500)
        return;
    mark_t base = find(at, mark, OF_OPTIMISATION, has_optimisation, "base");
    if (!base || !strcmp(base->id, mark->id))
        return;
    const struct erg_result_metrics *a = &base->result->metrics, *b = &mark->result->metrics;
    say(at, "%s %s: %.0f to %.0f %% of busy time", mark->model, mark->label,
        100 * (a->cap_share + a->thermal_share), 100 * (b->cap_share + b->thermal_share));
}

static void report_throttling(struct checking *at)
{
    visit_marks(at, &(struct visit){NULL, see_throttling, NULL});
}

/* ---- clusters beside each other ---- */

struct fastest {
    mark_t mark;
    bool (*is_model)(mark_t mark);
};

static void see_fastest(struct checking *at, mark_t mark, void *context)
{
    struct fastest *fastest = context;
    (void)at;
    if (!is_usual(mark) || !fastest->is_model(mark) || mark->microbatch != 1 ||
        strcmp(mark->optimisation, "act") != 0 || mark->fsdp > 1)
        return;
    if (!fastest->mark || mark->result->metrics.time_s < fastest->mark->result->metrics.time_s)
        fastest->mark = mark;
}

static void check_llama_clusters(struct checking *at)
{
    struct fastest h100 = {NULL, is_llama}, h200 = {NULL, is_llama};
    visit_marks(at, &(struct visit){"charllm-h100", see_fastest, &h100});
    visit_marks(at, &(struct visit){"charllm-h200", see_fastest, &h200});
    if (!h100.mark || !h200.mark)
        return;
    const double a = h100.mark->result->metrics.time_s, b = h200.mark->result->metrics.time_s;
    say(at, "%.2f (%.1f s on %ld H100, %.1f s on %ld H200)", a / b, a, h100.mark->result->gpus, b,
        h200.mark->result->gpus);
    judge_range(at, a / b, 0.5, 0.65);
}

static bool find_pair(const struct checking *at, const char *model, const char *h200_label,
                      const char *h100_label, const char *optimisation, mark_t pair[2])
{
    pair[0] = find_wanted(at, &(struct wanted_mark){"h200", model, h200_label, optimisation, 1});
    pair[1] = find_wanted(at, &(struct wanted_mark){"h100", model, h100_label, optimisation, 1});
    return pair[0] && pair[1];
}

static void check_gpt3_energy(struct checking *at)
{
    mark_t pair[2];
    if (!find_pair(at, "gpt3-175b", "TP2 PP16", "TP2 PP32", "act", pair))
        return;
    const double h200 = pair[0]->result->metrics.j_per_token;
    const double h100 = pair[1]->result->metrics.j_per_token;
    say(at, "%.4g J on H200, %.4g J on H100", h200, h100);
    judge(at, h200 < h100);
}

static void report_gpt3_speed(struct checking *at)
{
    mark_t pair[2];
    if (!find_pair(at, "gpt3-175b", "TP2 PP16", "TP2 PP32", "act", pair))
        return;
    say(at, "H100 is %.2f times as fast: the published order is not reproduced",
        pair[0]->result->metrics.time_s / pair[1]->result->metrics.time_s);
}

static void check_mixtral_energy(struct checking *at)
{
    mark_t pair[2];
    if (!find_pair(at, "8x22b", "EP8 TP1 PP4", "EP8 TP1 PP8", NULL, pair))
        return;
    const double h200 = pair[0]->result->metrics.tokens_per_j;
    const double h100 = pair[1]->result->metrics.tokens_per_j;
    say(at, "%.4g tokens/J on H200, %.4g on H100", h200, h100);
    judge(at, h200 > h100);
}

/* ---- traffic ---- */

/* The share of kernel seconds that are communication; NaN: nothing was traced. */
static double communication_share(mark_t mark)
{
    static const char *const names[] = {"SendRecv", "AllGather", "ReduceScatter", "AllReduce"};
    double all = 0, communication = 0;
    for (size_t i = 0; i < mark->result->kernels_count; i++) {
        const struct erg_result_kernels *kernels = &mark->result->kernels[i];
        for (size_t c = 0; c < kernels->category_count; c++) {
            const struct erg_result_category *category = &kernels->categories[c];
            all += category->summed_s;
            for (size_t n = 0; n < sizeof names / sizeof *names; n++)
                if (!strcmp(names[n], category->name))
                    communication += category->summed_s;
        }
    }
    return communication / all;
}

static void see_shares(struct checking *at, mark_t mark, void *context)
{
    const bool mixtral = is_model(mark, "8x22b") && strstr(mark->label, "EP8 TP4");
    (void)context;
    if (!is_usual(mark) || !is_usual_air(mark) || mark->microbatch != 1 || mark->equal ||
        strcmp(mark->optimisation, "act") != 0 || !(mixtral || (is_llama(mark) && mark->fsdp < 2)))
        return;
    const double share = communication_share(mark);
    if (isnan(share))
        return;
    say(at, "%s %s: communication %.0f %%", mark->model, mark->label, 100 * share);
    judge(at, mixtral ? share > 0.5 : share < 0.5);
}

static void check_kernel_shares(struct checking *at)
{
    visit_marks(at, &(struct visit){NULL, see_shares, NULL});
}

struct busiest {
    mark_t mark;
};

static void see_network(struct checking *at, mark_t mark, void *context)
{
    struct busiest *busiest = context;
    (void)at;
    if (!is_usual(mark) || mark->fsdp > 1 || mark->expert > 1 || mark->pipeline < 2 ||
        isnan(mark->result->metrics.network_use))
        return;
    if (!busiest->mark ||
        mark->result->metrics.network_use > busiest->mark->result->metrics.network_use)
        busiest->mark = mark;
}

static void check_network(struct checking *at)
{
    struct busiest busiest = {0};
    visit_marks(at, &(struct visit){NULL, see_network, &busiest});
    if (!busiest.mark)
        return;
    say(at, "at most %.3f (%s %s)", busiest.mark->result->metrics.network_use, busiest.mark->model,
        busiest.mark->label);
    judge(at, busiest.mark->result->metrics.network_use < 0.3);
}

/* ---- placement, splits, faults, adapters ---- */

static bool is_given(mark_t mark, const void *context)
{
    (void)context;
    return !strcmp(mark->placement, "given");
}

static void see_cold_first(struct checking *at, mark_t mark, void *context)
{
    double *most = context;
    /* With several replicas their sums of gradients would go another way, too. */
    if (strcmp(mark->placement, "cold-first") != 0 || mark->split || mark->data > 1)
        return;
    mark_t given = find(at, mark, OF_PLACEMENT, is_given, NULL);
    if (!given)
        return;
    const double change = mark->result->metrics.eff_edp / given->result->metrics.eff_edp - 1;
    if (isnan(*most) || fabs(change) > fabs(*most))
        *most = change;
}

static void check_cold_first(struct checking *at)
{
    double most = NAN;
    visit_marks(at, &(struct visit){NULL, see_cold_first, &most});
    if (isnan(most))
        return;
    say(at, "eff_edp changes by at most %+.2f %%", 100 * most);
    judge(at, fabs(most) <= 0.02);
}

static bool is_equal_split(mark_t mark, const void *context)
{
    (void)context;
    return !mark->split;
}

struct uneven {
    double inlet_least, inlet_most;
    bool judges_llama_gain;
};

/* Whether GPUs in front have more layers. */
static bool is_for_cold_ones(mark_t mark)
{
    const struct erg_sweep_result *result = mark->result;
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

static void see_uneven(struct checking *at, mark_t mark, void *context)
{
    const struct uneven *uneven = context;
    const double inlet = isnan(mark->inlet_c) ? 29 : mark->inlet_c;
    struct slots own, other;
    if (!mark->split || inlet < uneven->inlet_least || inlet > uneven->inlet_most ||
        !is_for_cold_ones(mark))
        return;
    mark_t equal = find(at, mark, OF_SPLIT, is_equal_split, NULL);
    if (!equal || !read_slots(&own, mark) || !read_slots(&other, equal))
        return;
    const double change = mark->result->metrics.eff_edp / equal->result->metrics.eff_edp - 1;
    const double gap = (own.rear_c - own.front_c) / (other.rear_c - other.front_c) - 1;
    say(at, "%s at %.0f °C of air: eff_edp %+.2f %%, gap %+.0f %%", mark->model, inlet,
        100 * change, 100 * gap);
    const bool gains = uneven->judges_llama_gain && is_llama(mark);
    judge(at, (gains ? change > 0 : change < 0) && gap < -0.07 && gap > -0.25);
}

static void check_uneven(struct checking *at)
{
    struct uneven band = {41, 42, true}, cool = {29, 29, false};
    visit_marks(at, &(struct visit){NULL, see_uneven, &band});
    visit_marks(at, &(struct visit){NULL, see_uneven, &cool});
}

static bool is_full(mark_t mark, const void *context)
{
    (void)context;
    return mark->lora_rank == 0;
}

/* Of all pairs; their median is judged. */
struct ratios {
    double *items;
    size_t count, capacity;
};

static void see_lora(struct checking *at, mark_t mark, void *context)
{
    struct ratios *ratios = context;
    if (mark->lora_rank == 0 || mark->equal)
        return;
    mark_t full = find(at, mark, OF_LORA, is_full, NULL);
    if (!full)
        return;
    const double ratio = mark->result->metrics.tokens_per_j / full->result->metrics.tokens_per_j;
    ERG_PUSH(ratios, items, ratio);
}

static void check_lora(struct checking *at)
{
    struct ratios ratios = {0};
    visit_marks(at, &(struct visit){NULL, see_lora, &ratios});
    if (ratios.count > 0) {
        const double median = erg_median(ratios.items, ratios.count); /* sorts them */
        say(at, "%.2f in the median of %zu layouts, %.2f to %.2f", median, ratios.count,
            ratios.items[0], ratios.items[ratios.count - 1]);
        judge_range(at, median, 1.2, 1.7);
    }
    free(ratios.items);
}

static bool is_sound(mark_t mark, const void *context)
{
    (void)context;
    return isnan(mark->fault_clock_share);
}

static void see_fault(struct checking *at, mark_t mark, void *context)
{
    (void)context;
    if (isnan(mark->fault_clock_share) || mark->fault_clock_share > 0.25)
        return;
    mark_t sound = find(at, mark, OF_FAULT, is_sound, NULL);
    if (!sound)
        return;
    const double ratio = mark->result->metrics.time_s / sound->result->metrics.time_s;
    say(at, "%s %s: %.2f times", mark->model, mark->label, ratio);
    judge(at, ratio >= 3.5);
}

static void check_fault(struct checking *at)
{
    visit_marks(at, &(struct visit){NULL, see_fault, NULL});
}

/* ---- the table ---- */

static const struct finding_row {
    const char *id;
    enum erg_finding_kind kind;
    const char *claim, *expected;
    void (*check)(struct checking *at); /* NULL: nothing to look at */
} rows[] = {
    {"1", ERG_FINDING_MAGNITUDE,
     "GPUs behind others are up to 27 % hotter: most of mean rear over mean front temperature, in "
     "°C",
     "1.20 to 1.30", check_rear_ratio},
    {"2", ERG_FINDING_MAGNITUDE, "the same as a difference under load", "12 to 20 K",
     check_rear_gap},
    {"3", ERG_FINDING_MAGNITUDE, "the two dies of an MI250 differ", "5 to 10 K", check_twins},
    {"4", ERG_FINDING_SIGN,
     "hot GPUs clock at 1.7 GHz or lower under load: the lowest mean busy clock",
     "at most 1.75 GHz; by the cap at 29 °C of air, by heat at 42 °C", check_lowest_clock},
    {"5", ERG_FINDING_SIGN,
     "rear GPUs do not cool down: their least temperature is above the highest of the front ones "
     "of "
     "their node, in pipelines of dense models with microbatches of 1",
     "in all", check_cool_down},
    {"6", ERG_FINDING_REPORTED, "throttling grows with the depth of the pipeline",
     "no sign required", report_clocks},
    {"7", ERG_FINDING_OUT, "resident blocks as its cause", "not modelled", NULL},
    {"8", ERG_FINDING_MAGNITUDE,
     "GPT3-175B TP8 FSDP4 gains more than 3 times by microbatches of 4: time at 1 over time at 4",
     "3.2 to 4.0", check_sharded_speedup},
    {"9", ERG_FINDING_SIGN, "GPT3-175B TP2 PP16 gains nothing by larger microbatches",
     "time rises, eff_edp falls", check_pipeline_microbatches},
    {"10", ERG_FINDING_SIGN,
     "peak power and temperature rise with the microbatch: of fully sharded layouts",
     "mean power, sensor peak and highest temperature rise", check_sharded_microbatches},
    {"11", ERG_FINDING_SIGN, "overlap heats: cc against base, where they are not equal",
     "exposed communication and time fall, mean power and highest temperature do not",
     check_overlap},
    {"12", ERG_FINDING_REPORTED,
     "recomputation throttles deep pipelines less and data parallel layouts more",
     "no sign required", report_throttling},
    {"13", ERG_FINDING_SIGN, "Llama3-70B: 64 H100 are ahead of 32 H200, in time", "0.5 to 0.65",
     check_llama_clusters},
    {"13b", ERG_FINDING_SIGN,
     "GPT3-175B: TP2 PP16 on H200 needs less energy per token than TP2 PP32 on H100", "less",
     check_gpt3_energy},
    {"13c", ERG_FINDING_REPORTED, "the same in throughput", "not reproduced", report_gpt3_speed},
    {"13d", ERG_FINDING_SIGN,
     "Mixtral 8x22B: EP8 TP1 PP4 on H200 has more tokens per joule than EP8 TP1 PP8 on H100",
     "more", check_mixtral_energy},
    {"14", ERG_FINDING_SIGN,
     "kernel seconds: most of 8x22B EP8 TP4 are communication, most of Llama3-70B are not",
     "above 50 %, below 50 %", check_kernel_shares},
    {"15", ERG_FINDING_SIGN, "pipelines use little of a node's network: dense models", "below 0.3",
     check_network},
    {"16", ERG_FINDING_MAGNITUDE, "early stages on cold GPUs, equal layers, one replica",
     "within 2 % of eff_edp", check_cold_first},
    {"17, 18", ERG_FINDING_SIGN,
     "one layer more on cold GPUs: Llama3-70B gains, GPT3-175B loses, gaps shrink",
     "so at 41 and 42 °C of air; both lose at 29 °C; gaps shrink by 7 to 25 %", check_uneven},
    {"19", ERG_FINDING_MAGNITUDE, "LoRA is more efficient: tokens per joule over full training",
     "1.2 to 1.7 in the median, at equal tokens and recomputation", check_lora},
    {"20", ERG_FINDING_MAGNITUDE, "a node at a quarter of its clock slows all down",
     "at least 3.5 times", check_fault},
    {"21", ERG_FINDING_OUT, "projection to 8,000 GPUs", "see ergon plan", NULL},
};

static enum erg_finding_verdict verdict_of(const struct checking *at, const struct finding_row *row)
{
    if (row->kind == ERG_FINDING_OUT)
        return ERG_VERDICT_OUT;
    if (at->ours.count == 0)
        return ERG_VERDICT_NO_POINTS;
    if (row->kind == ERG_FINDING_REPORTED)
        return ERG_VERDICT_REPORTED;
    return at->judged == 0  ? ERG_VERDICT_REPORTED
           : at->failed > 0 ? ERG_VERDICT_FAILS
                            : ERG_VERDICT_HOLDS;
}

void erg_findings_check(struct erg_findings *findings,
                        const struct erg_collection *const *collections, size_t count)
{
    *findings = (struct erg_findings){0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct checking at = {.findings = findings, .collections = collections, .count = count};
        if (rows[i].check)
            rows[i].check(&at);
        const struct erg_study_finding finding = {
            .id = rows[i].id,
            .kind = rows[i].kind,
            .claim = rows[i].claim,
            .expected = rows[i].expected,
            .ours = erg_arena_strdup(&findings->arena, at.ours.count ? at.ours.data : "–"),
            .verdict = verdict_of(&at, &rows[i]),
        };
        ERG_PUSH(findings, items, finding);
        erg_text_release(&at.ours);
    }
}

void erg_findings_release(struct erg_findings *findings)
{
    free(findings->items);
    erg_arena_release(&findings->arena);
}

size_t erg_findings_failed(const struct erg_findings *findings)
{
    size_t failed = 0;
    for (size_t i = 0; i < findings->count; i++)
        failed += findings->items[i].verdict == ERG_VERDICT_FAILS;
    return failed;
}

json_t *erg_findings_json(const struct erg_findings *findings)
{
    json_t *list = json_array();
    for (size_t i = 0; i < findings->count; i++) {
        const struct erg_study_finding *finding = &findings->items[i];
        json_array_append_new(
            list, erg_json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", finding->id, "kind",
                                erg_finding_kind_names[finding->kind], "claim", finding->claim,
                                "expected", finding->expected, "ours", finding->ours, "verdict",
                                erg_finding_verdict_names[finding->verdict]));
    }
    return erg_json_pack("{s:s, s:i, s:I, s:o}", "schema", "ergon.findings", "schema_version", 1,
                         "failed", (json_int_t)erg_findings_failed(findings), "findings", list);
}
