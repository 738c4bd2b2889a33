/* Kinds of GPUs with engines of their own, for tests of layouts over several of them. */
#ifndef ERGON_TESTS_MIXED_WORLD_H
#define ERGON_TESTS_MIXED_WORLD_H

#include "check.h"

#include "layout/search/layout_search.h"

static const char *const kind_gpus[] = {"H800-SXM-80GB", "A100-SXM4-40GB", "A40"};

/* Kinds of nodes with a network of 12.5 GB/s a GPU. */
struct world {
    struct erg_model *model;
    struct erg_engine *engines[3];
    struct erg_gpu *gpus[3];
    struct erg_layout_kind kinds[3];
};

static struct world world_of(const char *model)
{
    static const double peaks[] = {989.4e12, 312e12, 150e12};
    struct erg_error err;
    struct world world;
    assert_ok(erg_model_load(&world.model, model, &err), &err);
    for (int k = 0; k < 3; k++) {
        struct erg_cluster cluster = {
            .nodes = 1, .gpus_per_node = 8, .inter_node_bandwidth = 100e9};
        assert_ok(erg_engine_load(&world.engines[k], "megatron-kwai-h800", &err), &err);
        assert_ok(erg_gpu_load(&world.gpus[k], kind_gpus[k], &err), &err);
        world.engines[k]->peak_flops = peaks[k];
        world.kinds[k] =
            (struct erg_layout_kind){.name = kind_gpus[k],
                                     .gpu = world.gpus[k],
                                     .engine = world.engines[k],
                                     .gpus = 8,
                                     .memory_bytes = 0.9 * world.gpus[k]->memory_bytes};
        erg_time_machine_init(&world.kinds[k].machine, world.gpus[k], &cluster);
    }
    return world;
}

static void world_release(struct world *world)
{
    for (int k = 0; k < 3; k++) {
        erg_engine_free(world->engines[k]);
        erg_gpu_free(world->gpus[k]);
    }
    erg_model_free(world->model);
}

static struct erg_layout_search search_of(const struct world *world, size_t kinds)
{
    return (struct erg_layout_search){
        .model = world->model,
        .kinds = {world->kinds[0], world->kinds[1], world->kinds[2]},
        .kind_count = kinds,
        .sequence = 4096,
        .batch_least = 64,
        .batch_most = 64,
        .recomputes = ERG_RECOMPUTE_ALL,
        .offload = true,
        .top = 10,
    };
}

#endif
