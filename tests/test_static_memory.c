/*
 * Memory of ergon's own training: what `ergon memory` says of random models and layouts is what the
 * trainer of a rank takes of its device, to the byte and item by item; and what a stage of a
 * pipeline has in flight is what its schedule, followed pass by pass, says.
 */
#include "folder.h"
#include "json_file.h"
#include "program.h"

#include "base/random.h"
#include "device/host/host.h"
#include "iteration/iteration.h"
#include "layout/memory/copies.h"
#include "layout/memory/static_memory.h"
#include "train/engine/trainer_internal.h"

/* ---- rooms ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Follows the schedule. An input is open from the moment at which it is received, which is right
 * after the forward pass before it. */
static struct erg_stage_room follow(const struct erg_schedule *schedule,
                                    const struct erg_layout *layout, long layers, long stage)
{
    const size_t chunks = schedule->pipeline.chunks;
    const size_t count = schedule->per_stage;
    const struct erg_instruction *items = schedule->instructions + (size_t)stage * count;
    struct erg_stage_room room = {0}, now = {0};
    size_t open = 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_instruction *pass = &items[i];
        const long own = erg_layout_chunk_layers(layout, layers, stage, (long)pass->chunk);
        if (pass->direction == ERG_FORWARD) {
            const bool received = pass->stage + pass->chunk > 0;
            size_t next = i + 1;
            open += !received || i == 0;
            now.passes++;
            now.layers += (size_t)own - 1;
            now.heads += pass->chunk == chunks - 1;
            while (next < count && items[next].direction != ERG_FORWARD)
                next++;
            open += next < count && items[next].stage + items[next].chunk > 0;
        } else {
            open--;
            now.passes--;
            now.layers -= (size_t)own - 1;
            now.heads -= pass->chunk == chunks - 1;
        }
        room.passes = larger(room.passes, now.passes);
        room.layers = larger(room.layers, now.layers);
        room.inputs = larger(room.inputs, open);
        room.heads = larger(room.heads, now.heads);
    }
    return room;
}

static void check_rooms(const struct erg_layout *layout, long layers)
{
    struct erg_pipeline pipeline = {.stages = (size_t)layout->pipeline,
                                    .chunks = (size_t)layout->virtual_stages,
                                    .microbatches = (size_t)layout->microbatches};
    struct erg_schedule schedule;
    struct erg_error err;
    assert_ok(erg_schedule_init(&schedule, &pipeline, &err), &err);
    for (long stage = 0; stage < layout->pipeline; stage++) {
        const struct erg_stage_room room = erg_stage_room_of(layout, layers, stage);
        const struct erg_stage_room said = follow(&schedule, layout, layers, stage);
        assert_int_equal(room.passes, said.passes);
        assert_int_equal(room.layers, said.layers);
        assert_int_equal(room.inputs, said.inputs);
        if (stage == layout->pipeline - 1)
            assert_int_equal(room.heads, said.heads);
    }
    erg_schedule_release(&schedule);
}

static void rooms_are_those_of_the_schedule(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 3);
    for (long stages = 1; stages <= 6; stages++)
        for (long chunks = 1; chunks <= 4; chunks++)
            for (long microbatches = 1; microbatches <= 20; microbatches++) {
                long layers[24], all = stages * chunks * 2;
                struct erg_layout layout = {.tensor = 1,
                                            .context = 1,
                                            .data = 1,
                                            .pipeline = stages,
                                            .virtual_stages = chunks,
                                            .microbatches = microbatches};
                check_rooms(&layout, all);
                all = 0;
                for (long i = 0; i < stages * chunks; i++)
                    all += layers[i] = 1 + (long)erg_rng_below(&rng, 4);
                layout.chunk_layers = layers;
                check_rooms(&layout, all);
            }
}

/* ---- copies ---- */

static long position_of(const struct erg_memory_copies *copies, const struct erg_memory_copy *copy,
                        bool backward)
{
    for (size_t i = 0; i < copies->passes.count; i++) {
        const struct erg_memory_pass *pass = &copies->passes.items[i];
        if (pass->backward == backward && pass->chunk == copy->chunk &&
            pass->microbatch == copy->microbatch)
            return (long)(backward ? pass->end - 1 - (size_t)copy->layer
                                   : pass->begin + (size_t)copy->layer);
    }
    fail_msg("there is no such pass");
    return -1;
}

