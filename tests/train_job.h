/* A job that trains a tiny model on a few hundred words in a folder of the test's own. */
#ifndef ERGON_TESTS_TRAIN_JOB_H
#define ERGON_TESTS_TRAIN_JOB_H

#include "folder.h"
#include "program.h"

#include "io/file.h"

static const char config_text[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": 32,\n"
    " \"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": 257, \"rms_norm_eps\": 1e-6,\n"
    " \"max_position_embeddings\": 64, \"rope_theta\": 10000, \"tie_word_embeddings\": false}\n";

/* One of the Llama kind, for tests that write jobs of their own. */
static const char small_llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 16,\n"
    " \"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,\n"
    " \"num_key_value_heads\": 1, \"vocab_size\": 257, \"rms_norm_eps\": 1e-6,\n"
    " \"max_position_embeddings\": 64, \"tie_word_embeddings\": true}\n";

static const char job_text[] = "model: model\n"
                               "cluster: {nodes: 1, gpus_per_node: 1, gpu: A100-SXM4-40GB}\n"
                               "microbatch_size: 2\n"
                               "microbatches: 2\n"
                               "sequence: 16\n"
                               "train:\n"
                               "  data:\n"
                               "    - file: tokens.bin\n"
                               "  updates: 60\n"
                               "  learning_rate: 0.01\n"
                               "  warmup: 5\n";

/* "ergon COMMAND" with @ for the folder. */
static inline void check(int exit_code, const char *part, const char *command)
{
    struct erg_text line = with_folder(command);
    erg_text_add(&line, " 2>&1");
    check_program(line.data, exit_code, part);
    erg_text_release(&line);
}

/* Whether two runs have the same log, but for times, and exported the same weights into
 * NAME-model. */
static inline void assert_same_run(const char *run, const char *whole)
{
    struct erg_text command = {0};
    erg_text_printf(
        &command,
        "cd '%s' && cmp %s-model/model.safetensors %s-model/model.safetensors && "
        "for f in %s %s; do sed 's/\"time_unix_s\":[^,]*,//; s/\"step_ms\":{[^}]*},//; "
        "s/\"undisturbed\":{[^}]*},//; "
        "s/\"tokens_per_s\":[^,]*,//; s/\"tokens_per_s_gpu\":[^,]*,//' $f/metrics.jsonl "
        ">$f.lines; done && cmp %s.lines %s.lines",
        folder, whole, run, run, whole, whole, run);
    if (system(command.data) != 0)
        fail_msg("%s is not the run %s", run, whole);
    erg_text_release(&command);
}

static inline int make_job(void **state)
{
    (void)state;
    char text[4000] = "";
    struct erg_error err;
    setenv("ERGON_POWERCAP", "/nonexistent", 1);
    if (make_folder(state) != 0 || erg_dir_make(in_folder("model"), &err) != 0)
        return -1;
    while (strlen(text) < 3000)
        strcat(text, "the quick brown fox jumps over the lazy dog and on. ");
    write_text("model/config.json", config_text);
    write_text("text", text);
    write_text("job.yaml", job_text);
    check(0, "1 document", "tokenize bytes @/text -o @/tokens");
    return 0;
}

#endif
