/* ergon layout on nodes of several kinds: which stages lie where, and its refusals. */
#include "commands.h"

#include <unistd.h>

#define JOB "'" ERGON_TEST_SOURCE_DIR "/examples/mixed/llama-65b_h800_a100.yaml'"
#define CLUSTER "'" ERGON_TEST_SOURCE_DIR "/data/clusters/4x8-h800-8x8-a100-80gb.yaml'"
#define SMALL "layout " JOB " --batch 256 --recompute none --top 2"
/* So small that its layouts are planned over clocks within a second. */
#define CLOCKS                                                                                     \
    "layout '" ERGON_TEST_SOURCE_DIR                                                               \
    "/examples/mixed/llama-3.2-1b_h800_a100.yaml' --recompute none --top 2"

static void stages_have_places(void **state)
{
    (void)state;
    struct program_result result = run_program(SMALL " --json");
    struct erg_error err;
    json_t *document = NULL;
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_json_parse(&document, "output", result.out.data, result.out.count, &err), &err);
    const json_t *layouts = json_object_get(document, "layouts");
    assert_int_equal(json_array_size(layouts), 2);
    double rate = INFINITY;
    for (size_t i = 0; i < 2; i++) {
        const json_t *layout = json_array_get(layouts, i), *place, *count;
        json_int_t stages = 0, layers = 0;
        size_t k;
        json_array_foreach(json_object_get(layout, "places"), k, place)
        {
            assert_int_equal(json_integer_value(json_object_get(place, "first_stage")), stages);
            stages += json_integer_value(json_object_get(place, "stages"));
            assert_true(json_number_value(json_object_get(place, "peak_bytes")) < 0.91 * 0x50p30);
        }
        assert_int_equal(stages, json_integer_value(json_object_get(layout, "p")));
        json_array_foreach(json_object_get(layout, "layers"), k, count) layers +=
            json_integer_value(count);
        assert_int_equal(layers, 80);
        assert_int_equal(json_integer_value(json_object_get(layout, "gpus")),
                         json_integer_value(json_object_get(layout, "t")) *
                             json_integer_value(json_object_get(layout, "c")) *
                             json_integer_value(json_object_get(layout, "d")) * stages);
        double own = json_number_value(json_object_get(layout, "tokens_per_s"));
        assert_true(own <= rate);
        assert_close(own, 256 * 4096 / json_number_value(json_object_get(layout, "time_s")), 1e-9);
        rate = own;
    }
    json_decref(document);
    erg_text_release(&result.out);
}

static void the_table_lists_the_kinds(void **state)
{
    (void)state;
    /* The cluster of the job, from a file. */
    struct program_result own = run_program(SMALL), other = run_program(SMALL " -c " CLUSTER);
    assert_int_equal(own.exit_code, 0);
    assert_string_equal(own.out.data, other.out.data);
    assert_non_null(strstr(own.out.data, "on 32 H800-SXM-80GB of the engine megatron-kwai-h800, "
                                         "64 A100-SXM4-80GB of the engine megatron-kwai-a100"));
    assert_non_null(strstr(own.out.data, "energy by the model of H800-SXM-80GB: "));
    assert_non_null(strstr(own.out.data, "energy by the model of A100-SXM4-80GB: "));
    assert_non_null(strstr(own.out.data, "The fastest:\n  stages 0 to "));
    assert_non_null(strstr(own.out.data, "GiB; layers "));
    erg_text_release(&own.out);
    erg_text_release(&other.out);
}

