/*
 * Layouts over GPUs of several kinds: which stages lie on which, and how many layers each has.
 *
 * Every stage lies on GPUs of one kind, and the stages of a kind follow each other. Tensor, context
 * and data degrees are the same in all stages, so a kind has room for as many stages as groups of
 * t c d go into its GPUs; it may have fewer, or none. A message between two kinds runs at the
 * network of the slower one, and the sender's exposed share of it counts. All numbers of stages and
 * orders of the kinds, all degrees, chunks, microbatches and recomputations are tried, with the
 * fastest split of the layers that fits (time/split.h, search.h) by the speed and the memory of
 * each stage's GPUs. What is dropped could not be faster: by the bounds of search.h, and where even
 * GPUs that only run layers, cut so that all stages end at once, are too slow. So what is found is
 * the fastest of all these, with virtual stages as far as search.h says that splits are proven.
 * Offloading is one ratio for all stages; a layout with a kind whose engine does not say how fast
 * that is does without.
 */
#ifndef ERG_LAYOUT_SEARCH_MIXED_H
#define ERG_LAYOUT_SEARCH_MIXED_H

#include "layout/search/search.h"

enum { ERG_MIXED_MOST_KINDS = 4 };

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
    unsigned remats;              /* bits 1 << enum erg_remat: those that are tried */
    bool offload;                 /* activations may be offloaded */
    long microbatch_most;         /* 0: no bound */
    size_t top;                   /* how many are kept, at least 1 */
    /* Of the layouts that are tried the tensor and context degree, stages, virtual stages,
     * microbatch and data degree; 0: any. */
    struct erg_mixed_degrees {
        long tensor, context, pipeline, virtual_stages, microbatch, data;
    } only;
};

/* Stages that follow each other on GPUs of one kind. */
struct erg_mixed_block {
    size_t kind;
    long stages;
    double peak_bytes; /* of the stage that needs most */
};

struct erg_mixed_candidate {
    struct erg_layout_candidate at; /* with the layers of all chunks; of what was found `mixed`
                                     * points here */
    struct erg_mixed_block blocks[ERG_MIXED_MOST_KINDS]; /* in the order of the pipeline */
    size_t block_count;
};

struct erg_mixed_found {
    struct erg_mixed_candidate *items; /* the fastest first */
    size_t count;
    /* Layouts of the space by what became of them; `evaluated` is their sum. */
    uint64_t evaluated;
    uint64_t feasible, slower, unfit; /* slower: than all that are kept */
    /* Numbers of stages that are slower than all that are kept whatever else is chosen; what could
     * be is not in `evaluated`. */
    uint64_t bounded;
    double gap; /* as in search.h */
};

/* ERG_INFEASIBLE where no layout fits, or none is on these GPUs. Interruptible; reports progress.
 */
int erg_mixed_search(struct erg_mixed_found *found, const struct erg_mixed_search *search,
                     struct erg_error *err);
void erg_mixed_found_release(struct erg_mixed_found *found);

/*
 * One layout with given blocks (kinds and stages of the candidate), all degrees, layers of chunks,
 * microbatch and recomputation: batch, offloading, memory and time. To be released.
 */
int erg_mixed_evaluate(struct erg_mixed_candidate *candidate, const struct erg_mixed_search *search,
                       const struct erg_layout *layout, struct erg_error *err);

/* FLOP/s of the datasheet of all GPUs that a layout uses: what its MFU refers to. */
double erg_mixed_peak_flops(const struct erg_mixed_candidate *candidate,
                            const struct erg_mixed_search *search);

#endif
