/* Kernels of GPUs made up for tests. */
#ifndef ERGON_TESTS_KERNELS_WORLD_H
#define ERGON_TESTS_KERNELS_WORLD_H

#include "base/random.h"
#include "base/text.h"
#include "check.h"
#include "io/csv.h"
#include "trace/interval_sort.h"
#include "trace/kernel_category.h"
#include "trace/kernel_import.h"
#include "trace/kernel_time.h"
#include "trace/trace_write.h"

/* A small trace of two streams: a product over half a gather, another over a whole sum, a copy. */
static const size_t world_first[] = {0}, world_both[] = {0, 1};
static const struct erg_kernel_record world_records[] = {
    {.start_ns = 1000,
     .end_ns = 5001,
     .wait_ns = -1,
     .name = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
     .device = 0,
     .stream = 7,
     .category = ERG_CATEGORY_MATMUL,
     .correlation = 11,
     .grid = {132, 1, 1},
     .block = {384, 1, 1},
     .flops = 1000000},
    {.start_ns = 3000,
     .end_ns = 9000,
     .wait_ns = 1500,
     .name = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
     .device = 0,
     .stream = 20,
     .category = ERG_CATEGORY_ALL_GATHER,
     .correlation = 12,
     .bytes = 4096,
     .collective = {.name = "_allgather_base",
                    .dtype = "BFloat16",
                    .group = "0",
                    .ranks = "[0, 1]",
                    .in_elements = 2048,
                    .out_elements = 4096,
                    .group_size = 2},
     .needs = world_first,
     .need_count = 1},
    {.start_ns = 9100,
     .end_ns = 20000,
     .wait_ns = -1,
     .name = "void erg::norm_forward<8>(\"quoted\\\")",
     .device = 0,
     .stream = 7,
     .category = ERG_CATEGORY_LAYERNORM,
     .correlation = 13,
     .needs = world_both,
     .need_count = 2},
    {.start_ns = 10000,
     .end_ns = 12345,
     .wait_ns = 0,
     .name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
     .device = 0,
     .stream = 20,
     .category = ERG_CATEGORY_SEND_RECV,
     .sub = ERG_SUB_ALL_TO_ALL,
     .correlation = 14,
     .bytes = 300,
     .collective = {.name = "all_to_all", .dtype = "BFloat16", .group = "1", .group_size = 2}},
    {.start_ns = 19000,
     .end_ns = 25000,
     .wait_ns = -1,
     .name = "Memcpy DtoH (Device -> Pinned)",
     .device = 0,
     .stream = 30,
     .source = ERG_SOURCE_MEMCPY,
     .category = ERG_CATEGORY_MEMORY,
     .sub = ERG_SUB_COPY,
     .correlation = 15,
     .bytes = 1 << 20},
};
enum { WORLD_RECORDS = sizeof world_records / sizeof *world_records };

static const struct erg_kernel_device world_device = {
    .id = 0, .name = "NVIDIA H100", .uuid = "GPU-11", .memory_bytes = 80ull << 30};
static const struct erg_kernel_span world_span = {"forward 0", 0, 7, 1000, 5001};
static const struct erg_kernel_counter world_counter = {"power W", 0, 2000, 512.5};

static const struct erg_kernel_trace world_trace = {.rank = 3,
                                                    .world = 8,
                                                    .backend = "nccl",
                                                    .unix_ns = 1700000000000000000,
                                                    .devices = &world_device,
                                                    .device_count = 1,
                                                    .records = world_records,
                                                    .record_count = WORLD_RECORDS,
                                                    .spans = &world_span,
                                                    .span_count = 1,
                                                    .counters = &world_counter,
                                                    .counter_count = 1};

#endif
