/* One step on the emulated GPU. */
#ifndef ERG_TEST_EMULATED_STEP_H
#define ERG_TEST_EMULATED_STEP_H

#include "catalogue.h"
#include "check.h"

#include "device/emulated/emulated.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Joins and host cost nothing: the H200 constants were fitted that way. */
static const struct erg_stack plain_stack = {0};

static const struct erg_op hopper_mlp[] = {
    {ERG_OP_MEMORY, 1, 0, 201326592, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 412316860416, 260046848, 3072, 2048, {0}, 0, 0, 0},
    {ERG_OP_MEMORY, 1, 0, 268435456, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 2048, 1536, {0}, 0, 0, 0},
};

static inline struct erg_step step_of(const struct erg_op *ops, size_t count, double wire_bytes,
                                      size_t slot, int sms)
{
    return (struct erg_step){
        .task = {ops, count, {.kind = ERG_COMM_ALLREDUCE, .wire_bytes = wire_bytes, .group = 8}},
        .launch = {slot, sms},
    };
}

static inline struct erg_emulated_result run_one(const struct erg_gpu *gpu,
                                                 const struct erg_stack *stack,
                                                 const struct erg_step *step, int clock_mhz)
{
    struct erg_error err;
    struct erg_emulated_result result;
    assert_ok(erg_emulated_run(gpu, stack, step, 1, clock_mhz, &result, &err), &err);
    return result;
}

#endif
