/* Findings about time, energy and traffic: microbatches, optimisations, clusters, adapters,
 * faults. */
#include "characterize/findings_internal.h"

#include "base/memory.h"
#include "base/statistics.h"
#include "trace/kernel_record.h"

#include <stdlib.h>

/* ---- microbatches ---- */

void erg_finding_check_sharded_speedup(struct erg_finding_check *at)
{
    struct erg_mark_wanted wanted = {NULL, "gpt3-175b", "TP8 FSDP4", "act", 1};
    erg_mark small = erg_mark_find_wanted(at, &wanted);
    wanted.microbatch = 4;
    erg_mark large = erg_mark_find_wanted(at, &wanted);
    if (!small || !large)
        return;
    const double ratio = small->result->metrics.time_s / large->result->metrics.time_s;
    erg_finding_say(at, "%.2f (%.1f against %.1f s)", ratio, small->result->metrics.time_s,
                    large->result->metrics.time_s);
    erg_finding_judge_range(at, ratio, 3.2, 4.0);
}

void erg_finding_check_pipeline_microbatches(struct erg_finding_check *at)
{
    erg_mark before = NULL;
    size_t pairs = 0;
    bool holds = true;
    for (long b = 1; b <= 64; b *= 2) {
        struct erg_mark_wanted wanted = {NULL, "gpt3-175b", "TP2 PP16", "act", b};
        erg_mark mark = erg_mark_find_wanted(at, &wanted);
        if (!mark)
            continue;
        const struct erg_result_metrics *own = &mark->result->metrics;
        erg_finding_say(at, "b=%ld: %.1f s, eff_edp %.4g", b, own->time_s, own->eff_edp);
        if (before) {
            pairs++;
            holds = holds && own->time_s > before->result->metrics.time_s &&
                    own->eff_edp < before->result->metrics.eff_edp;
        }
        before = mark;
    }
    if (pairs)
        erg_finding_judge(at, holds);
}

static bool has_microbatch(erg_mark mark, const void *context)
{
    return mark->microbatch == *(const long *)context;
}

static void see_sharded(struct erg_finding_check *at, erg_mark mark, void *context)
{
    (void)context;
    if (mark->fsdp < 2 || !erg_mark_is_usual(mark) || mark->microbatch != 1 || mark->equal ||
        strcmp(mark->optimisation, "act") != 0)
        return;
    erg_mark large = NULL;
    for (long b = 2; b <= 64; b *= 2) {
        erg_mark other = erg_mark_find(at, mark, ERG_MARK_MICROBATCH, has_microbatch, &b);
        large = other ? other : large;
    }
    if (!large)
        return;
    const struct erg_result_metrics *a = &mark->result->metrics, *b = &large->result->metrics;
    erg_finding_say(
        at, "%s b=1 to %ld: %.0f to %.0f W, sensor peak %.0f to %.0f W, %.1f to %.1f °C",
        mark->model, large->microbatch, a->power_w.mean, b->power_w.mean, a->power_w.sensor_peak,
        b->power_w.sensor_peak, a->temperature_c.peak, b->temperature_c.peak);
    erg_finding_judge(at, b->power_w.mean > a->power_w.mean &&
                              b->power_w.sensor_peak >= a->power_w.sensor_peak &&
                              b->temperature_c.peak > a->temperature_c.peak);
}

void erg_finding_check_sharded_microbatches(struct erg_finding_check *at)
{
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_sharded, NULL});
}

/* ---- optimisations ---- */

static bool has_optimisation(erg_mark mark, const void *context)
{
    return !strcmp(mark->optimisation, context);
}

struct overlaps {
    size_t count, shorter, faster, power, heat;
    size_t same; /* pairs with sharded weights whose gathers take longer than all that they overlap
                  * with */
};

static void see_overlap(struct erg_finding_check *at, erg_mark mark, void *context)
{
    struct overlaps *overlaps = context;
    if (strcmp(mark->optimisation, "cc") != 0 || !erg_mark_is_usual(mark))
        return;
    erg_mark base = erg_mark_find(at, mark, ERG_MARK_OPTIMISATION, has_optimisation, "base");
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

void erg_finding_check_overlap(struct erg_finding_check *at)
{
    struct overlaps overlaps = {0};
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_overlap, &overlaps});
    if (!overlaps.count)
        return;
    erg_finding_say(at,
                    "of %zu pairs, exposed communication falls in %zu and time in %zu; mean power "
                    "does not fall in %zu, nor the highest temperature in %zu; %zu more pairs do "
                    "not change, because gathers of sharded weights set the pace",
                    overlaps.count, overlaps.shorter, overlaps.faster, overlaps.power,
                    overlaps.heat, overlaps.same);
    erg_finding_judge(at, overlaps.shorter == overlaps.count && overlaps.faster == overlaps.count &&
                              overlaps.power == overlaps.count && overlaps.heat == overlaps.count);
}

