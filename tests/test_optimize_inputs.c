/* Everything that can be wrong around `ergon optimize`: one sentence each, the right exit code. */
#define _GNU_SOURCE /* nftw */
#include "optimize.h"

#include <ftw.h>
#include <sys/resource.h>

static int set_up(void **state)
{
    if (make_quick_folder(state))
        return -1;
    write_job("job.yaml", "", "");
    check_optimize("job.yaml", "good", "", 0, "selected: ergon");
    return 0;
}

static void check_job(const char *line, const char *replacement, const char *sentence)
{
    write_job("wrong.yaml", line, replacement);
    check_optimize("wrong.yaml", "never", "", 1, sentence);
    assert_int_not_equal(access(in_folder("never"), F_OK), 0);
}

static void test_wrong_jobs(void **state)
{
    (void)state;
    check_job("tensor: 2", "tensr: 2", "wrong.yaml:3: unknown key 'tensr'; did you mean");
    check_job("tensor: 2", "tensor: 3", "wrong.yaml:3: key 'tensor': the 32 attention heads");
    check_job("tensor: 2", "tensor: two", "wrong.yaml:3");
    check_job("gpus_per_node: 4", "gpus_per_node: 8",
              "wrong.yaml:2: key 'cluster': the cluster has 8");
    check_job("nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\npipeline: 2\n",
              "nodes: 1, gpus_per_node: 64, gpu: A100-SXM4-40GB}\ntensor: 2\npipeline: 32\n",
              "key 'pipeline': meta-llama/Llama-3.2-1B has 16 layers, too few for 32 x 1 stages");
    check_job("pipeline: 2", "pipeline: 2\nlayers: [9, 9]", "key 'layers");
    check_job("model: llama-3.2-1b", "model: llama-3.2-1", "wrong.yaml:1: key 'model'");
    check_job("A100-SXM4-40GB", "A100", "key 'cluster.gpu'");
    check_job("budget: 5", "budget: -5", "key 'search.budget'");
    check_job("window_s: 0.5", "window_s: .nan", "key 'profiler.window_s'");
    check_job(SMALL_JOB, "", "wrong.yaml");
    check_optimize("nowhere.yaml", "never", "", 1, "nowhere.yaml': No such file");
    check_optimize("good", "never", "", 1, "good': Is a directory");
}

