/*
 * Simulates one stage through its iterations: every tensor in order of allocation and release.
 * Gradients exist from the start. In the framework the optimizer's moments are allocated at the end
 * of the first iteration, from blocks that activations left, so the second one is worse.
 */
#include "layout/memory/stage_run.h"

#include "base/memory.h"
#include "layout/memory/static_memory.h"

#include <assert.h>
#include <stdlib.h>

#define NO_BLOCK ERG_MEMORY_NO_BLOCK

static uint32_t take(struct erg_memory_stage_run *run, enum erg_memory_item item, int64_t bytes)
{
    return erg_memory_take(&run->s.memory, item, bytes, 0);
}

static void give(struct erg_memory_stage_run *run, uint32_t *block)
{
    erg_memory_give(&run->s.memory, block);
}

/* Copies of whole groups, which steps of the schedule begin and end. */
static void groups_out(struct erg_memory_stage_run *run, long k)
{
    if (run->s.request->layer_copies)
        return;
    erg_memory_end_copy_out(run);
    if (k >= 0 && k < run->steps)
        erg_memory_begin_copy_out(run, k, 0);
}

static void groups_in(struct erg_memory_stage_run *run, long k)
{
    if (!run->s.request->layer_copies)
        erg_memory_begin_copy_in(run, k, 0);
}

/* Positions in the list of copies: a pass begins, and one of its layers has run. */
static void begin_pass(struct erg_memory_stage_run *run, bool is_backward,
                       const struct erg_memory_group *group)
{
    if (!run->copies)
        return;
    size_t at = erg_memory_copies_end(run->copies);
    ERG_PUSH(&run->copies->passes, items,
             (struct erg_memory_pass){is_backward, group->chunk, group->microbatch, at, at});
}

static void count_layer(struct erg_memory_stage_run *run)
{
    if (run->copies)
        run->copies->passes.items[run->copies->passes.count - 1].end++;
}

/* ---- passes ---- */

static void forward(struct erg_memory_stage_run *run, long k)
{
    struct erg_memory_group *group = &run->groups[k];
    uint32_t x = run->input;
    run->input = NO_BLOCK;
    erg_memory_fsdp_first(run, ERG_MEMORY_EMBEDDING_UNIT);
    erg_memory_fsdp_next(run, ERG_MEMORY_LAYER_UNIT);
    if (run->s.stage == 0 && group->chunk == 0)
        x = erg_memory_embedding_forward(&run->s);
    erg_memory_fsdp_done(run);
    begin_pass(run, false, group);
    for (long layer = 0; layer < group->layers; layer++) {
        erg_memory_fsdp_next(run, layer + 1 < group->layers ? ERG_MEMORY_LAYER_UNIT
                                                            : ERG_MEMORY_HEAD_UNIT);
        x = erg_memory_layer_forward(&run->s, group, layer, x, false);
        erg_memory_fsdp_done(run);
        count_layer(run);
        if (!run->s.request->layer_copies)
            continue;
        erg_memory_end_copy_out(run);
        erg_memory_begin_copy_out(run, k, layer);
    }
    if (group->head) {
        erg_memory_head_forward(&run->s, group, x);
        x = NO_BLOCK;
    }
    erg_memory_fsdp_done(run);
    give(run, &run->output); /* the last one has arrived */
    run->output = x;
}

static void backward(struct erg_memory_stage_run *run, long k)
{
    struct erg_memory_group *group = erg_memory_group_back(run, k);
    uint32_t gradient = run->gradient;
    run->gradient = NO_BLOCK;
    erg_memory_fsdp_first(run, ERG_MEMORY_HEAD_UNIT);
    erg_memory_fsdp_next(run, ERG_MEMORY_LAYER_UNIT);
    erg_memory_fsdp_gradient(run, ERG_MEMORY_HEAD_UNIT);
    if (group->head)
        gradient = erg_memory_head_backward(&run->s, group);
    erg_memory_fsdp_done(run);
    begin_pass(run, true, group);
    for (long layer = group->layers; layer-- > 0;) {
        erg_memory_fsdp_next(run, layer > 0 ? ERG_MEMORY_LAYER_UNIT : ERG_MEMORY_EMBEDDING_UNIT);
        erg_memory_fsdp_gradient(run, ERG_MEMORY_LAYER_UNIT);
        if (run->s.request->layer_copies)
            erg_memory_begin_copy_in_below(run, k, layer);
        erg_memory_join_split(run, group, layer);
        gradient = erg_memory_layer_backward(&run->s, group, layer, gradient);
        erg_memory_fsdp_done(run);
        count_layer(run);
        if (run->s.request->layer_copies)
            erg_memory_end_copy_out(run);
    }
    give(run, &run->sent);
    run->sent = gradient;
    erg_memory_fsdp_gradient(run, ERG_MEMORY_EMBEDDING_UNIT);
    if (run->s.stage == 0 && group->chunk == 0)
        give(run, &run->sent); /* the embedding's */
    erg_memory_fsdp_done(run);
}

