/* Trainer: opens the weights, optimizer and data of a run, and runs its steps. */
#include "train/engine/trainer_internal.h"

#include "base/memory.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/initialize.h"
#include "train/engine/rank_buffers.h"
#include "train/files/model_file.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int check_layout(const struct erg_trainer_options *options, struct erg_error *err)
{
    const struct erg_job *job = options->job;
    const struct erg_layout *layout = &job->layout;
    if (!job->training)
        return erg_fail(err, ERG_FAILED,
                        "%s: key 'train': the key is missing; expected the data, the number of "
                        "updates and the learning rate of the run",
                        job->path);
    if (erg_layout_gpus(layout) != options->world)
        return erg_fail(err, ERG_USAGE,
                        "%s: the layout is of %ld ranks (tensor %ld, context %ld, pipeline %ld, "
                        "data %ld), but there are %d; expected as many, as \"ergon run -n %ld -- "
                        "ergon train\" starts them",
                        job->path, erg_layout_gpus(layout), layout->tensor, layout->context,
                        layout->pipeline, layout->data, options->world, erg_layout_gpus(layout));
    if (layout->recompute != ERG_RECOMPUTE_NONE || layout->stage_recompute)
        return erg_fail(err, ERG_INFEASIBLE,
                        "%s: key 'recompute': training keeps all activations yet; expected none",
                        job->path);
    return erg_stage_check(job->model, err);
}

static void *buffer(const struct erg_trainer *trainer, enum erg_static_buffer kind)
{
    return (char *)trainer->memory + erg_static_offset(&trainer->buffers, kind, 0);
}

/* Where this rank's tokens of a step and its scalars lie. */
static void place_inputs(struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t microbatches = (size_t)layout->microbatches;
    size_t tokens = (size_t)(layout->microbatch * layout->sequence / layout->context);
    trainer->inputs = tokens * microbatches;
    assert(trainer->buffers.bytes[ERG_STATIC_TOKENS] == 3 * trainer->inputs * sizeof(int32_t));
    trainer->scalars = buffer(trainer, ERG_STATIC_STEP_SCALARS);
    trainer->ids = buffer(trainer, ERG_STATIC_TOKENS);
    trainer->order = trainer->ids + trainer->inputs;
    trainer->targets = trainer->order + trainer->inputs;
    trainer->host_ids = erg_xcalloc(3 * trainer->inputs, sizeof *trainer->host_ids);
    trainer->host_order = trainer->host_ids + trainer->inputs;
    trainer->host_targets = trainer->host_order + trainer->inputs;
    trainer->microbatches = erg_xcalloc(microbatches, sizeof *trainer->microbatches);
    for (size_t i = 0; i < microbatches; i++)
        trainer->microbatches[i] = (struct erg_stage_tokens){
            trainer->ids + i * tokens, trainer->order + i * tokens, trainer->targets + i * tokens,
            &trainer->scalars->scale, &trainer->scalars->loss};
}

static int copy(struct erg_trainer *trainer, void *to, const void *from, size_t bytes,
                struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->copy(backend, to, from, bytes, trainer->stream, err);
}

static int wait(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->stream_wait(backend, trainer->stream, err);
}

/* All kernels of the passes have run once when ranks begin to wait for each other. */
static int warm_up(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->fill(backend, trainer->ids, 0, 3 * trainer->inputs * sizeof(int32_t),
                                trainer->stream, err) ||
                   backend->table->fill(backend, trainer->scalars, 0, sizeof *trainer->scalars,
                                        trainer->stream, err) ||
                   erg_stage_warm_up(trainer->stage, trainer->microbatches, trainer->stream, err)
               ? -1
               : 0;
}