/* Real GPUs: none is visible here, wherever the tests run. */
static void test_missing_gpus_are_named(void **state)
{
    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    write_job("single.yaml", "gpus_per_node: 4, gpu: A100-SXM4-40GB}\ntensor: 2\npipeline: 2\n",
              "gpus_per_node: 2, gpu: A100-SXM4-40GB}\ntensor: 1\npipeline: 2\n");
    check_optimize("single.yaml", "never", "--device cuda", 4,
                   "or use emulated GPUs with --device emulated");
    if (ERGON_TEST_CUDA) {
        write_job("mesh.yaml", "tensor: 2\npipeline: 2\n", "tensor: 2\ncontext: 2\n");
        check_optimize("mesh.yaml", "never", "--device cuda", 2,
                       "tensor 2 x context 2 needs 4 processes, one per GPU, but there is 1");
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    check_optimize("single.yaml", "never", "--device tpu", 2, "--device");
}

static void test_impossible_goals_name_the_binding_limit(void **state)
{
    (void)state;
    json_t *plan = load_plan("good");
    json_t *points =
        json_object_get(json_object_get(json_object_get(plan, "methods"), "ergon"), "points");
    double fastest_s = json_real_value(json_object_get(json_array_get(points, 0), "time_s"));
    json_decref(plan);
    char sentence[160];
    snprintf(sentence, sizeof sentence, "the deadline of 0.01 s binds: the fastest takes %.3f",
             floor(fastest_s * 1e3) / 1e3);
    check_optimize("job.yaml", "good", "--deadline 0.01", 3, sentence);
    check_optimize("job.yaml", "good", "--energy-budget 1", 3,
                   "the energy budget of 1 J binds: the cheapest needs ");
    check_optimize("job.yaml", "good", "--deadline 1 --energy-budget 1", 2, "expected one of them");
    check_optimize("job.yaml", "good", "--deadline 1", 0, "the least energy within the deadline");
}

static void test_lists_have_no_empty_names(void **state)
{
    (void)state;
    check_optimize("job.yaml", "good", "--method ergon,", 2, "unknown method ''");
    check_optimize("job.yaml", "good", "--method ,ergon", 2, "unknown method ''");
}

static void test_wrong_folders(void **state)
{
    (void)state;
    write_file("file", "");
    check_optimize("job.yaml", "file", "", 1, "file': Not a directory");
    check_optimize("job.yaml", "file/below", "", 1, "below': Not a directory");
    if (access("/proc/self", R_OK) != 0)
        skip(); /* a folder in which nobody, whoever runs this, can make files */
    char arguments[256];
    snprintf(arguments, sizeof arguments, "optimize %s -o /proc/self 2>&1", in_folder("job.yaml"));
    check_program(arguments, 1, "opening the measurement store '/proc/self/profile.db': ");
    snprintf(arguments, sizeof arguments, "optimize %s -o /proc/none 2>&1", in_folder("job.yaml"));
    check_program(arguments, 1, "making the folder '/proc/none': ");
}

/* Copies the first `count` bytes of the good store to FOLDER/out/profile.db. */
static void copy_store(const char *out, size_t count)
{
    char path[96];
    snprintf(path, sizeof path, "%s/profile.db", out);
    mkdir(in_folder(out), 0777);
    FILE *from = fopen(in_folder("good/profile.db"), "rb"), *to = fopen(in_folder(path), "wb");
    assert_true(from && to);
    int byte;
    for (size_t i = 0; i < count && (byte = getc(from)) != EOF; i++)
        putc(byte, to);
    fclose(from);
    assert_int_equal(fclose(to), 0);
}

static void test_broken_stores_are_refused_and_kept(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(stat(in_folder("good/profile.db"), &info), 0);
    const size_t sizes[] = {99, 1000, 5000, 9000, (size_t)info.st_size / 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char out[32], path[64];
        snprintf(out, sizeof out, "truncated%zu", i);
        snprintf(path, sizeof path, "%s/profile.db", out);
        copy_store(out, sizes[i]);
        check_optimize("job.yaml", out, "", 1, "the file is damaged or no store at all");
        assert_int_equal(stat(in_folder(path), &info), 0);
        assert_int_equal(info.st_size, sizes[i]);
    }
    copy_store("foreign", 0);
    write_file("foreign/profile.db",
               "These are the notes of somebody else, who wants to keep them.");
    check_optimize("job.yaml", "foreign", "", 1, "foreign/profile.db': the file is damaged or no");
    copy_store("empty", 0); /* as it is after a kill in the very first moment */
    check_optimize("job.yaml", "empty", "", 0, "selected: ergon");
}

/* ---- a full disk ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(98);
}

static void limit_to_small_files(void)
{
    limit_files(100000);
}

static void limit_to_tiny_files(void)
{
    limit_files(512);
}

static int count_files(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)at;
    /* Nothing unfinished under a final or a temporary name. */
    if (type == FTW_F && (strstr(path, ".tmp") || strstr(path, "plan.json")))
        fail_msg("%s was left behind", path);
    return 0;
}

static void check_full_disk(const char *out, void (*limit)(void), const char *sentence)
{
    assert_int_equal(wait_for(start_optimize("job.yaml", out, limit)), 1);
    check_messages(sentence);
    assert_int_equal(nftw(in_folder(out), count_files, 16, FTW_PHYS), 0);
}

static void test_full_disk(void **state)
{
    (void)state;
    /* While the store is made, while it grows, and while the plan is written. */
    check_full_disk("full_at_once", limit_to_tiny_files, "opening the measurement store ");
    check_full_disk("full", limit_to_small_files, "writing to the measurement store ");
    assert_int_equal(wait_for(start_optimize("job.yaml", "full", NULL)), 0);
    assert_int_equal(remove(in_folder("full/plan.json")), 0);
    check_full_disk("full", limit_to_small_files, "writing '");
    /* With room again, the run goes on. */
    assert_int_equal(wait_for(start_optimize("job.yaml", "full", NULL)), 0);
    json_t *plan = load_plan("full"), *good = load_plan("good");
    assert_true(
        json_equal(json_object_get(plan, "partitions"), json_object_get(good, "partitions")));
    json_decref(plan);
    json_decref(good);
    if (access("/dev/full", W_OK) != 0)
        return;
    char arguments[256];
    snprintf(arguments, sizeof arguments, "optimize %s -o %s --json 2>&1 >/dev/full",
             in_folder("job.yaml"), in_folder("good"));
    check_program(arguments, 1, "standard output failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_jobs),
        cmocka_unit_test(test_missing_gpus_are_named),
        cmocka_unit_test(test_impossible_goals_name_the_binding_limit),
        cmocka_unit_test(test_lists_have_no_empty_names),
        cmocka_unit_test(test_wrong_folders),
        cmocka_unit_test(test_broken_stores_are_refused_and_kept),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests_name("optimize inputs", tests, set_up, remove_folder);
}
