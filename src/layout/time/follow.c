/* What a pipeline takes when its schedule is followed. */
#include "base/memory.h"
#include "iteration/iteration.h"
#include "layout/time/time.h"

#include <math.h>
#include <stdlib.h>

/* A pass, after what it waits for: the one before it on its stage, and its input's. */
struct pass {
    uint32_t before, input; /* numbers in this order; count: none */
    uint32_t table;
};

/* The passes of a pipeline of so many microbatches in an order in which they can be followed. */
struct run {
    struct erg_pipeline pipeline; /* of no stages: none yet */
    struct pass *passes;
    double *ends_s; /* [count + 1], the last one 0 */
    size_t count;
};

struct erg_time_follower {
    struct run runs[2]; /* the longer one, and where groups repeat a shorter one */
    double *times_s;    /* of the passes of each virtual stage */
    size_t tables;      /* room */
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
    release_run(&follower->runs[0]);
    release_run(&follower->runs[1]);
    free(follower->times_s);
    free(follower);
}

static const struct erg_time_place *place_of(const struct erg_time_place *places, long stage)
{
    while (stage >= places->end)
        places++;
    return places;
}

void erg_time_hops(double *hops_s, const struct erg_time_place *places, size_t count,
                   const struct erg_layout *layout)
{
    for (size_t i = 0; i < count; i++) {
        const struct erg_time_place *place = &places[i], *next = &places[(i + 1) % count];
        for (long stage = place->first; stage < place->end; stage++)
            hops_s[stage] =
                erg_time_message_share(place->request->engine, layout) * place->parts->message_s;
        double back_s = erg_time_message_share(next->request->engine, layout) *
                        (next->parts->message_s + next->before_s);
        double *out_s = &hops_s[place->end - 1];
        *out_s += erg_time_message_share(place->request->engine, layout) * place->after_s;
        *out_s = fmax(*out_s, back_s); /* a schedule knows one for both ways */
    }
}

/*
 * Of every pass at full speed, with the messages that nothing hides, each counted to the pass that
 * makes it as in the closed form; the head is a third forward.
 */
static void fill_times(double *times_s, const struct erg_time_place *places,
                       const struct erg_layout *layout)
{
    const long stages = layout->pipeline, virtual_stages = stages * layout->virtual_stages;
    for (long i = 0; i < virtual_stages; i++) {
        long stage = i % stages;
        const struct erg_time_place *place = place_of(places, stage);
        const struct erg_time_request *request = place->request;
        const struct erg_time_parts *parts = place->parts;
        enum erg_remat remat = erg_layout_remat(layout, stage);
        double layers =
            (double)erg_layout_chunk_layers(layout, request->model->layers, stage, i / stages);
        double copies_s = request->engine->offload_interference *
                          erg_layout_offload(layout, stage) * parts->copy_s[remat];
        double head_s = i == virtual_stages - 1 ? parts->head_s : 0;
        double after_s = stage == place->end - 1 && i < virtual_stages - 1 ? place->after_s : 0;
        double before_s = stage == place->first && i > 0 ? place->before_s : 0;
        double share = erg_time_message_share(request->engine, layout);
        times_s[2 * i] = layers * (parts->forward_s + copies_s) + head_s / 3 +
                         share * (parts->message_s + after_s);
        times_s[2 * i + 1] = layers * (parts->backward_s + parts->recompute_s[remat] + copies_s) +
                             2 * head_s / 3 + share * (parts->message_s + before_s);
    }
}

/* Groups of as many microbatches as there are stages: all, or the first and what is repeated. */
enum { GROUPS = 6, REPEATED = 2 };

static bool repeats(const struct erg_layout *layout)
{
    return layout->microbatches > GROUPS * layout->pipeline;
}

long erg_time_followed_microbatches(const struct erg_layout *layout)
{
    return repeats(layout) ? (2 * GROUPS - REPEATED) * layout->pipeline : layout->microbatches;
}

