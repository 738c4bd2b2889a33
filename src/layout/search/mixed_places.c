/* Where the stages of a layout lie, and one layout alone. */
#include "layout/search/mixed_internal.h"

#include <math.h>
#include <string.h>

void erg_mixed_views_init(struct erg_mixed_views *views, const struct erg_mixed_search *search)
{
    *views = (struct erg_mixed_views){.search = search};
    for (size_t k = 0; k < search->kind_count; k++) {
        const struct erg_mixed_kind *kind = &search->kinds[k];
        views->kinds[k] = (struct erg_layout_search){
            .time = {search->model, kind->engine, &kind->machine},
            .gpus = kind->gpus,
            .sequence = search->sequence,
            .batch_least = search->batch_least,
            .batch_most = search->batch_most,
            .memory_bytes = kind->memory_bytes,
            .host_bytes = kind->host_bytes,
            .memory_slack = search->memory_slack,
            .recomputes = search->recomputes,
            .per_stage = search->per_stage,
        };
    }
}

void erg_mixed_views_fill(struct erg_mixed_views *views, const struct erg_layout *layout)
{
    for (size_t k = 0; k < views->search->kind_count; k++)
        for (int nodes = 0; nodes < 2; nodes++) {
            struct erg_layout_search view = views->kinds[k];
            if (!nodes && view.gpus > view.time.machine->node_gpus)
                view.gpus = view.time.machine->node_gpus;
            erg_layout_pieces_init(&views->pieces[k][nodes], &view, layout);
        }
}

/* GPUs of a kind that a layout uses. */
static long ranks_of(const struct erg_layout *layout, const struct erg_layout_block *block)
{
    return layout->tensor * layout->context * layout->data * block->stages;
}

static const struct erg_layout_pieces *pieces_of(const struct erg_mixed_views *views,
                                                 const struct erg_layout *layout,
                                                 const struct erg_layout_block *block)
{
    long node_gpus = views->search->kinds[block->kind].machine.node_gpus;
    return &views->pieces[block->kind][ranks_of(layout, block) > node_gpus];
}

/* A message from one kind to another. */
static struct erg_time_hop crossing(const struct erg_mixed_views *views,
                                    const struct erg_layout_pieces *pieces, size_t from, size_t to)
{
    const struct erg_time_hop own = pieces->parts.hops[1];
    const double time_s =
        (double)pieces->sizes.hidden / fmin(erg_time_message_rate(&views->kinds[from].time, true),
                                            erg_time_message_rate(&views->kinds[to].time, true));
    return (struct erg_time_hop){time_s, own.copy_s / own.time_s * time_s};
}

void erg_mixed_places_init(struct erg_layout_places *places, struct erg_mixed_views *views,
                           const struct erg_layout *layout, const struct erg_layout_block *blocks,
                           size_t count)
{
    const struct erg_mixed_search *search = views->search;
    bool all_offload = search->offload;
    long first = 0;
    places->count = count;
    for (size_t i = 0; i < count; i++)
        all_offload &= search->kinds[blocks[i].kind].engine->host_link_bandwidth > 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_layout_block *block = &blocks[i];
        const struct erg_layout_pieces *pieces = pieces_of(views, layout, block);
        struct erg_layout_search *view = &views->kinds[block->kind];
        view->offload = search->per_stage
                            ? search->offload && view->time.engine->host_link_bandwidth > 0
                            : all_offload;
        places->on[i] = (struct erg_layout_on){view, pieces};
        struct erg_time_place *place = &places->time[i];
        erg_time_place_init(place, &view->time, &pieces->parts, layout,
                            erg_time_group_bandwidth(&view->time, layout->tensor,
                                                     layout->context * layout->data,
                                                     ranks_of(layout, block)));
        if (count > 1)
            erg_time_place_cut(
                place, layout, first, first + block->stages,
                crossing(views, pieces, block->kind, blocks[(i + count - 1) % count].kind),
                crossing(views, pieces, block->kind, blocks[(i + 1) % count].kind));
        first += block->stages;
    }
}