/* Each layer that leaves comes back, a copy out has ended when its copy in begins, no two copies of
 * a direction run at once, and where a copy in goes nobody reads any more. */
static void check_copies(const struct erg_memory_copies *copies)
{
    size_t end[2] = {0}, count[2] = {0}, begin = 0, read[2] = {0}; /* read: of the ring */
    for (size_t i = 0; i < copies->count; i++) {
        const struct erg_memory_copy *copy = &copies->items[i];
        const size_t forward = (size_t)position_of(copies, copy, false);
        const size_t backward = (size_t)position_of(copies, copy, true);
        assert_true(copy->begin >= begin && copy->begin < copy->end);
        assert_true(copy->begin >= end[copy->in]);
        begin = copy->begin;
        end[copy->in] = copy->end;
        if (!copy->in) {
            assert_int_equal(copy->begin, forward + 1);
            assert_true(copy->end <= backward);
        } else {
            assert_true(copy->begin >= forward + 2);
            assert_int_equal(copy->end, backward);
            assert_true(copy->begin >= read[count[1] % 2]);
            read[count[1] % 2] = backward + 1;
        }
        count[copy->in]++;
    }
    assert_int_equal(count[0], count[1]);
}

static bool leaves(const struct erg_memory_copies *copies, const struct erg_memory_pass *pass,
                   long layer)
{
    for (size_t i = 0; i < copies->count; i++) {
        const struct erg_memory_copy *copy = &copies->items[i];
        if (!copy->in && copy->chunk == pass->chunk && copy->microbatch == pass->microbatch &&
            copy->layer == layer)
            return true;
    }
    return false;
}

static size_t count_at(const struct erg_memory_copies *copies, bool in, bool at_end, size_t at)
{
    size_t count = 0;
    for (size_t i = 0; i < copies->count; i++)
        count += copies->items[i].in == in &&
                 (at_end ? copies->items[i].end : copies->items[i].begin) == at;
    return count;
}

/* What of moved layers there is at once, layer by layer as the engine runs them. */
static struct erg_stage_room follow_moves(const struct erg_memory_copies *copies, long stage,
                                          bool inputs)
{
    struct erg_stage_room room = {0};
    size_t moved = 0, hosted = 0, at = 0;
    const struct erg_memory_pass *passes = copies->passes.items;
    const size_t count = copies->passes.count;
    moved += inputs && stage > 0;
    for (size_t i = 0; i < count; i++) {
        const struct erg_memory_pass *pass = &passes[i];
        const bool opened = inputs && (stage > 0 || pass->chunk > 0);
        for (; at < pass->end; at++) {
            moved += !pass->backward && !(opened && at == pass->begin);
            room.moved = larger(room.moved, moved);
            hosted -= count_at(copies, true, true, at);
            moved -= count_at(copies, false, true, at + 1);
            hosted += count_at(copies, false, false, at + 1);
            room.hosted = larger(room.hosted, hosted);
        }
        for (size_t k = pass->begin; k < pass->end && pass->backward; k++)
            moved -= !leaves(copies, pass, (long)(pass->end - 1 - k));
        size_t next = i + 1;
        while (next < count && passes[next].backward)
            next++;
        if (!pass->backward && next < count && inputs)
            moved += stage > 0 || passes[next].chunk > 0;
        room.moved = larger(room.moved, moved);
    }
    assert_int_equal(moved, 0);
    assert_int_equal(hosted, 0);
    if (room.hosted == 0)
        room.moved = 0;
    return room;
}

static void check_moves(const struct erg_layout *layout, long layers)
{
    for (long stage = 0; stage < layout->pipeline; stage++) {
        struct erg_memory_copies copies;
        erg_static_copies_init(&copies, layout, layers, stage, 1);
        check_copies(&copies);
        for (int inputs = 0; inputs < 2; inputs++) {
            const struct erg_stage_room said = follow_moves(&copies, stage, inputs);
            struct erg_stage_room room = erg_stage_room_of(layout, layers, stage);
            erg_stage_room_move(&room, layout, layers, stage,
                                UINT64_C(1) << (inputs ? ERG_STATIC_X_A : ERG_STATIC_ACT));
            assert_int_equal(room.moved, said.moved);
            assert_int_equal(room.hosted, said.hosted);
        }
        erg_memory_copies_release(&copies);
    }
}

