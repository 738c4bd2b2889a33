/* Fitting engines: constants that are known come back; the committed engines against published
 * iterations. */
#include "check.h"
#include "folder.h"
#include "program.h"

#include "io/file.h"
#include "io/json.h"
#include "layout/time/fit.h"

static const char rows_path[] = ERGON_TEST_SOURCE_DIR "/tests/data/megatron-kwai-h800.csv";
static const char cluster_path[] = ERGON_TEST_SOURCE_DIR "/data/clusters/32x8-h800-sxm-80gb.yaml";

static struct erg_time_machine h800(void)
{
    struct erg_error err;
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct erg_time_machine machine;
    assert_ok(erg_cluster_load(&cluster, cluster_path, &err), &err);
    assert_ok(erg_gpu_load(&gpu, cluster->gpu, &err), &err);
    erg_time_machine_init(&machine, gpu, cluster);
    erg_gpu_free(gpu);
    erg_cluster_free(cluster);
    assert_close(machine.link_bandwidth, 200e9, 1e-12);
    assert_close(machine.network_bandwidth, 12.5e9, 1e-12);
    return machine;
}

static struct erg_engine *engine_of(const char *name)
{
    struct erg_error err;
    struct erg_engine *engine;
    assert_ok(erg_engine_load(&engine, name, &err), &err);
    return engine;
}

static void known_constants_come_back(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows;
    struct erg_fit fit;
    struct erg_time_machine machine = h800();
    struct erg_engine *start = engine_of("megatron-kwai-h800"), truth = *start;
    assert_ok(erg_fit_rows_load(&rows, rows_path, &err), &err);
    truth.gemm_efficiency = 0.7;
    truth.layer_overhead_s = 100e-6;
    truth.network_efficiency = 0.5;
    for (size_t i = 0; i < rows.count; i++)
        erg_fit_predict(&rows.items[i].time_s, &rows.items[i], 1, &truth, &machine);
    const char *const keys[] = {"gemm_efficiency", "layer_overhead_us", "network_efficiency", NULL};
    const struct erg_fit_request request = {rows.items, rows.count, &machine, start, keys, 4, NULL};
    assert_ok(erg_fit_engine(&fit, &request, &err), &err);
    assert_close(fit.engine.gemm_efficiency, 0.7, 1e-3);
    assert_close(fit.engine.layer_overhead_s, 100e-6, 1e-2);
    assert_close(fit.engine.network_efficiency, 0.5, 1e-3);
    assert_true(fit.fitted.mean < 1e-4 && fit.held_out.mean < 1e-4);
    assert_true(fit.fitted.spearman > 1 - 1e-9);
    assert_true(fit.uncertainty[0] < 1e-3);
    /* 5 % more or less by turns: errors of about 5 %, and constants that show it. */
    for (size_t i = 0; i < rows.count; i++)
        rows.items[i].time_s *= i % 2 ? 1.05 : 0.95;
    assert_ok(erg_fit_engine(&fit, &request, &err), &err);
    assert_true(fit.fitted.mean > 0.03 && fit.fitted.mean < 0.055);
    assert_true(fit.held_out.mean > fit.fitted.mean);
    assert_true(fit.uncertainty[0] > 0.005);
    assert_near(fit.engine.gemm_efficiency, 0.7, 4 * fit.uncertainty[0] * 0.7);
    /* A row without weight says nothing. */
    rows.items[3].time_s *= 10;
    rows.items[3].weight = 0;
    struct erg_fit without;
    assert_ok(erg_fit_engine(&without, &request, &err), &err);
    assert_near(without.engine.gemm_efficiency, 0.7, 4 * fit.uncertainty[0] * 0.7);
    erg_fit_rows_release(&rows);
    erg_engine_free(start);
}

