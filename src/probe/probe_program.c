/* Which measurements are made, and in which order. */
#include "probe/probe.h"
#include "probe/probe_internal.h"

#include "base/memory.h"
#include "partition/partition.h"

#include <stdlib.h>
#include <string.h>

/*
 * Two layers that belong to no model: one wide with a long FFN and short sequences, one narrow with
 * a short FFN and long sequences. Everything can be split over 1, 2, 4 or 8 GPUs. The vocabulary is
 * small because nothing of it is measured. The narrow one once more with twice as many heads of
 * half the length, for their attention, and with its sequences split, for the exchange of keys and
 * values and the attention of chunks.
 */
#define NARROW(heads, kv_heads, head_dim)                                                          \
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"],"                       \
    " \"hidden_size\": 2560, \"num_attention_heads\": " heads                                      \
    ", \"num_key_value_heads\": " kv_heads ", \"head_dim\": " head_dim                             \
    ", \"intermediate_size\": 7168, \"num_hidden_layers\": 1,"                                     \
    " \"vocab_size\": 16384, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-05,"          \
    " \"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}"

/* The measured parts of a shape. */
enum scope {
    EVERYTHING,
    SIZES, /* what shows how the first shape's numbers depend on sizes */
    ATTENTION,
    EXCHANGE, /* the partitions in which keys and values, or their gradients, travel */
};

static const struct shape {
    const char *name, *config;
    int sequences, sequence, context;
    enum scope scope;
} shapes[] = {
    {"wide",
     "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"],"
     " \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
     " \"head_dim\": 128, \"intermediate_size\": 14336, \"num_hidden_layers\": 1,"
     " \"vocab_size\": 16384, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-05,"
     " \"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}",
     8, 2048, 1, EVERYTHING},
    {"narrow", NARROW("24", "8", "128"), 8, 4096, 1, SIZES},
    {"heads", NARROW("48", "16", "64"), 8, 4096, 1, ATTENTION},
    {"context", NARROW("24", "8", "128"), 8, 4096, 2, EXCHANGE},
};

/* Microbatches with these numbers of sequences show how a product's rate depends on its size. */
static const int parts_sequences[] = {1, 2};
enum { PARTS = sizeof parts_sequences / sizeof *parts_sequences };

static const int collective_sms[] = {1, 2, 4, 6, 8, 12, 20};

struct erg_probe_parts {
    struct erg_arena arena;
    struct erg_workload whole, part[PARTS];
    size_t workloads; /* built: whole, then part[] */
};

size_t erg_probe_shapes(int gpus)
{
    return sizeof shapes / sizeof *shapes - (gpus < 4);
}

/* ---- names ---- */

static const struct {
    enum erg_model_op_id id;
    const char *name;
} op_names[] = {
    {ERG_MODEL_QKV, "qkv"},       {ERG_MODEL_ROPE, "rope"},         {ERG_MODEL_ATTENTION, "attn"},
    {ERG_MODEL_PROJ, "proj"},     {ERG_MODEL_FC1, "fc1"},           {ERG_MODEL_FC2, "fc2"},
    {ERG_MODEL_NORM_A, "norm_a"}, {ERG_MODEL_ACTIVATION, "swiglu"}, {ERG_MODEL_NORM_M, "norm_m"},
};

/* NULL for an op without a kernel of its own. */
static const char *op_name(const struct erg_op *op)
{
    for (size_t i = 0; i < sizeof op_names / sizeof *op_names; i++)
        if (op->code.parts & 1u << op_names[i].id)
            return op_names[i].name;
    return NULL;
}

/* ---- items ---- */

static void add(struct erg_probe_program *program, enum erg_probe_family family,
                const struct erg_step *steps, size_t count, const char *name)
{
    ERG_PUSH(program, items,
             (struct erg_probe_item){
                 .name = name, .family = family, .steps = steps, .step_count = count});
}

static const struct erg_step *one_step(struct erg_probe_program *program, struct erg_task task,
                                       size_t slot, int sms)
{
    struct erg_step *step = erg_arena_alloc(&program->parts->arena, sizeof *step);
    *step = (struct erg_step){.task = task, .launch = {.slot = slot, .sms = sms}};
    return step;
}

static enum erg_probe_family family_of(const struct erg_op *op)
{
    switch (op->kind) {
    case ERG_OP_GEMM:
        return ERG_PROBE_PRODUCT;
    case ERG_OP_ATTENTION_FORWARD:
    case ERG_OP_ATTENTION_BACKWARD:
        return ERG_PROBE_ATTENTION;
    case ERG_OP_MEMORY:
        break;
    }
    return ERG_PROBE_MEMORY;
}

