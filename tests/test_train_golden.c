/*
 * Twenty steps of four tiny models on the host, in float and bf16, beside what PyTorch and
 * transformers computed (train/README of the measured data says how): losses, norms, first
 * gradients, logits, final weights. Skipped where those data are absent.
 */
#include "train_world.h"

#include "base/memory.h"
#include "device/host/host.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"
#include "train/files/safetensors.h"

/* All elements of a checkpoint's tensor, of masters or gradients of a run on one rank, where the
 * state is all weights. */
static void read_tensor(struct erg_trainer *trainer, const float *from, const char *name,
                        float *values)
{
    size_t bytes = trainer->weights->elements * sizeof(float);
    bool found = false;
    float *all = erg_xmalloc(bytes);
    read_device(trainer, all, from, bytes);
    for (size_t i = 0; i < trainer->spans.count; i++) {
        const struct erg_weight_span *span = &trainer->spans.items[i];
        if (strcmp(span->name, name) != 0)
            continue;
        found = true;
        for (size_t row = 0; row < span->rows; row++)
            for (size_t column = 0; column < span->columns; column++)
                values[erg_weight_span_there(span, row, column)] =
                    all[erg_weight_span_here(span, row, column)];
    }
    free(all);
    if (!found)
        fail_msg("there is no tensor %s", name);
}

/* Logits [tokens of a microbatch, vocab] of a backend with floats. */
static void read_logits(struct erg_trainer *trainer, int32_t *ids, float *logits)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t tokens = (size_t)(layout->microbatch * layout->sequence);
    size_t words = (size_t)trainer->job->model->vocab, columns = trainer->stage->words;
    struct erg_stage_tokens microbatch = {.ids = trainer->ids};
    struct erg_error err;
    assert_int_equal(trainer->options.backend->element_bytes, sizeof(float));
    read_device(trainer, trainer->ids, ids, tokens * sizeof *ids);
    size_t pass = erg_stage_pass(trainer->stage, 0);
    assert_ok(erg_stage_forward(trainer->stage, pass, &microbatch, NULL, NULL, NULL,
                                trainer->stream, &err),
              &err);
    float *all = erg_xmalloc(tokens * columns * sizeof *all);
    read_device(trainer, all, trainer->stage->head_sets[0].logits, tokens * columns * sizeof *all);
    for (size_t i = 0; i < tokens * words; i++)
        logits[i] = all[i / words * columns + i % words];
    free(all);
}

enum { STEPS = 20 };

struct tolerance {
    double first_loss, loss, first_norm, norm, gradient;
};
static const struct tolerance in_float = {5e-6, 5e-6, 2e-5, 2e-5, 1e-5};
static const struct tolerance in_bf16 = {5e-4, 2e-3, 2e-3, 1e-2, 3e-2};

static const char *const models[] = {"llama", "qwen3", "qwen2", "gpt2"};

/* A path below the measured data of a model. */
static const char *golden(const char *model, const char *file)
{
    static char names[4][128];
    static unsigned next;
    char *name = names[next++ % 4];
    snprintf(name, sizeof names[0], "train/%s/%s", model, file);
    return shared_data(name);
}

struct run {
    struct erg_backend *backend;
    struct erg_job *job;
    struct erg_trainer *trainer;
    struct erg_csv *steps;
};

static struct run open_run(const char *model, bool float32, bool masked, long microbatches,
                           uint64_t seed)
{
    struct run run = {0};
    struct erg_text text = {0};
    struct erg_error err;
    char folder_path[4096], tokens[4096];
    snprintf(folder_path, sizeof folder_path, "%s", golden(model, ""));
    snprintf(tokens, sizeof tokens, "%s", shared_data("train/tokens/tokens.int32"));
    erg_text_printf(&text,
                    "model: %s\n"
                    "cluster: {nodes: 1, gpus_per_node: 1, gpu: A100-SXM4-40GB}\n"
                    "microbatch_size: %ld\nmicrobatches: %ld\nsequence: 64\n"
                    "train:\n"
                    "  data: [{file: %s, type: int32}]\n"
                    "  shuffle: false\n  updates: 20\n  learning_rate: 0.002\n  lowest: 0.0002\n"
                    "  warmup: 5\n  init: %s\n%s",
                    folder_path, 8 / microbatches, microbatches, tokens, folder_path,
                    masked ? "  mask: eod\n  eod: 0\n" : "");
    assert_ok(erg_job_parse(&run.job, "/golden.yaml", text.data, text.count, NULL, &err), &err);
    erg_text_release(&text);
    struct erg_host_options host = {.float32 = float32, .seed = seed};
    assert_ok(erg_host_open(&run.backend, &host, &err), &err);
    struct erg_trainer_options options = {.backend = run.backend, .job = run.job, .world = 1};
    assert_ok(erg_trainer_open(&run.trainer, &options, &err), &err);
    assert_ok(
        erg_csv_load(&run.steps, golden(model, masked ? "steps_masked.csv" : "steps.csv"), &err),
        &err);
    return run;
}

static void close_run(struct run *run)
{
    erg_csv_free(run->steps);
    erg_trainer_close(run->trainer);
    run->backend->table->close(run->backend);
    erg_job_free(run->job);
}

static double golden_number(const struct erg_csv *csv, size_t row, const char *name)
{
    size_t column;
    double value;
    struct erg_error err;
    assert_ok(erg_csv_require(csv, name, &column, &err), &err);
    assert_ok(erg_csv_double(csv, row, column, &value, &err), &err);
    return value;
}

