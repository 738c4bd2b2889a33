/* Studies: what their files come to, what is refused, and running them however they end. */
#include "study_world.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define EXAMPLES ERGON_TEST_SOURCE_DIR "/examples/characterize/"

static struct erg_study *load_example(const char *name)
{
    struct erg_study *study;
    struct erg_error err;
    char path[512];
    snprintf(path, sizeof path, EXAMPLES "%s.yaml", name);
    assert_ok(erg_study_load(&study, path, &(struct erg_study_change){.transient_s = NAN}, &err),
              &err);
    return study;
}

static const struct erg_study_mark *mark_of(const struct erg_study *study, const char *name)
{
    for (size_t i = 0; i < study->mark_count; i++)
        if (!strcmp(study->marks[i].name, name))
            return &study->marks[i];
    fail_msg("the study %s has no point %s", study->name, name);
    return NULL;
}

static const struct erg_study_point *point_of(const struct erg_study *study, const char *name)
{
    return &study->points[mark_of(study, name)->point];
}

/* ---- the files that come with ergon ---- */

static void test_shipped(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t marks, points;
    } shipped[] = {
        {"charllm-parallelism-h200", 15, 15},
        {"charllm-optimisation-h200", 60, 54},
        {"charllm-microbatch-h200", 60, 60},
        {"charllm-optimisation-h100", 68, 62},
        {"charllm-lora-h200", 26, 26},
        {"charllm-placement-h200", 12, 12},
        {"charllm-placement-llama-h200", 12, 12},
        {"charllm-fault-h200", 4, 4},
        {"local", 24, 24},
        {"charllm-mi250", 18, 18},
    };
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
        struct erg_study *study = load_example(shipped[i].name);
        assert_string_equal(study->name, shipped[i].name);
        if (study->mark_count != shipped[i].marks || study->point_count != shipped[i].points)
            fail_msg("%s has %zu points and %zu runs", study->name, study->mark_count,
                     study->point_count);
        erg_study_free(study);
    }
}

/* cc of a mixture of experts with t=1, and of a model of which nothing is to be exchanged, is the
 * base. */
static void test_equal(void **state)
{
    (void)state;
    static const char *const equal[] = {
        "gpt3-175b/t=1,p=32/b=1/cc",        "gpt3-175b/t=1,p=32/b=1/cc+act",
        "mixtral-8x22b/e=8,t=1,p=4/b=1/cc", "mixtral-8x22b/e=8,t=1,p=4/b=1/cc+act",
        "mixtral-8x7b/e=8,t=1/b=1/cc",      "mixtral-8x7b/e=8,t=1/b=1/cc+act",
    };
    struct erg_study *study = load_example("charllm-optimisation-h200");
    size_t found = 0;
    for (size_t i = 0; i < study->mark_count; i++)
        found += study->marks[i].equal;
    assert_int_equal(found, sizeof equal / sizeof *equal);
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        assert_true(mark_of(study, equal[i])->equal);
    assert_ptr_equal(point_of(study, "mixtral-8x7b/e=8,t=1/b=1/cc"),
                     point_of(study, "mixtral-8x7b/e=8,t=1/b=1/base"));
    /* What differs keeps its own: a dense model sums gradients over data ranks. */
    assert_int_equal(point_of(study, "llama-3.3-70b/t=1,p=16/b=1/cc")->overlap,
                     ERG_STUDY_OVERLAP_GRADIENTS);
    assert_int_equal(point_of(study, "llama-3.3-70b/t=8,p=2/b=1/cc")->overlap,
                     ERG_STUDY_OVERLAP_GRADIENTS | ERG_STUDY_OVERLAP_TENSOR);
    assert_int_equal(point_of(study, "llama-3.3-70b/t=8,fsdp=4/b=1/cc")->overlap,
                     ERG_STUDY_OVERLAP_TENSOR);
    assert_int_equal(point_of(study, "mixtral-8x7b/e=4,t=2/b=1/cc")->overlap,
                     ERG_STUDY_OVERLAP_TENSOR);
    erg_study_free(study);
}

static void test_labels(void **state)
{
    (void)state;
    static const char *const labels[][2] = {
        {"gpt3-175b/t=8,fsdp=4/b=1/act", "TP8 FSDP4"},
        {"gpt3-175b/t=1,p=32/b=1/act", "TP1 PP32"},
        {"mixtral-8x22b/e=8,t=1,p=4/b=1/act", "EP8 TP1 PP4"},
        {"mixtral-8x7b/e=8,t=1/b=1/act", "EP8 TP1 PP1"},
    };
    struct erg_study *study = load_example("charllm-parallelism-h200");
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        assert_string_equal(mark_of(study, labels[i][0])->label, labels[i][1]);
    erg_study_free(study);
}