/* Several times in a row, so that what starts a run does not count. */
static void add_op(struct erg_probe_program *program, const struct erg_op *op, const char *suffix)
{
    struct erg_arena *arena = &program->parts->arena;
    size_t count = op->kind == ERG_OP_MEMORY ? 8 : PROBE_PRODUCTS;
    struct erg_op *ops = erg_arena_alloc(arena, count * sizeof *ops);
    for (size_t i = 0; i < count; i++)
        ops[i] = *op;
    const char *name =
        erg_arena_printf(arena, "%zu x %s %s%s%s", count, op->code.backward ? "bwd" : "fwd",
                         op_name(op), op->code.weights ? " weights" : "", suffix);
    add(program, family_of(op), one_step(program, (struct erg_task){ops, count, {0}}, 0, 0), 1,
        name);
}

/* Calls visit for every op of a layer in one direction. */
static void each_op(const struct erg_workload *workload, int direction,
                    void (*visit)(struct erg_probe_program *, const struct erg_op *, void *),
                    struct erg_probe_program *program, void *context)
{
    const struct erg_steps *layer = &workload->sequential[direction];
    for (size_t s = 0; s < layer->count; s++)
        for (size_t i = 0; i < layer->steps[s].task.op_count; i++)
            if (op_name(&layer->steps[s].task.ops[i]))
                visit(program, &layer->steps[s].task.ops[i], context);
}

static void add_whole_op(struct erg_probe_program *program, const struct erg_op *op, void *context)
{
    const enum scope *scope = context;
    const unsigned parts = op->code.parts, norm_m = 1u << ERG_MODEL_NORM_M; /* like norm_a */
    const unsigned mlp = 1u << ERG_MODEL_FC1 | 1u << ERG_MODEL_FC2;
    const unsigned simple = 1u << ERG_MODEL_ACTIVATION | 1u << ERG_MODEL_ATTENTION;
    bool first_shape = !(parts & norm_m) && (!op->code.weights || parts & mlp);
    bool next_shape = op->code.backward ? parts & simple : op->kind != ERG_OP_MEMORY;
    if (*scope == EVERYTHING  ? first_shape
        : *scope == SIZES     ? next_shape
        : *scope == ATTENTION ? family_of(op) == ERG_PROBE_ATTENTION
                              : false)
        add_op(program, op, "");
}

static void add_sized_op(struct erg_probe_program *program, const struct erg_op *op, void *context)
{
    const char *suffix = context;
    if (op->kind == ERG_OP_GEMM && op->code.parts & 1u << ERG_MODEL_FC1)
        add_op(program, op, suffix);
}

/*
 * The AllReduce follows the product whose output it adds up: alone, run over and over, it would add
 * up the same buffer until it overflows.
 */
static struct erg_task collective_task(const struct erg_probe_program *program)
{
    struct erg_task task = program->parts->whole.sequential[0].steps[0].task;
    task.ops += task.op_count - 1; /* proj */
    task.op_count = 1;
    return task;
}

static void add_collectives(struct erg_probe_program *program)
{
    struct erg_task task = collective_task(program);
    add(program, ERG_PROBE_COLLECTIVE, one_step(program, task, 1, 0), 1, "allreduce library");
    task.comm.library = false;
    for (size_t i = 0; i < sizeof collective_sms / sizeof *collective_sms; i++)
        add(program, ERG_PROBE_COLLECTIVE, one_step(program, task, 1, collective_sms[i]), 1,
            erg_arena_printf(&program->parts->arena, "allreduce sms %d", collective_sms[i]));
}

/* Few and many SMs at each slot; a diagonal where everything would take too long. */
static void add_partition(struct erg_probe_program *program, const struct erg_partition *partition,
                          bool everything)
{
    static const int sms[] = {2, 6, 16};
    for (size_t slot = 0; slot < partition->slot_count; slot++)
        for (size_t k = 0; k < sizeof sms / sizeof *sms; k++) {
            if (everything ? (slot + k) % 2 : slot != k)
                continue;
            struct erg_step *step = erg_arena_alloc(&program->parts->arena, sizeof *step);
            *step = erg_partition_step(partition, slot, sms[k]);
            add(program, ERG_PROBE_PARTITION, step, 1,
                erg_arena_printf(&program->parts->arena, "%s %s sms %d", partition->key,
                                 partition->slots[slot].name, sms[k]));
        }
}

/*
 * Where keys and values, or their gradients, travel: one block where nothing but products is in the
 * way, so that its rate shows; with attention as many as hide it.
 */
static void add_exchange(struct erg_probe_program *program, const struct erg_partition *partition)
{
    const struct erg_task *task = &partition->task;
    bool attention = false;
    for (size_t i = 0; i < task->op_count; i++)
        attention |= family_of(&task->ops[i]) == ERG_PROBE_ATTENTION;
    if (task->comm.kind == ERG_COMM_ALLREDUCE)
        return;
    int sms = attention ? 8 : 1;
    struct erg_step *step = erg_arena_alloc(&program->parts->arena, sizeof *step);
    *step = erg_partition_step(partition, 0, sms);
    add(program, ERG_PROBE_PARTITION, step, 1,
        erg_arena_printf(&program->parts->arena, "%s %s sms %d", partition->key,
                         partition->slots[0].name, sms));
}

