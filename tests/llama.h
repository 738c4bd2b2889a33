/* A Llama-like model of any shape, with untied embeddings. */
#ifndef ERGON_TESTS_LLAMA_H
#define ERGON_TESTS_LLAMA_H

#include "check.h"
#include "model/model.h"

static inline struct erg_model *llama(const char *name, int vocabulary, int layers, int hidden,
                                      int ffn, int heads, int kv_heads)
{
    char text[512];
    struct erg_error err;
    struct erg_model *model;
    snprintf(text, sizeof text,
             "{\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": %d,"
             "\"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d,"
             "\"num_key_value_heads\": %d, \"vocab_size\": %d, \"rms_norm_eps\": 1e-5,"
             "\"tie_word_embeddings\": false, \"max_position_embeddings\": 32768}",
             layers, hidden, ffn, heads, kv_heads, vocabulary);
    assert_ok(erg_model_parse(&model, name, text, strlen(text), &err), &err);
    return model;
}

#endif
