/*
 * The 88 partitions of the ten published workloads (Llama 3.2 3B and Qwen 3 1.7B on 16 GPUs; TP 8
 * or CP 2 x TP 4), with the sizes of the published search: what the search is judged on.
 */
#ifndef ERGON_BENCH_PUBLISHED_PARTITIONS_H
#define ERGON_BENCH_PUBLISHED_PARTITIONS_H

#include "device/work.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { WORKLOADS = 10, MAX_PARTITIONS = 12, MAX_SLOTS = 4, MAX_OPS = 8 };

struct partition {
    const char *name;
    bool backward;
    int repeats; /* times per layer */
    struct erg_op ops[MAX_OPS];
    size_t op_count;
    struct erg_comm comm;
    size_t slots[MAX_SLOTS]; /* ops before which a launch is searched */
    size_t slot_count;
    size_t tree_start, tree_batches, tree_batch; /* published sizes */
};

struct workload {
    const char *name;
    struct partition partitions[MAX_PARTITIONS];
    size_t partition_count;
};

struct shape { /* per GPU and nanobatch */
    double tokens, sequence, batch, hidden, heads_width, groups_width, ffn;
    int tensor, context;
    bool qk_norm;
};

static inline void add_memory(struct partition *p, int kernels, double bytes)
{
    p->ops[p->op_count++] =
        (struct erg_op){.kind = ERG_OP_MEMORY, .kernels = kernels, .bytes = bytes};
}

static inline void add_gemm(struct partition *p, double m, double n, double k, bool accumulate)
{
    p->ops[p->op_count++] =
        (struct erg_op){.kind = ERG_OP_GEMM,
                        .kernels = 1,
                        .flops = 2 * m * n * k,
                        .bytes = 2 * (m * k + k * n + m * n) + (accumulate ? 8 * m * n : 0),
                        .k = k,
                        .tiles = ceil(m / 128) * ceil(n / 128)};
}

/* A linear layer n_in -> n_out over the tokens; backward: input gradient, then weight gradient. */
static inline void add_linear(struct partition *p, const struct shape *s, double n_in, double n_out)
{
    if (!p->backward) {
        add_gemm(p, s->tokens, n_out, n_in, false);
        return;
    }
    add_gemm(p, s->tokens, n_in, n_out, false);
    add_gemm(p, n_out, n_in, s->tokens, true);
}

static inline void add_norm(struct partition *p, const struct shape *s)
{
    add_memory(p, p->backward ? 3 : 2, (p->backward ? 17 : 11) * s->tokens * s->hidden);
}

static inline double qkv_width(const struct shape *s)
{
    return s->heads_width + 2 * s->groups_width;
}

static inline void add_rope(struct partition *p, const struct shape *s)
{
    double rotated = s->heads_width + s->groups_width;
    double bytes = 4 * s->tokens * (qkv_width(s) + rotated * (s->qk_norm ? 2 : 1));
    add_memory(p, s->qk_norm ? 5 : 3, p->backward ? 1.25 * bytes : bytes);
}

static inline void add_attention(struct partition *p, const struct shape *s)
{
    double flops = 2 * s->tokens * s->sequence * s->heads_width;
    double local = s->tokens * s->heads_width, whole = s->sequence * s->batch * s->groups_width;
    p->ops[p->op_count++] =
        (struct erg_op){.kind = p->backward ? ERG_OP_ATTENTION_BACKWARD : ERG_OP_ATTENTION_FORWARD,
                        .kernels = (p->backward ? 2 : 1) * (s->context > 1 ? 4 : 1),
                        .flops = p->backward ? 2.5 * flops : flops,
                        .bytes = p->backward ? 10 * local + 8 * whole : 4 * local + 4 * whole};
}

/* `body`: n norm, q qkv linear, r rope, a attention, o output linear, m the MLP's three ops.
 * `slots`: indices of ops; small, medium or large as published. */
