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

/* ---- random runs ---- */

struct drawn_run {
    const char *kind; /* of model */
    long heads, groups, head_dim, ffn, layers, words;
    bool tied, sequence_parallel;
    struct erg_layout layout;
    long chunk_layers[16];
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
    erg_text_printf(&text,
                    "%strain:\n  data: [{file: tokens, type: uint16}]\n  updates: 2\n"
                    "  learning_rate: 0.001\n  sequence_parallel: %s\n",
                    run->chunk_layers[0] ? "]\n" : "", run->sequence_parallel ? "true" : "false");
    return text;
}

/* ---- a device that counts ---- */

static const struct erg_backend_table *host_table;
static size_t taken_bytes, taken_times;

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
    table.group_new = lone_group;
    table.group_free = lone_group_free;
    table.exchange = lone_exchange;
    backend->table = &table;
    taken_bytes = taken_times = 0;
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
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    erg_memory_closed(&closed, &arena, &sizes, index);
    const double padding = stage->items[ERG_MEMORY_WEIGHTS] - closed.items[ERG_MEMORY_WEIGHTS];
    const double tensors = (double)(request->model->layers * ERG_LAYER_TENSORS + ERG_TENSORS);
    const double ranks = (double)(layout->data * layout->context);
    assert_true(padding >= 0);
    assert_true(padding <= 2 * ERG_WEIGHT_ELEMENTS * (tensors + ranks * (tensors + 5)));
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
    erg_memory_sizes_init(&sizes, request->model, layout->tensor, layout->context,
                          layout->microbatch, layout->sequence);
    erg_memory_closed(&closed, request, &sizes, index);
    erg_memory_lines_init(&lines, request, &sizes, index);
    erg_memory_floor_init(&floor, request, &sizes, index);
    const double layers = (double)erg_layout_stage_layers(layout, request->model->layers, index);
    const double least = floor.fixed_bytes + floor.layer_bytes * layers +
                         floor.kept_bytes * (floor.flying * layers + floor.beyond);
    assert_true(closed.peak_bytes == stage->peak_bytes);
    for (int i = 0; i < ERG_MEMORY_MOMENTS; i++) {
        assert_true(lines.least[i] == stage->peak_bytes);
        assert_true(lines.slope[i] == 0);
    }
    assert_true(least <= stage->peak_bytes);
    if (!layout->chunk_layers) /* and near it, but for scratch that layers do not need */
        assert_true(least >= 0.5 * (stage->peak_bytes - stage->items[ERG_MEMORY_WORKSPACE]) ||
                    layout->virtual_stages > 1);
    assert_true(floor.movable_bytes == 0);
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

static void memory_is_what_the_trainer_takes(void **state)
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
    json_t *plan = ask("plan @/job.yaml --layout t=2,p=4,l=2,b=4 --json");
    const json_t *found = json_array_get(json_object_get(plan, "layouts"), 0);
    assert_int_equal(json_array_size(json_object_get(found, "stages")), json_array_size(stages));
    json_array_foreach(json_object_get(found, "stages"), index, stage) assert_int_equal(
        whole(stage, "peak_bytes"), whole(json_array_get(stages, index), "peak_bytes"));
    json_decref(plan);
    json_decref(memory);
}

static void what_the_engine_cannot_is_refused(void **state)
{
    (void)state;
    write_example();
    check_asked("memory @/job.yaml -r norms 2>&1", 3,
                "stage 0 recomputes 'norms', and ergon's training keeps all activations; "
                "expected recompute none");
    check_asked("memory @/job.yaml -a 0.5 2>&1", 3,
                "stage 0 offloads 0.5 of its activations, and ergon's training offloads nothing");
    check_asked("memory @/job.yaml -S gpu 2>&1", 1, "ergon's training offloads nothing");
    check_asked("plan @/job.yaml -r full 2>&1", 1,
                "the engine ergon keeps all activations, and recomputation was asked for");
    /* What other engines do is known of their accountings. */
    check_asked("memory @/job.yaml -r norms -a 0.5 --accounting arena", 0, "recompute norms");
    check_asked("memory @/job.yaml -e megatron-h800 -r norms", 0, "recompute norms");
    check_asked("memory @/job.yaml -e megatron-h800 --accounting static", 0, "always");
}

/* Of a layout that is too large the message says the largest microbatch that fits. */
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

/* An engine's file cannot say that ergon's training offloads. */
static void the_engine_offloads_nothing(void **state)
{
    (void)state;
    struct erg_text made = with_folder("sed 's/^static_memory.*/static_memory: true\\n"
                                       "host_link_gb_s: 20/' '" ERGON_TEST_SOURCE_DIR
                                       "/data/engines/ergon.yaml' > '@/own.yaml'");
    struct erg_engine *engine;
    struct erg_error err;
    assert_int_equal(system(made.data), 0);
    erg_text_release(&made);
    assert_fails(erg_engine_load(&engine, in_folder("own.yaml"), &err), &err,
                 "20 GB/s of copies to host memory, and ergon's training");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rooms_are_those_of_the_schedule),
        cmocka_unit_test(memory_is_what_the_trainer_takes),
        cmocka_unit_test(commands_count_as_the_engine_does),
        cmocka_unit_test(what_the_engine_cannot_is_refused),
        cmocka_unit_test(a_smaller_microbatch_is_the_change),
        cmocka_unit_test(the_engine_offloads_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
