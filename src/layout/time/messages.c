/* The places of stages, and their messages to neighbours. */
#include "layout/time/time.h"

#include <math.h>
#include <string.h>

/* ---- places ---- */

static long ranks_of(const struct erg_layout *layout)
{
    return layout->tensor * layout->context * layout->data;
}

/* A message from all GPUs of a stage to those of another one. */
static struct erg_time_hop hop_of(const struct erg_time_request *request,
                                  const struct erg_time_parts *parts,
                                  const struct erg_layout *layout, long from, long to)
{
    const struct erg_time_machine *machine = request->machine;
    const long ranks = ranks_of(layout);
    const bool between = erg_layout_leaves_node(ranks, machine->node_gpus, from, to);
    if (between && ranks < machine->adapter_gpus)
        return erg_time_hop_of(request, parts->hop_bytes, true, ranks);
    return parts->hops[between];
}

/* A message within a place, from `stage` to the next. */
static struct erg_time_hop inner_hop(const struct erg_time_place *place,
                                     const struct erg_layout *layout, long stage)
{
    const long own = stage - place->first;
    return hop_of(place->request, place->parts, layout, own, own + 1);
}

void erg_time_place_cut(struct erg_time_place *place, const struct erg_layout *layout, long first,
                        long end, struct erg_time_hop before, struct erg_time_hop after)
{
    const long ranks = ranks_of(layout), hops = end - first - 1;
    const long node_gpus = place->request->machine->node_gpus;
    place->first = first;
    place->end = end;
    place->before = before;
    place->after = after;
    place->level = before.time_s == after.time_s && before.copy_s == after.copy_s;
    place->inner_s = 0;
    if (hops == 0)
        return;
    const struct erg_time_hop own = inner_hop(place, layout, first);
    place->level &= own.time_s == after.time_s && own.copy_s == after.copy_s;
    if (ranks >= node_gpus || ranks * (end - first) <= node_gpus) {
        place->inner_s = (double)hops * own.time_s;
        return;
    }
    for (long stage = first; stage < end - 1; stage++) {
        const double time_s = inner_hop(place, layout, stage).time_s;
        place->inner_s += time_s;
        place->level &= time_s == own.time_s;
    }
}

void erg_time_place_init(struct erg_time_place *place, const struct erg_time_request *request,
                         const struct erg_time_parts *parts, const struct erg_layout *layout,
                         double gradient_bandwidth)
{
    const struct erg_engine *engine = request->engine;
    const struct erg_time_machine *machine = request->machine;
    *place = (struct erg_time_place){
        .request = request,
        .parts = parts,
        .gradient_s = erg_time_gradient_bytes(engine, layout) / gradient_bandwidth,
        .optimizer_s = erg_time_optimizer_bytes(engine, layout) /
                       (engine->memory_efficiency * machine->memory_bandwidth),
    };
    if (parts->expert_parameters > 0) {
        const double bandwidth =
            erg_time_group_bandwidth(request, layout->tensor * erg_layout_experts(layout),
                                     erg_time_expert_replicas(layout), erg_layout_gpus(layout));
        place->expert_gradient_s = erg_time_expert_gradient_bytes(engine, layout) / bandwidth;
        place->expert_optimizer_s = erg_time_expert_optimizer_bytes(engine, layout) /
                                    (engine->memory_efficiency * machine->memory_bandwidth);
    }
    const struct erg_time_hop round = hop_of(request, parts, layout, 0, layout->pipeline - 1);
    erg_time_place_cut(place, layout, 0, layout->pipeline, round, round);
}

static bool is_alike(const struct erg_time_place *a, const struct erg_time_place *b)
{
    const struct erg_engine *one = a->request->engine, *other = b->request->engine;
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): a difference only costs time */
    return memcmp(a->parts, b->parts, sizeof *a->parts) == 0 && a->gradient_s == b->gradient_s &&
           a->optimizer_s == b->optimizer_s && a->expert_gradient_s == b->expert_gradient_s &&
           a->expert_optimizer_s == b->expert_optimizer_s &&
           one->offload_interference == other->offload_interference &&
           one->pipeline_exposed == other->pipeline_exposed &&
           one->pipeline_ends_exposed == other->pipeline_ends_exposed;
}

bool erg_time_places_are_alike(const struct erg_time_place *places, size_t count)
{
    bool alike = true;
    for (size_t i = 0; i < count; i++)
        alike &= places[i].level && places[i].after.time_s == places[0].after.time_s &&
                 is_alike(&places[0], &places[i]);
    return alike;
}

/* ---- hops ---- */

static struct erg_time_hop hop_from(const struct erg_time_place *place,
                                    const struct erg_layout *layout, long stage)
{
    return place->level || stage == place->end - 1 ? place->after : inner_hop(place, layout, stage);
}

