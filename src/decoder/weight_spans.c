/* Which parts of a checkpoint's tensors a rank's weights are, by the names of each family. */
#include "decoder/decoder_weights.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of a checkpoint that one of ours is made of; several of ours, or several parts of one,
 * may lie in the same, one behind the other. */
struct checkpoint_part {
    const char *name; /* "#" stands for the layer */
    int fused;        /* of how many parts the checkpoint's tensor is made */
    int index;        /* which of them this is */
    bool transposed;
};

/* For each of our tensors: its parts in the checkpoint. Queries, keys, values; gate and up. */
struct checkpoint_family {
    struct checkpoint_part parts[ERG_TENSORS][3];
};

#define LAYER "model.layers.#."
static const struct checkpoint_family llama = {{
    [ERG_TENSOR_NORM_A] = {{LAYER "input_layernorm.weight", 1, 0, false}},
    [ERG_TENSOR_QKV] = {{LAYER "self_attn.q_proj.weight", 1, 0, false},
                        {LAYER "self_attn.k_proj.weight", 1, 0, false},
                        {LAYER "self_attn.v_proj.weight", 1, 0, false}},
    [ERG_TENSOR_QKV_BIAS] = {{LAYER "self_attn.q_proj.bias", 1, 0, false},
                             {LAYER "self_attn.k_proj.bias", 1, 0, false},
                             {LAYER "self_attn.v_proj.bias", 1, 0, false}},
    [ERG_TENSOR_Q_NORM] = {{LAYER "self_attn.q_norm.weight", 1, 0, false}},
    [ERG_TENSOR_K_NORM] = {{LAYER "self_attn.k_norm.weight", 1, 0, false}},
    [ERG_TENSOR_PROJ] = {{LAYER "self_attn.o_proj.weight", 1, 0, false}},
    [ERG_TENSOR_PROJ_BIAS] = {{LAYER "self_attn.o_proj.bias", 1, 0, false}},
    [ERG_TENSOR_NORM_M] = {{LAYER "post_attention_layernorm.weight", 1, 0, false}},
    [ERG_TENSOR_FC1] = {{LAYER "mlp.gate_proj.weight", 1, 0, false},
                        {LAYER "mlp.up_proj.weight", 1, 0, false}},
    [ERG_TENSOR_FC1_BIAS] = {{LAYER "mlp.gate_proj.bias", 1, 0, false},
                             {LAYER "mlp.up_proj.bias", 1, 0, false}},
    [ERG_TENSOR_FC2] = {{LAYER "mlp.down_proj.weight", 1, 0, false}},
    [ERG_TENSOR_FC2_BIAS] = {{LAYER "mlp.down_proj.bias", 1, 0, false}},
    [ERG_TENSOR_EMBEDDING] = {{"model.embed_tokens.weight", 1, 0, false}},
    [ERG_TENSOR_NORM_FINAL] = {{"model.norm.weight", 1, 0, false}},
    [ERG_TENSOR_HEAD] = {{"lm_head.weight", 1, 0, false}},
}};

/* Phi-3 keeps queries, keys and values in one tensor, and gate and up. */
static const struct checkpoint_family phi3 = {{
    [ERG_TENSOR_NORM_A] = {{LAYER "input_layernorm.weight", 1, 0, false}},
    [ERG_TENSOR_QKV] = {{LAYER "self_attn.qkv_proj.weight", 3, 0, false},
                        {LAYER "self_attn.qkv_proj.weight", 3, 1, false},
                        {LAYER "self_attn.qkv_proj.weight", 3, 2, false}},
    [ERG_TENSOR_PROJ] = {{LAYER "self_attn.o_proj.weight", 1, 0, false}},
    [ERG_TENSOR_NORM_M] = {{LAYER "post_attention_layernorm.weight", 1, 0, false}},
    [ERG_TENSOR_FC1] = {{LAYER "mlp.gate_up_proj.weight", 2, 0, false},
                        {LAYER "mlp.gate_up_proj.weight", 2, 1, false}},
    [ERG_TENSOR_FC2] = {{LAYER "mlp.down_proj.weight", 1, 0, false}},
    [ERG_TENSOR_EMBEDDING] = {{"model.embed_tokens.weight", 1, 0, false}},
    [ERG_TENSOR_NORM_FINAL] = {{"model.norm.weight", 1, 0, false}},
    [ERG_TENSOR_HEAD] = {{"lm_head.weight", 1, 0, false}},
}};
#undef LAYER

