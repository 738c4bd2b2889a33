/*
 * A made-up partition to search: 18 clocks x 6 SM counts x 3 slots, with a kink where communication
 * stops being exposed, and an oracle with a memory, as the store behind a real one.
 */
#ifndef ERGON_TESTS_SEARCH_WORLD_H
#define ERGON_TESTS_SEARCH_WORLD_H

#include "check.h"

#include "base/random.h"
#include "search/search.h"

#include <stdbool.h>

enum { WORLD_CLOCKS = 18, WORLD_SMS = 6, WORLD_SLOTS = 3 };
enum { WORLD_SIZE = WORLD_CLOCKS * WORLD_SMS * WORLD_SLOTS };

static const double world_blocking_w = 85.0;
static const int world_clocks[WORLD_CLOCKS] = {900,  930,  960,  990,  1020, 1050,
                                               1080, 1110, 1140, 1170, 1200, 1230,
                                               1260, 1290, 1320, 1350, 1380, 1410};
static const int world_sms[WORLD_SMS] = {3, 6, 9, 12, 18, 30};

struct world {
    double time_s[WORLD_SIZE], energy_j[WORLD_SIZE];
    struct erg_measurement memory[WORLD_SIZE], swept[WORLD_SIZE];
    bool remembered[WORLD_SIZE], swept_before[WORLD_SIZE];
    uint64_t seed;
    bool noise;
    int held_mhz;      /* the GPU runs at most at this clock; 0 = at any */
    double cool_share; /* by which it is faster in a burst where it is held */
    size_t made;       /* new measurements of both kinds */
    size_t fail_after; /* of them: then the oracle is interrupted */
};

static inline struct erg_space world_space(void)
{
    return (struct erg_space){world_clocks, WORLD_CLOCKS, world_sms, WORLD_SMS, WORLD_SLOTS};
}

static inline void world_init(struct world *world, uint64_t seed, bool noise)
{
    *world = (struct world){.seed = seed, .noise = noise, .fail_after = SIZE_MAX};
    struct erg_space space = world_space();
    for (size_t i = 0; i < WORLD_SIZE; i++) {
        struct erg_choice c = erg_space_choice(&space, i);
        double f = world_clocks[c.clock] / 1410.0, n = world_sms[c.sm];
        double compute_s = 1.0e-3 / f * (1.0 + 0.003 * n + 0.01 * (double)(c.slot == 0));
        double comm_s = 4.0e-3 / n, start_s = 0.2e-3 * (double)c.slot / f;
        world->time_s[i] = fmax(compute_s, start_s + comm_s) + 0.2e-3;
        double v = 1.0 + 0.9 * fmax(0.0, f - 0.83);
        world->energy_j[i] = 60.0 * world->time_s[i] + v * v * (0.22 + 6e-4 * n * comm_s * 1e3);
    }
}

/* A power cap: what is asked for above the clock number `held` runs at that one. */
static inline void world_hold(struct world *world, size_t held, double cool_share)
{
    struct erg_space space = world_space();
    world->held_mhz = world_clocks[held];
    world->cool_share = cool_share;
    for (size_t i = 0; i < WORLD_SIZE; i++) {
        struct erg_choice c = erg_space_choice(&space, i);
        c.clock = c.clock < held ? c.clock : held;
        world->time_s[i] = world->time_s[erg_space_index(&space, c)];
        world->energy_j[i] = world->energy_j[erg_space_index(&space, c)];
    }
}

static inline bool world_holds(const struct world *world, size_t config)
{
    struct erg_space space = world_space();
    return world->held_mhz &&
           world_clocks[erg_space_choice(&space, config).clock] > world->held_mhz;
}

/* What a reading says; nothing in a world that holds no GPU. */
static inline double world_clock(const struct world *world, size_t config)
{
    struct erg_space space = world_space();
    if (!world->held_mhz || world_holds(world, config))
        return world->held_mhz;
    return world_clocks[erg_space_choice(&space, config).clock];
}

