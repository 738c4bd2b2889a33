/* What a pipeline takes when its schedule is followed. */
#include "base/memory.h"
#include "iteration/iteration.h"
#include "layout/time/time.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* A pass, after what it waits for: the one before it on its stage, and its input's. */
struct pass {
    uint32_t before, input; /* so many earlier in the order of passes; 0: none */
    uint32_t table;
};

/*
 * The passes of a pipeline in an order in which they can be followed. After the first `start` of
 * them the next `period`, those of one group of microbatches, come as often as there are groups
 * more; what each waits for is no further back than a period.
 */
struct run {
    struct erg_pipeline pipeline; /* of no stages: none yet */
    struct pass *passes;          /* with the period once */
    double *ends_s;               /* of all as they were followed */
    size_t count, room;
    size_t start, period, repeats; /* period 0: nothing repeats */
};

/* What a pass of a virtual stage takes, forward and backward, with the messages that nothing hides,
 * each counted to the pass that makes it as in the closed form; the head is a third forward.
 * Layers x (layer_s + ratio of offloading x copy_s) + fixed_s seconds. */
struct chunk {
    double layer_s[2], fixed_s[2];
    double copy_s;
};

struct erg_time_follower {
    struct run run;
    double *times_s;       /* of the passes of each virtual stage */
    struct chunk *chunks;  /* what they are made of */
    size_t virtual_stages; /* room */
    uint64_t passes;       /* followed in all */
};

struct erg_time_follower *erg_time_follower_new(void)
{
    return erg_xcalloc(1, sizeof(struct erg_time_follower));
}

static void release_run(struct run *run)
{
    free(run->passes);
    free(run->ends_s);
    *run = (struct run){0};
}

