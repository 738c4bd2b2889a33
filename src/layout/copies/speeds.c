/* How fast the passes, copies and messages of a layout go on an engine. */
#include "layout/copies/traffic.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* Stages that follow each other on one machine. */
struct run {
    long first, end;
};

static struct run run_of(const struct erg_time_request *on, long pipeline, long stage)
{
    struct run run = {stage, stage + 1};
    while (run.first > 0 && on[run.first - 1].machine == on[stage].machine)
        run.first--;
    while (run.end < pipeline && on[run.end].machine == on[stage].machine)
        run.end++;
    return run;
}

/* Whether a message from a GPU of one stage to its like in another leaves a node. */
static bool is_between_nodes(const struct erg_layout *layout, const struct erg_time_request *on,
                             long stage, long other)
{
    const long ranks = layout->tensor * layout->context * layout->data;
    const long node_gpus = on[stage].machine->node_gpus;
    const struct run run = run_of(on, layout->pipeline, stage);
    if (other < run.first || other >= run.end)
        return true;
    return erg_layout_leaves_node(ranks, node_gpus, stage - run.first, other - run.first);
}

static struct erg_memory_stage_speed speed_of(const struct erg_layout *layout,
                                              const struct erg_time_request *on,
                                              const struct erg_time_parts *parts, long stage)
{
    const long next = (stage + 1) % layout->pipeline;
    const bool between = is_between_nodes(layout, on, stage, next);
    const double shared = on[stage].machine->shared_bandwidth;
    return (struct erg_memory_stage_speed){
        .forward_s = parts->forward_s,
        .backward_s = parts->backward_s + parts->recompute_s[erg_layout_recompute(layout, stage)],
        .copy = erg_time_copy_rate(&on[stage]),
        .message = fmin(erg_time_message_rate(&on[stage], between),
                        erg_time_message_rate(&on[next], between)),
        .between_nodes = between,
        .shared = shared > 0 ? shared : INFINITY,
    };
}

void erg_memory_speeds_init(struct erg_memory_speeds *speeds,
                            const struct erg_memory_request *request,
                            const struct erg_time_request *on)
{
    const struct erg_layout *layout = request->layout;
    struct erg_time_parts parts = {0};
    struct erg_memory_sizes sizes;
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    *speeds = (struct erg_memory_speeds){
        .message_bytes = sizes.hidden,
        .stages = erg_xcalloc((size_t)layout->pipeline, sizeof *speeds->stages),
    };
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct run run = run_of(on, layout->pipeline, stage);
        if (stage == run.first)
            erg_time_parts_init(&parts, &on[stage], layout->tensor, layout->context,
                                layout->microbatch, layout->sequence,
                                erg_layout_gpus(layout) / layout->pipeline * (run.end - run.first));
        speeds->stages[stage] = speed_of(layout, on, &parts, stage);
    }
    speeds->head_s = parts.head_s;
}

void erg_memory_speeds_release(struct erg_memory_speeds *speeds)
{
    free(speeds->stages);
    *speeds = (struct erg_memory_speeds){0};
}

static void follow(struct erg_memory_traffic *traffic, const struct erg_memory_copies *stages,
                   const struct erg_memory_request *request, const struct erg_time_request *on)
{
    struct erg_memory_speeds speeds;
    erg_memory_speeds_init(&speeds, request, on);
    erg_memory_traffic_init(traffic, stages, request->layout->pipeline, &speeds);
    erg_memory_speeds_release(&speeds);
}

/* Seconds of the pipeline if copies and messages shared nothing. */
static double follow_apart(const struct erg_memory_copies *stages,
                           const struct erg_memory_request *request,
                           const struct erg_time_request *on)
{
    const size_t count = (size_t)request->layout->pipeline;
    struct erg_time_machine *machines = erg_xcalloc(count, sizeof *machines);
    struct erg_time_request *apart = erg_xcalloc(count, sizeof *apart);
    struct erg_memory_traffic traffic;
    for (size_t s = 0; s < count; s++) {
        machines[s] = *on[s].machine;
        machines[s].shared_bandwidth = 0;
        apart[s] = on[s];
        apart[s].machine =
            s > 0 && on[s].machine == on[s - 1].machine ? apart[s - 1].machine : &machines[s];
    }
    follow(&traffic, stages, request, apart);
    double time_s = traffic.time_s;
    erg_memory_traffic_release(&traffic);
    free(apart);
    free(machines);
    return time_s;
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
    follow(traffic, stages, request, on);
    *shared_s = shares ? traffic->time_s - follow_apart(stages, request, on) : 0;
    for (long stage = 0; stage < count; stage++)
        erg_memory_copies_release(&stages[stage]);
    free(stages);
}
