/* How fast the passes, copies and messages of a layout go on an engine. */
#include "layout/copies/traffic.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* Whether a message from a GPU of one stage to its like in another leaves a node. */
static bool is_between_nodes(const struct erg_layout *layout, long node_gpus, long stage,
                             long other)
{
    long ranks = layout->tensor * layout->context * layout->data;
    for (long rank = 0; rank < ranks; rank++)
        if ((stage * ranks + rank) / node_gpus != (other * ranks + rank) / node_gpus)
            return true;
    return false;
}

void erg_memory_speeds_init(struct erg_memory_speeds *speeds,
                            const struct erg_memory_request *request,
                            const struct erg_time_request *time)
{
    const struct erg_layout *layout = request->layout;
    struct erg_time_parts parts;
    struct erg_memory_sizes sizes;
    erg_time_parts_init(&parts, time, layout->tensor, layout->context, layout->microbatch,
                        layout->sequence, erg_layout_gpus(layout));
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    *speeds = (struct erg_memory_speeds){
        .copy = erg_time_copy_rate(time),
        .node = erg_time_message_rate(time, false),
        .network = erg_time_message_rate(time, true),
        .shared = time->machine->shared_bandwidth > 0 ? time->machine->shared_bandwidth : INFINITY,
        .message_bytes = sizes.hidden,
        .stages = erg_xcalloc((size_t)layout->pipeline, sizeof *speeds->stages),
        .head_s = parts.head_s,
    };
    for (long stage = 0; stage < layout->pipeline; stage++)
        speeds->stages[stage] = (struct erg_memory_stage_speed){
            .forward_s = parts.forward_s,
            .backward_s = parts.backward_s + parts.recompute_s[erg_layout_remat(layout, stage)],
            .between_nodes = is_between_nodes(layout, time->machine->node_gpus, stage,
                                              (stage + 1) % layout->pipeline),
        };
}

void erg_memory_speeds_release(struct erg_memory_speeds *speeds)
{
    free(speeds->stages);
    *speeds = (struct erg_memory_speeds){0};
}

static void follow(struct erg_memory_traffic *traffic, const struct erg_memory_copies *stages,
                   const struct erg_memory_request *request, const struct erg_time_request *time)
{
    struct erg_memory_speeds speeds;
    erg_memory_speeds_init(&speeds, request, time);
    erg_memory_traffic_init(traffic, stages, request->layout->pipeline, &speeds);
    erg_memory_speeds_release(&speeds);
}

void erg_memory_traffic_of_layout(struct erg_memory_traffic *traffic, double *shared_s,
                                  const struct erg_memory_request *request,
                                  const struct erg_time_request *time)
{
    long count = request->layout->pipeline;
    struct erg_memory_copies *stages = erg_xcalloc((size_t)count, sizeof *stages);
    for (long stage = 0; stage < count; stage++)
        erg_memory_copies_init(&stages[stage], request, stage);
    follow(traffic, stages, request, time);
    *shared_s = 0;
    if (time->machine->shared_bandwidth > 0) {
        struct erg_time_machine apart = *time->machine;
        struct erg_time_request alone = *time;
        struct erg_memory_traffic without;
        apart.shared_bandwidth = 0;
        alone.machine = &apart;
        follow(&without, stages, request, &alone);
        *shared_s = traffic->time_s - without.time_s;
        erg_memory_traffic_release(&without);
    }
    for (long stage = 0; stage < count; stage++)
        erg_memory_copies_release(&stages[stage]);
    free(stages);
}
