/* ergon characterize: what it prints, writes and refuses; points on an emulated cluster and on the
 * host. */
#include "commands.h"
#include "json_file.h"
#include "train_job.h"

#define HEAD "cluster: charllm-h200\nengine: nemo-hopper\nbatch: 128\nsequence: 2048\n"

static void test_emulated(void **state)
{
    (void)state;
    write_text("small.yaml",
               "name: small\n" HEAD "optimisations: [act, cc+act]\npoints:\n"
               "  - {model: gpt3-175b, layouts: [\"t=8,p=4\", \"t=1,p=32\", \"t=3\"]}\n");
    check(0, "6 points, 5 runs", "characterize @/small.yaml --list");
    check(0, "gpt3-175b/t=3/b=1/act: tensor 3", "characterize @/small.yaml --list");
    check(0, "5 ran now; ok 3, out of memory 0, impossible 2, failed 0, not run 0",
          "characterize @/small.yaml -o @/small -j 2");
    check(0, "0 ran now; ok 3", "characterize @/small.yaml -o @/small");
    /* In another order, or one by one, it ends with the same bytes. */
    check(0, "1 ran now; ok 1, out of memory 0, impossible 0, failed 0, not run 4",
          "characterize @/small.yaml -o @/again --only '*t=1,p=32*'");
    check(0, "4 ran now", "characterize @/small.yaml -o @/again -j 1");
    shell("diff -r @/small @/again");
    check(0, "ok 3", "characterize --redraw @/again");
    shell("diff -r @/small @/again");
    check(2, "are not understood", "characterize --redraw @/again --figures 4,9");
    check(0, "ok 3", "characterize --redraw @/again --figures 17 --right j_per_token");
    /* Another seed is another point. */
    check(0, "5 ran now", "characterize @/small.yaml -o @/again --seed 2");
    struct erg_text line = with_folder("characterize @/small.yaml -o @/small --json");
    json_t *document = run_json(line.data, 0);
    assert_string_equal(json_string_value(json_object_get(document, "schema")),
                        "ergon.characterization");
    const json_t *marks = json_object_get(document, "marks");
    assert_int_equal(json_array_size(marks), 6);
    const json_t *first = json_array_get(marks, 0);
    assert_true(number(first, "time_s") > 20 && number(first, "time_s") < 40);
    /* 32 GPUs draw their mean power for an iteration. */
    assert_close(number(first, "energy_j"), 32 * number(first, "power_w") * number(first, "time_s"),
                 0.002);
    json_decref(document);
    erg_text_release(&line);
}

static void test_exit_codes(void **state)
{
    (void)state;
    write_text("none.yaml",
               "name: none\n" HEAD
               "points: [{model: gpt3-175b, layouts: [\"t=1,p=32\", \"t=2,p=16\"]}]\n");
    check(3, "none of the 2 points fits: stage 0 needs", "characterize @/none.yaml -o @/none");
    /* Of GPUs that no cap holds a finding fails. */
    check(0, "4      holds", "characterize --redraw @/small --check");
    shell(
        "cp -r @/small @/fast && sed -i 's/\"busy_clock_mhz\": 1[0-9]*/\"busy_clock_mhz\": 1980/' "
        "@/fast/points/*.json");
    check(1, "1 finding does not hold of these points", "characterize --redraw @/fast --check");
    check(1, "sweep.yaml", "characterize @/sweep.yaml");
    check(2, "needs SWEEP.yaml or --redraw DIR", "characterize");
    check(2, "expected no SWEEP.yaml", "characterize @/small.yaml --redraw @/small");
    check(2, "runs nothing", "characterize --redraw @/small --retry");
    check(1, "No such file", "characterize --redraw @/nothing");
    write_text("bad.yaml", "name: a/b\n" HEAD "points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\n");
    check(1, "bad.yaml:1: key 'name': expected letters", "characterize @/bad.yaml");
}

/* Every result is a document of its own, and the page shows the time that it has. */
static void test_host(void **state)
{
    (void)state;
    struct erg_error err;
    json_t *sweep, *point;
    assert_ok(erg_dir_make(in_folder("tiny"), &err), &err);
    write_text("tiny/config.json", small_llama);
    write_text("two.yaml", "nodes: 1\ngpus_per_node: 2\ngpu: H100-SXM\n");
    write_text("host.yaml",
               "name: host\ncluster: two.yaml\nengine: ergon\nbatch: 8\nsequence: 16\nrepeats: 2\n"
               "settle: {seconds: 0}\nrecord: {window_s: 0.02}\ntrace: {ranks: stages}\n"
               "points: [{model: ./tiny, layouts: [\"t=1\", \"t=2\"]}]\n"
               "optimisations: [base, act]\nfigures: [4, 8]\n");
    check(0, "4 ran now; ok 4", "characterize @/host.yaml --device host -o @/host");
    check(0, "0 ran now; ok 4", "characterize @/host.yaml --device host -o @/host");
    assert_ok(load_json(&sweep, in_folder("host/sweep.json"), &err), &err);
    const json_t *mark = json_array_get(json_object_get(sweep, "marks"), 0);
    assert_string_equal(json_string_value(json_object_get(mark, "name")), "tiny/t=1/b=1/base");
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s.json", in_folder("host/points"),
                    json_string_value(json_object_get(mark, "id")));
    assert_ok(load_json(&point, path.data, &err), &err);
    assert_string_equal(json_string_value(json_object_get(point, "source")), "measured");
    const json_t *metrics = json_object_get(point, "metrics");
    assert_true(number(metrics, "time_s") > 1e-5);
    /* A host has no GPU: nothing is said of its energy. */
    assert_null(json_object_get(metrics, "energy_j"));
    assert_int_equal(json_array_size(json_object_get(point, "repeats")), 2);
    json_decref(point);
    json_decref(sweep);
    erg_text_release(&path);
    shell("test $(ls @/host/twins | wc -l) = 4 && grep -q 'id=\"twins\"' @/host/report.html");
    /* One step is traced, behind the windows: the last line of the log has no window but it. */
    shell("test $(find @/host/runs -name 'trace-*.json' | wc -l) = 4");
    shell("for log in @/host/runs/*/run/metrics.jsonl; do tail -n 1 $log |"
          " grep -q '\"window_steps\": *1,' || exit 1; done");
    /* Nothing is left of weights. */
    shell("test -z \"$(find @/host -name checkpoints)\"");
    /* The same points on an emulated machine are others. */
    check(0, "4 ran now", "characterize @/host.yaml -o @/host-emulated");
    write_text("faulty.yaml",
               "name: host\ncluster: two.yaml\nengine: ergon\nbatch: 8\nsequence: 16\n"
               "points: [{model: ./tiny, layouts: [\"t=1\"], clocks: [900]}]\n");
    check(1, "1 of the points failed; the first is tiny/t=1/b=1/base/900MHz: points are measured",
          "characterize @/faulty.yaml --device host -o @/faulty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_host),
    };
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
