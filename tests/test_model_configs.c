/* model/: which configs are read, what their keys mean, and what is refused. */
#include "check.h"

#include "io/file.h"
#include "model/model.h"

#define LLAMA                                                                                      \
    "\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64,"                              \
    "\"intermediate_size\": 128, \"num_hidden_layers\": 2, \"vocab_size\": 1000,"

static void wrong_configs_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": -3}",
         "c.json:1: key 'num_attention_heads': expected a positive integer, got -3"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 5}",
         "key 'num_attention_heads': expected a divisor of the hidden size 64"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 3}",
         "key 'num_key_value_heads': expected a divisor of the 4 attention heads, got 3"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 8}",
         "expected a positive integer of at most 4, got 8"},
        {"{" LLAMA "\"num_attention_heads\": 4}",
         "key 'rms_norm_eps': the key is missing, expected a number from 0 to 1"},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, \"hidden_act\": \"relu\"}",
         "key 'hidden_act': expected \"silu\", got \"relu\""},
        {"{" LLAMA "\"rms_norm_eps\": 1e-5, \"num_attention_heads\": 4, "
         "\"tie_word_embeddings\": 1}",
         "key 'tie_word_embeddings': expected true or false, got 1"},
        {"{\"architectures\": [\"Gemma3ForCausalLM\"]}",
         "key 'architectures': unknown architecture 'Gemma3ForCausalLM'; expected one of "
         "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
         "MixtralForCausalLM, Qwen3MoeForCausalLM, DeepseekV2ForCausalLM, DeepseekV3ForCausalLM, "
         "Phi3ForCausalLM, GPT2LMHeadModel"},
        {"{\"architectures\": []}", "expected a list with the architecture's name"},
        {"{\"architectures\": \"LlamaForCausalLM\"}", "expected a list"},
        {"{}",
         "c.json:1: key 'architectures': the key is missing, expected a list with the "
         "architecture's name, such as [\"LlamaForCausalLM\"], or a key 'model_type', such as "
         "\"llama\""},
        {"{\"model_type\": \"gemma3\"}",
         "c.json:1: key 'model_type': unknown type of model 'gemma3'; expected one of llama, "
         "mistral, qwen2, qwen3, mixtral, qwen3_moe, deepseek_v2, deepseek_v3, phi3, gpt2"},
        {"{\"architectures\": [\"X\"],\n\"text_config\": {\"model_type\": "
         "\"qwen3_omni_moe_text\"}}",
         "c.json:2: key 'text_config.model_type': unknown type of model 'qwen3_omni_moe_text'"},
        {"{\"architectures\": [\"X\"],\n\"text_config\": {\"model_type\": \"llama\"}}",
         "c.json:2: key 'text_config.hidden_size': the key is missing"},
        {"{\"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 64, \"n_layer\": 99999}",
         "key 'n_layer': expected a positive integer of at most 10000, got 99999"},
        {"[]", "c.json:1: expected an object {…} at the top"},
        {"{", "c.json:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_model *model;
        assert_fails(erg_model_parse(&model, "c.json", cases[i].text, strlen(cases[i].text), &err),
                     &err, cases[i].message);
    }
    struct erg_error err;
    struct erg_model *model;
    assert_fails(erg_model_load(&model, "lama-3.2-3b", &err), &err, "did you mean 'llama-3.2-3b'?");
    assert_fails(erg_model_load(&model, "unheard", &err), &err,
                 "one of the catalogue: deepseek-v3, gpt3-175b, gpt3-30b, llama-175b");
    assert_fails(erg_model_load(&model, "/nonexistent/config.json", &err), &err,
                 "loading the model '/nonexistent/config.json'");
    assert_fails(erg_model_load(&model, ERGON_TEST_SOURCE_DIR "/data", &err), &err,
                 "data/config.json': No such file");
}

