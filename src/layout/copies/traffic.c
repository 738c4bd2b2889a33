/*
 * Passes, copies and messages of all stages, event by event. Between two events all rates are
 * constant: a copy's rate changes where a message between nodes begins or ends on the shared link.
 */
#include "layout/copies/traffic.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

const char *erg_memory_transfer_name(enum erg_memory_transfer_kind kind)
{
    static const char *const names[] = {"copy_out", "copy_in", "send", "receive"};
    return names[kind];
}

enum { OUT, IN, DIRECTIONS };

/* Copies of a GPU in one direction. */
struct copy_lane {
    size_t next; /* index in the list: the oldest copy that has not ended */
    bool open;   /* it is running */
    size_t item; /* index of its transfer */
    double left_bytes, rate, end_s;
};

struct stage {
    const struct erg_memory_copies *list;
    struct erg_memory_stage_traffic *found;
    const struct erg_memory_stage_speed *speed;
    long index;
    size_t at, end, pass; /* the layer that runs or is next, and its pass */
    bool running;
    double layer_end_s;
    size_t begun; /* copies of the list before this index may run */
    struct copy_lane lanes[DIRECTIONS];
    /* Bytes/s of the message on the links inside the node and between nodes; 0: 0: none. */
    double sends[2][DIRECTIONS];
    bool *arrived;   /* [passes]: the input has arrived */
    size_t *pass_of; /* [backward][chunk][microbatch] */
};

struct message {
    long from, to;
    size_t made, pass; /* passes: the sender's, the receiver's */
    bool between_nodes, going;
    size_t sent, received; /* transfers */
    double rate, end_s;
};

struct pipeline {
    const struct erg_memory_speeds *speeds;
    struct stage *stages;
    long count, chunks, microbatches;
    double now;
    struct { /* ready or running, in the order in which they became ready */
        struct message *items;
        size_t count, capacity;
    } messages;
};

/* ---- passes ---- */

static size_t *pass_of(const struct pipeline *at, long stage, bool backward, long chunk,
                       long microbatch)
{
    long row = (backward ? at->chunks : 0) + chunk;
    return &at->stages[stage].pass_of[row * at->microbatches + microbatch];
}

/* The receiver of a pass's output; false: none. */
static bool receiver_of(const struct pipeline *at, long stage, const struct erg_memory_pass *pass,
                        long *to, long *chunk)
{
    bool end = stage == (pass->backward ? 0 : at->count - 1);
    *to = pass->backward ? (stage + at->count - 1) % at->count : (stage + 1) % at->count;
    *chunk = pass->chunk + (end ? (pass->backward ? -1 : 1) : 0);
    return *chunk >= 0 && *chunk < at->chunks;
}

static bool needs_input(const struct pipeline *at, const struct stage *stage)
{
    const struct erg_memory_pass *pass = &stage->list->passes.items[stage->pass];
    if (pass->backward)
        return stage->index != at->count - 1 || pass->chunk != at->chunks - 1;
    return stage->index != 0 || pass->chunk != 0;
}

/*
 * The head runs after the last layer of its chunk in the forward, before the first in the backward.
 */
static double layer_s(const struct pipeline *at, const struct stage *stage)
{
    const struct erg_memory_pass *pass = &stage->list->passes.items[stage->pass];
    bool head = stage->index == at->count - 1 && pass->chunk == at->chunks - 1;
    if (pass->backward)
        return stage->speed->backward_s +
               (head && stage->at == pass->begin ? at->speeds->head_s * 2 / 3 : 0);
    return stage->speed->forward_s +
           (head && stage->at + 1 == pass->end ? at->speeds->head_s / 3 : 0);
}

/* ---- copies ---- */

static size_t next_copy(const struct erg_memory_copies *list, size_t i, int direction)
{
    while (i < list->count && list->items[i].in != (direction == IN))
        i++;
    return i;
}

/* Whether compute must wait at its position for a copy that has begun. */
static bool lacks_copy(const struct stage *stage)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        size_t next = stage->lanes[d].next;
        if (next < stage->begun && stage->list->items[next].end <= stage->at)
            return true;
    }
    return false;
}

static size_t add_transfer(struct stage *stage, const struct erg_memory_transfer *transfer)
{
    ERG_PUSH(stage->found, items, *transfer);
    return stage->found->count - 1;
}

static void end_transfer(struct stage *stage, size_t item, double now)
{
    stage->found->items[item].end_s = now;
    stage->found->end_s = fmax(stage->found->end_s, now);
}

