/* What tests look at inside a trainer: tensors of a checkpoint by name, and logits. */
#ifndef TESTS_TRAIN_WORLD_H
#define TESTS_TRAIN_WORLD_H

#include "check.h"

#include "base/memory.h"
#include "decoder/stage_internal.h"
#include "train/engine/trainer_internal.h"

static inline void read_device(struct erg_trainer *trainer, void *to, const void *from,
                               size_t bytes)
{
    struct erg_error err;
    assert_ok(erg_trainer_copy_now(trainer, to, from, bytes, &err), &err);
}

/* All elements of a checkpoint's tensor, of masters or gradients of a run on one rank, where the
 * state is all weights. */
static inline void read_tensor(struct erg_trainer *trainer, const float *from, const char *name,
                               float *values)
{
    size_t bytes = trainer->weights->elements * sizeof(float);
    bool found = false;
    float *all = erg_xmalloc(bytes);
    read_device(trainer, all, from, bytes);
    for (size_t i = 0; i < trainer->spans.count; i++) {
        const struct erg_weight_span *span = &trainer->spans.items[i];
        if (strcmp(span->name, name) != 0)
            continue;
        found = true;
        for (size_t row = 0; row < span->rows; row++)
            for (size_t column = 0; column < span->columns; column++)
                values[erg_weight_span_there(span, row, column)] =
                    all[erg_weight_span_here(span, row, column)];
    }
    free(all);
    if (!found)
        fail_msg("there is no tensor %s", name);
}

/* Logits [tokens of a microbatch, vocab] of a backend with floats. */
static inline void read_logits(struct erg_trainer *trainer, int32_t *ids, float *logits)
{
    const struct erg_layout *layout = &trainer->job->layout;
    size_t tokens = (size_t)(layout->microbatch * layout->sequence);
    size_t words = (size_t)trainer->job->model->vocab, columns = trainer->stage->words;
    struct erg_stage_tokens microbatch = {.ids = trainer->ids};
    struct erg_error err;
    assert_int_equal(trainer->options.backend->element_bytes, sizeof(float));
    read_device(trainer, trainer->ids, ids, tokens * sizeof *ids);
    size_t pass = erg_stage_pass(trainer->stage, 0);
    assert_ok(erg_stage_forward(trainer->stage, pass, &microbatch, NULL, NULL, NULL,
                                trainer->stream, &err),
              &err);
    float *all = erg_xmalloc(tokens * columns * sizeof *all);
    read_device(trainer, all, trainer->stage->head_sets[0].logits, tokens * columns * sizeof *all);
    for (size_t i = 0; i < tokens * words; i++)
        logits[i] = all[i / words * columns + i % words];
    free(all);
}

#endif