#define LAYER "transformer.h.#."
static const struct checkpoint_family gpt2 = {{
    [ERG_TENSOR_NORM_A] = {{LAYER "ln_1.weight", 1, 0, false}},
    [ERG_TENSOR_NORM_A_BIAS] = {{LAYER "ln_1.bias", 1, 0, false}},
    [ERG_TENSOR_QKV] = {{LAYER "attn.c_attn.weight", 3, 0, true},
                        {LAYER "attn.c_attn.weight", 3, 1, true},
                        {LAYER "attn.c_attn.weight", 3, 2, true}},
    [ERG_TENSOR_QKV_BIAS] = {{LAYER "attn.c_attn.bias", 3, 0, false},
                             {LAYER "attn.c_attn.bias", 3, 1, false},
                             {LAYER "attn.c_attn.bias", 3, 2, false}},
    [ERG_TENSOR_PROJ] = {{LAYER "attn.c_proj.weight", 1, 0, true}},
    [ERG_TENSOR_PROJ_BIAS] = {{LAYER "attn.c_proj.bias", 1, 0, false}},
    [ERG_TENSOR_NORM_M] = {{LAYER "ln_2.weight", 1, 0, false}},
    [ERG_TENSOR_NORM_M_BIAS] = {{LAYER "ln_2.bias", 1, 0, false}},
    [ERG_TENSOR_FC1] = {{LAYER "mlp.c_fc.weight", 1, 0, true}},
    [ERG_TENSOR_FC1_BIAS] = {{LAYER "mlp.c_fc.bias", 1, 0, false}},
    [ERG_TENSOR_FC2] = {{LAYER "mlp.c_proj.weight", 1, 0, true}},
    [ERG_TENSOR_FC2_BIAS] = {{LAYER "mlp.c_proj.bias", 1, 0, false}},
    [ERG_TENSOR_EMBEDDING] = {{"transformer.wte.weight", 1, 0, false}},
    [ERG_TENSOR_POSITIONS] = {{"transformer.wpe.weight", 1, 0, false}},
    [ERG_TENSOR_NORM_FINAL] = {{"transformer.ln_f.weight", 1, 0, false}},
    [ERG_TENSOR_NORM_FINAL_BIAS] = {{"transformer.ln_f.bias", 1, 0, false}},
    [ERG_TENSOR_HEAD] = {{"lm_head.weight", 1, 0, false}},
}};
#undef LAYER

static const struct checkpoint_family *family_of(const struct erg_model *model)
{
    return model->layer_norm                                     ? &gpt2
           : strcmp(model->architecture, "Phi3ForCausalLM") == 0 ? &phi3
                                                                 : &llama;
}

/* Rows that a part has in all, and those of this rank. */
struct rows {
    size_t all, first, count;
};

static struct rows share(size_t all, size_t ranks, size_t place)
{
    return (struct rows){all, place * (all / ranks), all / ranks};
}

/* The spans of part `part` of one of our tensors that is split by rows, or whole. */
static struct rows rows_of(const struct erg_weights_request *request,
                           const struct erg_weight *weight, size_t part)
{
    const struct erg_model *model = request->model;
    size_t t = (size_t)request->tensor, place = (size_t)request->place;
    size_t d = (size_t)model->head_dim;
    switch (weight->tensor) {
    case ERG_TENSOR_QKV:
    case ERG_TENSOR_QKV_BIAS: {
        if (part == 0)
            return share((size_t)model->heads * d, t, place);
        size_t groups = (size_t)model->kv_heads;
        size_t local = (size_t)erg_model_local_kv_heads(model, request->tensor);
        return (struct rows){groups * d, place * groups / t * d, local * d};
    }
    case ERG_TENSOR_FC1:
    case ERG_TENSOR_FC1_BIAS:
        return share((size_t)model->ffn, t, place);
    case ERG_TENSOR_EMBEDDING:
    case ERG_TENSOR_HEAD: {
        size_t words = (size_t)erg_model_words(model), first = place * weight->rows;
        size_t rest = first < words ? words - first : 0;
        return (struct rows){words, first, rest < weight->rows ? rest : weight->rows};
    }
    default:
        return (struct rows){weight->rows, 0, weight->rows};
    }
}

static void name_of(char *name, size_t capacity, const char *pattern, long layer)
{
    const char *mark = strchr(pattern, '#');
    if (mark)
        snprintf(name, capacity, "%.*s%ld%s", (int)(mark - pattern), pattern, layer, mark + 1);
    else
        snprintf(name, capacity, "%s", pattern);
}