/* One layout alone, beside the best, and for other software: the degrees that were asked for. */
static void one_layout(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *document = NULL, *best = NULL;
    struct program_result one = run_program(SMALL " --layout t=4,p=8,v=2 --json");
    struct program_result all = run_program(SMALL " --json");
    struct program_result why = run_program(SMALL " --why t=4,p=8,v=2");
    struct program_result arguments = run_program(SMALL " --layout t=4,p=8,v=2 --export megatron");
    assert_int_equal(one.exit_code, 0);
    assert_ok(erg_json_parse(&document, "output", one.out.data, one.out.count, &err), &err);
    assert_ok(erg_json_parse(&best, "output", all.out.data, all.out.count, &err), &err);
    const json_t *layouts = json_object_get(document, "layouts"), *layout;
    assert_int_equal(json_array_size(layouts), 1);
    layout = json_array_get(layouts, 0);
    assert_int_equal(json_integer_value(json_object_get(layout, "t")), 4);
    assert_int_equal(json_integer_value(json_object_get(layout, "p")), 8);
    assert_int_equal(json_integer_value(json_object_get(layout, "v")), 2);
    double slower = json_number_value(json_object_get(layout, "time_s")) /
                    json_number_value(json_object_get(
                        json_array_get(json_object_get(best, "layouts"), 0), "time_s"));
    char expected[80];
    snprintf(expected, sizeof expected, "t=4,p=8,v=2: %.1f %% slower than the fastest.\n",
             100 * (slower - 1));
    assert_true(slower > 1);
    assert_non_null(strstr(why.out.data, expected));
    assert_non_null(strstr(why.out.data, "This one:\n  stages 0 to "));
    assert_int_equal(arguments.exit_code, 0);
    assert_non_null(strstr(arguments.out.data, "# Ranks 0 to 31 on "));
    assert_non_null(strstr(arguments.out.data, "--pipeline-model-parallel-size 8\n"));
    json_decref(document);
    json_decref(best);
    erg_text_release(&one.out);
    erg_text_release(&all.out);
    erg_text_release(&why.out);
    erg_text_release(&arguments.out);
}

/* Energy like on one kind, the clock axis, the files, and a budget of memory. */
static void over_clocks(void **state)
{
    (void)state;
    static const char *const names[] = {"layouts.json", "layouts.html", "plan.json", "job.yaml"};
    struct erg_error err;
    json_t *document = NULL;
    char command[300];
    snprintf(command, sizeof command, CLOCKS " --deadline 0.3 -o %s --json", folder);
    struct program_result result = run_program(command);
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_json_parse(&document, "output", result.out.data, result.out.count, &err), &err);
    const json_t *best = json_array_get(json_object_get(document, "layouts"), 0), *places;
    const json_t *highest = json_object_get(best, "highest_clock");
    double time_s = json_number_value(json_object_get(best, "time_s"));
    double energy_j = json_number_value(json_object_get(best, "energy_j"));
    assert_true(time_s <= 0.3000001);
    assert_true(energy_j < json_number_value(json_object_get(highest, "energy_j")));
    assert_true(json_array_size(json_object_get(best, "frontier")) > 3);
    assert_int_equal(json_array_size(json_object_get(document, "kinds")), 2);
    assert_true(json_array_size(json_object_get(json_object_get(document, "points"), "time_s")) >
                50);
    /* None of the others that were looked at can be better by more than a little. */
    const json_t *planned = json_object_get(document, "planned");
    json_int_t solved = json_integer_value(json_object_get(planned, "solved"));
    assert_true(solved > 0 && solved < json_integer_value(json_object_get(planned, "fitting")));
    assert_true(json_number_value(json_object_get(planned, "gap")) <= 0.003);
    assert_int_equal(json_array_size(json_object_get(best, "stages")),
                     json_integer_value(json_object_get(best, "p")));
    places = json_object_get(best, "places");
    assert_true(json_array_size(places) > 0);
    assert_true(json_integer_value(json_object_get(best, "l")) >= 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(unlink(in_folder(names[i])), 0);
    json_decref(document);
    erg_text_release(&result.out);
    result = run_program(CLOCKS " --memory-budget 1.2e10 --json");
    assert_int_equal(result.exit_code, 0);
    assert_ok(erg_json_parse(&document, "output", result.out.data, result.out.count, &err), &err);
    best = json_array_get(json_object_get(document, "layouts"), 0);
    assert_true(json_number_value(json_object_get(best, "peak_bytes")) <= 1.004 * 1.2e10);
    assert_true(json_number_value(json_object_get(best, "energy_j")) > 0);
    json_decref(document);
    erg_text_release(&result.out);
}

/* A mean power that nothing keeps: the nearest is named, of the layouts that meet the deadline, and
 * what it needs is enough. */
