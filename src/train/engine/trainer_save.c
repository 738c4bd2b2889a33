/* Trainer: saves its state, restores it, exports it, and finds non-finite values in it. */
#include "train/engine/trainer_internal.h"

#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- copies of the state ---- */

/* The state with masters and moments in `values`. */
static struct erg_checkpoint_state state_in(const struct erg_trainer *trainer, float *values)
{
    size_t elements = trainer->weights->state;
    return (struct erg_checkpoint_state){.weights = trainer->weights,
                                         .spans = &trainer->spans,
                                         .rank = trainer->ranks.rank,
                                         .rendezvous = trainer->options.rendezvous,
                                         .master = values,
                                         .m = values + elements,
                                         .v = values + 2 * elements,
                                         .data = trainer->data,
                                         .changed = trainer->options.changed,
                                         .plan = trainer->options.plan_text,
                                         .may_commit = trainer->options.may_commit,
                                         .commit_context = trainer->options.commit_context};
}

static float *values_new(const struct erg_trainer *trainer)
{
    return erg_xcalloc(3 * trainer->weights->state + 1, sizeof(float));
}

static struct erg_checkpoint_place place_of(const struct erg_trainer *trainer)
{
    return (struct erg_checkpoint_place){.step = trainer->steps,
                                         .updates = trainer->updates,
                                         .samples = trainer->samples,
                                         .tokens = trainer->tokens};
}

/* ---- saving ---- */

/* World call. */
static int finish(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_checkpoint_writer *writer = trainer->writer;
    trainer->writer = NULL;
    int result = writer ? erg_checkpoint_finish(writer, err) : 0;
    if (writer && result == 0)
        trainer->checkpoint = trainer->saved;
    if (result != 0) {
        free(trainer->saved_run);
        trainer->saved_run = NULL;
    }
    return result;
}

uint64_t erg_trainer_checkpoint(const struct erg_trainer *trainer)
{
    return trainer->checkpoint;
}

int erg_trainer_commit(struct erg_trainer *trainer, struct erg_error *err)
{
    uint64_t step = trainer->saved;
    if (finish(trainer, err) == 0)
        return 0;
    if (err->status == ERG_SUPERSEDED)
        return -1;
    if (trainer->options.rendezvous && erg_rendezvous_check(trainer->options.rendezvous, err) != 0)
        return -1;
    if (trainer->ranks.rank == 0)
        erg_log(ERG_LOG_WARNING, "%s; there is no checkpoint of step %" PRIu64, err->message, step);
    return 0;
}

int erg_trainer_save_begin(struct erg_trainer *trainer, const char *run, int keep,
                           struct erg_error *err)
{
    if (erg_trainer_commit(trainer, err) != 0)
        return -1;
    if (trainer->saved == trainer->steps && trainer->saved_run &&
        strcmp(trainer->saved_run, run) == 0)
        return 0; /* it is complete */
    if (!trainer->written)
        trainer->written = values_new(trainer);
    struct erg_checkpoint_place place = place_of(trainer);
    struct erg_checkpoint_state state = state_in(trainer, trainer->written);
    if (erg_trainer_copy_now(trainer, trainer->written, erg_optimizer_state(trainer->optimizer),
                             trainer->buffers.bytes[ERG_STATIC_STATE], err) ||
        erg_checkpoint_begin(&trainer->writer, run, trainer->job, &place, &state, keep, err))
        return -1;
    free(trainer->saved_run);
    trainer->saved_run = erg_xstrdup(run);
    trainer->saved = trainer->steps;
    return 0;
}

int erg_trainer_save(struct erg_trainer *trainer, const char *run, int keep, struct erg_error *err)
{
    return erg_trainer_save_begin(trainer, run, keep, err) || finish(trainer, err) ? -1 : 0;
}

