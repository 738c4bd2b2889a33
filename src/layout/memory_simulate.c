/*
 * One stage through its iterations: every tensor in the order in which it is allocated and freed.
 * Gradients are there from the start. In the framework the moments of the optimizer come with the
 * end of the first iteration, out of blocks that activations left, and the second is the worse.
 */
#include "layout/memory_simulate.h"

#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>

#define NO_BLOCK ERG_MEMORY_NO_BLOCK

struct run {
    struct erg_memory_simulation s;
    long stages, chunks, steps, warmup; /* steps: forwards of an iteration */
    bool offloads;
    struct erg_memory_choice *choices; /* [chunks]: of a group, or of one layer of it */
    struct erg_memory_group *groups;   /* [steps]: in order of their forward pass */
    long copying_out;                  /* group, or -1 */
    long copying_layer;                /* of it; 0 where groups are copied as a whole */
    long received;                     /* copies in that were begun */
    struct {
        uint32_t block;
        int64_t bytes;
    } receive[2];
    uint32_t input, output, gradient, sent; /* that wait for a step, or for their transfer's end */
    struct erg_memory_moment worst;
    const char *worst_moment;
    struct erg_memory_course *course; /* NULL: not wanted */
};

static uint32_t take(struct run *run, enum erg_memory_item item, int64_t bytes)
{
    return erg_memory_take(&run->s.track, item, bytes, 0);
}

static void give(struct run *run, uint32_t *block)
{
    erg_memory_give(&run->s.track, block);
}

/* ---- which microbatch and chunk a step is of ---- */

static long forward_chunk(const struct run *run, long k)
{
    return k % (run->stages * run->chunks) / run->stages;
}

static long backward_chunk(const struct run *run, long k)
{
    return run->chunks - 1 - forward_chunk(run, k);
}

static long microbatch_of(const struct run *run, long k)
{
    return run->chunks == 1 ? k : k / (run->stages * run->chunks) * run->stages + k % run->stages;
}

/* The forward step of the group that backward step k consumes. */
static long group_of_backward(const struct run *run, long k)
{
    long period = run->stages * run->chunks;
    return run->chunks == 1
               ? k
               : k / period * period + backward_chunk(run, k) * run->stages + k % run->stages;
}

static bool is_head(const struct run *run, long chunk)
{
    return run->s.stage == run->stages - 1 && chunk == run->chunks - 1;
}

/* ---- offloading ---- */

static struct erg_memory_kept *kept_of(struct erg_memory_group *group, long layer,
                                       const struct erg_memory_piece *piece)
{
    return &group->kept[(layer + piece->layer) * ERG_MEMORY_ROLES + piece->tensor];
}

/*
 * Of a group from `layer` on: all of it, or that layer. What stays of a tensor that is moved in
 * part needs memory of its own, since its owner goes.
 */
static void begin_copy_out(struct run *run, long k, long layer)
{
    struct erg_memory_group *group = &run->groups[k];
    if (!run->offloads || is_head(run, group->chunk))
        return;
    const struct erg_memory_choice *choice = &run->choices[group->chunk];
    run->copying_out = k;
    run->copying_layer = layer;
    if (run->s.request->accounting == ERG_MEMORY_ARENA)
        return;
    for (size_t i = 0; i < choice->count; i++) {
        const struct erg_memory_piece *piece = &choice->pieces[i];
        struct erg_memory_kept *kept = kept_of(group, layer, piece);
        bool touched = false;
        for (size_t other = 0; other < choice->count; other++)
            touched |= choice->pieces[other].moved > 0 &&
                       kept_of(group, layer, &choice->pieces[other]) == kept;
        if (touched && piece->moved < piece->bytes)
            kept->rest[piece->view] =
                take(run, ERG_MEMORY_ACTIVATIONS, piece->bytes - piece->moved);
    }
}

