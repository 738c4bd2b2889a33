/* Trainer: opens the weights, optimizer and data of a run, and runs its steps. */
#include "train/engine/trainer_internal.h"

#include "base/memory.h"
#include "decoder/decoder_stage.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/batch.h"
#include "train/engine/initialize.h"
#include "train/engine/rate.h"
#include "train/files/model_file.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int check_layout(const struct erg_job *job, struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    if (!job->training)
        return erg_fail(err, ERG_FAILED,
                        "%s: key 'train': the key is missing; expected the data, the number of "
                        "updates and the learning rate of the run",
                        job->path);
    if (erg_layout_gpus(layout) != 1)
        return erg_fail(err, ERG_INFEASIBLE,
                        "%s: training runs on one rank yet; expected degrees of 1, got tensor %ld, "
                        "context %ld, pipeline %ld, data %ld",
                        job->path, layout->tensor, layout->context, layout->pipeline, layout->data);
    if (layout->recompute != ERG_RECOMPUTE_NONE || layout->stage_recompute)
        return erg_fail(err, ERG_INFEASIBLE,
                        "%s: key 'recompute': training keeps all activations yet; expected none",
                        job->path);
    return erg_stage_check(job->model, err);
}

static int take(struct erg_trainer *trainer, void **memory, size_t bytes, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    trainer->bytes += bytes;
    return backend->table->alloc(backend, memory, bytes, err);
}

static int make_memory(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t elements = trainer->weights->elements;
    size_t tokens = (size_t)(layout->microbatch * layout->sequence * layout->microbatches);
    struct erg_backend *backend = trainer->options.backend;
    struct erg_kernel squares = {ERG_KERNEL_SQUARES, .floats = {.count = elements}};
    size_t scratch;
    if (backend->table->scratch_bytes(backend, &squares, &scratch, err) ||
        take(trainer, &trainer->scratch, scratch, err) ||
        take(trainer, &trainer->state, 3 * elements * sizeof(float), err) ||
        take(trainer, &trainer->inputs, 3 * tokens * sizeof(int32_t), err) ||
        take(trainer, (void **)&trainer->scalars, sizeof *trainer->scalars, err))
        return -1;
    trainer->master = trainer->state;
    trainer->m = trainer->master + elements;
    trainer->v = trainer->m + elements;
    trainer->ids = trainer->inputs;
    trainer->order = trainer->ids + tokens;
    trainer->targets = trainer->order + tokens;
    trainer->host_ids = erg_xcalloc(3 * tokens, sizeof *trainer->host_ids);
    trainer->host_order = trainer->host_ids + tokens;
    trainer->host_targets = trainer->host_order + tokens;
    return 0;
}

static int copy(struct erg_trainer *trainer, void *to, const void *from, size_t bytes,
                struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->copy(backend, to, from, bytes, trainer->stream, err);
}

static int fill_zero(struct erg_trainer *trainer, void *memory, size_t bytes, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->fill(backend, memory, 0, bytes, trainer->stream, err);
}

static int wait(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->stream_wait(backend, trainer->stream, err);
}

static int launch(struct erg_trainer *trainer, const struct erg_kernel *kernel,
                  struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->launch(backend, kernel, trainer->scratch, trainer->stream, err);
}

/* The weights in use, from the masters; waits. */
static int round_weights(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_kernel round = {ERG_KERNEL_ROUND,
                               .floats = {.count = trainer->weights->elements,
                                          .in = trainer->master,
                                          .out = erg_stage_values(trainer->stage)}};
    return launch(trainer, &round, err) || wait(trainer, err) ? -1 : 0;
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
    float *values = erg_xcalloc(weights->elements, sizeof *values);
    int result = 0;
    if (strcmp(folder, "random") == 0)
        erg_initialize(values, weights, &trainer->spans, trainer->job->model,
                       trainer->training->seed);
    else
        result =
            erg_model_file_load(values, weights, &trainer->spans, trainer->job->model, folder, err);
    if (result == 0)
        result =
            copy(trainer, trainer->master, values, weights->elements * sizeof *values, err) ||
                    fill_zero(trainer, trainer->m, 2 * weights->elements * sizeof(float), err) ||
                    round_weights(trainer, err)
                ? -1
                : 0;
    free(values);
    free(folder);
    return result;
}

