/* What a step costs beyond its iteration: by hand, against the closed form of whole iterations, and
 * as plans keep it. */
#include "check.h"
#include "folder.h"
#include "json_file.h"
#include "program.h"

#include "layout/energy/layout_energy.h"
#include "layout/energy/step_end.h"
#include "plan/plan.h"

#include <math.h>

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64,\n"
    " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 4, \"vocab_size\": 256, \"rms_norm_eps\": 1e-6,\n"
    " \"max_position_embeddings\": 64, \"tie_word_embeddings\": false}\n";

/* Round numbers: every byte and joule below is computed from these by hand. */
struct by_hand {
    struct erg_model *model;
    struct erg_engine *engine;
    struct erg_gpu *gpu;
    struct erg_step_end_kind kind;
};

static struct by_hand make(void)
{
    struct by_hand hand;
    struct erg_error err;
    assert_ok(erg_model_parse(&hand.model, "config", config, strlen(config), &err), &err);
    assert_ok(erg_engine_load(&hand.engine, "ergon", &err), &err);
    assert_ok(erg_gpu_load(&hand.gpu, "h100-sxm", &err), &err);
    struct erg_gpu *gpu = hand.gpu;
    gpu->voltage_slope_per_ghz = gpu->voltage_slope_low_per_ghz = 0; /* 1 at every clock */
    gpu->static_power_w = 100;
    gpu->active_power_w = 20;
    gpu->blocking_power_w = 120;
    gpu->energy_per_hbm_byte_j = 50e-12;
    gpu->energy_per_wire_byte_j = 250e-12;
    gpu->comm_hbm_per_wire = 2;
    hand.engine->memory_efficiency = 0.5;
    hand.engine->link_efficiency = 0.5;
    hand.kind = (struct erg_step_end_kind){
        .engine = hand.engine,
        .gpu = gpu,
        .machine = {.memory_bandwidth = 1e12, .link_bandwidth = 100e9, .node_gpus = 8}};
    return hand;
}

static void release(struct by_hand *hand)
{
    erg_model_free(hand->model);
    erg_engine_free(hand->engine);
    erg_gpu_free(hand->gpu);
}

/* Weights of a layer: 64 x 192 of queries, keys and values, 64 x 64, 64 x 256, 128 x 64, and two
 * norms of 64. */
enum { LAYER = 12288 + 4096 + 16384 + 8192 + 128, WORDS = 256 * 64 };

static void one_rank_by_hand(void **state)
{
    (void)state;
    struct by_hand hand = make();
    struct erg_layout layout = {1, 1, 1, 1, 1, 1, 1, 64, .offload = 0};
    struct erg_step_end end;
    erg_step_ends_init(&end, hand.model, &layout, &hand.kind, NULL);
    /* 2 x 41,088 of the layers, 2 x 16,384 of embedding and head, 64 of the last norm. */
    const double parameters = 2 * LAYER + 2 * WORDS + 64;
    assert_near(parameters, 115008, 0);
    /* Of a parameter: 4 bytes read for the norm, 16 read and 12 written by AdamW, 2 of the weight.
     * 34 x 115,008 = 3,910,272 bytes at 500 GB/s. */
    assert_close(end.optimizer_s, 3910272 / 500e9, 1e-12);
    assert_close(end.optimizer_j, 3910272 * 50e-12 + 120 * 7.820544e-6, 1e-12);
    assert_near(end.gradients_s, 0, 0);
    assert_near(end.gradients_j, 0, 0);
    release(&hand);
}