/* Masters as the run begins with them, and the weights in use rounded from them. */
static int set_weights(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_weights *weights = trainer->weights;
    const char *init = trainer->options.init;
    char *folder = init ? erg_xstrdup(init)
                   : trainer->training->init
                       ? erg_job_file_path(trainer->job, trainer->training->init)
                       : erg_xstrdup("random");
    float *state = erg_xcalloc(weights->state, sizeof *state);
    int result = 0;
    if (strcmp(folder, "random") == 0)
        result = erg_initialize(state, weights, &trainer->spans, trainer->job->model,
                                trainer->training->seed, err);
    else
        result =
            erg_model_file_load(state, weights, &trainer->spans, trainer->job->model, folder, err);
    if (result == 0)
        result = copy(trainer, erg_optimizer_state(trainer->optimizer), state,
                      weights->state * sizeof *state, err) ||
                         wait(trainer, err)
                     ? -1
                     : 0;
    free(state);
    free(folder);
    return result;
}

/* Which layers this rank has, and of what else. */
static void request_weights(struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    const struct erg_ranks *ranks = &trainer->ranks;
    long all = trainer->job->model->layers;
    size_t chunks = trainer->list.schedule.pipeline.chunks, at = 0;
    trainer->chunks = erg_xcalloc(chunks, sizeof *trainer->chunks);
    if (layout->pipeline == 1) { /* chunks that follow each other are one */
        trainer->chunks[0] = (struct erg_layer_range){0, all};
        at = 1;
    }
    long first = 0;
    for (long chunk = 0; at < chunks; chunk++)
        for (long stage = 0; stage < layout->pipeline; stage++) {
            long count = erg_layout_chunk_layers(layout, all, stage, chunk);
            if (stage == ranks->stage)
                trainer->chunks[at++] = (struct erg_layer_range){first, count};
            first += count;
        }
    trainer->request =
        (struct erg_weights_request){.model = trainer->job->model,
                                     .tensor = layout->tensor,
                                     .place = ranks->tensor,
                                     .chunks = trainer->chunks,
                                     .chunk_count = chunks,
                                     .embedding = ranks->stage == 0,
                                     .head = ranks->stage == layout->pipeline - 1,
                                     .ranks = layout->context * layout->data,
                                     .share = ranks->context + layout->context * ranks->data};
}

static struct erg_stage_options stage_options(const struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    return (struct erg_stage_options){
        .backend = trainer->options.backend,
        .weights = trainer->request,
        .sequences = layout->microbatch,
        .sequence = layout->sequence,
        .context = layout->context,
        .context_place = trainer->ranks.context,
        .sequence_parallel = trainer->training->sequence_parallel && layout->tensor > 1,
        .room = erg_stage_room_of(layout, trainer->job->model->layers, trainer->ranks.stage),
        .tensor_group = trainer->ranks.groups.tensor,
        .context_group = trainer->ranks.groups.context,
    };
}

/* All memory of the device; says how much it is where it does not suffice. */
static int take_memory(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    struct erg_backend *backend = trainer->options.backend;
    const size_t bytes = trainer->buffers.total;
    if (backend->table->alloc(backend, &trainer->memory, bytes, err) == 0)
        return 0;
    return erg_fail_context(err,
                            "%s: rank %d takes %.3g GiB for weights, gradients, the optimizer's "
                            "share and microbatches of %ld x %ld tokens",
                            trainer->job->path, trainer->ranks.rank, (double)bytes / 0x1p30,
                            layout->microbatch, layout->sequence);
}

static int place(struct erg_trainer *trainer, const struct erg_stage_options *options,
                 struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    if (erg_rank_buffers_init(&trainer->buffers, options, &trainer->job->layout,
                              trainer->ranks.stage, err) ||
        take_memory(trainer, err) ||
        erg_stage_open(&trainer->stage, options, &trainer->buffers, trainer->memory, err))
        return -1;
    place_inputs(trainer);
    trainer->weights = erg_stage_weights(trainer->stage);
    erg_weight_spans_init(&trainer->spans, trainer->weights, &trainer->request);
    struct erg_passes_options passes = {
        backend,         trainer->stage,    &trainer->list, &trainer->ranks.groups,
        trainer->stream, &trainer->buffers, trainer->memory};
    struct erg_optimizer_options optimizer = {backend,
                                              trainer->stage,
                                              &trainer->spans,
                                              &trainer->ranks.groups,
                                              options->sequence_parallel,
                                              trainer->stream,
                                              &trainer->buffers,
                                              trainer->memory};
    return erg_passes_open(&trainer->passes, &passes, err) ||
                   erg_optimizer_open(&trainer->optimizer, &optimizer, err)
               ? -1
               : 0;
}

