/* The times of an emulated point's passes: messages, every replica's schedule, the end of the
 * iteration. */
#include "characterize/emulate_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

static struct emulated_hop *hop_at(const struct emulation *emulation, long data, bool back,
                                   long stage)
{
    assert(data < emulation->layout.data && stage < emulation->layout.pipeline);
    return &emulation->hops[(data * 2 + back) * emulation->layout.pipeline + stage];
}

static long node_of(const struct emulation *emulation, long rank)
{
    assert(rank >= 0 && rank < emulation->gpus);
    return emulation->places[rank] / emulation->node_gpus;
}

/* The hop between a stage and the next one (after the last stage: the first), in one direction. */
static void prepare_hop(const struct emulation *emulation, struct emulated_hop *hop, long data,
                        bool back, long stage)
{
    const struct erg_layout *layout = &emulation->layout;
    const struct erg_time_request *request = &emulation->request.time;
    const long other = (stage + 1) % layout->pipeline, group = layout->tensor * layout->context;
    const long from = erg_rank_of(layout, 0, 0, data, back ? other : stage);
    const long to = erg_rank_of(layout, 0, 0, data, back ? stage : other);
    const double bytes = emulation->work.message_bytes;
    *hop = (struct emulated_hop){.crowd = 1, .node = node_of(emulation, from)};
    for (long i = 0; i < group; i++)
        hop->senders += node_of(emulation, from + i) != node_of(emulation, to + i);
    hop->base_s = bytes / erg_time_message_rate(request, hop->senders > 0, hop->senders);
    if (hop->senders > 0)
        hop->base_s += emulation->point->machine->cluster->inter_node_latency_s;
}

static void prepare_hops(const struct emulation *emulation)
{
    for (long data = 0; data < emulation->layout.data; data++)
        for (long stage = 0; stage < emulation->layout.pipeline; stage++)
            for (int back = 0; back < 2; back++)
                prepare_hop(emulation, hop_at(emulation, data, back, stage), data, back, stage);
}

static double hop_s(const struct emulation *emulation, long set, bool back, long stage)
{
    double longest_s = 0;
    for (long k = 0; k < emulation->coupled; k++) {
        const struct emulated_hop *hop =
            hop_at(emulation, set * emulation->coupled + k, back, stage);
        longest_s = fmax(longest_s, hop->base_s * hop->crowd);
    }
    return longest_s;
}

/* The messages of a hop in an iteration: the instructions that send them, in order. */
struct flow {
    struct emulated_hop *hop;
    const double *end_s;
    uint32_t *after; /* instructions */
    size_t count;
    double own_s;
};

static void list_flow(struct flow *flow, const struct emulation *emulation, long data, bool back,
                      long stage)
{
    const struct erg_schedule *schedule = &emulation->schedule;
    const long from = back ? (stage + 1) % emulation->layout.pipeline : stage;
    const size_t first = (size_t)from * schedule->per_stage;
    flow->hop = hop_at(emulation, data, back, stage);
    flow->end_s = emulation->end_s + (size_t)(data / emulation->coupled) * schedule->count;
    flow->own_s = flow->hop->base_s * flow->hop->crowd;
    flow->after = erg_xcalloc(schedule->per_stage, sizeof *flow->after);
    flow->count = 0;
    for (size_t i = first; i < first + schedule->per_stage; i++) {
        const uint32_t next = schedule->after[i][1];
        if (schedule->instructions[i].direction == (back ? ERG_BACKWARD : ERG_FORWARD) &&
            next != ERG_NONE && erg_schedule_hop(schedule, (uint32_t)i, next) == (uint32_t)stage)
            flow->after[flow->count++] = (uint32_t)i;
    }
}

/* The share of a flow's time in which another flow sends as well. */
static double shared(const struct flow *flow, const struct flow *other)
{
    double sum_s = 0;
    size_t first = 0;
    for (size_t i = 0; i < flow->count; i++) {
        const double from_s = flow->end_s[flow->after[i]], to_s = from_s + flow->own_s;
        while (first < other->count && other->end_s[other->after[first]] + other->own_s <= from_s)
            first++;
        for (size_t k = first; k < other->count; k++) {
            const double begin_s = other->end_s[other->after[k]];
            if (begin_s >= to_s)
                break;
            sum_s += fmin(to_s, begin_s + other->own_s) - fmax(from_s, begin_s);
        }
    }
    return flow->count ? sum_s / ((double)flow->count * flow->own_s) : 0;
}