/* The catalogue's engine, its constants of these keys fitted anew. */
static void fit_keys(struct erg_fit *fit, const struct erg_fit_rows *rows, const char *const *keys)
{
    struct erg_error err;
    struct erg_time_machine machine = h800();
    struct erg_engine *start = engine_of("megatron-kwai-h800");
    const struct erg_fit_request request = {rows->items, rows->count, &machine, start,
                                            keys,        4,           NULL};
    assert_ok(erg_fit_engine(fit, &request, &err), &err);
    erg_engine_free(start);
}

/* What rows cannot tell is said, not given an uncertainty of nothing. */
static void undetermined_constants_are_reported(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows;
    struct erg_fit fit;
    const char *const usual[] = {"gemm_efficiency", "layer_overhead_us", "link_efficiency",
                                 "network_efficiency", NULL};
    /* Passes whose times stand in one proportion in all rows. */
    const char *const alike[] = {"attention_efficiency", "attention_backward_efficiency",
                                 "network_efficiency", NULL};
    assert_ok(erg_fit_rows_load(&rows, rows_path, &err), &err);
    fit_keys(&fit, &rows, usual);
    for (size_t k = 0; k < fit.constants; k++)
        assert_true(fit.uncertainty[k] < 0.3);
    fit_keys(&fit, &rows, alike);
    assert_true(isinf(fit.uncertainty[0]) && isinf(fit.uncertainty[1]));
    assert_true(fit.uncertainty[2] < 0.3);
    /* The same iteration over and over. */
    for (size_t i = 1; i < rows.count; i++)
        rows.items[i] = rows.items[0];
    fit_keys(&fit, &rows, usual);
    for (size_t k = 0; k < fit.constants; k++)
        assert_true(isinf(fit.uncertainty[k]));
    /* On a single node nothing is said of what joins nodes. */
    for (size_t i = 0; i < rows.count; i++) {
        rows.items[i].layout = (struct erg_layout){.tensor = 1L << i % 4,
                                                   .context = 1,
                                                   .pipeline = 1,
                                                   .data = 8 >> i % 4,
                                                   .virtual_stages = 1,
                                                   .microbatch = 1 + (long)i % 3,
                                                   .microbatches = 8,
                                                   .sequence = 1024 << i % 5};
        rows.items[i].batch = rows.items[i].layout.data * rows.items[i].layout.microbatch * 8;
    }
    struct erg_time_machine machine = h800();
    struct erg_engine *truth = engine_of("megatron-kwai-h800");
    for (size_t i = 0; i < rows.count; i++)
        erg_fit_predict(&rows.items[i].time_s, &rows.items[i], 1, truth, &machine);
    fit_keys(&fit, &rows, usual);
    for (size_t k = 0; k < 3; k++)
        assert_true(fit.uncertainty[k] < 0.3);
    assert_true(isinf(fit.uncertainty[3]));
    assert_close(fit.engine.network_efficiency, truth->network_efficiency, 1e-12);
    erg_engine_free(truth);
    erg_fit_rows_release(&rows);
}

/* A layout that was measured twice is not predicted from itself: the error of rows held out is that
 * without the second measurement. */
static void repeated_rows_are_held_out_together(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows;
    struct erg_fit once, twice;
    const char *const keys[] = {"gemm_efficiency", "layer_overhead_us", NULL};
    assert_ok(erg_fit_rows_load(&rows, rows_path, &err), &err);
    const size_t count = rows.count = 27; /* row 27 + i would be in another fold than row i */
    fit_keys(&once, &rows, keys);
    for (size_t i = 0; i < count; i++)
        ERG_PUSH(&rows, items, rows.items[i]);
    fit_keys(&twice, &rows, keys);
    assert_close(twice.held_out.mean, once.held_out.mean, 1e-4);
    for (size_t fold = 0; fold < 4; fold++)
        assert_close(twice.fold_mean[fold], once.fold_mean[fold], 1e-4);
    erg_fit_rows_release(&rows);
}

