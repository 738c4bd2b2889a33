/* Shared by the files of layout/search and layout/energy/mixed.c only. */
#ifndef ERG_LAYOUT_SEARCH_INTERNAL_H
#define ERG_LAYOUT_SEARCH_INTERNAL_H

#include "layout/memory/stage_memory.h"
#include "layout/search/layout_search.h"
#include "layout/time/split.h"

#include <math.h>

/* ---- places of the stages of a layout (places.c) ---- */

/*
 * Values of a kind of GPUs that are equal for all layouts with the same tensor, context, expert and
 * FSDP degree and microbatch; on one kind alone, for such layouts on the same number of GPUs.
 */
struct erg_layout_pieces {
    long gpus; /* GPUs of the groups */
    struct erg_time_request time;
    struct erg_time_parts parts;
    struct erg_memory_sizes sizes;
};

/* The models of each place of a layout: time[i] and on[i] belong together. */
struct erg_layout_places {
    size_t count;
    struct erg_time_place time[ERG_LAYOUT_MOST_KINDS];
    struct erg_layout_on {
        const struct erg_layout_search *search;
        const struct erg_layout_kind *kind;
        const struct erg_layout_pieces *pieces;
        bool offload; /* whether its stages may offload */
    } on[ERG_LAYOUT_MOST_KINDS];
};

/* Working state for places: a cache of the latest layouts. */
struct erg_layout_site {
    const struct erg_layout_search *search;
    long tensor, context, microbatch, expert, shards, gpus;
    /* For each kind: stages within one node, and other stages. */
    struct erg_layout_site_pieces {
        bool known;
        struct erg_layout_pieces pieces;
    } kinds[ERG_LAYOUT_MOST_KINDS][2];
    struct erg_layout_ring { /* of gradients; [stages, kind] modulo its size */
        size_t kind;
        long stride, size, ranks;
        double bandwidth;
    } rings[256];
};

/* The search must outlive it. */
void erg_layout_site_init(struct erg_layout_site *site, const struct erg_layout_search *search);

/* The pieces of a kind for a layout. `nodes`: its stages span several nodes. */
const struct erg_layout_pieces *erg_layout_site_pieces(struct erg_layout_site *site, size_t kind,
                                                       bool nodes, const struct erg_layout *layout);

/*
 * The places of a layout's stages. Valid until a call for a layout with another tensor or context
 * degree or microbatch. The layout's chunks, recomputation and batch have no effect.
 */
void erg_layout_places_init(struct erg_layout_places *places, struct erg_layout_site *site,
                            const struct erg_layout *layout, const struct erg_layout_block *blocks,
                            size_t count);

/* The index of the place of a stage. */
static inline size_t erg_layout_place_of(const struct erg_layout_places *places, long stage)
{
    size_t place = 0;
    while (stage >= places->time[place].end)
        place++;
    return place;
}

/* Fills the peak of each of a candidate's blocks. */
void erg_layout_fill_peaks(struct erg_layout_candidate *candidate,
                           const struct erg_layout_places *places);

/* ---- one layout (evaluate.c) ---- */

int erg_layout_check_search(const struct erg_layout_search *search, struct erg_error *err);

/*
 * Whether the first stage has room for all layers without experts of a model whose other layers
 * have them: the search cuts such models only there.
 */
static inline bool erg_layout_holds_dense(const struct erg_layout *layout,
                                          const struct erg_model *model)
{
    return model->experts.dense_layers * layout->pipeline <= model->layers;
}

/* The time and rate of the unchanged candidate, by the closed form alone. */
void erg_layout_settle_time(struct erg_layout_candidate *candidate,
                            const struct erg_layout_places *places);
/* Replaces the time by that of the simulated schedule (time/time.h), which is not faster. */
void erg_layout_follow(struct erg_layout_candidate *candidate, struct erg_time_follower *follower,
                       const struct erg_layout_places *places);

/* The largest batch within the bounds; 0: none. */
long erg_layout_choose_batch(const struct erg_layout_search *search,
                             const struct erg_layout *layout);

/* The batches of a search: "64", "60 to 68". */
void erg_layout_describe_batch(char *text, size_t size, long least, long most);

/* Upper bound of the tokens per second of any split of a candidate's layers. */
double erg_layout_most_rate(const struct erg_layout_candidate *candidate);

/* Gives the candidate its own copies of the lists that its layout points to. */
void erg_layout_own_lists(struct erg_layout_candidate *candidate);

/* ---- memory (memory_fit.c) ---- */

/*
 * Whether, with equal layers, memory does not fall along the pipeline: with few microbatches the
 * first stages have only forward passes before their first backward pass, and receive nothing until
 * then.
 */
static inline bool erg_layout_is_short(const struct erg_layout *layout)
{
    return layout->virtual_stages == 1 && layout->microbatches < layout->pipeline + 2;
}

