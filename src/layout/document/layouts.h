/*
 * Layouts as a JSON document, which `ergon layout --json` prints and the page draws; and a layout
 * as a job file for other commands.
 */
#ifndef ERG_LAYOUT_DOCUMENT_LAYOUTS_H
#define ERG_LAYOUT_DOCUMENT_LAYOUTS_H

#include "base/text.h"
#include "job/job.h"
#include "layout/energy/choice.h"

#include <jansson.h>

/* The request and its results. */
struct erg_layout_answer {
    const struct erg_job *job;
    /* One request for each number of GPUs of each kind; they are otherwise equal. */
    const struct erg_layout_search *searches;
    size_t search_count;
    /* At the highest clock; may be NULL if there is a choice. */
    const struct erg_layout_results *found;
    /*
     * The choice over clocks, the best for the query first; replaces `found`. NULL: not requested.
     */
    const struct erg_layout_choice *choice;
    const struct erg_goal *query;
    const struct erg_layout_count *counts; /* [search_count]; NULL for one number of GPUs */
    size_t top;                            /* the most layouts to list */
    /* Every layout that fits, for the chart; may be empty. */
    const struct erg_layout_point {
        float time_s, energy_j, peak_bytes;
    } * points;
    size_t point_count;
};

/* Schema "ergon.layouts", version 1; owned by the caller. */
json_t *erg_layout_document(const struct erg_layout_answer *answer);

/* Alternatives that would fit; 0: unknown. */
struct erg_layout_remedy {
    struct erg_layout_candidate layout; /* tensor degree 0: none; release it */
    double memory_bytes;                /* memory for tensors of a GPU */
    long gpus, batch;
};

/*
 * The same schema if no layout fits or is within bounds: a readable reason, and layouts that would
 * fit; `remedy` may be NULL.
 */
json_t *erg_layout_refusal_document(const struct erg_layout_answer *answer, const char *reason,
                                    const struct erg_layout_remedy *remedy);

/* Model FLOPs utilisation of a layout of the answer at a rate: its share of its GPUs' peak. */
double erg_layout_answer_mfu(const struct erg_layout_answer *answer,
                             const struct erg_layout_candidate *candidate, double tokens_per_s);

/*
 * "32 H800-SXM-80GB, 64 A100-SXM4-80GB": the number of GPUs of each kind that a layout uses;
 * nothing if there is only one kind.
 */
void erg_layout_answer_gpus(struct erg_text *out, const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *candidate);

/* "misses the deadline", or the other bound that an iteration exceeds; NULL: it meets all. */
const char *erg_layout_missed_bound(const struct erg_goal *query, double time_s, double energy_j);

/* Whether its chunks have different numbers of layers. */
bool erg_layout_is_uneven(const struct erg_layout *layout);

/* "t=2,c=2,p=8,l=2", as erg_layout_parse() reads it. */
void erg_layout_name(struct erg_text *out, const struct erg_layout *layout, long layers);

/*
 * The job with this layout of the answer instead of its own, in YAML; `cluster`, `engine` NULL: the
 * job's.
 */
void erg_layout_job(struct erg_text *out, const struct erg_layout_answer *answer,
                    const struct erg_cluster *cluster, const char *engine,
                    const struct erg_layout_candidate *candidate);

#endif