static void the_nearest_to_a_power(void **state)
{
    (void)state;
    static const char says[] = "is within a mean power of 1 W with the other bounds: the nearest";
    struct program_result refused = run_program(CLOCKS " --deadline 0.3 --power-budget 1 2>&1");
    const char *at = strstr(refused.out.data, says);
    assert_int_equal(refused.exit_code, 3);
    assert_non_null(at);
    at = strstr(at, "needs ");
    assert_non_null(at);
    const double needed_w = atof(at + strlen("needs "));
    assert_true(needed_w > 100);
    for (int enough = 0; enough < 2; enough++) {
        char command[300];
        snprintf(command, sizeof command, CLOCKS " --deadline 0.3 --power-budget %.9g 2>&1",
                 needed_w * (enough ? 1.0001 : 0.997));
        struct program_result result = run_program(command);
        assert_int_equal(result.exit_code, enough ? 0 : 3);
        erg_text_release(&result.out);
    }
    erg_text_release(&refused.out);
}

/* Each stage recomputes and offloads what is best for it: faster than all the same; the job says it
 * so that other commands find what the plan found. */
static void stages_of_their_own(void **state)
{
    (void)state;
    const char *plan = "layout '" ERGON_TEST_SOURCE_DIR
                       "/examples/mixed/llama-3.2-1b_h800_a100.yaml' --memory-budget 7e9 --top 1";
    char command[400];
    snprintf(command, sizeof command, "%s --json", plan);
    json_t *same = run_json(command, 0);
    snprintf(command, sizeof command, "%s --per-stage --json -o '%s'", plan, in_folder(""));
    json_t *own = run_json(command, 0);
    snprintf(command, sizeof command, "memory '%s' --json", in_folder("job.yaml"));
    json_t *memory = run_json(command, 0), *stage;
    const json_t *best = json_array_get(json_object_get(own, "layouts"), 0);
    const json_t *stages = json_object_get(best, "stages");
    long differ = 0, offload = 0;
    size_t i;
    assert_true(number(json_object_get(best, "highest_clock"), "time_s") <
                0.999 * number(json_array_get(json_object_get(same, "layouts"), 0), "time_s"));
    assert_string_equal(json_string_value(json_object_get(best, "recompute")), "stages");
    assert_int_equal(json_array_size(json_object_get(memory, "stages")), number(best, "p"));
    json_array_foreach(json_object_get(memory, "stages"), i, stage)
    {
        const json_t *planned = json_array_get(stages, i);
        const char *recompute = json_string_value(json_object_get(planned, "recompute"));
        assert_string_equal(json_string_value(json_object_get(stage, "recompute")), recompute);
        assert_near(number(stage, "offload"), number(planned, "offload"), 0);
        assert_near(number(stage, "closed_form_bytes"), number(planned, "peak_bytes"), 0);
        assert_int_equal(number(stage, "layers"), number(planned, "layers"));
        assert_true(number(planned, "peak_bytes") <= 7e9 + 1);
        differ +=
            strcmp(recompute,
                   json_string_value(json_object_get(json_array_get(stages, 0), "recompute"))) != 0;
        offload += number(planned, "offload") > 0;
    }
    assert_true(differ > 0 && offload > 0);
    json_decref(memory);
    json_decref(own);
    json_decref(same);
    snprintf(command, sizeof command, "%s --per-stage", plan);
    check_program(command, 0, "; recompute ");
    snprintf(command, sizeof command,
             "optimize '%s' -o '%s' --method sequential+clocks --seed 1 2>&1",
             in_folder("job.yaml"), in_folder("plan"));
    check_program(command, 0, "selected: sequential+clocks");
}

/* GPUs of a kind that a layout uses. */
static double used(const json_t *layout, const char *gpu)
{
    const json_t *place;
    double sum = 0;
    size_t i;
    json_array_foreach(json_object_get(layout, "places"), i,
                       place) if (strcmp(json_string_value(json_object_get(place, "gpu")), gpu) ==
                                  0) sum += number(place, "gpus");
    return sum;
}

/* The fastest layout of GPUs of one kind alone, on a cluster that has no others. */
static double alone_s(const char *gpu, const char *engine, double gpus)
{
    char command[400], text[200];
    struct erg_error err;
    snprintf(text, sizeof text,
             "nodes: 1\ngpus_per_node: 4\ngpu: %s\ninter_node_bandwidth_gb_s: 100\n", gpu);
    assert_ok(erg_file_write(in_folder("alone.yaml"), text, strlen(text), &err), &err);
    snprintf(command, sizeof command, CLOCKS " --cluster '%s' --engine %s --gpus %.0f --json",
             in_folder("alone.yaml"), engine, gpus);
    json_t *document = run_json(command, 0);
    double time_s = number(json_array_get(json_object_get(document, "layouts"), 0), "time_s");
    json_decref(document);
    return time_s;
}