static void copies_fit_between_the_passes(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 4);
    for (long stages = 1; stages <= 4; stages++)
        for (long chunks = 1; chunks <= 3; chunks++)
            for (long microbatches = 1; microbatches <= 14; microbatches++) {
                long layers[12], all = stages * chunks * (1 + (long)erg_rng_below(&rng, 4));
                struct erg_layout layout = {.tensor = 1,
                                            .context = 1,
                                            .data = 1,
                                            .pipeline = stages,
                                            .virtual_stages = chunks,
                                            .microbatches = microbatches};
                check_moves(&layout, all);
                all = 0;
                for (long i = 0; i < stages * chunks; i++)
                    all += layers[i] = 1 + (long)erg_rng_below(&rng, 4);
                layout.chunk_layers = layers;
                check_moves(&layout, all);
            }
}

/* ---- random runs ---- */

struct drawn_run {
    const char *kind; /* of model */
    long heads, groups, head_dim, ffn, layers, words;
    bool tied, sequence_parallel;
    struct erg_layout layout;
    long chunk_layers[16];
    enum erg_recompute stage_recompute[4];
    double stage_offload[4];
    long least_moved; /* bytes */
    int rank;
};

static long pick(struct erg_rng *rng, const long *choices)
{
    size_t count = 0;
    while (choices[count])
        count++;
    return choices[erg_rng_below(rng, count)];
}
#define PICK(rng, ...) pick(rng, (const long[]){__VA_ARGS__, 0})

static struct drawn_run draw(struct erg_rng *rng)
{
    static const char *const kinds[] = {"gpt2", "llama", "qwen2", "qwen3"};
    struct drawn_run run = {.kind = kinds[erg_rng_below(rng, 4)],
                            .heads = PICK(rng, 4, 8, 16),
                            .head_dim = PICK(rng, 8, 16),
                            .words = 100 + (long)erg_rng_below(rng, 400),
                            .tied = erg_rng_below(rng, 2),
                            .sequence_parallel = erg_rng_below(rng, 2)};
    struct erg_layout *layout = &run.layout;
    run.groups = strcmp(run.kind, "gpt2") ? run.heads / PICK(rng, 1, 2, 4) : run.heads;
    *layout = (struct erg_layout){.tensor = PICK(rng, 1, 2, 4),
                                  .context = PICK(rng, 1, 2),
                                  .pipeline = PICK(rng, 1, 2, 3, 4),
                                  .data = PICK(rng, 1, 2, 3),
                                  .virtual_stages = 1,
                                  .microbatch = PICK(rng, 1, 2, 3, 4),
                                  .microbatches = PICK(rng, 1, 2, 3, 5, 8),
                                  .sequence = 16 * PICK(rng, 1, 2, 3)};
    if (layout->pipeline > 1 && erg_rng_below(rng, 2)) {
        layout->virtual_stages = PICK(rng, 2, 3);
        layout->microbatches = layout->pipeline * PICK(rng, 1, 2, 3);
    }
    /* Where positions are learned rows of sequences are divided evenly or not at all. */
    if (layout->microbatch == 3 && layout->tensor > 1)
        layout->microbatch = 4;
    run.ffn = run.heads * run.head_dim * PICK(rng, 2, 3);
    const long chunks = layout->pipeline * layout->virtual_stages;
    run.layers = chunks * PICK(rng, 1, 2);
    if (erg_rng_below(rng, 2)) {
        run.layers = 0;
        for (long i = 0; i < chunks; i++)
            run.layers += run.chunk_layers[i] = PICK(rng, 1, 2, 3);
    }
    for (long i = 0; i < layout->pipeline; i++) {
        run.stage_recompute[i] = (enum erg_recompute)erg_rng_below(rng, ERG_RECOMPUTES);
        run.stage_offload[i] = erg_rng_below(rng, 3) ? 0.1 * (double)erg_rng_below(rng, 11) : 0;
    }
    run.least_moved = PICK(rng, 1, 1, 4096, 1 << 20) - 1;
    run.rank = (int)erg_rng_below(rng, (size_t)erg_layout_gpus(layout));
    return run;
}

