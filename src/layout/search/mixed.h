/*
 * Layouts over GPUs of several kinds: which stages lie on which, and how many layers each has.
 *
 * Every stage lies on GPUs of one kind, and the stages of a kind follow each other. Tensor, context
 * and data degrees are the same in all stages, so a kind has room for as many stages as groups of
 * t c d go into its GPUs; it may have fewer, or none. A message between two kinds runs at the
 * network of the slower one, and the sender's exposed share of it counts; stages of a kind that lie
 * in one node send within it (time/time.h). All numbers of stages and orders of the kinds, all
 * degrees, chunks, microbatches and recomputations are tried, with the fastest split of the layers
 * that fits (time/split.h, search.h) by the speed and the memory of each stage's GPUs. What is
 * dropped could not be faster: by the bounds of search.h, and where even GPUs that only run layers,
 * cut so that all stages end at once, are too slow. So what is found is the fastest of all these,
 * with virtual stages as far as search.h says that splits are proven. On kinds that are the same it
 * is what search.h finds on one. Offloading is one ratio for all stages, and a layout with a kind
 * whose engine does not say how fast that is does without; where each stage does what is best for
 * it, those of the other kinds offload.
 */
#ifndef ERG_LAYOUT_SEARCH_MIXED_H
#define ERG_LAYOUT_SEARCH_MIXED_H

#include "layout/search/search.h"

struct erg_mixed_kind {
    const char *name;
    const struct erg_gpu *gpu; /* for energy (energy/mixed.h); a search does not ask for it */
    const struct erg_engine *engine;
    struct erg_time_machine machine;
    long gpus;
    double memory_bytes; /* of one GPU, for what memory.h counts */
    double host_bytes;   /* of one node, for offloaded activations; 0: no bound */
};

/*
 * A kind of its nodes, all of them, with ERG_MEMORY_USABLE_SHARE of a GPU's memory and all of a
 * node's. Fails where no engine is named (NULL), or one of another GPU is.
 */
int erg_mixed_kind_init(struct erg_mixed_kind *kind, const struct erg_cluster *nodes,
                        const struct erg_gpu *gpu, const struct erg_engine *engine,
                        struct erg_error *err);

struct erg_mixed_search {
    const struct erg_model *model;
    const struct erg_mixed_kind *kinds;
    size_t kind_count; /* 1 to ERG_MIXED_MOST_KINDS */
    long sequence;
    long batch_least, batch_most; /* sequences of an iteration; equal: exactly so many */
    double memory_slack;          /* as in search.h */
    unsigned recomputes;          /* bits 1 << enum erg_recompute: those that are tried */
    bool offload;                 /* activations may be offloaded */
    bool per_stage;               /* as in search.h */
    long microbatch_most;         /* 0: no bound */
    long gpus;                    /* of all stages together, exactly; 0: any number of them */
    unsigned used;                /* bits 1 << kind: stages lie on these and no others; 0: on any */
    size_t top;                   /* how many are kept, at least 1 */
    /* Every layout that fits, as in search.h, and takes no more than `limit_s` (0: however slow),
     * of those that are `wanted`: of which recomputations, bits 1 << enum erg_recompute, layouts of
     * these degrees may be, whatever their order of these blocks and their chunks. NULL: of all. */
    void (*each)(void *context, const struct erg_layout_candidate *candidate);
    unsigned (*wanted)(void *context, const struct erg_layout *degrees,
                       const struct erg_layout_block *blocks, size_t count);
    void *context;
    double limit_s;
    /* Of the layouts that are tried the tensor and context degree, stages, virtual stages,
     * microbatch and data degree; 0: any. */
    struct erg_mixed_degrees {
        long tensor, context, pipeline, virtual_stages, microbatch, data;
    } only;
};

/*
 * The fastest first, each with its blocks. Of what was found `memory` counts the layouts of which
 * no split fits. ERG_INFEASIBLE where no layout fits, or none is on these GPUs. Interruptible;
 * reports progress.
 */
int erg_mixed_search(struct erg_layout_found *found, const struct erg_mixed_search *search,
                     struct erg_error *err);

/*
 * One layout with given blocks (kinds and stages of the candidate), all degrees, layers of chunks,
 * microbatch and recomputation: batch, offloading, memory and time. To be released.
 */
int erg_mixed_evaluate(struct erg_layout_candidate *candidate,
                       const struct erg_mixed_search *search, const struct erg_layout *layout,
                       struct erg_error *err);

/* FLOP/s of the datasheet of all GPUs that a layout uses: what its MFU refers to. */
double erg_mixed_peak_flops(const struct erg_layout_candidate *candidate,
                            const struct erg_mixed_search *search);

/* GPUs of a kind that a layout uses. */
long erg_mixed_gpus_of(const struct erg_layout_candidate *candidate, size_t kind);

#endif
