/* ergon train on the host: a tiny model learns, comes back from its export, and bad input is named.
 */
#include "train_job.h"

#include "device/host/host.h"
#include "io/json.h"
#include "train/engine/trainer.h"
#include "train/files/safetensors.h"

static void model_learns_and_its_log_is_kept(void **state)
{
    (void)state;
    check(0, "trained 60 steps, loss",
          "train @/job.yaml --dtype float32 -o @/run --export @/trained -q");
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("run/metrics.jsonl"), 0, &text, NULL, &err), &err);
    double first = 0, last = 0;
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        last = json_number_value(json_object_get(object, "loss"));
        first = lines ? first : last;
        assert_true(json_is_null(json_object_get(object, "energy_j")));
        assert_true(json_is_null(json_array_get(json_object_get(object, "power_w"), 0)));
        assert_int_equal(json_integer_value(json_object_get(object, "samples")),
                         4 * json_integer_value(json_object_get(object, "step")));
        assert_true(json_integer_value(json_object_get(object, "memory_bytes")) > 100000);
        assert_int_equal(json_integer_value(json_object_get(object, "tokens")),
                         64 * json_integer_value(json_object_get(object, "step")));
        json_decref(object);
    }
    assert_int_equal(lines, 3 + 6); /* the first three, then every tenth */
    assert_near(first, log(257), 0.1);
    assert_true(last < 1.5);
    free(text);
    assert_ok(erg_file_read(in_folder("run/report.html"), 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "\"schema\":\"ergon.training\""));
    assert_non_null(strstr(text, "\"step\":[1.0,2.0,3.0,10.0,20.0,30.0,40.0,50.0,60.0]"));
    free(text);
    check(1, "metrics.jsonl': this file exists", "train @/job.yaml -o @/run -n 1 --fresh");
    check(0, "step 2/2  loss", "train @/job.yaml -n 2"); /* of its own end, not of the updates */
    check(1, "/model.safetensors': this file exists",
          "train @/job.yaml -n 1 -q --export @/trained");
}

/* The powercap tree counts while the run goes on: its energy is on the line, in the log and on the
 * page. */
static void energy_of_the_cpu_is_logged(void **state)
{
    (void)state;
    struct erg_error err;
    assert_ok(erg_dir_make(in_folder("powercap/intel-rapl:0"), &err), &err);
    write_text("powercap/intel-rapl:0/name", "package-0\n");
    write_text("powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    write_text("powercap/intel-rapl:0/energy_uj", "1000000\n");
    struct erg_text longer = {0}; /* steps, so that the counter moves in each window */
    const char *at = strstr(job_text, "microbatches: 2\n");
    erg_text_add_bytes(&longer, job_text, (size_t)(at - job_text));
    erg_text_printf(&longer, "microbatches: 32\n%s", at + strlen("microbatches: 2\n"));
    write_text("longer.yaml", longer.data);
    erg_text_release(&longer);
    struct erg_text command = with_folder(
        "train @/longer.yaml --dtype float32 -o @/measured -n 40 2>@/lines & train=$!; uj=1000000; "
        "while kill -0 $train 2>/dev/null; do uj=$((uj + 2000000)); "
        "echo $uj >@/powercap/intel-rapl:0/next; "
        "mv @/powercap/intel-rapl:0/next @/powercap/intel-rapl:0/energy_uj; sleep 0.01; done; "
        "wait $train");
    setenv("ERGON_POWERCAP", in_folder("powercap"), 1);
    check_program(command.data, 0, "trained 40 steps");
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    erg_text_release(&command);
    char *text;
    assert_ok(erg_file_read(in_folder("measured/metrics.jsonl"), 0, &text, NULL, &err), &err);
    double sum_j = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        double energy_j = json_number_value(json_object_get(object, "energy_j"));
        double tokens = 1024 * json_number_value(json_object_get(object, "window_steps"));
        assert_true(json_number_value(json_object_get(object, "energy_uncertainty_j")) >= 0);
        assert_near(json_number_value(json_object_get(object, "j_per_token")), energy_j / tokens,
                    1e-9);
        assert_true(json_is_null(json_object_get(object, "mfu")));
        sum_j += energy_j;
        json_decref(object);
    }
    free(text);
    assert_true(sum_j >= 2);
    assert_ok(erg_file_read(in_folder("measured/report.html"), 0, &text, NULL, &err), &err);
    const char *total = strstr(text, "\"energy_j\":");
    assert_non_null(total);
    assert_close(strtod(total + strlen("\"energy_j\":"), NULL), sum_j, 1e-6);
    free(text);
    assert_ok(erg_file_read(in_folder("lines"), 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, " W"));
    free(text);
}