int erg_trainer_resume(struct erg_trainer *trainer, const char *folder, char **found,
                       struct erg_error *err)
{
    float *values = values_new(trainer);
    struct erg_checkpoint_state state = state_in(trainer, values);
    struct erg_checkpoint_place place;
    int result = erg_checkpoint_load(folder, trainer->job, &place, &state, found, err);
    if (result == 0 && *found) {
        trainer->steps = trainer->checkpoint = place.step;
        trainer->updates = place.updates;
        trainer->samples = place.samples;
        trainer->tokens = place.tokens;
        trainer->has_read = false;
        erg_order_seek(&trainer->batches.order, place.samples);
        result = erg_trainer_copy_now(trainer, erg_optimizer_state(trainer->optimizer), values,
                                      trainer->buffers.bytes[ERG_STATIC_STATE], err) ||
                         erg_optimizer_round(trainer->optimizer, err)
                     ? -1
                     : 0;
    }
    free(values);
    return result;
}

int erg_trainer_export(struct erg_trainer *trainer, const char *folder, bool bf16,
                       struct erg_error *err)
{
    float *values = values_new(trainer);
    struct erg_checkpoint_state state = state_in(trainer, values);
    int result = erg_trainer_copy_now(trainer, values, erg_optimizer_state(trainer->optimizer),
                                      trainer->weights->state * sizeof(float), err) ||
                         erg_checkpoint_export(folder, trainer->job, &state, bf16, err)
                     ? -1
                     : 0;
    free(values);
    return result;
}

/* ---- non-finite values ---- */

/* The first non-finite tensor of this rank's share in device values; "": all are finite. */
static int find_not_finite(struct erg_trainer *trainer, const float *of_device, size_t count,
                           bool of_state, char name[96], struct erg_error *err)
{
    float *values = erg_xmalloc((count + 1) * sizeof *values);
    int result = erg_trainer_copy_now(trainer, values, of_device, count * sizeof *values, err);
    name[0] = 0;
    for (size_t i = 0; i < trainer->spans.count && result == 0 && !*name; i++) {
        const struct erg_weight_span *span = &trainer->spans.items[i];
        size_t first = of_state ? span->state : span->offset;
        for (size_t row = 0; row < span->rows && !*name; row++)
            for (size_t column = 0; column < span->columns && !*name; column++)
                if (!isfinite(values[first + row * span->stride + column]))
                    snprintf(name, 96, "%s", span->name);
    }
    free(values);
    return result;
}

/* The result of a rank. */
struct not_finite {
    char weights[96], gradients[96];
};

int erg_trainer_fail_not_finite(struct erg_trainer *trainer, struct erg_error *err)
{
    struct erg_rendezvous *rendezvous = trainer->options.rendezvous;
    size_t world = (size_t)trainer->ranks.world;
    struct not_finite own = {0}, *all = erg_xcalloc(world, sizeof *all);
    const char *kind = "gradient", *name = "no tensor";
    int result = find_not_finite(trainer, erg_optimizer_state(trainer->optimizer),
                                 trainer->weights->state, true, own.weights, err) ||
                         find_not_finite(trainer, erg_stage_gradients(trainer->stage),
                                         trainer->weights->elements, false, own.gradients, err)
                     ? -1
                     : 0;
    if (result == 0)
        result = erg_rendezvous_all_gather(rendezvous, &own, sizeof own, all,
                                           ERG_RENDEZVOUS_PATIENCE_S, err);
    for (size_t i = world; i-- > 0;)
        name = *all[i].gradients ? all[i].gradients : name;
    for (size_t i = world; i-- > 0;)
        if (*all[i].weights) {
            kind = "weight";
            name = all[i].weights;
        }
    if (result == 0)
        erg_fail(err, ERG_FAILED,
                 "the gradients of %d steps in a row are not finite, and no weights were updated; "
                 "the first %s that is not finite is in '%s'",
                 trainer->skips, kind, name);
    if (result == 0 && trainer->ranks.rank != 0)
        err->message[0] = 0; /* rank 0 reports it for all */
    free(all);
    return -1;
}
