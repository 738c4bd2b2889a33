/* Shared by the files of layout/search and layout/energy/mixed.c only. */
#ifndef ERG_LAYOUT_SEARCH_INTERNAL_H
#define ERG_LAYOUT_SEARCH_INTERNAL_H

#include "layout/memory/stage_memory.h"
#include "layout/search/layout_search.h"
#include "layout/time/split.h"

#include <math.h>

/* ---- where the stages of a layout lie (places.c) ---- */

/* Values of a kind of GPUs that all layouts of one tensor, context, expert and FSDP degree and one
 * microbatch share; on one kind alone, all such layouts on as many GPUs. */
struct erg_layout_pieces {
    long gpus; /* whose groups are looked at */
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
        bool offload; /* whether its stages may */
    } on[ERG_LAYOUT_MOST_KINDS];
};

/* Working state for places: data of the latest layouts. */
struct erg_layout_site {
    const struct erg_layout_search *search;
    long tensor, context, microbatch, expert, shards, gpus;
    /* For each kind: stages that all lie in one node, and other stages. */
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

/* The pieces of a kind for a layout. `nodes`: its stages lie in several nodes. */
const struct erg_layout_pieces *erg_layout_site_pieces(struct erg_layout_site *site, size_t kind,
                                                       bool nodes, const struct erg_layout *layout);

/* The places of a layout's stages. Valid until a call for a layout of another tensor or context
 * degree or microbatch. The layout's chunks, recomputation and batch have no effect. */
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

/* The time and rate of the unchanged candidate, by the closed form alone. */
void erg_layout_settle_time(struct erg_layout_candidate *candidate,
                            const struct erg_layout_places *places);
/* The time of the simulated schedule (time/time.h), which is not faster. */
void erg_layout_follow(struct erg_layout_candidate *candidate, struct erg_time_follower *follower,
                       const struct erg_layout_places *places);

/* The largest batch within the bounds; 0: none. */
long erg_layout_choose_batch(const struct erg_layout_search *search,
                             const struct erg_layout *layout);

/* The batches of a search: "64", "60 to 68". */
void erg_layout_describe_batch(char *text, size_t size, long least, long most);

/* Tokens per second that no split of a candidate's layers does more than. */
double erg_layout_most_rate(const struct erg_layout_candidate *candidate);

/* The candidate gets lists of its own in place of those that its layout points to. */
void erg_layout_own_lists(struct erg_layout_candidate *candidate);

/* ---- memory (memory_fit.c) ---- */

/*
 * Whether stages of equal layers need memory in another order than that of the pipeline: with few
 * microbatches the first ones have only forward passes before their first backward pass, and
 * receive nothing until then.
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
/* Whether stages there may offload, and can. */
bool erg_layout_can_offload(const struct erg_layout_on *on, const struct erg_layout *layout);

/* Whether a stage fits with this ratio of offloading, into its GPUs and its share of a node. */
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
 * conclusive. Bounds from below how many bytes a layer takes in each stage (memory/memory.h), so
 * some ten nanoseconds a stage.
 */
bool erg_layout_may_fit(const struct erg_layout_places *places, const struct erg_layout *layout,
                        unsigned recomputes);

/* False: every split of the layers, with any ratio of offloading, exceeds the memory by this much
 * or more, with any amount of host memory. As fast. */
bool erg_layout_may_miss(const struct erg_layout_places *places, const struct erg_layout *layout,
                         double excess);

/* The additional GPU memory with which a layout that is too large would fit, with the best
 * offloading for that. For messages, not for a search: takes some ten microseconds. */
double erg_layout_memory_excess(const struct erg_layout *layout,
                                const struct erg_layout_places *places);

/* These bytes in GiB, rounded up to one decimal. */
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

/* Chunks of a stage that differ by at most one layer, into a list of all chunks in model order. */
void erg_layout_set_even(long *chunk_layers, const struct erg_layout *layout, long stage,
                         long layers);

/* Whether the layers fit into a stage in some chunks, with this ratio of all stages whose GPUs
 * offload: then the list has the most even that fit. */
bool erg_layout_stage_holds(long *chunk_layers, const struct erg_layout_places *places,
                            const struct erg_layout *layout, long stage, long layers,
                            double offload);

/* The smallest ratio from `offload` on with which it has; INFINITY: none. The list is written to.
 */
double erg_layout_stage_ratio(long *chunk_layers, const struct erg_layout_places *places,
                              const struct erg_layout *layout, long stage, long layers,
                              double offload);

/* ---- recomputation and offloading per stage (stage_ways.c) ---- */

/* Memory for the ways of the stages of any layout of a model. */
struct erg_layout_stages {
    enum erg_recompute *recompute, *least; /* chosen; the one that takes least time, regardless of
                                            * memory */
    double *offload;
    struct erg_layout_stage_option {
        double offload, peak_bytes, moved_s; /* copied of a layer */
        double time_s, wait_s;               /* of a microbatch; of the warm-up; INFINITY: unfit */
    } * options;                             /* [stage][recompute] */
};
void erg_layout_stages_init(struct erg_layout_stages *stages, long layers);
void erg_layout_stages_release(struct erg_layout_stages *stages);

/* Gives each stage of a layout the recomputation that takes least there of those that are tried, so
 * that no choice of the stages' own is faster: into the list `least`. */
void erg_layout_take_least_recomputes(struct erg_layout *layout, struct erg_layout_stages *stages,
                                      const struct erg_layout_places *places);

/*
 * Gives each stage of a candidate the recomputation and offloading with which the iteration is the
 * shortest, and the candidate its peak and time. Its lists are those of `stages` then.
 */
enum erg_layout_verdict erg_layout_settle_stages(struct erg_layout_candidate *candidate,
                                                 struct erg_layout_stages *stages,
                                                 const struct erg_layout_places *places,
                                                 unsigned recomputes, double *excess);

/* That where the search asks for it, else one way for all stages: erg_layout_settle_memory(). */
enum erg_layout_verdict erg_layout_settle(struct erg_layout_candidate *candidate,
                                          struct erg_layout_stages *stages,
                                          const struct erg_layout_places *places, double *excess);

/* ---- layers of stages that may differ (stage_split.c) ---- */

/* Memory for the results and the candidates, for as many stages as the model has layers. */
struct erg_layout_splitter {
    struct erg_split_group *groups; /* of one stage each */
    struct erg_layout_room {
        long layers; /* that fit with the offloading at hand */
        long useful; /* more would be slower than the limit */
        double next; /* ratio of offloading with which one more fits; INFINITY: none */
    } * rooms;
    long *stage_layers, *chunk_layers;     /* found; of chunks in model order */
    double offload;                        /* found */
    long *round_layers;                    /* found by rounds, of chunks in model order */
    double *turns_s, *longest_s, *layer_s; /* of chunks, rounds, stages */
    struct erg_time_follower *follower;
};

void erg_layout_splitter_init(struct erg_layout_splitter *splitter, long layers);
void erg_layout_splitter_release(struct erg_layout_splitter *splitter);

/* Seconds of the fastest split regardless of memory; above `limit` the result may be too low. */
double erg_layout_split_bound(struct erg_layout_splitter *splitter,
                              const struct erg_layout_places *places,
                              const struct erg_layout *layout, double limit);
/* And its chunks. */
void erg_layout_split_of_any_memory(struct erg_layout_splitter *splitter,
                                    const struct erg_layout_places *places,
                                    const struct erg_layout *layout);

/*
 * Seconds of the fastest split that fits, with the least offloading with which it fits; the split
 * is written to the splitter. INFINITY: none takes less than `limit`. The layout's own offloading
 * and layers have no effect.
 */
double erg_layout_split_fastest(struct erg_layout_splitter *splitter,
                                const struct erg_layout_places *places,
                                const struct erg_layout *layout, double limit);

/* ---- the same by rounds, of layouts with virtual stages (chunk_split.c) ---- */

/* Follows the schedule of a split that fits, and with virtual stages that by rounds, too: the
 * candidate becomes that which is faster. With settings per stage (per_stage of the search) its
 * lists are those of `stages`, else `stages` may be NULL. */
void erg_layout_follow_split(struct erg_layout_candidate *candidate,
                             struct erg_layout_splitter *splitter, struct erg_layout_stages *stages,
                             const struct erg_layout_places *places);

/*
 * Improves a simulated candidate with lists of its own: layers move from chunk to chunk until no
 * move makes it faster, or for a tenth of a second; if there are few splits, all are tried. Sets
 * its bound_s to the least time of any split. Splits that take `limit_s` or longer are not
 * considered. Returns whether it got faster.
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
    double others;                          /* tokens per second that nothing else does more than */
    const struct erg_layout_search *search; /* whose `each` is called for all dropped ones */
};

/* Nothing is found yet, and there is room for as many as are kept. */
void erg_layout_shortlist_init(struct erg_layout_shortlist *list, struct erg_layout_results *found,
                               const struct erg_layout_search *search);

/* Tokens per second of the slowest that is kept; 0: there is room for slower ones. */
double erg_layout_shortlist_least_rate(const struct erg_layout_shortlist *list);

/* A layout that fits: kept, with lists of its own, if it is among the fastest, else let go. */
void erg_layout_shortlist_add(struct erg_layout_shortlist *list,
                              const struct erg_layout_candidate *candidate);

/* The splits of all that was kept become the fastest there are, and of these as many are left as
 * were asked for, with their gap. */
int erg_layout_shortlist_refine(struct erg_layout_shortlist *list, struct erg_layout_site *site,
                                struct erg_layout_splitter *splitter,
                                struct erg_layout_stages *stages, struct erg_error *err);

#endif
