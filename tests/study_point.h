/*
 * A point of a study without a file: models, GPUs and engines of the catalogue on nodes of eight in
 * a chassis, one adapter a node.
 */
#ifndef ERGON_TESTS_STUDY_POINT_H
#define ERGON_TESTS_STUDY_POINT_H

#include "base/memory.h"
#include "characterize/emulate_point.h"
#include "check.h"
#include "thermal/thermal.h"

struct test_study {
    struct erg_study_machine machine;
    struct erg_study_measurement measuring;
    struct erg_cluster cluster;
    struct erg_chassis *chassis;
    struct erg_model *model;
    struct erg_study_point point;
    struct erg_arena arena;
};

/* 32 H200s, 128 sequences an iteration, the engine of published runs, whose exchanges do not
 * overlap. */
static inline void study_open(struct test_study *study, const char *model, const char *layout,
                              long sequence, long microbatch, enum erg_recompute recompute)
{
    struct erg_error err;
    *study = (struct test_study){
        .cluster = {.nodes = 4,
                    .gpus_per_node = 8,
                    .inter_node_bandwidth = 12.5e9,
                    .inter_node_latency_s = 20e-6,
                    .adapters_per_node = 1},
        .measuring = {.device = "emulated",
                      .seed = 1,
                      .repeats = 3,
                      .record_period_ms = 50,
                      .sensor = "hopper",
                      .transient_s = NAN},
    };
    assert_ok(erg_gpu_load(&study->machine.gpu, "H200-SXM", &err), &err);
    assert_ok(erg_engine_load(&study->machine.engine, "nemo-hopper", &err), &err);
    assert_ok(erg_chassis_load(&study->chassis, "hgx-8-air", &err), &err);
    assert_ok(erg_model_load(&study->model, model, &err), &err);
    study->machine.engine->tensor_forward = 1;
    study->machine.engine->tensor_backward = 0.5;
    study->machine.engine->gradient_bytes = 4;
    study->machine.cluster = &study->cluster;
    study->machine.chassis = study->chassis;
    study->point = (struct erg_study_point){
        .machine = &study->machine,
        .measuring = &study->measuring,
        .model_name = model,
        .model = study->model,
        .batch = 128,
        .inlet_c = NAN,
        .fault_node = ERG_STUDY_NO_NODE,
        .fault_clock_share = 1,
    };
    struct erg_layout *spread = &study->point.layout;
    spread->sequence = sequence;
    assert_ok(erg_layout_parse(spread, layout, study->model->layers, &err), &err);
    spread->microbatch = microbatch;
    spread->recompute = recompute;
    assert_ok(erg_layout_fill(spread, 32, 128, &err), &err);
}

static inline void study_close(struct test_study *study)
{
    erg_gpu_free(study->machine.gpu);
    erg_engine_free(study->machine.engine);
    erg_chassis_free(study->chassis);
    erg_model_free(study->model);
    erg_arena_release(&study->arena);
}

/* What the point comes to; texts and lists live as long as the study. */
static inline struct erg_study_result study_run(struct test_study *study)
{
    struct erg_study_result result;
    struct erg_error err;
    erg_study_result_init(&result);
    assert_ok(erg_emulate_point(NULL, &study->point, &result, &study->arena, &err), &err);
    return result;
}

#endif