static inline int world_stopped(struct world *world, struct erg_error *err)
{
    if (world->made >= world->fail_after)
        return erg_fail(err, ERG_INTERRUPTED, "measuring: stopped");
    world->made++;
    return 0;
}

static inline double world_factor(const struct world *world, double sd, size_t kind, size_t config)
{
    uint64_t key = erg_hash_u64(world->seed, kind * WORLD_SIZE + config);
    return world->noise ? exp(sd * erg_hash_normal(key)) : 1.0;
}

static inline int world_measure(void *context, size_t config, struct erg_measurement *out,
                                struct erg_error *err)
{
    struct world *world = context;
    if (!world->remembered[config]) {
        if (world_stopped(world, err))
            return -1;
        world->memory[config] = (struct erg_measurement){
            .time_s = world->time_s[config] * world_factor(world, 0.003, 1, config),
            .energy_j = world->energy_j[config] * world_factor(world, 0.01, 2, config),
            .clock_mhz = world_clock(world, config)};
        world->remembered[config] = true;
    }
    *out = world->memory[config];
    return 0;
}

static inline int world_measure_time(void *context, size_t config, struct erg_measurement *out,
                                     struct erg_error *err)
{
    struct world *world = context;
    if (!world->swept_before[config]) {
        if (world_stopped(world, err))
            return -1;
        world->swept[config] = (struct erg_measurement){
            .time_s = world->time_s[config] * world_factor(world, 0.006, 3, config) *
                      (world_holds(world, config) ? 1 - world->cool_share : 1),
            .clock_mhz = world_clock(world, config)};
        world->swept_before[config] = true;
    }
    *out = world->swept[config];
    return 0;
}

static inline struct erg_oracle world_oracle(struct world *world)
{
    return (struct erg_oracle){world_measure, world_measure_time, world};
}

static inline struct erg_search_options world_options(enum erg_search_method method, size_t budget,
                                                      uint64_t seed)
{
    struct erg_search_options options;
    erg_search_defaults(&options, method, 1);
    options.budget = budget;
    options.seed = seed;
    options.blocking_power_w = world_blocking_w;
    options.stop_ratio = 0.0;
    if (method == ERG_SEARCH_TREES) {
        options.start = 20;
        options.batch = 10;
    }
    return options;
}

static inline struct erg_search_result *
world_search(struct world *world, enum erg_search_method method, size_t budget, uint64_t seed)
{
    struct erg_space space = world_space();
    struct erg_search_options options = world_options(method, budget, seed);
    struct erg_oracle oracle = world_oracle(world);
    struct erg_search_result *result;
    struct erg_error err;
    assert_ok(erg_search_run(&result, &space, &options, &oracle, &err), &err);
    return result;
}

/* True hypervolume of the estimated front, relative to that of the true one. */
static inline double world_hypervolume(const struct world *world,
                                       const struct erg_search_result *result)
{
    struct erg_frontier truth = {0}, front = {0}, chosen = {0};
    for (size_t i = 0; i < WORLD_SIZE; i++)
        erg_frontier_add(&truth, world->time_s[i],
                         world->energy_j[i] - world_blocking_w * world->time_s[i], (int64_t)i);
    erg_frontier_filter(&truth);
    erg_search_front(result, world_blocking_w, &front);
    for (size_t i = 0; i < front.count; i++) {
        size_t c = (size_t)front.points[i].recipe;
        erg_frontier_add(&chosen, world->time_s[c],
                         world->energy_j[c] - world_blocking_w * world->time_s[c], (int64_t)c);
    }
    const struct erg_point *first = &truth.points[0], *last = &truth.points[truth.count - 1];
    double t = last->time_s + 0.1 * (last->time_s - first->time_s);
    double e = first->energy_j + 0.1 * (first->energy_j - last->energy_j);
    double share = erg_frontier_hypervolume(&chosen, t, e) / erg_frontier_hypervolume(&truth, t, e);
    erg_frontier_release(&truth);
    erg_frontier_release(&front);
    erg_frontier_release(&chosen);
    return share;
}

#endif