/* The stage and all other memory of the device; says how much it is where it does not suffice. */
static int place(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    struct erg_stage_options options = {trainer->options.backend, trainer->request,
                                        layout->microbatch, layout->sequence, 1};
    struct erg_stage_memory memory;
    int result = erg_stage_memory(&memory, &options, err);
    const double gib = (double)memory.bytes / 0x1p30;
    trainer->bytes = memory.bytes;
    erg_stage_memory_release(&memory);
    if (result != 0)
        return -1;
    if (erg_stage_open(&trainer->stage, &options, err) == 0) {
        trainer->weights = erg_stage_weights(trainer->stage);
        erg_weight_spans_init(&trainer->spans, trainer->weights, &trainer->request);
        if (make_memory(trainer, err) == 0)
            return 0;
    }
    return erg_fail_context(
        err,
        "%s: weights, gradients and microbatches of %ld x %ld tokens take %.3g GiB, "
        "and the optimizer 12 bytes a parameter",
        trainer->job->path, layout->microbatch, layout->sequence, gib);
}

int erg_trainer_open(struct erg_trainer **out, const struct erg_trainer_options *options,
                     struct erg_error *err)
{
    const struct erg_job *job = options->job;
    const struct erg_training *training = job->training;
    if (check_layout(job, err) != 0)
        return -1;
    struct erg_trainer *trainer = erg_xcalloc(1, sizeof *trainer);
    struct erg_backend *backend = options->backend;
    trainer->options = *options;
    trainer->job = job;
    trainer->training = training;
    trainer->request = (struct erg_weights_request){.model = job->model,
                                                    .tensor = 1,
                                                    .layers = job->model->layers,
                                                    .embedding = true,
                                                    .head = true,
                                                    .ranks = 1};
    trainer->rate = (struct erg_learning_rate){
        training->schedule, training->learning_rate, training->lowest,          training->warmup,
        training->updates,  training->decay_steps,   training->warmup_from_zero};
    if (backend->table->stream_new(backend, &trainer->stream, err) || place(trainer, err) ||
        erg_batches_open(&trainer->batches, job, err) || set_weights(trainer, err)) {
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
    void *const memory[] = {trainer->state, trainer->inputs, trainer->scalars, trainer->scratch};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            backend->table->free(backend, memory[i]);
    erg_batches_release(&trainer->batches);
    erg_weight_spans_release(&trainer->spans);
    erg_stage_close(trainer->stage);
    backend->table->stream_free(backend, trainer->stream);
    free(trainer->host_ids);
    free(trainer);
}

/* ---- a step ---- */

static int load_batch(struct erg_trainer *trainer, struct erg_train_step *step,
                      struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t microbatch = (size_t)(layout->microbatch * layout->sequence);
    size_t tokens = microbatch * (size_t)layout->microbatches;
    if (erg_batches_next(&trainer->batches, 0, trainer->host_ids, trainer->host_targets,
                         &step->targets, err) != 0)
        return -1;
    for (size_t first = 0; first < tokens; first += microbatch)
        erg_ops_embedding_order(microbatch, trainer->host_ids + first, trainer->host_order + first);
    trainer->tokens += tokens;
    trainer->host_scalars =
        (struct erg_step_scalars){.scale = step->targets ? 1 / (float)step->targets : 0};
    return copy(trainer, trainer->ids, trainer->host_ids, 3 * tokens * sizeof(int32_t), err) ||
                   copy(trainer, trainer->scalars, &trainer->host_scalars,
                        sizeof trainer->host_scalars, err)
               ? -1
               : 0;
}

static struct erg_stage_tokens microbatch_of(const struct erg_trainer *trainer, long index)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t first = (size_t)(index * layout->microbatch * layout->sequence);
    return (struct erg_stage_tokens){trainer->ids + first, trainer->order + first,
                                     trainer->targets + first, &trainer->scalars->scale,
                                     &trainer->scalars->loss};
}

