/* Worker: feeds the GPU of one process with prepared steps, and records when they ran. */
#include "device/cuda/worker.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "device/cuda/numbers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct prepared {
    uint64_t hash; /* of the steps */
    struct erg_graph_run *run;
};

struct job {
    struct prepared *prepared;
    size_t repeats;
    int64_t delay_ns;
    struct CUevent_st *start, *end;
};

struct erg_worker {
    struct erg_worker_options options;
    struct erg_cuda cuda;
    struct erg_cudnn *cudnn;
    struct erg_gemm *gemm;
    struct erg_mesh mesh;
    struct erg_decoder *decoder;
    bool repeats; /* captures from now on give the same bits in every run */
    struct erg_executor *executor;
    struct {
        struct prepared **items;
        size_t count, capacity;
    } prepared;

    struct CUevent_st *starts[ERG_DEVICE_SPANS], *ends[ERG_DEVICE_SPANS]; /* of call c: c % SPANS */
    size_t calls;
    struct erg_numbers *passes[ERG_DEVICE_PASSES]; /* recorded passes */
    struct CUevent_st *origin;                     /* happened at origin_ns */
    int64_t origin_ns;

    pthread_t feeder;
    bool feeding; /* the thread exists */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {
        struct job *items;
        size_t count, capacity;
    } jobs;
    size_t taken; /* jobs taken; the queue is emptied when all are done */
    bool busy, stop;
    struct erg_error failure; /* of the feeder; status ERG_OK while there is none */
};

/* ---- the feeder ---- */

static int feed(struct erg_worker *worker, const struct job *job, struct erg_error *err)
{
    struct CUstream_st *stream = erg_executor_stream(worker->executor);
    erg_sleep_ns(job->delay_ns);
    if (erg_cuda_event_record(job->start, stream, err))
        return -1;
    for (size_t i = 0; i < job->repeats; i++)
        if (erg_graph_run_launch(job->prepared->run, err))
            return -1;
    return erg_cuda_event_record(job->end, stream, err);
}

/*
 * A GPU queues some hundred launches, but a measurement makes thousands: this thread waits for
 * room.
 */
static void *feed_jobs(void *context)
{
    struct erg_worker *worker = context;
    struct erg_error err = {0};
    int status = erg_cuda_bind(&worker->cuda, &err);
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        if (status && !worker->failure.status)
            worker->failure = err;
        while (worker->taken == worker->jobs.count && !worker->stop) {
            worker->busy = false;
            pthread_cond_broadcast(&worker->changed);
            pthread_cond_wait(&worker->changed, &worker->lock);
        }
        if (worker->stop)
            break;
        struct job job = worker->jobs.items[worker->taken++];
        bool failed = worker->failure.status != ERG_OK;
        pthread_mutex_unlock(&worker->lock);
        if (!failed)
            status = feed(worker, &job, &err);
        pthread_mutex_lock(&worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

/* ---- runs ---- */

static uint64_t hash_steps(const struct erg_step *steps, size_t count)
{
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++) {
        const struct erg_task *task = &steps[i].task;
        hash = erg_hash_u64(hash, task->op_count);
        for (size_t k = 0; k < task->op_count; k++) {
            const struct erg_op_code *code = &task->ops[k].code;
            hash = erg_hash_u64(hash, code->parts);
            hash = erg_hash_u64(hash, (uint64_t)code->sequences << 2 |
                                          (uint64_t)code->backward << 1 | code->weights);
        }
        hash = erg_hash_u64(hash, (uint64_t)task->comm.kind << 32 | (uint64_t)task->comm.part << 1 |
                                      task->comm.library);
        hash = erg_hash_u64(hash, (uint64_t)task->comm.sequences);
        hash = erg_hash_u64(hash, steps[i].launch.slot << 16 | (size_t)steps[i].launch.sms);
        hash = erg_hash_u64(hash, steps[i].instruction);
    }
    return hash;
}

static bool is_whole(const struct erg_worker *worker, const struct erg_step *step)
{
    int sequences =
        step->task.op_count ? step->task.ops[0].code.sequences : step->task.comm.sequences;
    return sequences == worker->options.sequences;
}

static enum erg_run_mode mode_of(const struct erg_step *steps, size_t count)
{
    if (!steps[0].instruction)
        return ERG_RUN_STEADY;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < steps[i].task.op_count; k++)
            if (steps[i].task.ops[k].code.backward)
                return ERG_RUN_BACKWARD;
    return ERG_RUN_FORWARD;
}