/* Memory for the data that forward step k, or backward step k, will receive. */
static void receive_input(struct erg_memory_stage_run *run, long k)
{
    if (k < run->steps && !(run->s.stage == 0 && run->groups[k].chunk == 0))
        run->input = take(run, ERG_MEMORY_PIPELINE, run->s.sizes->hidden);
}

static void receive_gradient(struct erg_memory_stage_run *run, long k)
{
    if (k < run->steps && !erg_memory_group_back(run, k)->head)
        run->gradient = take(run, ERG_MEMORY_PIPELINE, run->s.sizes->hidden);
}

/* Ends a pass and records its worst moment. */
static void end_pass(struct erg_memory_stage_run *run, bool is_backward, long k)
{
    const struct erg_memory_moment *worst = erg_memory_worst(&run->s.memory);
    const struct erg_memory_group *group =
        is_backward ? erg_memory_group_back(run, k) : &run->groups[k];
    if (worst->total > run->worst.total) {
        run->worst = *worst;
        run->worst_moment = group->head ? "head" : is_backward ? "backward" : "forward";
    }
    if (run->course) {
        struct erg_memory_step step = {
            .backward = is_backward, .chunk = group->chunk, .microbatch = group->microbatch};
        for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
            step.items[i] = (float)worst->items[i];
        ERG_PUSH(run->course, steps, step);
    }
    erg_memory_begin_worst(&run->s.memory);
}

static void iterate(struct erg_memory_stage_run *run)
{
    long warmup = run->warmup, steps = run->steps;
    receive_input(run, 0);
    for (long k = 0; k < warmup; k++) {
        groups_out(run, k - 1);
        forward(run, k);
        end_pass(run, false, k);
        receive_input(run, k + 1);
    }
    groups_out(run, warmup - 1);
    receive_gradient(run, 0);
    erg_memory_begin_copy_in(run, 0, erg_memory_group_back(run, 0)->layers - 1);
    for (long k = 0; k < steps; k++) {
        if (k + warmup < steps) {
            forward(run, k + warmup);
            end_pass(run, false, k + warmup);
            receive_input(run, k + warmup + 1);
        }
        groups_out(run, k + warmup);
        groups_in(run, k + 1);
        backward(run, k);
        end_pass(run, true, k);
        receive_gradient(run, k + 1);
    }
    erg_memory_end_copy_out(run);
    give(run, &run->output);
    give(run, &run->sent);
    const int64_t *left = run->s.memory.now.items;
    assert(left[ERG_MEMORY_ACTIVATIONS] == 0 && left[ERG_MEMORY_TRANSIENT] == 0 &&
           left[ERG_MEMORY_PIPELINE] == 0 && left[ERG_MEMORY_HEAD] == 0);
    (void)left;
}

/* ---- memory from the start ---- */

static double sum_of(const struct erg_memory_weights *weights)
{
    double sum = 0;
    for (size_t i = 0; i < weights->count; i++)
        sum += (double)weights->items[i];
    return sum;
}

static void take_weights(struct erg_memory_stage_run *run, const struct erg_memory_weights *weights,
                         const struct erg_memory_weights *trained)
{
    for (size_t i = 0; i < weights->count; i++)
        take(run, ERG_MEMORY_WEIGHTS, 2 * weights->items[i]);
    take(run, ERG_MEMORY_GRADIENTS, 4 * (int64_t)sum_of(trained));
}

/* fp32 state of this rank's part of every weight: first the master copies, or the two moments. */
static void take_state(struct erg_memory_stage_run *run, const struct erg_memory_weights *weights,
                       long ranks, long rank, bool moments)
{
    for (long chunk = 0; chunk < run->chunks; chunk++) {
        if (weights[chunk].count == 0)
            continue;
        int64_t *shard = erg_xcalloc(weights[chunk].count, sizeof *shard);
        erg_memory_shard(&weights[chunk], ranks, rank, shard);
        for (size_t i = 0; i < weights[chunk].count; i++) {
            /* The master copy needs a temporary copy in bf16. */
            uint32_t narrow = moments ? NO_BLOCK : take(run, ERG_MEMORY_TRANSIENT, 2 * shard[i]);
            take(run, ERG_MEMORY_OPTIMIZER, 4 * shard[i]);
            if (moments)
                take(run, ERG_MEMORY_OPTIMIZER, 4 * shard[i]);
            give(run, &narrow);
        }
        free(shard);
    }
}