/* What each rank does by itself. */
static int open_rank(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    struct erg_backend *backend = trainer->options.backend;
    request_weights(trainer);
    struct erg_stage_options options = stage_options(trainer);
    if (options.sequence_parallel && trainer->job->model->learned_positions &&
        layout->microbatch % layout->tensor != 0 && layout->tensor % layout->microbatch != 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "%s: key 'train.sequence_parallel': %ld sequences of a microbatch and %ld "
                        "tensor ranks; expected that one divides the other where positions are "
                        "learned",
                        trainer->job->path, layout->microbatch, layout->tensor);
    return backend->table->stream_new(backend, &trainer->stream, err) ||
                   place(trainer, &options, err) ||
                   erg_batches_open(&trainer->batches, trainer->job, err) ||
                   set_weights(trainer, err) || warm_up(trainer, err)
               ? -1
               : 0;
}

int erg_trainer_open(struct erg_trainer **out, const struct erg_trainer_options *options,
                     struct erg_error *err)
{
    const struct erg_job *job = options->job;
    const struct erg_training *training = job->training;
    if (check_layout(options, err) != 0)
        return -1;
    struct erg_trainer *trainer = erg_xcalloc(1, sizeof *trainer);
    trainer->options = *options;
    trainer->job = job;
    trainer->training = training;
    trainer->rate = (struct erg_learning_rate){
        training->schedule, training->learning_rate, training->lowest,          training->warmup,
        training->updates,  training->decay_steps,   training->warmup_from_zero};
    int result = erg_ranks_open(&trainer->ranks, &job->layout, job->model, options->backend,
                                options->rank, err);
    if (result == 0)
        result = erg_pass_list_init(&trainer->list, &job->layout, trainer->ranks.stage, err);
    if (result == 0)
        result = open_rank(trainer, err);
    if (erg_rendezvous_agree(options->rendezvous, result, err) ||
        erg_optimizer_round(trainer->optimizer, err)) {
        erg_trainer_close(trainer);
        return -1;
    }
    *out = trainer;
    return 0;
}

void erg_trainer_close(struct erg_trainer *trainer)
{
    if (!trainer)
        return;
    struct erg_backend *backend = trainer->options.backend;
    erg_optimizer_close(trainer->optimizer);
    erg_passes_close(trainer->passes);
    erg_batches_release(&trainer->batches);
    erg_weight_spans_release(&trainer->spans);
    erg_stage_close(trainer->stage);
    if (trainer->memory)
        backend->table->free(backend, trainer->memory);
    erg_ranks_release(&trainer->ranks, backend);
    erg_pass_list_release(&trainer->list);
    backend->table->stream_free(backend, trainer->stream);
    free(trainer->chunks);
    free(trainer->microbatches);
    free(trainer->host_ids);
    free(trainer);
}

/* ---- a step ---- */

