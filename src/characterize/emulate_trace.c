/* The kernels of an emulated iteration as records, and as files for other tools. */
#include "characterize/emulate_trace.h"

#include "base/text.h"
#include "characterize/emulate_kernels.h"
#include "io/file.h"
#include "trace/trace_write.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { STREAM_COMPUTE = 7, STREAM_GROUP = 20, STREAM_SEND = 24, STREAM_RECEIVE = 28 };

static int64_t ns(double seconds)
{
    return llround(1e9 * seconds);
}

/* Returns its index; SIZE_MAX if its time is zero. */
static size_t add(struct erg_emulated_trace *trace, enum erg_kernel_category category,
                  const char *name, int32_t stream, double start_s, double end_s)
{
    if (ns(end_s) <= ns(start_s))
        return SIZE_MAX;
    const uint32_t correlation = (uint32_t)trace->count + 1;
    ERG_PUSH(trace, records,
             (struct erg_kernel_record){.start_ns = ns(start_s),
                                        .end_ns = ns(end_s),
                                        .wait_ns = -1,
                                        .name = name,
                                        .stream = stream,
                                        .category = category,
                                        .correlation = correlation});
    return trace->count - 1;
}

/* An exchange that overlaps, piece by piece, with the kernel whose output it sends does not wait
 * for it. */
static void needs(struct erg_emulated_trace *trace, size_t record, size_t needed)
{
    if (record == SIZE_MAX || needed == SIZE_MAX ||
        trace->records[needed].start_ns >= trace->records[record].start_ns)
        return;
    size_t *list = erg_arena_alloc(&trace->arena, sizeof *list);
    *list = needed;
    trace->records[record].needs = list;
    trace->records[record].need_count = 1;
}

/* An exchange of a group in which each rank sends `bytes`. */
static size_t add_exchange(struct erg_emulated_trace *trace, enum erg_kernel_category category,
                           double start_s, double end_s, double wait_s, double bytes, long size)
{
    static const char *const names[ERG_CATEGORIES][2] = {
        [ERG_CATEGORY_SEND_RECV] = {"emulated_nccl_SendRecv", "sendrecv"},
        [ERG_CATEGORY_ALL_GATHER] = {"emulated_nccl_AllGather", "all_gather"},
        [ERG_CATEGORY_REDUCE_SCATTER] = {"emulated_nccl_ReduceScatter", "reduce_scatter"},
        [ERG_CATEGORY_ALL_REDUCE] = {"emulated_nccl_AllReduce", "all_reduce"},
    };
    const size_t index = add(trace, category, names[category][0], STREAM_GROUP, start_s, end_s);
    if (index == SIZE_MAX)
        return index;
    assert(names[category][0]); /* an exchange */
    struct erg_kernel_record *record = &trace->records[index];
    record->wait_ns = ns(wait_s);
    record->bytes = (uint64_t)bytes;
    record->collective = (struct erg_kernel_collective){.name = names[category][1],
                                                        .dtype = "BFloat16",
                                                        .in_elements = (int64_t)(bytes / 2),
                                                        .out_elements = (int64_t)(bytes / 2),
                                                        .group_size = (int32_t)size};
    return index;
}

struct tracing {
    struct erg_emulated_trace *trace;
    const struct emulation *emulation;
    const struct emulated_rank *gpu;
    struct erg_emulated_mix mixes[ERG_PASSES];
};

/* Writes `times` passes of one kind as one, from `at_s` on; the last exchange spins. Returns the
 * end. */
