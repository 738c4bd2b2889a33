/*
 * An exhaustive search for the fastest layouts of a job.
 *
 * The stages of a layout use GPUs of one kind or several. Each stage uses one kind, and the stages
 * of a kind are consecutive: a block. On one kind of GPUs there is one block. Tensor, context and
 * data degrees are equal in all stages, so a kind has room for as many stages as groups of t c d
 * GPUs fit; it may have fewer, or none. A message between two kinds uses the network of the slower
 * one, and the sender's exposed share of it counts; stages of a kind in one node send within it
 * (time/time.h).
 *
 * Experts are spread over every divisor of their number that divides the data ranks; layouts with
 * experts have no context groups and no virtual stages (job/layout.h).
 *
 * The space: tensor and context degrees whose groups stay within nodes, every number of stages on
 * each kind and every order of the kinds, every number of chunks that the layers allow, every
 * microbatch, every recomputation, and the least offloading that fits, which is the fastest, since
 * offloading only costs time. Layers are split equally if that is possible and all stages are
 * equal. If stages may differ, the fastest of all splits by the speed and the memory of each
 * stage's GPUs is used if it is faster. The batch is the largest within the bounds that the
 * replicas share evenly and, for interleaved schedules, that fills the pipeline. Offloading is one
 * ratio for all stages, and a layout with a kind whose engine lacks the speed of offloading does
 * not offload; if each stage has its own recomputation and offloading, the stages of the other
 * kinds offload.
 *
 * No layout is dropped by a heuristic; these bounds are exact:
 * - Time if everything but messages could be cut so that all stages end at once; on several kinds,
 *   if all their GPUs only ran layers.
 * - Time without offloading: a layout that is slower than the slowest kept one even so needs no
 *   memory model.
 * - Time of splits (time/split.h): the longest stage takes at least the time of all stages if
 *   layers could be cut, and the same for gradients.
 * - Memory of splits: a stage needs no more layers than it can run in time, and with all other
 *   stages full it must hold the rest.
 * - Memory of all splits: the least bytes of a layer in each stage limit the layers that all stages
 *   could hold.
 * - Offloading of splits: between two ratios at which a stage can take one more layer more
 *   offloading has no benefit.
 *
 * With virtual stages the first split is that of the closed form, with the chunks of a stage as
 * even as possible. It neglects waits for longer chunks of other stages (time.h). So the search
 * simulates the schedules of layouts that may be among the fastest, and in the kept ones, 16 or
 * more, moves layers from chunk to chunk while that makes them faster (chunk_split.c); if there are
 * few splits, it tries all. `bound_s` is the least time of any split by the closed form. `gap` is
 * the most by which any layout may be faster than the first by these bounds, including layouts that
 * were dropped because another of their splits was too slow.
 *
 * The remaining layouts are checked stage by stage in closed form (memory.h): with equal chunks
 * only the first and the last, since those in between keep fewer groups than the first and have no
 * head. The result does not depend on the order of evaluation: ties go to the smaller degrees.
 */
#ifndef ERG_LAYOUT_SEARCH_H
#define ERG_LAYOUT_SEARCH_H

#include "layout/time/time.h"

#include <stdint.h>

/* GPUs of one kind, in nodes of their own. */
struct erg_layout_kind {
    const char *name;
    const struct erg_gpu *gpu; /* for energy (energy/layout_energy.h); a search does not use it */
    const struct erg_engine *engine;
    struct erg_time_machine machine;
    long gpus;           /* available */
    double memory_bytes; /* of one GPU, for the items of memory.h */
    double host_bytes;   /* of one node, for offloaded activations; 0: no bound */
};

/*
 * The kind with all GPUs of these nodes, ERG_MEMORY_USABLE_SHARE of a GPU's memory and all of a
 * node's. Fails if there is no engine (NULL), or the engine is for another GPU.
 */
int erg_layout_kind_init(struct erg_layout_kind *kind, const struct erg_cluster *nodes,
                         const struct erg_gpu *gpu, const struct erg_engine *engine,
                         struct erg_error *err);

/* Consecutive stages on GPUs of one kind. */
struct erg_layout_block {
    size_t kind;
    long stages;
    double peak_bytes; /* of the stage with the highest peak */
};

struct erg_layout_candidate;

