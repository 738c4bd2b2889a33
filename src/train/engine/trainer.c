/* Trainer: opens the weights, optimizer and data of a run. */
#include "train/engine/trainer_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "train/engine/initialize.h"
#include "train/engine/rank_buffers.h"
#include "train/engine/rank_share.h"
#include "train/files/model_file.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/*
 * Checks that tensor ranks can share the rows of each half of a microbatch, since a plan may split
 * it.
 */
static bool shares_halves(const struct erg_trainer_options *options)
{
    return erg_job_splits_stream(options->job) && options->plan &&
           options->job->layout.microbatch % 2 == 0;
}

static int check_shares(const struct erg_trainer_options *options, struct erg_error *err)
{
    const struct erg_job *job = options->job;
    const struct erg_layout *layout = &job->layout;
    const bool halves = shares_halves(options);
    const long sequences = halves ? layout->microbatch / 2 : layout->microbatch;
    const long tokens = sequences * layout->sequence / layout->context;
    const char *what = halves ? "half a microbatch" : "a microbatch";
    if (!erg_job_splits_stream(job))
        return 0;
    if (tokens % layout->tensor != 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "%s: key 'train.sequence_parallel': %ld tensor ranks cannot share the %ld "
                        "tokens of %s; expected a number that the tensor degree divides",
                        job->path, layout->tensor, tokens, what);
    if (halves && job->model->learned_positions && sequences > layout->tensor &&
        sequences % layout->tensor != 0)
        return erg_fail(err, ERG_INFEASIBLE,
                        "%s: key 'train.sequence_parallel': %ld sequences of half a microbatch and "
                        "%ld tensor ranks; expected a plan of no more sequences, or of as many for "
                        "each rank, where positions are learned",
                        job->path, sequences, layout->tensor);
    return 0;
}

static int check_layout(const struct erg_trainer_options *options, struct erg_error *err)
{
    const struct erg_job *job = options->job;
    const struct erg_layout *layout = &job->layout;
    if (!job->training)
        return erg_fail(err, ERG_FAILED,
                        "%s: key 'train': the key is missing; expected the data, the number of "
                        "updates and the learning rate of the run",
                        job->path);
    if (erg_job_check_whole(job, "ergon train", err) != 0)
        return -1;
    if (erg_layout_gpus(layout) != options->world)
        return erg_fail(
            err, ERG_USAGE,
            "%s: the layout has %ld ranks (tensor %ld, context %ld, pipeline %ld, "
            "data %ld), but there are %d; expected equal numbers, as \"ergon run -n %ld -- "
            "ergon train\" starts them",
            job->path, erg_layout_gpus(layout), layout->tensor, layout->context, layout->pipeline,
            layout->data, options->world, erg_layout_gpus(layout));
    return check_shares(options, err) || erg_stage_check(job->model, err) ||
                   (options->plan && erg_plan_check_job(options->plan, job, err))
               ? -1
               : 0;
}

/* Sets the addresses of this rank's tokens of a step and its scalars. */
static void place_inputs(struct erg_trainer *trainer)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t microbatches = (size_t)layout->microbatches;
    size_t tokens = (size_t)(layout->microbatch * layout->sequence / layout->context);
    trainer->inputs = tokens * microbatches;
    assert(trainer->buffers.bytes[ERG_STATIC_TOKENS] == 3 * trainer->inputs * sizeof(int32_t));
    trainer->scalars =
        erg_static_at(&trainer->buffers, trainer->memory, ERG_STATIC_STEP_SCALARS, 0);
    trainer->ids = erg_static_at(&trainer->buffers, trainer->memory, ERG_STATIC_TOKENS, 0);
    trainer->order = trainer->ids + trainer->inputs;
    trainer->targets = trainer->order + trainer->inputs;
    for (size_t i = 0; i < 2; i++) {
        struct erg_train_batch *batch = &trainer->read[i];
        batch->ids = erg_xcalloc(3 * trainer->inputs, sizeof *batch->ids);
        batch->order = batch->ids + trainer->inputs;
        batch->targets = batch->order + trainer->inputs;
    }
    trainer->microbatches = erg_xcalloc(microbatches, sizeof *trainer->microbatches);
    for (size_t i = 0; i < microbatches; i++)
        trainer->microbatches[i] = (struct erg_stage_tokens){
            trainer->ids + i * tokens, trainer->order + i * tokens, trainer->targets + i * tokens,
            &trainer->scalars->scale, &trainer->scalars->loss};
}

