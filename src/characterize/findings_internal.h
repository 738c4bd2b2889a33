/* Internal to findings: the points to check, and the results. */
#ifndef ERG_CHARACTERIZE_FINDINGS_INTERNAL_H
#define ERG_CHARACTERIZE_FINDINGS_INTERNAL_H

#include "characterize/findings.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

/* The finding that is being checked. */
struct erg_finding_check {
    const struct erg_collection *const *collections;
    size_t count;
    struct erg_text ours; /* our result */
    size_t judged, failed;
};

/* ---- marks (findings_marks.c) ---- */

typedef const struct erg_collected *erg_mark;

/* Calls `each` for every mark that was run and satisfies `fits`, on clusters whose name contains
 * `cluster` (NULL: all). */
struct erg_mark_visit {
    const char *cluster;
    void (*each)(struct erg_finding_check *at, erg_mark mark, void *context);
    void *context;
};
void erg_marks_visit(struct erg_finding_check *at, const struct erg_mark_visit *visit);

/* No fault, and the usual placement, split and training. */
static inline bool erg_mark_is_usual(erg_mark mark)
{
    return isnan(mark->fault_clock_share) && mark->lora_rank == 0 && !mark->split &&
           !strcmp(mark->placement, "given");
}

static inline double erg_mark_inlet(erg_mark mark)
{
    return isnan(mark->inlet_c) ? 29 : mark->inlet_c;
}

static inline bool erg_mark_is_model(erg_mark mark, const char *name)
{
    return strstr(mark->model, name) != NULL;
}

static inline bool erg_mark_is_llama(erg_mark mark)
{
    return erg_mark_is_model(mark, "llama") && erg_mark_is_model(mark, "70b");
}

/* Differences that are allowed between two marks; bits. */
enum {
    ERG_MARK_OPTIMISATION = 1,
    ERG_MARK_MICROBATCH = 2,
    ERG_MARK_PLACEMENT = 4,
    ERG_MARK_SPLIT = 8,
    ERG_MARK_FAULT = 16,
    ERG_MARK_LORA = 32,
};

/* The first mark on the same cluster that was run, satisfies `fits` and differs only in what `may`
 * allows. */
erg_mark erg_mark_find(const struct erg_finding_check *at, erg_mark like, unsigned of,
                       bool (*fits)(erg_mark mark, const void *context), const void *context);

/* A mark of a layout by its label and optimisation, on a cluster whose name contains `cluster`. */
struct erg_mark_wanted {
    const char *cluster, *model, *label, *optimisation;
    long microbatch;
};
erg_mark erg_mark_find_wanted(const struct erg_finding_check *at,
                              const struct erg_mark_wanted *wanted);

/* Appends to our result, separated by "; ". */
void erg_finding_say(struct erg_finding_check *at, const char *format, ...) ERG_PRINTF(2, 3);

/* Sets the verdict of a check. */
static inline void erg_finding_judge(struct erg_finding_check *at, bool holds)
{
    at->judged++;
    at->failed += !holds;
}

static inline void erg_finding_judge_range(struct erg_finding_check *at, double value, double least,
                                           double most)
{
    erg_finding_judge(at, value >= least && value <= most);
}

/* ---- checks ---- */

/* findings_heat.c */
void erg_finding_check_rear_ratio(struct erg_finding_check *at);
void erg_finding_check_rear_gap(struct erg_finding_check *at);
void erg_finding_check_twins(struct erg_finding_check *at);
void erg_finding_check_lowest_clock(struct erg_finding_check *at);
void erg_finding_check_cool_down(struct erg_finding_check *at);
void erg_finding_report_clocks(struct erg_finding_check *at);
void erg_finding_check_cold_first(struct erg_finding_check *at);
void erg_finding_check_uneven(struct erg_finding_check *at);

/* findings_speed.c */
void erg_finding_check_sharded_speedup(struct erg_finding_check *at);
void erg_finding_check_pipeline_microbatches(struct erg_finding_check *at);
void erg_finding_check_sharded_microbatches(struct erg_finding_check *at);
void erg_finding_check_overlap(struct erg_finding_check *at);
void erg_finding_report_throttling(struct erg_finding_check *at);
void erg_finding_check_llama_clusters(struct erg_finding_check *at);
void erg_finding_check_gpt3_energy(struct erg_finding_check *at);
void erg_finding_report_gpt3_speed(struct erg_finding_check *at);
void erg_finding_check_mixtral_energy(struct erg_finding_check *at);
void erg_finding_check_kernel_shares(struct erg_finding_check *at);
void erg_finding_check_network(struct erg_finding_check *at);
void erg_finding_check_lora(struct erg_finding_check *at);
void erg_finding_check_fault(struct erg_finding_check *at);

#endif