static void test_layouts(void **state)
{
    (void)state;
    struct erg_study *study = load_example("charllm-placement-llama-h200");
    const struct erg_study_point *point =
        point_of(study, "llama-3.3-70b/t=4,p=4/b=1/act/layers=alternate+1/cold-first/inlet=42");
    const long layers[] = {21, 19, 21, 19};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(point->layout.chunk_layers[i], layers[i]);
    assert_int_equal(point->layout.data, 1);
    assert_int_equal(point->layout.microbatches, 64);
    assert_int_equal(point->layout.sequence, 8192);
    assert_int_equal(point->placement, ERG_STUDY_COLD_FIRST);
    assert_near(point->inlet_c, 42, 0);
    point = point_of(study, "llama-3.3-70b/t=4,p=4/b=1/act/inlet=29");
    assert_null(point->layout.chunk_layers);
    erg_study_free(study);
    study = load_example("charllm-optimisation-h100");
    point = point_of(study, "llama-3.3-70b/t=1,p=32/b=1/base");
    assert_non_null(strstr(point->impossible, "80 layers"));
    erg_study_free(study);
}

/* ---- IDs ---- */

static void test_ids(void **state)
{
    (void)state;
    const char *one = STUDY_HEAD "points: [{model: gpt3-175b, layouts: [\"t=8,p=4\"]}]\n";
    const char *other = STUDY_HEAD "microbatch: [2, 1]\noptimisations: [act, base]\npoints:\n"
                                   "  - {model: gpt3-175b, layouts: [\"p=4,t=8\", \"t=4,p=8\"]}\n";
    struct erg_study *a = load_study(one), *b = load_study(other);
    struct erg_study *seeded = load_study_as(
        one, &(struct erg_study_change){.seeded = true, .seed = 2, .transient_s = NAN});
    struct erg_study *exact =
        load_study_as(one, &(struct erg_study_change){.sensor = "exact", .transient_s = NAN});
    const char *id = a->points[0].id;
    assert_int_equal(strlen(id), 16);
    /* What else there is, and how it is written, does not matter. */
    assert_string_equal(id, point_of(b, "gpt3-175b/p=4,t=8/b=1/base")->id);
    assert_string_not_equal(id, point_of(b, "gpt3-175b/p=4,t=8/b=2/base")->id);
    assert_string_not_equal(id, point_of(b, "gpt3-175b/p=4,t=8/b=1/act")->id);
    assert_string_not_equal(id, point_of(b, "gpt3-175b/t=4,p=8/b=1/base")->id);
    assert_string_not_equal(id, seeded->points[0].id);
    assert_string_not_equal(id, exact->points[0].id);
    erg_study_free(a);
    erg_study_free(b);
    erg_study_free(seeded);
    erg_study_free(exact);
}

