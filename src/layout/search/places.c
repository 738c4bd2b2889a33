/* The places of a layout's stages, and the models of the GPUs there. */
#include "layout/search/layout_search_internal.h"

#include <math.h>

int erg_layout_kind_init(struct erg_layout_kind *kind, const struct erg_cluster *nodes,
                         const struct erg_gpu *gpu, const struct erg_engine *engine,
                         struct erg_error *err)
{
    if (!engine)
        return erg_fail(err, ERG_USAGE,
                        "missing key 'engine' of the cluster's nodes with %s; expected it next to "
                        "their GPU (data/engines)",
                        nodes->gpu);
    if (erg_engine_check_gpu(engine, gpu, err) != 0)
        return -1;
    *kind = (struct erg_layout_kind){
        .name = gpu->name,
        .gpu = gpu,
        .engine = engine,
        .gpus = erg_cluster_gpus(nodes),
        .memory_bytes = ERG_MEMORY_USABLE_SHARE * gpu->memory_bytes,
        .host_bytes = nodes->host_memory_bytes,
    };
    erg_time_machine_init(&kind->machine, gpu, nodes);
    return 0;
}

void erg_layout_site_init(struct erg_layout_site *site, const struct erg_layout_search *search)
{
    *site = (struct erg_layout_site){.search = search};
}

const struct erg_layout_pieces *erg_layout_site_pieces(struct erg_layout_site *site, size_t kind,
                                                       bool nodes, const struct erg_layout *layout)
{
    const struct erg_layout_search *search = site->search;
    const struct erg_layout_kind *own = &search->kinds[kind];
    struct erg_layout_site_pieces *at = &site->kinds[kind][nodes];
    struct erg_layout_pieces *pieces = &at->pieces;
    long gpus = search->kind_count == 1 ? erg_layout_gpus(layout) : own->gpus;
    if (site->tensor != layout->tensor || site->context != layout->context ||
        site->microbatch != layout->microbatch || site->expert != erg_layout_experts(layout) ||
        site->shards != erg_layout_shards(layout) ||
        (search->kind_count == 1 && gpus != site->gpus)) {
        for (size_t k = 0; k < search->kind_count; k++)
            site->kinds[k][0].known = site->kinds[k][1].known = false;
        site->tensor = layout->tensor;
        site->context = layout->context;
        site->microbatch = layout->microbatch;
        site->shards = erg_layout_shards(layout);
        site->expert = erg_layout_experts(layout);
        site->gpus = gpus;
    }
    if (at->known)
        return pieces;
    at->known = true;
    if (!nodes && gpus > own->machine.node_gpus)
        gpus = own->machine.node_gpus;
    pieces->gpus = gpus;
    pieces->time = (struct erg_time_request){search->model, own->engine, &own->machine};
    erg_time_parts_of(&pieces->parts, &pieces->time, layout, gpus);
    erg_memory_sizes_of(&pieces->sizes, search->model, layout);
    return pieces;
}

/* GPUs of a kind that a layout uses. */
static long ranks_of(const struct erg_layout *layout, const struct erg_layout_block *block)
{
    return layout->tensor * layout->context * layout->data * block->stages;
}

static double gradient_bandwidth(struct erg_layout_site *site, const struct erg_time_request *time,
                                 const struct erg_layout *layout,
                                 const struct erg_layout_block *block)
{
    enum { RINGS = sizeof site->rings / sizeof *site->rings };
    const long size = erg_time_gradient_ranks(layout), stride = erg_time_gradient_stride(layout);
    const long ranks = ranks_of(layout, block);
    struct erg_layout_ring *ring = &site->rings[((size_t)block->stages + 64 * block->kind) % RINGS];
    if (ring->kind != block->kind || ring->stride != stride || ring->size != size ||
        ring->ranks != ranks)
        *ring = (struct erg_layout_ring){block->kind, stride, size, ranks,
                                         erg_time_group_bandwidth(time, stride, size, ranks)};
    return ring->bandwidth;
}

/* A message from one kind to another. */
static struct erg_time_hop crossing(const struct erg_layout_on *from,
                                    const struct erg_layout_on *to, const struct erg_layout *layout)
{
    const long ranks = layout->tensor * layout->context * layout->data;
    const struct erg_time_request *sender = &from->pieces->time;
    const double bytes = (double)from->pieces->sizes.hidden;
    const struct erg_time_hop own = erg_time_hop_of(sender, bytes, true, ranks);
    const double time_s = bytes / fmin(erg_time_message_rate(sender, true, ranks),
                                       erg_time_message_rate(&to->pieces->time, true, ranks));
    return (struct erg_time_hop){time_s, own.copy_s / own.time_s * time_s};
}

void erg_layout_places_init(struct erg_layout_places *places, struct erg_layout_site *site,
                            const struct erg_layout *layout, const struct erg_layout_block *blocks,
                            size_t count)
{
    const struct erg_layout_search *search = site->search;
    bool all_offload = search->offload;
    long first = 0;
    places->count = count;
    for (size_t i = 0; i < count; i++) {
        const struct erg_layout_kind *kind = &search->kinds[blocks[i].kind];
        const bool nodes = ranks_of(layout, &blocks[i]) > kind->machine.node_gpus;
        const bool offload = search->offload && kind->engine->host_link_bandwidth > 0;
        places->on[i] = (struct erg_layout_on){
            search, kind, erg_layout_site_pieces(site, blocks[i].kind, nodes, layout), offload};
        all_offload &= offload;
    }
    for (size_t i = 0; i < count; i++) {
        const struct erg_layout_pieces *pieces = places->on[i].pieces;
        struct erg_time_place *place = &places->time[i];
        if (!search->per_stage)
            places->on[i].offload = all_offload;
        erg_time_place_init(place, &pieces->time, &pieces->parts, layout,
                            gradient_bandwidth(site, &pieces->time, layout, &blocks[i]));
        if (count > 1)
            erg_time_place_cut(
                place, layout, first, first + blocks[i].stages,
                crossing(&places->on[i], &places->on[(i + count - 1) % count], layout),
                crossing(&places->on[i], &places->on[(i + 1) % count], layout));
        first += blocks[i].stages;
    }
}

void erg_layout_fill_peaks(struct erg_layout_candidate *candidate,
                           const struct erg_layout_places *places)
{
    const struct erg_layout *layout = &candidate->layout;
    candidate->blocks[0].peak_bytes = candidate->peak_bytes;
    if (places->count == 1)
        return;
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

double erg_layout_peak_flops(const struct erg_layout_candidate *candidate,
                             const struct erg_layout_search *search)
{
    double sum = 0;
    for (size_t i = 0; i < candidate->block_count; i++)
        sum += search->kinds[candidate->blocks[i].kind].engine->peak_flops *
               (double)ranks_of(&candidate->layout, &candidate->blocks[i]);
    return sum;
}

long erg_layout_gpus_of(const struct erg_layout_candidate *candidate, size_t kind)
{
    long sum = 0;
    for (size_t i = 0; i < candidate->block_count; i++)
        if (candidate->blocks[i].kind == kind)
            sum += ranks_of(&candidate->layout, &candidate->blocks[i]);
    return sum;
}

void erg_layout_stage_kinds(size_t *kinds, const struct erg_layout_candidate *candidate)
{
    for (size_t i = 0; i < candidate->block_count; i++)
        for (long left = candidate->blocks[i].stages; left > 0; left--)
            *kinds++ = candidate->blocks[i].kind;
}