static void end_copy_out(struct run *run)
{
    if (run->copying_out < 0)
        return;
    struct erg_memory_group *group = &run->groups[run->copying_out];
    const struct erg_memory_choice *choice = &run->choices[group->chunk];
    for (size_t i = 0; i < choice->count; i++) {
        const struct erg_memory_piece *piece = &choice->pieces[i];
        if (!piece->moved)
            continue;
        struct erg_memory_kept *kept = kept_of(group, run->copying_layer, piece);
        give(run, &kept->block);
        if (run->s.request->accounting == ERG_MEMORY_ARENA)
            kept->rest[0] = take(run, ERG_MEMORY_ACTIVATIONS, piece->bytes - piece->moved);
    }
    run->copying_out = -1;
}

/* For backward step k, or for one of its layers, into one of two buffers. */
static void begin_copy_in(struct run *run, long k)
{
    if (k >= run->steps || !run->offloads || is_head(run, backward_chunk(run, k)))
        return;
    const struct erg_memory_choice *choice = &run->choices[backward_chunk(run, k)];
    long slot = run->received++ % 2;
    if (run->receive[slot].bytes >= choice->moved)
        return;
    give(run, &run->receive[slot].block);
    run->receive[slot].bytes = choice->moved;
    run->receive[slot].block = take(run, ERG_MEMORY_OFFLOAD, choice->moved);
}

/* A split tensor is put together when its layer's turn comes. */
static void join_split(struct run *run, struct erg_memory_group *group, long layer)
{
    const struct erg_memory_choice *choice = &run->choices[group->chunk];
    long first = run->s.request->layer_copies ? layer : 0;
    if (!run->offloads || is_head(run, group->chunk) || !choice->split ||
        first + choice->split->layer != layer || run->s.request->accounting == ERG_MEMORY_ARENA)
        return;
    struct erg_memory_kept *kept = kept_of(group, first, choice->split);
    uint32_t whole = take(run, ERG_MEMORY_OFFLOAD, choice->split->bytes);
    give(run, &kept->rest[choice->split->view]);
    kept->rest[choice->split->view] = whole;
}

/* Copies of whole groups: what the steps of the schedule begin and end. */
static void groups_out(struct run *run, long k)
{
    if (run->s.request->layer_copies)
        return;
    end_copy_out(run);
    if (k >= 0 && k < run->steps)
        begin_copy_out(run, k, 0);
}

static void groups_in(struct run *run, long k)
{
    if (!run->s.request->layer_copies)
        begin_copy_in(run, k);
}

/* ---- passes ---- */

static void forward(struct run *run, long k)
{
    struct erg_memory_group *group = &run->groups[k];
    long chunk = forward_chunk(run, k);
    uint32_t x = run->input;
    run->input = NO_BLOCK;
    if (run->s.stage == 0 && chunk == 0)
        x = erg_memory_embedding_forward(&run->s);
    for (long layer = 0; layer < group->layers; layer++) {
        x = erg_memory_layer_forward(&run->s, group, layer, x, false);
        if (!run->s.request->layer_copies)
            continue;
        end_copy_out(run);
        begin_copy_out(run, k, layer);
    }
    if (is_head(run, chunk)) {
        erg_memory_head_forward(&run->s, group, x);
        x = NO_BLOCK;
    }
    give(run, &run->output); /* the last one has arrived */
    run->output = x;
}

static void backward(struct run *run, long k)
{
    struct erg_memory_group *group = &run->groups[group_of_backward(run, k)];
    uint32_t gradient = run->gradient;
    run->gradient = NO_BLOCK;
    if (is_head(run, group->chunk))
        gradient = erg_memory_head_backward(&run->s, group);
    for (long layer = group->layers; layer-- > 0;) {
        if (run->s.request->layer_copies)
            begin_copy_in(run, layer > 0 ? k : k + 1);
        join_split(run, group, layer);
        gradient = erg_memory_layer_backward(&run->s, group, layer, gradient);
        if (run->s.request->layer_copies)
            end_copy_out(run);
    }
    give(run, &run->sent);
    run->sent = gradient;
    if (run->s.stage == 0 && group->chunk == 0)
        give(run, &run->sent); /* the embedding's */
}