static inline void add_partition(struct workload *w, const struct shape *s, const char *name,
                                 const char *body, char comm, const char *slots, char size)
{
    struct partition *p = &w->partitions[w->partition_count++];
    *p = (struct partition){.name = name, .backward = name[0] == 'b', .repeats = 1};
    for (; *body; body++)
        switch (*body) {
        case 'n':
            add_norm(p, s);
            break;
        case 'q':
            add_linear(p, s, s->hidden, qkv_width(s));
            break;
        case 'r':
            add_rope(p, s);
            break;
        case 'a':
            add_attention(p, s);
            break;
        case 'o':
            add_linear(p, s, s->heads_width, s->hidden);
            break;
        case 'm':
            if (!p->backward)
                add_linear(p, s, s->hidden, 2 * s->ffn);
            else
                add_linear(p, s, s->ffn, s->hidden);
            add_memory(p, 1, (p->backward ? 10 : 6) * s->tokens * s->ffn);
            if (!p->backward)
                add_linear(p, s, s->ffn, s->hidden);
            else
                add_linear(p, s, s->hidden, 2 * s->ffn);
            p->repeats = s->context > 1 ? 2 : 1;
            break;
        }
    double message = s->tokens * s->hidden * 2;
    double kv = 2 * (s->sequence * s->batch * s->groups_width * 2);
    if (comm == 'R')
        p->comm = (struct erg_comm){.kind = ERG_COMM_ALLREDUCE,
                                    .wire_bytes = 2 * message * (s->tensor - 1) / s->tensor,
                                    .group = s->tensor};
    else
        p->comm = (struct erg_comm){.kind = comm == 'G' ? ERG_COMM_ALLGATHER_KV
                                                        : ERG_COMM_REDUCESCATTER_KV,
                                    .wire_bytes = kv * (s->context - 1) / s->context,
                                    .group = s->context};
    for (; *slots; slots++)
        p->slots[p->slot_count++] = (size_t)(*slots - '0');
    p->tree_start = size == 'L' ? 96 : size == 'M' ? 48 : 36;
    p->tree_batches = size == 'S' ? 3 : 4;
    p->tree_batch = size == 'L' ? 32 : 16;
}

static inline void make_workload(struct workload *w, const char *name, bool qwen, int context,
                                 int microbatch, int sequence)
{
    *w = (struct workload){.name = name};
    int tensor = context > 1 ? 4 : 8;
    double heads = qwen ? 16 : 24, groups = 8, head = 128;
    struct shape s = {.sequence = sequence,
                      .batch = microbatch / 2.0,
                      .hidden = qwen ? 2048 : 3072,
                      .heads_width = heads * head / tensor,
                      .groups_width = groups * head / tensor,
                      .ffn = (qwen ? 6144.0 : 8192.0) / tensor,
                      .tensor = tensor,
                      .context = context,
                      .qk_norm = qwen};
    s.tokens = s.sequence / context * s.batch;
    if (context == 1) {
        add_partition(w, &s, "fwd_attn", "nqrao", 'R', "0123", 'L');
        add_partition(w, &s, "fwd_mlp", "nm", 'R', "012", 'L');
        add_partition(w, &s, "bwd_mlp", "nm", 'R', "013", 'L');
        add_partition(w, &s, "bwd_attn", "noarq", 'R', "0134", 'L');
        return;
    }
    add_partition(w, &s, "fwd_qkv_ar", "nqr", 'R', "01", 'M');
    add_partition(w, &s, "fwd_qkv_ag", "nqr", 'G', "012", 'M');
    add_partition(w, &s, "fwd_ao_ag", "ao", 'G', "01", 'S');
    add_partition(w, &s, "fwd_ao_ar", "ao", 'R', "0", 'S');
    add_partition(w, &s, "fwd_mlp", "nm", 'R', "012", 'L');
    add_partition(w, &s, "bwd_mlp", "nm", 'R', "013", 'L');
    add_partition(w, &s, "bwd_o_ar", "no", 'R', "0", 'S');
    add_partition(w, &s, "bwd_o_ag", "no", 'G', "01", 'S');
    add_partition(w, &s, "bwd_a_ag", "a", 'G', "0", 'S');
    add_partition(w, &s, "bwd_a_rs", "a", 'S', "0", 'S');
    add_partition(w, &s, "bwd_qkv_rs", "rq", 'S', "01", 'M');
    add_partition(w, &s, "bwd_qkv_ar", "rq", 'R', "01", 'M');
}

static inline void make_workloads(struct workload out[WORKLOADS])
{
    make_workload(&out[0], "Llama TP8 8 4K", false, 1, 8, 4096);
    make_workload(&out[1], "Llama CP2TP4 8 4K", false, 2, 8, 4096);
    make_workload(&out[2], "Llama CP2TP4 8 8K", false, 2, 8, 8192);
    make_workload(&out[3], "Llama CP2TP4 16 4K", false, 2, 16, 4096);
    make_workload(&out[4], "Qwen TP8 8 4K", true, 1, 8, 4096);
    make_workload(&out[5], "Qwen TP8 8 8K", true, 1, 8, 8192);
    make_workload(&out[6], "Qwen TP8 16 4K", true, 1, 16, 4096);
    make_workload(&out[7], "Qwen CP2TP4 8 4K", true, 2, 8, 4096);
    make_workload(&out[8], "Qwen CP2TP4 8 8K", true, 2, 8, 8192);
    make_workload(&out[9], "Qwen CP2TP4 16 4K", true, 2, 16, 4096);
}

#endif
