/*
 * Layouts: how to spread a job over GPUs, the best ways first.
 *
 *     struct erg_layouts *layouts;
 *     struct erg_layouts_options options = {.size = sizeof options, .gpus = "64"};
 *     struct erg_layouts_row row = {.size = sizeof row};
 *     if (erg_layouts_find(&layouts, job, &options, &err)) ...
 *     for (size_t i = 0; i < erg_layouts_count(layouts); i++)
 *         if (erg_layouts_row(layouts, i, &row, &err) == 0) puts(row.name);
 *     erg_layouts_free(layouts);
 *
 * The search varies tensor, context, pipeline, data and expert degrees, virtual stages, microbatch
 * and recomputation, each with the least offloading that fits: ergon-layout(1). The job needs the
 * key `engine`. With an objective, a bound or several numbers of GPUs, the search also chooses the
 * clock of every instruction; otherwise all run at the highest clock. The job's own layout sets
 * only the batch.
 */
#ifndef ERGON_LAYOUT_H
#define ERGON_LAYOUT_H

#include "ergon/error.h"
#include "ergon/job.h"
#include "ergon/plan.h"
#include "ergon/watch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

struct erg_layouts;

/* With only the size set: the fastest layout on all GPUs of the job's cluster. Texts need not
 * outlive the call. */
struct erg_layouts_options {
    size_t size;
    const char *gpus;      /* "64", "4,8-16", "any" up to the cluster's; NULL: all of the cluster */
    int64_t batch;         /* sequences of an iteration; 0: the job's */
    double batch_slack;    /* how far a layout's batch may be from that, as a share up to 0.5 */
    const char *layout;    /* only this one: "t=2,c=2,p=8,l=2"; NULL: all */
    const char *recompute; /* only layouts that compute this again; NULL: all */
    int32_t per_stage;     /* 1: each stage recomputes and offloads what is best for it */
    /* "fastest" or "least_energy". NULL: "least_energy" with a deadline, else "fastest". */
    const char *objective;
    /* Bounds of an iteration, all GPUs together; power is the mean. 0: none. */
    double deadline_s, energy_j, power_w;
    double memory_bytes; /* of a GPU for tensors; 0: 90 % of its memory */
    double host_bytes;   /* of a node for offloaded activations; 0: its memory */
    int64_t top;         /* how many layouts are kept at most; 0: 10 */
    int32_t page;        /* 1: keeps what the page shows, and chooses clocks */
    const struct erg_watch *watch;
    int32_t fsdp; /* 1: also layouts of one stage that shard weights over data ranks */
};

/*
 * ERG_INFEASIBLE if nothing fits or meets the bounds: the message names the bound that binds and
 * what would fit. ERG_USAGE if the job names no engine. `options` may be NULL. The job need not
 * outlive the answer.
 */
int erg_layouts_find(struct erg_layouts **layouts, const struct erg_job *job,
                     const struct erg_layouts_options *options, struct erg_error *err);
void erg_layouts_free(struct erg_layouts *layouts); /* NULL is fine */

/* A layout and its iteration. Texts live as long as the answer. */
struct erg_layouts_row {
    size_t size;
    const char *name; /* "t=2,c=2,p=8,l=2", as erg_layouts_options has it */
    int64_t gpus, tensor, context, pipeline, data, virtual_stages;
    int64_t microbatch_size, microbatches, batch;
    const char *recompute;   /* "none", …; "stages" if they differ */
    double offload;          /* share of the activations; the highest of any stage */
    double time_s, energy_j; /* all GPUs together */
    double power_w;          /* mean of all GPUs together */
    double tokens_per_s;
    double mfu;        /* share of the GPUs' peak, 0 to 1 */
    double peak_bytes; /* of the GPU that needs the most */
    int64_t expert;    /* data ranks that experts are spread over; 1: all are on each */
    int64_t fsdp;      /* ranks that share the weights; 1: they are not sharded */
};

size_t erg_layouts_count(const struct erg_layouts *layouts);
/* Index from 0, the best; ERG_USAGE beyond the last. */
int erg_layouts_row(const struct erg_layouts *layouts, size_t index, struct erg_layouts_row *row,
                    struct erg_error *err);

/* The job with that layout instead of its own, for erg_optimize_job() or training. */
int erg_layouts_job(const struct erg_layouts *layouts, size_t index, struct erg_job **job,
                    struct erg_error *err);

/* The best layout as a plan: ERG_USAGE if the search chose no clocks. */
int erg_layouts_plan(const struct erg_layouts *layouts, struct erg_plan **plan,
                     struct erg_error *err);

/* The answer as JSON (docs/formats/layouts.md), which lives as long as the answer; and as a page:
 * ERG_USAGE without the option `page`. */
const char *erg_layouts_json(struct erg_layouts *layouts);
int erg_layouts_write_page(const struct erg_layouts *layouts, const char *path,
                           struct erg_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