/* State of the dense part, and of the experts, which fewer ranks share. */
static void take_states(struct erg_memory_stage_run *run, const struct erg_memory_weights *weights,
                        const struct erg_memory_weights *experts, bool moments)
{
    const struct erg_layout *layout = run->s.request->layout;
    const long degree = erg_layout_experts(layout);
    take_state(run, weights, layout->data * layout->context, run->s.rank, moments);
    take_state(run, experts, layout->data / degree, run->s.rank / degree, moments);
}

static void take_buffers(struct erg_memory_stage_run *run)
{
    const struct erg_memory_sizes *sizes = run->s.sizes;
    for (long chunk = 0; chunk < run->chunks; chunk++)
        take(run, ERG_MEMORY_ROPE, sizes->rope);
    for (int i = 0; i < (sizes->tensor > 1 ? 3 : 2); i++)
        take(run, ERG_MEMORY_WORKSPACE, ERG_MEMORY_WORKSPACE_BYTES);
    if (sizes->tensor > 1)
        take(run, ERG_MEMORY_GATHER, sizes->full_hidden);
}

/* ---- the whole ---- */

static void init(struct erg_memory_stage_run *run, const struct erg_memory_request *request,
                 const struct erg_memory_sizes *sizes, long stage, long rank, long microbatches)
{
    const struct erg_layout *layout = request->layout;
    const bool offloads = erg_memory_offloads(layout, stage);
    *run = (struct erg_memory_stage_run){
        .s = {.request = request,
              .sizes = sizes,
              .stage = stage,
              .rank = rank,
              .recompute = erg_layout_recompute(layout, stage),
              .memory = {.accounting = request->accounting}},
        .order = erg_pass_order_of((size_t)layout->pipeline, (size_t)layout->virtual_stages,
                                   (size_t)microbatches),
        .chunks = layout->virtual_stages,
        .steps = microbatches * layout->virtual_stages,
        .warmup = erg_memory_warmup(layout, stage),
        .copying_out = -1,
        .receive = {{.block = NO_BLOCK}, {.block = NO_BLOCK}},
        .open_out = SIZE_MAX,
        .open_in = SIZE_MAX,
        .input = NO_BLOCK,
        .output = NO_BLOCK,
        .gradient = NO_BLOCK,
        .sent = NO_BLOCK,
        .unit = NO_BLOCK,
        .next_unit = NO_BLOCK,
        .unit_gradient = NO_BLOCK,
    };
    run->choices = erg_xcalloc((size_t)run->chunks, sizeof *run->choices);
    for (long chunk = 0; chunk < run->chunks; chunk++)
        erg_memory_choose(&run->choices[chunk], sizes, run->s.recompute,
                          request->layer_copies ? 1
                                                : erg_layout_chunk_layers(
                                                      layout, request->model->layers, stage, chunk),
                          erg_layout_offload(layout, stage), request->accounting);
    run->groups = erg_xcalloc((size_t)run->steps, sizeof *run->groups);
    for (long k = 0; k < run->steps; k++) {
        struct erg_memory_group *group = &run->groups[k];
        const struct erg_pass pass = erg_pass_order_nth(&run->order, false, (size_t)k);
        group->chunk = (long)pass.chunk;
        group->microbatch = (long)pass.microbatch;
        group->head = stage == layout->pipeline - 1 && group->chunk == run->chunks - 1;
        group->moves = offloads && !group->head;
        group->layers =
            erg_layout_chunk_layers(layout, request->model->layers, stage, group->chunk);
        size_t count = (size_t)group->layers * ERG_MEMORY_ROLES;
        group->kept = erg_xcalloc(count, sizeof *group->kept);
        for (size_t i = 0; i < count; i++)
            group->kept[i] = (struct erg_memory_kept){NO_BLOCK, {NO_BLOCK, NO_BLOCK}};
        group->head_input = group->head_norm = group->softmax = NO_BLOCK;
    }
}

static void release(struct erg_memory_stage_run *run)
{
    for (long chunk = 0; chunk < run->chunks; chunk++)
        erg_memory_choice_release(&run->choices[chunk]);
    for (long k = 0; k < run->steps; k++)
        free(run->groups[k].kept);
    free(run->choices);
    free(run->groups);
    erg_memory_allocator_release(&run->s.memory);
}