static void add_layers(struct erg_probe_program *program)
{
    const struct erg_workload *whole = &program->parts->whole;
    static const char *const names[] = {"layer fwd", "layer bwd"};
    static const char *const halves[] = {"layer fwd nanobatched", "layer bwd nanobatched"};
    for (int d = 0; d < 2; d++) {
        add(program, ERG_PROBE_LAYER, whole->sequential[d].steps, whole->sequential[d].count,
            names[d]);
        if (whole->nanobatched)
            add(program, ERG_PROBE_LAYER, whole->nanobatch[d].steps, whole->nanobatch[d].count,
                halves[d]);
    }
}

/* On one SM: of a GPU that waits, one block spins and the rest is ready. */
static void add_blocked(struct erg_probe_program *program)
{
    struct erg_task task = collective_task(program);
    task.comm.library = false;
    add(program, ERG_PROBE_BLOCKED, one_step(program, task, 1, 1), 1, PROBE_BLOCKED);
}

static void add_rests(struct erg_probe_program *program)
{
    add(program, ERG_PROBE_REST, NULL, 0, PROBE_REST);
    program->items[program->count - 1].since_s = 0.2;
    add(program, ERG_PROBE_REST, NULL, 0, PROBE_IDLE);
    program->items[program->count - 1].since_s = 1.5;
}

/* ---- the door ---- */

static int build_workloads(struct erg_probe_program *program, const struct erg_gpu *gpu,
                           const struct erg_stack *stack, struct erg_error *err)
{
    struct erg_workload_request request = {
        .model = program->model,
        .gpu = gpu,
        .stack = stack,
        .tensor = program->tensor,
        .context = program->context,
        .microbatch_size = program->sequences,
        .sequence = program->sequence,
    };
    struct erg_probe_parts *parts = program->parts;
    if (erg_workload_build(&parts->whole, &request, err))
        return -1;
    for (parts->workloads = 1; parts->workloads <= PARTS; parts->workloads++) {
        request.microbatch_size = parts_sequences[parts->workloads - 1];
        if (erg_workload_build(&parts->part[parts->workloads - 1], &request, err))
            return -1;
    }
    return 0;
}

static void add_items(struct erg_probe_program *program, enum scope scope)
{
    struct erg_probe_parts *parts = program->parts;
    bool everything = scope == EVERYTHING;
    size_t types = parts->whole.forward_count + parts->whole.backward_count;
    if (scope == EXCHANGE) {
        for (size_t i = 0; i < types; i++)
            add_exchange(program, &parts->whole.partitions[i]);
        return;
    }
    if (scope != ATTENTION)
        add_layers(program); /* first: they warm the GPUs */
    for (int direction = 0; direction < 2; direction++)
        each_op(&parts->whole, direction, add_whole_op, program, &scope);
    if (scope == ATTENTION)
        return;
    for (size_t i = 0; everything && i < PARTS; i++)
        each_op(&parts->part[i], 0, add_sized_op, program,
                erg_arena_printf(&parts->arena, " of %d", parts_sequences[i]));
    if (program->gpus > 1) {
        for (size_t i = 0; i < types; i++)
            add_partition(program, &parts->whole.partitions[i], everything);
        if (everything) {
            add_collectives(program);
            add_blocked(program);
        }
    }
    if (everything)
        add_rests(program);
}

int erg_probe_program_init(struct erg_probe_program *program, size_t shape, int gpus,
                           const struct erg_gpu *gpu, const struct erg_stack *stack,
                           struct erg_error *err)
{
    const struct shape *made = &shapes[shape];
    *program = (struct erg_probe_program){
        .name = made->name,
        .gpus = gpus,
        .tensor = gpus / made->context,
        .context = made->context,
        .sequences = made->sequences,
        .sequence = made->sequence,
        .parts = erg_xcalloc(1, sizeof *program->parts),
    };
    if (erg_model_parse(&program->model, made->name, made->config, strlen(made->config), err) ||
        erg_model_check_tensor(program->model, program->tensor, err) ||
        build_workloads(program, gpu, stack, err)) {
        erg_probe_program_release(program);
        return erg_fail_context(err, "preparing the probe of %d GPU%s", gpus,
                                erg_plural((size_t)gpus));
    }
    add_items(program, made->scope);
    return 0;
}

void erg_probe_program_release(struct erg_probe_program *program)
{
    struct erg_probe_parts *parts = program->parts;
    if (!parts)
        return;
    for (size_t i = 0; i < parts->workloads; i++)
        erg_workload_release(i ? &parts->part[i - 1] : &parts->whole);
    erg_arena_release(&parts->arena);
    free(parts);
    free(program->items);
    erg_model_free(program->model);
    *program = (struct erg_probe_program){0};
}