static void two_stages_on_two_ranks_by_hand(void **state)
{
    (void)state;
    struct by_hand hand = make();
    struct erg_layout layout = {1, 1, 2, 2, 1, 1, 4, 64, .offload = 0};
    struct erg_step_end ends[2];
    erg_step_ends_init(ends, hand.model, &layout, &hand.kind, NULL);
    /* 57,472 parameters with the embedding, 57,536 with head and norm; 2 + 32 / 2 bytes of each in
     * HBM, 6 x 1 / 2 over wires of which a ring reaches 50 GB/s. */
    assert_close(ends[0].optimizer_s, 57472. * 18 / 500e9, 1e-12);
    assert_close(ends[1].optimizer_s, 57536. * 18 / 500e9, 1e-12);
    assert_close(ends[0].gradients_s, 172416 / 50e9, 1e-12);
    assert_close(ends[1].gradients_s, 172608 / 50e9, 1e-12);
    assert_close(ends[1].optimizer_j, 1035648 * 50e-12 + 120 * 2.071296e-6, 1e-12);
    /* 250 pJ on the wire, and 2 bytes in HBM for each there. */
    assert_close(ends[1].gradients_j, 172608 * 350e-12 + 120 * 3.45216e-6, 1e-12);
    /* A tied head is a second copy on the last stage; with one stage it is none, and the last norm
     * is left out with it. */
    hand.model->tied = true;
    erg_step_ends_init(ends, hand.model, &layout, &hand.kind, NULL);
    assert_close(ends[1].optimizer_s, 57536. * 18 / 500e9, 1e-12);
    layout.pipeline = 1;
    erg_step_ends_init(ends, hand.model, &layout, &hand.kind, NULL);
    assert_close(ends[0].optimizer_s, (115008. - WORDS - 64) * 18 / 500e9, 1e-12);
    release(&hand);
}

/* What the engine's file says is what its kernels read and write (train/engine/optimizer.c). */
static void the_engine_counts_its_kernels(void **state)
{
    (void)state;
    struct by_hand hand = make();
    const double weight = 2, squares = 4, read = 4 * 4, written = 3 * 4;
    assert_near(hand.engine->optimizer_bytes, weight, 0);
    assert_near(hand.engine->optimizer_sharded_bytes, squares + read + written, 0);
    assert_near(hand.engine->gradient_bytes, 4 + 2, 0); /* a sum scattered, a weight gathered */
    release(&hand);
}

/* The composed prediction of a layout has the same ends: time and energy of an iteration charge
 * what the stages' ends add up to, and nothing of it twice. */
static void layouts_charge_the_same(void **state)
{
    (void)state;
    static const struct erg_layout layouts[] = {
        {1, 1, 1, 1, 1, 2, 4, 64, .offload = 0}, {2, 1, 1, 4, 1, 2, 4, 64, .offload = 0},
        {1, 2, 2, 2, 1, 1, 8, 64, .offload = 0}, {2, 2, 2, 1, 1, 1, 4, 64, .offload = 0},
        {1, 1, 2, 4, 1, 1, 2, 64, .offload = 0},
    };
    struct by_hand hand = make();
    const struct erg_time_request request = {hand.model, hand.engine, &hand.kind.machine};
    const struct erg_layout_energy_request of = {.time = request, .gpu = hand.gpu};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct erg_layout *layout = &layouts[i];
        const long gpus = erg_layout_gpus(layout);
        struct erg_step_end ends[2] = {{0}};
        struct erg_time time;
        struct erg_time_parts parts;
        struct erg_time_place place;
        struct erg_layout_work work;
        struct erg_layout_costs costs;
        struct erg_layout_tail tail;
        erg_step_ends_init(ends, hand.model, layout, &hand.kind, NULL);
        erg_time_layout(&time, &request, layout);
        double longest_s = 0, energy_j = 0, idle_j = 0;
        for (long s = 0; s < layout->pipeline; s++)
            longest_s = fmax(longest_s, ends[s].gradients_s + ends[s].optimizer_s);
        for (long s = 0; s < layout->pipeline; s++) {
            energy_j += ends[s].gradients_j + ends[s].optimizer_j;
            idle_j += 120 * (longest_s - ends[s].gradients_s - ends[s].optimizer_s);
        }
        assert_close(time.items[ERG_TIME_GRADIENTS] + time.items[ERG_TIME_OPTIMIZER], longest_s,
                     1e-12);
        erg_time_parts_of(&parts, &request,
                          &(struct erg_layout){.tensor = layout->tensor,
                                               .context = layout->context,
                                               .microbatch = layout->microbatch,
                                               .sequence = layout->sequence},
                          gpus);
        erg_time_place_init(&place, &request, &parts, layout,
                            erg_time_group_bandwidth(&request, layout->tensor,
                                                     layout->context * layout->data, gpus));
        erg_layout_work_of(&work, &of, &parts,
                           &(struct erg_layout){.tensor = layout->tensor,
                                                .context = layout->context,
                                                .microbatch = layout->microbatch,
                                                .sequence = layout->sequence},
                           gpus);
        erg_layout_costs_at(&costs, &of, &work, 0);
        struct erg_layout_energy whole;
        const struct erg_layout_energy_place at = {&of, &place, &costs};
        erg_layout_energy_whole(&whole, &of, layout);
        assert_close(whole.time_s, time.total, 1e-9);
        assert_true(whole.total_j > (energy_j + idle_j) * (double)(gpus / layout->pipeline));
        erg_layout_tail(&tail, &at, 1, layout);
        assert_close(tail.time_s, longest_s, 1e-12);
        assert_close(tail.total_j, (energy_j + idle_j) * (double)(gpus / layout->pipeline), 1e-9);
    }
    release(&hand);
}