static void see_throttling(struct erg_finding_check *at, erg_mark mark, void *context)
{
    (void)context;
    if (strcmp(mark->optimisation, "act") != 0 || !erg_mark_is_usual(mark) || at->ours.count > 500)
        return;
    erg_mark base = erg_mark_find(at, mark, ERG_MARK_OPTIMISATION, has_optimisation, "base");
    if (!base || !strcmp(base->id, mark->id))
        return;
    const struct erg_result_metrics *a = &base->result->metrics, *b = &mark->result->metrics;
    erg_finding_say(at, "%s %s: %.0f to %.0f %% of busy time", mark->model, mark->label,
                    100 * (a->cap_share + a->thermal_share),
                    100 * (b->cap_share + b->thermal_share));
}

void erg_finding_report_throttling(struct erg_finding_check *at)
{
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_throttling, NULL});
}

/* ---- comparison of clusters ---- */

struct fastest {
    erg_mark mark;
    bool (*is_model)(erg_mark mark);
};

static void see_fastest(struct erg_finding_check *at, erg_mark mark, void *context)
{
    struct fastest *fastest = context;
    (void)at;
    if (!erg_mark_is_usual(mark) || !fastest->is_model(mark) || mark->microbatch != 1 ||
        strcmp(mark->optimisation, "act") != 0 || mark->fsdp > 1)
        return;
    if (!fastest->mark || mark->result->metrics.time_s < fastest->mark->result->metrics.time_s)
        fastest->mark = mark;
}

void erg_finding_check_llama_clusters(struct erg_finding_check *at)
{
    struct fastest h100 = {NULL, erg_mark_is_llama}, h200 = {NULL, erg_mark_is_llama};
    erg_marks_visit(at, &(struct erg_mark_visit){"charllm-h100", see_fastest, &h100});
    erg_marks_visit(at, &(struct erg_mark_visit){"charllm-h200", see_fastest, &h200});
    if (!h100.mark || !h200.mark)
        return;
    const double a = h100.mark->result->metrics.time_s, b = h200.mark->result->metrics.time_s;
    erg_finding_say(at, "%.2f (%.1f s on %ld H100, %.1f s on %ld H200)", a / b, a,
                    h100.mark->result->gpus, b, h200.mark->result->gpus);
    erg_finding_judge_range(at, a / b, 0.5, 0.65);
}

static bool find_pair(const struct erg_finding_check *at, const char *model, const char *h200_label,
                      const char *h100_label, const char *optimisation, erg_mark pair[2])
{
    pair[0] = erg_mark_find_wanted(
        at, &(struct erg_mark_wanted){"h200", model, h200_label, optimisation, 1});
    pair[1] = erg_mark_find_wanted(
        at, &(struct erg_mark_wanted){"h100", model, h100_label, optimisation, 1});
    return pair[0] && pair[1];
}

void erg_finding_check_gpt3_energy(struct erg_finding_check *at)
{
    erg_mark pair[2];
    if (!find_pair(at, "gpt3-175b", "TP2 PP16", "TP2 PP32", "act", pair))
        return;
    const double h200 = pair[0]->result->metrics.j_per_token;
    const double h100 = pair[1]->result->metrics.j_per_token;
    erg_finding_say(at, "%.4g J on H200, %.4g J on H100", h200, h100);
    erg_finding_judge(at, h200 < h100);
}

void erg_finding_report_gpt3_speed(struct erg_finding_check *at)
{
    erg_mark pair[2];
    if (!find_pair(at, "gpt3-175b", "TP2 PP16", "TP2 PP32", "act", pair))
        return;
    erg_finding_say(at, "H100 is %.2f times as fast: the published order is not reproduced",
                    pair[0]->result->metrics.time_s / pair[1]->result->metrics.time_s);
}

void erg_finding_check_mixtral_energy(struct erg_finding_check *at)
{
    erg_mark pair[2];
    if (!find_pair(at, "8x22b", "EP8 TP1 PP4", "EP8 TP1 PP8", NULL, pair))
        return;
    const double h200 = pair[0]->result->metrics.tokens_per_j;
    const double h100 = pair[1]->result->metrics.tokens_per_j;
    erg_finding_say(at, "%.4g tokens/J on H200, %.4g on H100", h200, h100);
    erg_finding_judge(at, h200 > h100);
}

/* ---- traffic ---- */