static int run_microbatches(struct erg_trainer *trainer, struct erg_error *err)
{
    size_t bytes = trainer->weights->elements * sizeof(float);
    if (fill_zero(trainer, erg_stage_gradients(trainer->stage), bytes, err) != 0)
        return -1;
    for (long i = 0; i < trainer->job->layout.microbatches; i++) {
        struct erg_stage_tokens tokens = microbatch_of(trainer, i);
        if (erg_stage_forward(trainer->stage, 0, &tokens, trainer->stream, err) ||
            erg_stage_backward(trainer->stage, 0, &tokens, trainer->stream, err))
            return -1;
    }
    struct erg_kernel squares = {ERG_KERNEL_SQUARES,
                                 .floats = {.count = trainer->weights->elements,
                                            .in = erg_stage_gradients(trainer->stage),
                                            .sum = &trainer->scalars->squares}};
    return launch(trainer, &squares, err) ||
                   copy(trainer, &trainer->host_scalars, trainer->scalars,
                        sizeof trainer->host_scalars, err) ||
                   wait(trainer, err)
               ? -1
               : 0;
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

/* Kernels take eight elements at a time; what lies behind a weight is 0 and stays so. */
static size_t padded(size_t count)
{
    return (count + 7) / 8 * 8;
}

static int update_weights(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_weights *weights = trainer->weights;
    if (copy(trainer, &trainer->scalars->update, &trainer->host_scalars.update,
             sizeof trainer->host_scalars.update, err) != 0)
        return -1;
    for (size_t i = 0; i < weights->count; i++) {
        const struct erg_weight *weight = &weights->items[i];
        size_t at = weight->offset;
        struct erg_kernel adamw = {
            ERG_KERNEL_ADAMW, .adamw = {.count = padded(weight->rows * weight->columns),
                                        .decays = weight->decays,
                                        .update = &trainer->scalars->update,
                                        .gradient = erg_stage_gradients(trainer->stage) + at,
                                        .master = trainer->master + at,
                                        .m = trainer->m + at,
                                        .v = trainer->v + at,
                                        .weight = (char *)erg_stage_values(trainer->stage) +
                                                  at * trainer->options.backend->element_bytes}};
        if (launch(trainer, &adamw, err) != 0)
            return -1;
    }
    return 0;
}

int erg_trainer_step(struct erg_trainer *trainer, struct erg_train_step *step,
                     struct erg_error *err)
{
    *step = (struct erg_train_step){.step = trainer->steps + 1};
    if (load_batch(trainer, step, err) != 0 || run_microbatches(trainer, err) != 0)
        return -1;
    step->loss = step->targets ? (double)trainer->host_scalars.loss : (double)NAN;
    step->gradient_norm = sqrt(trainer->host_scalars.squares);
    step->learning_rate = erg_rate_at(&trainer->rate, trainer->updates);
    step->skipped = !step->targets || !isfinite(trainer->host_scalars.squares);
    if (!step->skipped) {
        trainer->host_scalars.update = update_of(trainer, step);
        step->clipped = trainer->host_scalars.update.factor < 1;
        if (update_weights(trainer, err) != 0 || wait(trainer, err) != 0)
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
    size_t elements = trainer->weights->elements;
    float *values = erg_xcalloc(3 * elements, sizeof *values);
    return (struct erg_checkpoint_state){trainer->weights, &trainer->spans, values,
                                         values + elements, values + 2 * elements};
}

int erg_trainer_save(struct erg_trainer *trainer, const char *run, int keep, struct erg_error *err)
{
    struct erg_checkpoint_state state = state_new(trainer);
    size_t bytes = 3 * trainer->weights->elements * sizeof(float);
    struct erg_checkpoint_place place = {.step = trainer->steps,
                                         .updates = trainer->updates,
                                         .samples = trainer->batches.order.next,
                                         .tokens = trainer->tokens,
                                         .skipped = trainer->steps - trainer->updates};
    int result = copy(trainer, state.master, trainer->master, bytes, err) || wait(trainer, err) ||
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
    size_t elements = trainer->weights->elements;
    int result = erg_checkpoint_load(folder, trainer->job, &place, &state, found, err);
    if (result == 0 && *found) {
        trainer->steps = place.step;
        trainer->updates = place.updates;
        trainer->tokens = place.tokens;
        erg_order_seek(&trainer->batches.order, place.samples);
        result = copy(trainer, trainer->master, state.master, 3 * elements * sizeof(float), err) ||
                         round_weights(trainer, err)
                     ? -1
                     : 0;
    }
    free(state.master);
    return result;
}

/* ---- what comes out ---- */

size_t erg_trainer_bytes(const struct erg_trainer *trainer)
{
    return trainer->bytes;
}

int erg_trainer_export(struct erg_trainer *trainer, const char *folder, bool bf16,
                       struct erg_error *err)
{
    size_t bytes = trainer->weights->elements * sizeof(float);
    float *masters = erg_xmalloc(bytes);
    int result = copy(trainer, masters, trainer->master, bytes, err) || wait(trainer, err) ? -1 : 0;
    if (result == 0)
        result = erg_model_file_write(folder, masters, trainer->weights, &trainer->spans,
                                      trainer->job->model->path, bf16, err);
    free(masters);
    return result;
}
