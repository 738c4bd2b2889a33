/* The time of a pipeline, by simulation of its schedule pass by pass. */
#include "base/memory.h"
#include "iteration/pass_order.h"
#include "layout/time/time.h"

#include <math.h>
#include <stdlib.h>

/* The time of a virtual stage's pass, forward and backward, with its exposed messages, each counted
 * in the pass that sends it, as in the closed form; a third of the head is forward. Layers x
 * (layer_s + ratio of offloading x copy_s) + fixed_s seconds. */
struct chunk {
    double layer_s[2], fixed_s[2];
    double copy_s;
};

/* A pass and its dependencies: the previous pass of its stage, and the sender of its input. */
struct followed_pass {
    uint32_t before, input; /* indices of passes; 0: none */
    uint32_t table;
};

struct erg_time_follower {
    struct erg_pass_order order;  /* with 0 stages: none yet */
    struct followed_pass *passes; /* of all stages, from 1 on */
    double *ends_s;
    size_t count;
    double *times_s;       /* of the passes of each virtual stage */
    struct chunk *chunks;  /* their inputs */
    size_t virtual_stages; /* room */
};

struct erg_time_follower *erg_time_follower_new(void)
{
    return erg_xcalloc(1, sizeof(struct erg_time_follower));
}

void erg_time_follower_free(struct erg_time_follower *follower)
{
    if (!follower)
        return;
    free(follower->passes);
    free(follower->ends_s);
    free(follower->times_s);
    free(follower->chunks);
    free(follower);
}

static const struct erg_time_place *place_of(const struct erg_time_place *places, long stage)
{
    while (stage >= places->end)
        places++;
    return places;
}

/* chunks[pipeline x virtual stages], in model order. The layout's own layers have no effect. */
static void fill_chunks(struct chunk *chunks, const struct erg_time_place *places,
                        const struct erg_layout *layout)
{
    const long stages = layout->pipeline, virtual_stages = stages * layout->virtual_stages;
    for (long i = 0; i < virtual_stages; i++) {
        long stage = i % stages;
        const struct erg_time_place *place = place_of(places, stage);
        const struct erg_engine *engine = place->request->engine;
        const struct erg_time_parts *parts = place->parts;
        enum erg_recompute recompute = erg_layout_recompute(layout, stage);
        double head_s = i == virtual_stages - 1 ? parts->head_s : 0;
        double after_s = erg_time_hop_after(place, layout, stage).time_s;
        double before_s = erg_time_hop_before(place, layout, stage).time_s;
        double share = stages > 1 ? erg_time_message_share(engine, layout) : 0;
        if (i == 0) /* sends nothing back, and waits for data that returns to it */
            before_s = after_s;
        if (i == virtual_stages - 1)
            after_s = before_s;
        chunks[i] = (struct chunk){
            .layer_s = {parts->forward_s, parts->backward_s + parts->recompute_s[recompute]},
            .fixed_s = {head_s / 3 + share * after_s, 2 * head_s / 3 + share * before_s},
            .copy_s = engine->offload_interference * parts->copy_s[recompute],
        };
    }
}

static void fill_times(struct erg_time_follower *follower, const struct erg_time_place *places,
                       const struct erg_layout *layout)
{
    const long stages = layout->pipeline, all = places->request->model->layers;
    size_t count = (size_t)(stages * layout->virtual_stages);
    if (count > follower->virtual_stages) {
        follower->virtual_stages = count;
        follower->times_s = erg_xrealloc(follower->times_s, 2 * count, sizeof(double));
        follower->chunks = erg_xrealloc(follower->chunks, count, sizeof *follower->chunks);
    }
    fill_chunks(follower->chunks, places, layout);
    for (long i = 0; i < (long)count; i++) {
        const struct chunk *chunk = &follower->chunks[i];
        double layers = (double)erg_layout_chunk_layers(layout, all, i % stages, i / stages);
        double copies_s = erg_layout_offload(layout, i % stages) * chunk->copy_s;
        for (int way = 0; way < 2; way++)
            follower->times_s[2 * i + way] =
                layers * (chunk->layer_s[way] + copies_s) + chunk->fixed_s[way];
    }
}

/* ---- the order ---- */