int erg_trainer_copy(struct erg_trainer *trainer, void *to, const void *from, size_t bytes,
                     struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->copy(backend, to, from, bytes, trainer->stream, err);
}

int erg_trainer_copy_now(struct erg_trainer *trainer, void *to, const void *from, size_t bytes,
                         struct erg_error *err)
{
    return erg_backend_copy_now(trainer->options.backend, to, from, bytes, trainer->stream, err);
}

int erg_trainer_wait(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->stream_wait(backend, trainer->stream, err);
}

/* The folder of the run's initial weights, or "random"; free it. */
static char *init_of(const struct erg_trainer *trainer)
{
    const char *init = trainer->options.init;
    return init                      ? erg_xstrdup(init)
           : trainer->training->init ? erg_job_file_path(trainer->job, trainer->training->init)
                                     : erg_xstrdup("random");
}

static int try_programs(struct erg_trainer *trainer, struct erg_error *err)
{
    for (size_t i = 0; i < trainer->plan.programs.count; i++) {
        const struct erg_pass_program *item = &trainer->plan.programs.items[i];
        if (erg_stage_try_program(trainer->stage, item->chunk, item->direction == ERG_BACKWARD,
                                  &item->program, trainer->stream, err) != 0)
            return -1;
    }
    return 0;
}

/* Runs all kernels of the passes once before ranks begin to wait for each other. */
static int warm_up(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    return backend->table->fill(backend, trainer->ids, 0, 3 * trainer->inputs * sizeof(int32_t),
                                trainer->stream, err) ||
                   backend->table->fill(backend, trainer->scalars, 0, sizeof *trainer->scalars,
                                        trainer->stream, err) ||
                   erg_stage_warm_up(trainer->stage, trainer->microbatches, trainer->stream, err) ||
                   try_programs(trainer, err) ||
                   backend->table->fill(backend, erg_stage_gradients(trainer->stage), 0,
                                        trainer->weights->elements * sizeof(float), trainer->stream,
                                        err) ||
                   erg_trainer_wait(trainer, err)
               ? -1
               : 0;
}

/* Sets the initial masters. */
static int set_weights(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_weights *weights = trainer->weights;
    char *folder = init_of(trainer);
    float *state = erg_xcalloc(weights->state, sizeof *state);
    int result = 0;
    if (strcmp(folder, "random") == 0)
        result = erg_initialize(state, weights, &trainer->spans, trainer->job->model,
                                trainer->training->seed, err);
    else
        result =
            erg_model_file_load(state, weights, &trainer->spans, trainer->job->model, folder, err);
    if (result == 0)
        result = erg_trainer_copy_now(trainer, erg_optimizer_state(trainer->optimizer), state,
                                      weights->state * sizeof *state, err);
    free(state);
    free(folder);
    return result;
}

/* Allocates all device memory; a failure names the size. */
static int take_memory(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    struct erg_backend *backend = trainer->options.backend;
    const size_t bytes = trainer->buffers.total;
    if (backend->table->alloc(backend, &trainer->memory, bytes, err) == 0)
        return 0;
    return erg_fail_context(err,
                            "%s: rank %d needs %.3g GiB for weights, gradients, the optimizer's "
                            "share and microbatches of %ld x %ld tokens",
                            trainer->job->path, trainer->ranks.rank, (double)bytes / 0x1p30,
                            layout->microbatch, layout->sequence);
}

static void warn_of_scratch(const struct erg_static_memory *buffers, size_t bound)
{
    const size_t bytes =
        buffers->bytes[ERG_STATIC_SCRATCH] + buffers->bytes[ERG_STATIC_OPTIMIZER_SCRATCH];
    if (bytes > bound)
        erg_log(ERG_LOG_WARNING,
                "kernels need %.1f MiB of scratch, more than the %.1f MiB that ergon memory counts",
                (double)bytes / 0x1p20, (double)bound / 0x1p20);
}