static void fill_run(struct run *run, const struct erg_schedule *schedule)
{
    uint32_t *place = erg_xcalloc(schedule->count + 1, sizeof *place);
    run->count = schedule->count;
    run->passes = erg_xcalloc(run->count, sizeof *run->passes);
    run->ends_s = erg_xcalloc(run->count + 1, sizeof *run->ends_s);
    for (size_t i = 0; i < run->count; i++)
        place[schedule->order[i]] = (uint32_t)i;
    for (size_t i = 0; i < run->count; i++) {
        const uint32_t own = schedule->order[i], *before = schedule->before[own];
        run->passes[i] = (struct pass){
            .before = before[0] == ERG_NONE ? (uint32_t)run->count : place[before[0]],
            .input = before[1] == ERG_NONE ? (uint32_t)run->count : place[before[1]],
            .table = (uint32_t)erg_table_index(&schedule->pipeline, &schedule->instructions[own]),
        };
    }
    free(place);
}

/* With so many microbatches. */
static double follow(const struct erg_time_follower *follower, struct run *run,
                     const struct erg_layout *layout, long microbatches)
{
    const struct erg_pipeline pipeline = {
        .schedule = layout->virtual_stages > 1 ? ERG_SCHEDULE_INTERLEAVED : ERG_SCHEDULE_1F1B,
        .stages = (size_t)layout->pipeline,
        .microbatches = (size_t)microbatches,
        .chunks = (size_t)layout->virtual_stages,
    };
    if (run->pipeline.stages != pipeline.stages || run->pipeline.chunks != pipeline.chunks ||
        run->pipeline.microbatches != pipeline.microbatches) {
        struct erg_schedule schedule;
        release_run(run);
        if (erg_schedule_init(&schedule, &pipeline, NULL) != 0)
            return 0; /* larger than any that can be planned */
        fill_run(run, &schedule);
        run->pipeline = pipeline;
        erg_schedule_release(&schedule);
    }
    double *ends_s = run->ends_s, last_s = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct pass *pass = &run->passes[i];
        double input_s = ends_s[pass->input], before_s = ends_s[pass->before];
        double start_s = input_s > before_s ? input_s : before_s;
        ends_s[i] = start_s + follower->times_s[pass->table];
        last_s = ends_s[i] > last_s ? ends_s[i] : last_s;
    }
    return last_s;
}

double erg_time_followed(struct erg_time_follower *follower, const struct erg_time_place *places,
                         const struct erg_layout *layout)
{
    const long whole = layout->microbatches, most = GROUPS * layout->pipeline;
    const long more = REPEATED * layout->pipeline;
    size_t tables = 2 * (size_t)(layout->pipeline * layout->virtual_stages);
    if (tables > follower->tables) {
        follower->tables = tables;
        follower->times_s = erg_xrealloc(follower->times_s, tables, sizeof *follower->times_s);
    }
    fill_times(follower->times_s, places, layout);
    if (!repeats(layout))
        return follow(follower, &follower->runs[0], layout, whole);
    double most_s = follow(follower, &follower->runs[0], layout, most);
    double less_s = follow(follower, &follower->runs[1], layout, most - more);
    return most_s + (most_s - less_s) * (double)(whole - most) / (double)more;
}

void erg_time_follow_places(struct erg_time *time, struct erg_time_follower *follower,
                            const struct erg_time_place *places, size_t count,
                            const struct erg_layout *layout)
{
    erg_time_compose_places(time, places, count, layout);
    if (layout->virtual_stages == 1 || (!layout->chunk_layers && count == 1))
        return;
    double closed_s = -erg_time_passage(places, count, layout);
    for (int i = 0; i <= ERG_TIME_BUBBLE; i++)
        closed_s += time->items[i];
    double followed_s = erg_time_followed(follower, places, layout);
    time->items[ERG_TIME_UNEVEN] = fmax(0, followed_s - closed_s);
    time->total += time->items[ERG_TIME_UNEVEN];
}
