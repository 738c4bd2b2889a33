/* Doors to this machine: the state of GPUs once and as a picture, probes, the daemon, and ranks. */
#include "daemon_world.h"
#include "folder.h"

#include <ergon/ergon.h>

#include <jansson.h>

static json_t *document_of(const struct erg_answer *answer)
{
    json_t *root = json_loads(erg_answer_json(answer), 0, NULL);
    assert_non_null(root);
    return root;
}

static const json_t *item(const json_t *root, const char *list, size_t index)
{
    const json_t *found = json_array_get(json_object_get(root, list), index);
    assert_non_null(found);
    return found;
}

static void set_gpus(const char *script)
{
    write_text("world", script);
    setenv("ERGON_NVML", ERGON_TEST_FAKE_NVML, 1);
    setenv("ERGON_FAKE_NVML", in_folder("world"), 1);
}

/* ---- the state of GPUs ---- */

static void the_state_is_a_document(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    set_gpus("gpus 2\ngpu 0 power 0=100\ngpu 1 power 0=250\ngpu * counter 0.05 0.01\n");
    struct erg_ask_monitor question = {.size = sizeof question, .gpus = "1"};
    assert_ok(erg_ask_monitor(&answer, &question, &err), &err);
    json_t *root = document_of(answer);
    assert_int_equal(json_array_size(json_object_get(root, "gpus")), 1);
    assert_near(json_number_value(json_object_get(item(root, "gpus", 0), "power_inst_mw")), 250e3,
                1);
    assert_non_null(strstr(erg_answer_text(answer), "250 W"));
    json_decref(root);
    erg_answer_free(answer);
    question.interval_ms = 10;
    assert_fails(erg_ask_monitor(&answer, &question, &err), &err, "interval_ms got 10");
    question.interval_ms = 0;
    question.gpus = "7";
    assert_fails(erg_ask_monitor(&answer, &question, &err), &err, "7");
}

/* The runs of a picture as rows of text: they fill every column of every row. */
static void read_rows(const struct erg_monitor *monitor, char rows[][81], int count)
{
    struct erg_monitor_run run = {.size = sizeof run};
    struct erg_error err;
    int row = -1, column = 80;
    for (size_t i = 0; i < erg_monitor_runs(monitor); i++) {
        assert_ok(erg_monitor_run(monitor, i, &run, &err), &err);
        if (run.row != row) {
            assert_int_equal(column, 80);
            assert_int_equal(run.row, row + 1);
            row = run.row;
            column = 0;
            rows[row][0] = '\0';
        }
        assert_int_equal(run.column, column);
        assert_in_range(run.style, ERG_STYLE_PLAIN, ERG_STYLE_BAD);
        column += (int)strlen(run.text); /* of ASCII */
        assert_true(column <= 80);
        strcat(rows[row], run.text);
    }
    assert_int_equal(row, count - 1);
    assert_int_equal(column, 80);
}