/* Loading what was exported and exporting it again is the identity. */
static void export_comes_back(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *loaded;
    struct erg_trainer *trainer;
    assert_ok(erg_job_load(&loaded, in_folder("job.yaml"), NULL, &err), &err);
    struct erg_backend *backend;
    assert_ok(erg_host_open(&backend, &(struct erg_host_options){.float32 = true}, &err), &err);
    struct erg_trainer_options options = {
        .backend = backend, .job = loaded, .init = in_folder("trained"), .world = 1};
    assert_ok(erg_trainer_open(&trainer, &options, &err), &err);
    assert_ok(erg_trainer_export(trainer, in_folder("again"), false, &err), &err);
    erg_trainer_close(trainer);
    assert_same_bytes(in_folder("again/model.safetensors"), in_folder("trained/model.safetensors"));
    assert_same_bytes(in_folder("again/config.json"), in_folder("trained/config.json"));
    check(0, "trained 1 step, loss", "train @/job.yaml -n 1 --dtype float32 --init @/trained");
    /* A tokenizer goes with its model, into checkpoints, too. */
    write_text("model/tokenizer.json", "{\"model\": {}}\n");
    check(0, "trained 1 step, loss",
          "train @/job.yaml -n 1 -o @/with-tokenizer --export @/model-with-tokenizer");
    assert_same_bytes(in_folder("model-with-tokenizer/tokenizer.json"),
                      in_folder("model/tokenizer.json"));
    assert_same_bytes(in_folder("with-tokenizer/latest/tokenizer.json"),
                      in_folder("model/tokenizer.json"));
    assert_int_equal(unlink(in_folder("model/tokenizer.json")), 0);
    backend->table->close(backend);
    erg_job_free(loaded);
}

/* With a seed the host runs nothing before it is waited for: what is read too early is wrong. */
static void results_are_waited_for(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_job *loaded;
    double losses[3], norms[3];
    assert_ok(erg_job_load(&loaded, in_folder("job.yaml"), NULL, &err), &err);
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct erg_backend *backend;
        assert_ok(erg_host_open(&backend, &(struct erg_host_options){.seed = seed}, &err), &err);
        struct erg_trainer_options options = {.backend = backend, .job = loaded, .world = 1};
        struct erg_trainer *trainer;
        struct erg_train_step step;
        assert_ok(erg_trainer_open(&trainer, &options, &err), &err);
        for (int i = 0; i < 3; i++)
            assert_ok(erg_trainer_step(trainer, 0, &step, &err), &err);
        losses[seed] = step.loss;
        norms[seed] = step.gradient_norm;
        erg_trainer_close(trainer);
        backend->table->close(backend);
    }
    for (int i = 1; i < 3; i++) {
        assert_near(losses[i], losses[0], 0);
        assert_near(norms[i], norms[0], 0);
    }
    erg_job_free(loaded);
}

/* The job with one part replaced. */
static void check_job(const char *part, const char *by, int exit_code, const char *message)
{
    struct erg_text text = {0};
    const char *at = strstr(job_text, part);
    assert_non_null(at);
    erg_text_add_bytes(&text, job_text, (size_t)(at - job_text));
    erg_text_printf(&text, "%s%s", by, at + strlen(part));
    write_text("changed.yaml", text.data);
    erg_text_release(&text);
    check(exit_code, message, "train @/changed.yaml --dry-run");
}

static void bad_jobs_are_named(void **state)
{
    (void)state;
    check_job("train:\n  data:\n    - file: tokens.bin\n  updates: 60\n  learning_rate: 0.01\n  "
              "warmup: 5\n",
              "", 1, "changed.yaml: key 'train': the key is missing");
    check_job("updates: 60", "updates: 0", 1, "changed.yaml:9: key 'train.updates'");
    check_job("updates: 60", "upates: 60", 1, "did you mean 'updates'?");
    check_job("learning_rate: 0.01", "learning_rate: -1", 1, "key 'train.learning_rate'");
    check_job("warmup: 5", "warmup: 61", 1, "key 'train.warmup'");
    check_job("warmup: 5", "lowest: 1", 1, "key 'train.lowest'");
    check_job("warmup: 5", "batch: 8", 1,
              "key 'train.batch': expected the 4 sequences of 2 microbatches of 2 on 1 data ranks");
    check_job("warmup: 5", "mask: eod", 1, "key 'train.mask': expected a key 'train.eod'");
    check_job("warmup: 5", "eod: 257", 1,
              "key 'train.eod': expected a word of the model, below 257");
    check_job("warmup: 5", "schedule: wsd_sqrt", 1, "expected a key 'train.decay_steps'");
    check_job("warmup: 5", "decay_steps: 5", 1, "only the schedules wsd_linear and wsd_sqrt");
    check_job("warmup: 5", "schedule: cosin", 1, "did you mean 'cosine'?");
    check_job("tokens.bin", "nothing.bin", 1, "key 'train.data[0].file': reading '");
    check_job("tokens.bin", "text\n      type: uint32", 0, "60 steps");
    check(1, "/text: token ", "train @/changed.yaml");
    check_job("sequence: 16", "sequence: 64\nrecompute: full\noffload: 2", 1, "key 'offload'");
    check_job("gpus_per_node: 1", "gpus_per_node: 2", 1, "cluster");
    check_job("warmup: 5", "init: nowhere", 1, "nowhere");
    check(2, "float32", "train @/job.yaml --dtype float16");
}

