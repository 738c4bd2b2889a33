/*
 * A pass by a program: the steps of its layers on two streams, one that computes and one that
 * exchanges, which meet at the end of every step.
 */
#include "decoder/stage_internal.h"

#include <assert.h>

/* How far the sequences that compute together have come, in layers of the chunk. */
struct cursor {
    size_t next; /* forward: the layer of the next norm_a; backward: layers above the present one */
};

struct program_run {
    struct erg_stage *stage;
    const struct erg_stage_pass *pass;
    const struct erg_stage_ends *ends;
    const struct erg_stage_listener *listener;
    struct erg_stream *stream;
    size_t layers;
    bool backward;
    struct cursor cursors[2]; /* of the nanobatches; the whole microbatch has the first */
};

/* ---- where an operation is ---- */

/* The layer of an operation, in the order of execution. */
static size_t advance(struct program_run *run, struct cursor *cursor,
                      const struct erg_op_code *code)
{
    const bool opens = code->parts & 1u << ERG_MODEL_NORM_A;
    if (!run->backward) {
        cursor->next += opens;
        assert(cursor->next > 0 && cursor->next <= run->layers);
        return cursor->next - 1;
    }
    /* The gradient of norm_a is the last operation of its layer. */
    const size_t above = cursor->next;
    cursor->next += opens && code->backward;
    assert(above < run->layers);
    return run->layers - 1 - above;
}

/* The layer of the operation that ran last: the next exchange belongs to it. */
static size_t latest(const struct program_run *run, const struct cursor *cursor)
{
    assert(run->backward ? cursor->next < run->layers : cursor->next > 0);
    return run->backward ? run->layers - 1 - cursor->next : cursor->next - 1;
}

/* ---- operations ---- */

static int tell(const struct program_run *run, size_t layer, struct erg_error *err)
{
    return erg_stage_tell(run->stage, run->listener, ERG_BUCKET_LAYER,
                          run->stage->chunks[run->pass->chunk].first + (long)layer, err);
}

static int run_op(struct program_run *run, struct cursor *cursor, const struct erg_op_code *code,
                  const struct erg_stage_rows *rows, struct erg_stream *stream,
                  struct erg_error *err)
{
    const size_t before = cursor->next;
    const size_t layer = advance(run, cursor, code);
    if (run->backward && !code->backward && run->stage->options.recompute != ERG_RECOMPUTE_FULL)
        return 0; /* made again before what reads it */
    const struct erg_stage_place place =
        erg_stage_place_of(run->stage, run->pass, layer, run->ends);
    const bool last =
        rows->first_sequence + rows->sequences == (size_t)run->stage->options.sequences;
    const bool moved = cursor->next != before;
    /* Matrices are first read by the first nanobatch, and last added to by the last one. */
    if (!run->backward && moved && rows->first_sequence == 0 && tell(run, layer, err))
        return -1;
    if (code->backward ? erg_stage_backward_op(run->stage, &place, code->parts, code->weights, rows,
                                               stream, err)
                       : erg_stage_forward_op(run->stage, &place, code->parts, rows, stream, err))
        return -1;
    return run->backward && moved && last ? tell(run, layer, err) : 0;
}

/* ---- exchanges ---- */

static int queue_exchange(struct program_run *run, const struct cursor *cursor, int part,
                          const struct erg_stage_rows *rows, struct erg_error *err)
{
    const struct erg_stage_place place =
        erg_stage_place_of(run->stage, run->pass, latest(run, cursor), run->ends);
    return erg_stage_exchange_op(run->stage, &place, (enum erg_model_op_id)part, run->backward,
                                 rows, run->stage->comm, err);
}

/* Norms within an exchange. The stage's scratch is in use, so they use the place where their
 * results will be gathered. A callback for a layer meanwhile concerns weights that these do not
 * touch. */
static int queue_works(struct program_run *run, struct cursor *cursor, const struct erg_comm *comm,
                       const struct erg_stage_rows *rows, struct erg_error *err)
{
    struct erg_stage *stage = run->stage;
    int result = 0;
    stage->beside = erg_stage_row(stage, stage->gathered, stage->hidden, rows);
    stage->beside_bytes = rows->tokens * stage->hidden * stage->element;
    for (int i = 0; i < comm->work_count && result == 0; i++)
        result = run_op(run, cursor, &comm->works[i].code, rows, stage->comm, err);
    stage->beside = NULL;
    return result;
}