static void the_state_is_a_picture(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_monitor *monitor;
    struct erg_monitor_run run = {.size = sizeof run};
    struct erg_monitor_picture picture = {
        .size = sizeof picture, .rows = 3, .columns = 80, .ascii = 1};
    char rows[3][81];
    set_gpus("gpus 4\ngpu * power 0=100\ngpu * counter 0.05 0.01\n");
    assert_ok(erg_monitor_open(
                  &monitor,
                  &(struct erg_monitor_options){.size = sizeof(struct erg_monitor_options)}, &err),
              &err);
    assert_int_equal(erg_monitor_gpus(monitor), 4);
    assert_int_equal(erg_monitor_page(monitor, 3), 2);
    assert_int_equal(erg_monitor_runs(monitor), 0);
    rows[0][0] = '\0';
    for (int i = 0; i < 100 && !strstr(rows[0], "400 W  "); i++) { /* until all have answered */
        erg_sleep_ns(i * 1000000);
        assert_ok(erg_monitor_draw(monitor, &picture, &err), &err);
        read_rows(monitor, rows, 3);
    }
    assert_non_null(strstr(rows[0], "4 GPUs  400 W"));
    assert_non_null(strstr(rows[1], "100/700 W"));
    assert_int_equal(strspn(rows[1], " "), strspn(rows[2], " "));
    const char shown[] = {rows[1][strspn(rows[1], " ")], rows[2][strspn(rows[2], " ")], '\0'};
    assert_string_equal(shown, "01");
    picture.first = 2;
    assert_ok(erg_monitor_draw(monitor, &picture, &err), &err);
    read_rows(monitor, rows, 3);
    assert_int_equal(rows[1][strspn(rows[1], " ")], '2');
    assert_fails(erg_monitor_run(monitor, erg_monitor_runs(monitor), &run, &err), &err,
                 "expected one below");
    picture.columns = 2001;
    assert_fails(erg_monitor_draw(monitor, &picture, &err), &err, "expected 0 to 2000");
    erg_monitor_close(monitor);
    erg_monitor_close(NULL);
    setenv("ERGON_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
    assert_fails(erg_monitor_open(&monitor, NULL, &err), &err, "NVIDIA");
    assert_int_equal(err.status, ERG_NO_DEVICE);
}

/* ---- probes ---- */

static void probes_are_answers(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_answer *answer;
    struct erg_ask_probe question = {
        .size = sizeof question, .device = "emulated", .base = "A100-SXM4-40GB"};
    char file[4096];
    assert_ok(erg_ask_probe(&answer, &question, &err), &err);
    json_t *root = document_of(answer);
    assert_string_equal(json_string_value(json_object_get(root, "gpu")), "A100-SXM4-40GB");
    assert_int_equal(json_integer_value(json_object_get(root, "gpus")), 2);
    assert_non_null(strstr(erg_answer_text(answer), "each on 2 GPUs\n"));
    json_decref(root);
    erg_answer_free(answer);
    snprintf(file, sizeof file, "%s", in_folder("node.yaml"));
    question = (struct erg_ask_probe){.size = sizeof question,
                                      .device = "emulated",
                                      .thermal = 1,
                                      .turn_s = 60,
                                      .calibrate = file};
    assert_ok(erg_ask_probe(&answer, &question, &err), &err);
    root = document_of(answer);
    assert_string_equal(json_string_value(json_object_get(root, "chassis")), "node");
    assert_string_equal(json_string_value(json_object_get(root, "coupling")), "coupled");
    assert_int_equal(json_array_size(json_object_get(root, "slots")), 8);
    assert_non_null(strstr(erg_answer_text(answer), "time constants: die "));
    assert_int_equal(access(file, R_OK), 0);
    json_decref(root);
    erg_answer_free(answer);
}

static void wrong_probes_are_refused(void **state)
{
    (void)state;
    static const char *const command[] = {"true", NULL};
    struct erg_error err;
    struct erg_answer *answer;
    struct erg_ask_probe question = {.size = sizeof question, .device = "cudas"};
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "did you mean 'cuda'");
    question = (struct erg_ask_probe){.size = sizeof question, .gpus = 2};
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "run -n 2 -- ergon probe");
    question = (struct erg_ask_probe){.size = sizeof question, .gpus = 9, .device = "emulated"};
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "gpus got 9");
    question = (struct erg_ask_probe){.size = sizeof question, .calibrate = "gpu.yml"};
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "ends in .yaml");
    question = (struct erg_ask_probe){.size = sizeof question, .from = "a.csv", .rows = "b.csv"};
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "--from and --rows");
    question = (struct erg_ask_probe){.size = sizeof question, .command = command};
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "only with --thermal");
    question.thermal = 1;
    question.from = "a.rec";
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "--from was given with");
    question.from = NULL;
    question.device = "emulated";
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "with --device emulated");
    question = (struct erg_ask_probe){
        .size = sizeof question, .thermal = 1, .from = "a", .base = "b", .calibrate = "cc.yaml"};
    assert_fails(erg_ask_probe(&answer, &question, &err), &err, "--calibrate and --base");
}

/* ---- the daemon ---- */

