/* The event loop of two streams at a fixed clock. */
#include "device/emulated/emulated_internal.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>

enum comm_state { COMM_WAIT, COMM_LATENCY, COMM_MOVE, COMM_DONE };

/* The communication of one step, resolved against the stack. */
struct comm {
    double wire_bytes, blocks, taken_sms, join_s;
    double left_sms;  /* SMs that products and attention leave free from the launch slot on */
    double tuned_sms; /* SMs for which such products are tuned; 0: unknown */
    double link_rate, sm_rate;
    double rate[2]; /* bytes/s [compute is queued]; < 0 = not computed yet */
};

/*
 * Hidden states have the rates of keys and values: one for scatters and one for gathers, as a
 * factor of that of a sum.
 */
static double hidden_rate(const struct erg_gpu *gpu, const struct erg_comm *asked)
{
    double gathered =
        asked->kind == ERG_COMM_ALLGATHER_HIDDEN ? asked->wire_bytes : asked->gather_bytes;
    if (asked->kind < ERG_COMM_ALLGATHER_HIDDEN || !(asked->wire_bytes > 0))
        return 1;
    return asked->wire_bytes /
           (gathered / gpu->comm_gather + (asked->wire_bytes - gathered) / gpu->comm_scatter);
}

/*
 * Bytes/s that a block sends. It has a fixed number of bytes in flight. The more ranks a sum has,
 * the more of these come from other GPUs. A sum uses both directions at once, an exchange one.
 */
static double sm_rate(const struct erg_gpu *gpu, const struct erg_comm *asked)
{
    double rate = gpu->comm_sm_rate;
    if (asked->group > 2)
        rate *= pow(2 * (asked->group - 1.0) / asked->group, gpu->comm_rank_power);
    if (asked->kind == ERG_COMM_ALLGATHER_KV)
        rate *= gpu->comm_gather;
    if (asked->kind == ERG_COMM_REDUCESCATTER_KV)
        rate *= gpu->comm_scatter;
    return rate * hidden_rate(gpu, asked);
}

static struct comm resolve_comm(const struct erg_gpu *gpu, const struct erg_stack *stack,
                                const struct erg_step *step)
{
    const struct erg_comm *asked = &step->task.comm;
    struct comm comm = {.wire_bytes = asked->wire_bytes, .rate = {-1, -1}};
    double link_factor = gpu->comm_link_factor, share = gpu->comm_sm_share;
    comm.blocks = step->launch.sms;
    comm.join_s = stack->join_grid_s;
    if (asked->library) {
        link_factor =
            stack->library_link_factor > 0 ? stack->library_link_factor : gpu->library_link_factor;
        share = stack->library_sm_share > 0 ? stack->library_sm_share : gpu->library_sm_share;
        comm.blocks = stack->library_blocks > 0 ? stack->library_blocks : gpu->library_blocks;
        comm.join_s = stack->join_library_s;
    }
    comm.link_rate = link_factor * gpu->link_bandwidth;
    comm.sm_rate = sm_rate(gpu, asked);
    comm.taken_sms = share * comm.blocks;
    if (stack->leaves_sms && !asked->library && comm.wire_bytes > 0) {
        comm.left_sms = comm.blocks;
        if (stack->tuned_beside_sms > 0 && gpu->gemm_slack > 0)
            comm.tuned_sms = fmax(4, gpu->sms - stack->tuned_beside_sms);
    }
    return comm;
}

/* Smooth minimum of the blocks' copy rate and the link's rate. */
static double comm_rate(const struct erg_gpu *gpu, struct comm *comm, double clock_ratio,
                        int compute_queued)
{
    double *rate = &comm->rate[compute_queued];
    if (*rate < 0) {
        assert(compute_queued == 0 || compute_queued == 1);
        double copy = comm->blocks * comm->sm_rate * pow(clock_ratio, gpu->comm_clock_power) *
                      (1 - gpu->comm_contention * compute_queued);
        *rate = comm->link_rate *
                pow(1 + pow(comm->link_rate / copy, gpu->comm_blend), -1 / gpu->comm_blend);
        assert(*rate > 0); /* otherwise the loop below would never end */
    }
    return *rate;
}

/*
 * SM-equivalents that a memory-bound op loses. Our collectives take at least their own SMs, or more
 * in proportion to their traffic, which stops growing once the link is saturated.
 */
static double taken_sms(const struct comm *comm, double rate)
{
    if (!(comm->left_sms > 0))
        return comm->taken_sms;
    return fmax(comm->left_sms, comm->taken_sms * rate / (comm->blocks * comm->sm_rate));
}

/* Queries (backward: keys) that a block processes at a time. */
static const double attention_tile = 128;