void erg_mixed_fill_peaks(struct erg_layout_candidate *candidate,
                          const struct erg_layout_places *places)
{
    const struct erg_layout *layout = &candidate->layout;
    for (size_t i = 0; i < candidate->block_count; i++)
        candidate->blocks[i].peak_bytes = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        const size_t place = erg_layout_place_of(places, stage);
        double *peak = &candidate->blocks[place].peak_bytes;
        struct erg_memory_lines lines;
        erg_layout_stage_lines(&lines, &places->on[place], layout, stage);
        *peak = fmax(*peak, erg_layout_stage_peak(&lines, erg_layout_offload(layout, stage)));
    }
}

int erg_mixed_check(const struct erg_mixed_search *search, struct erg_error *err)
{
    if (search->kind_count < 1 || search->kind_count > ERG_MIXED_MOST_KINDS)
        return erg_fail(err, ERG_FAILED, "expected 1 to %d kinds of GPUs, got %zu",
                        ERG_MIXED_MOST_KINDS, search->kind_count);
    for (size_t k = 0; k < search->kind_count && search->kind_count > 1; k++)
        if (!(search->kinds[k].machine.network_bandwidth > 0))
            return erg_fail(err, ERG_FAILED,
                            "stages on GPUs of several kinds send over the network, and that of "
                            "the nodes with %s is not known",
                            search->kinds[k].name);
    if (search->batch_least < 1 || search->batch_most < search->batch_least)
        return erg_fail(err, ERG_FAILED, "expected a batch of at least 1 sequence, got %ld to %ld",
                        search->batch_least, search->batch_most);
    return erg_model_check_sequence(search->model, 1, search->sequence, err);
}

int erg_mixed_evaluate(struct erg_layout_candidate *candidate,
                       const struct erg_mixed_search *search, const struct erg_layout *layout,
                       struct erg_error *err)
{
    struct erg_mixed_views views;
    struct erg_layout_places places;
    struct erg_layout *own = &candidate->layout;
    double excess = 0;
    if (erg_mixed_check(search, err) != 0)
        return -1;
    struct erg_layout_candidate given = {.layout = *layout, .block_count = candidate->block_count};
    memcpy(given.blocks, candidate->blocks, sizeof given.blocks);
    *candidate = given;
    erg_mixed_views_init(&views, search);
    own->sequence = search->sequence;
    own->offload = 0;
    candidate->batch = erg_layout_choose_batch(&views.kinds[0], own);
    own->microbatches = candidate->batch / (own->data * own->microbatch);
    if (erg_layout_check(own, search->model, err) != 0)
        return -1;
    struct erg_layout_stages stages;
    erg_layout_stages_init(&stages, search->model->layers);
    erg_mixed_views_fill(&views, own);
    erg_mixed_places_init(&places, &views, own, candidate->blocks, candidate->block_count);
    enum erg_layout_verdict verdict =
        search->per_stage
            ? erg_layout_settle_stages(candidate, &stages, &places, search->recomputes, &excess)
            : erg_layout_settle_memory(candidate, &places, &excess);
    if (verdict == ERG_LAYOUT_FITS) {
        struct erg_time_follower *follower = erg_time_follower_new();
        erg_layout_follow(candidate, follower, &places);
        erg_time_follower_free(follower);
        erg_mixed_fill_peaks(candidate, &places);
        erg_layout_own_lists(candidate);
    }
    erg_layout_stages_release(&stages);
    return verdict == ERG_LAYOUT_FITS
               ? 0
               : erg_fail(err, ERG_INFEASIBLE, "needs %.1f GiB more than there are",
                          erg_layout_gib_up(excess));
}

double erg_mixed_peak_flops(const struct erg_layout_candidate *candidate,
                            const struct erg_mixed_search *search)
{
    double sum = 0;
    for (size_t i = 0; i < candidate->block_count; i++)
        sum += search->kinds[candidate->blocks[i].kind].engine->peak_flops *
               (double)ranks_of(&candidate->layout, &candidate->blocks[i]);
    return sum;
}

long erg_mixed_gpus_of(const struct erg_layout_candidate *candidate, size_t kind)
{
    long sum = 0;
    for (size_t i = 0; i < candidate->block_count; i++)
        if (candidate->blocks[i].kind == kind)
            sum += ranks_of(&candidate->layout, &candidate->blocks[i]);
    return sum;
}
