/* job/: the shipped examples load; every broken rule is a sentence with file, line and key. */
#include "check.h"

#include "base/log.h"
#include "base/text.h"
#include "io/file.h"
#include "job/job.h"

#include <dirent.h>

static struct erg_job *load_example(const char *name)
{
    struct erg_error err;
    struct erg_job *job;
    char path[512];
    snprintf(path, sizeof path, ERGON_TEST_SOURCE_DIR "/examples/%s", name);
    assert_ok(erg_job_load(&job, path, NULL, &err), &err);
    return job;
}

static void published_workloads_load(void **state)
{
    (void)state;
    DIR *folder = opendir(ERGON_TEST_SOURCE_DIR "/examples/kareus");
    assert_non_null(folder);
    int published = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char name[300];
        snprintf(name, sizeof name, "kareus/%s", entry->d_name);
        struct erg_job *job = load_example(name);
        assert_string_equal(job->stack->name, "published-python");
        assert_string_equal(job->gpu->name, "A100-SXM4-40GB");
        assert_int_equal(job->layout.recompute, ERG_RECOMPUTE_FULL);
        assert_true(job->even_microbatch);
        /* The file's name says what is in it. */
        char tail[64];
        snprintf(tail, sizeof tail, "_mbs%ld_seq%ld", job->layout.microbatch, job->layout.sequence);
        assert_non_null(strstr(job->name, tail));
        assert_null(strchr(job->name, '/'));
        if (job->layout.context > 1)
            snprintf(tail, sizeof tail, "_cp%ldtp%ld_", job->layout.context, job->layout.tensor);
        else
            snprintf(tail, sizeof tail, "_tp%ld_", job->layout.tensor);
        assert_non_null(strstr(job->name, tail));
        assert_int_equal(job->layout.tensor * job->layout.context, 8);
        if (job->layout.pipeline == 2) {
            published++;
            assert_int_equal(erg_job_chunk_layers(job, 0), 15);
            assert_int_equal(erg_job_chunk_layers(job, 1), 13);
            assert_int_equal(job->layout.microbatches, 8);
            assert_int_equal(job->model->tied, strstr(job->name, "qwen") != NULL);
        } else {
            assert_int_equal(job->layout.pipeline, 10);
            for (int i = 0; i < 10; i++)
                assert_int_equal(erg_job_chunk_layers(job, (size_t)i), 8);
        }
        erg_job_free(job);
    }
    closedir(folder);
    assert_int_equal(published, 10);
}

/* One stage on one machine, every GPU a rank: what `ergon optimize --device cuda` can measure. */
static void jobs_of_real_gpus_load(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama3.2-3b_tp2", "llama3.2-3b_cp2", "llama3.2-3b_tp4",   "llama3.2-3b_cp2tp2",
        "qwen3-1.7b_tp2",  "qwen3-1.7b_tp4",  "qwen3-1.7b_cp2tp2",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[80], tail[64];
        snprintf(name, sizeof name, "h200/%s_mbs8_seq4096.yaml", names[i]);
        struct erg_job *job = load_example(name);
        assert_string_equal(job->gpu->name, "H200-SXM-measured");
        assert_int_equal(job->layout.pipeline * job->layout.data, 1);
        assert_int_equal(job->cluster.nodes, 1);
        assert_int_equal(job->cluster.gpus_per_node, job->layout.tensor * job->layout.context);
        assert_true(job->even_microbatch);
        char context[16] = "", tensor[16] = "";
        if (job->layout.context > 1)
            snprintf(context, sizeof context, "cp%ld", job->layout.context);
        if (job->layout.tensor > 1)
            snprintf(tensor, sizeof tensor, "tp%ld", job->layout.tensor);
        snprintf(tail, sizeof tail, "_%s%s_mbs8_seq4096", context, tensor);
        assert_non_null(strstr(job->name, tail));
        erg_job_free(job);
    }
}

