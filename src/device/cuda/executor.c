/* Executor: captures steps into CUDA graphs, and launches them. */
#include "device/cuda/executor.h"

#include "base/memory.h"
#include "device/cuda/cuda_internal.h"

#include <stdlib.h>

struct erg_executor {
    struct erg_decoder *decoder;
    int sms;                            /* of the GPU */
    struct CUstream_st *compute, *comm; /* of captures */
    struct CUstream_st
        *launch; /* of runs, separate so that one may be captured while another runs */
    struct CUevent_st *launched, *finished; /* the slot was reached; the communication is done */
};

struct erg_graph_run {
    struct erg_executor *executor;
    cudaGraphExec_t graphs[2]; /* launched alternately */
    size_t count, launched;
};

/* ---- the streams ---- */

int erg_executor_open(struct erg_executor **out, struct erg_decoder *decoder,
                      const struct erg_cuda *cuda, struct erg_error *err)
{
    struct erg_executor *executor = erg_xcalloc(1, sizeof *executor);
    executor->decoder = decoder;
    executor->sms = cuda->sms;
    if (erg_cuda_stream_new(&executor->compute, false, err) ||
        erg_cuda_stream_new(&executor->comm, true, err) ||
        erg_cuda_stream_new(&executor->launch, false, err) ||
        erg_cuda_event_new(&executor->launched, false, err) ||
        erg_cuda_event_new(&executor->finished, false, err)) {
        erg_executor_close(executor);
        return -1;
    }
    *out = executor;
    return 0;
}

void erg_executor_close(struct erg_executor *executor)
{
    if (!executor)
        return;
    erg_cuda_event_free(executor->launched);
    erg_cuda_event_free(executor->finished);
    erg_cuda_stream_free(executor->compute);
    erg_cuda_stream_free(executor->comm);
    erg_cuda_stream_free(executor->launch);
    free(executor);
}

struct CUstream_st *erg_executor_stream(const struct erg_executor *executor)
{
    return executor->launch;
}

/* ---- one step ---- */

/* The progress of a nanobatch. */
struct nanobatch_cursor {
    enum erg_run_mode mode;
    size_t layer; /* FORWARD: layer of the next norm_a; BACKWARD: of the next op */
};

/* The layer of an op, in the order of execution. */
static size_t advance(struct nanobatch_cursor *cursor, const struct erg_op_code *code)
{
    bool opens = code->parts & 1u << ERG_MODEL_NORM_A;
    if (cursor->mode == ERG_RUN_FORWARD)
        return opens ? cursor->layer++ : cursor->layer - 1;
    size_t layer = cursor->layer;
    /*
     * In the backward, norm_a is the last op of its layer; in a replay of its forward it changes
     * nothing.
     */
    if (cursor->mode == ERG_RUN_BACKWARD && opens && code->backward && cursor->layer > 0)
        cursor->layer--;
    return layer;
}

/* The layer of the nanobatch's latest op, to which its communication belongs. */
static size_t latest_layer(const struct nanobatch_cursor *cursor)
{
    return cursor->mode == ERG_RUN_FORWARD && cursor->layer > 0 ? cursor->layer - 1 : cursor->layer;
}

static int start_comm(struct erg_executor *executor, const struct erg_run_step *item, size_t layer,
                      int first, struct erg_error *err)
{
    const struct erg_step *step = &item->step;
    return erg_cuda_event_record(executor->launched, executor->compute, err) ||
                   erg_cuda_event_wait(executor->launched, executor->comm, err) ||
                   erg_decoder_comm(executor->decoder, layer, &step->task.comm, first,
                                    step->launch.sms, executor->comm, err) ||
                   erg_cuda_event_record(executor->finished, executor->comm, err)
               ? -1
               : 0;
}

/* cursors[2]: of both nanobatches; the whole microbatch has the first. */
static int run_step(struct erg_executor *executor, const struct erg_run_step *item,
                    struct nanobatch_cursor *cursors, struct erg_error *err)
{
    const struct erg_task *task = &item->step.task;
    bool communicates = task->comm.kind != ERG_COMM_NONE;
    struct nanobatch_cursor *cursor = &cursors[item->nanobatch == 1];
    /*
     * The cursor before this step's compute, which belongs to the other nanobatch; the whole
     * microbatch communicates after its own compute.
     */
    const struct nanobatch_cursor *comm_cursor = &cursors[item->nanobatch == 0];
    int first = 0, comm_first = 0;
    if (item->nanobatch == 1)
        first = task->op_count ? task->ops[0].code.sequences : task->comm.sequences;
    if (item->nanobatch == 0)
        comm_first = task->comm.sequences;
    for (size_t i = 0; i <= task->op_count; i++) {
        bool beside = communicates && i >= item->step.launch.slot;
        if (communicates && i == item->step.launch.slot &&
            start_comm(executor, item, latest_layer(comm_cursor), comm_first, err))
            return -1;
        if (i == task->op_count)
            break;
        const struct erg_op_code *code = &task->ops[i].code;
        struct erg_decoder_launch launch = {executor->compute, 0};
        if (beside && !task->comm.library)
            launch.sms = executor->sms - item->step.launch.sms;
        if (erg_decoder_op(executor->decoder, advance(cursor, code), code, first, &launch, err))
            return -1;
    }
    return communicates ? erg_cuda_event_wait(executor->finished, executor->compute, err) : 0;
}