static double add_part(const struct tracing *at, enum erg_layout_pass kind, double times,
                       double spin_s, double at_s, size_t *last)
{
    const struct erg_emulated_mix *mix = &at->mixes[kind];
    const long size = at->emulation->layout.tensor * at->emulation->layout.context;
    struct erg_emulated_split split;
    double now_s = at_s;
    erg_emulation_split(&split, at->emulation, at->gpu, kind, mix);
    add(at->trace, ERG_CATEGORY_LAYERNORM, "emulated_layer_norm", STREAM_COMPUTE, now_s,
        now_s + times * split.norms_s);
    now_s += times * split.norms_s;
    const double before_s = times * split.comm_s[ERG_CATEGORY_ALL_GATHER];
    const double behind_s = times * split.all_comm_s - before_s;
    const double compute_s = times * (split.product_s + split.memory_s);
    const double compute_begin_s = now_s + before_s, compute_end_s = compute_begin_s + compute_s;
    const double end_s = compute_end_s + behind_s;
    double free_s = fmin(now_s + times * mix->comm_s[ERG_CATEGORY_ALL_GATHER], compute_end_s);
    if (mix->comm_s[ERG_CATEGORY_ALL_GATHER] > 0)
        add_exchange(at->trace, ERG_CATEGORY_ALL_GATHER, now_s, free_s, 0,
                     times * mix->wires[ERG_CATEGORY_ALL_GATHER], size);
    *last = add(at->trace, ERG_CATEGORY_MATMUL, "emulated_gemm", STREAM_COMPUTE, compute_begin_s,
                compute_begin_s + times * split.product_s);
    const size_t memory =
        add(at->trace, ERG_CATEGORY_MEMORY, "emulated_elementwise", STREAM_COMPUTE,
            compute_begin_s + times * split.product_s, compute_end_s);
    *last = memory == SIZE_MAX ? *last : memory;
    /* Exchanges that sum or send the products' output, one after the other up to the end. */
    double left_s = behind_s;
    for (int i = 0; i < ERG_CATEGORIES; i++) {
        if (i == ERG_CATEGORY_ALL_GATHER || !(mix->comm_s[i] > 0))
            continue;
        const double own_s = times * split.comm_s[i];
        const double hidden_s = times * mix->comm_s[i] - own_s;
        const double begin_s = fmax(end_s - left_s - hidden_s, fmax(free_s, compute_begin_s));
        left_s -= own_s;
        free_s = end_s - left_s + (left_s > 1e-12 ? 0 : spin_s);
        const size_t exchange =
            add_exchange(at->trace, (enum erg_kernel_category)i, begin_s, free_s,
                         left_s > 1e-12 ? 0 : spin_s, times * mix->wires[i], size);
        needs(at->trace, exchange, *last);
        *last = exchange == SIZE_MAX ? *last : exchange;
    }
    return end_s + spin_s + times * split.idle_s;
}

/* The first stage's embedding, whose exchange follows the lookup or precedes the sums. Returns the
 * end. */
static double add_embedding(const struct tracing *at, bool backward, double at_s, size_t *last)
{
    const struct emulated_embedding *embedding = &at->emulation->embedding[backward];
    const double end_s = at_s + at->gpu->passes[backward].embedding_s;
    const double memory_s = end_s - at_s - embedding->exchange_s;
    const double exchange_begin_s = backward ? at_s : at_s + memory_s;
    const double memory_begin_s = backward ? at_s + embedding->exchange_s : at_s;
    for (int i = 0; i < 2; i++) {
        const size_t before = *last;
        if ((i == 0) != backward)
            *last = add(at->trace, ERG_CATEGORY_MEMORY, "emulated_embedding", STREAM_COMPUTE,
                        memory_begin_s, memory_begin_s + memory_s);
        else if (embedding->exchange_s > 0)
            *last = add_exchange(at->trace, erg_emulation_exchange_category(embedding->exchange),
                                 exchange_begin_s, exchange_begin_s + embedding->exchange_s, 0,
                                 embedding->wire_bytes, at->emulation->layout.tensor);
        else
            continue;
        needs(at->trace, *last, before);
        *last = *last == SIZE_MAX ? before : *last;
    }
    return end_s;
}