/* Memory for what forward step k, or backward step k, will be sent. */
static void receive_input(struct run *run, long k)
{
    if (k < run->steps && !(run->s.stage == 0 && forward_chunk(run, k) == 0))
        run->input = take(run, ERG_MEMORY_PIPELINE, run->s.sizes->hidden);
}

static void receive_gradient(struct run *run, long k)
{
    if (k < run->steps && !is_head(run, backward_chunk(run, k)))
        run->gradient = take(run, ERG_MEMORY_PIPELINE, run->s.sizes->hidden);
}

/* A pass has ended: what was its worst moment? */
static void end_pass(struct run *run, bool is_backward, long k)
{
    struct erg_memory_track *track = &run->s.track;
    long chunk = is_backward ? backward_chunk(run, k) : forward_chunk(run, k);
    if (track->worst.total > run->worst.total) {
        run->worst = track->worst;
        run->worst_moment = is_head(run, chunk) ? "head" : is_backward ? "backward" : "forward";
    }
    if (run->course) {
        struct erg_memory_step step = {
            .backward = is_backward, .chunk = chunk, .microbatch = microbatch_of(run, k)};
        for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
            step.items[i] = (float)track->worst.items[i];
        ERG_PUSH(run->course, steps, step);
    }
    track->worst = track->now;
}

static void iterate(struct run *run)
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
    begin_copy_in(run, 0);
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
    end_copy_out(run);
    give(run, &run->output);
    give(run, &run->sent);
    const int64_t *left = run->s.track.now.items;
    assert(left[ERG_MEMORY_ACTIVATIONS] == 0 && left[ERG_MEMORY_TRANSIENT] == 0 &&
           left[ERG_MEMORY_PIPELINE] == 0 && left[ERG_MEMORY_HEAD] == 0);
    (void)left;
}

/* ---- what is there from the start ---- */

static void take_weights(struct run *run, const struct erg_memory_weights *weights)
{
    int64_t total = 0;
    for (size_t i = 0; i < weights->count; i++) {
        take(run, ERG_MEMORY_WEIGHTS, 2 * weights->items[i]);
        total += weights->items[i];
    }
    take(run, ERG_MEMORY_GRADIENTS, 4 * total);
}

/* fp32 state of this rank's part of every weight: first the master copies, or the two moments. */
static void take_state(struct run *run, const struct erg_memory_weights *weights, bool moments)
{
    const struct erg_layout *layout = run->s.request->layout;
    for (long chunk = 0; chunk < run->chunks; chunk++) {
        int64_t *shard = erg_xcalloc(weights[chunk].count, sizeof *shard);
        erg_memory_shard(&weights[chunk], layout->data * layout->context, run->s.rank, shard);
        for (size_t i = 0; i < weights[chunk].count; i++) {
            /* The master copy goes through a copy in bf16. */
            uint32_t narrow = moments ? NO_BLOCK : take(run, ERG_MEMORY_TRANSIENT, 2 * shard[i]);
            take(run, ERG_MEMORY_OPTIMIZER, 4 * shard[i]);
            if (moments)
                take(run, ERG_MEMORY_OPTIMIZER, 4 * shard[i]);
            give(run, &narrow);
        }
        free(shard);
    }
}

static void take_buffers(struct run *run)
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