/* Starts the lane's next copy if it may run, and sets the rate and the end of the running copy. */
static void run_lane(struct pipeline *at, struct stage *stage, int direction)
{
    const struct erg_memory_stage_speed *speed = stage->speed;
    struct copy_lane *lane = &stage->lanes[direction];
    if (!lane->open && lane->next < stage->begun) {
        const struct erg_memory_copy *copy = &stage->list->items[lane->next];
        const struct erg_memory_transfer transfer = {
            .kind = copy->in ? ERG_MEMORY_COPY_IN : ERG_MEMORY_COPY_OUT,
            .chunk = copy->chunk,
            .microbatch = copy->microbatch,
            .layer = copy->layer,
            .peer = -1,
            .bytes = copy->bytes,
            .start_s = at->now,
        };
        lane->open = true;
        lane->item = add_transfer(stage, &transfer);
        lane->left_bytes = (double)copy->bytes;
    }
    if (!lane->open)
        return;
    double left = speed->shared - stage->sends[true][direction];
    lane->rate = fmax(fmin(speed->copy, left), 0);
    lane->end_s = lane->rate > 0         ? at->now + lane->left_bytes / lane->rate
                  : lane->left_bytes > 0 ? INFINITY
                                         : at->now;
}

/* ---- starts ---- */

/* Starts the copies that may run, and the next layer if it need not wait. */
static void start_stage(struct pipeline *at, struct stage *stage)
{
    if (stage->running || lacks_copy(stage))
        return;
    while (stage->begun < stage->list->count && stage->list->items[stage->begun].begin <= stage->at)
        stage->begun++;
    if (stage->at == stage->end || lacks_copy(stage) || !stage->arrived[stage->pass])
        return;
    stage->running = true;
    stage->layer_end_s = at->now + layer_s(at, stage);
    if (stage->at == stage->list->passes.items[stage->pass].begin)
        stage->found->passes[stage->pass].start_s = at->now;
}

static void start_message(struct pipeline *at, struct message *message)
{
    struct stage *from = &at->stages[message->from], *to = &at->stages[message->to];
    const int64_t bytes = at->speeds->message_bytes;
    bool between = message->between_nodes;
    if (message->going || from->sends[between][OUT] > 0 || to->sends[between][IN] > 0)
        return;
    const struct erg_memory_pass *made = &from->list->passes.items[message->made];
    const struct erg_memory_pass *pass = &to->list->passes.items[message->pass];
    struct erg_memory_transfer transfer = {
        .kind = ERG_MEMORY_RECEIVE,
        .chunk = pass->chunk,
        .microbatch = pass->microbatch,
        .layer = -1,
        .peer = message->from,
        .backward = pass->backward,
        .between_nodes = between,
        .bytes = bytes,
        .start_s = at->now,
    };
    message->going = true;
    from->sends[between][OUT] = to->sends[between][IN] = message->rate;
    message->end_s = at->now + (double)bytes / message->rate;
    message->received = add_transfer(to, &transfer);
    transfer.kind = ERG_MEMORY_SEND;
    transfer.chunk = made->chunk;
    transfer.peer = message->to;
    message->sent = add_transfer(from, &transfer);
}

static void start_all(struct pipeline *at)
{
    for (long s = 0; s < at->count; s++)
        start_stage(at, &at->stages[s]);
    for (size_t i = 0; i < at->messages.count; i++)
        start_message(at, &at->messages.items[i]);
    for (long s = 0; s < at->count; s++)
        for (int d = 0; d < DIRECTIONS; d++)
            run_lane(at, &at->stages[s], d);
}

/* ---- the next event ---- */

static double next_event(const struct pipeline *at)
{
    double next = INFINITY;
    for (long s = 0; s < at->count; s++) {
        const struct stage *stage = &at->stages[s];
        if (stage->running)
            next = fmin(next, stage->layer_end_s);
        for (int d = 0; d < DIRECTIONS; d++)
            if (stage->lanes[d].open)
                next = fmin(next, stage->lanes[d].end_s);
    }
    for (size_t i = 0; i < at->messages.count; i++)
        if (at->messages.items[i].going)
            next = fmin(next, at->messages.items[i].end_s);
    return next;
}

/* Advances all work to the next event. */
static void pass_time(struct pipeline *at, double next)
{
    for (long s = 0; s < at->count; s++) {
        struct stage *stage = &at->stages[s];
        for (int d = 0; d < DIRECTIONS; d++)
            if (stage->lanes[d].open)
                stage->lanes[d].left_bytes -= stage->lanes[d].rate * (next - at->now);
        if (!stage->running && lacks_copy(stage) &&
            (stage->at == stage->end || stage->arrived[stage->pass]))
            stage->found->copy_wait_s += next - at->now;
    }
    at->now = next;
}

static void send_output(struct pipeline *at, const struct stage *stage)
{
    const struct erg_memory_pass *pass = &stage->list->passes.items[stage->pass];
    long to, chunk;
    if (!receiver_of(at, stage->index, pass, &to, &chunk))
        return;
    size_t receiver = *pass_of(at, to, pass->backward, chunk, pass->microbatch);
    if (to == stage->index) {
        at->stages[to].arrived[receiver] = true;
        return;
    }
    const struct erg_memory_stage_speed *hop =
        &at->speeds->stages[pass->backward ? to : stage->index];
    ERG_PUSH(&at->messages, items,
             (struct message){.from = stage->index,
                              .to = to,
                              .made = stage->pass,
                              .pass = receiver,
                              .between_nodes = hop->between_nodes,
                              .rate = hop->message});
}