/* What a config may ask for: trained, or refused with what it is. */
static void check_config(const char *config, const char *keys, int exit_code, const char *message)
{
    struct erg_text text = {0};
    struct erg_error err;
    erg_text_printf(&text, "%.*s, %s}\n", (int)(strrchr(config, '}') - config), config, keys);
    assert_ok(erg_dir_make(in_folder("asked"), &err), &err);
    write_text("asked/config.json", text.data);
    text.count = 0;
    erg_text_printf(&text, "model: asked%s", strchr(job_text, '\n'));
    write_text("asked.yaml", text.data);
    erg_text_release(&text);
    check(exit_code, message, "train @/asked.yaml -n 1");
}

static void configs_are_trained_or_refused(void **state)
{
    (void)state;
    static const char gpt2[] =
        "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"n_embd\": 32,\n"
        " \"n_layer\": 1, \"n_head\": 2, \"n_positions\": 16, \"vocab_size\": 257}\n";
    check_config(gpt2, "\"scale_attn_weights\": true", 0, "trained 1 step");
    check_config(gpt2, "\"scale_attn_weights\": false", 3, "scores of attention that are scaled");
    check_config(gpt2, "\"scale_attn_by_inverse_layer_idx\": true", 3,
                 "scores of attention that are scaled");
    check_config(small_llama, "\"sliding_window\": 16", 0, "trained 1 step"); /* sees all */
    check_config(small_llama, "\"sliding_window\": 15", 1, "longer than the window of 15");
    check_config(small_llama, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", 0,
                 "trained 1 step");
    check_config(small_llama, "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", 3,
                 "a scaling of positions of its own");
}

/* A checkpoint that is not the model's is refused with the name of the tensor. */
static void wrong_checkpoints_are_named(void **state)
{
    (void)state;
    char command[900];
    snprintf(command, sizeof command,
             "cd '%s' && mkdir other && sed 's/\"vocab_size\": 257/\"vocab_size\": 300/' "
             "model/config.json >other/config.json && sed 's/model: model/model: other/' job.yaml "
             ">other.yaml",
             folder);
    assert_int_equal(system(command), 0);
    check(1, "tensor 'model.embed_tokens.weight' has the shape [257, 32], expected [300, 32]",
          "train @/other.yaml -n 1 --init @/trained");
    snprintf(command, sizeof command,
             "cd '%s' && sed -i 's/\"qwen3\"/\"qwen2\"/; s/Qwen3For/Qwen2For/; s/300/257/' "
             "other/config.json",
             folder);
    assert_int_equal(system(command), 0);
    check(1,
          "config.json: key 'architectures': expected Qwen2ForCausalLM, as in the job's model, "
          "got",
          "train @/other.yaml -n 1 --init @/trained");
    snprintf(command, sizeof command, "cd '%s' && mkdir bare && cp trained/*.safetensors bare",
             folder);
    assert_int_equal(system(command), 0);
    check(1, "tensor 'model.layers.0.self_attn.k_norm.weight' is not one of",
          "train @/other.yaml -n 1 --init @/bare");
    check(0, "bare' has no config.json", "train @/job.yaml -n 1 --init @/bare");
    /* The same sizes, and another computation. */
    snprintf(command, sizeof command,
             "cd '%s' && mkdir theta && sed 's/10000/500000/' model/config.json "
             ">theta/config.json && sed 's/model: model/model: theta/' job.yaml >theta.yaml",
             folder);
    assert_int_equal(system(command), 0);
    check(1,
          "trained/config.json: key 'rope_theta': expected 500000, as in the job's model (or "
          "--allow-change), got 10000",
          "train @/theta.yaml -n 1 --init @/trained --dry-run");
    check(0,
          "config.json: key 'rope_theta' is 10000; the weights are trained with the job's 500000",
          "train @/theta.yaml -n 1 --init @/trained --allow-change");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_learns_and_its_log_is_kept),
        cmocka_unit_test(energy_of_the_cpu_is_logged),
        cmocka_unit_test(export_comes_back),
        cmocka_unit_test(results_are_waited_for),
        cmocka_unit_test(wrong_checkpoints_are_named),
        cmocka_unit_test(configs_are_trained_or_refused),
        cmocka_unit_test(bad_jobs_are_named),
    };
    return cmocka_run_group_tests(tests, make_job, remove_folder);
}