/* The progress of a stage. */
struct stage_state {
    size_t warmup, done[2]; /* passes forward and backward */
    uint32_t last;          /* the last pass */
};

/*
 * Lists the next pass of a stage if its input is listed; returns whether it did. `places`: index of
 * every pass of a virtual stage and a microbatch; 0: not listed.
 */
static bool list_next(struct erg_time_follower *follower, struct stage_state *at, size_t stage,
                      uint32_t *places)
{
    const struct erg_pass_order *order = &follower->order;
    const size_t all = erg_pass_order_count(order), last = order->stages * order->chunks - 1;
    const bool backward = at->done[0] == all || at->done[0] > at->warmup + at->done[1];
    if (at->done[1] == all)
        return false;
    const struct erg_pass pass = erg_pass_order_nth(order, backward, at->done[backward]);
    const size_t own = pass.chunk * order->stages + stage, table = 2 * own + backward;
    uint32_t input = 0;
    if (backward || own > 0) { /* from the previous virtual stage, itself, or the next one */
        const size_t from = !backward ? table - 2 : own == last ? table - 1 : table + 2;
        input = places[from * order->microbatches + pass.microbatch];
        if (!input)
            return false;
    }
    follower->passes[++follower->count] = (struct followed_pass){at->last, input, (uint32_t)table};
    at->last = (uint32_t)follower->count;
    places[table * order->microbatches + pass.microbatch] = at->last;
    at->done[backward]++;
    return true;
}

/* Lists the passes of a pipeline, unless they are those of the last call. */
static void list_passes(struct erg_time_follower *follower, const struct erg_pass_order *order)
{
    const struct erg_pass_order *old = &follower->order;
    const size_t count = 2 * order->stages * erg_pass_order_count(order);
    if (old->stages == order->stages && old->chunks == order->chunks &&
        old->microbatches == order->microbatches)
        return;
    struct stage_state *at = erg_xcalloc(order->stages, sizeof *at);
    uint32_t *places = erg_xcalloc(count, sizeof *places);
    follower->order = *order;
    follower->count = 0;
    follower->passes = erg_xrealloc(follower->passes, count + 1, sizeof *follower->passes);
    follower->ends_s = erg_xrealloc(follower->ends_s, count + 1, sizeof *follower->ends_s);
    follower->ends_s[0] = 0;
    for (size_t stage = 0; stage < order->stages; stage++)
        at[stage].warmup = erg_pass_order_warmup(order, stage);
    while (follower->count < count)
        for (size_t stage = 0; stage < order->stages; stage++)
            list_next(follower, &at[stage], stage, places);
    free(places);
    free(at);
}

/* ---- simulation ---- */

double erg_time_followed(struct erg_time_follower *follower, const struct erg_time_place *places,
                         const struct erg_layout *layout)
{
    const struct erg_pass_order order = erg_pass_order_of(
        (size_t)layout->pipeline, (size_t)layout->virtual_stages, (size_t)layout->microbatches);
    double last_s = 0;
    list_passes(follower, &order);
    fill_times(follower, places, layout);
    double *ends_s = follower->ends_s;
    for (size_t i = 1; i <= follower->count; i++) {
        const struct followed_pass *pass = &follower->passes[i];
        const double before_s = ends_s[pass->before], input_s = ends_s[pass->input];
        ends_s[i] = (before_s > input_s ? before_s : input_s) + follower->times_s[pass->table];
        last_s = ends_s[i] > last_s ? ends_s[i] : last_s;
    }
    return last_s;
}

void erg_time_follow_places(struct erg_time *time, struct erg_time_follower *follower,
                            const struct erg_time_place *places, size_t count,
                            const struct erg_layout *layout)
{
    erg_time_compose_places(time, places, count, layout);
    if (layout->virtual_stages == 1 ||
        (!layout->chunk_layers && erg_time_places_are_alike(places, count)))
        return;
    double closed_s = -erg_time_passage(places, count, layout);
    for (int i = 0; i <= ERG_TIME_BUBBLE; i++)
        closed_s += time->items[i];
    double followed_s = erg_time_followed(follower, places, layout);
    time->items[ERG_TIME_UNEVEN] = fmax(0, followed_s - closed_s);
    time->total += time->items[ERG_TIME_UNEVEN];
}
