/* Studies of a small cluster, and results that are made up for their points. */
#ifndef ERGON_TESTS_STUDY_WORLD_H
#define ERGON_TESTS_STUDY_WORLD_H

#include "characterize/study_run.h"
#include "folder.h"

#include "base/random.h"

#define STUDY_HEAD                                                                                 \
    "name: small\ncluster: charllm-h200\nengine: nemo-hopper\nbatch: 128\nsequence: 2048\n"

static inline struct erg_study *load_study_as(const char *text, const struct erg_study_change *as)
{
    struct erg_study *study;
    struct erg_error err;
    write_text("sweep.yaml", text);
    assert_ok(erg_study_load(&study, in_folder("sweep.yaml"), as, &err), &err);
    return study;
}

static inline struct erg_study *load_study(const char *text)
{
    return load_study_as(text, &(struct erg_study_change){.transient_s = NAN});
}

/* A number from 0 to 1 that belongs to a point and a place in its result. */
static inline double made_up(const struct erg_study_point *point, uint64_t place)
{
    return erg_hash_uniform(erg_hash_u64(erg_hash_text(point->id), place));
}

static inline struct erg_result_series made_up_series(const struct erg_study_point *point,
                                                      uint64_t place, double least, double span)
{
    const double mean = least + span * made_up(point, place);
    return (struct erg_result_series){mean, mean - 3, mean + 8, mean + 6, mean + 7};
}

static inline void make_up_gpus(const struct erg_study_point *point,
                                struct erg_study_result *result, struct erg_arena *arena)
{
    const long gpus = erg_cluster_gpus(point->machine->cluster);
    const long node_gpus = point->machine->cluster->gpus_per_node;
    result->gpus = gpus;
    result->nodes = gpus / node_gpus;
    result->node_gpus = node_gpus;
    result->gpu = erg_arena_alloc(arena, (size_t)gpus * sizeof *result->gpu);
    result->gpu_count = (size_t)gpus;
    for (long rank = 0; rank < gpus; rank++) {
        const bool rear = rank % node_gpus >= node_gpus / 2;
        const uint64_t place = 1000 + 10 * (uint64_t)rank;
        result->gpu[rank] = (struct erg_result_gpu){
            .rank = rank,
            .node = rank / node_gpus,
            .local = rank % node_gpus,
            .slot = rear ? "rear" : "front",
            .stage = rank * point->layout.pipeline / gpus,
            .power_w = made_up_series(point, place, 500, 150),
            .temperature_c = made_up_series(point, place + 1, rear ? 75 : 60, 1),
            .memory_temperature_c = made_up_series(point, place + 2, 70, 10),
            .energy_j = 1e4,
            .busy_share = 0.8,
            .clock_mhz = 1600,
            .busy_clock_mhz = 1500 + 200 * made_up(point, place + 3),
            .cap_share = 0.6,
            .thermal_share = 0.1,
            .received = {1e12 * made_up(point, place + 4), 1e9, 1e9},
        };
    }
}

static inline void make_up_kernels(const struct erg_study_point *point,
                                   struct erg_study_result *result, struct erg_arena *arena)
{
    static const char *const names[] = {"MatMul", "SendRecv", "AllGather"};
    enum { NAMES = sizeof names / sizeof *names };
    const size_t stages = (size_t)point->layout.pipeline;
    result->kernels = erg_arena_alloc(arena, stages * sizeof *result->kernels);
    result->kernels_count = stages;
    for (size_t s = 0; s < stages; s++) {
        struct erg_result_kernels *kernels = &result->kernels[s];
        *kernels = (struct erg_result_kernels){.rank = (long)s, .stage = (long)s, .idle_s = 1};
        kernels->categories = erg_arena_alloc(arena, NAMES * sizeof *kernels->categories);
        kernels->category_count = NAMES;
        for (size_t c = 0; c < NAMES; c++) {
            const double seconds = 1 + 10 * made_up(point, 50 + 10 * s + c);
            kernels->categories[c] = (struct erg_result_category){
                names[c], seconds, seconds / 2, c == 1 ? seconds / 4 : NAN, 100, 1000};
        }
    }
}

/* As erg_study_run's `point`. */
static inline int make_up(void *context, const struct erg_study_point *point,
                          struct erg_study_result *result, struct erg_arena *arena,
                          struct erg_error *err)
{
    (void)context;
    (void)err;
    struct erg_result_metrics *metrics = &result->metrics;
    metrics->time_s = 20 + 10 * made_up(point, 0);
    metrics->energy_j = 4e5 + 1e5 * made_up(point, 1);
    metrics->eff_edp = 128 / (metrics->time_s * metrics->energy_j / 1e6);
    metrics->tokens_per_j = 0.5 + made_up(point, 2);
    metrics->j_per_token = 1 / metrics->tokens_per_j;
    metrics->power_w = made_up_series(point, 3, 550, 100);
    metrics->temperature_c = made_up_series(point, 4, 60, 10);
    metrics->clock_mhz = 1500 + 300 * made_up(point, 5);
    metrics->busy_clock_mhz = metrics->clock_mhz - 50;
    make_up_gpus(point, result, arena);
    make_up_kernels(point, result, arena);
    return 0;
}

/* The same, but deep pipelines are out of memory. */
static inline int make_up_memory(void *context, const struct erg_study_point *point,
                                 struct erg_study_result *result, struct erg_arena *arena,
                                 struct erg_error *err)
{
    if (point->layout.pipeline < 16)
        return make_up(context, point, result, arena, err);
    result->status = ERG_RESULT_MEMORY;
    result->message = "stage 0 needs 9.9 GiB more than available";
    return 0;
}

/* Runs a study in FOLDER/name. */
static inline void run_study_by(const struct erg_study *study, const char *name,
                                int (*point)(void *, const struct erg_study_point *,
                                             struct erg_study_result *, struct erg_arena *,
                                             struct erg_error *),
                                struct erg_study_tally *tally)
{
    struct erg_error err;
    int claim;
    const struct erg_study_run run = {
        .study = study, .folder = in_folder(name), .jobs = 2, .point = point};
    assert_ok(erg_study_claim(&claim, study, run.folder, &err), &err);
    assert_ok(erg_study_run(&run, tally, &err), &err);
    erg_study_release(claim);
}

#endif