/* Whether another rank has this part, too, and is the one that counts it. */
static bool is_copy(const struct erg_weights_request *request, const struct erg_weight *weight,
                    size_t part)
{
    const struct erg_model *model = request->model;
    if (!weight->split)
        return request->place > 0;
    if (weight->tensor == ERG_TENSOR_HEAD)
        return model->tied; /* the embedding's, which the first stage has */
    bool keys = weight->tensor == ERG_TENSOR_QKV || weight->tensor == ERG_TENSOR_QKV_BIAS;
    return keys && part > 0 && request->tensor > model->kv_heads &&
           request->place % (request->tensor / model->kv_heads) != 0;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * Cuts a span of whole rows to elements [begin, end) of the weights, whose state this rank has: the
 * rest of a row, whole rows, and a part of a row.
 */
static void add_cut(struct erg_weight_spans *spans, const struct erg_weight_span *whole,
                    const struct erg_weight_bucket *bucket)
{
    size_t width = whole->columns, first = whole->offset, last = first + whole->rows * width;
    size_t begin = bucket->share > first ? bucket->share : first;
    size_t end = smaller(bucket->share + bucket->part, last);
    while (begin < end) {
        size_t row = (begin - first) / width, column = (begin - first) % width;
        bool rows = column == 0 && end - begin >= width;
        struct erg_weight_span span = *whole;
        span.row += row;
        span.column += column;
        span.rows = rows ? (end - begin) / width : 1;
        span.columns = rows ? width : smaller(width - column, end - begin);
        span.offset = begin;
        span.state = bucket->state + begin - bucket->share;
        begin += span.rows * span.columns;
        ERG_PUSH(spans, items, span);
    }
}

static void add_span(struct erg_weight_spans *spans, const struct erg_weights *weights,
                     const struct erg_weights_request *request, size_t index,
                     const struct checkpoint_part *part, size_t part_index, size_t *local_row)
{
    const struct erg_weight *weight = &weights->items[index];
    struct rows rows = rows_of(request, weight, part_index);
    bool by_columns = weight->tensor == ERG_TENSOR_PROJ || weight->tensor == ERG_TENSOR_FC2;
    size_t columns = weight->columns * (by_columns ? (size_t)request->tensor : 1);
    size_t before = 0, outputs = rows.all;
    for (int i = 0; i < part->fused && part->fused > 1; i++) {
        size_t all = rows_of(request, weight, (size_t)i).all;
        before += i < part->index ? all : 0;
        outputs = (i ? outputs : 0) + all;
    }
    struct erg_weight_span span = {
        .transposed = part->transposed,
        .copy = is_copy(request, weight, part_index),
        .weight = index,
        .row = before + rows.first,
        .column = by_columns ? (size_t)request->place * weight->columns : 0,
        .rows = rows.count,
        .columns = weight->columns,
        .offset = weight->offset + *local_row * weight->columns,
        .stride = weight->columns,
    };
    bool vector = !weight->decays;
    span.dimensions = vector ? 1 : 2;
    span.shape[0] = part->transposed ? columns : outputs;
    span.shape[1] = vector ? 0 : part->transposed ? outputs : columns;
    *local_row += rows.count;
    name_of(span.name, sizeof span.name, part->name, weight->layer);
    add_cut(spans, &span, &weights->buckets.items[weight->bucket]);
}

/* The copy of a tied head that a last stage holds is one of the embedding. */
static enum erg_tensor source_of(const struct erg_model *model, const struct erg_weight *weight)
{
    return weight->tensor == ERG_TENSOR_HEAD && model->tied ? ERG_TENSOR_EMBEDDING : weight->tensor;
}

void erg_weight_spans_init(struct erg_weight_spans *spans, const struct erg_weights *weights,
                           const struct erg_weights_request *request)
{
    *spans = (struct erg_weight_spans){0};
    const struct checkpoint_family *family = family_of(request->model);
    for (size_t i = 0; i < weights->count; i++) {
        size_t local_row = 0;
        const struct checkpoint_part *parts =
            family->parts[source_of(request->model, &weights->items[i])];
        for (size_t part = 0; part < 3 && parts[part].name; part++)
            add_span(spans, weights, request, i, &parts[part], part, &local_row);
    }
}

void erg_weight_spans_release(struct erg_weight_spans *spans)
{
    free(spans->items);
    *spans = (struct erg_weight_spans){0};
}