/* How many GPUs of each kind: every number on each kind alone and on both, and the best of all. */
static void numbers_of_each_kind(void **state)
{
    (void)state;
    static const char h800[] = "H800-SXM-80GB", a100[] = "A100-SXM4-80GB";
    char command[400];
    snprintf(command, sizeof command, CLOCKS " --gpus any --deadline 0.5 --json -o '%s'",
             in_folder(""));
    json_t *document = run_json(command, 0), *count;
    const json_t *counts = json_object_get(document, "counts");
    const json_t *best = json_array_get(json_object_get(document, "layouts"), 0);
    int rows = 0, both = 0;
    size_t i;
    json_array_foreach(counts, i, count)
    {
        const json_t *kinds = json_object_get(count, "kinds");
        const json_t *fastest = json_object_get(count, "fastest");
        const bool mixed = json_array_size(kinds) == 2;
        const double gpus = number(count, "gpus");
        rows++;
        both += mixed;
        assert_true(json_is_true(json_object_get(count, "fits")) || (mixed && gpus == 8));
        assert_near(number(fastest, "gpus"), gpus, 0);
        assert_near(used(fastest, h800) + used(fastest, a100), gpus, 0);
        assert_true((used(fastest, h800) > 0) + (used(fastest, a100) > 0) == 1 + mixed);
        const char *name = json_string_value(json_array_get(kinds, 0));
        if (!mixed)
            assert_close(number(fastest, "time_s"),
                         alone_s(name,
                                 strcmp(name, h800) ? "megatron-kwai-a100" : "megatron-kwai-h800",
                                 gpus),
                         1e-12);
    }
    /* 1, 2 and 4 alone, 2, 4 and 8 together. */
    assert_int_equal(rows, 2 * 3 + 3);
    assert_int_equal(both, 3);
    /* Fewer GPUs need less energy, and nothing says that both kinds must be used. */
    assert_true(number(best, "time_s") <= 0.5 * (1 + 1e-9));
    assert_true(number(best, "gpus") < 8);
    json_array_foreach(json_object_get(document, "frontier"), i, count)
        assert_non_null(json_object_get(count, "gpus_by_kind"));
    /* The job has what is used, and ergon memory finds what was planned. */
    snprintf(command, sizeof command, "memory '%s' --json", in_folder("job.yaml"));
    json_t *memory = run_json(command, 0), *stage;
    assert_near(number(memory, "gpus"), number(best, "gpus"), 0);
    json_array_foreach(json_object_get(memory, "stages"), i, stage)
        assert_near(number(stage, "closed_form_bytes"),
                    number(json_array_get(json_object_get(best, "stages"), i), "peak_bytes"), 0);
    json_decref(memory);
    json_decref(document);
    /* One number, whichever they are. */
    document = run_json(CLOCKS " --gpus 6 --json", 0);
    best = json_array_get(json_object_get(document, "layouts"), 0);
    assert_near(number(document, "gpus"), 6, 0);
    assert_near(used(best, h800) + used(best, a100), 6, 0);
    assert_null(json_object_get(document, "counts"));
    json_decref(document);
    check_program(CLOCKS " --gpus 1-8", 0, "fastest: 8 GPUs (4 H800-SXM-80GB, 4 A100-SXM4-80GB)");
    check_program(CLOCKS " --gpus 3,6 --per-stage", 0, "on 3 to 6 of 4 H800-SXM-80GB of the");
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *part;
        int exit_code;
    } cases[] = {
        {SMALL " --gpus 97 2>&1", "got 97, more than the 96 GPUs of all kinds in the cluster", 2},
        {SMALL " --gpus 8-97 2>&1", "got 97, more than the 96 GPUs of all kinds", 2},
        {SMALL " --gpus 9-15 2>&1", "'9-15', which contains no multiple", 2},
        {SMALL " --gpus 1,2 --layout t=1,p=4 2>&1", "--layout and --why need one", 2},
        {SMALL " --gpus 7 2>&1", "sequences fits on these GPUs; nearest is ", 3},
        {SMALL " --export profile 2>&1", "the cluster has nodes of several kinds; --export", 2},
        {CLOCKS " --deadline 0.03 2>&1", "is within a deadline of 0.03 s: the nearest, ", 3},
        {SMALL " --layout t=1,p=4 2>&1", "which fits with ", 3},
        {SMALL " --layout t=1,p=4 2>&1", "--layout t=1,p=4: no layout of huggyllama/llama-65b", 3},
        {SMALL " --layout t=1,p=4 --json 2>/dev/null", "\"reason\": \"--layout t=1,p=4: no layout",
         3},
        {SMALL " --why t=4,p=500 2>&1",
         "tensor 4 x context 1 x pipeline 500 are 2000 GPUs, and there are 96", 3},
        {SMALL " --layout t=1,p=81 2>&1", "has 80 layers, too few for 81 stages of 1 chunks", 3},
        {SMALL " --layout t=16,p=2 2>&1", "are 16 GPUs, more than the 8 of a node", 3},
        {SMALL " --layout t=3,p=2 2>&1", "cannot be divided among a tensor degree of 3", 3},
        {SMALL " --deadline 5 2>&1",
         "no layout that fits the GPUs is within a deadline of 5 s: the nearest, ", 3},
        {"optimize " JOB " 2>&1", "expected the key 'stage_gpus' with the GPU of each stage", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program_result result = run_program(cases[i].arguments);
        if (!strstr(result.out.data, cases[i].part))
            fail_msg("'%s' said '%s'", cases[i].arguments, result.out.data);
        assert_int_equal(result.exit_code, cases[i].exit_code);
        erg_text_release(&result.out);
    }
}

