/* A model, its engine and the H800 nodes of the published layouts, for tests of the search over
 * layouts. */
#ifndef ERGON_TESTS_LAYOUT_WORLD_H
#define ERGON_TESTS_LAYOUT_WORLD_H

#include "check.h"

#include "layout/search/layout_search.h"

static const char cluster_path[] = ERGON_TEST_SOURCE_DIR "/data/clusters/32x8-h800-sxm-80gb.yaml";

struct world {
    struct erg_time_machine machine;
    struct erg_engine *engine;
    struct erg_model *model;
};

static struct world world_of(const char *model)
{
    struct erg_error err;
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct world world;
    assert_ok(erg_cluster_load(&cluster, cluster_path, &err), &err);
    assert_ok(erg_gpu_load(&gpu, cluster->gpu, &err), &err);
    assert_ok(erg_engine_load(&world.engine, "megatron-kwai-h800", &err), &err);
    assert_ok(erg_model_load(&world.model, model, &err), &err);
    erg_time_machine_init(&world.machine, gpu, cluster);
    erg_gpu_free(gpu);
    erg_cluster_free(cluster);
    return world;
}

static void world_release(struct world *world)
{
    erg_model_free(world->model);
    erg_engine_free(world->engine);
}

#endif