/* Flows through one adapter share its rate equally while they overlap. */
static void crowd_node(struct flow *flows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double crowd = 1;
        for (size_t k = 0; k < count; k++)
            if (i != k)
                crowd += shared(&flows[i], &flows[k]) * (double)flows[k].hop->senders /
                         (double)flows[i].hop->senders;
        flows[i].hop->crowd = 0.5 * (flows[i].hop->crowd + crowd);
    }
}

static void crowd_hops(const struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    const long most = layout->data * 2 * layout->pipeline;
    struct flow *flows = erg_xcalloc((size_t)most, sizeof *flows);
    for (long node = 0; node < emulation->nodes; node++) {
        size_t count = 0;
        for (long i = 0; i < most; i++) {
            const long stage = i % layout->pipeline, back = i / layout->pipeline % 2;
            const struct emulated_hop *hop = &emulation->hops[i];
            if (hop->senders > 0 && hop->node == node) {
                list_flow(&flows[count], emulation, i / (2 * layout->pipeline), back, stage);
                if (flows[count].count == 0) /* no later chunk */
                    free(flows[count].after);
                else
                    count++;
            }
        }
        crowd_node(flows, count);
        for (size_t i = 0; i < count; i++)
            free(flows[i].after);
    }
    free(flows);
}

/* ---- a replica's schedule ---- */

/* The earliest start of an instruction: whether it waits for a message, and how long the message
 * took. */
static double start_of(const struct emulation *emulation, const double *hops_s, const double *end_s,
                       uint32_t i, double *message_s)
{
    const struct erg_schedule *schedule = &emulation->schedule;
    const long stages = emulation->layout.pipeline;
    assert(i < schedule->count);
    const uint32_t before = schedule->before[i][0], input = schedule->before[i][1];
    const double free_s = before == ERG_NONE ? 0 : end_s[before];
    *message_s = 0;
    if (input == ERG_NONE)
        return free_s;
    const uint32_t hop = erg_schedule_hop(schedule, i, input);
    const bool back = schedule->instructions[i].direction == ERG_BACKWARD;
    const double sent_s = hop == ERG_NONE ? 0 : hops_s[(back ? stages : 0) + (long)hop];
    const double there_s = end_s[input] + sent_s;
    if (there_s <= free_s)
        return free_s;
    *message_s = fmin(sent_s, there_s - free_s);
    return there_s;
}

static void run_set(const struct emulation *emulation, long set, const double *hops_s)
{
    const struct erg_schedule *schedule = &emulation->schedule;
    const double *pass_s = emulation->pass_s + set * emulation->layout.pipeline * emulation->passes;
    double *end_s = emulation->end_s + (size_t)set * schedule->count;
    for (size_t k = 0; k < schedule->count; k++) {
        const uint32_t i = schedule->order[k];
        double message_s;
        end_s[i] = start_of(emulation, hops_s, end_s, i, &message_s) +
                   pass_s[erg_table_index(&schedule->pipeline, &schedule->instructions[i])];
    }
}

/* ---- the end of an iteration ---- */

/* One board has all ranks of a group, given their places. */
static bool is_on_board(const struct emulation *emulation, long first, long stride, long size)
{
    const long board = emulation->machine.board_gpus;
    for (long i = 1; i < size && board > 1; i++)
        if (emulation->places[first + i * stride] / board != emulation->places[first] / board)
            return false;
    return board > 1 && emulation->machine.board_bandwidth > 0;
}

/* Bytes/s of the ring of a group of ranks `stride` apart, given their places: the engine's link
 * rate, or the network shares of as many GPUs as the group has in the node where it has fewest. */
static double ring_rate(const struct emulation *emulation, long first, long stride, long size)
{
    const struct erg_time_request *request = &emulation->request.time;
    long fewest = size, members = 1;
    for (long i = 1; i <= size; i++) {
        const bool ends = i == size || node_of(emulation, first + i * stride) !=
                                           node_of(emulation, first + (i - 1) * stride);
        if (ends && members < fewest)
            fewest = members;
        members = ends ? 1 : members + 1;
    }
    const double link = is_on_board(emulation, first, stride, size)
                            ? erg_time_link_rate(request, 1, emulation->machine.board_gpus)
                            : erg_time_message_rate(request, false, 0);
    const double network = erg_time_message_rate(request, true, emulation->node_gpus);
    return fewest == size ? link : fmin(link, network * (double)fewest);
}