/* Milliseconds for seconds: no engine is that slow. */
static void times_in_another_unit_are_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows;
    struct erg_fit fit;
    struct erg_time_machine machine = h800();
    struct erg_engine *start = engine_of("megatron-kwai-h800");
    const char *const keys[] = {"gemm_efficiency", "link_efficiency", NULL};
    assert_ok(erg_fit_rows_load(&rows, rows_path, &err), &err);
    const struct erg_fit_request request = {rows.items, rows.count, &machine, start, keys, 4, NULL};
    for (size_t i = 0; i < rows.count; i++)
        rows.items[i].time_s *= 1000;
    assert_fails(erg_fit_engine(&fit, &request, &err), &err,
                 "but an engine's is from 0.01 to 2; expected times in seconds, and rows of this "
                 "cluster; furthest off is row ");
    for (size_t i = 0; i < rows.count; i++)
        rows.items[i].time_s /= 1000;
    /* One row alone is named. */
    rows.items[5].time_s *= 2;
    assert_ok(erg_fit_engine(&fit, &request, &err), &err);
    assert_int_equal(fit.fitted.worst, 5);
    assert_int_equal(fit.held_out.worst, 5);
    erg_engine_free(start);
    erg_fit_rows_release(&rows);
}

/* Numbers that a file leaves to another one are fitted with it: else what is written would not be
 * what was fitted. */
static void dependent_constants_are_fitted_together(void **state)
{
    (void)state;
    struct erg_engine *engine = engine_of("megatron-a100");
    const struct erg_quantity *exposed = erg_engine_numbers, *ends = erg_engine_numbers;
    while (strcmp(exposed->key, "pipeline_exposed") != 0)
        exposed++;
    while (strcmp(ends->key, "pipeline_ends_exposed") != 0)
        ends++;
    assert_close(engine->pipeline_ends_exposed, engine->pipeline_exposed, 1e-12);
    erg_engine_set(engine, exposed, 2);
    assert_close(erg_engine_get(engine, ends), 2, 1e-12);
    erg_engine_set(engine, ends, 3);
    erg_engine_set(engine, exposed, 1);
    assert_close(engine->pipeline_ends_exposed, 3, 1e-12);
    assert_close(engine->pipeline_exposed, 1, 1e-12);
    erg_engine_free(engine);
}

static void rows_without_a_time_are_refused(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows;
    struct erg_fit fit;
    struct erg_time_machine machine = h800();
    struct erg_engine *start = engine_of("megatron-kwai-h800");
    assert_ok(erg_fit_rows_load(&rows, rows_path, &err), &err);
    assert_ok(erg_fit_rows_check(&rows, &machine, &err), &err);
    machine.network_bandwidth = 0;
    assert_fails(erg_fit_rows_check(&rows, &machine, &err), &err,
                 "megatron-kwai-h800.csv:2: 256 GPUs are more than a node of 8");
    const char *const keys[] = {"gemm_efficiency", NULL};
    const struct erg_fit_request request = {rows.items, rows.count, &machine, start, keys, 4, NULL};
    assert_fails(erg_fit_engine(&fit, &request, &err), &err, "for row 1 (256 GPUs");
    erg_fit_rows_release(&rows);
    erg_engine_free(start);
}

static void errors_are_judged(void **state)
{
    (void)state;
    struct erg_model model = {0};
    struct erg_fit_row rows[4];
    const double measured[4] = {1, 2, 3, 4}, predicted[4] = {1.1, 1.8, 4, 3.5};
    for (int i = 0; i < 4; i++)
        rows[i] = (struct erg_fit_row){.model = &model,
                                       .layout = {.tensor = 1,
                                                  .context = 1,
                                                  .pipeline = 1,
                                                  .data = 1,
                                                  .virtual_stages = 1,
                                                  .microbatch = 1,
                                                  .microbatches = 8,
                                                  .sequence = 10},
                                       .batch = 8,
                                       .time_s = measured[i]};
    struct erg_fit_errors errors = erg_fit_judge(predicted, rows, 4);
    assert_close(errors.mean, (0.1 + 0.1 + 1. / 3 + 0.125) / 4, 1e-12);
    assert_close(errors.most, 1. / 3, 1e-12);
    assert_close(errors.spearman, 0.8, 1e-12); /* 1 - 6 x 2 / (4 x 15) */
}

