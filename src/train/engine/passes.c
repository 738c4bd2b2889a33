/* Runs the instructions of a stage, and sends messages to its neighbours. */
#include "train/engine/passes.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the list ---- */

int erg_pass_list_init(struct erg_pass_list *list, const struct erg_layout *layout, long stage,
                       struct erg_error *err)
{
    struct erg_pipeline pipeline = {.stages = (size_t)layout->pipeline,
                                    .microbatches = (size_t)layout->microbatches,
                                    .chunks = (size_t)layout->virtual_stages};
    *list = (struct erg_pass_list){0};
    if (erg_schedule_init(&list->schedule, &pipeline, err) != 0)
        return -1;
    list->count = list->schedule.per_stage;
    list->items = list->schedule.instructions + (size_t)stage * list->count;
    return 0;
}

void erg_pass_list_release(struct erg_pass_list *list)
{
    erg_schedule_release(&list->schedule);
    *list = (struct erg_pass_list){0};
}

void erg_pass_list_describe(const struct erg_pass_list *list, size_t stage, size_t instruction,
                            char *text, size_t capacity)
{
    const struct erg_schedule *schedule = &list->schedule;
    const struct erg_instruction *item =
        &schedule->instructions[stage * schedule->per_stage + instruction];
    const char *direction = erg_direction_names[item->direction];
    if (schedule->pipeline.chunks > 1)
        snprintf(text, capacity, "the %s of microbatch %u, chunk %u,", direction, item->microbatch,
                 item->chunk);
    else
        snprintf(text, capacity, "the %s of microbatch %u", direction, item->microbatch);
}

static size_t virtual_stage(const struct erg_pass_list *list, const struct erg_instruction *pass)
{
    return pass->chunk * list->schedule.pipeline.stages + pass->stage;
}

/* Whether a pass begins with a message from another stage: of activations, or of gradients. */
static bool receives(const struct erg_pass_list *list, const struct erg_instruction *pass)
{
    const struct erg_pipeline *pipeline = &list->schedule.pipeline;
    size_t last = pipeline->stages * pipeline->chunks - 1;
    return virtual_stage(list, pass) != (pass->direction == ERG_FORWARD ? 0 : last);
}

/* Whether a pass ends with a message. */
static bool sends(const struct erg_pass_list *list, const struct erg_instruction *pass)
{
    const struct erg_pipeline *pipeline = &list->schedule.pipeline;
    size_t last = pipeline->stages * pipeline->chunks - 1;
    return virtual_stage(list, pass) != (pass->direction == ERG_FORWARD ? last : 0);
}

/* The next pass of a direction at or after `from`; list->count: none. */
static size_t next_of(const struct erg_pass_list *list, size_t from, enum erg_direction direction)
{
    while (from < list->count && list->items[from].direction != direction)
        from++;
    return from;
}

/* The next forward from item `from` on, whose input is received in advance. */
static size_t awaited(const struct erg_pass_list *list, size_t from)
{
    size_t next = next_of(list, from, ERG_FORWARD);
    return next < list->count && receives(list, &list->items[next]) ? next : list->count;
}

/* ---- opening ---- */

/* One end of a channel: its group, its stream, and its alternating buffers. */
struct channel_end {
    enum erg_lane lane;
    struct erg_group *group;
    struct erg_stream *stream;
    void *buffers[2];
    struct erg_event *moved[2]; /* the buffer's message has been sent or received */
    size_t turn;
};

struct erg_passes {
    struct erg_passes_options options;
    size_t message; /* elements */
    struct channel_end input, output, d_output, d_input;
    struct erg_event *reached; /* the passes' work queued so far */
    size_t *pass_of;           /* [chunks * microbatches]: open pass of the stage */
    struct erg_event **worked; /* [2 * instructions]: begin and end of each; NULL: not requested */
};

static int open_end(struct erg_passes *passes, struct channel_end *end, enum erg_lane lane,
                    struct erg_group *group, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    end->lane = lane;
    end->group = group;
    end->turn = 1; /* the first message uses the first buffer */
    if (!group)
        return 0;
    return backend->table->stream_new(backend, &end->stream, true, err) ||
                   backend->table->event_new(backend, &end->moved[0], false, err) ||
                   backend->table->event_new(backend, &end->moved[1], false, err)
               ? -1
               : 0;
}

static void close_end(struct erg_passes *passes, struct channel_end *end)
{
    struct erg_backend *backend = passes->options.backend;
    for (size_t i = 0; i < 2; i++)
        if (end->moved[i])
            backend->table->event_free(backend, end->moved[i]);
    backend->table->stream_free(backend, end->stream);
}