static double stage_parameters(const struct emulation *emulation, long stage)
{
    return erg_layout_stage_parameters(&emulation->request.time, &emulation->parts,
                                       &emulation->layout, stage);
}

static double expert_parameters(const struct emulation *emulation, long stage)
{
    return erg_layout_stage_experts(&emulation->request.time, &emulation->parts, &emulation->layout,
                                    stage);
}

/* Bytes/s of the slowest ring of ranks of a stage that hold the same weights. */
static double replica_rate(const struct emulation *emulation, long stage, long stride, long size)
{
    double rate = INFINITY;
    for (long tensor = 0; tensor < emulation->layout.tensor; tensor++)
        rate = fmin(rate, ring_rate(emulation, erg_rank_of(&emulation->layout, tensor, 0, 0, stage),
                                    stride, size));
    return rate;
}

/* Time of the gradient sums and of the gather of new weights of each stage, without overlap. */
static void prepare_gradients(const struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    const double bytes = erg_time_gradient_bytes(&emulation->engine, layout);
    const double expert_bytes = erg_time_expert_gradient_bytes(&emulation->engine, layout);
    /* The part of new weights in bf16. */
    const double gathered = fmin(2 / emulation->engine.gradient_bytes, 1);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        double all_s = bytes * stage_parameters(emulation, stage) /
                       replica_rate(emulation, stage, erg_time_gradient_stride(layout),
                                    erg_time_gradient_ranks(layout));
        if (emulation->parts.expert_parameters > 0)
            all_s += expert_bytes * expert_parameters(emulation, stage) /
                     replica_rate(emulation, stage, layout->tensor * erg_layout_experts(layout),
                                  erg_time_expert_replicas(layout));
        emulation->gradient_s[stage] = all_s * (1 - gathered);
        emulation->gather_s[stage] = all_s * gathered;
    }
}

/* The exposed part of a stage's sums and gathers. With overlap, the sums run during the last
 * backward pass, and the gather of the weights of the previous step during the first forward
 * pass. */
static void exposed_gradients(const struct emulation *emulation, long stage, double *sum_s,
                              double *gather_s)
{
    const struct erg_pipeline *pipeline = &emulation->schedule.pipeline;
    *sum_s = emulation->gradient_s[stage];
    *gather_s = emulation->gather_s[stage];
    if (!(emulation->point->overlap & ERG_STUDY_OVERLAP_GRADIENTS))
        return;
    for (int direction = 0; direction < 2; direction++) {
        const struct erg_instruction instruction = {.stage = (uint32_t)stage,
                                                    .direction = (enum erg_direction)direction};
        double least_s = INFINITY;
        for (long set = 0; set < emulation->sets; set++)
            least_s = fmin(least_s,
                           emulation->pass_s[set * emulation->layout.pipeline * emulation->passes +
                                             (long)erg_table_index(pipeline, &instruction)]);
        double *left_s = direction == ERG_BACKWARD ? sum_s : gather_s;
        *left_s = fmax(*left_s - least_s, 0);
    }
}

static struct emulated_phase *add_phase(struct emulated_lane *lane, double end_s)
{
    assert(lane->count == 0 || end_s >= lane->items[lane->count - 1].end_s);
    ERG_PUSH(lane, items, (struct emulated_phase){.end_s = end_s, .pass = -1});
    return &lane->items[lane->count - 1];
}

static double lane_end(const struct emulated_lane *lane)
{
    return lane->count ? lane->items[lane->count - 1].end_s : 0;
}

static void add_kind(struct emulated_lane *lane, enum emulated_kind kind, double end_s)
{
    if (end_s > lane_end(lane))
        add_phase(lane, end_s)->kind = kind;
}

/* A stage's passes in one replica, and the waits between them. */
static void list_passes(const struct emulation *emulation, long set, long stage,
                        const double *hops_s)
{
    const struct erg_schedule *schedule = &emulation->schedule;
    const double *end_s = emulation->end_s + (size_t)set * schedule->count;
    struct emulated_lane *lane = &emulation->lanes[set * emulation->layout.pipeline + stage];
    const size_t first = (size_t)stage * schedule->per_stage;
    lane->count = 0;
    add_kind(lane, EMULATED_GRADIENTS, emulation->begin_s);
    for (size_t i = first; i < first + schedule->per_stage; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        double message_s;
        const double start_s =
            start_of(emulation, hops_s, end_s, (uint32_t)i, &message_s) + emulation->begin_s;
        if (start_s > lane_end(lane)) {
            struct emulated_phase *wait = add_phase(lane, start_s);
            wait->kind = EMULATED_WAIT;
            wait->message_s = message_s;
        }
        struct emulated_phase *phase = add_phase(lane, emulation->begin_s + end_s[i]);
        phase->pass = 2 * (long)instruction->chunk + instruction->direction;
        phase->microbatch = instruction->microbatch;
    }
}