static void quickstart_has_the_defaults(void **state)
{
    (void)state;
    struct erg_job *job = load_example("quickstart.yaml");
    assert_string_equal(job->name, "quickstart");
    assert_string_equal(job->stack->name, "ergon");
    assert_true(job->model->tied);
    assert_int_equal(erg_job_chunk_layers(job, 0), 14);
    assert_int_equal(erg_job_chunk_layers(job, 1), 14);
    assert_int_equal(erg_layout_schedule(&job->layout), ERG_SCHEDULE_1F1B);
    assert_int_equal(job->search.method, ERG_SEARCH_GP);
    assert_int_equal(job->search.budget, 0);
    assert_int_equal(job->search.sweep_clocks, -1);
    assert_near(job->profiler.window_s, -1, 0);
    assert_int_equal(job->goal.objective, ERG_FASTEST);
    assert_near(job->cluster.inter_node_bandwidth, 50e9, 0);
    erg_job_free(job);
}

/* A good job; each line can be replaced, dropped or followed by others. */
static const char *const good[] = {
    "model: llama-3.2-3b",
    "cluster:",
    "  nodes: 2",
    "  gpus_per_node: 8",
    "  gpu: A100-SXM4-40GB",
    "  inter_node_bandwidth_gb_s: 50",
    "tensor: 8",
    "pipeline: 2",
    "microbatch_size: 8",
    "microbatches: 8",
    "sequence: 4096",
};
enum { GOOD_LINES = sizeof good / sizeof *good };

/* The good job with line `number` (from 1) replaced; 0 replaces none. `more` comes after it. */
static int parse_with(struct erg_job **job, int number, const char *line, const char *more,
                      struct erg_error *err)
{
    struct erg_text text = {0};
    for (int i = 0; i < GOOD_LINES; i++)
        erg_text_printf(&text, "%s\n", i + 1 == number ? line : good[i]);
    erg_text_add(&text, more);
    int result = erg_job_parse(job, "job.yaml", text.data, text.count, NULL, err);
    erg_text_release(&text);
    return result;
}

/* As ergon layout and ergon memory pad it, and only where the tensor degree does not divide it. */
static void vocabularies_are_padded(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *more;
        long words;
    } cases[] = {
        {"tensor: 8", "", 128256},
        {"tensor: 8", "vocabulary: 128264\n", 128264},
        {"tensor: 8", "vocabulary: 128260\n", 129024},
        {"tensor: 4", "vocabulary: 128257\ndata: 2\n", 128512},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_job *job;
        assert_ok(parse_with(&job, 7, cases[i].tensor, cases[i].more, &err), &err);
        assert_int_equal(job->model->vocab, cases[i].words);
        erg_job_free(job);
    }
    static const char *const published[] = {"kwai/llama-65b.yaml", "kwai/llama2-70b.yaml",
                                            "kwai/llama-175b.yaml"};
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct erg_job *job = load_example(published[i]);
        assert_int_equal(job->model->vocab, 32256);
        erg_job_free(job);
    }
}

/* The last node need not be full, and a group that lies within one node need not divide it. */
static void some_gpus_may_stay_free(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "{nodes: 1, gpus_per_node: 8, gpus_used: 6, gpu: A40}\ncontext: 3\npipeline: 2\n",
        "{nodes: 2, gpus_per_node: 4, gpus_used: 6, gpu: A40, inter_node_bandwidth_gb_s: 25}\n"
        "tensor: 2\npipeline: 3\n",
    };
    for (size_t i = 0; i < 2; i++) {
        struct erg_error err;
        struct erg_job *job;
        char text[400];
        snprintf(text, sizeof text,
                 "model: llama-3.2-3b\ncluster: %smicrobatch_size: 2\nmicrobatches: 1\n"
                 "sequence: 6144\n",
                 cases[i]);
        assert_ok(erg_job_parse(&job, "job.yaml", text, strlen(text), NULL, &err), &err);
        assert_int_equal(erg_cluster_gpus(&job->cluster), 6);
        erg_job_free(job);
    }
}