static int load_batch(struct erg_trainer *trainer, struct erg_train_step *step,
                      struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t microbatches = (size_t)layout->microbatches, count = trainer->inputs / microbatches;
    bool reads = trainer->request.embedding || trainer->request.head;
    struct erg_batch_share share = {trainer->ranks.data, trainer->ranks.context};
    if (erg_batches_next(&trainer->batches, &share, reads ? trainer->host_ids : NULL,
                         trainer->host_targets, &step->targets, err) != 0)
        return -1;
    for (size_t i = 0; i < microbatches && reads; i++)
        erg_ops_embedding_order(count, trainer->host_ids + i * count,
                                trainer->host_order + i * count);
    trainer->tokens +=
        (uint64_t)(layout->microbatch * layout->sequence * layout->microbatches * layout->data);
    trainer->host_scalars =
        (struct erg_step_scalars){.scale = step->targets ? 1 / (float)step->targets : 0};
    return copy(trainer, trainer->ids, trainer->host_ids, 3 * trainer->inputs * sizeof(int32_t),
                err) ||
                   copy(trainer, trainer->scalars, &trainer->host_scalars,
                        sizeof trainer->host_scalars, err)
               ? -1
               : 0;
}

static int run_passes(struct erg_trainer *trainer, double *squares, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    struct erg_stage_listener reads = erg_optimizer_reads(trainer->optimizer);
    struct erg_stage_listener adds = erg_optimizer_adds(trainer->optimizer);
    return backend->table->fill(backend, erg_stage_gradients(trainer->stage), 0,
                                trainer->weights->elements * sizeof(float), trainer->stream, err) ||
                   erg_passes_run(trainer->passes, trainer->microbatches, &reads, &adds, err) ||
                   copy(trainer, &trainer->host_scalars, trainer->scalars,
                        sizeof trainer->host_scalars, err) ||
                   wait(trainer, err) || erg_passes_wait(trainer->passes, err) ||
                   erg_optimizer_squares(trainer->optimizer, squares, err)
               ? -1
               : 0;
}

/* What a rank knows of a step; together the ranks know all of it. */
struct rank_report {
    double loss, squares;
    uint64_t targets;
    int signal;
};

static int sum_reports(struct erg_trainer *trainer, struct rank_report *report,
                       struct erg_error *err)
{
    enum { PATIENCE_S = 3600 }; /* stages may wait for each other; a dead one is noticed at once */
    struct erg_rendezvous *rendezvous = trainer->options.rendezvous;
    if (!rendezvous)
        return 0;
    struct rank_report *all = erg_xcalloc((size_t)trainer->ranks.world, sizeof *all);
    int result =
        erg_rendezvous_all_gather(rendezvous, report, sizeof *report, all, PATIENCE_S, err);
    *report = (struct rank_report){0};
    for (int i = 0; i < trainer->ranks.world && result == 0; i++) {
        report->loss += all[i].loss;
        report->squares += all[i].squares;
        if (all[i].targets > report->targets)
            report->targets = all[i].targets;
        if (!report->signal)
            report->signal = all[i].signal;
    }
    free(all);
    return result;
}

static struct erg_ops_update update_of(const struct erg_trainer *trainer,
                                       const struct erg_train_step *step)
{
    const struct erg_training *training = trainer->training;
    double t = (double)(trainer->updates + 1), factor = 1;
    if (training->clip > 0)
        factor = fmin(1, training->clip / (step->gradient_norm + 1e-6));
    return (struct erg_ops_update){
        .rate = (float)step->learning_rate,
        .decay = (float)training->weight_decay,
        .beta1 = (float)training->beta1,
        .beta2 = (float)training->beta2,
        .eps = (float)training->eps,
        .correction1 = (float)(1 - pow(training->beta1, t)),
        .correction2 = (float)sqrt(1 - pow(training->beta2, t)),
        .factor = (float)factor,
    };
}