void erg_time_follower_free(struct erg_time_follower *follower)
{
    if (!follower)
        return;
    release_run(&follower->run);
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

/* chunks[pipeline x virtual stages], in model order. Of the layout the layers do not count. */
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
        if (i == 0) /* sends nothing back, and waits for what comes back to it */
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

/* Groups of as many microbatches as there are stages with which a period is looked for. */
enum { GROUPS = 6 };

/* Passes in the order in which they start where all take equally long, which repeats itself where
 * the schedule does. */
static uint32_t *order_of(const struct erg_schedule *schedule)
{
    const size_t count = schedule->count;
    uint32_t *starts = erg_xcalloc(count, sizeof *starts), last = 0;
    uint32_t *order = erg_xcalloc(count, sizeof *order);
    for (size_t i = 0; i < count; i++) {
        const uint32_t own = schedule->order[i], *before = schedule->before[own];
        for (int k = 0; k < 2; k++)
            if (before[k] != ERG_NONE && starts[before[k]] + 1 > starts[own])
                starts[own] = starts[before[k]] + 1;
        last = starts[own] > last ? starts[own] : last;
    }
    size_t *places = erg_xcalloc(last + 2, sizeof *places);
    for (size_t i = 0; i < count; i++)
        places[starts[i] + 1]++;
    for (size_t i = 0; i <= last; i++)
        places[i + 1] += places[i];
    for (size_t i = 0; i < count; i++)
        order[places[starts[i]]++] = (uint32_t)i;
    free(places);
    free(starts);
    return order;
}

static bool is_same(const struct pass *a, const struct pass *b)
{
    return a->table == b->table && a->before == b->before && a->input == b->input;
}

/* Finds a period that repeats the one before it and is taken out where it comes again. */
static bool find_period(struct run *run, size_t period)
{
    size_t same = 0, i = period;
    for (; i < run->count && same < period; i++)
        same = is_same(&run->passes[i], &run->passes[i - period]) ? same + 1 : 0;
    for (size_t k = i - same; k < run->count; k++)
        if (run->passes[k].before > period || run->passes[k].input > period)
            return false;
    run->start = i - same;
    run->period = period;
    return same == period;
}

static void fill_run(struct run *run, const struct erg_schedule *schedule)
{
    uint32_t *order = order_of(schedule);
    uint32_t *place = erg_xcalloc(schedule->count, sizeof *place);
    run->count = schedule->count;
    run->passes = erg_xcalloc(run->count, sizeof *run->passes);
    for (size_t i = 0; i < run->count; i++)
        place[order[i]] = (uint32_t)i;
    for (size_t i = 0; i < run->count; i++) {
        const uint32_t *before = schedule->before[order[i]];
        run->passes[i] = (struct pass){
            .before = before[0] == ERG_NONE ? 0 : (uint32_t)i - place[before[0]],
            .input = before[1] == ERG_NONE ? 0 : (uint32_t)i - place[before[1]],
            .table =
                (uint32_t)erg_table_index(&schedule->pipeline, &schedule->instructions[order[i]]),
        };
    }
    free(place);
    free(order);
}

/* The passes of so many microbatches. False: more than can be planned. */
static bool make_run(struct run *run, const struct erg_pipeline *pipeline)
{
    struct erg_pipeline some = *pipeline;
    struct erg_schedule schedule;
    release_run(run);
    size_t groups = pipeline->microbatches / pipeline->stages;
    if (groups > GROUPS)
        some.microbatches -= (groups - GROUPS) * pipeline->stages;
    for (int whole = 0; whole < 2; whole++) {
        if (whole)
            some.microbatches = pipeline->microbatches;
        if (erg_schedule_init(&schedule, &some, NULL) != 0)
            return false;
        fill_run(run, &schedule);
        erg_schedule_release(&schedule);
        run->repeats = (pipeline->microbatches - some.microbatches) / pipeline->stages;
        if (run->repeats == 0 ||
            find_period(run, 2 * pipeline->stages * pipeline->stages * pipeline->chunks))
            break;
        release_run(run);
    }
    if (run->repeats == 0)
        run->start = run->period = 0;
    run->pipeline = *pipeline;
    return true;
}

/* ---- following it ---- */

/* The ends of the next passes, which are those of the order from `first` on; the last of them. */
static double follow_some(struct run *run, const double *times_s, size_t *at, size_t first,
                          size_t count)
{
    double *ends_s = run->ends_s, last_s = 0;
    for (size_t i = 0; i < count; i++) {
        const struct pass *pass = &run->passes[first + i];
        const double *own = &ends_s[*at + i];
        double input_s = pass->input ? own[-(ptrdiff_t)pass->input] : 0;
        double before_s = pass->before ? own[-(ptrdiff_t)pass->before] : 0;
        double start_s = input_s > before_s ? input_s : before_s;
        double end_s = start_s + times_s[pass->table];
        ends_s[*at + i] = end_s;
        last_s = end_s > last_s ? end_s : last_s;
    }
    *at += count;
    return last_s;
}

/* Whether all passes of the last period ended the same time after those of the one before: then
 * they always will. */
static bool is_steady(const struct run *run, size_t at)
{
    const double *ends_s = run->ends_s, tie_s = 1e-12 * ends_s[at - 1];
    double later_s = ends_s[at - 1] - ends_s[at - 1 - run->period];
    for (size_t i = at - run->period; i < at; i++)
        if (fabs(ends_s[i] - ends_s[i - run->period] - later_s) > tie_s)
            return false;
    return true;
}

static double follow(struct erg_time_follower *follower, struct run *run, const double *times_s)
{
    const size_t most = run->count + run->repeats * run->period;
    size_t at = 0, body = run->start + run->period;
    double skipped_s = 0;
    if (run->room < most) {
        free(run->ends_s);
        run->ends_s = erg_xcalloc(most, sizeof *run->ends_s);
        run->room = most;
    }
    double last_s = follow_some(run, times_s, &at, 0, body);
    for (size_t left = run->repeats; left > 0; left--) {
        if (is_steady(run, at)) {
            skipped_s = (double)left * (run->ends_s[at - 1] - run->ends_s[at - 1 - run->period]);
            break;
        }
        last_s = follow_some(run, times_s, &at, run->start, run->period);
    }
    last_s = follow_some(run, times_s, &at, body, run->count - body);
    follower->passes += at;
    return last_s + skipped_s;
}

double erg_time_followed(struct erg_time_follower *follower, const struct erg_time_place *places,
                         const struct erg_layout *layout)
{
    const struct erg_pipeline pipeline = {
        .stages = (size_t)layout->pipeline,
        .microbatches = (size_t)layout->microbatches,
        .chunks = (size_t)layout->virtual_stages,
    };
    struct run *run = &follower->run;
    fill_times(follower, places, layout);
    if ((run->pipeline.stages != pipeline.stages || run->pipeline.chunks != pipeline.chunks ||
         run->pipeline.microbatches != pipeline.microbatches) &&
        !make_run(run, &pipeline))
        return 0; /* larger than any that can be planned */
    return follow(follower, run, follower->times_s);
}

uint64_t erg_time_followed_passes(const struct erg_time_follower *follower)
{
    return follower->passes;
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