static void broken_rules_have_their_sentence(void **state)
{
    (void)state;
    const struct {
        int number;
        const char *line, *more, *message;
    } cases[] = {
        {9, "microbatch_sise: 8", "",
         "job.yaml:9: unknown key 'microbatch_sise'; did you mean 'microbatch_size'?"},
        {3, "  nods: 2", "",
         "job.yaml:3: unknown key 'cluster.nods'; did you mean "
         "'nodes'?"},
        {11, "", "", "job.yaml:1: the key 'sequence' is missing"},
        {1, "model: lama-3.2-3b", "",
         "job.yaml:1: key 'model': loading the model 'lama-3.2-3b': no such file or catalogue "
         "entry; did you mean 'llama-3.2-3b'?"},
        {5, "  gpu: A100-SXM4-41GB", "", "job.yaml:5: key 'cluster.gpu': "},
        {0, "", "stack: argon\n", "job.yaml:12: key 'stack': "},
        {7, "tensor: 16", "",
         "job.yaml:7: key 'tensor': the 24 attention heads of meta-llama/Llama-3.2-3B cannot be "
         "divided among a tensor degree of 16"},
        {7, "tensor: 12", "", "job.yaml:7: key 'tensor': the 8 KV groups"},
        {9, "microbatch_size: 1000000", "",
         "job.yaml:9: key 'microbatch_size': expected a number from 1 to 10000, got 1000000"},
        {9, "microbatch_size: 10000", "data: 100\n", "on 100 data ranks are a batch of "},
        {0, "", "fsdp: 0\n", "job.yaml:12: key 'fsdp': expected a number from 1 to 1000000, got 0"},
        {0, "", "fsdp: 2\n",
         "job.yaml:12: key 'fsdp': fsdp 2 shards the layers of one stage, got a pipeline degree of "
         "2"},
        {0, "", "FSDP: 1\n", "job.yaml:12: key 'FSDP': sharding of weights"},
        {0, "", "fsdp_degree: 32\n", "job.yaml:12: key 'fsdp_degree': sharding of weights"},
        {0, "", "zero_stage: 3\n",
         "job.yaml:12: key 'zero_stage': sharding of weights and gradients over data parallel "
         "ranks "
         "(FSDP, ZeRO 3) is key 'fsdp' of a job"},
        {7, "tensor: 0", "", "job.yaml:7: key 'tensor': expected a number from 1 to 1024, got 0"},
        {0, "", "vocabulary: 1000\n",
         "job.yaml:12: key 'vocabulary': expected at least the 128256 words"},
        {7, "tensor: 4", "",
         "job.yaml:3: key 'cluster': the cluster has 16 GPUs (2 nodes x 8), but tensor 4 x context "
         "1 x pipeline 2 x data 1 makes 8; with data: 2 they would be all used"},
        {8, "pipeline: 3", "", "tensor 8 x context 1 x pipeline 3 x data 1 makes 24"},
        {4, "  gpus_per_node: 8\n  gpus_used: 8", "",
         "job.yaml:5: key 'cluster.gpus_used': expected a number from 9 to 16, got 8"},
        {4, "  gpus_per_node: 8\n  gpus_used: 12", "",
         "job.yaml:3: key 'cluster': the cluster has 12 GPUs (of 2 nodes x 8), but tensor 8 x "
         "context 1 x pipeline 2 x data 1 makes 16"},
        {4, "  gpus_per_node: 9", "",
         "the cluster has 18 GPUs (2 nodes x 9), but tensor 8 x "
         "context 1 x pipeline 2 x data 1 makes 16; with gpus_used: 16 the others stay free"},
        {4, "  gpus_per_node: 9\n  gpus_used: 16", "",
         "job.yaml:4: key 'cluster.gpus_per_node': tensor 8 x context 1 makes groups of 8 GPUs, "
         "which do not fill nodes of 9 evenly"},
        {8, "pipeline: 1", "context: 2\n",
         "job.yaml:4: key 'cluster.gpus_per_node': tensor 8 x context 2 makes groups of 16 GPUs, "
         "which do not fill nodes of 8 evenly"},
        {7, "tensor: 4\ncontext: 2\nsequence: 4095", "", "the key appears twice"},
        {11, "sequence: 0", "", "job.yaml:11: key 'sequence': expected a number from 1 to"},
        {0, "", "layers: [15, 14]\n",
         "job.yaml:12: key 'layers': the stages hold 29 layers together, but "
         "meta-llama/Llama-3.2-3B has 28"},
        {0, "", "layers: alternate+2\n",
         "job.yaml:12: key 'layers': expected a list with the layers of each chunk, or "
         "alternate+1, got \"alternate+2\""},
        {0, "", "layers: alternate+1\nvirtual_stages: 2\n",
         "key 'layers': alternate+1 is for stages of one chunk, got 2 virtual stages"},
        {0, "", "layers: [10, 10, 8]\n",
         "job.yaml:12: key 'layers': expected 2 entries (pipeline 2 x virtual_stages 1), got 3"},
        {0, "", "layers: [28, 0]\n",
         "job.yaml:12: key 'layers[1]': expected a number from 1 to 28, got 0"},
        {0, "", "virtual_stages: 15\n",
         "key 'pipeline': meta-llama/Llama-3.2-3B has 28 layers, too few for 2 x 15 stages"},
        {9, "microbatch_size: 8", "virtual_stages: 2\nschedule: 1f1b\n",
         "job.yaml:13: key 'schedule': 1f1b has one virtual stage per stage, but virtual_stages "
         "is 2"},
        {0, "", "schedule: interleaved\n",
         "job.yaml:12: key 'schedule': interleaved needs virtual_stages of at least 2, got 1"},
        {0, "", "recompute: selective\n",
         "job.yaml:12: key 'recompute': expected one of none, norms, activation, balanced, "
         "full, got 'selective'"},
        {0, "", "offload: 0.5\n",
         "job.yaml:12: key 'offload': offloading hides its copies behind the microbatches of "
         "other stages and needs at least 3 pipeline stages, got 2"},
        {0, "", "offload: 1.5\n", "job.yaml:12: key 'offload': expected a number from 0 to 1"},
        {0, "", "stage_offload: [0.5, 1.5]\n",
         "job.yaml:12: key 'stage_offload[1]': expected a number from 0 to 1"},
        {0, "", "stage_offload: [0.5]\n",
         "job.yaml:12: key 'stage_offload': expected 2 entries, one for each stage, got 1"},
        {0, "", "stage_recompute: [none, norms]\nrecompute: none\n",
         "job.yaml:12: key 'stage_recompute': recompute was given, too; expected one of them"},
        {0, "", "stage_recompute: [none, norms]\n",
         "job.yaml:12: key 'stage_recompute': the cost of stages that recompute "
         "differently depends on the engine"},
        {0, "", "stage_recompute: [none, norms]\nengine: megatron-kwai-h800\n",
         "job.yaml:13: key 'engine': the engine 'megatron-kwai-h800' is of a GPU with a peak of "
         "989 TFLOP/s, but A100-SXM4-40GB has"},
        {0, "", "stage_recompute: [none, all]\n", "key 'stage_recompute[1]'"},
        {0, "", "search: {method: tree}\n",
         "job.yaml:12: key 'search.method': unknown value 'tree'; did you mean 'trees'?"},
        {0, "", "search:\n  budget: 0\n",
         "job.yaml:13: key 'search.budget': expected a number from 1 to"},
        {0, "", "profiler: {window_s: 0}\n", "key 'profiler.window_s': expected a number from"},
        {0, "", "goal: knee\nbudget_j: 100\n",
         "job.yaml:13: key 'budget_j': this contradicts the key 'goal'"},
        {0, "", "deadline_s: 4\nbudget_j: 100\n", "this contradicts the key 'deadline_s'"},
        {0, "", "deadline_s: -4\n", "job.yaml:12: key 'deadline_s': expected a number from"},
        {6, "", "",
         "job.yaml:3: key 'cluster.nodes': 2 nodes need the key 'inter_node_bandwidth_gb_s'"},
        {9, "microbatch_size: 1.5", "",
         "job.yaml:9: key 'microbatch_size': expected a whole number, got '1.5'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err = {0};
        struct erg_job *job;
        int result = parse_with(&job, cases[i].number, cases[i].line, cases[i].more, &err);
        if (result == 0 || !strstr(err.message, cases[i].message))
            fail_msg("case %zu (%s | %s) said \"%s\", expected \"%s\"", i, cases[i].line,
                     cases[i].more, result ? err.message : "nothing", cases[i].message);
    }
}

/* Names of any kind: the written job is read as the same, and on one line where they are shown. */
static void written_names_are_read_again(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *shown;
    } names[] = {
        {"\"my run: v2\"", "my run: v2"},
        {"\"- x\"", "- x"},
        {"\"{a\"", "{a"},
        {"\"*star\"", "*star"},
        {"\"run #2\"", "run #2"},
        {"\"x\\ngoal: fastest\"", "x\\x0agoal: fastest"},
        {"\" blanks \"", " blanks "},
    };
    static const size_t kinds[] = {0};
    const struct erg_layout spread = {.tensor = 1,
                                      .context = 1,
                                      .pipeline = 1,
                                      .data = 1,
                                      .virtual_stages = 1,
                                      .microbatch = 2,
                                      .microbatches = 8,
                                      .sequence = 4096};
    const struct erg_job_change change = {
        .layout = &spread, .vocabulary = 128256, .stage_kind = kinds};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct erg_error err;
        struct erg_job *job, *again;
        struct erg_text file = {0}, text = {0}, twice = {0};
        erg_text_printf(&file,
                        "name: %s\nmodel: llama-3.2-1b\ncluster:\n  nodes: 1\n  gpus_per_node: 1\n"
                        "  gpu: H100-SXM\nmicrobatch_size: 2\nmicrobatches: 8\nsequence: 4096\n",
                        names[i].yaml);
        assert_ok(erg_job_parse(&job, "job.yaml", file.data, file.count, NULL, &err), &err);
        assert_string_equal(job->name, names[i].shown);
        erg_job_write(&text, job, &change);
        assert_ok(erg_job_parse(&again, "again.yaml", text.data, text.count, NULL, &err), &err);
        assert_string_equal(again->name, names[i].shown);
        assert_int_equal(again->goal.objective, job->goal.objective);
        erg_job_write(&twice, again, &change);
        assert_string_equal(twice.data, text.data);
        erg_job_free(job);
        erg_job_free(again);
        erg_text_release(&file);
        erg_text_release(&text);
        erg_text_release(&twice);
    }
}