static void end_layer(struct pipeline *at, struct stage *stage)
{
    stage->running = false;
    stage->at++;
    stage->found->end_s = at->now;
    if (stage->at < stage->list->passes.items[stage->pass].end)
        return;
    send_output(at, stage);
    stage->found->passes[stage->pass++].end_s = at->now;
}

static void end_messages(struct pipeline *at)
{
    size_t left = 0;
    for (size_t i = 0; i < at->messages.count; i++) {
        struct message *message = &at->messages.items[i];
        if (!message->going || message->end_s > at->now) {
            at->messages.items[left++] = *message;
            continue;
        }
        struct stage *from = &at->stages[message->from], *to = &at->stages[message->to];
        from->sends[message->between_nodes][OUT] = to->sends[message->between_nodes][IN] = 0;
        to->arrived[message->pass] = true;
        end_transfer(from, message->sent, at->now);
        end_transfer(to, message->received, at->now);
    }
    at->messages.count = left;
}

static void end_all(struct pipeline *at)
{
    for (long s = 0; s < at->count; s++) {
        struct stage *stage = &at->stages[s];
        for (int d = 0; d < DIRECTIONS; d++) {
            struct copy_lane *lane = &stage->lanes[d];
            if (!lane->open || lane->end_s > at->now)
                continue;
            end_transfer(stage, lane->item, at->now);
            lane->open = false;
            lane->next = next_copy(stage->list, lane->next + 1, d);
        }
        if (stage->running && stage->layer_end_s <= at->now)
            end_layer(at, stage);
    }
    end_messages(at);
}

/* ---- all stages ---- */

static void init_stage(struct pipeline *at, struct stage *stage,
                       const struct erg_memory_copies *list, long index,
                       struct erg_memory_stage_traffic *found)
{
    size_t passes = list->passes.count;
    found->passes = erg_xcalloc(passes + 1, sizeof *found->passes);
    found->pass_count = passes;
    *stage = (struct stage){
        .list = list,
        .found = found,
        .speed = &at->speeds->stages[index],
        .index = index,
        .end = erg_memory_copies_end(list),
        .arrived = erg_xcalloc(passes + 1, sizeof *stage->arrived),
        .pass_of = erg_xcalloc((size_t)(2 * at->chunks * at->microbatches), sizeof(size_t)),
    };
    for (int d = 0; d < DIRECTIONS; d++)
        stage->lanes[d].next = next_copy(list, 0, d);
    for (; stage->pass < passes; stage->pass++) {
        const struct erg_memory_pass *pass = &list->passes.items[stage->pass];
        found->passes[stage->pass] = (struct erg_memory_pass_time){
            .backward = pass->backward, .chunk = pass->chunk, .microbatch = pass->microbatch};
        stage->arrived[stage->pass] = !needs_input(at, stage);
        *pass_of(at, index, pass->backward, pass->chunk, pass->microbatch) = stage->pass;
    }
    stage->pass = 0;
}

void erg_memory_traffic_init(struct erg_memory_traffic *traffic,
                             const struct erg_memory_copies *stages, long count,
                             const struct erg_memory_speeds *speeds)
{
    struct pipeline at = {.speeds = speeds, .count = count};
    *traffic = (struct erg_memory_traffic){
        .stages = erg_xcalloc((size_t)count, sizeof *traffic->stages), .count = count};
    for (size_t i = 0; i < stages->passes.count; i++) {
        const struct erg_memory_pass *pass = &stages->passes.items[i];
        at.chunks = pass->chunk >= at.chunks ? pass->chunk + 1 : at.chunks;
        at.microbatches =
            pass->microbatch >= at.microbatches ? pass->microbatch + 1 : at.microbatches;
    }
    at.stages = erg_xcalloc((size_t)count, sizeof *at.stages);
    for (long s = 0; s < count; s++)
        init_stage(&at, &at.stages[s], &stages[s], s, &traffic->stages[s]);
    start_all(&at);
    for (double next; (next = next_event(&at)) < INFINITY; start_all(&at)) {
        pass_time(&at, next);
        end_all(&at);
    }
    for (long s = 0; s < count; s++) {
        assert(at.stages[s].at == at.stages[s].end);
        traffic->time_s = fmax(traffic->time_s, traffic->stages[s].end_s);
        free(at.stages[s].arrived);
        free(at.stages[s].pass_of);
    }
    free(at.stages);
    free(at.messages.items);
}

void erg_memory_traffic_release(struct erg_memory_traffic *traffic)
{
    for (long s = 0; s < traffic->count; s++) {
        free(traffic->stages[s].items);
        free(traffic->stages[s].passes);
    }
    free(traffic->stages);
    *traffic = (struct erg_memory_traffic){0};
}