static void write_model(const struct drawn_run *run)
{
    struct erg_text text = {0};
    struct erg_error err;
    const long hidden = run->heads * run->head_dim;
    if (strcmp(run->kind, "gpt2") == 0)
        erg_text_printf(&text,
                        "{\"model_type\": \"gpt2\", \"n_embd\": %ld, \"n_layer\": %ld, "
                        "\"n_head\": %ld, \"n_inner\": %ld, \"n_positions\": 64, "
                        "\"layer_norm_epsilon\": 1e-5, \"activation_function\": \"gelu_new\", ",
                        hidden, run->layers, run->heads, run->ffn);
    else
        erg_text_printf(&text,
                        "{\"model_type\": \"%s\", \"hidden_size\": %ld, \"num_hidden_layers\": "
                        "%ld, \"num_attention_heads\": %ld, \"num_key_value_heads\": %ld, "
                        "\"head_dim\": %ld, \"intermediate_size\": %ld, "
                        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
                        "\"hidden_act\": \"silu\", \"rope_theta\": 10000.0, ",
                        run->kind, hidden, run->layers, run->heads, run->groups, run->head_dim,
                        run->ffn);
    erg_text_printf(&text, "\"vocab_size\": %ld, \"tie_word_embeddings\": %s}\n", run->words,
                    run->tied ? "true" : "false");
    assert_ok(erg_file_write(in_folder("config.json"), text.data, text.count, &err), &err);
    erg_text_release(&text);
}

static struct erg_text job_text(const struct drawn_run *run)
{
    const struct erg_layout *layout = &run->layout;
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "model: %s\nengine: ergon\n"
                    "cluster: {nodes: 1, gpus_per_node: %ld, gpu: H100-SXM}\n"
                    "tensor: %ld\ncontext: %ld\npipeline: %ld\nvirtual_stages: %ld\ndata: %ld\n"
                    "microbatch_size: %ld\nmicrobatches: %ld\nsequence: %ld\n",
                    folder, erg_layout_gpus(layout), layout->tensor, layout->context,
                    layout->pipeline, layout->virtual_stages, layout->data, layout->microbatch,
                    layout->microbatches, layout->sequence);
    for (long i = 0; run->chunk_layers[0] && i < layout->pipeline * layout->virtual_stages; i++)
        erg_text_printf(&text, "%s%ld", i ? ", " : "layers: [", run->chunk_layers[i]);
    erg_text_printf(&text, "%s", run->chunk_layers[0] ? "]\n" : "");
    for (long i = 0; i < layout->pipeline; i++)
        erg_text_printf(&text, "%s%s", i ? ", " : "stage_recompute: [",
                        erg_recompute_name(run->stage_recompute[i]));
    for (long i = 0; i < layout->pipeline; i++)
        erg_text_printf(&text, "%s%.1f", i ? ", " : "]\nstage_offload: [", run->stage_offload[i]);
    erg_text_printf(&text,
                    "]\ntrain:\n  data: [{file: tokens, type: uint16}]\n  updates: 2\n"
                    "  learning_rate: 0.001\n  sequence_parallel: %s\n"
                    "  offload_least_bytes: %ld\n",
                    run->sequence_parallel ? "true" : "false", run->least_moved);
    return text;
}

/* ---- a device that counts ---- */

static const struct erg_backend_table *host_table;
static size_t taken_bytes, taken_times, taken_of_host;

static int counting_host_alloc(struct erg_backend *backend, void **memory, size_t bytes,
                               struct erg_error *err)
{
    taken_of_host += bytes;
    return host_table->host_alloc(backend, memory, bytes, err);
}

static int counting_alloc(struct erg_backend *backend, void **memory, size_t bytes,
                          struct erg_error *err)
{
    taken_bytes += bytes;
    taken_times++;
    return host_table->alloc(backend, memory, bytes, err);
}

