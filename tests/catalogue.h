/* Catalogue entries by value for tests that change them; loaded once, freed at the end. */
#ifndef ERGON_TESTS_CATALOGUE_H
#define ERGON_TESTS_CATALOGUE_H

#include "check.h"
#include "hardware/hardware.h"

static struct erg_gpu *catalogue_gpus[8];
static struct erg_stack *catalogue_stacks[8];

static inline struct erg_gpu catalogue_gpu(const char *name)
{
    size_t i = 0;
    for (; i < 8 && catalogue_gpus[i]; i++)
        if (strcmp(catalogue_gpus[i]->name, name) == 0)
            return *catalogue_gpus[i];
    struct erg_error err;
    assert_true(i < 8);
    assert_ok(erg_gpu_load(&catalogue_gpus[i], name, &err), &err);
    return *catalogue_gpus[i];
}

static inline struct erg_stack catalogue_stack(const char *name)
{
    size_t i = 0;
    for (; i < 8 && catalogue_stacks[i]; i++)
        if (strcmp(catalogue_stacks[i]->name, name) == 0)
            return *catalogue_stacks[i];
    struct erg_error err;
    assert_true(i < 8);
    assert_ok(erg_stack_load(&catalogue_stacks[i], name, &err), &err);
    return *catalogue_stacks[i];
}

/* The group teardown of a test program that uses the above. */
static inline int catalogue_release(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        if (catalogue_gpus[i])
            erg_gpu_free(catalogue_gpus[i]);
        if (catalogue_stacks[i])
            erg_stack_free(catalogue_stacks[i]);
    }
    return 0;
}

#endif