#define BARE                                                                                       \
    "model: llama-3.2-1b\ncluster: {nodes: 1, gpus_per_node: 4, gpu: H100-SXM}\nsequence: 4096\n"

/* What a file leaves open is known, and microbatches may be, where the batch is said. */
static void keys_are_left_open(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job;
    const struct erg_job_overrides any = {.any_layout = true};
    static const char some[] = BARE "tensor: 2\nmicrobatch_size: 2\nrecompute: none\n"
                                    "train: {data: [{file: x}], updates: 9, learning_rate: 0.1, "
                                    "batch: 12}\n";
    assert_ok(erg_job_parse(&job, "job.yaml", some, strlen(some), &any, &err), &err);
    const struct erg_job_open *open = &job->open;
    assert_false(open->tensor || open->microbatch || open->recompute);
    assert_true(open->context && open->pipeline && open->data && open->virtual_stages);
    assert_true(open->microbatches && open->offload);
    assert_int_equal(job->layout.microbatches, 6);
    assert_int_equal(erg_layout_batch(&job->layout), 12);
    erg_job_free(job);
    assert_fails(
        erg_job_parse(&job, "job.yaml", some, strlen(some), NULL, &err), &err,
        "job.yaml:1: key 'microbatches': the key is missing; expected a number, which only "
        "ergon train --auto");
    static const char none[] = BARE;
    assert_fails(erg_job_parse(&job, "job.yaml", none, strlen(none), &any, &err), &err,
                 "key 'microbatch_size': the key is missing; expected a number, or the key "
                 "'train.batch'");
    static const char uneven[] =
        BARE "microbatches: 5\n"
             "train: {data: [{file: x}], updates: 9, learning_rate: 0.1, batch: 12}\n";
    assert_fails(erg_job_parse(&job, "job.yaml", uneven, strlen(uneven), &any, &err), &err,
                 "key 'train.batch': expected the 10 sequences");
    static const char lists[] =
        BARE "microbatch_size: 1\nmicrobatches: 4\npipeline: 2\nschedule: 1f1b\n"
             "layers: [9, 7]\n";
    assert_ok(erg_job_parse(&job, "job.yaml", lists, strlen(lists), &any, &err), &err);
    assert_false(job->open.pipeline || job->open.virtual_stages || job->open.microbatches);
    assert_true(job->open.recompute && job->open.tensor);
    erg_job_free(job);
}

