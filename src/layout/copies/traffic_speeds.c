/* The speeds of a layout's passes, copies and messages on an engine. */
#include "layout/copies/traffic.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* Consecutive stages on one machine. */
struct node_run {
    long first, end;
};

static struct node_run run_of(const struct erg_time_request *on, long pipeline, long stage)
{
    struct node_run run = {stage, stage + 1};
    while (run.first > 0 && on[run.first - 1].machine == on[stage].machine)
        run.first--;
    while (run.end < pipeline && on[run.end].machine == on[stage].machine)
        run.end++;
    return run;
}

/* Whether a message from a GPU of one stage to its counterpart in another leaves the node. */
static bool is_between_nodes(const struct erg_layout *layout, const struct erg_time_request *on,
                             long stage, long other)
{
    const long ranks = layout->tensor * layout->context * layout->data;
    const long node_gpus = on[stage].machine->node_gpus;
    const struct node_run run = run_of(on, layout->pipeline, stage);
    if (other < run.first || other >= run.end)
        return true;
    return erg_layout_leaves_node(ranks, node_gpus, stage - run.first, other - run.first);
}

/* The speeds of a stage; `apart`: as if copies and messages shared no link. */
static struct erg_time_request seen(const struct erg_time_request *on, bool apart,
                                    struct erg_time_machine *own)
{
    *own = *on->machine;
    if (apart)
        own->shared_bandwidth = 0;
    return (struct erg_time_request){on->model, on->engine, own};
}

static struct erg_memory_stage_speed speed_of(const struct erg_layout *layout,
                                              const struct erg_time_request *on,
                                              const struct erg_time_parts *parts, long stage,
                                              bool apart)
{
    const long next = (stage + 1) % layout->pipeline;
    const bool between = is_between_nodes(layout, on, stage, next);
    const long ranks = layout->tensor * layout->context * layout->data;
    struct erg_time_machine machines[2];
    const struct erg_time_request own = seen(&on[stage], apart, &machines[0]),
                                  other = seen(&on[next], apart, &machines[1]);
    const double shared = own.machine->shared_bandwidth;
    return (struct erg_memory_stage_speed){
        .forward_s = parts->forward_s,
        .backward_s = parts->backward_s + parts->recompute_s[erg_layout_recompute(layout, stage)],
        .copy = erg_time_copy_rate(&own),
        .message = fmin(erg_time_message_rate(&own, between, ranks),
                        erg_time_message_rate(&other, between, ranks)),
        .between_nodes = between,
        .shared = shared > 0 ? shared : INFINITY,
    };
}

/* Simulates the copies of a layout on the engines of its stages. */
static void follow(struct erg_memory_traffic *traffic, const struct erg_memory_copies *stages,
                   const struct erg_memory_request *request, const struct erg_time_request *on,
                   bool apart)
{
    const struct erg_layout *layout = request->layout;
    struct erg_time_parts parts = {0};
    struct erg_memory_sizes sizes;
    erg_memory_sizes_of(&sizes, request->model, layout);
    struct erg_memory_speeds speeds = {
        .message_bytes = sizes.hidden,
        .stages = erg_xcalloc((size_t)layout->pipeline, sizeof *speeds.stages),
    };
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct node_run run = run_of(on, layout->pipeline, stage);
        if (stage == run.first)
            erg_time_parts_of(&parts, &on[stage], layout,
                              erg_layout_gpus(layout) / layout->pipeline * (run.end - run.first));
        speeds.stages[stage] = speed_of(layout, on, &parts, stage, apart);
    }
    speeds.head_s = parts.head_s;
    erg_memory_traffic_init(traffic, stages, layout->pipeline, &speeds);
    free(speeds.stages);
}

void erg_memory_traffic_of_layout(struct erg_memory_traffic *traffic, double *shared_s,
                                  const struct erg_memory_request *request,
                                  const struct erg_time_request *on)
{
    const long count = request->layout->pipeline;
    struct erg_memory_copies *stages = erg_xcalloc((size_t)count, sizeof *stages);
    bool shares = false;
    for (long stage = 0; stage < count; stage++) {
        erg_memory_copies_init(&stages[stage], request, stage);
        shares |= on[stage].machine->shared_bandwidth > 0;
    }
    follow(traffic, stages, request, on, false);
    *shared_s = 0;
    if (shares) {
        struct erg_memory_traffic apart;
        follow(&apart, stages, request, on, true);
        *shared_s = traffic->time_s - apart.time_s;
        erg_memory_traffic_release(&apart);
    }
    for (long stage = 0; stage < count; stage++)
        erg_memory_copies_release(&stages[stage]);
    free(stages);
}