/* The optimizer starts after all gradients of all GPUs, since it needs their norm. */
static void end_iteration(struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    double ready_s = 0;
    for (long stage = 0; stage < layout->pipeline; stage++) {
        double done_s = 0, sum_s, gather_s;
        exposed_gradients(emulation, stage, &sum_s, &gather_s);
        for (long set = 0; set < emulation->sets; set++)
            done_s = fmax(done_s, lane_end(&emulation->lanes[set * layout->pipeline + stage]));
        for (long set = 0; set < emulation->sets; set++) {
            struct emulated_lane *lane = &emulation->lanes[set * layout->pipeline + stage];
            add_kind(lane, EMULATED_WAIT, done_s);
            add_kind(lane, EMULATED_GRADIENTS, done_s + sum_s);
        }
        ready_s = fmax(ready_s, done_s + sum_s);
    }
    emulation->time_s = ready_s;
    for (long set = 0; set < emulation->sets; set++)
        for (long stage = 0; stage < layout->pipeline; stage++) {
            const double optimizer_s =
                emulation->gpu_at[erg_rank_of(layout, 0, 0, set * emulation->coupled, stage)]
                    .optimizer_s;
            struct emulated_lane *lane = &emulation->lanes[set * layout->pipeline + stage];
            double sum_s, gather_s;
            exposed_gradients(emulation, stage, &sum_s, &gather_s);
            add_kind(lane, EMULATED_WAIT, ready_s);
            add_kind(lane, EMULATED_OPTIMIZER, ready_s + optimizer_s);
            if (!(emulation->point->overlap & ERG_STUDY_OVERLAP_GRADIENTS))
                add_kind(lane, EMULATED_GRADIENTS, ready_s + optimizer_s + gather_s);
            emulation->time_s = fmax(emulation->time_s, lane_end(lane));
        }
    for (long i = 0; i < emulation->sets * layout->pipeline; i++)
        add_kind(&emulation->lanes[i], EMULATED_WAIT, emulation->time_s);
}

void erg_emulation_run_schedule(struct emulation *emulation)
{
    const struct erg_layout *layout = &emulation->layout;
    const long stages = layout->pipeline;
    double *hops_s = erg_xcalloc(2 * (size_t)stages, sizeof *hops_s);
    if (!(emulation->hops[0].crowd > 0)) {
        prepare_hops(emulation);
        prepare_gradients(emulation);
    }
    for (long rank = 0; rank < emulation->gpus; rank++) {
        struct emulated_rank *gpu = &emulation->gpu_at[rank];
        const struct erg_engine *engine = &emulation->engine;
        const double bytes = engine->optimizer_bytes + engine->optimizer_sharded_bytes /
                                                           (double)(layout->context * layout->data);
        gpu->optimizer_s = stage_parameters(emulation, gpu->stage) * bytes *
                           gpu->costs.memory_slowdown /
                           (engine->memory_efficiency * emulation->machine.memory_bandwidth);
    }
    emulation->begin_s = 0;
    for (long stage = 0; stage < stages; stage++) {
        double sum_s, gather_s;
        exposed_gradients(emulation, stage, &sum_s, &gather_s);
        if (emulation->point->overlap & ERG_STUDY_OVERLAP_GRADIENTS)
            emulation->begin_s = fmax(emulation->begin_s, gather_s);
    }
    for (long set = 0; set < emulation->sets; set++) {
        for (long stage = 0; stage < stages; stage++)
            for (int back = 0; back < 2; back++)
                hops_s[back * stages + stage] = hop_s(emulation, set, back, stage);
        run_set(emulation, set, hops_s);
        for (long stage = 0; stage < stages; stage++)
            list_passes(emulation, set, stage, hops_s);
    }
    free(hops_s);
    end_iteration(emulation);
    if (stages > 1 && emulation->machine.adapter_gpus > 1)
        crowd_hops(emulation);
}