/* Megatron-Kwai's published iterations, the rows that are given. */
static void the_published_rows_are_met(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_fit_rows rows;
    struct erg_time_machine machine = h800();
    struct erg_engine *engine = engine_of("megatron-kwai-h800");
    assert_ok(erg_fit_rows_load(&rows, rows_path, &err), &err);
    assert_int_equal(rows.count, 28);
    double time_s[28];
    erg_fit_predict(time_s, rows.items, rows.count, engine, &machine);
    struct erg_fit_errors errors = erg_fit_judge(time_s, rows.items, rows.count);
    print_message("28 rows: mean error %.2f %%, worst %.2f %%, Spearman %.3f\n", 100 * errors.mean,
                  100 * errors.most, errors.spearman);
    assert_true(errors.mean <= 0.01);
    assert_true(errors.spearman >= 0.98);
    erg_fit_rows_release(&rows);
    erg_engine_free(engine);
}

/* Published iterations that no constant was fitted to. */
static void other_published_points_are_met(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *model;
        struct erg_layout layout;
        double rate; /* tokens per second and GPU */
    } points[] = {
        {"megatron-kwai-h800",
         "llama-175b",
         {4, 1, 8, 8, 6, 1, 32, 8192, .recompute = ERG_RECOMPUTE_BALANCED, .offload = 0.63},
         387},
        {"megatron-kwai-h800",
         "llama-175b",
         {2, 2, 16, 4, 6, 1, 64, 8192, .recompute = ERG_RECOMPUTE_FULL},
         299},
        {"megatron-h800",
         "llama-175b",
         {2, 2, 16, 4, 6, 1, 64, 8192, .recompute = ERG_RECOMPUTE_FULL},
         278},
        {"megatron-kwai-h800",
         "llama-2-7b",
         {1, 1, 4, 1, 8, 1, 16, 12288, .recompute = ERG_RECOMPUTE_BALANCED, .offload = 0.1},
         8273},
        {"megatron-kwai-h800",
         "llama-2-7b",
         {1, 1, 4, 1, 8, 1, 16, 12288, .recompute = ERG_RECOMPUTE_FULL},
         6639},
    };
    struct erg_error err;
    struct erg_time_machine machine = h800();
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        const struct erg_layout *layout = &points[i].layout;
        struct erg_engine *engine = engine_of(points[i].engine);
        struct erg_model *model;
        struct erg_time time;
        assert_ok(erg_model_load(&model, points[i].model, &err), &err);
        const struct erg_time_request request = {model, engine, &machine};
        erg_time_layout(&time, &request, layout);
        double rate = (double)(layout->microbatches * layout->sequence) /
                      (double)(layout->tensor * layout->context * layout->pipeline) / time.total;
        print_message("%s by %s: %.0f tokens/s per GPU, published %.0f (%+.1f %%)\n",
                      points[i].model, points[i].engine, rate, points[i].rate,
                      100 * (rate / points[i].rate - 1));
        assert_close(rate, points[i].rate, 0.03);
        erg_model_free(model);
        erg_engine_free(engine);
    }
}

/* ---- the command ---- */