/* Gives an existing end the first `count` buffers of a kind. */
static void place_buffers(struct erg_passes *passes, struct channel_end *end,
                          enum erg_static_buffer kind, size_t count)
{
    const struct erg_passes_options *options = &passes->options;
    const struct erg_static_memory *buffers = options->buffers;
    assert(!end->group || buffers->counts[buffers->sets[kind]] == count);
    assert(buffers->bytes[kind] == passes->message * options->backend->element_bytes);
    for (size_t i = 0; i < count && end->group; i++)
        end->buffers[i] = erg_static_at(buffers, options->memory, kind, i);
}

/* Creates events around each instruction. */
static int open_worked(struct erg_passes *passes, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    const size_t count = 2 * passes->options.list->count;
    if (!passes->options.times_work)
        return 0;
    passes->worked = erg_xcalloc(count, sizeof *passes->worked);
    for (size_t i = 0; i < count; i++)
        if (backend->table->event_new(backend, &passes->worked[i], true, err) != 0)
            return -1;
    return 0;
}

static void close_worked(struct erg_passes *passes)
{
    struct erg_backend *backend = passes->options.backend;
    for (size_t i = 0; passes->worked && i < 2 * passes->options.list->count; i++)
        if (passes->worked[i])
            backend->table->event_free(backend, passes->worked[i]);
    free(passes->worked);
}

int erg_passes_worked(struct erg_passes *passes, double *seconds, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    *seconds = passes->worked ? 0 : (double)NAN;
    for (size_t i = 0; passes->worked && i < passes->options.list->count; i++) {
        double one;
        if (backend->table->event_seconds(backend, &one, passes->worked[2 * i],
                                          passes->worked[2 * i + 1], err) != 0)
            return -1;
        *seconds += one;
    }
    return 0;
}

int erg_passes_open(struct erg_passes **out, const struct erg_passes_options *options,
                    struct erg_error *err)
{
    struct erg_passes *passes = erg_xcalloc(1, sizeof *passes);
    const struct erg_pipeline *pipeline = &options->list->schedule.pipeline;
    const struct erg_rank_groups *groups = options->groups;
    passes->options = *options;
    passes->message = erg_stage_message(options->stage);
    passes->pass_of =
        erg_xcalloc(pipeline->chunks * pipeline->microbatches, sizeof *passes->pass_of);
    if (open_worked(passes, err) ||
        options->backend->table->event_new(options->backend, &passes->reached, false, err) ||
        open_end(passes, &passes->input, ERG_LANE_INPUT, groups->forward_from, err) ||
        open_end(passes, &passes->output, ERG_LANE_OUTPUT, groups->forward_to, err) ||
        open_end(passes, &passes->d_output, ERG_LANE_D_OUTPUT, groups->backward_from, err) ||
        open_end(passes, &passes->d_input, ERG_LANE_D_INPUT, groups->backward_to, err)) {
        erg_passes_close(passes);
        return -1;
    }
    place_buffers(passes, &passes->output, ERG_STATIC_SENT_OUTPUT, 2);
    place_buffers(passes, &passes->d_input, ERG_STATIC_SENT_GRADIENT, 2);
    place_buffers(passes, &passes->d_output, ERG_STATIC_RECEIVED_GRADIENT, 1);
    *out = passes;
    return 0;
}

void erg_passes_close(struct erg_passes *passes)
{
    if (!passes)
        return;
    struct erg_backend *backend = passes->options.backend;
    close_end(passes, &passes->input);
    close_end(passes, &passes->output);
    close_end(passes, &passes->d_output);
    close_end(passes, &passes->d_input);
    if (passes->reached)
        backend->table->event_free(backend, passes->reached);
    close_worked(passes);
    free(passes->pass_of);
    free(passes);
}

/* ---- messages ---- */

static int exchange(struct erg_passes *passes, struct channel_end *end, enum erg_exchange_kind kind,
                    void *memory, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    struct erg_exchange message = {kind, false, passes->message, memory, memory, 0};
    struct erg_timeline *timeline = passes->options.timeline;
    const struct erg_timeline_span span = {
        .lane = (int32_t)end->lane, .kind = ERG_SPAN_MESSAGE, .chunk = -1, .microbatch = -1};
    size_t turn = kind == ERG_EXCHANGE_SEND ? end->turn : 0;
    return erg_backend_follow(backend, passes->reached, end->stream, passes->options.stream, err) ||
                   erg_timeline_begin(timeline, &span, end->stream, err) ||
                   backend->table->exchange(backend, end->group, &message, end->stream, err) ||
                   erg_timeline_end(timeline, end->lane, end->stream, err) ||
                   backend->table->event_record(backend, end->moved[turn], end->stream, err)
               ? -1
               : 0;
}