/* Every kind of nodes needs an engine of its own GPUs. */
static void engines_suit_their_gpus(void **state)
{
    (void)state;
    static const char suits[] = "engine: megatron-kwai-a100",
                      other[] = "engine: megatron-kwai-h800";
    char command[200], *text;
    const char *path = in_folder("job.yaml");
    struct erg_error err;
    assert_ok(erg_file_read(ERGON_TEST_SOURCE_DIR "/examples/mixed/llama-65b_h800_a100.yaml", 0,
                            &text, NULL, &err),
              &err);
    char *place = strstr(text, suits);
    assert_non_null(place);
    memcpy(place, other, sizeof other - 1); /* as long */
    assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
    snprintf(command, sizeof command, "layout %s 2>&1", path);
    struct program_result result = run_program(command);
    if (!strstr(result.out.data, "'megatron-kwai-h800' is of a GPU with a peak of 989 TFLOP/s, but "
                                 "A100-SXM4-80GB has 312"))
        fail_msg("it said '%s'", result.out.data);
    assert_int_equal(result.exit_code, 1);
    erg_text_release(&result.out);
    free(text);
}

/* Stages say by their GPU which nodes they lie on. */
static void test_nodes_that_a_job_cannot_tell_apart(void **state)
{
    (void)state;
    char command[500];
    snprintf(command, sizeof command,
             "sed 's/A100-SXM4-80GB/H800-SXM-80GB/; s/megatron-kwai-a100/megatron-kwai-h800/' "
             "'%s/examples/mixed/llama-65b_h800_a100.yaml' > %s/twins.yaml",
             ERGON_TEST_SOURCE_DIR, folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "layout %s/twins.yaml 2>&1", folder);
    check_program(command, 1, "several entries of nodes have the GPU H800-SXM-80GB");
    assert_int_equal(unlink(in_folder("twins.yaml")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_places),
        cmocka_unit_test(the_table_lists_the_kinds),
        cmocka_unit_test(one_layout),
        cmocka_unit_test(over_clocks),
        cmocka_unit_test(the_nearest_to_a_power),
        cmocka_unit_test(stages_of_their_own),
        cmocka_unit_test(numbers_of_each_kind),
        cmocka_unit_test(refusals),
        cmocka_unit_test(engines_suit_their_gpus),
        cmocka_unit_test(test_nodes_that_a_job_cannot_tell_apart),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