static void the_command_reproduces_the_committed_engine(void **state)
{
    (void)state;
    struct erg_error err;
    char path[256], arguments[1024];
    snprintf(path, sizeof path, "%s/engine.yaml", folder);
    snprintf(arguments, sizeof arguments,
             "fit '%s' --cluster '%s' --engine megatron-kwai-h800 -o '%s'", rows_path, cluster_path,
             path);
    check_program(arguments, 0, "of rows held out");
    check_program(arguments, 0, "megatron-kwai-h800.csv:");
    struct erg_engine *committed = engine_of("megatron-kwai-h800"), *fitted;
    assert_ok(erg_engine_load(&fitted, path, &err), &err);
    for (const struct erg_quantity *at = erg_engine_numbers; at->key; at++) {
        double a = *(const double *)(const void *)((const char *)committed + at->offset);
        double b = *(const double *)(const void *)((const char *)fitted + at->offset);
        if (!(fabs(a - b) <= 2e-3 * fabs(a)))
            fail_msg("%s: %g, fitted again %g", at->key, a, b);
    }
    char *text;
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "# Fitted to 28 measured iterations: mean error 0."));
    assert_non_null(strstr(text, "# counted: SiLU and product are two kernels"));
    free(text);
    erg_engine_free(fitted);
    erg_engine_free(committed);
    unlink(path);
}

/* Steps of twelve layouts on one and two H100 and H200 (data/runs/layouts): one fitted constant
 * predicts rows that it has not seen within 3 %. */
static void measured_layouts_are_predicted(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        size_t rows;
    } measured[] = {{"h100", 7}, {"h200", 5}};
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        char command[1024], text[1 << 16];
        snprintf(command, sizeof command,
                 "cd '" ERGON_TEST_SOURCE_DIR "/data/runs/layouts' && '" ERGON_TEST_PROGRAM
                 "' fit %s.csv --cluster %s.yaml --engine ergon -k gemm_efficiency --json",
                 measured[i].gpu, measured[i].gpu);
        FILE *answer = popen(command, "r");
        assert_non_null(answer);
        size_t length = fread(text, 1, sizeof text - 1, answer);
        text[length] = '\0';
        assert_int_equal(pclose(answer), 0);
        json_t *root;
        struct erg_error err;
        assert_ok(erg_json_parse(&root, "fit", text, length, &err), &err);
        assert_int_equal(json_array_size(json_object_get(root, "rows")), measured[i].rows);
        json_t *errors = json_object_get(root, "held_out");
        double held_out = json_number_value(json_object_get(errors, "mean"));
        if (!(held_out > 0 && held_out < 0.03))
            fail_msg("%s: held-out rows are off by %.4f on average", measured[i].gpu, held_out);
        json_decref(root);
    }
}

/* Of a job only the machine counts, whatever its own layout. */
static void the_command_takes_the_machine_of_a_job(void **state)
{
    (void)state;
    char path[256], arguments[1024];
    snprintf(path, sizeof path, "%s/engine.yaml", folder);
    snprintf(arguments, sizeof arguments,
             "fit '%s' -j '" ERGON_TEST_SOURCE_DIR "/examples/kwai/llama-65b.yaml' "
             "-e megatron-kwai-h800",
             rows_path);
    check_program(arguments, 0, "of rows held out");
    snprintf(arguments, sizeof arguments,
             "fit '%s' -j '" ERGON_TEST_SOURCE_DIR "/examples/kwai/llama2-7b.yaml' "
             "-e megatron-kwai-h800 -o '%s' 2>&1",
             rows_path, path);
    check_program(arguments, 1,
                  "megatron-kwai-h800.csv:2: 256 GPUs are more than a node of 8, and the network "
                  "between nodes is unknown; expected the cluster's key inter_node_bandwidth_gb_s");
    assert_int_equal(access(path, F_OK), -1);
}

/* A table of one row with a cell replaced, or a header. */
static const char *table(const char *text)
{
    static char path[256];
    struct erg_error err;
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
    return path;
}

