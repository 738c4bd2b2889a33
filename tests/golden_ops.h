/*
 * Two partitions of Llama 3.2 3B, TP8, 8 sequences of 4096 tokens: what the emulator's golden rows
 * were computed for.
 */
#ifndef ERG_TESTS_GOLDEN_OPS_H
#define ERG_TESTS_GOLDEN_OPS_H

#include "device/work.h"

static const struct erg_op forward_attention[] = {
    {ERG_OP_MEMORY, 2, 0, 553648128, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 64424509440, 125566976, 3072, 640, {0}, 0, 0, 0},
    {ERG_OP_MEMORY, 3, 0, 75497472, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_ATTENTION_FORWARD, 1, 51539607552, 33554432, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 38654705664, 115605504, 384, 3072, {0}, 0, 0, 0},
};
static const struct erg_op backward_mlp[] = {
    {ERG_OP_MEMORY, 3, 0, 855638016, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 103079215104, 140509184, 3072, 1024, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 103079215104, 165675008, 16384, 192, {0}, 0, 0, 0},
    {ERG_OP_MEMORY, 1, 0, 167772160, 0, 0, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 180355072, 2048, 3072, {0}, 0, 0, 0},
    {ERG_OP_GEMM, 1, 206158430208, 230686720, 16384, 384, {0}, 0, 0, 0},
};

#endif