/* One process is one rank of many: the others never come. */
static int lone_group(struct erg_backend *backend, struct erg_group **group, const int *ranks,
                      size_t count, struct erg_error *err)
{
    (void)backend;
    (void)ranks;
    (void)err;
    *group = count ? (void *)&taken_times : NULL;
    return 0;
}

static void lone_group_free(struct erg_backend *backend, struct erg_group *group)
{
    (void)backend;
    (void)group;
}

static int lone_exchange(struct erg_backend *backend, struct erg_group *group,
                         const struct erg_exchange *exchange, struct erg_stream *stream,
                         struct erg_error *err)
{
    (void)backend;
    (void)group;
    (void)exchange;
    (void)stream;
    (void)err;
    return 0;
}

/* The items of what a rank takes, which is one piece of memory. */
static void take(double items[ERG_MEMORY_ITEMS], const struct erg_job *job, int rank)
{
    static struct erg_backend_table table;
    struct erg_host_options host = {.seed = 1};
    struct erg_backend *backend;
    struct erg_trainer *trainer;
    struct erg_error err;
    assert_ok(erg_host_open(&backend, &host, &err), &err);
    host_table = backend->table;
    table = *host_table;
    table.alloc = counting_alloc;
    table.host_alloc = counting_host_alloc;
    table.group_new = lone_group;
    table.group_free = lone_group_free;
    table.exchange = lone_exchange;
    backend->table = &table;
    taken_bytes = taken_times = taken_of_host = 0;
    const struct erg_trainer_options options = {
        .backend = backend, .job = job, .rank = rank, .world = (int)erg_layout_gpus(&job->layout)};
    assert_ok(erg_trainer_open(&trainer, &options, &err), &err);
    assert_int_equal(taken_times, 1);
    assert_int_equal(taken_bytes, erg_trainer_bytes(trainer));
    erg_static_items(items, &trainer->buffers);
    erg_trainer_close(trainer);
    backend->table = host_table;
    backend->table->close(backend);
}

/* Of what a GPU takes: all but scratch, of which the host needs none. */
static void check_stage(const struct erg_memory_stage *stage, const double taken[ERG_MEMORY_ITEMS])
{
    double all = 0, rest = 0;
    for (int item = 0; item < ERG_MEMORY_ITEMS; item++) {
        all += taken[item];
        if (item == ERG_MEMORY_WORKSPACE || item == ERG_MEMORY_ROUNDING)
            continue;
        assert_true(stage->items[item] == taken[item]);
        rest += taken[item];
    }
    assert_true(stage->host_bytes == (double)taken_of_host);
    assert_true(taken[ERG_MEMORY_WORKSPACE] == 0);
    assert_true(all == (double)taken_bytes);
    const size_t scratch =
        (size_t)stage->items[ERG_MEMORY_WORKSPACE] - ERG_STATIC_SQUARES_BYTES; /* of passes */
    const size_t places = (scratch + ERG_STATIC_ALIGNMENT - 1) / ERG_STATIC_ALIGNMENT;
    assert_true(stage->peak_bytes -
                    (double)(places * ERG_STATIC_ALIGNMENT + ERG_STATIC_SQUARES_BYTES) ==
                (double)taken_bytes);
    assert_true(rest > 0);
}

/* Weights are counted from the op list by the other accountings: padding aside they are the same.
 */
static void check_parameters(const struct erg_memory_request *request, long index,
                             const struct erg_memory_stage *stage)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_request arena = *request;
    struct erg_memory_sizes sizes;
    struct erg_memory_stage closed;
    arena.accounting = ERG_MEMORY_ARENA;
    erg_memory_sizes_of(&sizes, request->model, layout);
    erg_memory_closed(&closed, &arena, &sizes, index);
    const double padding = stage->items[ERG_MEMORY_WEIGHTS] - closed.items[ERG_MEMORY_WEIGHTS];
    const double tensors = (double)(request->model->layers * ERG_LAYER_TENSORS + ERG_TENSORS);
    const double ranks = (double)(layout->data * layout->context);
    assert_true(padding >= 0);
    assert_true(padding <= 2 * ERG_WEIGHT_ELEMENTS * (tensors + ranks * (tensors + 5)));
}