/* Tokens per second of one GPU, as training software prints them, are not those of all. */
static void tokens_of_one_gpu_are_refused(void **state)
{
    (void)state;
    static const char head[] = "model,sequence,gpus,batch,t,c,p,";
    static const struct {
        const char *column, *value, *message; /* NULL: taken */
    } cases[] = {
        /* Llama 2 7B: 6.738e9 parameters, of which a GPU at 400 TFLOP/s trains about 8900 tokens/s.
         */
        {"tokens_per_s", "284800", NULL},
        {"tokens_per_s", "8900",
         ":2: column 'tokens_per_s': 8900 tokens per second on 32 GPUs are 1.2 % of their peak, "
         "expected at least 5 %; the column is that of all GPUs together, so multiply a number per "
         "GPU by 32"},
        {"time_s", "1.84", NULL},
        {"time_s", "1840", ":2: column 'time_s': 1840 s of an iteration of 128 sequences are"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_fit_rows rows;
        struct erg_engine *engine = engine_of("megatron-kwai-h800");
        char text[300];
        const char *path = in_folder("tokens.csv");
        int length = snprintf(text, sizeof text, "%s%s\nllama-2-7b,4096,32,128,2,1,2,%s\n", head,
                              cases[i].column, cases[i].value);
        assert_ok(erg_file_write(path, text, (size_t)length, &err), &err);
        assert_ok(erg_fit_rows_load(&rows, path, &err), &err);
        if (cases[i].message)
            assert_fails(erg_fit_rows_check_times(&rows, engine, &err), &err, cases[i].message);
        else
            assert_ok(erg_fit_rows_check_times(&rows, engine, &err), &err);
        erg_fit_rows_release(&rows);
        erg_engine_free(engine);
    }
}

static void wrong_rows_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"model,sequence,gpus,batch,t,c,p\n",
         "rows.csv:1: expected one of the columns 'time_s' and"},
        {"model,sequence,gpus,batch,t,c,time_s\n", "'p'"},
        {"model,sequence,gpus,batch,t,c,p,l,v,time_s\n", "both columns 'l' and 'v'"},
        {"model,sequence,gpus,batch,t,c,p,time_s\nllama-65b,4096,16,16,2,1,8,0\n",
         "rows.csv:2: column 'time_s': expected a number above 0"},
        {"model,sequence,gpus,batch,t,c,p,time_s\nllama-65b,4096,17,16,2,1,8,1\n",
         "rows.csv:2: tensor 2 x context 1 x pipeline 8 makes 16 GPUs, and 17"},
        {"model,sequence,gpus,batch,t,c,p,l,time_s\nllama-65b,4096,16,16,2,1,8,3,1\n",
         "rows.csv:2: column 'l': the 80 layers"},
        {"model,sequence,gpus,batch,t,c,p,recompute,time_s\nllama-65b,4096,16,16,2,1,8,some,1\n",
         "expected none, norms, activation, balanced or full, got 'some'"},
        {"model,sequence,gpus,batch,t,c,p,time_s\nllama-65,4096,16,16,2,1,8,1\n", "llama-65"},
        {"model,sequence,gpus,batch,t,c,p,time_s\nllama-65b,4096,16,16,0,1,8,1\n",
         "rows.csv:2: expected degrees"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_fit_rows rows;
        assert_fails(erg_fit_rows_load(&rows, table(cases[i].text), &err), &err, cases[i].message);
        erg_fit_rows_release(&rows);
    }
    unlink(table(""));
}