/* Simulates both iterations; the results of the second are in `run`. */
static void simulate(struct erg_memory_stage_run *run, struct erg_memory_course *course,
                     struct erg_memory_copies *copies)
{
    const struct erg_memory_request *request = run->s.request;
    const bool shards = erg_layout_is_sharded(request->layout);
    const struct erg_memory_weights none = {0};
    struct erg_memory_weights all = {0};
    struct erg_memory_weights *trained = erg_xcalloc((size_t)run->chunks, sizeof *trained);
    struct erg_memory_weights *experts = erg_xcalloc((size_t)run->chunks, sizeof *experts);
    for (long chunk = 0; chunk < run->chunks; chunk++) {
        erg_memory_chunk_weights(&all, request, run->s.sizes, run->s.stage, chunk);
        erg_memory_chunk_trained(&trained[chunk], request, run->s.sizes, run->s.stage, chunk);
        if (shards) /* in the only chunk */
            erg_memory_fsdp_take_shards(run, sum_of(&all), sum_of(&trained[chunk]));
        else
            take_weights(run, &all, &trained[chunk]);
        erg_memory_expert_weights(&experts[chunk], request, run->s.sizes, run->s.stage, chunk);
        if (experts[chunk].count > 0)
            take_weights(run, &experts[chunk], run->s.sizes->adapters ? &none : &experts[chunk]);
        if (run->s.sizes->adapters)
            experts[chunk].count = 0; /* frozen: no state */
    }
    free(all.items);
    if (!shards)
        take_states(run, trained, experts, false);
    take_buffers(run);
    if (request->accounting == ERG_MEMORY_FRAMEWORK)
        iterate(run);
    if (!shards)
        take_states(run, trained, experts, true);
    run->course = course;
    run->copies = copies;
    erg_memory_begin_worst(&run->s.memory);
    iterate(run);
    for (long chunk = 0; chunk < run->chunks; chunk++)
        free(trained[chunk].items);
    for (long chunk = 0; chunk < run->chunks; chunk++)
        free(experts[chunk].items);
    free(trained);
    free(experts);
}

void erg_memory_simulate_rank(struct erg_memory_stage *result, struct erg_memory_course *course,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long stage, long rank,
                              long microbatches)
{
    struct erg_memory_stage_run run;
    init(&run, request, sizes, stage, rank, microbatches);
    simulate(&run, course, NULL);
    *result = (struct erg_memory_stage){.peak_bytes = (double)run.worst.total,
                                        .moment = run.worst_moment,
                                        .groups = erg_memory_groups(request->layout, stage)};
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        result->items[i] = (double)run.worst.items[i];
    for (long k = 0; k < run.steps; k++) {
        double moved = (double)run.choices[run.groups[k].chunk].moved *
                       (double)(request->layer_copies ? run.groups[k].layers : 1);
        if (run.groups[k].moves && moved > result->offload_bytes)
            result->offload_bytes = moved;
    }
    result->host_bytes = result->offload_bytes * (double)result->groups;
    result->offload = result->offload_bytes > 0 ? erg_layout_offload(request->layout, stage) : 0;
    release(&run);
}

void erg_memory_copies_init(struct erg_memory_copies *copies,
                            const struct erg_memory_request *request, long stage)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    struct erg_memory_stage_run run;
    *copies = (struct erg_memory_copies){0};
    erg_memory_sizes_of(&sizes, request->model, layout);
    if (request->accounting == ERG_MEMORY_STATIC) {
        struct erg_static_memory memory;
        erg_static_memory_of(&memory, request, &sizes, stage);
        erg_static_copies_init(copies, layout, request->model->layers, stage,
                               (int64_t)memory.pieces[ERG_STATIC_MOVED]);
        return;
    }
    init(&run, request, &sizes, stage, 0, layout->microbatches);
    simulate(&run, NULL, copies);
    release(&run);
}

/* After the warm-up a stage repeats the same pattern every `pipeline` microbatches of a chunk. */
long erg_memory_microbatches(const struct erg_layout *layout)
{
    if (layout->microbatches == layout->pipeline)
        return layout->microbatches;
    long warmup = erg_memory_warmup(layout, 0) / layout->virtual_stages + 1;
    long rounds = (warmup + layout->pipeline - 1) / layout->pipeline + 2;
    long enough = rounds * layout->pipeline;
    return layout->microbatches < enough ? layout->microbatches : enough;
}