/* Of the ratios at which another tensor moves the last one up to the layout's says what is needed.
 */
static void check_ratios(const struct erg_memory_lines *lines,
                         const struct erg_memory_request *request, long index,
                         const struct erg_memory_stage *stage)
{
    const double offload = erg_layout_offload(request->layout, index);
    size_t at = 0;
    assert_true(lines->ratio_count > 0 && lines->ratios[0].offload == 0);
    for (size_t i = 1; i < lines->ratio_count; i++) {
        assert_true(lines->ratios[i].offload > lines->ratios[i - 1].offload);
        assert_true(lines->ratios[i].host_bytes > lines->ratios[i - 1].host_bytes);
        at = lines->ratios[i].offload <= offload ? i : at;
    }
    assert_true(lines->ratios[at].bytes == stage->peak_bytes);
    assert_true(lines->ratios[at].host_bytes == stage->host_bytes);
    assert_true(stage->offload <= offload * (1 + 1e-9));
    assert_true((stage->offload > 0) == (stage->host_bytes > 0));
}

/* The closed form of a search says the same, and its bound no more. */
static void check_closed(const struct erg_memory_request *request, long index,
                         const struct erg_memory_stage *stage)
{
    const struct erg_layout *layout = request->layout;
    struct erg_memory_sizes sizes;
    struct erg_memory_stage closed;
    struct erg_memory_lines lines;
    struct erg_memory_floor floor;
    erg_memory_sizes_of(&sizes, request->model, layout);
    erg_memory_closed(&closed, request, &sizes, index);
    erg_memory_lines_init(&lines, request, &sizes, index);
    erg_memory_floor_init(&floor, request, &sizes, index);
    const double layers = (double)erg_layout_stage_layers(layout, request->model->layers, index);
    const double offload = erg_layout_offload(layout, index);
    const double least =
        floor.fixed_bytes + floor.layer_bytes * layers +
        (floor.kept_bytes - offload * floor.movable_bytes) * (floor.flying * layers + floor.beyond);
    assert_true(closed.peak_bytes == stage->peak_bytes);
    assert_true(least <= stage->peak_bytes);
    if (!layout->chunk_layers && stage->offload == 0) /* and near it, but for scratch */
        assert_true(least >= 0.5 * (stage->peak_bytes - stage->items[ERG_MEMORY_WORKSPACE]) ||
                    layout->virtual_stages > 1 || offload > 0 ||
                    erg_layout_recompute(layout, index) == ERG_RECOMPUTE_FULL);
    check_ratios(&lines, request, index, stage);
}

static void check_run(const struct drawn_run *run)
{
    struct erg_text text = job_text(run);
    struct erg_memory_result result;
    struct erg_job *job;
    struct erg_error err;
    double taken[ERG_MEMORY_ITEMS];
    write_model(run);
    assert_ok(erg_job_parse(&job, in_folder("job.yaml"), text.data, text.count, NULL, &err), &err);
    erg_text_release(&text);
    const struct erg_memory_request request =
        erg_memory_request_of(job->model, &job->layout, job->engine);
    assert_int_equal(request.accounting, ERG_MEMORY_STATIC);
    assert_int_equal(request.sequence_parallel, run->sequence_parallel);
    assert_ok(erg_memory_check(&request, &err), &err);
    assert_ok(erg_memory_simulate(&result, &request, &err), &err);
    const long stage = run->rank / (run->layout.tensor * run->layout.context * run->layout.data);
    take(taken, job, run->rank);
    check_stage(&result.stages[stage], taken);
    for (long index = 0; index < result.count; index++) {
        check_parameters(&request, index, &result.stages[index]);
        check_closed(&request, index, &result.stages[index]);
    }
    erg_memory_result_release(&result);
    erg_job_free(job);
}

static void write_tokens(void)
{
    static const uint16_t tokens[20000];
    struct erg_error err;
    assert_ok(erg_file_write(in_folder("tokens"), (const char *)tokens, sizeof tokens, &err), &err);
}