static int prepare_run(struct erg_worker *worker, const struct erg_step *steps, size_t count,
                       struct erg_graph_run **run, struct erg_error *err)
{
    struct erg_run_step *items = erg_xcalloc(count, sizeof *items);
    for (size_t i = 0; i < count; i++)
        items[i] = (struct erg_run_step){
            .step = steps[i],
            .nanobatch = is_whole(worker, &steps[i]) ? ERG_WHOLE_MICROBATCH : (int)i % 2,
        };
    int status = erg_graph_run_new(run, worker->executor, items, count, mode_of(steps, count), err);
    free(items);
    return status;
}

static int find_prepared(struct erg_worker *worker, const struct erg_step *steps, size_t count,
                         struct prepared **out, struct erg_error *err)
{
    uint64_t hash = erg_hash_u64(hash_steps(steps, count), worker->repeats);
    for (size_t i = 0; i < worker->prepared.count; i++)
        if (worker->prepared.items[i]->hash == hash) {
            *out = worker->prepared.items[i];
            return 0;
        }
    struct erg_graph_run *run;
    if (prepare_run(worker, steps, count, &run, err))
        return -1;
    struct prepared *prepared = erg_xcalloc(1, sizeof *prepared);
    *prepared = (struct prepared){hash, run};
    ERG_PUSH(&worker->prepared, items, prepared);
    *out = prepared;
    return 0;
}

/* ---- open and close ---- */

static int open_mesh(struct erg_worker *worker, struct erg_error *err)
{
    const struct erg_worker_options *options = &worker->options;
    struct erg_mesh_options mesh = {
        .env = options->env,
        .rendezvous = options->rendezvous,
        .tensor = options->tensor,
        .context = options->context,
        .library = true,
        .timeout_s = 20,
    };
    return erg_mesh_open(&worker->mesh, &mesh, err);
}

static int open_gpu(struct erg_worker *worker, struct erg_error *err)
{
    const struct erg_worker_options *options = &worker->options;
    if (erg_cuda_init(&worker->cuda, options->env->local_rank, err) ||
        erg_cudnn_open(&worker->cudnn, &worker->cuda, NULL, err) ||
        erg_gemm_open(&worker->gemm, err) || open_mesh(worker, err))
        return -1;
    struct erg_decoder_options decoder = {
        .cuda = &worker->cuda,
        .cudnn = worker->cudnn,
        .gemm = worker->gemm,
        .model = options->model,
        .mesh = &worker->mesh,
        .layers = options->layers,
        .replay = options->replay,
        .middle = true,
        .embedding = true,
        .head = true,
        .sequences = options->sequences,
        .sequence = options->sequence,
        .seed = options->seed,
    };
    if (erg_decoder_open(&worker->decoder, &decoder, err) ||
        erg_executor_open(&worker->executor, worker->decoder, &worker->cuda, err) ||
        erg_cuda_event_new(&worker->origin, true, err))
        return -1;
    for (size_t i = 0; i < ERG_DEVICE_SPANS; i++)
        if (erg_cuda_event_new(&worker->starts[i], true, err) ||
            erg_cuda_event_new(&worker->ends[i], true, err))
            return -1;
    /*
     * 8 SMs saturate the links between GPUs, and more hardly speed up a collective; for the
     * emulated device the stack file contains the same number (tuned_beside_sms).
     */
    const int beside = worker->cuda.sms - 8;
    struct CUstream_st *stream = erg_executor_stream(worker->executor);
    return erg_decoder_pass(worker->decoder, stream, err) ||
                   erg_decoder_verify(worker->decoder, stream, err) ||
                   erg_decoder_tune(worker->decoder, beside, stream, err) ||
                   erg_decoder_clear_gradients(worker->decoder, stream, err) ||
                   erg_decoder_pass(worker->decoder, stream, err) || erg_worker_begin(worker, err)
               ? -1
               : 0;
}

int erg_worker_open(struct erg_worker **out, const struct erg_worker_options *options,
                    struct erg_error *err)
{
    struct erg_worker *worker = erg_xcalloc(1, sizeof *worker);
    worker->options = *options;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    if (open_gpu(worker, err)) {
        struct erg_error ignored;
        erg_worker_close(worker, &ignored);
        return -1;
    }
    if (pthread_create(&worker->feeder, NULL, feed_jobs, worker)) {
        struct erg_error ignored;
        erg_worker_close(worker, &ignored);
        return erg_fail(err, ERG_FAILED, "starting the thread that feeds the GPU failed");
    }
    worker->feeding = true;
    *out = worker;
    return 0;
}