/* A clock and a power that the GPU has anyway, a fault that is none, a split that is equal. */
static void test_same_by_another_name(void **state)
{
    (void)state;
    struct erg_study *study = load_study(
        STUDY_HEAD "clocks: [0, 1980]\npower_w: [0, 700]\nlayers: [equal, \"24,24,24,24\"]\n"
                   "points: [{model: gpt3-175b, layouts: [\"t=8,p=4\"]}]\n");
    assert_int_equal(study->mark_count, 8);
    assert_int_equal(study->point_count, 1);
    assert_string_equal(study->marks[7].name,
                        "gpt3-175b/t=8,p=4/b=1/base/layers=24,24,24,24/1980MHz/700W");
    assert_false(study->marks[0].equal);
    assert_true(study->marks[7].equal);
    erg_study_free(study);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *rest, *part;
    } cases[] = {
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\nsweeps: 1\n", "sweep.yaml:7"},
        {"points: [{model: gpt4, layouts: [\"t=8\"]}]\n", "key 'points[0].model'"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\noptimisations: [ack]\n",
         "key 'optimisations[0]': expected one of base, cc, act, cc+act, got 'ack'"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"], microbatch: [0]}]\n",
         "key 'points[0].microbatch[0]': expected a number from 1"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\", \"t=8\"]}]\n",
         "the point 'gpt3-175b/t=8/b=1/base' is listed twice"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\nfigures: [4, 6]\n",
         "key 'figures[1]': expected one of 4, 5, 8, 10, 13, 15 and 17, got 6"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\noptimisations: [cc]\nrecompute: "
         "[full]\n",
         "'optimisations' sets overlap"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\nlayers: [\"12;12\"]\n",
         "key 'layers[0]': expected equal, alternate+1"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\nfaults: [{node: 4, clock_share: "
         "0.25}]\n",
         "expected a node from 0 to 3, got 4"},
        {"points: [{model: gpt3-175b, layouts: [\"t=8\"], lora: {rank: 8, targets: [qvk]}}]\n",
         "key 'points[0].lora.targets[0]': expected one of qkv"},
    };
    struct erg_study *study;
    struct erg_error err;
    const struct erg_study_change change = {.transient_s = NAN};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        erg_text_printf(&text, "%s%s", STUDY_HEAD, cases[i].rest);
        write_text("sweep.yaml", text.data);
        erg_text_release(&text);
        assert_fails(erg_study_load(&study, in_folder("sweep.yaml"), &change, &err), &err,
                     cases[i].part);
    }
    write_text("sweep.yaml", "name: x\ncluster: charllm-h20\nengine: nemo-hopper\nbatch: 1\n"
                             "points: [{model: gpt3-175b, layouts: [\"t=8\"]}]\n");
    assert_fails(erg_study_load(&study, in_folder("sweep.yaml"), &change, &err), &err,
                 "key 'points[0]': expected the key 'sequence'");
    write_text("sweep.yaml", "name: x\ncluster: charllm-h20\nengine: nemo-hopper\nbatch: 1\n"
                             "sequence: 2048\npoints: [{model: gpt3-175b, layouts: [\"t=8\"]}]\n");
    assert_fails(erg_study_load(&study, in_folder("sweep.yaml"), &change, &err), &err,
                 "did you mean 'charllm-h200'?");
}

/* What cannot be is a point with a sentence. */
static void test_impossible(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"t=3,p=4", "GPUs are not a multiple"},
        {"t=1,p=32,e=2", "has no experts"},
        {"t=8,p=4,x=1", "is invalid"},
        {"t=1,p=5", "not a multiple"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        erg_text_printf(&text, "%spoints: [{model: gpt3-175b, layouts: [\"%s\"]}]\n", STUDY_HEAD,
                        cases[i][0]);
        struct erg_study *study = load_study(text.data);
        assert_non_null(study->points[0].impossible);
        if (!strstr(study->points[0].impossible, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], study->points[0].impossible);
        erg_study_free(study);
        erg_text_release(&text);
    }
}

/* ---- running ---- */

#define FOUR_LAYOUTS                                                                               \
    "points: [{model: gpt3-175b, layouts: [\"t=8,p=4\", \"t=4,p=8\", \"t=2,p=16\", \"t=3\"]}]\n"

static struct erg_text contents_of(const char *name)
{
    struct erg_text command = {0}, all = {0};
    char block[4096];
    size_t count;
    erg_text_printf(&command,
                    "cd '%s' && find . -type f ! -name lock | sort | while read f; do echo \"$f\"; "
                    "cat \"$f\"; done",
                    in_folder(name));
    FILE *pipe = popen(command.data, "r");
    assert_non_null(pipe);
    while ((count = fread(block, 1, sizeof block, pipe)) > 0)
        erg_text_add_bytes(&all, block, count);
    assert_int_equal(pclose(pipe), 0);
    erg_text_release(&command);
    return all;
}

static int fail_deep(void *context, const struct erg_study_point *point,
                     struct erg_study_result *result, struct erg_arena *arena,
                     struct erg_error *err)
{
    if (point->layout.pipeline < 16)
        return make_up(context, point, result, arena, err);
    return erg_fail(err, ERG_FAILED, "a pipeline of %ld", point->layout.pipeline);
}