static int place(struct erg_trainer *trainer, const struct erg_stage_options *options,
                 struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    size_t bound;
    if (erg_rank_buffers_init(&trainer->buffers, &bound, options, &trainer->job->layout,
                              trainer->ranks.stage, trainer->training->offload_least_bytes, err))
        return -1;
    warn_of_scratch(&trainer->buffers, bound);
    if (take_memory(trainer, err) ||
        erg_stage_open(&trainer->stage, options, &trainer->buffers, trainer->memory, err))
        return -1;
    place_inputs(trainer);
    trainer->weights = erg_stage_weights(trainer->stage);
    erg_weight_spans_init(&trainer->spans, trainer->weights, &trainer->request);
    const struct erg_offload_options offload = {.backend = backend,
                                                .stage = trainer->stage,
                                                .layout = &trainer->job->layout,
                                                .layers = trainer->job->model->layers,
                                                .index = trainer->ranks.stage,
                                                .stream = trainer->stream,
                                                .buffers = &trainer->buffers,
                                                .memory = trainer->memory,
                                                .timeline = &trainer->timeline};
    if (erg_offload_open(&trainer->offload, &offload, err) != 0)
        return -1;
    const struct erg_passes_options passes = {
        .backend = backend,
        .stage = trainer->stage,
        .list = &trainer->list,
        .groups = &trainer->ranks.groups,
        .stream = trainer->stream,
        .buffers = &trainer->buffers,
        .memory = trainer->memory,
        .timeline = &trainer->timeline,
        .offload = trainer->offload,
        .plan = trainer->options.plan ? &trainer->plan : NULL,
        .clocks = trainer->clocks,
        .times_work = trainer->paces != NULL,
        .finished = erg_watchdog_finished(trainer->watchdog),
    };
    struct erg_optimizer_options optimizer = {backend,
                                              trainer->stage,
                                              &trainer->spans,
                                              &trainer->ranks.groups,
                                              options->sequence_parallel,
                                              trainer->stream,
                                              &trainer->buffers,
                                              trainer->memory,
                                              &trainer->timeline};
    return erg_passes_open(&trainer->passes, &passes, err) ||
                   erg_optimizer_open(&trainer->optimizer, &optimizer, err)
               ? -1
               : 0;
}

static int open_data(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_training *training = trainer->training;
    const struct erg_batch_files files = {"train.data", training->data, training->data_count,
                                          training->shuffle};
    return erg_batches_open(&trainer->batches, trainer->job, &files, err) ||
                   erg_trainer_open_validation(trainer, err)
               ? -1
               : 0;
}

static void describe(const void *context, int rank, size_t instruction, char *text, size_t capacity)
{
    const struct erg_trainer *trainer = context;
    struct erg_ranks ranks;
    erg_ranks_place(&ranks, &trainer->job->layout, rank);
    erg_pass_list_describe(&trainer->list, (size_t)ranks.stage, instruction, text, capacity);
}

static int open_watchdog(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    struct erg_watchdog_options options = {.limit_s = trainer->options.hang_s,
                                           .rank = trainer->ranks.rank,
                                           .rendezvous = trainer->options.rendezvous,
                                           .instructions =
                                               backend->table->count ? trainer->list.count : 0,
                                           .describe = describe,
                                           .context = trainer,
                                           .stuck = trainer->options.stuck};
    return erg_watchdog_open(&trainer->watchdog, &options, err);
}

/* World call: the ranks' places and groups, and this rank's passes. */
static int open_ranks(struct erg_trainer *trainer, struct erg_error *err)
{
    const struct erg_layout *layout = &trainer->job->layout;
    int result = erg_ranks_open(&trainer->ranks, layout, trainer->job->model,
                                trainer->options.backend, trainer->options.rank, err) ||
                         erg_pass_list_init(&trainer->list, layout, trainer->ranks.stage, err)
                     ? -1
                     : 0;
    return erg_rendezvous_agree(trainer->options.rendezvous, result, err);
}