int erg_worker_close(struct erg_worker *worker, struct erg_error *err)
{
    if (!worker)
        return 0;
    if (worker->feeding) {
        pthread_mutex_lock(&worker->lock);
        worker->stop = true;
        pthread_cond_broadcast(&worker->changed);
        pthread_mutex_unlock(&worker->lock);
        pthread_join(worker->feeder, NULL);
    }
    for (size_t i = 0; i < worker->prepared.count; i++) {
        erg_graph_run_free(worker->prepared.items[i]->run);
        free(worker->prepared.items[i]);
    }
    free(worker->prepared.items);
    free(worker->jobs.items);
    for (size_t i = 0; i < ERG_DEVICE_SPANS; i++) {
        erg_cuda_event_free(worker->starts[i]);
        erg_cuda_event_free(worker->ends[i]);
    }
    erg_cuda_event_free(worker->origin);
    for (size_t i = 0; i < ERG_DEVICE_PASSES; i++)
        erg_numbers_free(worker->passes[i]);
    erg_executor_close(worker->executor);
    int status = erg_decoder_close(worker->decoder, err);
    erg_mesh_close(&worker->mesh);
    erg_gemm_close(worker->gemm);
    erg_cudnn_close(worker->cudnn);
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
    return status;
}

const struct erg_cuda *erg_worker_cuda(const struct erg_worker *worker)
{
    return &worker->cuda;
}

/* The GPU measures time from an event; this is the time of that event on the host's clock. */
int erg_worker_begin(struct erg_worker *worker, struct erg_error *err)
{
    struct CUstream_st *stream = erg_executor_stream(worker->executor);
    if (erg_cuda_stream_sync(stream, err))
        return -1;
    int64_t before_ns = erg_now_ns();
    if (erg_cuda_event_record(worker->origin, stream, err) ||
        erg_cuda_event_sync(worker->origin, err))
        return -1;
    worker->origin_ns = before_ns + (erg_now_ns() - before_ns) / 2;
    worker->calls = 0;
    return 0;
}

int erg_worker_enqueue(struct erg_worker *worker, const struct erg_step *steps, size_t count,
                       size_t repeats, int64_t delay_ns, struct erg_error *err)
{
    struct prepared *prepared;
    if (find_prepared(worker, steps, count, &prepared, err))
        return -1;
    size_t call = worker->calls++ % ERG_DEVICE_SPANS;
    struct job job = {prepared, repeats, delay_ns, worker->starts[call], worker->ends[call]};
    pthread_mutex_lock(&worker->lock);
    if (!worker->busy) { /* all jobs are done: start from an empty list */
        worker->jobs.count = worker->taken = 0;
        worker->busy = true;
    }
    ERG_PUSH(&worker->jobs, items, job);
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    return 0;
}

int erg_worker_sync(struct erg_worker *worker, struct erg_error *err)
{
    pthread_mutex_lock(&worker->lock);
    while (worker->busy)
        pthread_cond_wait(&worker->changed, &worker->lock);
    struct erg_error failure = worker->failure;
    pthread_mutex_unlock(&worker->lock);
    if (failure.status) {
        *err = failure;
        return -1;
    }
    return erg_mesh_wait(&worker->mesh, erg_executor_stream(worker->executor), err);
}

int erg_worker_spans(struct erg_worker *worker, struct erg_device_span spans[ERG_DEVICE_SPANS],
                     struct erg_error *err)
{
    memset(spans, 0, ERG_DEVICE_SPANS * sizeof *spans);
    for (size_t back = 0; back < ERG_DEVICE_SPANS && back < worker->calls; back++) {
        size_t call = (worker->calls - 1 - back) % ERG_DEVICE_SPANS;
        double start_ms, length_ms;
        if (erg_cuda_event_ms(&start_ms, worker->origin, worker->starts[call], err) ||
            erg_cuda_event_ms(&length_ms, worker->starts[call], worker->ends[call], err))
            return -1;
        spans[back].start_ns = worker->origin_ns + (int64_t)(start_ms * 1e6);
        spans[back].end_ns = spans[back].start_ns + (int64_t)(length_ms * 1e6);
    }
    return 0;
}

/* ---- numbers ---- */

int erg_worker_repeat(struct erg_worker *worker, bool repeatable, struct erg_error *err)
{
    if (erg_decoder_repeat(worker->decoder, repeatable, err))
        return -1;
    worker->repeats = repeatable;
    return 0;
}

int erg_worker_clear(struct erg_worker *worker, struct erg_error *err)
{
    return erg_decoder_clear_gradients(worker->decoder, erg_executor_stream(worker->executor), err);
}

int erg_worker_note(struct erg_worker *worker, size_t pass, struct erg_error *err)
{
    erg_numbers_free(worker->passes[pass]);
    worker->passes[pass] = NULL;
    return erg_numbers_new(&worker->passes[pass], worker->decoder,
                           erg_executor_stream(worker->executor), err);
}

size_t erg_worker_compare(const struct erg_worker *worker, size_t pass, size_t reference,
                          struct erg_difference list[ERG_DIFFERENCES])
{
    return erg_numbers_compare(worker->passes[pass], worker->passes[reference], list);
}