static void add_pass(const struct tracing *at, const struct emulated_phase *phase, double start_s,
                     size_t received, size_t *last)
{
    /* Layers with experts follow those without in the forward pass, and precede them in the
     * backward pass; so do the layers and the head. */
    static const enum erg_layout_pass orders[2][ERG_PASSES] = {
        {ERG_PASS_DENSE_FORWARD, ERG_PASS_FORWARD, ERG_PASS_HEAD},
        {ERG_PASS_HEAD, ERG_PASS_FORWARD, ERG_PASS_NORMS, ERG_PASS_ACTIVATION, ERG_PASS_BACKWARD,
         ERG_PASS_DENSE_FORWARD, ERG_PASS_DENSE_NORMS, ERG_PASS_DENSE_ACTIVATION,
         ERG_PASS_DENSE_BACKWARD}};
    const struct emulated_pass *pass = &at->gpu->passes[phase->pass];
    const bool backward = phase->pass % 2;
    const enum erg_layout_pass spins = erg_emulation_spinning_pass(pass, backward);
    const int kinds = backward ? ERG_PASSES : 3;
    const size_t first = at->trace->count;
    const bool embeds = at->gpu->stage == 0 && phase->pass < 2;
    double now_s = embeds && !backward ? add_embedding(at, false, start_s, last) : start_s;
    for (int i = 0; i < kinds; i++) {
        const enum erg_layout_pass kind = orders[backward][i];
        const double times = pass->part_s[kind] / at->gpu->costs.passes[kind].time_s;
        if (pass->part_s[kind] > 0)
            now_s = add_part(at, kind, times, kind == spins ? pass->spin_s : 0, now_s, last);
    }
    if (embeds && backward)
        now_s = add_embedding(at, true, now_s, last);
    if (at->trace->count > first)
        needs(at->trace, first, received);
    if (pass->wait_s > 0) /* FSDP: communication continues after compute has ended */
        *last = add_exchange(
            at->trace, backward ? ERG_CATEGORY_REDUCE_SCATTER : ERG_CATEGORY_ALL_GATHER, now_s,
            phase->end_s, 0,
            (double)at->emulation->model.layers * at->gpu->costs.network.bytes[backward],
            erg_layout_shards(&at->emulation->layout));
}

/* A message that a pass sends, if there is a stage to receive it. */
static void add_send(const struct tracing *at, const struct emulated_phase *phase, size_t last)
{
    const struct emulation *emulation = at->emulation;
    const long stages = emulation->layout.pipeline, stage = at->gpu->stage;
    const long chunk = phase->pass / 2, chunks = emulation->layout.virtual_stages;
    const bool back = phase->pass % 2;
    const long own = chunk * stages + stage;
    if (stages == 1 || own == (back ? 0 : stages * chunks - 1))
        return;
    const long hop = back ? (stage + stages - 1) % stages : stage;
    const struct emulated_hop *link = &emulation->hops[(at->gpu->data * 2 + back) * stages + hop];
    const size_t index = add(at->trace, ERG_CATEGORY_SEND_RECV, "emulated_nccl_SendRecv",
                             STREAM_SEND, phase->end_s, phase->end_s + link->base_s * link->crowd);
    needs(at->trace, index, last);
    if (index == SIZE_MAX)
        return;
    at->trace->records[index].bytes = (uint64_t)emulation->work.message_bytes;
    at->trace->records[index].collective =
        (struct erg_kernel_collective){.name = "send",
                                       .dtype = "BFloat16",
                                       .in_elements = (int64_t)(emulation->work.message_bytes / 2),
                                       .out_elements = (int64_t)(emulation->work.message_bytes / 2),
                                       .group_size = 2};
}

static size_t add_receive(const struct tracing *at, const struct emulated_phase *phase,
                          double start_s)
{
    const size_t index = add(at->trace, ERG_CATEGORY_SEND_RECV, "emulated_nccl_SendRecv",
                             STREAM_RECEIVE, start_s, phase->end_s);
    if (index == SIZE_MAX)
        return index;
    struct erg_kernel_record *record = &at->trace->records[index];
    record->wait_ns = ns(phase->end_s - phase->message_s) - record->start_ns;
    record->bytes = (uint64_t)at->emulation->work.message_bytes;
    record->collective = (struct erg_kernel_collective){
        .name = "recv",
        .dtype = "BFloat16",
        .in_elements = (int64_t)(at->emulation->work.message_bytes / 2),
        .out_elements = (int64_t)(at->emulation->work.message_bytes / 2),
        .group_size = 2};
    return index;
}

static void add_gradients(const struct tracing *at, double start_s, double end_s)
{
    const double sum_s = at->emulation->gradient_s[at->gpu->stage];
    const double gather_s = at->emulation->gather_s[at->gpu->stage];
    const double between_s =
        start_s + (sum_s + gather_s > 0 ? sum_s / (sum_s + gather_s) : 0) * (end_s - start_s);
    const double bytes =
        erg_layout_stage_parameters(&at->emulation->request.time, &at->emulation->parts,
                                    &at->emulation->layout, at->gpu->stage) *
        2;
    const long size = erg_time_gradient_ranks(&at->emulation->layout);
    add_exchange(at->trace, ERG_CATEGORY_REDUCE_SCATTER, start_s, between_s, 0, bytes, size);
    add_exchange(at->trace, ERG_CATEGORY_ALL_GATHER, between_s, end_s, 0, bytes, size);
}