/* World call: *turns, the largest number that a rank has. */
static int find_turns(int *turns, int own, struct erg_rendezvous *rendezvous, struct erg_error *err)
{
    *turns = own;
    if (!rendezvous)
        return 0;
    const int world = erg_rendezvous_world(rendezvous);
    int *all = erg_xcalloc((size_t)world, sizeof *all);
    int result = erg_rendezvous_all_gather(rendezvous, &own, sizeof own, all,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    for (int i = 0; i < world && result == 0; i++)
        *turns = all[i] > *turns ? all[i] : *turns;
    free(all);
    return result;
}

/* For the whole microbatch, and for the nanobatches of a plan. */
static int choose_own(const struct erg_trainer *trainer, const struct erg_stage_options *options,
                      struct erg_error *err)
{
    struct erg_stage_options half = *options;
    half.sequences /= 2;
    half.halves = false;
    return erg_stage_choose(options, err) ||
                   (trainer->options.plan && half.sequences > 0 && erg_stage_choose(&half, err))
               ? -1
               : 0;
}

/*
 * World call: the device chooses algorithms for products, unless all runs must give the same bits.
 * The ranks of a machine take turns, so that no rank disturbs another one's timing, and later ones
 * read the saved results of the first, so that all run the same algorithms.
 */
static int choose_products(struct erg_trainer *trainer, const struct erg_stage_options *options,
                           struct erg_error *err)
{
    struct erg_rendezvous *rendezvous = trainer->options.rendezvous;
    const bool chooses = options->backend->table->choose && !trainer->training->deterministic;
    const int own = chooses ? trainer->options.local_rank + 1 : 0; /* turns count from 1 */
    int turns;
    if (find_turns(&turns, own, rendezvous, err) != 0)
        return -1;
    for (int turn = 1; turn <= turns; turn++) {
        int result = turn == own ? choose_own(trainer, options, err) : 0;
        if (erg_rendezvous_agree(rendezvous, result, err) != 0)
            return -1;
    }
    return 0;
}

static int open_clocks(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    const struct erg_clock_controller_options *asked = trainer->options.clocks;
    if (!asked)
        return 0;
    struct erg_clock_controller_options options = *asked;
    if (trainer->job->layout.data > 1)
        trainer->paces = erg_xcalloc((size_t)trainer->ranks.world, sizeof *trainer->paces);
    options.finished = backend->table->count ? erg_watchdog_finished(trainer->watchdog) : NULL;
    return erg_clock_controller_open(&trainer->clocks, &options, err);
}

bool erg_trainer_clocks(const struct erg_trainer *trainer, struct erg_clock_numbers *numbers)
{
    if (trainer->clocks)
        erg_clock_controller_read(trainer->clocks, numbers);
    return trainer->clocks != NULL;
}

/* Opens the parts of a step that each rank does by itself. */
static int open_rank(struct erg_trainer *trainer, const struct erg_stage_options *options,
                     struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    const struct erg_plan *plan = trainer->options.plan;
    trainer->request = options->weights;
    erg_timeline_init(&trainer->timeline, backend);
    if (plan && erg_pass_plan_init(&trainer->plan, plan, trainer->options.chooses, trainer->job,
                                   trainer->ranks.stage, err) != 0)
        return -1;
    trainer->point = plan ? plan->selected.point : 0;
    if (backend->table->stream_new(backend, &trainer->stream, false, err) ||
        open_watchdog(trainer, err) || open_clocks(trainer, err) || place(trainer, options, err) ||
        open_data(trainer, err))
        return -1;
    trainer->data = erg_batches_describe(&trainer->batches);
    return set_weights(trainer, err) || warm_up(trainer, err) ? -1 : 0;
}

/* A number that is equal on ranks whose buffers have the same sizes and offsets. */
static uint64_t layout_of(const struct erg_static_memory *buffers)
{
    uint64_t layout = buffers->total;
    for (int i = 0; i < ERG_STATIC_BUFFERS; i++)
        layout = erg_hash_u64(layout, buffers->bytes[i]);
    for (int i = 0; i < ERG_STATIC_SETS; i++)
        layout = erg_hash_u64(layout, buffers->begins[i]);
    return layout;
}

/* Two message buffers alternate (passes.c). */
static void place_messages(struct erg_trainer *trainer, struct erg_group *group,
                           enum erg_static_buffer kind)
{
    struct erg_backend *backend = trainer->options.backend;
    if (!group)
        return;
    const char *first = erg_static_at(&trainer->buffers, trainer->memory, kind, 0);
    const char *second = erg_static_at(&trainer->buffers, trainer->memory, kind, 1);
    backend->table->group_window(backend, group, first, (size_t)(second - first));
}

/* World call: from now on ranks exchange data within this memory. */
static int connect(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_backend *backend = trainer->options.backend;
    const struct erg_rank_groups *groups = &trainer->ranks.groups;
    if (trainer->ranks.world == 1 || !backend->table->connect)
        return 0;
    if (groups->tied)
        backend->table->group_window(backend, groups->tied, erg_optimizer_tied(trainer->optimizer),
                                     0);
    place_messages(trainer, groups->forward_to, ERG_STATIC_SENT_OUTPUT);
    place_messages(trainer, groups->backward_to, ERG_STATIC_SENT_GRADIENT);
    trainer->connected = true;
    return backend->table->connect(backend, trainer->memory, trainer->buffers.total,
                                   layout_of(&trainer->buffers), err);
}

/* World call: opens this rank's part of the model and its data. */
static int open_share(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_stage_options options =
        erg_rank_share(&trainer->chunks, trainer->job, &trainer->ranks, trainer->options.backend);
    options.halves = shares_halves(&trainer->options);
    if (choose_products(trainer, &options, err) != 0)
        return -1;
    return erg_rendezvous_agree(trainer->options.rendezvous, open_rank(trainer, &options, err),
                                err) ||
                   connect(trainer, err)
               ? -1
               : 0;
}

int erg_trainer_check(const struct erg_trainer_options *options, struct erg_error *err)
{
    if (check_layout(options, err) != 0)
        return -1;
    struct erg_trainer trainer = {
        .options = *options, .job = options->job, .training = options->job->training};
    const struct erg_model_terms terms = {.changed = options->changed, .tells = options->rank == 0};
    char *init = init_of(&trainer);
    int result = open_data(&trainer, err);
    if (result == 0 && strcmp(init, "random") != 0)
        result = erg_model_file_check_config(init, options->job, &terms, err) ||
                         erg_model_file_check(options->job->model, init, err)
                     ? -1
                     : 0;
    free(init);
    erg_batches_release(&trainer.batches);
    erg_batches_release(&trainer.validation);
    return result;
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
    trainer->power_w = NAN;
    trainer->rate = (struct erg_learning_rate){
        training->schedule, training->learning_rate, training->lowest,          training->warmup,
        training->updates,  training->decay_steps,   training->warmup_from_zero};
    if (open_ranks(trainer, err) || open_share(trainer, err) ||
        erg_optimizer_round(trainer->optimizer, err)) {
        erg_trainer_close(trainer);
        return -1;
    }
    *out = trainer;
    return 0;
}

/* Waits for queued work. If the job failed, its groups are closed first, which ends the work. */
static void settle(struct erg_trainer *trainer)
{
    struct erg_error ignored;
    if (trainer->optimizer && !trainer->in_step && erg_trainer_wait(trainer, &ignored) == 0)
        (void)erg_optimizer_wait(trainer->optimizer, &ignored);
    if (trainer->connected)
        trainer->options.backend->table->disconnect(trainer->options.backend);
    erg_ranks_release(&trainer->ranks, trainer->options.backend);
}

void erg_trainer_close(struct erg_trainer *trainer)
{
    if (!trainer)
        return;
    struct erg_backend *backend = trainer->options.backend;
    struct erg_error ignored;
    erg_reader_close(trainer->reader);
    settle(trainer);
    erg_checkpoint_give_up(trainer->writer);
    free(trainer->written);
    free(trainer->saved_run);
    free(trainer->data);
    if (erg_clock_controller_close(trainer->clocks, &ignored) != 0)
        erg_log(ERG_LOG_WARNING, "%s", ignored.message);
    erg_watchdog_close(trainer->watchdog);
    erg_optimizer_close(trainer->optimizer);
    erg_passes_close(trainer->passes);
    erg_offload_close(trainer->offload);
    erg_batches_release(&trainer->batches);
    erg_batches_release(&trainer->validation);
    erg_weight_spans_release(&trainer->spans);
    erg_stage_close(trainer->stage);
    if (trainer->memory)
        backend->table->free(backend, trainer->memory);
    erg_pass_plan_release(&trainer->plan);
    erg_pass_list_release(&trainer->list);
    erg_timeline_release(&trainer->timeline);
    backend->table->stream_free(backend, trainer->stream);
    free(trainer->paces);
    free(trainer->chunks);
    free(trainer->microbatches);
    free(trainer->read[0].ids);
    free(trainer->read[1].ids);
    free(trainer);
}

/* ---- its state ---- */

uint64_t erg_trainer_steps(const struct erg_trainer *trainer)
{
    return trainer->steps;
}

uint64_t erg_trainer_updates(const struct erg_trainer *trainer)
{
    return trainer->updates;
}

uint64_t erg_trainer_tokens(const struct erg_trainer *trainer)
{
    return trainer->tokens;
}

const struct erg_ranks *erg_trainer_ranks(const struct erg_trainer *trainer)
{
    return &trainer->ranks;
}

size_t erg_trainer_bytes(const struct erg_trainer *trainer)
{
    return trainer->buffers.total;
}