enum erg_layout_verdict { ERG_LAYOUT_FITS, ERG_LAYOUT_TOO_LARGE, ERG_LAYOUT_HOST_TOO_SMALL };

/* The memory that a stage needs by its ratio of offloading. */
void erg_layout_stage_lines(struct erg_memory_lines *lines, const struct erg_layout_on *on,
                            const struct erg_layout *layout, long stage);
double erg_layout_stage_peak(const struct erg_memory_lines *lines, double offload);
/* Whether stages may and can offload there. */
bool erg_layout_can_offload(const struct erg_layout_on *on, const struct erg_layout *layout);

/* Whether a stage with this ratio of offloading fits into its GPUs and its share of a node. */
bool erg_layout_stage_fits(const struct erg_layout_on *on, const struct erg_memory_lines *lines,
                           double offload);

/*
 * Raises *offload to the smallest ratio with which a stage fits its GPUs. False: there is none, and
 * *excess is the shortage.
 */
bool erg_layout_stage_offload(const struct erg_layout_on *on, const struct erg_memory_lines *lines,
                              double *offload, double *excess);

/* False: the layers do not fit into a stage with this ratio of offloading, in any chunks. Takes a
 * few nanoseconds. */
bool erg_layout_stage_may_hold(const struct erg_layout_on *on, const struct erg_layout *layout,
                               long stage, double layers, double offload);

/*
 * False: no split of the layers of these degrees, chunks and microbatches fits with any ratio of
 * offloading and, for each stage, any of `recomputes`, bits 1 << enum erg_recompute. True is not
 * conclusive. Uses a lower bound of the bytes of a layer in each stage (memory/stage_memory.h), so
 * it takes some ten nanoseconds per stage.
 */
bool erg_layout_may_fit(const struct erg_layout_places *places, const struct erg_layout *layout,
                        unsigned recomputes);

/*
 * False: every split of the layers, with any ratio of offloading, exceeds the memory by this much
 * or more, with any amount of host memory. Equally fast.
 */
bool erg_layout_may_miss(const struct erg_layout_places *places, const struct erg_layout *layout,
                         double excess);

/*
 * The additional GPU memory that a layout needs to fit, with the best offloading for that. For
 * messages, not for a search: it takes some ten microseconds.
 */
double erg_layout_memory_excess(const struct erg_layout *layout,
                                const struct erg_layout_places *places);

/* Bytes in GiB, rounded up to one decimal. */
static inline double erg_layout_gib_up(double bytes)
{
    return ceil(10 * bytes / 0x1p30) / 10;
}

/*
 * Sets the layout's offloading to the least that fits, and the candidate's peak. *excess is the
 * shortage of the first stage that is too large, which is at most that of the layout.
 */
enum erg_layout_verdict erg_layout_settle_memory(struct erg_layout_candidate *candidate,
                                                 const struct erg_layout_places *places,
                                                 double *excess);

/* ---- the chunks of one stage (stage_chunks.c) ---- */

/*
 * Sets the chunks of a stage, which differ by at most one layer, in a list of all chunks in model
 * order.
 */
void erg_layout_set_even(long *chunk_layers, const struct erg_layout *layout, long stage,
                         long layers);

/*
 * Whether the layers fit into a stage in some chunks, with this ratio for all stages whose GPUs
 * offload; the list then has the most even chunks that fit.
 */
bool erg_layout_stage_holds(long *chunk_layers, const struct erg_layout_places *places,
                            const struct erg_layout *layout, long stage, long layers,
                            double offload);

/* The smallest ratio from `offload` on with which they fit; INFINITY: none. Overwrites the list. */
double erg_layout_stage_ratio(long *chunk_layers, const struct erg_layout_places *places,
                              const struct erg_layout *layout, long stage, long layers,
                              double offload);

/* ---- recomputation and offloading per stage (stage_ways.c) ---- */

/* Memory for the stages' settings in any layout of a model. */
struct erg_layout_stages {
    enum erg_recompute *recompute, *least; /* chosen; the fastest, regardless of memory */
    double *offload;
    struct erg_layout_stage_option {
        double offload, peak_bytes, moved_s; /* moved_s: seconds of copies of a layer */
        double time_s, wait_s; /* of a microbatch; of the warm-up; INFINITY: does not fit */
    } * options;               /* [stage][recompute] */
};
void erg_layout_stages_init(struct erg_layout_stages *stages, long layers);
void erg_layout_stages_release(struct erg_layout_stages *stages);

/*
 * Gives each stage of a layout the fastest of the tried recomputations, so that no other choice is
 * faster: into the list `least`.
 */
void erg_layout_take_least_recomputes(struct erg_layout *layout, struct erg_layout_stages *stages,
                                      const struct erg_layout_places *places);