/* The share of kernel time that is communication; NaN: nothing was traced. */
static double communication_share(erg_mark mark)
{
    double all = 0, communication = 0;
    for (size_t i = 0; i < mark->result->kernels_count; i++) {
        const struct erg_result_kernels *kernels = &mark->result->kernels[i];
        for (size_t c = 0; c < kernels->category_count; c++) {
            const struct erg_result_category *category = &kernels->categories[c];
            all += category->summed_s;
            if (erg_kernel_name_communicates(category->name))
                communication += category->summed_s;
        }
    }
    return communication / all;
}

static void see_shares(struct erg_finding_check *at, erg_mark mark, void *context)
{
    const bool mixtral = erg_mark_is_model(mark, "8x22b") && strstr(mark->label, "EP8 TP4");
    (void)context;
    if (!erg_mark_is_usual(mark) || erg_mark_inlet(mark) != 29 || mark->microbatch != 1 ||
        mark->equal || strcmp(mark->optimisation, "act") != 0 ||
        !(mixtral || (erg_mark_is_llama(mark) && mark->fsdp < 2)))
        return;
    const double share = communication_share(mark);
    if (isnan(share))
        return;
    erg_finding_say(at, "%s %s: communication %.0f %%", mark->model, mark->label, 100 * share);
    erg_finding_judge(at, mixtral ? share > 0.5 : share < 0.5);
}

void erg_finding_check_kernel_shares(struct erg_finding_check *at)
{
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_shares, NULL});
}

struct busiest {
    erg_mark mark;
};

static void see_network(struct erg_finding_check *at, erg_mark mark, void *context)
{
    struct busiest *busiest = context;
    (void)at;
    if (!erg_mark_is_usual(mark) || mark->fsdp > 1 || mark->expert > 1 || mark->pipeline < 2 ||
        isnan(mark->result->metrics.network_use))
        return;
    if (!busiest->mark ||
        mark->result->metrics.network_use > busiest->mark->result->metrics.network_use)
        busiest->mark = mark;
}

void erg_finding_check_network(struct erg_finding_check *at)
{
    struct busiest busiest = {0};
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_network, &busiest});
    if (!busiest.mark)
        return;
    erg_finding_say(at, "at most %.3f (%s %s)", busiest.mark->result->metrics.network_use,
                    busiest.mark->model, busiest.mark->label);
    erg_finding_judge(at, busiest.mark->result->metrics.network_use < 0.3);
}

/* ---- adapters and faults ---- */

static bool is_full(erg_mark mark, const void *context)
{
    (void)context;
    return mark->lora_rank == 0;
}

/* Ratios of all pairs. */
struct ratios {
    double *items;
    size_t count, capacity;
};

static void see_lora(struct erg_finding_check *at, erg_mark mark, void *context)
{
    struct ratios *ratios = context;
    if (mark->lora_rank == 0 || mark->equal)
        return;
    erg_mark full = erg_mark_find(at, mark, ERG_MARK_LORA, is_full, NULL);
    if (!full)
        return;
    const double ratio = mark->result->metrics.tokens_per_j / full->result->metrics.tokens_per_j;
    ERG_PUSH(ratios, items, ratio);
}

void erg_finding_check_lora(struct erg_finding_check *at)
{
    struct ratios ratios = {0};
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_lora, &ratios});
    if (ratios.count > 0) {
        const double median = erg_median(ratios.items, ratios.count); /* sorts the ratios */
        const double least = ratios.items[0], most = ratios.items[ratios.count - 1];
        erg_finding_say(at, "median %.2f of %zu layouts, %.2f to %.2f", median, ratios.count, least,
                        most);
        erg_finding_judge(at, least >= 1.2 && most <= 1.7);
    }
    free(ratios.items);
}

static bool is_sound(erg_mark mark, const void *context)
{
    (void)context;
    return isnan(mark->fault_clock_share);
}

static void see_fault(struct erg_finding_check *at, erg_mark mark, void *context)
{
    (void)context;
    if (isnan(mark->fault_clock_share) || mark->fault_clock_share > 0.25)
        return;
    erg_mark sound = erg_mark_find(at, mark, ERG_MARK_FAULT, is_sound, NULL);
    if (!sound)
        return;
    const double ratio = mark->result->metrics.time_s / sound->result->metrics.time_s;
    erg_finding_say(at, "%s %s: %.2f times", mark->model, mark->label, ratio);
    erg_finding_judge(at, ratio >= 3.5);
}

void erg_finding_check_fault(struct erg_finding_check *at)
{
    erg_marks_visit(at, &(struct erg_mark_visit){NULL, see_fault, NULL});
}