static int await(struct erg_passes *passes, struct erg_event *event, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    return backend->table->event_wait(backend, event, passes->options.stream, err);
}

/* The next buffer to send from, after its previous message was sent. */
static int next_buffer(struct erg_passes *passes, struct channel_end *end, void **buffer,
                       struct erg_error *err)
{
    end->turn = !end->turn;
    assert(end->group); /* only existing ends send */
    *buffer = end->buffers[end->turn];
    return await(passes, end->moved[end->turn], err);
}

static size_t *pass_of(struct erg_passes *passes, const struct erg_instruction *instruction)
{
    size_t microbatches = passes->options.list->schedule.pipeline.microbatches;
    assert(instruction->microbatch < microbatches);
    return &passes->pass_of[instruction->chunk * microbatches + instruction->microbatch];
}

/* Opens the pass of the next forward if it receives an input, and receives it. */
static int receive_ahead(struct erg_passes *passes, size_t from, struct erg_error *err)
{
    const struct erg_pass_list *list = passes->options.list;
    size_t next = awaited(list, from);
    if (next == list->count)
        return 0;
    size_t pass = erg_stage_pass(passes->options.stage, list->items[next].chunk);
    *pass_of(passes, &list->items[next]) = pass;
    return exchange(passes, &passes->input, ERG_EXCHANGE_RECEIVE,
                    erg_stage_input(passes->options.stage, pass), err);
}

/* Receives the gradient of the next backward that needs one. */
static int receive_gradient(struct erg_passes *passes, size_t from, struct erg_error *err)
{
    const struct erg_pass_list *list = passes->options.list;
    size_t next = next_of(list, from, ERG_BACKWARD);
    while (next < list->count && !receives(list, &list->items[next]))
        next = next_of(list, next + 1, ERG_BACKWARD);
    return next == list->count ? 0
                               : exchange(passes, &passes->d_output, ERG_EXCHANGE_RECEIVE,
                                          passes->d_output.buffers[0], err);
}

/* ---- a step ---- */

static int note_work(struct erg_passes *passes, size_t event, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    return passes->worked ? backend->table->event_record(backend, passes->worked[event],
                                                         passes->options.stream, err)
                          : 0;
}

/* Begins a pass on the timeline. */
static int begin_pass(struct erg_passes *passes, size_t index, struct erg_error *err)
{
    const struct erg_instruction *item = &passes->options.list->items[index];
    const struct erg_pass_plan *plan = passes->options.plan;
    const struct erg_plan_option *option = plan ? plan->ways[index].option : NULL;
    const struct erg_timeline_span span = {
        .lane = ERG_LANE_COMPUTE,
        .kind = item->direction == ERG_FORWARD ? ERG_SPAN_FORWARD : ERG_SPAN_BACKWARD,
        .chunk = (int32_t)item->chunk,
        .microbatch = (int32_t)item->microbatch,
        .mode = option ? (int32_t)option->mode : 0,
        .clock_mhz = option ? option->clock_mhz : 0};
    return erg_timeline_begin(passes->options.timeline, &span, passes->options.stream, err) ||
                   note_work(passes, 2 * index, err)
               ? -1
               : 0;
}

static int end_pass(struct erg_passes *passes, size_t index, struct erg_error *err)
{
    return note_work(passes, 2 * index + 1, err) ||
                   erg_timeline_end(passes->options.timeline, ERG_LANE_COMPUTE,
                                    passes->options.stream, err)
               ? -1
               : 0;
}

/* The program of an instruction. */
static const struct erg_stage_program *program_of(const struct erg_passes *passes, size_t index)
{
    const struct erg_pass_plan *plan = passes->options.plan;
    return plan ? plan->ways[index].program : NULL;
}