/* ---- plans ---- */

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("%s is no number", key);
    return json_number_value(value);
}

/* A command with @ for the folder, which succeeds. */
static void check_here(const char *text, const char *part)
{
    struct erg_text line = with_folder(text);
    check_program(line.data, 0, part);
    erg_text_release(&line);
}

static struct erg_plan *load_sample(void)
{
    struct erg_error err;
    struct erg_plan *plan;
    assert_ok(erg_plan_load(&plan, ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json", &err),
              &err);
    return plan;
}

/* Two stages of eight GPUs each; the second is done later, and the first waits for it. */
static void plans_keep_them(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_plan *plan = load_sample(), *again;
    struct erg_plan_beyond beyond;
    struct erg_step_end ends[2] = {{0.25, 30, 0.5, 100}, {0.375, 40, 0.625, 120}};
    /* A plan of an older ergon says nothing of it. */
    erg_plan_beyond(&beyond, plan);
    assert_true(isnan(beyond.time_s) && isnan(beyond.energy_j));
    json_t *document = erg_plan_json(plan);
    assert_null(json_object_get(document, "beyond"));
    assert_null(json_object_get(document, "step_ends"));
    json_decref(document);
    plan->step_ends = ends;
    plan->step_end_count = 2;
    const double blocking_w = plan->kinds[0].blocking_power_w;
    erg_plan_beyond(&beyond, plan);
    assert_near(beyond.time_s, 1, 0);
    assert_near(beyond.gradients_s, 0.375, 0);
    assert_near(beyond.optimizer_s, 0.625, 0);
    assert_close(beyond.energy_j, 8 * (290 + 0.25 * blocking_w), 1e-12);
    assert_ok(erg_plan_write(plan, in_folder("plan.json"), &err), &err);
    erg_plan_free(plan);
    assert_ok(erg_plan_load(&again, in_folder("plan.json"), &err), &err);
    assert_int_equal(again->step_end_count, 2);
    assert_memory_equal(again->step_ends, ends, sizeof ends);
    erg_plan_free(again);
    /* It is shown: of the selected point, with the sum. */
    check_here("show @/plan.json", "gradient sums and weight gathers take 0.3750 s, "
                                   "the optimizer 0.6250 s");
    check_here("show @/plan.json", "a step takes beyond it: 1.000 s, ");
    struct erg_text command = with_folder("show @/plan.json --json");
    struct program_result shown = run_program(command.data);
    erg_text_release(&command);
    document = json_loads(shown.out.data, 0, NULL);
    const json_t *chosen = json_object_get(document, "chosen");
    assert_close(number(chosen, "step_time_s"), number(chosen, "time_s") + 1, 1e-12);
    assert_close(number(chosen, "step_energy_j"), number(chosen, "energy_j") + beyond.energy_j,
                 1e-12);
    json_decref(document);
    erg_text_release(&shown.out);
    /* One end for each stage. */
    assert_ok(load_json(&document, in_folder("plan.json"), &err), &err);
    json_array_remove(json_object_get(document, "step_ends"), 0);
    assert_ok(erg_json_write(in_folder("plan.json"), document, &err), &err);
    json_decref(document);
    assert_fails(erg_plan_load(&again, in_folder("plan.json"), &err), &err,
                 "key 'step_ends': expected 2 entries, one for each stage, got 1");
    shell("sed -i 's/\"optimizer_s\": 0.625/\"optimizer_s\": -1/' @/plan.json");
    assert_fails(erg_plan_load(&again, in_folder("plan.json"), &err), &err,
                 "key 'step_ends[0].optimizer_s': expected a number from 0 to");
}

/* What a layout is said to take is a point of its plan and what is beyond it, over all copies. */
static void layouts_are_plans_and_their_ends(void **state)
{
    (void)state;
    json_t *plan, *layouts;
    struct erg_error err;
    write_text("layout.yaml", "model: llama-3.2-1b\ncluster: {nodes: 1, gpus_per_node: 8, gpu: "
                              "h100-sxm}\nmicrobatch_size: 1\nmicrobatches: 64\nsequence: 4096\n"
                              "engine: ergon\n");
    check_here("layout @/layout.yaml --gpus 8 --batch 64 --deadline 10 --top 1 -o @/answer 2>&1",
               "answer/plan.json");
    assert_ok(load_json(&plan, in_folder("answer/plan.json"), &err), &err);
    assert_ok(load_json(&layouts, in_folder("answer/layouts.json"), &err), &err);
    const json_t *beyond = json_object_get(plan, "beyond");
    const json_t *selected = json_object_get(plan, "selected");
    const json_t *method = json_object_get(json_object_get(plan, "methods"),
                                           json_string_value(json_object_get(selected, "method")));
    const json_t *point =
        json_array_get(json_object_get(method, "points"),
                       (size_t)json_integer_value(json_object_get(selected, "point")));
    const json_t *frontier = json_object_get(layouts, "frontier");
    const json_t *whole = json_array_get(frontier, json_array_size(frontier) - 1);
    const double data = number(json_object_get(plan, "job"), "data");
    assert_true(data > 1 && number(beyond, "gradients_s") > 0);
    assert_close(number(whole, "time_s"), number(point, "time_s") + number(beyond, "time_s"), 1e-4);
    /* There the optimizer runs at the lowest clock at which memory is no slower. */
    assert_close(number(whole, "energy_j"),
                 data * (number(point, "energy_j") + number(beyond, "energy_j")), 2e-3);
    json_decref(plan);
    json_decref(layouts);
}

/* ergon optimize writes them; a software of which nothing is known does not. */
static void commands_write_them(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_plan *plan;
    struct erg_plan_beyond beyond;
    write_text("config.json", config);
    write_text("job.yaml", "model: config.json\ncluster: {nodes: 1, gpus_per_node: 4, gpu: "
                           "h100-sxm}\ntensor: 2\ndata: 2\nmicrobatch_size: 2\nmicrobatches: 4\n"
                           "sequence: 64\nengine: ergon\n");
    check_here("optimize @/job.yaml -o @/opt 2>&1", "beyond it: ");
    assert_ok(erg_plan_load(&plan, in_folder("opt/plan.json"), &err), &err);
    erg_plan_beyond(&beyond, plan);
    /* On each of two tensor ranks half of the products and of the words, and all norms: (2 x 40,960
     * + 2 x 16,384) / 2 + 2 x 128 + 64 parameters; 2 + 32 / 2 bytes of each at 0.91 of 3350 GB/s.
     */
    assert_close(beyond.optimizer_s, 57664. * 18 / (0.91 * 3350e9), 1e-6);
    assert_close(beyond.gradients_s, 57664. * 3 / (0.65 * 450e9), 1e-6);
    erg_plan_free(plan);
    /* Without an engine that of the stack's name counts; of an unknown stack nothing is known. */
    shell("sed -i '/^engine/d' @/job.yaml");
    check_here("optimize @/job.yaml -o @/opt 2>&1", "beyond it: ");
    shell("echo 'stack: published-python' >>@/job.yaml");
    check_here("optimize @/job.yaml -o @/opt", "selected: ");
    assert_ok(erg_plan_load(&plan, in_folder("opt/plan.json"), &err), &err);
    assert_null(plan->step_ends);
    erg_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_by_hand),
        cmocka_unit_test(two_stages_on_two_ranks_by_hand),
        cmocka_unit_test(the_engine_counts_its_kernels),
        cmocka_unit_test(layouts_charge_the_same),
        cmocka_unit_test(plans_keep_them),
        cmocka_unit_test(layouts_are_plans_and_their_ends),
        cmocka_unit_test(commands_write_them),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