static void check_step(const struct run *run, const struct erg_train_step *step, bool float32,
                       const struct tolerance *tolerance)
{
    size_t row = (size_t)step->step - 1;
    double loss = golden_number(run->steps, row, float32 ? "loss" : "loss_bf16");
    double norm = golden_number(run->steps, row, float32 ? "gradient_norm" : "gradient_norm_bf16");
    assert_near(step->loss, loss, row ? tolerance->loss : tolerance->first_loss);
    assert_close(step->gradient_norm, norm, row ? tolerance->norm : tolerance->first_norm);
    assert_close(step->learning_rate, golden_number(run->steps, row, "learning_rate"), 1e-12);
    assert_int_equal(step->targets, golden_number(run->steps, row, "targets"));
    assert_int_equal(step->updates, step->step);
    assert_false(step->skipped);
}

/* Norm of the difference over the norm, of values [from, to). */
static double distance(const float *a, const float *b, size_t from, size_t to)
{
    double difference = 0, all = 0;
    for (size_t i = from; i < to; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return all > 0 ? sqrt(difference / all) : sqrt(difference);
}

/* The keys' biases have gradients of nothing but noise, which Adam turns into full steps. */
static bool is_noise(const char *name, size_t i, size_t count)
{
    if (strstr(name, "k_proj.bias"))
        return true;
    return strstr(name, "c_attn.bias") && i >= count / 3 && i < 2 * count / 3;
}

static void check_tensors(const struct run *run, const char *model, const char *file,
                          const float *from, bool but_noise, double tolerance)
{
    struct erg_safetensors set;
    struct erg_error err;
    assert_ok(erg_safetensors_open(&set, golden(model, file), &err), &err);
    assert_true(set.count > 8);
    for (size_t i = 0; i < set.count; i++) {
        const struct erg_safetensor *tensor = &set.items[i];
        float *expected = erg_xcalloc(tensor->count, sizeof *expected);
        float *actual = erg_xcalloc(tensor->count, sizeof *actual);
        assert_ok(erg_safetensor_read(tensor, 0, tensor->count, expected, &err), &err);
        read_tensor(run->trainer, from, tensor->name, actual);
        for (size_t k = 0; k < tensor->count && but_noise; k++)
            if (is_noise(tensor->name, k, tensor->count))
                actual[k] = expected[k];
        double found = distance(actual, expected, 0, tensor->count);
        /* The gradients of keys' biases are noise from the first step on. */
        if (!(found <= tolerance) && !strstr(tensor->name, "k_proj.bias"))
            fail_msg("%s, %s of %s: %.3g apart, expected %.3g", model, file, tensor->name, found,
                     tolerance);
        free(expected);
        free(actual);
    }
    erg_safetensors_release(&set);
}

static void train(const char *model, bool float32, bool masked, long microbatches, uint64_t seed)
{
    const struct tolerance *tolerance = float32 ? &in_float : &in_bf16;
    struct run run = open_run(model, float32, masked, microbatches, seed);
    struct erg_error err;
    for (int i = 0; i < STEPS; i++) {
        struct erg_train_step step;
        assert_ok(erg_trainer_step(run.trainer, 0, &step, &err), &err);
        check_step(&run, &step, float32, tolerance);
        if (i == 0 && !masked)
            check_tensors(&run, model,
                          float32 ? "gradients.safetensors" : "gradients_bf16.safetensors",
                          erg_stage_gradients(run.trainer->stage), false, tolerance->gradient);
    }
    if (float32 && !masked)
        check_tensors(&run, model, "final.safetensors", erg_optimizer_state(run.trainer->optimizer),
                      true, 5e-5);
    close_run(&run);
}

static void float_runs_are_golden(void **state)
{
    (void)state;
    skip_without(golden("llama", "config.json"), "train/");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        train(models[i], true, false, 1, 0);
}

/* The targets that count differ from microbatch to microbatch. */
static void masked_runs_are_golden(void **state)
{
    (void)state;
    skip_without(golden("llama", "config.json"), "train/");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        train(models[i], true, true, i % 2 ? 8 : 2, 0);
}

static void bf16_runs_are_golden(void **state)
{
    (void)state;
    skip_without(golden("llama", "config.json"), "train/");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        train(models[i], false, i % 2, 1, 7);
}

static void logits_are_golden(void **state)
{
    (void)state;
    skip_without(golden("llama", "config.json"), "train/");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct run run = open_run(models[i], true, false, 4, 0); /* microbatches of 2 */
        struct erg_safetensors set;
        struct erg_error err;
        assert_ok(erg_safetensors_open(&set, golden(models[i], "logits.safetensors"), &err), &err);
        const struct erg_safetensor *ids = erg_safetensors_find(&set, "ids");
        const struct erg_safetensor *logits = erg_safetensors_find(&set, "logits");
        int32_t tokens[2 * 64];
        assert_int_equal(ids->bytes, sizeof tokens);
        memcpy(tokens, ids->data, sizeof tokens);
        float *expected = erg_xcalloc(logits->count, sizeof *expected);
        float *actual = erg_xcalloc(logits->count, sizeof *actual);
        assert_ok(erg_safetensor_read(logits, 0, logits->count, expected, &err), &err);
        read_logits(run.trainer, tokens, actual);
        assert_near(distance(actual, expected, 0, logits->count), 0, 1e-5);
        free(expected);
        free(actual);
        erg_safetensors_release(&set);
        close_run(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_runs_are_golden),
        cmocka_unit_test(masked_runs_are_golden),
        cmocka_unit_test(bf16_runs_are_golden),
        cmocka_unit_test(logits_are_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