/* All keys below `train` are written; files are found from any folder. */
static void training_is_written(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job, *again;
    static const char text[] =
        BARE "microbatch_size: 2\nmicrobatches: 8\ndata: 4\n"
             "train:\n"
             "  data: [{file: 'a*.bin', type: uint16, weight: 3}, {file: /b.bin}]\n"
             "  shuffle: false\n  mask: eod\n  eod: 7\n  seed: 18446744073709551\n"
             "  init: weights\n"
             "  updates: 900\n  batch: 64\n  schedule: wsd_sqrt\n  learning_rate: 3e-4\n"
             "  lowest: 1e-5\n  warmup: 30\n  decay_steps: 100\n  warmup_from_zero: true\n"
             "  deterministic: true\n  sequence_parallel: true\n  offload_least_bytes: 0\n"
             "  beta1: 0.8\n  beta2: 0.9\n  eps: 1e-9\n  weight_decay: 0\n  clip: 0\n"
             "  log_every: 3\n  trace_every: 50\n  trace_kernels: true\n"
             "  checkpoint: {every: 5, minutes: 2.5, keep: 7}\n"
             "  validation: {data: [{file: held.bin}], every: 9, batches: 4}\n";
    static const size_t kinds[] = {0};
    assert_ok(erg_job_parse(&job, "job.yaml", text, strlen(text), NULL, &err), &err);
    const struct erg_job_change change = {
        .layout = &job->layout, .vocabulary = 128256, .stage_kind = kinds};
    struct erg_text written = {0}, twice = {0};
    erg_job_write(&written, job, &change);
    assert_ok(erg_job_parse(&again, "/far/again.yaml", written.data, written.count, NULL, &err),
              &err);
    erg_job_write(&twice, again, &change);
    assert_string_equal(twice.data, written.data);
    const struct erg_training *a = job->training, *b = again->training;
    assert_int_equal(b->data_count, 2);
    assert_int_equal(b->data[0].type, ERG_TOKENS_UINT16);
    assert_int_equal(b->data[1].type, ERG_TOKENS_OF_FILE);
    assert_near(b->data[0].weight, 0.75, 0);
    assert_string_equal(b->data[1].file, "/b.bin");
    assert_true(b->data[0].file[0] == '/' && strstr(b->data[0].file, "/a*.bin"));
    assert_true(b->init[0] == '/' && strstr(b->init, "/weights"));
    assert_int_equal(b->seed, a->seed);
    assert_int_equal(b->updates, 900);
    assert_int_equal(b->mask, ERG_MASK_EOD);
    assert_int_equal(b->eod, 7);
    assert_int_equal(b->schedule, ERG_RATE_WSD_SQRT);
    assert_true(b->learning_rate == a->learning_rate && b->lowest == 1e-5);
    assert_int_equal(b->warmup, 30);
    assert_int_equal(b->decay_steps, 100);
    assert_true(b->warmup_from_zero && b->deterministic && b->sequence_parallel && !b->shuffle);
    assert_true(b->beta1 == 0.8 && b->beta2 == 0.9 && b->eps == 1e-9);
    assert_true(b->weight_decay == 0 && b->clip == 0 && b->offload_least_bytes == 0);
    assert_int_equal(b->log_every, 3);
    assert_int_equal(b->trace_every, 50);
    assert_true(b->trace_kernels);
    assert_int_equal(b->checkpoint.every, 5);
    assert_int_equal(b->checkpoint.keep, 7);
    assert_near(b->checkpoint.minutes, 2.5, 0);
    assert_int_equal(b->validation.every, 9);
    assert_int_equal(b->validation.batches, 4);
    assert_non_null(strstr(b->validation.data[0].file, "/held.bin"));
    assert_int_equal(erg_layout_batch(&again->layout), 64);
    erg_job_free(job);
    erg_job_free(again);
    erg_text_release(&written);
    erg_text_release(&twice);
}