/* The head dimension to which the rates of attention apply. */
static const double usual_head = 128;

/*
 * The share of a backward pass's extra work that each query needs once: sums of rows, conversion of
 * the gradient. Its bytes take 9 % of the time for 4096 tokens.
 */
static const double per_query = 0.35;

/* Whole sequences: short ones are mostly diagonal, and half of the diagonal's work is wasted. */
static double sequence_cost(const struct erg_gpu *gpu, const struct erg_op *op, double k0,
                            double sms)
{
    double tiles = op->heads * ceil(op->k / attention_tile), tail = 0;
    if (op->kind == ERG_OP_ATTENTION_FORWARD && sms > 0 && tiles > 0)
        tail = gpu->attention_tail * sms / tiles;
    return (1 + k0 / op->k) * (1 + tail);
}

/*
 * Context ranks call once for each of their two chunks; the middle rank represents all. Forward, a
 * tile of queries of chunk i sees i chunks of keys and half of the diagonal one, whose other half
 * may be computed and masked. Backward, each tile of i + 1 chunks of keys works on one chunk of
 * queries, or on half of it on the diagonal; tiles are equal, so a last wave on few SMs takes as
 * long as any other.
 */
static double chunks_cost(const struct erg_gpu *gpu, const struct erg_op *op, double k0, double sms)
{
    bool forward = op->kind == ERG_OP_ATTENTION_FORWARD;
    double chunk = op->k / op->chunks, tiles = op->heads * ceil(chunk / attention_tile);
    double cost = forward ? 0 : per_query * k0;
    for (int i = op->chunks / 2 - 1; i <= op->chunks / 2; i++) {
        double waves = (forward ? 1 : i + 1) * tiles / floor(sms > 0 ? sms : INFINITY);
        if (forward) {
            double tail = waves > 0 ? gpu->attention_tail / waves : 0;
            double seen = i + 0.5 + 0.5 * gpu->attention_diagonal;
            cost += (seen * chunk + k0 / 2) * (1 + tail);
        } else {
            double last = waves > 0 ? gpu->attention_waves * (ceil(waves) / waves - 1) : 0;
            cost += ((i + 0.5) * chunk + (i + 1) * (1 - per_query) * k0 / 2) * (1 + last);
        }
    }
    return cost / op->k;
}

/*
 * The cost of an attention relative to its FLOPs: a tile costs the tokens that it sees plus k0 / 2.
 * `sms` = 0: without SMs that wait for the last tiles.
 */
static double attention_cost(const struct erg_gpu *gpu, const struct erg_op *op, double sms)
{
    bool forward = op->kind == ERG_OP_ATTENTION_FORWARD;
    double k0 = forward ? gpu->attention_k0 : gpu->attention_backward_k0;
    double scores = forward ? gpu->attention_softmax : gpu->attention_backward_softmax;
    double cost = 1;
    if (op->k > 0)
        cost = op->chunks > 1 ? chunks_cost(gpu, op, k0, sms) : sequence_cost(gpu, op, k0, sms);
    if (op->head_dim > 0) /* shorter heads have more scores for the same FLOPs */
        cost *= 1 + scores * (usual_head / op->head_dim - 1);
    return cost;
}

/* FLOPs of a matrix product with the same energy as the op. */
static double product_flops(const struct erg_gpu *gpu, const struct erg_op *op)
{
    double factor = 1;
    if (op->kind == ERG_OP_ATTENTION_FORWARD)
        factor = gpu->attention_forward_energy * attention_cost(gpu, op, 0);
    if (op->kind == ERG_OP_ATTENTION_BACKWARD)
        factor = gpu->attention_backward_energy * attention_cost(gpu, op, 0);
    return factor * op->flops;
}

/* The resources of an op. */
struct compute_share {
    double sms;   /* SM-equivalents */
    double tuned; /* a product: SMs for which its algorithm was chosen; 0: those in `sms` */
};

/* The loss by the last wave of tiles, as a factor on the time of all waves. */
static double last_wave(const struct erg_gpu *gpu, double waves)
{
    return waves > 0 ? 1 + gpu->wave_weight * (ceil(waves) / waves - 1) : 1;
}

/*
 * A product that leaves SMs free is run by the algorithm that was fastest on `tuned` SMs
 * (device/cuda/gemm.h). The tiles of that algorithm are unknown. On the SMs for which it was tuned
 * they fill its waves except for a share that is uniformly distributed up to gemm_slack. On fewer
 * SMs the remaining tiles need one or more further waves: wave n + 1 is needed if there are more
 * tiles than n * sms.
 */