static int run_forward(struct erg_passes *passes, size_t index,
                       const struct erg_stage_tokens *tokens,
                       const struct erg_stage_listener *reads, struct erg_error *err)
{
    const struct erg_pass_list *list = passes->options.list;
    const struct erg_instruction *item = &list->items[index];
    struct erg_stage *stage = passes->options.stage;
    void *output = NULL;
    if (receives(list, item)) {
        if (await(passes, passes->input.moved[0], err) != 0)
            return -1;
    } else {
        *pass_of(passes, item) = erg_stage_pass(stage, item->chunk);
    }
    if (sends(list, item) && next_buffer(passes, &passes->output, &output, err) != 0)
        return -1;
    if (begin_pass(passes, index, err) ||
        erg_stage_forward(stage, *pass_of(passes, item), &tokens[item->microbatch], output,
                          program_of(passes, index), item->microbatch == 0 ? reads : NULL,
                          passes->options.stream, err) ||
        end_pass(passes, index, err))
        return -1;
    return output ? exchange(passes, &passes->output, ERG_EXCHANGE_SEND, output, err) : 0;
}

static int run_backward(struct erg_passes *passes, size_t index,
                        const struct erg_stage_tokens *tokens,
                        const struct erg_stage_listener *adds, struct erg_error *err)
{
    const struct erg_pass_list *list = passes->options.list;
    const struct erg_instruction *item = &list->items[index];
    bool last = item->microbatch + 1 == list->schedule.pipeline.microbatches;
    void *d_output = NULL, *d_input = NULL;
    if (receives(list, item)) {
        d_output = passes->d_output.buffers[0];
        if (await(passes, passes->d_output.moved[0], err) != 0)
            return -1;
    }
    if (sends(list, item) && next_buffer(passes, &passes->d_input, &d_input, err) != 0)
        return -1;
    if (begin_pass(passes, index, err) ||
        erg_stage_backward(passes->options.stage, *pass_of(passes, item), &tokens[item->microbatch],
                           d_output, d_input, program_of(passes, index), last ? adds : NULL,
                           passes->options.stream, err) ||
        end_pass(passes, index, err))
        return -1;
    if (d_input && exchange(passes, &passes->d_input, ERG_EXCHANGE_SEND, d_input, err) != 0)
        return -1;
    return d_output ? receive_gradient(passes, index + 1, err) : 0;
}

static int count_finished(struct erg_passes *passes, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    return backend->table->count ? backend->table->count(backend, passes->options.finished,
                                                         passes->options.stream, err)
                                 : 0;
}

int erg_passes_wait(struct erg_passes *passes, struct erg_error *err)
{
    struct erg_backend *backend = passes->options.backend;
    struct channel_end *const ends[] = {&passes->output, &passes->d_input};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i]->group && backend->table->stream_wait(backend, ends[i]->stream, err) != 0)
            return -1;
    return 0;
}

/*
 * Requests the clock of instruction `index` of a step, due once earlier ones are finished; `begun`:
 * their number before the step.
 */
static int ask_clock(struct erg_passes *passes, size_t index, uint64_t begun, struct erg_error *err)
{
    const struct erg_passes_options *options = &passes->options;
    return options->clocks ? erg_clock_controller_ask(options->clocks,
                                                      options->plan->ways[index].option->clock_mhz,
                                                      begun + index, err)
                           : 0;
}

int erg_passes_run(struct erg_passes *passes, const struct erg_stage_tokens *tokens,
                   const struct erg_stage_listener *reads, const struct erg_stage_listener *adds,
                   struct erg_error *err)
{
    const struct erg_pass_list *list = passes->options.list;
    const uint64_t begun = __atomic_load_n(passes->options.finished, __ATOMIC_RELAXED);
    erg_offload_begin(passes->options.offload, false);
    if (receive_ahead(passes, 0, err) || receive_gradient(passes, 0, err))
        return -1;
    for (size_t i = 0; i < list->count; i++)
        if (ask_clock(passes, i, begun, err) ||
            (list->items[i].direction == ERG_FORWARD
                 ? run_forward(passes, i, tokens, reads, err) || receive_ahead(passes, i + 1, err)
                 : run_backward(passes, i, tokens, adds, err)) ||
            count_finished(passes, err))
            return -1;
    return 0;
}

int erg_passes_forward(struct erg_passes *passes, const struct erg_stage_tokens *tokens,
                       const struct erg_stage_listener *reads, struct erg_error *err)
{
    const struct erg_pass_list *list = passes->options.list;
    erg_offload_begin(passes->options.offload, true);
    if (receive_ahead(passes, 0, err) != 0)
        return -1;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].direction != ERG_FORWARD)
            continue;
        if (run_forward(passes, i, tokens, reads, err) != 0)
            return -1;
        /* Leave it before the next one is opened: there may be room for only one. */
        erg_stage_leave(passes->options.stage, *pass_of(passes, &list->items[i]));
        if (receive_ahead(passes, i + 1, err) != 0)
            return -1;
    }
    return 0;
}