static void context_needs_a_sequence_in_chunks(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job;
    const char text[] = "model: llama-3.2-3b\n"
                        "cluster: {nodes: 1, gpus_per_node: 8, gpu: A100-SXM4-40GB}\n"
                        "tensor: 4\ncontext: 2\n"
                        "microbatch_size: 2\nmicrobatches: 1\nsequence: 4094\n";
    assert_fails(erg_job_parse(&job, "job.yaml", text, strlen(text), NULL, &err), &err,
                 "job.yaml:4: key 'context': a sequence of 4094 tokens cannot be cut into the 4 "
                 "equal chunks of a context degree of 2");
}

static struct erg_job *parse_70b(int pipeline, int virtual_stages)
{
    struct erg_error err;
    struct erg_job *job;
    char text[400];
    snprintf(text, sizeof text,
             "model: llama-3.3-70b\n"
             "cluster: {nodes: %d, gpus_per_node: 8, gpu: H100-SXM, "
             "inter_node_bandwidth_gb_s: 50}\n"
             "tensor: 8\npipeline: %d\nmicrobatch_size: 2\nmicrobatches: 6\n"
             "sequence: 4096\nvirtual_stages: %d\n",
             pipeline, pipeline, virtual_stages);
    assert_ok(erg_job_parse(&job, "j", text, strlen(text), NULL, &err), &err);
    return job;
}

