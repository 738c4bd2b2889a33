/*
 * Published numbers of Megatron-Kwai: peak bytes of Llama 65B on 256 GPUs by recomputation and
 * offload ratio. Source: the project's public result tables (32 nodes of 8 H800 80 GB). Those of
 * its throughput are tests/data/megatron-kwai-h800.csv.
 */
#ifndef ERGON_TESTS_KWAI_H
#define ERGON_TESTS_KWAI_H

#include "layout/memory/stage_memory.h"

/* Peak of all ranks after two iterations; sequence 8192, t 2, c 2, p 8, l 2, batch 256. */
static const struct kwai_cell {
    enum erg_recompute recompute;
    double offload, measured_bytes;
} kwai_cells[] = {
    {ERG_RECOMPUTE_NONE, 0.3, 72762730496},     {ERG_RECOMPUTE_NONE, 0.4, 66951784960},
    {ERG_RECOMPUTE_NONE, 0.5, 61136119808},     {ERG_RECOMPUTE_NONE, 0.6, 55733856256},
    {ERG_RECOMPUTE_NONE, 0.7, 50331592704},     {ERG_RECOMPUTE_NONE, 0.8, 45824813056},
    {ERG_RECOMPUTE_NONE, 0.9, 39527328256},     {ERG_RECOMPUTE_NONE, 1.0, 34491172352},
    {ERG_RECOMPUTE_BALANCED, 0.0, 65330982400}, {ERG_RECOMPUTE_BALANCED, 0.1, 62128631296},
    {ERG_RECOMPUTE_BALANCED, 0.2, 58907405824}, {ERG_RECOMPUTE_BALANCED, 0.3, 55554059776},
    {ERG_RECOMPUTE_BALANCED, 0.4, 52089073152}, {ERG_RECOMPUTE_BALANCED, 0.5, 48604098048},
    {ERG_RECOMPUTE_BALANCED, 0.6, 45722611200}, {ERG_RECOMPUTE_BALANCED, 0.7, 42832735744},
    {ERG_RECOMPUTE_BALANCED, 0.8, 38925740032}, {ERG_RECOMPUTE_BALANCED, 0.9, 36144916480},
    {ERG_RECOMPUTE_BALANCED, 1.0, 32462145024},
};
enum { KWAI_CELLS = sizeof kwai_cells / sizeof *kwai_cells };

#endif
