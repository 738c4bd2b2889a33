/*
 * What the tests of the probe share: emulated GPUs of the catalogue, and the programs of a probe.
 */
#ifndef ERGON_TESTS_PROBE_WORLD_H
#define ERGON_TESTS_PROBE_WORLD_H

#include "catalogue.h"
#include "check.h"
#include "folder.h"

#include "device/emulated/emulated.h"
#include "probe/probe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define DATA ERGON_TEST_SOURCE_DIR "/data/"
#define ROWS DATA "profiles/h200/probe_tp4.csv"

static inline int probe_end(void **state)
{
    catalogue_release(state);
    return remove_folder(state);
}

static inline struct erg_device *
open_device(const struct erg_gpu *gpu, const struct erg_stack *stack, size_t gpus, uint64_t seed)
{
    struct erg_emulated_options options = erg_emulated_options_default();
    struct erg_device *device;
    struct erg_error err;
    options.gpus = gpus;
    options.seed = seed;
    assert_ok(erg_emulated_open(&device, gpu, stack, &options, &err), &err);
    return device;
}

enum { SHAPES = 4 }; /* of a probe of four GPUs */

struct programs {
    struct erg_probe_program items[SHAPES];
    size_t count;
};

/* All shapes of a probe of so many GPUs. Release them. */
static inline struct programs programs_of(const struct erg_gpu *known, int gpus)
{
    struct programs programs = {.count = erg_probe_shapes(gpus)};
    struct erg_stack stack = catalogue_stack("ergon");
    struct erg_error err;
    assert_int_equal(programs.count, gpus < 4 ? SHAPES - 1 : SHAPES);
    for (size_t i = 0; i < programs.count; i++)
        assert_ok(erg_probe_program_init(&programs.items[i], i, gpus, known, &stack, &err), &err);
    return programs;
}

static inline void programs_release(struct programs *programs)
{
    for (size_t i = 0; i < programs->count; i++)
        erg_probe_program_release(&programs->items[i]);
}

#endif