static void memory_equals_that_of_the_trainer(void **state)
{
    enum { RUNS = 200 };
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 20);
    write_tokens();
    for (int i = 0; i < RUNS; i++) {
        struct drawn_run run = draw(&rng);
        check_run(&run);
    }
}

/* ---- the commands ---- */

static const struct drawn_run example = {
    .kind = "llama",
    .heads = 8,
    .groups = 4,
    .head_dim = 16,
    .ffn = 256,
    .layers = 8,
    .words = 300,
    .sequence_parallel = true,
    .layout = {.tensor = 2,
               .context = 1,
               .pipeline = 4,
               .data = 1,
               .virtual_stages = 1,
               .microbatch = 4,
               .microbatches = 8,
               .sequence = 64},
};

static void write_example(void)
{
    struct erg_text text = job_text(&example);
    struct erg_error err;
    write_model(&example);
    assert_ok(erg_file_write(in_folder("job.yaml"), text.data, text.count, &err), &err);
    erg_text_release(&text);
}

static json_t *ask(const char *arguments)
{
    struct erg_text line = with_folder(arguments);
    struct program_result result = run_program(line.data);
    struct erg_error err;
    json_t *root;
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_json_parse(&root, "what it printed", result.out.data, result.out.count, &err),
              &err);
    erg_text_release(&result.out);
    erg_text_release(&line);
    return root;
}

static void check_asked(const char *arguments, int exit_code, const char *part)
{
    struct erg_text line = with_folder(arguments);
    check_program(line.data, exit_code, part);
    erg_text_release(&line);
}

