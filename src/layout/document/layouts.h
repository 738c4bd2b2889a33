/*
 * Layouts as a JSON document: what `ergon layout --json` prints and the page draws; and a layout as
 * a job file that other commands take.
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
    /* The numbers of GPUs of each kind; the requests differ in nothing else. */
    const struct erg_layout_search *searches;
    size_t search_count;
    const struct erg_layout_results *found; /* at the highest clock; may be NULL where there is a
                                             * choice */
    /* Over clocks, the best for the query first: in place of those that were found. NULL: not
     * asked. */
    const struct erg_layout_choice *choice;
    const struct erg_goal *query;
    const struct erg_layout_count *counts; /* [search_count]; NULL for one number of GPUs */
    size_t top;                            /* layouts at most */
    /* Every layout that fits, for the picture; may be empty. */
    const struct erg_layout_point {
        float time_s, energy_j, peak_bytes;
    } * points;
    size_t point_count;
};

/* Schema "ergon.layouts", version 1; owned by the caller. */
json_t *erg_layout_document(const struct erg_layout_answer *answer);

/* Alternatives that would fit; 0: not known. */
struct erg_layout_remedy {
    struct erg_layout_candidate layout; /* of tensor degree 0: none; to be released */
    double memory_bytes;                /* of a GPU for tensors */
    long gpus, batch;
};

/* The same schema where nothing fits or is within bounds: the reason for people, and layouts that
 * would fit; `remedy` may be NULL. */
json_t *erg_layout_refusal_document(const struct erg_layout_answer *answer, const char *reason,
                                    const struct erg_layout_remedy *remedy);

/* The share of the peak of its GPUs that a layout of the answer reaches at a rate. */
double erg_layout_answer_mfu(const struct erg_layout_answer *answer,
                             const struct erg_layout_candidate *candidate, double tokens_per_s);

/* "32 H800-SXM-80GB, 64 A100-SXM4-80GB": how many GPUs of each of several kinds a layout uses; of
 * one kind nothing. */
void erg_layout_answer_gpus(struct erg_text *out, const struct erg_layout_answer *answer,
                            const struct erg_layout_candidate *candidate);

/* "misses the deadline" or which other bound an iteration is beyond; NULL: it keeps all. */
const char *erg_layout_missed_bound(const struct erg_goal *query, double time_s, double energy_j);

/* Whether its chunks differ in layers. */
bool erg_layout_is_uneven(const struct erg_layout *layout);

/* "t=2,c=2,p=8,l=2", as erg_layout_parse() reads it. */
void erg_layout_name(struct erg_text *out, const struct erg_layout *layout, long layers);

/* The job with this layout of the answer in place of its own, in YAML; `cluster`, `engine` NULL:
 * the job's. */
void erg_layout_job(struct erg_text *out, const struct erg_layout_answer *answer,
                    const struct erg_cluster *cluster, const char *engine,
                    const struct erg_layout_candidate *candidate);

#endif
