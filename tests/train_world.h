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

#endif