/* As the published study of heat splits them. */
static void layers_alternate(void **state)
{
    (void)state;
    struct erg_error err;
    const struct {
        long all, pipeline, layers[8];
    } cases[] = {
        {80, 4, {21, 19, 21, 19}},
        {96, 8, {13, 11, 13, 11, 13, 11, 13, 11}},
        {24, 3, {9, 7, 8}},
        {81, 4, {21, 19, 21, 20}},
        {28, 1, {28}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        long layers[8] = {0};
        assert_true(erg_layout_alternate(layers, cases[i].all, cases[i].pipeline));
        assert_memory_equal(layers, cases[i].layers, sizeof layers);
    }
    long few[4];
    assert_false(erg_layout_alternate(few, 7, 4)); /* of 1 each */
    struct erg_job *job;
    assert_ok(parse_with(&job, 0, "", "layers: alternate+1\n", &err), &err);
    assert_int_equal(erg_job_chunk_layers(job, 0), 15);
    assert_int_equal(erg_job_chunk_layers(job, 1), 13);
    erg_job_free(job);
}

static void layers_are_shared_out_evenly(void **state)
{
    (void)state;
    struct erg_job *job = parse_70b(3, 1); /* 80 = 3 x 26 + 2: the middle first, then the first */
    assert_int_equal(erg_job_chunk_layers(job, 0), 27);
    assert_int_equal(erg_job_chunk_layers(job, 1), 27);
    assert_int_equal(erg_job_chunk_layers(job, 2), 26);
    erg_job_free(job);
    job = parse_70b(6, 2);
    assert_int_equal(erg_layout_schedule(&job->layout), ERG_SCHEDULE_INTERLEAVED);
    int sum = 0;
    for (int i = 0; i < 12; i++)
        sum += erg_job_chunk_layers(job, (size_t)i);
    assert_int_equal(sum, 80);
    assert_int_equal(erg_job_chunk_layers(job, 0), 6);
    assert_int_equal(erg_job_chunk_layers(job, 1), 7);
    assert_int_equal(erg_job_chunk_layers(job, 11), 6);
    erg_job_free(job);
}

static void goals_and_overrides(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job;
    assert_ok(parse_with(&job, 0, "", "deadline_s: 4.5\nvocabulary: 129024\nname: mine\n", &err),
              &err);
    assert_int_equal(job->goal.objective, ERG_LEAST_ENERGY);
    assert_near(job->goal.deadline_s, 4.5, 0);
    assert_int_equal(job->model->vocab, 129024);
    assert_string_equal(job->name, "mine");
    erg_job_free(job);
    assert_ok(parse_with(&job, 0, "", "budget_j: 30000\n", &err), &err);
    assert_int_equal(job->goal.objective, ERG_FASTEST);
    assert_near(job->goal.energy_j, 30000, 0);
    erg_job_free(job);

    const uint64_t seed = 9;
    const struct erg_job_overrides overrides = {
        .microbatches = 32, .sequence = 8192, .search = "random", .seed = &seed};
    char path[] = ERGON_TEST_SOURCE_DIR "/examples/quickstart.yaml";
    assert_ok(erg_job_load(&job, path, &overrides, &err), &err);
    assert_int_equal(job->layout.microbatches, 32);
    assert_int_equal(job->layout.microbatch, 8);
    assert_int_equal(job->layout.sequence, 8192);
    assert_int_equal(job->search.method, ERG_SEARCH_RANDOM);
    assert_int_equal(job->search.seed, 9);
    erg_job_free(job);
    const struct erg_job_overrides unknown = {.search = "ranodm"};
    assert_fails(erg_job_load(&job, path, &unknown, &err), &err, "did you mean 'random'?");
    assert_int_equal(err.status, ERG_USAGE);
    const struct erg_job_overrides negative = {.microbatches = -1};
    assert_fails(erg_job_load(&job, path, &negative, &err), &err, "at least 1");
}

static void note(void *context, enum erg_log_level level, const char *text)
{
    assert_int_equal(level, ERG_LOG_WARNING);
    snprintf(context, 300, "%s", text);
}

static void odd_microbatch_is_noted(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job;
    char said[300] = "";
    erg_log_set_sink(&(struct erg_log_sink){.message = note, .context = said});
    assert_ok(parse_with(&job, 9, "microbatch_size: 3", "", &err), &err);
    erg_log_set_sink(NULL);
    assert_false(job->even_microbatch);
    assert_non_null(strstr(said, "job.yaml:9: a microbatch of 3 cannot be split"));
    erg_job_free(job);
}

static void paths_are_relative_to_the_job(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *job;
    char folder[] = "/tmp/ergon-test-XXXXXX", path[128], command[256];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m", folder);
    assert_ok(erg_dir_make(path, &err), &err);
    const char config[] = "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64,"
                          "\"intermediate_size\": 128, \"num_hidden_layers\": 2, \"vocab_size\":"
                          "1000, \"num_attention_heads\": 4, \"rms_norm_eps\": 1e-5}";
    snprintf(path, sizeof path, "%s/m/config.json", folder);
    assert_ok(erg_file_write(path, config, strlen(config), &err), &err);
    const char text[] = "model: ./m\n"
                        "cluster: {nodes: 1, gpus_per_node: 1, gpu: H200-SXM}\n"
                        "microbatch_size: 2\nmicrobatches: 1\nsequence: 64\n";
    snprintf(path, sizeof path, "%s/job.yaml", folder);
    assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
    assert_ok(erg_job_load(&job, path, NULL, &err), &err);
    assert_int_equal(job->model->layers, 2);
    erg_job_free(job);
    const char bare[] = "model: m\n"
                        "cluster: {nodes: 1, gpus_per_node: 1, gpu: H200-SXM}\n"
                        "microbatch_size: 2\nmicrobatches: 1\nsequence: 64\n";
    assert_ok(erg_file_write(path, bare, strlen(bare), &err), &err);
    assert_ok(erg_job_load(&job, path, NULL, &err), &err);
    assert_int_equal(job->model->layers, 2);
    erg_job_free(job);
    const char other[] = "model: other.json\n"
                         "cluster: {nodes: 1, gpus_per_node: 1, gpu: mine.yaml}\n"
                         "microbatch_size: 2\nmicrobatches: 1\nsequence: 64\n";
    assert_ok(erg_file_write(path, other, strlen(other), &err), &err);
    assert_fails(erg_job_load(&job, path, NULL, &err), &err, "/other.json'");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_workloads_load),
        cmocka_unit_test(jobs_of_real_gpus_load),
        cmocka_unit_test(quickstart_has_the_defaults),
        cmocka_unit_test(vocabularies_are_padded),
        cmocka_unit_test(broken_rules_have_their_sentence),
        cmocka_unit_test(some_gpus_may_stay_free),
        cmocka_unit_test(written_names_are_read_again),
        cmocka_unit_test(keys_are_left_open),
        cmocka_unit_test(training_is_written),
        cmocka_unit_test(context_needs_a_sequence_in_chunks),
        cmocka_unit_test(layers_alternate),
        cmocka_unit_test(layers_are_shared_out_evenly),
        cmocka_unit_test(goals_and_overrides),
        cmocka_unit_test(odd_microbatch_is_noted),
        cmocka_unit_test(paths_are_relative_to_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