static void wrong_requests_are_explained(void **state)
{
    (void)state;
    char arguments[1024];
    const struct {
        const char *options, *message;
        int exit_code;
    } cases[] = {
        {"--engine megatron-kwai-h800", "--cluster FILE and --job", 2},
        {"--engine megatron-kwai-h800 -c C -j J", "--cluster FILE and --job", 2},
        {"--engine megatron-kwai-h80 -c CLUSTER", "did you mean 'megatron-kwai-h800'", 1},
        {"--engine megatron-kwai-h800 -c CLUSTER -k gemm_eficiency",
         "no constant 'gemm_eficiency'; did you mean 'gemm_efficiency'?", 2},
        {"--engine megatron-kwai-h800 -c CLUSTER -k host_layer_us", "to start from", 1},
        {"--engine megatron-kwai-h800 -c CLUSTER -k gemm_efficiency,gemm_efficiency",
         "the constant 'gemm_efficiency' is listed twice", 2},
        {"--engine megatron-kwai-h800 -c CLUSTER -f 1", "--folds", 2},
        {"--engine megatron-a100 -c CLUSTER",
         "for example: ergon, megatron-h800, megatron-kwai-h800", 1},
        /* Rows do not say which stages lay on which GPUs. */
        {"--engine megatron-kwai-h800 -c '" ERGON_TEST_SOURCE_DIR
         "/data/clusters/4x8-h800-8x8-a100-80gb.yaml'",
         "has nodes with H800-SXM-80GB and others with A100-SXM4-80GB, and an engine's constants "
         "are those of one GPU",
         2},
        {"--engine megatron-kwai-h800 -j '" ERGON_TEST_SOURCE_DIR
         "/examples/mixed/llama-65b_h800_a100.yaml'",
         "so no rows whose stages lay on several can be fitted; expected --cluster FILE with only "
         "the nodes that all rows were measured on",
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[768], *place;
        snprintf(options, sizeof options, "%s", cases[i].options);
        if ((place = strstr(options, "CLUSTER")) != NULL) {
            char rest[128];
            snprintf(rest, sizeof rest, "%s", place + strlen("CLUSTER"));
            snprintf(place, sizeof options - (size_t)(place - options), "'%s'%s", cluster_path,
                     rest);
        }
        snprintf(arguments, sizeof arguments, "fit '%s' %s 2>&1", rows_path, options);
        check_program(arguments, cases[i].exit_code, cases[i].message);
    }
}

static void messages_name_their_file(void **state)
{
    (void)state;
    struct erg_error err;
    char path[256], arguments[1024];
    const char *rows =
        table("model,sequence,gpus,batch,t,c,p,time_s\nllama-65b,4096,16,16,2,1,8,9\n");
    snprintf(arguments, sizeof arguments, "fit '%s' -e megatron-kwai-h800 -c '%s' 2>&1", rows,
             cluster_path);
    check_program(arguments, 1, "rows.csv: 1 rows are too few to fit 4 constants");
    unlink(rows);
    static const char cluster[] = "nodes: 1\ngpus_per_node: 8\ngpu: H8000\n";
    snprintf(path, sizeof path, "%s/cluster.yaml", folder);
    assert_ok(erg_file_write(path, cluster, strlen(cluster), &err), &err);
    snprintf(arguments, sizeof arguments, "fit '%s' -e megatron-kwai-h800 -c '%s' 2>&1", rows_path,
             path);
    check_program(arguments, 1, "cluster.yaml:3: key 'gpu': unknown GPU 'H8000'");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_constants_come_back),
        cmocka_unit_test(undetermined_constants_are_reported),
        cmocka_unit_test(repeated_rows_are_held_out_together),
        cmocka_unit_test(times_in_another_unit_are_refused),
        cmocka_unit_test(dependent_constants_are_fitted_together),
        cmocka_unit_test(rows_without_a_time_are_refused),
        cmocka_unit_test(errors_are_judged),
        cmocka_unit_test(the_published_rows_are_met),
        cmocka_unit_test(other_published_points_are_met),
        cmocka_unit_test(the_command_reproduces_the_committed_engine),
        cmocka_unit_test(measured_layouts_are_predicted),
        cmocka_unit_test(the_command_takes_the_machine_of_a_job),
        cmocka_unit_test(tokens_of_one_gpu_are_refused),
        cmocka_unit_test(wrong_rows_are_explained),
        cmocka_unit_test(wrong_requests_are_explained),
        cmocka_unit_test(messages_name_their_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
