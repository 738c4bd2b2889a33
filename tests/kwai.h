/*
 * Published numbers of Megatron-Kwai: peak bytes of Llama 65B on 256 GPUs by recomputation and
 * offload ratio, and the configurations of its throughput table. Source: the project's public
 * result tables (memory and throughput of 32 nodes of 8 H800 80 GB).
 */
#ifndef ERGON_TESTS_KWAI_H
#define ERGON_TESTS_KWAI_H

#include "layout/memory.h"

/* Peak of all ranks after two iterations; sequence 8192, t 2, c 2, p 8, l 2, batch 256. */
static const struct kwai_cell {
    enum erg_remat remat;
    double offload, measured_bytes;
} kwai_cells[] = {
    {ERG_REMAT_NONE, 0.3, 72762730496},     {ERG_REMAT_NONE, 0.4, 66951784960},
    {ERG_REMAT_NONE, 0.5, 61136119808},     {ERG_REMAT_NONE, 0.6, 55733856256},
    {ERG_REMAT_NONE, 0.7, 50331592704},     {ERG_REMAT_NONE, 0.8, 45824813056},
    {ERG_REMAT_NONE, 0.9, 39527328256},     {ERG_REMAT_NONE, 1.0, 34491172352},
    {ERG_REMAT_BALANCED, 0.0, 65330982400}, {ERG_REMAT_BALANCED, 0.1, 62128631296},
    {ERG_REMAT_BALANCED, 0.2, 58907405824}, {ERG_REMAT_BALANCED, 0.3, 55554059776},
    {ERG_REMAT_BALANCED, 0.4, 52089073152}, {ERG_REMAT_BALANCED, 0.5, 48604098048},
    {ERG_REMAT_BALANCED, 0.6, 45722611200}, {ERG_REMAT_BALANCED, 0.7, 42832735744},
    {ERG_REMAT_BALANCED, 0.8, 38925740032}, {ERG_REMAT_BALANCED, 0.9, 36144916480},
    {ERG_REMAT_BALANCED, 1.0, 32462145024},
};
enum { KWAI_CELLS = sizeof kwai_cells / sizeof *kwai_cells };

/* Offload ratios that were chosen for 64 GiB. */
static const struct kwai_row {
    const char *model;
    long sequence, gpus, batch, tensor, context, pipeline, layers;
    enum erg_remat remat;
    double offload;
} kwai_rows[] = {
    {"llama-175b", 4096, 256, 256, 2, 2, 16, 1, ERG_REMAT_NONE, 0.522},
    {"llama-175b", 4096, 240, 240, 4, 1, 12, 1, ERG_REMAT_NONE, 0.276},
    {"llama-175b", 4096, 160, 240, 4, 1, 8, 2, ERG_REMAT_BALANCED, 0.334},
    {"llama-175b", 4096, 144, 252, 4, 1, 6, 2, ERG_REMAT_BALANCED, 0.746},
    {"llama-175b", 4096, 120, 270, 4, 1, 6, 2, ERG_REMAT_BALANCED, 0.851},
    {"llama-175b", 4096, 96, 264, 4, 1, 12, 2, ERG_REMAT_BALANCED, 0.324},
    {"llama-175b", 4096, 48, 264, 4, 1, 12, 1, ERG_REMAT_BALANCED, 0.999},
    {"llama-65b", 4096, 256, 256, 2, 1, 8, 2, ERG_REMAT_NONE, 0.355},
    {"llama-65b", 4096, 200, 250, 4, 1, 5, 4, ERG_REMAT_NONE, 0.000},
    {"llama-65b", 4096, 192, 240, 4, 1, 8, 2, ERG_REMAT_NONE, 0.000},
    {"llama-65b", 4096, 128, 256, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.000},
    {"llama-65b", 4096, 120, 240, 2, 1, 5, 2, ERG_REMAT_BALANCED, 0.383},
    {"llama-65b", 4096, 96, 240, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.035},
    {"llama-65b", 4096, 80, 240, 2, 1, 10, 2, ERG_REMAT_BALANCED, 0.000},
    {"llama-65b", 4096, 56, 252, 2, 1, 4, 2, ERG_REMAT_BALANCED, 0.945},
    {"llama-65b", 4096, 48, 264, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.290},
    {"llama-65b", 4096, 32, 272, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.544},
    {"llama-2-70b", 8192, 256, 256, 2, 4, 8, 2, ERG_REMAT_NONE, 0.000},
    {"llama-2-70b", 8192, 224, 252, 2, 4, 4, 4, ERG_REMAT_BALANCED, 0.352},
    {"llama-2-70b", 8192, 200, 250, 2, 2, 5, 2, ERG_REMAT_BALANCED, 0.368},
    {"llama-2-70b", 8192, 160, 260, 2, 4, 10, 2, ERG_REMAT_NONE, 0.000},
    {"llama-2-70b", 8192, 144, 252, 2, 2, 4, 2, ERG_REMAT_BALANCED, 0.755},
    {"llama-2-70b", 8192, 120, 270, 2, 2, 5, 2, ERG_REMAT_BALANCED, 0.460},
    {"llama-2-70b", 8192, 112, 252, 2, 2, 4, 2, ERG_REMAT_BALANCED, 0.811},
    {"llama-2-70b", 8192, 80, 260, 2, 2, 10, 2, ERG_REMAT_BALANCED, 0.024},
    {"llama-2-70b", 8192, 64, 256, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.654},
    {"llama-2-70b", 8192, 40, 260, 2, 1, 10, 2, ERG_REMAT_BALANCED, 0.713},
    {"llama-2-70b", 8192, 32, 272, 2, 1, 8, 2, ERG_REMAT_BALANCED, 0.858},
};
enum { KWAI_ROWS = sizeof kwai_rows / sizeof *kwai_rows };

#endif