/* ---- runs ---- */

/* The outputs of a step's compute that ranks can sum, as bits of communication parts. */
static unsigned written_parts(const struct erg_task *task)
{
#define PART(id) (1u << ERG_MODEL_##id)
    static const struct {
        unsigned op, part;
        bool backward;
    } writers[] = {
        {PART(PROJ), PART(REDUCE_A), false}, {PART(QKV), PART(REDUCE_A), true},
        {PART(FC2), PART(REDUCE_M), false},  {PART(FC1), PART(REDUCE_M), true},
        {PART(BDA_M), PART(BDA_M), false},   {PART(BDA_A), PART(BDA_A), true},
    };
#undef PART
    unsigned written = 0;
    for (size_t i = 0; i < task->op_count; i++) {
        const struct erg_op_code *code = &task->ops[i].code;
        for (size_t k = 0; k < sizeof writers / sizeof *writers; k++)
            if (code->backward == writers[k].backward && code->parts & writers[k].op)
                written |= writers[k].part;
    }
    return written;
}

/* One of the written parts, those of training first; -1: none. */
static int any_written(unsigned written)
{
    static const int parts[] = {ERG_MODEL_REDUCE_A, ERG_MODEL_REDUCE_M, ERG_MODEL_BDA_M,
                                ERG_MODEL_BDA_A};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (written >> parts[i] & 1)
            return parts[i];
    return -1;
}

/*
 * A partition runs repeatedly. If no compute of the run writes the buffer that it sums, that buffer
 * would grow until it overflows; then the sum uses a buffer of the same size that the run writes.
 * `swap` exchanges the nanobatches.
 */
static struct erg_run_step *make_steady(const struct erg_run_step *steps, size_t count, bool swap)
{
    unsigned written = 0;
    for (size_t i = 0; i < count; i++)
        written |= written_parts(&steps[i].step.task);
    int instead = any_written(written);
    struct erg_run_step *steady = erg_xcalloc(count, sizeof *steady);
    for (size_t i = 0; i < count; i++) {
        steady[i] = steps[i];
        if (swap)
            steady[i].nanobatch = 1 - steps[i].nanobatch;
        int *part = &steady[i].step.task.comm.part;
        bool own = *part == ERG_MODEL_REDUCE_A || *part == ERG_MODEL_REDUCE_M;
        if (own && instead >= 0 && !(written >> *part & 1))
            *part = instead;
    }
    return steady;
}

static int capture(struct erg_executor *executor, const struct erg_run_step *steps, size_t count,
                   enum erg_run_mode mode, struct erg_error *err)
{
    size_t last = (size_t)erg_decoder_layers(executor->decoder) - 1;
    /* Steady runs use the last layer, the only one with all ops. */
    struct nanobatch_cursor start = {mode, mode == ERG_RUN_FORWARD ? 0 : last};
    struct nanobatch_cursor cursors[2] = {start, start};
    for (size_t i = 0; i < count; i++)
        if (run_step(executor, &steps[i], cursors, err))
            return erg_fail_context(err, "capturing step %zu of %zu", i + 1, count);
    return 0;
}

static int add_graph(struct erg_graph_run *run, const struct erg_run_step *steps, size_t count,
                     enum erg_run_mode mode, struct erg_error *err)
{
    struct erg_executor *executor = run->executor;
    /* Thread-local mode: other threads may allocate and read sensors during the capture. */
    if (erg_cuda_check(cudaStreamBeginCapture(executor->compute, cudaStreamCaptureModeThreadLocal),
                       err, "starting to capture %zu steps", count))
        return -1;
    int status = capture(executor, steps, count, mode, err);
    cudaGraph_t graph = NULL;
    cudaError_t ended = cudaStreamEndCapture(executor->compute, &graph);
    if (!status)
        status = erg_cuda_check(ended, err, "capturing %zu steps as a graph", count);
    if (!status)
        status = erg_cuda_check(cudaGraphInstantiate(&run->graphs[run->count], graph, 0), err,
                                "preparing a graph of %zu steps", count);
    run->count += !status;
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

int erg_graph_run_new(struct erg_graph_run **out, struct erg_executor *executor,
                      const struct erg_run_step *steps, size_t count, enum erg_run_mode mode,
                      struct erg_error *err)
{
    struct erg_graph_run *run = erg_xcalloc(1, sizeof *run);
    run->executor = executor;
    int status = 0;
    if (mode == ERG_RUN_STEADY) {
        bool takes_turns = steps[0].nanobatch != ERG_WHOLE_MICROBATCH;
        for (int turn = 0; turn <= takes_turns && !status; turn++) {
            struct erg_run_step *steady = make_steady(steps, count, turn);
            status = add_graph(run, steady, count, mode, err);
            free(steady);
        }
    } else {
        status = add_graph(run, steps, count, mode, err);
    }
    if (status) {
        erg_graph_run_free(run);
        return -1;
    }
    *out = run;
    return 0;
}

void erg_graph_run_free(struct erg_graph_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->count; i++)
        cudaGraphExecDestroy(run->graphs[i]);
    free(run);
}

int erg_graph_run_launch(struct erg_graph_run *run, struct erg_error *err)
{
    cudaGraphExec_t graph = run->graphs[run->launched++ % run->count];
    return erg_cuda_check(cudaGraphLaunch(graph, run->executor->launch), err,
                          "launching a captured run");
}