static void add_counter(struct erg_emulated_trace *trace, const char *name, double time_s,
                        double value)
{
    ERG_PUSH(&trace->counters, items,
             (struct erg_kernel_counter){.name = name, .time_ns = ns(time_s), .value = value});
}

void erg_emulation_trace(struct erg_emulated_trace *trace, const struct emulation *emulation,
                         long rank)
{
    const struct emulated_rank *gpu = &emulation->gpu_at[rank];
    const struct emulated_lane *lane = erg_emulation_lane(emulation, gpu);
    struct tracing at = {.trace = trace, .emulation = emulation, .gpu = gpu};
    double before_s = 0, *ripple_k = erg_xcalloc(lane->count, sizeof *ripple_k);
    size_t received = SIZE_MAX;
    *trace = (struct erg_emulated_trace){0};
    erg_emulation_mixes(at.mixes, emulation);
    erg_emulation_ripple(emulation, gpu, ripple_k);
    for (size_t i = 0; i < lane->count; i++) {
        const struct emulated_phase *phase = &lane->items[i];
        size_t last = SIZE_MAX;
        add_counter(trace, "power W", before_s, erg_emulation_phase_w(emulation, gpu, phase));
        add_counter(trace, "temperature C", phase->end_s, gpu->mean_c + ripple_k[i]);
        if (phase->pass >= 0) {
            add_counter(trace, "clock MHz", before_s, gpu->passes[phase->pass].clock_mhz);
            add_pass(&at, phase, before_s, received, &last);
            add_send(&at, phase, last);
            received = SIZE_MAX;
        } else if (phase->kind == EMULATED_WAIT && emulation->layout.pipeline > 1) {
            received = add_receive(&at, phase, before_s);
        } else if (phase->kind == EMULATED_GRADIENTS) {
            add_gradients(&at, before_s, phase->end_s);
        } else if (phase->kind == EMULATED_OPTIMIZER) {
            add(trace, ERG_CATEGORY_MEMORY, "emulated_adam", STREAM_COMPUTE, before_s,
                phase->end_s);
        }
        before_s = phase->end_s;
    }
    free(ripple_k);
    trace->device = (struct erg_kernel_device){
        .name = emulation->gpu.name, .memory_bytes = (uint64_t)emulation->gpu.memory_bytes};
    trace->trace = (struct erg_kernel_trace){
        .rank = (int)rank,
        .world = (int)emulation->gpus,
        .backend = "nccl",
        .devices = &trace->device,
        .device_count = 1,
        .records = trace->records,
        .record_count = trace->count,
        .counters = trace->counters.items,
        .counter_count = trace->counters.count,
    };
}

void erg_emulated_trace_release(struct erg_emulated_trace *trace)
{
    free(trace->records);
    free(trace->counters.items);
    erg_arena_release(&trace->arena);
}

/* ---- files ---- */

static int write_rank(const struct emulation *emulation, const char *folder, long rank,
                      struct erg_error *err)
{
    static int (*const writers[])(const struct erg_kernel_trace *, const char *,
                                  struct erg_error *) = {
        erg_trace_write_kineto, erg_trace_write_chakra_json, erg_trace_write_chakra};
    static const char *const endings[] = {"json", "chakra.json", "et"};
    struct erg_emulated_trace trace;
    int status = 0;
    erg_emulation_trace(&trace, emulation, rank);
    for (int i = 0; i < 3 && status == 0; i++) {
        struct erg_text path = {0};
        erg_text_printf(&path, "%s/traces/%s.rank-%ld.%s", folder, emulation->point->id, rank,
                        endings[i]);
        status = writers[i](&trace.trace, path.data, err);
        erg_text_release(&path);
    }
    erg_emulated_trace_release(&trace);
    return status;
}

int erg_emulation_write_traces(const struct emulation *emulation, const char *folder,
                               struct erg_error *err)
{
    char *traces = erg_file_path(folder, "traces");
    int status = erg_dir_make(traces, err);
    free(traces);
    for (long stage = 0; stage < emulation->layout.pipeline && status == 0; stage++)
        status = write_rank(emulation, folder, stage * emulation->ranks, err);
    return status;
}