static void init(struct run *run, const struct erg_memory_request *request,
                 const struct erg_memory_sizes *sizes, long stage, long rank, long microbatches)
{
    const struct erg_layout *layout = request->layout;
    *run = (struct run){
        .s = {.request = request,
              .sizes = sizes,
              .stage = stage,
              .rank = rank,
              .remat = erg_layout_remat(layout, stage)},
        .stages = layout->pipeline,
        .chunks = layout->virtual_stages,
        .steps = microbatches * layout->virtual_stages,
        .warmup = erg_memory_warmup(layout, stage),
        .offloads = erg_memory_offloads(layout, stage),
        .copying_out = -1,
        .receive = {{.block = NO_BLOCK}, {.block = NO_BLOCK}},
        .input = NO_BLOCK,
        .output = NO_BLOCK,
        .gradient = NO_BLOCK,
        .sent = NO_BLOCK,
    };
    erg_memory_track_init(&run->s.track, request->accounting);
    run->choices = erg_xcalloc((size_t)run->chunks, sizeof *run->choices);
    for (long chunk = 0; chunk < run->chunks; chunk++)
        erg_memory_choose(&run->choices[chunk], sizes, run->s.remat,
                          request->layer_copies ? 1
                                                : erg_layout_chunk_layers(
                                                      layout, request->model->layers, stage, chunk),
                          erg_layout_offload(layout, stage), request->accounting);
    run->groups = erg_xcalloc((size_t)run->steps, sizeof *run->groups);
    for (long k = 0; k < run->steps; k++) {
        struct erg_memory_group *group = &run->groups[k];
        group->chunk = forward_chunk(run, k);
        group->layers =
            erg_layout_chunk_layers(layout, request->model->layers, stage, group->chunk);
        size_t count = (size_t)group->layers * ERG_MEMORY_ROLES;
        group->kept = erg_xcalloc(count, sizeof *group->kept);
        for (size_t i = 0; i < count; i++)
            group->kept[i] = (struct erg_memory_kept){NO_BLOCK, {NO_BLOCK, NO_BLOCK}};
        group->head_input = group->head_norm = group->softmax = NO_BLOCK;
    }
}

static void release(struct run *run)
{
    for (long chunk = 0; chunk < run->chunks; chunk++)
        erg_memory_choice_release(&run->choices[chunk]);
    for (long k = 0; k < run->steps; k++)
        free(run->groups[k].kept);
    free(run->choices);
    free(run->groups);
    erg_memory_track_release(&run->s.track);
}

void erg_memory_simulate_rank(struct erg_memory_stage *result, struct erg_memory_course *course,
                              const struct erg_memory_request *request,
                              const struct erg_memory_sizes *sizes, long stage, long rank,
                              long microbatches)
{
    struct run run;
    init(&run, request, sizes, stage, rank, microbatches);
    struct erg_memory_weights *weights = erg_xcalloc((size_t)run.chunks, sizeof *weights);
    for (long chunk = 0; chunk < run.chunks; chunk++) {
        erg_memory_chunk_weights(&weights[chunk], request, sizes, stage, chunk);
        take_weights(&run, &weights[chunk]);
    }
    take_state(&run, weights, false);
    take_buffers(&run);
    if (request->accounting == ERG_MEMORY_FRAMEWORK)
        iterate(&run);
    take_state(&run, weights, true);
    run.course = course;
    run.s.track.worst = run.s.track.now;
    iterate(&run);
    *result = (struct erg_memory_stage){.peak_bytes = (double)run.worst.total,
                                        .moment = run.worst_moment,
                                        .groups = erg_memory_groups(request->layout, stage)};
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        result->items[i] = (double)run.worst.items[i];
    for (long k = 0; k < run.steps && run.offloads; k++) {
        double moved = (double)run.choices[run.groups[k].chunk].moved *
                       (double)(request->layer_copies ? run.groups[k].layers : 1);
        if (!is_head(&run, run.groups[k].chunk) && moved > result->offload_bytes)
            result->offload_bytes = moved;
    }
    for (long chunk = 0; chunk < run.chunks; chunk++)
        free(weights[chunk].items);
    free(weights);
    release(&run);
}

/* After the warm-up a stage repeats itself with every chunk of `pipeline` microbatches. */
long erg_memory_microbatches(const struct erg_layout *layout)
{
    if (layout->microbatches == layout->pipeline)
        return layout->microbatches;
    long warmup = erg_memory_warmup(layout, 0) / layout->virtual_stages + 1;
    long rounds = (warmup + layout->pipeline - 1) / layout->pipeline + 2;
    long enough = rounds * layout->pipeline;
    return layout->microbatches < enough ? layout->microbatches : enough;
}