static struct erg_time_hop hop_to(const struct erg_time_place *place,
                                  const struct erg_layout *layout, long stage)
{
    return place->level || stage == place->first ? place->before
                                                 : inner_hop(place, layout, stage - 1);
}

struct erg_time_hop erg_time_hop_after(const struct erg_time_place *place,
                                       const struct erg_layout *layout, long stage)
{
    const bool none = layout->virtual_stages == 1 && stage == layout->pipeline - 1;
    return (none ? hop_to : hop_from)(place, layout, stage);
}

struct erg_time_hop erg_time_hop_before(const struct erg_time_place *place,
                                        const struct erg_layout *layout, long stage)
{
    const bool none = layout->virtual_stages == 1 && stage == 0;
    return (none ? hop_from : hop_to)(place, layout, stage);
}

/* Whether equal stages after the first one have layers without experts. */
static bool dense_go_on(const struct erg_time_place *place, const struct erg_layout *layout)
{
    const struct erg_model *model = place->request->model;
    return !layout->chunk_layers &&
           model->experts.dense_layers > erg_layout_stage_layers(layout, model->layers, 0);
}

long erg_time_alike(const struct erg_time_place *place, const struct erg_layout *layout, long stage)
{
    const long last = place->end - 1;
    long next = stage + 1;
    if (stage == place->first || stage >= last || dense_go_on(place, layout))
        return 1;
    if (place->level)
        return last - stage;
    const double own_s = inner_hop(place, layout, stage).time_s;
    if (inner_hop(place, layout, stage - 1).time_s != own_s)
        return 1;
    while (next < last && inner_hop(place, layout, next).time_s == own_s)
        next++;
    return next - stage;
}

void erg_time_hops(double *hops_s, const struct erg_time_place *places, size_t count,
                   const struct erg_layout *layout)
{
    for (size_t i = 0; i < count; i++) {
        const struct erg_time_place *place = &places[i], *next = &places[(i + 1) % count];
        for (long stage = place->first; stage < place->end; stage++)
            hops_s[stage] = erg_time_message_share(place->request->engine, layout) *
                            erg_time_hop_after(place, layout, stage).time_s;
        double back_s = erg_time_message_share(next->request->engine, layout) * next->before.time_s;
        double *out_s = &hops_s[place->end - 1];
        *out_s = fmax(*out_s, back_s); /* a schedule has one latency for both directions */
    }
}

/* ---- their sums ---- */

/*
 * The number of messages of a microbatch that a stage sends in each direction: the first chunk
 * receives no input, and the last one sends no output.
 */
static double sent_before(const struct erg_layout *layout, long stage)
{
    return (double)(layout->virtual_stages - (stage == 0));
}

static double sent_after(const struct erg_layout *layout, long stage)
{
    return (double)(layout->virtual_stages - (stage == layout->pipeline - 1));
}

double erg_time_message(const struct erg_time_place *place, const struct erg_layout *layout,
                        long stage)
{
    if (layout->pipeline == 1)
        return 0;
    const double before_s = hop_to(place, layout, stage).time_s;
    const double after_s = hop_from(place, layout, stage).time_s;
    double sum = sent_before(layout, stage) * before_s + sent_after(layout, stage) * after_s;
    if (stage == 0)
        sum += after_s;
    if (stage == layout->pipeline - 1)
        sum += before_s;
    return erg_time_message_share(place->request->engine, layout) * sum;
}

/* All messages that the stages of a place send for a microbatch. */
static double sent_s(const struct erg_time_place *place, const struct erg_layout *layout)
{
    return 2 * (double)layout->virtual_stages * place->inner_s +
           sent_before(layout, place->first) * place->before.time_s +
           sent_after(layout, place->end - 1) * place->after.time_s;
}

double erg_time_messages(const struct erg_time_place *place, const struct erg_layout *layout)
{
    double sum = sent_s(place, layout);
    if (layout->pipeline == 1)
        return 0;
    if (place->first == 0)
        sum += hop_from(place, layout, 0).time_s;
    if (place->end == layout->pipeline)
        sum += hop_to(place, layout, place->end - 1).time_s;
    return erg_time_message_share(place->request->engine, layout) * sum;
}

double erg_time_passage(const struct erg_time_place *places, size_t count,
                        const struct erg_layout *layout)
{
    double passage = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_time_place *place = &places[i];
        const struct erg_engine *engine = place->request->engine;
        double more = engine->pipeline_ends_exposed - erg_time_message_share(engine, layout);
        if (more > 0)
            passage += more * sent_s(place, layout);
    }
    return layout->pipeline > 1 ? passage : 0;
}