/*
 * Gives each stage of a candidate the recomputation and offloading of the shortest iteration, and
 * the candidate its peak and time. Its lists then belong to `stages`.
 */
enum erg_layout_verdict erg_layout_settle_stages(struct erg_layout_candidate *candidate,
                                                 struct erg_layout_stages *stages,
                                                 const struct erg_layout_places *places,
                                                 unsigned recomputes, double *excess);

/*
 * The same if the search is per stage; otherwise erg_layout_settle_memory(), with one setting for
 * all stages.
 */
enum erg_layout_verdict erg_layout_settle(struct erg_layout_candidate *candidate,
                                          struct erg_layout_stages *stages,
                                          const struct erg_layout_places *places, double *excess);

/* ---- layers of stages that may differ (stage_split.c) ---- */

/* Memory for results and candidates, for as many stages as the model has layers. */
struct erg_layout_splitter {
    struct erg_split_group *groups; /* of one stage each */
    struct erg_layout_room {
        long layers; /* that fit with the current offloading */
        long useful; /* more would be slower than the limit */
        double next; /* ratio of offloading with which one more layer fits; INFINITY: none */
    } * rooms;
    long *stage_layers, *chunk_layers;     /* found; of chunks in model order */
    double offload;                        /* found */
    long *round_layers;                    /* found by rounds; of chunks in model order */
    double *turns_s, *longest_s, *layer_s; /* of chunks, rounds, stages */
    struct erg_time_follower *follower;
};

void erg_layout_splitter_init(struct erg_layout_splitter *splitter, long layers);
void erg_layout_splitter_release(struct erg_layout_splitter *splitter);

/* Seconds of the fastest split regardless of memory; above `limit` the result may be too low. */
double erg_layout_split_bound(struct erg_layout_splitter *splitter,
                              const struct erg_layout_places *places,
                              const struct erg_layout *layout, double limit);
/* The chunks of that split. */
void erg_layout_split_of_any_memory(struct erg_layout_splitter *splitter,
                                    const struct erg_layout_places *places,
                                    const struct erg_layout *layout);

/*
 * Seconds of the fastest split that fits, with the least offloading with which it fits; stores the
 * split in the splitter. INFINITY: none takes less than `limit`. The layout's own offloading and
 * layers have no effect.
 */
double erg_layout_split_fastest(struct erg_layout_splitter *splitter,
                                const struct erg_layout_places *places,
                                const struct erg_layout *layout, double limit);

/* ---- the same by rounds, for layouts with virtual stages (chunk_split.c) ---- */

/*
 * Simulates the schedule of a split that fits and, with virtual stages, of the split by rounds; the
 * candidate becomes the faster one. With settings per stage (per_stage of the search) its lists
 * belong to `stages`; otherwise `stages` may be NULL.
 */
void erg_layout_follow_split(struct erg_layout_candidate *candidate,
                             struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                             const struct erg_layout_places *places);

/*
 * Improves a simulated candidate that owns its lists: moves layers from chunk to chunk until no
 * move makes it faster, or for a tenth of a second; if there are few splits, tries all. Sets its
 * bound_s to the least time of any split. Splits that take `limit_s` or longer are not considered.
 * Returns whether it became faster.
 */
bool erg_layout_refine_split(struct erg_layout_candidate *candidate,
                             struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                             const struct erg_layout_places *places, double limit_s);

/* ---- layouts that a search keeps (shortlist.c) ---- */

/* The least number of layouts kept, even if fewer are requested: after their layers have moved
 * another one may be the fastest. */
enum { ERG_LAYOUT_SHORTLIST_LEAST = 16 };

struct erg_layout_shortlist {
    struct erg_layout_results *found;       /* the fastest first */
    size_t most;                            /* of them */
    double others;                          /* upper bound of the tokens per second of all others */
    const struct erg_layout_search *search; /* its `each` is called for dropped layouts */
};

/* An empty list with room for all layouts to keep. */
void erg_layout_shortlist_init(struct erg_layout_shortlist *list, struct erg_layout_results *found,
                               const struct erg_layout_search *search);

/* Tokens per second of the slowest kept layout; 0: there is room for slower ones. */
double erg_layout_shortlist_least_rate(const struct erg_layout_shortlist *list);

/* Adds a layout that fits: copies it if it is among the fastest, otherwise drops it. */
void erg_layout_shortlist_add(struct erg_layout_shortlist *list,
                              const struct erg_layout_candidate *candidate);

/*
 * Improves the splits of all kept layouts, then keeps the requested number of layouts, with their
 * gap.
 */
int erg_layout_shortlist_refine(struct erg_layout_shortlist *list, struct erg_layout_site *site,
                                struct erg_layout_splitter *splitter,
                                struct erg_layout_stages *stages, struct erg_error *err);

#endif