int erg_trainer_step(struct erg_trainer *trainer, int signal, struct erg_train_step *step,
                     struct erg_error *err)
{
    struct rank_report report = {.signal = signal};
    *step = (struct erg_train_step){.step = trainer->steps + 1};
    if (load_batch(trainer, step, err) || run_passes(trainer, &report.squares, err))
        return -1;
    /* Every tensor rank of the last stage has the whole loss of its tokens. */
    if (trainer->request.head && trainer->ranks.tensor == 0)
        report.loss = (double)trainer->host_scalars.loss;
    report.targets = step->targets;
    if (sum_reports(trainer, &report, err) != 0)
        return -1;
    step->targets = report.targets;
    step->signal = report.signal;
    step->loss = step->targets ? report.loss : (double)NAN;
    step->gradient_norm = sqrt(report.squares);
    step->learning_rate = erg_rate_at(&trainer->rate, trainer->updates);
    step->skipped = !step->targets || !isfinite(report.squares);
    if (!step->skipped) {
        struct erg_ops_update update = update_of(trainer, step);
        step->clipped = update.factor < 1;
        if (erg_optimizer_update(trainer->optimizer, &update, err) != 0)
            return -1;
        trainer->updates++;
    }
    trainer->steps++;
    step->updates = trainer->updates;
    step->tokens = trainer->tokens;
    return 0;
}

/* ---- checkpoints ---- */

uint64_t erg_trainer_steps(const struct erg_trainer *trainer)
{
    return trainer->steps;
}

uint64_t erg_trainer_tokens(const struct erg_trainer *trainer)
{
    return trainer->tokens;
}

/* Room for masters and moments in memory of the host; release `master`. */
static struct erg_checkpoint_state state_new(const struct erg_trainer *trainer)
{
    size_t elements = trainer->weights->state;
    float *values = erg_xcalloc(3 * elements + 1, sizeof *values);
    return (struct erg_checkpoint_state){.weights = trainer->weights,
                                         .spans = &trainer->spans,
                                         .rank = trainer->ranks.rank,
                                         .rendezvous = trainer->options.rendezvous,
                                         .master = values,
                                         .m = values + elements,
                                         .v = values + 2 * elements};
}

int erg_trainer_save(struct erg_trainer *trainer, const char *run, int keep, struct erg_error *err)
{
    struct erg_checkpoint_state state = state_new(trainer);
    size_t bytes = 3 * trainer->weights->state * sizeof(float);
    struct erg_checkpoint_place place = {.step = trainer->steps,
                                         .updates = trainer->updates,
                                         .samples = trainer->batches.order.next,
                                         .tokens = trainer->tokens,
                                         .skipped = trainer->steps - trainer->updates};
    int result = copy(trainer, state.master, erg_optimizer_state(trainer->optimizer), bytes, err) ||
                         wait(trainer, err) ||
                         erg_checkpoint_write(run, trainer->job, &place, &state, keep, err)
                     ? -1
                     : 0;
    free(state.master);
    return result;
}

int erg_trainer_resume(struct erg_trainer *trainer, const char *folder, char **found,
                       struct erg_error *err)
{
    struct erg_checkpoint_state state = state_new(trainer);
    struct erg_checkpoint_place place;
    size_t elements = trainer->weights->state;
    int result = erg_checkpoint_load(folder, trainer->job, &place, &state, found, err);
    if (result == 0 && *found) {
        trainer->steps = place.step;
        trainer->updates = place.updates;
        trainer->tokens = place.tokens;
        erg_order_seek(&trainer->batches.order, place.samples);
        result = copy(trainer, erg_optimizer_state(trainer->optimizer), state.master,
                      3 * elements * sizeof(float), err) ||
                         wait(trainer, err) || erg_optimizer_round(trainer->optimizer, err)
                     ? -1
                     : 0;
    }
    free(state.master);
    return result;
}

/* ---- what comes out ---- */

size_t erg_trainer_bytes(const struct erg_trainer *trainer)
{
    return trainer->buffers.total;
}

int erg_trainer_export(struct erg_trainer *trainer, const char *folder, bool bf16,
                       struct erg_error *err)
{
    struct erg_checkpoint_state state = state_new(trainer);
    size_t bytes = trainer->weights->state * sizeof(float);
    int result = copy(trainer, state.master, erg_optimizer_state(trainer->optimizer), bytes, err) ||
                         wait(trainer, err) ||
                         erg_checkpoint_export(folder, trainer->job, &state, bf16, err)
                     ? -1
                     : 0;
    free(state.master);
    return result;
}