struct erg_layout_search {
    const struct erg_model *model;
    struct erg_layout_kind kinds[ERG_LAYOUT_MOST_KINDS];
    size_t kind_count; /* at least 1 */
    long gpus;         /* exact number over all stages; 0: any */
    unsigned used;     /* bits 1 << kind: the layout uses exactly these kinds; 0: any */
    long sequence;
    long batch_least, batch_most; /* sequences of an iteration; exact if both are equal */
    double expert_capacity;       /* as in a layout */
    /*
     * The relative excess over a kind's memory that a layout may have if it offloads everything:
     * ERG_MEMORY_ERROR (memory.h) for a budget from the user, 0 for the memory of the GPUs.
     */
    double memory_slack;
    unsigned recomputes; /* bits 1 << enum erg_recompute: the modes to try */
    bool offload;        /* activations may be offloaded */
    bool equal_stages;   /* all stages have the same number of layers */
    bool fsdp; /* also layouts of one stage on one kind that shard weights, for every degree */
    /*
     * Each stage uses its own best recomputation, out of `recomputes`, and offloading: no layout
     * with this split is faster. The splits come from one setting for all stages.
     */
    bool per_stage;
    long group_most;      /* tensor x context; 0: the GPUs of a node */
    long microbatch_most; /* 0: no bound */
    size_t top;           /* number of layouts to keep, at least 1 */
    /*
     * Called once for every layout that fits, slow ones too: time then limits the search only by
     * `limit_s` (0: no limit). Kept layouts have the fastest split that was found; the time of
     * others is by the closed form. NULL: no calls. The candidate is valid during the call only.
     */
    void (*each)(void *context, const struct erg_layout_candidate *candidate);
    double limit_s;
    /*
     * The recomputations, bits 1 << enum erg_recompute, of interest for layouts with these degrees,
     * for any order of these blocks and any chunks. NULL: all.
     */
    unsigned (*wanted)(void *context, const struct erg_layout *degrees,
                       const struct erg_layout_block *blocks, size_t count);
    void *context;
    /* Restricts the tried layouts to this tensor and context degree, stages, virtual stages,
     * microbatch and data degree; 0: any. */
    struct erg_layout_degrees {
        long tensor, context, pipeline, virtual_stages, microbatch, data;
        long fsdp;   /* 1: 1: only layouts without FSDP */
        long expert; /* 1: all experts on each rank */
    } only;
};

struct erg_layout_candidate {
    struct erg_layout layout;
    long *chunk_layers; /* memory of the layout's member; NULL: stages are equal */
    /*
     * The same. If stages differ, the layout's own `recompute` is that of the first, its `offload`
     * the highest of any.
     */
    enum erg_recompute *stage_recompute;
    double *stage_offload;
    long batch;
    struct erg_time time;
    double tokens_per_s; /* all GPUs together */
    double peak_bytes;   /* of the stage with the highest peak */
    /*
     * Lower bound in seconds for all splits of these degrees' layers that fit; time.total if that
     * is proven to be the fastest; 0: not computed.
     */
    double bound_s;
    /* The blocks of its stages, in the order of the pipeline. */
    struct erg_layout_block blocks[ERG_LAYOUT_MOST_KINDS];
    size_t block_count;
};

struct erg_layout_results {
    struct erg_layout_candidate *items; /* the fastest first */
    size_t count;
    /* Layouts of the space by result; `evaluated` is their sum. Equal and unequal stages count
     * separately. On several kinds `memory` also counts layouts that do not fit into the nodes'
     * host memory with any split. */
    uint64_t evaluated;
    uint64_t feasible, slower, memory, host_memory; /* slower: than all kept layouts */
    /*
     * Numbers of stages on several kinds that are slower than all kept layouts in any case; their
     * layouts are not in `evaluated`.
     */
    uint64_t bounded;
    /* The most, relative, by which a layout with any split of its layers may be faster than the
     * first item. 0: the first item is proven to be the fastest. */
    double gap;
};

/*
 * ERG_INFEASIBLE if no layout fits; the message names the one that is nearest to fitting.
 * Interruptible; reports progress.
 */
int erg_layout_search(struct erg_layout_results *found, const struct erg_layout_search *search,
                      struct erg_error *err);
void erg_layout_results_release(struct erg_layout_results *found);

/* Keeps at most the given number of items. */
void erg_layout_results_shorten(struct erg_layout_results *found, size_t count);

/* Whether the search would find any layout. False also if it was interrupted. */
bool erg_layout_any_fits(const struct erg_layout_search *search);

/*
 * Evaluates one layout of given degrees, chunks, microbatch and recomputation (and its own ratio,
 * if the search may not offload): batch, offloading, memory and time. Its stages use these blocks,
 * with the layout's data degree; without blocks one kind, with the data degree that follows.
 * Without a given split it uses the fastest one, if the search and the layout's `cut` let stages
 * differ. ERG_INFEASIBLE if the layout is not in the search's space; the message names the
 * constraint that it breaks. Release it.
 */
int erg_layout_evaluate(struct erg_layout_candidate *candidate,
                        const struct erg_layout_search *search, const struct erg_layout *layout,
                        const struct erg_layout_block *blocks, size_t count, struct erg_error *err);
void erg_layout_candidate_release(struct erg_layout_candidate *candidate);

/* Datasheet FLOP/s of all GPUs that a layout uses: the reference of its MFU. */
double erg_layout_peak_flops(const struct erg_layout_candidate *candidate,
                             const struct erg_layout_search *search);

/* The kind of each stage: kinds[pipeline]. */
void erg_layout_stage_kinds(size_t *kinds, const struct erg_layout_candidate *candidate);

/* GPUs of a kind that a layout uses. */
long erg_layout_gpus_of(const struct erg_layout_candidate *candidate, size_t kind);

#endif