static json_int_t whole(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* The document's buffers lie one behind the other and make up the peak. */
static void check_buffers(const json_t *stage)
{
    const json_t *buffers = json_object_get(stage, "buffers"), *buffer;
    json_int_t bytes = 0, last = -1, items[ERG_MEMORY_ITEMS] = {0};
    size_t i;
    json_array_foreach(buffers, i, buffer)
    {
        const char *item = json_string_value(json_object_get(buffer, "item"));
        assert_true(whole(buffer, "offset") > last);
        assert_int_equal(whole(buffer, "offset") % ERG_STATIC_ALIGNMENT, 0);
        last = whole(buffer, "offset");
        for (int k = 0; k < ERG_MEMORY_ITEMS; k++)
            if (strcmp(item, erg_memory_item_name((enum erg_memory_item)k)) == 0)
                items[k] += whole(buffer, "count") * whole(buffer, "bytes");
        bytes += whole(buffer, "count") * whole(buffer, "bytes");
    }
    const json_t *said = json_object_get(stage, "items");
    for (int k = 0; k < ERG_MEMORY_ITEMS; k++)
        if (k != ERG_MEMORY_ROUNDING)
            assert_int_equal(whole(said, erg_memory_item_name((enum erg_memory_item)k)), items[k]);
    assert_int_equal(whole(stage, "peak_bytes"), bytes + whole(said, "rounding"));
    assert_int_equal(whole(stage, "peak_bytes"), whole(stage, "closed_form_bytes"));
}

static void commands_count_as_the_engine_does(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job;
    double taken[ERG_MEMORY_ITEMS];
    size_t index;
    json_t *stage;
    write_tokens();
    write_example();
    json_t *memory = ask("memory @/job.yaml --json"), *stages = json_object_get(memory, "stages");
    assert_string_equal(json_string_value(json_object_get(memory, "accounting")), "static");
    assert_ok(erg_job_load(&job, in_folder("job.yaml"), NULL, &err), &err);
    json_array_foreach(stages, index, stage)
    {
        const json_t *items = json_object_get(stage, "items");
        check_buffers(stage);
        take(taken, job, (int)index * 2);
        for (int k = 0; k < ERG_MEMORY_ITEMS; k++)
            if (k != ERG_MEMORY_ROUNDING && k != ERG_MEMORY_WORKSPACE)
                assert_true((double)whole(items, erg_memory_item_name((enum erg_memory_item)k)) ==
                            taken[k]);
    }
    erg_job_free(job);
    json_t *plan = ask("layout @/job.yaml --layout t=2,p=4,l=2,b=4 --json");
    const json_t *found = json_array_get(json_object_get(plan, "layouts"), 0);
    assert_int_equal(json_array_size(json_object_get(found, "stages")), json_array_size(stages));
    json_array_foreach(json_object_get(found, "stages"), index, stage) assert_int_equal(
        whole(stage, "peak_bytes"), whole(json_array_get(stages, index), "peak_bytes"));
    json_decref(plan);
    json_decref(memory);
}

static void commands_know_modes_and_ratios(void **state)
{
    (void)state;
    write_example();
    check_asked("memory @/job.yaml -r norms 2>&1", 0, "recompute norms");
    check_asked("memory @/job.yaml -a 0.5 2>&1", 0, "offload 0.500");
    check_asked("layout @/job.yaml -r full 2>&1", 0, "full");
    /* What other engines do is known of their accountings. */
    check_asked("memory @/job.yaml -r norms -a 0.5 --accounting arena", 0, "recompute norms");
    check_asked("memory @/job.yaml -e megatron-h800 -r norms", 0, "recompute norms");
    check_asked("memory @/job.yaml -e megatron-h800 --accounting static", 0, "always");
    check_asked("memory @/job.yaml -e megatron-kwai-h800 -l t=1,p=2,b=1 -a 0.5 2>&1", 1,
                "needs at least 3 pipeline stages, got 2");
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Copies of a layout on one GPU: what they take of host memory, and what they leave of the GPU's.
 */
static void copies_are_said(void **state)
{
    (void)state;
    const char *const job = "memory " ERGON_TEST_SOURCE_DIR
                            "/examples/h100/llama3.2-3b_tp1_mbs4_seq4096.yaml -e ergon --json";
    char command[400];
    snprintf(command, sizeof command, "%s -l t=1,b=1 -a 0.7", job);
    json_t *memory = ask(command);
    const json_t *stage = json_array_get(json_object_get(memory, "stages"), 0);
    check_buffers(stage);
    /* What can move of a layer, in the widths of the model: x, norm, queries, keys and values,
     * attention, x and norm of the MLP; then 2 x 8192 that are too much, and the activation's.
     * Statistics of attention are less than 1 MiB. */
    const double widths = 3072 + 3072 + 5120 + 3072 + 3072 + 3072, all = widths + 3 * 8192;
    assert_true(fabs(number(stage, "offloaded") - widths / all) < 1e-9);
    assert_true(number(stage, "offload") == 0.7);
    /* All layers but the last two are in host memory at once. */
    assert_true(number(stage, "host_bytes") == 26 * widths * 2 * 4096);
    json_decref(memory);
    snprintf(command, sizeof command, "%s -S gpu", job);
    memory = ask(command);
    const json_t *solution = json_object_get(memory, "solution");
    stage = json_array_get(json_object_get(memory, "stages"), 0);
    assert_true(number(solution, "offload") > 0.7 && number(solution, "offload") < 0.9);
    assert_true(number(stage, "offloaded") > 0.99 * number(solution, "offload"));
    assert_true(number(stage, "peak_bytes") <= number(stage, "budget_bytes"));
    json_decref(memory);
}

/* Of a layout that is too large the message says the largest microbatch that fits, before copies.
 */
static void a_smaller_microbatch_is_the_change(void **state)
{
    (void)state;
    check_asked("memory " ERGON_TEST_SOURCE_DIR
                "/examples/h100/llama3.2-3b_tp1_mbs4_seq4096.yaml -e ergon 2>&1",
                3, "it would with --layout t=1,c=1,p=1,l=28,b=1");
    check_asked("memory " ERGON_TEST_SOURCE_DIR
                "/examples/h100/llama3.2-3b_tp1_mbs4_seq4096.yaml -e ergon -l t=1,b=1",
                0, "It fits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rooms_are_those_of_the_schedule),
        cmocka_unit_test(copies_fit_between_the_passes),
        cmocka_unit_test(memory_equals_that_of_the_trainer),
        cmocka_unit_test(commands_count_as_the_engine_does),
        cmocka_unit_test(commands_know_modes_and_ratios),
        cmocka_unit_test(copies_are_said),
        cmocka_unit_test(a_smaller_microbatch_is_the_change),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