/* Rotary frequencies as configs have them: beside each other, in one object, scaled. */
static void rotary_frequencies(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        double theta, factor;
        enum erg_rope_scaling scaling;
        long positions;
    } cases[] = {
        {"\"rope_theta\": 500000.0", 500000, 0, ERG_ROPE_PLAIN, 0},
        {"\"rope_theta\": 500000.0, \"rope_scaling\": null", 500000, 0, ERG_ROPE_PLAIN, 0},
        {"\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": "
         "32.0}",
         500000, 32, ERG_ROPE_LLAMA3, 8192},
        {"\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"rope_theta\": "
         "250000.0}",
         250000, 8, ERG_ROPE_LLAMA3, 8192},
        {"\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}", 1e6, 0,
         ERG_ROPE_PLAIN, 0},
        {"\"max_position_embeddings\": 32768, \"rope_scaling\": {\"type\": \"yarn\", "
         "\"factor\": 4.0}",
         10000, 4, ERG_ROPE_YARN, 32768},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 4096}",
         10000, 4, ERG_ROPE_YARN, 4096},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", 10000, 2.5, ERG_ROPE_LINEAR,
         0},
        {"\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1]}", 10000, 0,
         ERG_ROPE_OTHER, 0},
        {"\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}", 10000, 0,
         ERG_ROPE_PLAIN, 0},
    };
    struct erg_error err;
    struct erg_model *model;
    char text[600];
    const char *rest = "\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, "
                       "\"intermediate_size\": 128, \"num_hidden_layers\": 2, "
                       "\"num_attention_heads\": 4, \"rms_norm_eps\": 1e-06, \"vocab_size\": 100";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{%s, %s}", rest, cases[i].keys);
        assert_ok(erg_model_parse(&model, "r", text, strlen(text), &err), &err);
        assert_close(model->rope_theta, cases[i].theta, 1e-12);
        assert_near(model->rope.factor, cases[i].factor, 0);
        assert_int_equal(model->rope.scaling, cases[i].scaling);
        if (cases[i].scaling == ERG_ROPE_LLAMA3 || cases[i].scaling == ERG_ROPE_YARN)
            assert_int_equal(model->rope.positions, cases[i].positions);
        erg_model_free(model);
    }
    snprintf(text, sizeof text, "{%s,\n\"partial_rotary_factor\": 0}", rest);
    assert_fails(erg_model_parse(&model, "r", text, strlen(text), &err), &err,
                 "r:2: key 'partial_rotary_factor': expected a number above 0, got 0");
    snprintf(text, sizeof text, "{%s, \"rope_scaling\": {\"rope_type\": \"llama3\"}}", rest);
    assert_fails(erg_model_parse(&model, "r", text, strlen(text), &err), &err, "factor");
}

/* A key that is not there means what its family's own reader takes it for. */
static void keys_left_out_have_the_familys_defaults(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    /* Qwen 3 4B, whose heads are not hidden / heads = 80 wide; 4 022 468 096 parameters. */
    const char qwen3[] =
        "{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 2560,"
        "\"intermediate_size\": 9728, \"num_hidden_layers\": 36,"
        "\"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
        "\"rms_norm_eps\": 1e-06, \"sliding_window\": 4096, \"tie_word_embeddings\": true,"
        "\"vocab_size\": 151936}";
    assert_ok(erg_model_parse(&model, "q", qwen3, strlen(qwen3), &err), &err);
    assert_int_equal(model->head_dim, 128);
    assert_near(erg_model_parameters(model), 4022468096, 0);
    assert_int_equal(model->window, 0);
    assert_ok(erg_model_check_sequence(model, 1, 32768, &err), &err);
    erg_model_free(model);
    const char windowed[] = "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 64,"
                            "\"intermediate_size\": 128, \"num_hidden_layers\": 2,"
                            "\"num_attention_heads\": 4, \"use_sliding_window\": true,"
                            "\"rms_norm_eps\": 1e-06,"
                            "\"sliding_window\": 512, \"vocab_size\": 100}";
    assert_ok(erg_model_parse(&model, "w", windowed, strlen(windowed), &err), &err);
    assert_int_equal(model->window, 512);
    assert_int_equal(model->head_dim, 16);
    erg_model_free(model);
}