static double tuned_cost(const struct erg_gpu *gpu, const struct erg_op *op, double sms,
                         double tuned)
{
    double waves = ceil(op->tiles / tuned), most = waves * tuned; /* tiles */
    if (!(waves > 0))
        return 1;
    double certain = fmax(floor((1 - gpu->gemm_slack) * most / sms) + 1, waves);
    double possible = fmax(ceil(most / sms), certain) - certain;
    double middle = certain + (possible - 1) / 2; /* mean n of the possible waves */
    double expected = certain + possible * (1 - middle * sms / most) / gpu->gemm_slack;
    return last_wave(gpu, op->tiles / tuned) * (1 + gpu->wave_weight * (expected * sms / most - 1));
}

/* Seconds of the op from its instructions alone. */
static double issue_time(const struct erg_gpu *gpu, const struct erg_op *op,
                         struct compute_share share, double clock_mhz)
{
    bool tuned = op->kind == ERG_OP_GEMM && share.tuned > 0;
    double sms = tuned ? fmin(share.sms, share.tuned) : share.sms;
    double peak = gpu->flops_per_sm_clock * sms * clock_mhz * 1e6;
    switch (op->kind) {
    case ERG_OP_GEMM: {
        double wave_cost =
            tuned ? tuned_cost(gpu, op, sms, share.tuned) : last_wave(gpu, op->tiles / floor(sms));
        return op->flops * wave_cost * (1 + gpu->gemm_k0 / op->k) / (gpu->gemm_efficiency * peak);
    }
    case ERG_OP_ATTENTION_FORWARD:
        return op->flops * attention_cost(gpu, op, sms) / (gpu->attention_forward * peak);
    case ERG_OP_ATTENTION_BACKWARD:
        return op->flops * attention_cost(gpu, op, sms) / (gpu->attention_backward * peak);
    case ERG_OP_MEMORY:
        break;
    }
    return op->bytes / (gpu->memory_efficiency * gpu->memory_bandwidth * gpu->memory_issue *
                        (sms / gpu->sms) * (clock_mhz / gpu->clock_max_mhz));
}

static void add_span(struct erg_emulated_timeline *timeline, size_t step, enum erg_span_lane lane,
                     size_t op, double start_s, double end_s)
{
    if (timeline)
        ERG_PUSH(timeline, spans, (struct erg_emulated_span){step, lane, op, start_s, end_s});
}

/*
 * Seconds of the whole op at the current rates. `launched`: the communication was launched, so the
 * op uses only the SMs left to it; `busy`: the communication runs. If both need more memory
 * bandwidth than there is, they share it in proportion, and *rate falls.
 */
static double op_duration(const struct erg_gpu *gpu, const struct comm *comm,
                          const struct erg_op *op, bool launched, bool busy, double clock_mhz,
                          double *rate)
{
    double bandwidth = gpu->memory_efficiency * gpu->memory_bandwidth;
    bool bounded = comm->left_sms > 0 && launched && op->kind != ERG_OP_MEMORY;
    double taken = busy ? taken_sms(comm, *rate) : 0;
    if (bounded)
        taken = comm->left_sms + (busy ? gpu->comm_missed_sms : 0);
    struct compute_share share = {fmax(4, gpu->sms - taken), bounded ? comm->tuned_sms : 0};
    double issue = issue_time(gpu, op, share, clock_mhz);
    double full = fmax(issue, op->bytes / bandwidth);
    double wanted = full > 0 ? op->bytes / full : 0;
    double wanted_comm = *rate * gpu->comm_hbm_per_wire;
    if (wanted + wanted_comm <= bandwidth)
        return full;
    double granted = bandwidth / (wanted + wanted_comm);
    *rate *= granted;
    return fmax(issue, wanted > 0 ? op->bytes / (wanted * granted) : 0);
}

/*
 * Seconds of a communication without transfer: its start, and with a norm in it the time until its
 * blocks (library: a kernel on all SMs) have read and written the norm's tensors.
 */
static double still_time(const struct erg_gpu *gpu, const struct erg_step *step,
                         const struct comm *comm, double clock_mhz)
{
    const struct erg_comm *asked = &step->task.comm;
    const struct compute_share share = {asked->library ? gpu->sms : comm->blocks, 0};
    double time = gpu->comm_latency_s;
    if (asked->kind == ERG_COMM_NORM_HIDDEN)
        time += gpu->comm_latency_s;
    for (int i = 0; i < asked->work_count; i++) {
        const struct erg_op *work = &asked->works[i];
        time += work->kernels * gpu->launch_gap_s +
                fmax(issue_time(gpu, work, share, clock_mhz),
                     work->bytes / (gpu->memory_efficiency * gpu->memory_bandwidth));
    }
    return time;
}