/* The exchange begins once what was computed before it is done. */
static int start_exchange(struct program_run *run, struct cursor *cursor,
                          const struct erg_step *step, const struct erg_stage_rows *rows,
                          struct erg_error *err)
{
    struct erg_stage *stage = run->stage;
    struct erg_backend *backend = stage->options.backend;
    const struct erg_comm *comm = &step->task.comm;
    stage->exchange_sms = comm->library ? 0 : step->launch.sms;
    if (erg_stage_queues(stage) &&
        erg_backend_follow(backend, stage->launched, stage->comm, run->stream, err) != 0)
        return -1;
    if (queue_exchange(run, cursor, comm->part, rows, err) ||
        (comm->kind == ERG_COMM_NORM_HIDDEN &&
         (queue_works(run, cursor, comm, rows, err) ||
          queue_exchange(run, cursor, comm->gather_part, rows, err))))
        return -1;
    return erg_stage_queues(stage)
               ? backend->table->event_record(backend, stage->exchanged, stage->comm, err)
               : 0;
}

/* The streams meet. */
static int await_exchange(const struct program_run *run, struct erg_error *err)
{
    struct erg_stage *stage = run->stage;
    struct erg_backend *backend = stage->options.backend;
    stage->exchange_sms = 0;
    return erg_stage_queues(stage)
               ? backend->table->event_wait(backend, stage->exchanged, run->stream, err)
               : 0;
}

/* ---- steps ---- */

static int run_step(struct program_run *run, const struct erg_step *step, size_t index,
                    struct erg_error *err)
{
    const struct erg_task *task = &step->task;
    const bool exchanges = task->comm.kind != ERG_COMM_NONE;
    const size_t all = (size_t)run->stage->options.sequences;
    const size_t count =
        (size_t)(task->op_count ? task->ops[0].code.sequences : task->comm.sequences);
    /* While one nanobatch computes the other one exchanges; the whole microbatch does the one after
     * the other. */
    const bool whole = count == all;
    const size_t computes = whole ? 0 : index % 2, other = whole ? 0 : !computes;
    const struct erg_stage_rows rows = erg_stage_rows_of(run->stage, computes * count, count);
    const struct erg_stage_rows others = erg_stage_rows_of(run->stage, other * count, count);
    for (size_t i = 0; i <= task->op_count; i++) {
        if (exchanges && i == step->launch.slot &&
            start_exchange(run, &run->cursors[other], step, &others, err))
            return -1;
        if (i < task->op_count &&
            run_op(run, &run->cursors[computes], &task->ops[i].code, &rows, run->stream, err))
            return -1;
    }
    return exchanges ? await_exchange(run, err) : 0;
}

int erg_stage_run_program(struct erg_stage *stage, const struct erg_stage_pass *pass,
                          const struct erg_stage_program *program, bool backward,
                          const struct erg_stage_ends *ends,
                          const struct erg_stage_listener *listener, struct erg_stream *stream,
                          struct erg_error *err)
{
    struct program_run run = {.stage = stage,
                              .pass = pass,
                              .ends = ends,
                              .listener = listener,
                              .stream = stream,
                              .layers = (size_t)stage->chunks[pass->chunk].count,
                              .backward = backward};
    int result = 0;
    for (size_t i = 0; i < program->count && result == 0; i++)
        result = run_step(&run, &program->steps[i], i, err);
    stage->exchange_sms = 0;
    return result;
}

/* ---- before it is used ---- */

static int run_alone(struct erg_stage *stage, enum erg_stage_mode mode, size_t chunk, bool backward,
                     const struct erg_stage_program *program, struct erg_stream *stream,
                     struct erg_error *err)
{
    stage->mode = mode;
    const size_t index = erg_stage_pass(stage, chunk);
    const struct erg_stage_pass *pass = erg_stage_enter(stage, index);
    const struct erg_stage_ends ends = {stage->d_stream[0], stage->d_stream[0], NULL};
    int result = erg_stage_run_program(stage, pass, program, backward, &ends, NULL, stream, err);
    erg_stage_leave(stage, index);
    stage->mode = ERG_STAGE_RUNS;
    return result;
}

int erg_stage_try_program(struct erg_stage *stage, size_t chunk, bool backward,
                          const struct erg_stage_program *program, struct erg_stream *stream,
                          struct erg_error *err)
{
    struct erg_backend *backend = stage->options.backend;
    const size_t scratch = stage->scratch_bytes;
    const bool whole_layers = stage->options.recompute == ERG_RECOMPUTE_FULL;
    if (stage->buffers->pieces[ERG_STATIC_MOVED] > 0 ||
        (whole_layers && stage->options.sequence_parallel))
        return erg_fail(err, ERG_INFEASIBLE,
                        "a plan that overlaps runs nanobatches, and %s; expected %s, too",
                        whole_layers ? "sequence parallelism computes whole layers again for whole "
                                       "microbatches"
                                     : "offloading moves whole microbatches",
                        whole_layers ? "another recompute than full" : "offload 0");
    int result = run_alone(stage, ERG_STAGE_MEASURES, chunk, backward, program, stream, err);
    assert(stage->scratch_bytes == scratch); /* less work needs no more of it */
    (void)scratch;
    if (result == 0)
        result = run_alone(stage, ERG_STAGE_ALONE, chunk, backward, program, stream, err);
    return result == 0 ? backend->table->stream_wait(backend, stream, err) : -1;
}