static void the_daemon_says_what_it_lends(void **state)
{
    (void)state;
    struct daemon_world world = daemon_world_begin(
        "", "rules:\n  - {user: '@me', may: [clock, power], gpus: '0', power_w: [400, 650]}\n");
    struct erg_error err;
    struct erg_answer *answer;
    const struct erg_ask_daemon question = {.size = sizeof question, .socket = world.socket};
    start_daemon(&world);
    struct erg_daemon_client *client = connect_client(&world);
    take_lease(client, 0, ERG_KNOB_CLOCK);
    assert_ok(erg_ask_daemon(&answer, &question, &err), &err);
    json_t *root = document_of(answer);
    assert_int_equal(json_array_size(json_object_get(root, "gpus")), 8);
    const json_t *clock = item(item(root, "gpus", 0), "knobs", 0);
    const json_t *power = item(item(root, "gpus", 0), "knobs", 1);
    assert_string_equal(json_string_value(json_object_get(clock, "knob")), "clock");
    assert_int_equal(json_integer_value(json_object_get(clock, "most")), 1980);
    assert_int_equal(json_integer_value(json_object_get(clock, "held_by_uid")), geteuid());
    assert_int_equal(json_integer_value(json_object_get(power, "least")), 400000);
    assert_string_equal(json_string_value(json_object_get(power, "unit")), "mW");
    assert_true(json_is_true(json_object_get(power, "allowed")));
    assert_true(json_is_null(json_object_get(power, "held_by_uid")));
    assert_true(json_is_false(json_object_get(item(item(root, "gpus", 7), "knobs", 1), "allowed")));
    assert_non_null(strstr(erg_answer_text(answer), "  power     400 to    650 W    allowed\n"));
    json_decref(root);
    erg_answer_free(answer);
    erg_daemon_disconnect(client);

    struct erg_grant grant = {
        .size = sizeof grant, .socket = world.socket, .job = 7, .uid = 1000, .gpus = "0,2"};
    assert_ok(erg_grant_gpus(&grant, &err), &err);
    assert_int_equal(audit_lines(&world, "\"event\":\"grant\"", "\"gpus\":\"5\"", 1), 1);
    grant.gpus = "8";
    assert_fails(erg_grant_gpus(&grant, &err), &err, "there is no GPU 8, expected 0 to 7");
    assert_int_equal(err.status, ERG_USAGE);
    grant.gpus = NULL;
    assert_ok(erg_grant_gpus(&grant, &err), &err);
    assert_int_equal(audit_lines(&world, "\"event\":\"revoke\"", "", 1), 1);
    grant.job = 0;
    assert_fails(erg_grant_gpus(&grant, &err), &err, "from 1 on");
    stop_daemon(&world);
    assert_fails(erg_ask_daemon(&answer, &question, &err), &err, "connecting to the daemon");
    assert_int_equal(err.status, ERG_NO_DEVICE);
    daemon_world_end(&world);
}

/* ---- ranks ---- */

struct lines {
    int of_rank[2], errors;
    struct erg_text text;
};

static void keep_line(void *context, int rank, int is_error, const char *text, size_t count)
{
    struct lines *lines = context;
    assert_in_range(rank, 0, 1);
    lines->of_rank[rank]++;
    lines->errors += is_error;
    erg_text_add_bytes(&lines->text, text, count);
    erg_text_add(&lines->text, "\n");
}

static void ranks_are_started(void **state)
{
    (void)state;
    static const char *const script[] = {
        "sh", "-c", "echo $ERGON_RANK of $ERGON_WORLD_SIZE; echo bad >&2", NULL};
    static const char *const failing[] = {"sh", "-c", "exit $((7 * ERGON_RANK))", NULL};
    static const char *const slow[] = {"sleep", "60", NULL};
    struct erg_error err;
    struct lines lines = {.errors = 0};
    struct erg_launch_options options = {.size = sizeof options,
                                         .ranks = 2,
                                         .command = script,
                                         .line = keep_line,
                                         .context = &lines};
    assert_ok(erg_launch_ranks(&options, &err), &err);
    assert_int_equal(lines.of_rank[0], 2);
    assert_int_equal(lines.of_rank[1], 2);
    assert_int_equal(lines.errors, 2);
    assert_non_null(strstr(lines.text.data, "0 of 2\n"));
    assert_non_null(strstr(lines.text.data, "1 of 2\n"));
    erg_text_release(&lines.text);
    options.line = NULL;
    assert_ok(erg_launch_ranks(&options, &err), &err);
    options.command = failing;
    assert_fails(erg_launch_ranks(&options, &err), &err, "rank 1");
    assert_int_equal(err.status, 7);
    options.command = slow;
    options.timeout_s = 0.2;
    assert_fails(erg_launch_ranks(&options, &err), &err, "0.2");
    assert_int_equal(err.status, 124);
    options.ranks = ERG_LAUNCH_MOST_RANKS + 1;
    assert_fails(erg_launch_ranks(&options, &err), &err, "1 to 4096 ranks");
    options.ranks = 0;
    assert_fails(erg_launch_ranks(&options, &err), &err, "1 to 4096 ranks");
    assert_fails(erg_launch_managed(NULL, NULL, &err), &err, "expected its folder");
    assert_fails(erg_launch_managed(in_folder("no-job"), NULL, &err), &err,
                 "16 hexadecimal digits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_is_a_document),
        cmocka_unit_test(the_state_is_a_picture),
        cmocka_unit_test(probes_are_answers),
        cmocka_unit_test(wrong_probes_are_refused),
        cmocka_unit_test(the_daemon_says_what_it_lends),
        cmocka_unit_test(ranks_are_started),
    };
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
