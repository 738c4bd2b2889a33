/* ergon layout --slots: which slots of a node the groups of a layout take. */
#include "commands.h"

/* Front and rear slots in turn, in hot air: groups in the order of the ranks are of both kinds. */
static const char chassis[] = "name: mixed\nconfidence: none\n"
                              "slots:\n"
                              "  - {position: front, lane: 0}\n  - {position: rear, lane: 0}\n"
                              "  - {position: front, lane: 1}\n  - {position: rear, lane: 1}\n"
                              "  - {position: front, lane: 2}\n  - {position: rear, lane: 2}\n"
                              "  - {position: front, lane: 3}\n  - {position: rear, lane: 3}\n"
                              "heat:\n  inlet_c: INLET\n  die_k_per_w: 0.0196\n"
                              "  sink_k_per_w: 0.0294\n  air_k_per_w: 0.0245\n"
                              "  die_time_s: 2\n  sink_time_s: 60\n"
                              "limit:\n  hold_c: 87\n";

static void write_node(const char *name, int inlet_c)
{
    const char *at = strstr(chassis, "INLET");
    char text[1024];
    snprintf(text, sizeof text, "%.*s%d%s", (int)(at - chassis), chassis, inlet_c,
             at + strlen("INLET"));
    write_text(name, text);
}

static void write_cluster(const char *name, const char *more)
{
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "nodes: 4\ngpus_per_node: 8\ngpu: H800-SXM-80GB\n"
                    "inter_node_bandwidth_gb_s: 100\n%s",
                    more);
    struct erg_text whole = with_folder(text.data);
    write_text(name, whole.data);
    erg_text_release(&whole);
    erg_text_release(&text);
}

#define JOB ERGON_TEST_SOURCE_DIR "/examples/kwai/llama-65b.yaml"

/* "plan", the job and the options, with @ for the folder. */
static struct erg_text line_of(const char *options)
{
    struct erg_text text = {0};
    erg_text_printf(&text, "layout " JOB " %s", options);
    struct erg_text line = with_folder(text.data);
    erg_text_release(&text);
    return line;
}

static json_t *plan(const char *options)
{
    struct erg_text line = line_of(options);
    json_t *root = run_json(line.data, 0);
    erg_text_release(&line);
    return root;
}

static void check(int exit_code, const char *part, const char *options)
{
    struct erg_text line = line_of(options);
    check_program(line.data, exit_code, part);
    erg_text_release(&line);
}

static double slot_number(json_t *root, const char *which, int node, int slot, const char *key)
{
    char path[80];
    snprintf(path, sizeof path, "%s.nodes.%d.slots.%d.%s", which, node, slot, key);
    return number_at(root, path);
}

static void hot_nodes_get_groups_of_one_kind(void **state)
{
    (void)state;
    write_node("hot.yaml", 47);
    write_cluster("hot-cluster.yaml", "chassis: @/hot.yaml\n");
    json_t *root = plan("--slots --json -c @/hot-cluster.yaml -l t=4,p=8");
    assert_near(number_at(root, "stages.3.0"), 6, 0);
    assert_near(number_at(root, "stages.3.1"), 7, 0);
    double layers = 0;
    for (int n = 0; n < 4; n++) {
        const double front = slot_number(root, "best", n, 0, "group");
        for (int i = 0; i < 8; i++) {
            assert_near(slot_number(root, "given", n, i, "group"), i / 4, 0);
            assert_near(slot_number(root, "best", n, i, "group"), i % 2 ? 1 - front : front, 0);
            assert_true(slot_number(root, "best", n, i, "temperature_c") < 87.01);
        }
    }
    for (int stage = 0; stage < 8; stage++) {
        char path[32];
        snprintf(path, sizeof path, "best.layers.%d", stage);
        layers += number_at(root, path);
    }
    assert_near(layers, 80, 0);
    assert_true(number_at(root, "best.pipeline_s") < 0.95 * number_at(root, "given.pipeline_s"));
    assert_true(number_at(root, "heat_share") > 0.9);
    json_decref(root);
    check(0, "4 nodes cooled as mixed", "--slots -c @/hot-cluster.yaml -l t=4,p=8");
    check(0, "% is there because GPUs are not equally hot",
          "--slots -c @/hot-cluster.yaml -l t=4,p=8");
}

/* Where nothing is hot, time is that of the layout. */
static void cool_nodes_run_as_planned(void **state)
{
    (void)state;
    write_node("cool.yaml", 10);
    write_cluster("cool-cluster.yaml", "chassis: @/cool.yaml\n");
    json_t *root = plan("--slots --json -c @/cool-cluster.yaml -l t=4,p=8");
    json_t *layouts = plan("--json -c @/cool-cluster.yaml -l t=4,p=8");
    assert_close(number_at(root, "given.pipeline_s"), number_at(layouts, "layouts.0.time_s"), 0.03);
    for (int i = 0; i < 8; i++)
        assert_true(slot_number(root, "given", 0, i, "temperature_c") < 70);
    json_decref(layouts);
    json_decref(root);
}

static void missing_slots_are_explained(void **state)
{
    (void)state;
    write_cluster("plain.yaml", "");
    write_cluster("eight.yaml", "chassis: hgx-8-air\n");
    check(1, "expected the key 'chassis' next to 'gpu'", "--slots -c @/plain.yaml -l t=4,p=8 2>&1");
    check(1, "its groups of 8 GPUs must be smaller than the 8 of a node",
          "--slots -c @/eight.yaml -l t=8,p=4 2>&1");
    check(1, "it has virtual stages", "--slots -c @/eight.yaml -l t=4,p=8,v=2 2>&1");
    check(2, "--slots places one layout", "--slots -c @/eight.yaml --why t=4,p=8 2>&1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hot_nodes_get_groups_of_one_kind),
        cmocka_unit_test(cool_nodes_run_as_planned),
        cmocka_unit_test(missing_slots_are_explained),
    };
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