/* The work of a step, independent of its time: its energy follows from it. */
static void count_work(const struct erg_gpu *gpu, const struct erg_step *step, double wire_bytes,
                       struct erg_sim *sim)
{
    for (size_t k = 0; k < step->task.op_count; k++) {
        sim->flops += product_flops(gpu, &step->task.ops[k]);
        sim->hbm_bytes += step->task.ops[k].bytes;
    }
    for (int k = 0; k < step->task.comm.work_count; k++)
        sim->hbm_bytes += step->task.comm.works[k].bytes;
    sim->hbm_bytes += wire_bytes * gpu->comm_hbm_per_wire;
    sim->wire_bytes += wire_bytes;
}

static void run_step(const struct erg_gpu *gpu, const struct erg_stack *stack,
                     const struct erg_step *step, size_t step_index, double clock_mhz,
                     struct erg_sim *sim, struct erg_emulated_timeline *timeline)
{
    const struct erg_op *ops = step->task.ops;
    size_t count = step->task.op_count;
    size_t slot = step->launch.slot;
    struct comm comm = resolve_comm(gpu, stack, step);
    assert(clock_mhz > 0 && slot <= count);
    enum comm_state state = comm.wire_bytes > 0 ? COMM_WAIT : COMM_DONE;
    double clock_ratio = clock_mhz / gpu->clock_max_mhz;

    size_t i = 0;
    double left = 1; /* remaining fraction of op i */
    double gap = count ? ops[0].kernels * gpu->launch_gap_s : 0;
    double latency = 0, moving = comm.wire_bytes;
    double now = sim->time_s, op_start = 0, comm_start = 0;

    for (;;) {
        if (state == COMM_WAIT && i >= slot) {
            /* A persistent GEMM holds every SM: kernels launched before it start after it. */
            bool held = gpu->persistent_gemm && !(comm.left_sms > 0) && i == slot && i < count &&
                        ops[i].kind == ERG_OP_GEMM;
            if (!held) {
                state = COMM_LATENCY;
                latency = still_time(gpu, step, &comm, clock_mhz);
                comm_start = now;
            }
        }
        if (i == count && state == COMM_DONE)
            break;

        bool busy = state == COMM_LATENCY || state == COMM_MOVE;
        double rate = state == COMM_MOVE ? comm_rate(gpu, &comm, clock_ratio, i < count) : 0;
        double full = 0; /* duration of the whole op at the current rates */
        double advance = INFINITY;
        bool executing = i < count && gap <= 0;
        if (executing) {
            full = op_duration(gpu, &comm, &ops[i], i >= slot, busy, clock_mhz, &rate);
            advance = left * full;
        } else if (i < count) {
            advance = gap;
        }
        if (state == COMM_LATENCY)
            advance = fmin(advance, latency);
        else if (state == COMM_MOVE)
            advance = fmin(advance, moving / rate);

        if (executing && left == 1)
            op_start = now;
        now += advance;
        sim->active_s += advance;
        if (busy) {
            sim->spin_sm_s += comm.blocks * advance;
            if (i == count)
                sim->exposed_s += advance;
        }
        if (state == COMM_LATENCY) {
            latency -= advance;
            if (latency <= 0)
                state = COMM_MOVE;
        } else if (state == COMM_MOVE) {
            moving -= rate * advance;
            if (moving < 1) {
                state = COMM_DONE;
                add_span(timeline, step_index, ERG_SPAN_COMM, 0, comm_start, now);
            }
        }
        if (executing) {
            left = full > 0 ? left - advance / full : 0;
            if (left < 1e-9) {
                add_span(timeline, step_index, ERG_SPAN_COMPUTE, i, op_start, now);
                i++;
                left = 1;
                gap = i < count ? ops[i].kernels * gpu->launch_gap_s : 0;
            }
        } else if (i < count) {
            gap -= advance;
        }
    }
    if (comm.wire_bytes > 0 && comm.join_s > 0) { /* ranks wait for each other, streams join */
        add_span(timeline, step_index, ERG_SPAN_JOIN, 0, now, now + comm.join_s);
        now += comm.join_s;
    }
    sim->time_s = now;
    count_work(gpu, step, comm.wire_bytes, sim);
}

void erg_sim_run(const struct erg_gpu *gpu, const struct erg_stack *stack,
                 const struct erg_step *steps, size_t count, double clock_mhz, struct erg_sim *sim,
                 struct erg_emulated_timeline *timeline)
{
    *sim = (struct erg_sim){0};
    for (size_t s = 0; s < count; s++)
        run_step(gpu, stack, &steps[s], s, clock_mhz, sim, timeline);
}