static void test_statuses(void **state)
{
    (void)state;
    struct erg_study *study = load_study(STUDY_HEAD FOUR_LAYOUTS);
    struct erg_study_tally tally;
    struct erg_error err;
    run_study_by(study, "statuses", fail_deep, &tally);
    assert_int_equal(tally.ran, 4);
    assert_int_equal(tally.by_status[ERG_RESULT_OK], 2);
    assert_int_equal(tally.by_status[ERG_RESULT_IMPOSSIBLE], 1);
    assert_int_equal(tally.by_status[ERG_RESULT_FAILED], 1);
    assert_string_equal(tally.first.message, "gpt3-175b/t=2,p=16/b=1/base: a pipeline of 16");
    /* Its error is kept, and not tried again but where that is asked for. */
    run_study_by(study, "statuses", make_up, &tally);
    assert_int_equal(tally.ran, 0);
    assert_string_equal(tally.first.message, "gpt3-175b/t=2,p=16/b=1/base: a pipeline of 16");
    struct erg_study_run run = {.study = study,
                                .folder = in_folder("statuses"),
                                .retry = true,
                                .only = "*p=4/*",
                                .point = make_up};
    assert_ok(erg_study_run(&run, &tally, &err), &err);
    assert_int_equal(tally.ran, 0);
    run.folder = in_folder("statuses");
    run.only = "*p=16/*";
    assert_ok(erg_study_run(&run, &tally, &err), &err);
    assert_int_equal(tally.ran, 1);
    assert_int_equal(tally.by_status[ERG_RESULT_OK], 3);
    assert_int_equal(tally.by_status[ERG_RESULT_FAILED], 0);
    erg_study_free(study);
}

static void test_only(void **state)
{
    (void)state;
    struct erg_study *study = load_study(STUDY_HEAD "optimisations: [base, cc]\n" FOUR_LAYOUTS);
    struct erg_study_tally tally;
    struct erg_error err;
    int claim;
    struct erg_study_run run = {
        .study = study, .folder = in_folder("only"), .only = "*/cc", .point = make_up};
    assert_ok(erg_study_claim(&claim, study, run.folder, &err), &err);
    run.folder = in_folder("only");
    assert_ok(erg_study_run(&run, &tally, &err), &err);
    assert_int_equal(tally.ran, 4);
    assert_int_equal(tally.by_status[ERG_RESULT_SKIPPED], 4);
    erg_study_release(claim);
    erg_study_free(study);
}

static void test_claim(void **state)
{
    (void)state;
    struct erg_study *study = load_study(STUDY_HEAD FOUR_LAYOUTS);
    struct erg_error err;
    int claim, other;
    assert_ok(erg_study_claim(&claim, study, in_folder("claimed"), &err), &err);
    assert_fails(erg_study_claim(&other, study, in_folder("claimed"), &err), &err,
                 "another \"ergon characterize\" runs in");
    erg_study_release(claim);
    assert_ok(erg_study_claim(&claim, study, in_folder("claimed"), &err), &err);
    erg_study_release(claim);
    erg_study_free(study);
}

/* ---- killed ---- */

static int make_up_slowly(void *context, const struct erg_study_point *point,
                          struct erg_study_result *result, struct erg_arena *arena,
                          struct erg_error *err)
{
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    return make_up(context, point, result, arena, err);
}

/* Runs the study in a process of its own that is killed after so long; whether it was. */
static bool run_and_kill(const struct erg_study *study, const char *name, long after_us)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct erg_study_tally tally;
        run_study_by(study, name, make_up_slowly, &tally);
        _exit(0);
    }
    nanosleep(&(struct timespec){.tv_nsec = after_us * 1000}, NULL);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
}

static void test_killed(void **state)
{
    (void)state;
    enum { KILLS = 50 };
    struct erg_study *study = load_example("charllm-microbatch-h200");
    struct erg_study_tally tally;
    struct erg_rng rng;
    erg_rng_seed(&rng, 7);
    run_study_by(study, "whole", make_up_slowly, &tally);
    assert_int_equal(tally.ran, 60);
    struct erg_text whole = contents_of("whole");
    size_t killed = 0;
    for (int i = 0; killed < KILLS && i < 400; i++)
        if (run_and_kill(study, "killed", 1 + (long)erg_rng_below(&rng, 20000)))
            killed++;
        else
            remove_tree(in_folder("killed"));
    assert_int_equal(killed, KILLS);
    run_study_by(study, "killed", make_up_slowly, &tally);
    struct erg_text again = contents_of("killed");
    assert_int_equal(whole.count, again.count);
    assert_memory_equal(whole.data, again.data, whole.count);
    erg_text_release(&whole);
    erg_text_release(&again);
    erg_study_free(study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped),  cmocka_unit_test(test_equal),
        cmocka_unit_test(test_labels),   cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_ids),      cmocka_unit_test(test_same_by_another_name),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_statuses), cmocka_unit_test(test_only),
        cmocka_unit_test(test_claim),    cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