/* What came out for a model may lie in a folder with its name. */
static void folders_without_a_config_hide_nothing(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    char folder[] = "/tmp/ergon-test-XXXXXX", before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_ok(erg_dir_make("llama-3.2-3b", &err), &err);
    assert_ok(erg_model_load(&model, "llama-3.2-3b", &err), &err);
    assert_int_equal(model->layers, 28);
    erg_model_free(model);
    assert_int_equal(rmdir("llama-3.2-3b"), 0);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void other_families_load(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    /* Qwen 2.5 0.5B: biases on QKV only; 494 032 768 parameters. */
    const char qwen2[] = "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 896,"
                         "\"intermediate_size\": 4864, \"num_hidden_layers\": 24,"
                         "\"num_attention_heads\": 14, \"num_key_value_heads\": 2,"
                         "\"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0,"
                         "\"use_sliding_window\": false, \"sliding_window\": 32768,"
                         "\"tie_word_embeddings\": true, \"vocab_size\": 151936}";
    assert_ok(erg_model_parse(&model, "q", qwen2, strlen(qwen2), &err), &err);
    assert_true(model->qkv_bias && !model->projection_bias && model->tied);
    assert_int_equal(model->window, 0);
    assert_near(erg_model_parameters(model), 494032768, 0);
    erg_model_free(model);
    /* Mistral 7B: 7 241 732 096 parameters; GPT-2: 124 439 808. */
    const char mistral[] = "{\"architectures\": [\"MistralForCausalLM\"], \"hidden_size\": 4096,"
                           "\"intermediate_size\": 14336, \"num_hidden_layers\": 32,"
                           "\"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
                           "\"head_dim\": null, \"rms_norm_eps\": 1e-05, \"sliding_window\": 4096,"
                           "\"vocab_size\": 32000}";
    assert_ok(erg_model_parse(&model, "m", mistral, strlen(mistral), &err), &err);
    assert_near(erg_model_parameters(model), 7241732096, 0);
    assert_ok(erg_model_check_sequence(model, 1, 4096, &err), &err);
    assert_fails(erg_model_check_sequence(model, 1, 8192, &err), &err,
                 "longer than the window of 4096");
    erg_model_free(model);
    const char gpt2[] = "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 768, \"n_layer\":"
                        "12, \"n_head\": 12, \"n_positions\": 1024, \"vocab_size\": 50257}";
    assert_ok(erg_model_parse(&model, "g", gpt2, strlen(gpt2), &err), &err);
    assert_near(erg_model_parameters(model), 124439808, 0);
    erg_model_free(model);
}

/* A model by the numbers that its config has, and its published or hand-counted parameters. */
struct counted {
    const char *text;
    double parameters;
    long window;
    double rotated_share;
};

#define SHAPE(hidden, ffn, layers, heads, kv, vocab)                                               \
    "\"hidden_size\": " #hidden ", \"intermediate_size\": " #ffn                                   \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads                       \
    ", \"num_key_value_heads\": " #kv ", \"vocab_size\": " #vocab ", \"rms_norm_eps\": 1e-05"

static void fused_partial_and_nested_models_load(void **state)
{
    (void)state;
    static const struct counted models[] = {
        /* Phi-4: 14 659 507 200; Phi-3 mini with its window; Phi-4 mini, tied, partly rotated. */
        {"{\"architectures\": [\"Phi3ForCausalLM\"], \"sliding_window\": null, " SHAPE(
             5120, 17920, 40, 40, 10, 100352) "}",
         14659507200, 0, 1},
        {"{\"architectures\": [\"Phi3ForCausalLM\"], \"sliding_window\": 2047, "
         "\"model_type\": \"phi3\", " SHAPE(3072, 8192, 32, 32, 32, 32064) "}",
         3821079552, 2047, 1},
        {"{\"architectures\": [\"Phi3ForCausalLM\"], \"tie_word_embeddings\": true, "
         "\"partial_rotary_factor\": 0.75, \"sliding_window\": 262144, \"rope_scaling\": "
         "{\"type\": \"longrope\"}, " SHAPE(3072, 8192, 32, 24, 8, 200064) "}",
         3836021760, 262144, 0.75},
        /* Ministral 8B and Ministral 3 3B. */
        {"{\"architectures\": [\"MistralForCausalLM\"], \"head_dim\": 128, \"sliding_window\": "
         "32768, " SHAPE(4096, 12288, 36, 32, 8, 131072) "}",
         8019808256, 32768, 1},
        {"{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"tie_word_embeddings\": "
         "true, \"text_config\": {\"model_type\": \"ministral3\", \"head_dim\": 128, "
         "\"rope_parameters\": {\"type\": \"yarn\", \"factor\": 16.0, "
         "\"original_max_position_embeddings\": 16384, \"llama_4_scaling_beta\": 0.1}, " SHAPE(
             3072, 9216, 26, 32, 8, 131072) "}}",
         3429006336, 0, 1},
        /* The text part of Voxtral Mini, of Mistral Small 3.1 24B, of Qwen2.5-VL 7B and 3B. */
        {"{\"architectures\": [\"VoxtralForConditionalGeneration\"], \"audio_config\": "
         "{\"hidden_size\": 1280}, \"text_config\": {\"model_type\": \"llama\", \"head_dim\": 128, "
         "\"sliding_window\": null, " SHAPE(3072, 8192, 30, 32, 8, 131072) "}}",
         4014136320, 0, 1},
        {"{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"vision_config\": {}, "
         "\"text_config\": {\"model_type\": \"mistral\", \"head_dim\": 128, " SHAPE(
             5120, 32768, 40, 32, 8, 131072) "}}",
         23572403200, 0, 1},
        {"{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"model_type\": "
         "\"qwen2_5_vl\", \"use_sliding_window\": false, \"sliding_window\": 32768, "
         "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}, " SHAPE(
             3584, 18944, 28, 28, 4, 152064) "}",
         7615616512, 0, 1},
        {"{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"text_config\": "
         "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"model_type\": "
         "\"qwen2_5_vl_text\", \"tie_word_embeddings\": true, " SHAPE(2048, 11008, 36, 16, 2,
                                                                      151936) "}}",
         3085938688, 0, 1},
        /* Only a type of model: TinyLlama 1.1B; and with a byte-order mark. */
        {"{\"model_type\": \"llama\", " SHAPE(2048, 5632, 22, 32, 4, 32000) "}", 1100048384, 0, 1},
        {"\xef\xbb\xbf{\"model_type\": \"llama\", \"architectures\": null, " SHAPE(
             2048, 5632, 22, 32, 4, 32000) "}",
         1100048384, 0, 1},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct erg_error err;
        struct erg_model *model;
        assert_ok(erg_model_parse(&model, "m", models[i].text, strlen(models[i].text), &err), &err);
        assert_near(erg_model_parameters(model), models[i].parameters, 0);
        assert_int_equal(model->window, models[i].window);
        assert_near(model->rope.rotated_share, models[i].rotated_share, 0);
        erg_model_free(model);
    }
}

/* The lines of messages count from the mark on. */
static void byte_order_marks_move_no_line(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    const char text[] = "\xef\xbb\xbf{\n\"model_type\": \"llama\",\n\"hidden_size\": 0}";
    assert_fails(erg_model_parse(&model, "m", text, strlen(text), &err), &err,
                 "m:3: key 'hidden_size': expected");
    assert_fails(erg_model_parse(&model, "m", "\xef\xbb\xbf", 3, &err), &err, "m:1");
}

/* Names stay on their line, whatever is in them. */
static void names_have_no_control_characters(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_model *model;
    const char text[] = "{\"model_type\": \"llama\", \"_name_or_path\": \"x\\n--load y\\u001b]0;"
                        "\\u2028\\u0085\\u00fc\", " SHAPE(64, 128, 2, 4, 4, 100) "}";
    assert_ok(erg_model_parse(&model, "m", text, strlen(text), &err), &err);
    assert_string_equal(model->name, "x\\x0a--load y\\x1b]0;\\u2028\\x85\u00fc");
    erg_model_free(model);
    const char nameless[] = "{\"model_type\": \"llama\", " SHAPE(64, 128, 2, 4, 4, 100) "}";
    assert_ok(erg_model_parse(&model, "a\rb", nameless, strlen(nameless), &err), &err);
    assert_string_equal(model->name, "a\\x0db");
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_configs_are_refused),
        cmocka_unit_test(rotary_frequencies),
        cmocka_unit_test(keys_left_out_have_the_familys_defaults),
        cmocka_unit_test(folders_without_a_config_hide_nothing),
        cmocka_unit_test(other_families_load),
        cmocka_unit_test(fused_partial_and_nested_models_load),
        cmocka_unit_test(byte_order_marks_move_no_line),
        cmocka_unit_test(names_have_no_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
